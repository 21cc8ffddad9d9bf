//! The counter behind the fences.

use std::time::{SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

use crate::lease::Fence;
use crate::sync::atomic::{AtomicU64, Ordering};

/// One counter for all keys: a number that is new to the store is above every number that was given on any key.
///
/// It never falls behind the clock, so that numbers rise beyond the life of the store.
#[derive(Debug)]
pub(super) struct Fences {
    last: AtomicU64,
    started: Instant,
    /// Microseconds since 1970 at `started`, by the wall clock.
    epoch: u64,
}

impl Fences {
    pub(super) fn new() -> Self {
        let epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { last: AtomicU64::new(0), started: Instant::now(), epoch: micros(epoch) }
    }

    /// A number above the floor and above all that were given before.
    pub(super) fn next(&self, floor: Fence) -> Fence {
        let clock = self.epoch.saturating_add(micros(self.started.elapsed()));
        let least = clock.max((floor.get() / Fence::STEP).saturating_add(1));
        let above = |last: u64| last.saturating_add(1).max(least);
        let last = self.last.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| Some(above(last)));
        // It always says `Some`, so it always succeeds.
        let (Ok(last) | Err(last)) = last;
        Fence::new(above(last).saturating_mul(Fence::STEP))
    }

    pub(super) fn forget(&self) {
        self.last.store(0, Ordering::Relaxed);
    }
}

fn micros(time: std::time::Duration) -> u64 {
    time.as_micros().try_into().unwrap_or(u64::MAX)
}
