//! Many times in little memory.

use std::time::Duration;

/// Each power of two is cut into so many parts: a time is told to 3 %.
const PARTS: u32 = 32;

/// How often which time was measured, in nanoseconds.
#[derive(Debug, Clone, Default)]
pub(super) struct Histogram {
    /// Grows with the longest time, to at most 64 powers of two.
    counts: Vec<u64>,
    count: u64,
    longest: Duration,
}

impl Histogram {
    pub(super) fn add(&mut self, time: Duration) {
        let place = place(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
        if self.counts.len() <= place {
            self.counts.resize(place + 1, 0);
        }
        self.counts[place] += 1;
        self.count += 1;
        self.longest = self.longest.max(time);
    }

    /// Adds all that another has.
    pub(super) fn merge(&mut self, other: &Self) {
        if self.counts.len() < other.counts.len() {
            self.counts.resize(other.counts.len(), 0);
        }
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count += more;
        }
        self.count += other.count;
        self.longest = self.longest.max(other.longest);
    }

    pub(super) const fn count(&self) -> u64 {
        self.count
    }

    pub(super) const fn longest(&self) -> Duration {
        self.longest
    }

    /// The time within which so many percent were done; `None` if there were none.
    pub(super) fn percentile(&self, percent: u64) -> Option<Duration> {
        let wanted = (self.count * percent).div_ceil(100).max(1);
        let mut seen = 0;
        let place = self.counts.iter().position(|count| {
            seen += count;
            seen >= wanted
        })?;
        Some(Duration::from_nanos(end(place)).min(self.longest))
    }
}

/// Which part of which power of two a number is in. The first two powers have all numbers.
fn place(number: u64) -> usize {
    let shift = (u64::BITS - number.leading_zeros()).saturating_sub(PARTS.trailing_zeros() + 1);
    // At most 64 * 32.
    usize::try_from(u64::from(shift * PARTS) + (number >> shift)).unwrap_or(0)
}

/// The largest number in a place.
fn end(place: usize) -> u64 {
    let place = place as u64;
    let parts = u64::from(PARTS);
    let shift = (place / parts).saturating_sub(1);
    let top = place - shift * parts;
    ((u128::from(top + 1) << shift) - 1).try_into().unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_told_to_three_percent() {
        for number in (0..200).chain([1_000, 65_535, 65_536, 1_234_567_890, u64::MAX / 3, u64::MAX]) {
            let end = end(place(number));
            assert!(end >= number && end - number <= number / 32, "{number}: {end}");
        }
    }

    #[test]
    fn percentiles() {
        let mut histogram = Histogram::default();
        assert_eq!(histogram.percentile(50), None);
        for ms in 1..=100 {
            histogram.add(Duration::from_millis(ms));
        }
        let close = |time: Option<Duration>, ms: u64| {
            let (time, ms) = (time.unwrap(), Duration::from_millis(ms));
            assert!(time >= ms && time <= ms + ms / 31, "{time:?} {ms:?}");
        };
        close(histogram.percentile(50), 50);
        close(histogram.percentile(99), 99);
        assert_eq!(histogram.percentile(100), Some(Duration::from_millis(100)));
    }
}
