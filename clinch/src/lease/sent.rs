//! When an attempt was first sent: read and written by manager and store without a lock.

use std::sync::LazyLock;
use std::time::Duration;

use tokio::time::Instant;

use crate::sync::atomic::{AtomicI64, Ordering};

/// What instants are counted from. Some are before it: paused clocks begin anywhere.
static EPOCH: LazyLock<Instant> = LazyLock::new(|| std::time::Instant::now().into());

/// Nothing went out.
const NEVER: i64 = i64::MIN;

/// Nanoseconds after [`EPOCH`].
#[derive(Debug)]
pub(super) struct Sent(AtomicI64);

impl Default for Sent {
    fn default() -> Self {
        Self(AtomicI64::new(NEVER))
    }
}

impl Sent {
    pub(super) fn get(&self) -> Option<Instant> {
        let at = self.0.load(Ordering::Acquire);
        let (since, epoch) = (Duration::from_nanos(at.unsigned_abs()), *EPOCH);
        match at {
            NEVER => None,
            0.. => epoch.checked_add(since),
            _ => epoch.checked_sub(since),
        }
    }

    /// Only the first time counts.
    pub(super) fn set(&self, at: Instant) {
        let nanos = |time: Duration| i64::try_from(time.as_nanos()).unwrap_or(i64::MAX);
        let at = match at.checked_duration_since(*EPOCH) {
            Some(after) => nanos(after),
            None => -nanos(EPOCH.saturating_duration_since(at)),
        };
        // It fails where it was set before.
        let _ = self.0.compare_exchange(NEVER, at, Ordering::AcqRel, Ordering::Relaxed);
    }

    pub(super) fn forget(&self) {
        self.0.store(NEVER, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_instant_counts_and_comes_back_as_it_was() {
        let now = Instant::now();
        for at in
            [now, now + Duration::new(7, 3), now - Duration::from_nanos(1), *EPOCH - Duration::from_secs(1)]
        {
            let sent = Sent::default();
            assert_eq!(sent.get(), None);
            sent.set(at);
            sent.set(at + Duration::from_secs(1));
            assert_eq!(sent.get(), Some(at));
            sent.forget();
            assert_eq!(sent.get(), None);
        }
    }
}
