//! Waiting for the end of a lease: by its holder, and by those who want its key.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::{Held, Loss, Phase, Standing};
use crate::sync::Notify;

/// tokio's timers round up to whole milliseconds; `lost()` is armed this much early so that it never fires late.
const TIMER_GRANULARITY: Duration = Duration::from_millis(1);

impl Held {
    /// What those who look at it are told by. Nearly nobody does.
    fn changes(&self) -> &Notify {
        &self.rare().changed
    }

    /// Waits until the lease no longer protects the one who has it under `pass`: no later than the end of its validity,
    /// even while a renewal hangs.
    pub(in crate::manager) async fn lost(&self, pass: u32) -> Loss {
        loop {
            let mut changed = std::pin::pin!(self.changes().notified());
            changed.as_mut().enable();
            let wake_at = match self.look_for_loss(pass) {
                Ok(loss) => return loss,
                Err(valid_until) => early(valid_until),
            };
            tokio::select! {
                biased;
                () = changed => {}
                () = sleep_until(wake_at) => {}
            }
        }
    }

    /// The loss, or the end of the validity.
    fn look_for_loss(&self, pass: u32) -> Result<Loss, Instant> {
        let mut state = self.state();
        state.watched = true;
        if state.pass != pass {
            return Ok(Loss::Released);
        }
        match state.phase {
            Phase::Ended(loss) => Ok(loss),
            Phase::Releasing => Ok(Loss::Released),
            Phase::Held if self.left(&state) <= TIMER_GRANULARITY => {
                self.end_locked(state, Loss::Expired);
                Ok(Loss::Expired)
            }
            Phase::Held => Err(state.valid_until.instant()),
        }
    }

    /// Until when it tells something about its key, if it does.
    fn look_for_end(&self) -> Option<Instant> {
        let mut state = self.state();
        state.watched = true;
        match self.standing_in(&state) {
            Standing::Over => None,
            Standing::Valid => Some(state.valid_until.instant()),
            Standing::Releasing => Some(state.engine_until.instant()),
        }
    }

    /// Waits until the lease tells nothing about its key any more: given back, lost, or run out.
    pub(in crate::manager) async fn over(&self) {
        loop {
            let mut changed = std::pin::pin!(self.changes().notified());
            changed.as_mut().enable();
            let Some(end) = self.look_for_end() else { return };
            tokio::select! {
                biased;
                () = changed => {}
                () = sleep_until(end) => {}
            }
        }
    }
}

fn early(at: Instant) -> Instant {
    at.checked_sub(TIMER_GRANULARITY).unwrap_or(at)
}
