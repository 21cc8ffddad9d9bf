//! A lease whose grant and whose end are one step each, because its engine is in this process.

use super::asked::Asked;
use super::counted::Counted;
use super::{Held, Loss, Phase, Window};
use crate::lease::Attempt;
use crate::stamp::Stamp;
use crate::store::Release;
use crate::sync::atomic::AtomicU64;
use crate::telemetry::Meter;

impl Held {
    /// What was granted to one whose guard has it from the beginning.
    pub(in crate::manager) fn granted_at_once(
        attempt: Attempt,
        window: &Window,
        since: Stamp,
        heard_since: Option<u64>,
        scope: u64,
        meter: &Meter,
        renews: bool,
    ) -> Self {
        let counted = Some(Counted::new(meter, renews));
        let scope = AtomicU64::new(scope);
        Self { scope, ..Self::new(Asked::Own(attempt), window, since, heard_since, Phase::Held, counted) }
    }

    /// Ends it in the moment in which the engine is told, if it is simply held under this number and that tells that it was
    /// still there; otherwise nothing has changed here.
    pub(in crate::manager) fn end_at_once(
        &self,
        pass: u32,
        tell: impl FnOnce(&Attempt) -> Option<Release>,
    ) -> Option<Release> {
        let mut state = self.state();
        if state.phase != Phase::Held || state.pass != pass || self.degraded || self.leaves_something() {
            return None;
        }
        let answer = tell(&self.asked)?;
        state.phase = Phase::Ended(Loss::Released);
        state.counted = None;
        self.changed(state);
        Some(answer)
    }
}
