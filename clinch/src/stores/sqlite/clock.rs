//! The machine's clock: one for all its processes, and nobody sets it.
//!
//! On Linux and Android it is `CLOCK_BOOTTIME`, which goes on while the machine sleeps and begins anew with every boot; so
//! a time in the file means something only together with the boot's id. A process in a time namespace of its own reads it
//! shifted, and the shift is taken out. Elsewhere it is the wall clock, and `docs/guarantees.md` says what that means.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

use crate::stores::rules::Moment;

/// Leases end by the very clock by which their holders count.
pub(super) const SAME_CLOCK: bool = cfg!(any(target_os = "linux", target_os = "android"));

/// A moment on the machine's clock, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct At(pub(super) i64);

impl Moment for At {
    /// One microsecond more than asked for, because this clock is read in whole ones: no lease ends early.
    fn after(self, time: Duration) -> Self {
        Self(self.0.saturating_add(micros(time)).saturating_add(1))
    }

    fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0).try_into().unwrap_or(0))
    }

    fn at(instant: Instant, now: Self) -> Self {
        Self(now.0.saturating_add(micros(instant.saturating_duration_since(Instant::now()))))
    }
}

/// Whole microseconds, rounded up.
pub(super) fn micros(time: Duration) -> i64 {
    time.as_nanos().div_ceil(1_000).try_into().unwrap_or(i64::MAX)
}

/// Microseconds since 1970, by the wall clock.
pub(super) fn wall() -> i64 {
    micros(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
}

/// How this process reads the machine's clock.
#[derive(Debug)]
pub(super) struct Clock {
    /// What the times belong to: the boot's id, or a word for the wall clock.
    pub(super) boot: String,
    /// By how much this process reads it ahead of the machine; `None`: it reads the wall clock.
    shift: Option<i64>,
}

impl Clock {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    pub(super) fn of_this_machine() -> Self {
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
        match boot.ok().map(|id| id.trim().to_owned()).filter(|id| !id.is_empty()) {
            Some(boot) => {
                let offsets = std::fs::read_to_string("/proc/self/timens_offsets").unwrap_or_default();
                Self { boot, shift: Some(boottime_shift(&offsets)) }
            }
            None => Self::wall(),
        }
    }

    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    pub(super) fn of_this_machine() -> Self {
        Self::wall()
    }

    fn wall() -> Self {
        Self { boot: "wall clock".to_owned(), shift: None }
    }

    /// Whether it is the clock of the boot, which nobody sets.
    pub(super) const fn is_of_boot(&self) -> bool {
        self.shift.is_some()
    }

    pub(super) fn now(&self) -> At {
        match (self.shift, boottime()) {
            (Some(shift), Some(now)) => At(now.saturating_sub(shift)),
            _ => At(wall()),
        }
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn boottime() -> Option<i64> {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Some(micros(Duration::new(now.tv_sec.try_into().ok()?, now.tv_nsec.try_into().ok()?)))
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn boottime() -> Option<i64> {
    None
}

/// The kernel's own words on the time namespace: lines of a clock, seconds and nanoseconds.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn boottime_shift(offsets: &str) -> i64 {
    let mut words = offsets
        .lines()
        .find_map(|line| line.trim_start().strip_prefix("boottime"))
        .into_iter()
        .flat_map(str::split_whitespace);
    let mut number = || words.next().and_then(|word| word.parse::<i64>().ok()).unwrap_or(0);
    let (seconds, nanos) = (number(), number());
    seconds.saturating_mul(1_000_000).saturating_add(nanos / 1_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_lease_ends_early() {
        let now = At(1_000_000);
        for nanos in [1, 999, 1_000, 1_001, 1_500_000] {
            let time = Duration::from_nanos(nanos);
            assert!(now.after(time).since(now) > time);
        }
        assert_eq!(now.after(Duration::MAX).0, i64::MAX);
        assert_eq!(At(5).since(At(9)), Duration::ZERO);
    }

    #[test]
    fn the_clock_goes_forward() {
        let clock = Clock::of_this_machine();
        let before = clock.now();
        assert!(clock.now() >= before);
        assert!(!clock.boot.is_empty());
    }

    #[cfg(any(target_os = "linux", target_os = "android"))]
    #[test]
    fn a_time_namespace_is_taken_out() {
        assert_eq!(
            boottime_shift("monotonic           0         0\nboottime       86400 500000000\n"),
            86_400_500_000
        );
        assert_eq!(boottime_shift("monotonic 0 0\nboottime -3 999000000\n"), -2_001_000);
        assert_eq!(boottime_shift(""), 0);
        assert_eq!(boottime_shift("boottime x"), 0);
    }
}
