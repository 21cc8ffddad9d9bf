//! When an attempt was first sent: read and written by manager and store without a lock.

use tokio::time::Instant;

use crate::stamp::Stamp;
use crate::sync::atomic::{AtomicI64, Ordering};

/// Nothing went out.
const NEVER: i64 = i64::MIN;

/// The number of a [`Stamp`].
#[derive(Debug)]
pub(super) struct Sent(AtomicI64);

impl Default for Sent {
    fn default() -> Self {
        Self(AtomicI64::new(NEVER))
    }
}

impl Sent {
    /// Of one that goes out at that moment.
    pub(super) const fn at(at: Stamp) -> Self {
        Self(AtomicI64::new(at.number()))
    }

    pub(super) fn again(&self) -> Self {
        Self(AtomicI64::new(self.0.load(Ordering::Acquire)))
    }

    pub(super) fn get(&self) -> Option<Instant> {
        let at = self.0.load(Ordering::Acquire);
        (at != NEVER).then(|| Stamp::numbered(at).instant())
    }

    /// Only the first time counts.
    pub(super) fn set(&self, at: Stamp) {
        if self.0.load(Ordering::Acquire) != NEVER {
            return;
        }
        // It fails where it was set meanwhile.
        let _ = self.0.compare_exchange(NEVER, at.number(), Ordering::AcqRel, Ordering::Relaxed);
    }

    pub(super) fn forget(&self) {
        self.0.store(NEVER, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_first_instant_counts_and_comes_back_as_it_was() {
        let now = Instant::now();
        for at in [now, now + Duration::new(7, 3), now - Duration::from_nanos(1)] {
            let sent = Sent::default();
            assert_eq!(sent.get(), None);
            sent.set(Stamp::of(at));
            sent.set(Stamp::of(at + Duration::from_secs(1)));
            assert_eq!(sent.get(), Some(at));
            sent.forget();
            assert_eq!(sent.get(), None);
        }
    }
}
