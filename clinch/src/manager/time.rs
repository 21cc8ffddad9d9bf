//! Times of which an option costs no more room than the time itself.

use std::fmt;
use std::num::NonZeroU64;
use std::time::Duration;

/// A time of at most five hundred years, to the nanosecond; a longer one becomes that. One more than its nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Time(NonZeroU64);

impl Time {
    pub(super) const ZERO: Self = Self(NonZeroU64::MIN);

    #[inline]
    pub(super) const fn of(time: Duration) -> Self {
        let nanos = match time.as_secs().checked_mul(1_000_000_000) {
            Some(seconds) => seconds.saturating_add(time.subsec_nanos() as u64),
            None => u64::MAX,
        };
        Self(NonZeroU64::MIN.saturating_add(nanos))
    }

    pub(super) const fn get(self) -> Duration {
        Duration::from_nanos(self.0.get() - 1)
    }

    /// Without what is less than a millisecond of it.
    pub(super) const fn in_whole_millis(self) -> Self {
        let nanos = self.0.get() - 1;
        Self(NonZeroU64::MIN.saturating_add(nanos - nanos % 1_000_000))
    }
}

impl fmt::Debug for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_comes_back_as_it_was_up_to_five_hundred_years() {
        let longest = Duration::from_nanos(u64::MAX - 1);
        for time in [Duration::ZERO, Duration::new(7, 3), Duration::from_nanos(1), longest] {
            assert_eq!(Time::of(time).get(), time);
            assert_eq!(format!("{:?}", Time::of(time)), format!("{time:?}"));
        }
        assert_eq!(Time::of(Duration::MAX).get(), longest);
        assert_eq!(Time::of(longest + Duration::from_nanos(1)).get(), longest);
        assert_eq!(
            Time::of(Duration::new(1, 2_999_999)).in_whole_millis().get(),
            Duration::from_millis(1_002)
        );
        assert!(Time::ZERO < Time::of(Duration::from_nanos(1)));
        assert_eq!(size_of::<Option<Time>>(), 8);
    }
}
