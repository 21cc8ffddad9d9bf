//! One holder's time with a lease, and what becomes of the lease at its end: it goes to the next in line of this process,
//! or back to the engine.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::core::Core;
use super::guard::{Lease, Marks};
use super::handle::{Handle, Kind};
use super::held::{Held, Telling};
use super::line::Handed;
use crate::error::Error;
use crate::telemetry::{Hold, MEASURES, Measured, Meter, Released};

/// A lease under the number of its pass. Dropped, it is given up in the background: no I/O, no spawn, no panic.
#[derive(Debug)]
pub(super) struct Tenure {
    lease: Lease,
    /// The guard that has it, as far as it is measured.
    guard: Measured,
}

/// How a tenure ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// The next one has the lease, or will have it.
    Passed,
    /// The engine is to be told.
    Tell(Telling),
}

impl Tenure {
    pub(super) fn new(held: Arc<Held>, pass: u32, core: &Arc<Core>, passes: bool) -> Self {
        let marks = Marks { passes, ..Marks::default() };
        Self {
            lease: Lease { held, core: Handle::of(core, Kind::Look), pass, marks },
            guard: Measured::default(),
        }
    }

    /// Of a lease that a guard has from its beginning, and that is counted as such.
    pub(super) fn of_guard(held: Arc<Held>, core: Arc<Handle>, passes: bool, meter: Meter) -> Self {
        let marks = Marks { passes, over: false, guarded: true };
        Self { lease: Lease { held, core, pass: 0, marks }, guard: Measured::of(meter) }
    }

    pub(super) const fn held(&self) -> &Arc<Held> {
        &self.lease.held
    }

    pub(super) const fn pass(&self) -> u32 {
        self.lease.pass
    }

    /// A look at its lease.
    pub(super) const fn lease(&self) -> &Lease {
        &self.lease
    }

    /// It is that of a guard, and counts as one until it is dropped.
    pub(super) fn counts(&mut self) {
        self.lease.counts();
    }

    /// Its guards are counted instead of it: what they are to hold the core by.
    #[cfg(feature = "submit")]
    pub(super) fn counts_by_its_guards(&mut self) -> Arc<Handle> {
        let look = Handle::of(&self.lease.core, Kind::Look);
        std::mem::replace(&mut self.lease.core, look)
    }

    /// A guard has the lease from now on.
    pub(super) fn begin(&mut self, meter: &Meter, renews: bool) {
        self.lease.held.begin_tenure(meter, renews);
        self.guard = Measured::of(meter.clone());
        self.lease.marks.guarded = true;
    }

    /// The guard that has it has no more.
    fn unguarded(&mut self) -> Option<(Meter, Hold)> {
        if std::mem::take(&mut self.lease.marks.guarded) { self.guard.take() } else { None }
    }

    /// Ends it as far as this process is concerned, with so much of its validity left.
    fn end(&mut self, left: Duration) -> End {
        if std::mem::replace(&mut self.lease.marks.over, true) {
            return End::Tell(Telling::Nothing);
        }
        let guard = self.unguarded().map(|(meter, hold)| {
            hold.ends(left, self.lease.held.attempt().ttl());
            if left.is_zero() {
                self.lease.held.note_expiry();
            }
            meter
        });
        let passed = || {
            if let Some(meter) = &guard {
                self.lease.held.tell_end(meter, Released::Passed);
            }
            End::Passed
        };
        let core = &self.lease.core;
        // One that leaves something behind does not go to the next in line.
        if self.lease.marks.passes && !self.lease.held.leaves_something() && !core.closing.is_closed() {
            match core.lines.hand_over(&self.lease.held, self.lease.pass) {
                Handed::Over { renew } => {
                    if renew {
                        core.renewals.once(&self.lease.held);
                    }
                    core.passed(&self.lease.held);
                    return passed();
                }
                Handed::AfterRenewal(number) => {
                    core.renewals.to_pass_on(&self.lease.held, number);
                    return passed();
                }
                Handed::Back => {}
            }
        }
        let telling = self.lease.held.begin_release(self.lease.pass);
        if telling == Telling::Nothing && self.lease.held.is_degraded() {
            core.lines.ended(&self.lease.held, None);
        }
        End::Tell(telling)
    }

    /// Gives the lease back to an engine that answers without any waiting, if it is still ours and concerns nobody else: in one
    /// step, because nobody can see it half done. `None`: nothing has changed here, and it goes the long way.
    pub(super) fn release_at_once(&mut self) -> Option<bool> {
        let Lease { held, core, pass, marks } = &self.lease;
        // Where the engine has the same clock, what it still has had not run out here either.
        let engine = core.store.at_once().filter(|_| core.can.same_clock && !marks.over)?;
        core.ensure_background();
        let left = if MEASURES { self.lease.remaining() } else { Duration::ZERO };
        let answer = core.lines.end_at_once(held, || {
            held.end_at_once(*pass, |lease| engine.release_now(lease).ok().filter(|answer| answer.held))
        })?;
        core.repeat_unless_conclusive(held, answer);
        self.lease.marks.over = true;
        if let Some((meter, hold)) = self.unguarded() {
            let held = &self.lease.held;
            hold.ends(left, held.attempt().ttl());
            held.tell_end(&meter, Released::GivenBack);
        }
        Some(true)
    }

    /// Gives the lease up now, and says whether it was still ours.
    pub(super) async fn release(mut self) -> Result<bool, Error> {
        self.lease.core.ensure_background();
        let left = self.lease.remaining();
        let end = self.end(left);
        let Lease { held, core, .. } = &self.lease;
        match end {
            End::Passed => return Ok(!left.is_zero()),
            // The engine said that it is gone: there is nothing to give back.
            End::Tell(Telling::Nothing) => return Ok(false),
            End::Tell(Telling::TakeBack) => {
                core.lines.give_back(held.clone());
                return Ok(false);
            }
            End::Tell(Telling::Release) => {}
        }
        if let Some(answer) = core.release_at_once(held) {
            return Ok(answer.held);
        }
        match core.release(held).await {
            Ok(answer) => Ok(answer.held),
            Err(source) => {
                let operation = if held.leaves_something() { "complete" } else { "release" };
                Err(Error::engine(operation, Some(self.lease.key()), source))
            }
        }
    }
}

impl Drop for Tenure {
    fn drop(&mut self) {
        if !self.lease.marks.over {
            let left = self.lease.remaining();
            if let End::Tell(Telling::Release | Telling::TakeBack) = self.end(left) {
                self.lease.core.lines.give_back(self.lease.held.clone());
            }
        }
    }
}

impl Core {
    /// A lease was passed on. Those who stand behind are not told of each pass, but once when there can be no more: from then on
    /// the head looks after the lease that stands in its way.
    fn passed(&self, held: &Arc<Held>) {
        if held.note_passing() {
            self.passed_again(held.clone());
        }
    }

    fn passed_again(&self, held: Arc<Held>) {
        let until = held.passed_until().unwrap_or_else(Instant::now);
        self.passed.put(until, held, |_| {});
    }

    /// Tells the lines of those leases that can be passed on no more.
    pub(super) fn tell_lines(&self) {
        while let Some(held) = self.passed.pop_due() {
            self.lines.call_heads(&held);
            if held.passed_until().is_some() {
                self.passed_again(held);
            }
        }
    }

    /// A lease that nobody has was renewed, or could not be: it goes to the next in line, or back.
    pub(super) fn pass_on_or_give_back(self: &Arc<Self>, held: Arc<Held>, pass: u32) {
        drop(Tenure::new(held, pass, self, true));
        self.renewals.passing.remove();
    }
}
