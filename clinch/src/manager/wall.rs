//! The wall clock without a look at it every time.

use std::time::Duration;

use super::sources::Sources;
use crate::stamp::Stamp;
use crate::sync::atomic::{AtomicI64, Ordering};

/// How long what was seen is good for. The two clocks go at the same pace; but somebody may set the one that people read.
const GOOD_FOR: Duration = Duration::from_secs(1);

/// By how much the wall clock is ahead of the clock that all else goes by.
#[derive(Debug)]
pub(super) struct Wall {
    /// In nanoseconds.
    ahead: AtomicI64,
    /// When that was seen, as the number of a stamp.
    seen: AtomicI64,
}

impl Default for Wall {
    fn default() -> Self {
        Self { ahead: AtomicI64::new(0), seen: AtomicI64::new(i64::MIN) }
    }
}

impl Wall {
    /// Milliseconds since 1970, for people: as the wall clock says, or said within the last second if it was set since.
    pub(super) fn ms(&self, now: Stamp, sources: &Sources) -> u64 {
        let seen = self.seen.load(Ordering::Acquire);
        let old = seen == i64::MIN || now.since(Stamp::numbered(seen)) >= GOOD_FOR || now.number() < seen;
        if old { self.look(now, sources) } else { millis(self.ahead.load(Ordering::Acquire), now) }
    }

    #[cold]
    fn look(&self, now: Stamp, sources: &Sources) -> u64 {
        let Some(wall) = sources.wall() else { return 0 };
        let wall = i64::try_from(wall.as_nanos()).unwrap_or(i64::MAX);
        let ahead = wall.saturating_sub(now.number());
        // Two who look at the same time see the same.
        self.ahead.store(ahead, Ordering::Release);
        self.seen.store(now.number(), Ordering::Release);
        millis(ahead, now)
    }
}

fn millis(ahead: i64, now: Stamp) -> u64 {
    u64::try_from(ahead.saturating_add(now.number()) / 1_000_000).unwrap_or_default()
}
