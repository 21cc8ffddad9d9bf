//! One holder's time with a lease, and what becomes of the lease at its end: it goes to the next in line of this process,
//! or back to the engine.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::core::Core;
use super::guard::Lease;
use super::held::{Held, Telling};
use super::line::Handed;
use crate::store::StoreError;
use crate::telemetry::{Hold, Meter, Released};

/// A lease under the number of its pass. Dropped, it is given up in the background: no I/O, no spawn, no panic.
#[derive(Debug)]
pub(super) struct Tenure {
    held: Arc<Held>,
    pass: u32,
    core: Arc<Core>,
    /// Whether the lease may go to the next in line when this one is done.
    passes: bool,
    over: bool,
    /// The guard that has it, as far as it is measured.
    guard: Option<(Meter, Hold)>,
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
    pub(super) const fn new(held: Arc<Held>, pass: u32, core: Arc<Core>, passes: bool) -> Self {
        Self { held, pass, core, passes, over: false, guard: None }
    }

    pub(super) const fn held(&self) -> &Arc<Held> {
        &self.held
    }

    pub(super) const fn pass(&self) -> u32 {
        self.pass
    }

    /// A look at its lease.
    pub(super) fn lease(&self) -> Lease {
        Lease { held: self.held.clone(), pass: self.pass, core: self.core.clone() }
    }

    /// A guard has the lease from now on.
    pub(super) fn begin(&mut self, meter: &Meter, renews: bool) {
        self.held.begin_tenure(meter, renews);
        self.guard = Some((meter.clone(), meter.hold()));
    }

    /// Ends it as far as this process is concerned, with so much of its validity left.
    fn end(&mut self, left: Duration) -> End {
        if std::mem::replace(&mut self.over, true) {
            return End::Tell(Telling::Nothing);
        }
        let core = &self.core;
        let guard = self.guard.take().map(|(meter, hold)| {
            hold.ends(left, self.held.attempt().ttl());
            if left.is_zero() {
                self.held.note_expiry();
            }
            meter
        });
        let passed = || {
            if let Some(meter) = &guard {
                self.held.tell_end(meter, Released::Passed);
            }
            End::Passed
        };
        // One that leaves something behind does not go to the next in line.
        if self.passes && !self.held.leaves_something() && !core.closing.is_closed() {
            match core.lines.hand_over(&self.held, self.pass) {
                Handed::Over { renew } => {
                    if renew {
                        core.renewals.once(&self.held);
                    }
                    core.passed(&self.held);
                    return passed();
                }
                Handed::AfterRenewal(number) => {
                    core.renewals.to_pass_on(&self.held, number);
                    return passed();
                }
                Handed::Back => {}
            }
        }
        let telling = self.held.begin_release(self.pass);
        if telling == Telling::Nothing && self.held.is_degraded() {
            core.lines.ended(&self.held, None);
        }
        End::Tell(telling)
    }

    /// Gives the lease up now, and says whether it was still ours.
    pub(super) async fn release(mut self) -> Result<bool, StoreError> {
        self.core.ensure_background();
        let left = self.held.remaining_for(self.pass);
        match self.end(left) {
            End::Passed => return Ok(!left.is_zero()),
            // The engine said that it is gone: there is nothing to give back.
            End::Tell(Telling::Nothing) => return Ok(false),
            End::Tell(Telling::TakeBack) => {
                self.core.lines.give_back(self.held.clone());
                return Ok(false);
            }
            End::Tell(Telling::Release) => {}
        }
        let answer = match self.core.release_at_once(&self.held) {
            Some(answer) => answer,
            None => self.core.release(&self.held).await?,
        };
        Ok(answer.held)
    }
}

impl Drop for Tenure {
    fn drop(&mut self) {
        if self.over {
            return;
        }
        let left = self.held.remaining_for(self.pass);
        if let End::Tell(Telling::Release | Telling::TakeBack) = self.end(left) {
            self.core.lines.give_back(self.held.clone());
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
        drop(Tenure::new(held, pass, self.clone(), true));
        self.renewals.passing.remove();
    }
}
