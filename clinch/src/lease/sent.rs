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

    /// Of one that went out.
    pub(super) fn stamp(&self) -> Stamp {
        Stamp::numbered(self.0.load(Ordering::Acquire))
    }

    /// Only the first time counts; says whether that is this moment.
    pub(super) fn set(&self, at: Stamp) -> bool {
        let mut first = self.0.load(Ordering::Acquire);
        if first == NEVER {
            let set = self.0.compare_exchange(NEVER, at.number(), Ordering::AcqRel, Ordering::Acquire);
            // It fails where it was set meanwhile.
            first = set.map_or_else(|meanwhile| meanwhile, |_| at.number());
        }
        first == at.number()
    }

    /// From now on it is as if it had gone out then.
    pub(super) fn again_at(&self, at: Stamp) {
        self.0.store(at.number(), Ordering::Release);
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
            assert!(sent.set(Stamp::of(at)));
            assert!(!sent.set(Stamp::of(at + Duration::from_secs(1))));
            assert!(sent.set(Stamp::of(at)));
            assert_eq!(sent.get(), Some(at));
            sent.forget();
            assert_eq!(sent.get(), None);
        }
    }
}
