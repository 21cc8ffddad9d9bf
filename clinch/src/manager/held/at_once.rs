//! A lease whose grant and whose end are one step each, because its engine is in this process.

use std::sync::Arc;

use tokio::time::Instant;

use super::counted::Counted;
use super::{Held, Loss, Phase, Window};
use crate::lease::Attempt;
use crate::store::Release;
#[cfg(feature = "submit")]
use crate::sync::atomic::Ordering;
use crate::telemetry::Meter;

impl Held {
    /// What was granted to one whose guard has it from the beginning.
    pub(in crate::manager) fn granted_at_once(
        attempt: Arc<Attempt>,
        window: Window,
        since: Instant,
        heard_since: Option<u64>,
        meter: &Meter,
        renews: bool,
    ) -> Self {
        let counted = Some(Counted::new(meter, renews));
        Self::new(attempt, window, since, heard_since, Phase::Held, counted)
    }

    /// It is taken in this scope; 0: in none.
    #[cfg(feature = "submit")]
    pub(in crate::manager) fn belongs_to(&self, scope: u64) {
        self.scope.store(scope, Ordering::Release);
    }

    /// Ends it in the moment in which the engine is told, if it is simply held under this number and that tells that it was
    /// still there; otherwise nothing has changed here.
    pub(in crate::manager) fn end_at_once(
        &self,
        pass: u32,
        tell: impl FnOnce(&Attempt) -> Option<Release>,
    ) -> Option<Release> {
        let mut state = self.state();
        if state.phase != Phase::Held || state.pass != pass || self.degraded || self.left.is_some() {
            return None;
        }
        let answer = tell(&self.attempt)?;
        state.phase = Phase::Ended(Loss::Released);
        state.counted = None;
        self.changed(state);
        Some(answer)
    }
}
