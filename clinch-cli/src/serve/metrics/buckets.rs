//! A histogram with fixed buckets.

use std::sync::atomic::{AtomicU64, Ordering};

use metrics::{GaugeFn, HistogramFn};

#[derive(Debug)]
pub(super) struct Buckets {
    /// Upper bounds, rising.
    bounds: &'static [f64],
    /// One more than there are bounds.
    counts: Box<[AtomicU64]>,
    /// The bits of a number.
    sum: AtomicU64,
}

/// What it had counted at one moment.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::serve) struct Counted {
    pub(super) bounds: &'static [f64],
    /// How many are in each bucket alone; the last is for what is above all bounds.
    pub(super) counts: Vec<u64>,
    pub(super) sum: f64,
}

impl Buckets {
    pub(super) fn new(bounds: &'static [f64]) -> Self {
        Self {
            bounds,
            counts: (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect(),
            sum: AtomicU64::new(0),
        }
    }

    pub(super) fn counted(&self) -> Counted {
        Counted {
            bounds: self.bounds,
            counts: self.counts.iter().map(|count| count.load(Ordering::Relaxed)).collect(),
            sum: f64::from_bits(self.sum.load(Ordering::Relaxed)),
        }
    }
}

impl HistogramFn for Buckets {
    fn record(&self, value: f64) {
        self.record_many(value, 1);
    }

    fn record_many(&self, value: f64, count: usize) {
        if value.is_nan() {
            return;
        }
        let bucket = self.bounds.partition_point(|bound| *bound < value);
        self.counts[bucket].fetch_add(count as u64, Ordering::Relaxed);
        #[expect(clippy::cast_precision_loss, reason = "nobody records so many at once")]
        let sum = value * count as f64;
        // An atomic of this type is a gauge for `metrics`: it adds to the number whose bits it has.
        GaugeFn::increment(&self.sum, sum);
    }
}

impl Counted {
    pub(super) fn total(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Adds what another one with the same bounds has counted.
    pub(super) fn add(&mut self, other: &Self) {
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count += more;
        }
        self.sum += other.sum;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_belongs_to_its_bucket() {
        let buckets = Buckets::new(&[1.0, 2.0]);
        for value in [0.5, 1.0, 1.5, 2.0, 2.1, f64::INFINITY, f64::NAN] {
            buckets.record(value);
        }
        assert_eq!(buckets.counted().counts, [2, 2, 2]);
        assert_eq!(buckets.counted().total(), 6);
    }

    #[test]
    fn the_sum_is_of_all_values() {
        let buckets = Buckets::new(&[1.0]);
        buckets.record(0.25);
        buckets.record_many(1.5, 2);
        assert!((buckets.counted().sum - 3.25).abs() < 1e-12);
    }
}
