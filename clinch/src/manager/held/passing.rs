//! How often and for how long a lease goes from one holder of this process to the next.

use std::time::Duration;

use tokio::time::Instant;

use super::{Held, Phase};
use crate::stamp::Stamp;
use crate::sync::atomic::Ordering;

/// How often a lease may be passed on before it goes back to the engine, so that other processes get their turn. Less than
/// [`Fence::STEP`], because passes count inside a step.
const MOST_PASSES: u32 = 64;
/// For how long a lease may be passed on.
const PASSED_FOR: Duration = Duration::from_millis(50);
/// What has lost less than this part of its TTL is as good as new. A grant by the engine may lack as much.
const AS_GOOD_AS_NEW: u32 = 100;

/// Whether a lease can change hands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::manager) enum Passing {
    /// It has: this is the number under which the next one has it.
    Passed {
        number: u32,
        /// It is to be renewed, without anybody waiting for that.
        renew: bool,
    },
    /// Only after it was renewed; until then nobody has it, and this is the number of that.
    AfterRenewal(u32),
    /// It must go back to the engine.
    No,
}

impl Held {
    /// Passes the lease on from the one who has it under `pass` to one in another scope, if it is good enough and was not
    /// passed on too often. With less than half its validity left it must be renewed first.
    pub(in crate::manager) fn pass_on(&self, pass: u32, to_scope: u64) -> Passing {
        let mut state = self.state();
        let fresh = pass < MOST_PASSES && Stamp::now().since(self.since) < PASSED_FOR;
        if self.is_degraded() || state.pass != pass || !fresh {
            return Passing::No;
        }
        let left = self.left(&state);
        if left.is_zero() {
            return Passing::No;
        }
        state.pass += 1;
        self.scope.store(to_scope, Ordering::Release);
        let (number, allowance, unconfirmed) = (state.pass, state.allowance(), state.unconfirmed);
        state.counted = None;
        // Whoever looks at it under the old number learns that it is over.
        self.changed(state);
        let ttl = self.asked.ttl();
        if unconfirmed
            && left * 2 >= self.asked.patience().inherits().map_or(ttl, |kept_for| kept_for.min(ttl))
        {
            // It is confirmed soon, if it is still held then.
            Passing::Passed { number, renew: false }
        } else if left * 2 >= ttl {
            Passing::Passed { number, renew: left + allowance + ttl / AS_GOOD_AS_NEW < ttl }
        } else {
            Passing::AfterRenewal(number)
        }
    }

    /// Whether this is its first pass, of which its line is to be reminded.
    pub(in crate::manager) fn note_passing(&self) -> bool {
        !std::mem::replace(&mut self.state().passing_noted, true)
    }

    /// When it can be passed on no more, unless it is renewed before; `None` if it cannot any more.
    pub(in crate::manager) fn passed_until(&self) -> Option<Instant> {
        let end = self.since.after(PASSED_FOR);
        let state = self.state();
        let passes = state.phase == Phase::Held && Stamp::now() < end && !self.left(&state).is_zero();
        passes.then(|| end.min(state.valid_until).instant())
    }
}
