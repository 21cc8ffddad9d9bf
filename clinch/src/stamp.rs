//! Instants in half the room, for what there is a million of.

use std::sync::LazyLock;
use std::time::Duration;

use tokio::time::Instant;

/// What they are counted from. Some are before it: paused clocks begin anywhere.
static EPOCH: LazyLock<Instant> = LazyLock::new(|| std::time::Instant::now().into());

/// An instant within three hundred years of the start of the process, to the nanosecond.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Stamp(i64);

impl Stamp {
    pub(crate) fn now() -> Self {
        Self::of(Instant::now())
    }

    pub(crate) fn of(at: Instant) -> Self {
        Self(match at.checked_duration_since(*EPOCH) {
            Some(after) => nanos(after),
            None => -nanos(EPOCH.saturating_duration_since(at)),
        })
    }

    pub(crate) fn instant(self) -> Instant {
        let (since, epoch) = (Duration::from_nanos(self.0.unsigned_abs()), *EPOCH);
        // It was an instant once, or is as far from one as anybody asked for.
        if self.0 < 0 { epoch.checked_sub(since) } else { epoch.checked_add(since) }.unwrap_or(epoch)
    }

    /// So much later.
    pub(crate) fn after(self, time: Duration) -> Self {
        Self(self.0.saturating_add(nanos(time)))
    }

    /// The same, of so many nanoseconds.
    pub(crate) fn after_nanos(self, time: u64) -> Self {
        Self(self.0.saturating_add_unsigned(time))
    }

    /// How much later it is than that; nothing if it is not.
    pub(crate) fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }

    /// As a number; and back.
    pub(crate) const fn number(self) -> i64 {
        self.0
    }

    pub(crate) const fn numbered(number: i64) -> Self {
        Self(number)
    }
}

/// By hand, without numbers of 128 bits: every try and every release does this.
#[expect(clippy::cast_possible_wrap, reason = "what is more than three hundred years is cut before")]
const fn nanos(time: Duration) -> i64 {
    const MOST: u64 = i64::MAX as u64 / 1_000_000_000;
    if time.as_secs() >= MOST {
        return i64::MAX;
    }
    (time.as_secs() * 1_000_000_000) as i64 + time.subsec_nanos() as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instant_comes_back_as_it_was() {
        let now = Instant::now();
        let (second, nano) = (Duration::from_secs(1), Duration::from_nanos(1));
        for at in [now, now + Duration::new(7, 3), now - nano, *EPOCH - second, *EPOCH] {
            assert_eq!(Stamp::of(at).instant(), at);
            assert_eq!(Stamp::of(at).after(second).instant(), at + second);
            assert!(Stamp::of(at) < Stamp::of(at + nano));
            assert_eq!(Stamp::of(at + second).since(Stamp::of(at)), second);
            assert_eq!(Stamp::of(at).since(Stamp::of(at + second)), Duration::ZERO);
        }
        assert!(Stamp::of(now).after(Duration::MAX) > Stamp::of(now).after(second));
    }
}
