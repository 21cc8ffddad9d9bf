//! A lease whose grant and whose end are one step each, because its engine is in this process.

use std::sync::Arc;

use super::asked::Asked;
use super::counted::Counted;
use super::{Held, Kind, Loss, Phase, Window};
use crate::lease::Attempt;
use crate::stamp::Stamp;
use crate::store::Release;
use crate::sync::atomic::{AtomicU64, Ordering};
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
        Self { scope, ..Self::new(Asked::Own(attempt), window, since, heard_since, Kind::Granted, counted) }
    }

    /// An engine in this process keeps it from now on, or no more; to be called while it has it.
    pub(crate) fn keep(&self, kept: bool) {
        self.kept.store(kept, Ordering::Release);
    }

    /// Whether nobody has it but its guard, which asks, its line, whose lock is held, and the engine, which only keeps it: so nobody
    /// else can come to have it either.
    fn is_nobody_elses(self: &Arc<Self>) -> bool {
        // First whether it is kept, since then one of the three is the engine, and whether a scope knows it, which could have it any
        // time.
        self.kept.load(Ordering::Acquire) && Arc::weak_count(self) == 0 && Arc::strong_count(self) == 3
    }

    /// Ends it in the moment in which the engine is told, if it is simply held under this number and that tells that it was
    /// still there; otherwise nothing has changed here. To be called by its guard, under the lock of its key.
    pub(in crate::manager) fn end_at_once(
        self: &Arc<Self>,
        pass: u32,
        tell: impl FnOnce(&Attempt) -> Option<Release>,
    ) -> Option<Release> {
        // Then it was never passed on: only the one who has it could have. Nothing is left behind, and nobody looks at it: all that
        // would be noted of its end is what nobody will ask. If it was lost, the engine says so.
        if pass == 0 && self.rare.get().is_none() && self.kind == Kind::Granted && self.is_nobody_elses() {
            return tell(&self.asked);
        }
        let mut state = self.state();
        if state.phase != Phase::Held || state.pass != pass || self.is_degraded() || self.leaves_something() {
            return None;
        }
        let answer = tell(&self.asked)?;
        state.phase = Phase::Ended(Loss::Released);
        state.counted = None;
        self.changed(state);
        Some(answer)
    }
}
