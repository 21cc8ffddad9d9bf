//! What is counted and logged of a lease while a guard has it: that it is lost, and how its holder's time with it ended.

use super::{Held, Loss, Phase, State};
use crate::stamp::Stamp;
use crate::telemetry::{Lost, Meter, Released, Renewed};

/// By whom a lease is counted while a guard has it.
#[derive(Debug)]
pub(super) struct Counted {
    pub(super) meter: Meter,
    renews: bool,
    lost: bool,
}

impl Counted {
    pub(super) fn new(meter: &Meter, renews: bool) -> Self {
        Self { meter: meter.clone(), renews, lost: false }
    }
}

impl State {
    /// The lease is lost to the guard that has it: by whom that is counted, if it was not before.
    pub(super) fn note_loss(&mut self) -> Option<(Meter, bool)> {
        let counted = self.counted.as_mut().filter(|counted| !counted.lost)?;
        counted.lost = true;
        Some((counted.meter.clone(), counted.renews))
    }
}

impl Held {
    /// A guard has it from now on. What was never granted is not counted as a lease.
    pub(in crate::manager) fn begin_tenure(&self, meter: &Meter, renews: bool) {
        if self.is_degraded() {
            return;
        }
        let mut state = self.state();
        state.counted = Some(Counted::new(meter, renews));
        if let Phase::Ended(loss) = state.phase {
            let noted = state.note_loss();
            drop(state);
            self.tell_loss(noted, loss);
        }
    }

    /// Notes that it has run out under the guard that has it, if it has.
    pub(in crate::manager) fn note_expiry(&self) {
        let mut state = self.state();
        if state.phase == Phase::Held && self.left(&state).is_zero() {
            let noted = state.note_loss();
            drop(state);
            self.tell_loss(noted, Loss::Expired);
        }
    }

    /// A renewal came to this; counted if a guard has it.
    pub(in crate::manager) fn renewal_ended(&self, outcome: Renewed) {
        let meter = self.state().counted.as_ref().map(|counted| counted.meter.clone());
        if let Some(meter) = meter {
            meter.renewed(outcome);
            tracing::trace!(key = %self.on(), guard = meter.guard(), outcome = outcome.word(), "renewed");
        }
    }

    /// Whether its validity has ended, by our own careful count, however it stands.
    pub(in crate::manager) fn has_run_out(&self) -> bool {
        Stamp::now() >= self.state().valid_until
    }

    /// Counts and logs a loss that was noted. Not under the lock: whoever listens may take their time.
    pub(super) fn tell_loss(&self, noted: Option<(Meter, bool)>, loss: Loss) {
        let Some((meter, renews)) = noted else { return };
        let cause = match loss {
            Loss::Expired => Lost::Expired,
            Loss::TakenOver => Lost::TakenOver,
            Loss::Revoked => Lost::Revoked,
            Loss::Released => return,
        };
        meter.lost(cause);
        if cause == Lost::Expired && !renews {
            meter.leaked();
        }
        tracing::warn!(key = %self.on(), guard = meter.guard(), reason = cause.word(), "lease lost: {loss}");
    }

    /// The time of the guard that had it ended in this way; counted and logged once.
    pub(in crate::manager) fn tenure_ended(&self, outcome: Released) {
        let counted = self.state().counted.take();
        if let Some(counted) = counted {
            self.tell_end(&counted.meter, outcome);
        }
    }

    /// Counts and logs it. Not under a lock, as above.
    pub(in crate::manager) fn tell_end(&self, meter: &Meter, outcome: Released) {
        meter.released(outcome);
        let (key, guard, word) = (self.on(), meter.guard(), outcome.word());
        match outcome {
            Released::GivenBack | Released::Completed | Released::Kept | Released::Passed => {
                let held_ms = || Stamp::now().since(self.since).as_secs_f64() * 1e3;
                tracing::debug!(%key, guard, outcome = word, held_ms = held_ms(), "released");
            }
            Released::Engine => tracing::warn!(
                %key, guard, reason = word,
                "a lease was not given back: the engine could not be told before it ran out"
            ),
            Released::Expired | Released::TakenOver | Released::Revoked | Released::Unknown => {
                tracing::warn!(%key, guard, reason = word, "a release did not match: the lease was no longer held");
            }
        }
    }
}
