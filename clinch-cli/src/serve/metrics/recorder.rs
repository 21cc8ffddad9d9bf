//! Everything that was measured, by name and labels.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use clinch::telemetry::{RATIO_BUCKETS, SECONDS_BUCKETS};
use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, SharedString, Unit};

use super::buckets::{Buckets, Counted};

/// The most series in all. The library keeps its own number of names small; this is for whatever else may come.
const MOST_SERIES: usize = 20_000;

/// Labels with their values, in the order of the labels' names.
pub(super) type Labels = Vec<(String, String)>;

/// Records everything in memory.
#[derive(Debug, Default)]
pub(in crate::serve) struct Recorder {
    families: RwLock<Families>,
}

#[derive(Debug, Default)]
pub(super) struct Families {
    pub(super) by_name: BTreeMap<String, Family>,
    series: usize,
}

/// All series of one name.
#[derive(Debug, Default)]
pub(super) struct Family {
    pub(super) help: Option<String>,
    pub(super) series: BTreeMap<Labels, Value>,
}

#[derive(Debug, Clone)]
pub(super) enum Value {
    Counter(Arc<AtomicU64>),
    /// The bits of a number.
    Gauge(Arc<AtomicU64>),
    Histogram(Arc<Buckets>),
}

impl Value {
    /// What Prometheus calls its type.
    pub(super) const fn kind(&self) -> &'static str {
        match self {
            Self::Counter(_) => "counter",
            Self::Gauge(_) => "gauge",
            Self::Histogram(_) => "histogram",
        }
    }
}

impl Recorder {
    pub(super) fn read(&self) -> RwLockReadGuard<'_, Families> {
        self.families.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Families> {
        self.families.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// The sum of the counters of this name whose labels are as wanted.
    pub(super) fn sum(&self, name: &str, wanted: impl Fn(&Labels) -> bool) -> u64 {
        let families = self.read();
        let series = families.by_name.get(name).into_iter().flat_map(|family| &family.series);
        let counters = series.filter(|(labels, _)| wanted(labels)).map(|(_, value)| match value {
            Value::Counter(count) => count.load(Ordering::Relaxed),
            Value::Gauge(_) | Value::Histogram(_) => 0,
        });
        counters.sum()
    }

    /// What the histograms of this name whose labels are as wanted have counted together.
    pub(super) fn counted(&self, name: &str, wanted: impl Fn(&Labels) -> bool) -> Counted {
        let mut all = Buckets::new(bounds(name)).counted();
        let families = self.read();
        let series = families.by_name.get(name).into_iter().flat_map(|family| &family.series);
        for (_, value) in series.filter(|(labels, _)| wanted(labels)) {
            if let Value::Histogram(buckets) = value {
                all.add(&buckets.counted());
            }
        }
        all
    }

    fn describe(&self, name: &KeyName, help: &SharedString) {
        self.write().by_name.entry(name.as_str().to_owned()).or_default().help = Some(help.to_string());
    }

    /// The series of this key, made by `new` if it is not there. `None` if there are too many.
    fn series(&self, key: &Key, new: impl FnOnce() -> Value) -> Option<Value> {
        let mut labels: Labels =
            key.labels().map(|label| (label.key().to_owned(), label.value().to_owned())).collect();
        labels.sort();
        let mut families = self.write();
        let families = &mut *families;
        let family = families.by_name.entry(key.name().to_owned()).or_default();
        if let Some(value) = family.series.get(&labels) {
            return Some(value.clone());
        }
        if families.series >= MOST_SERIES {
            return None;
        }
        families.series += 1;
        Some(family.series.entry(labels).or_insert_with(new).clone())
    }
}

fn bounds(name: &str) -> &'static [f64] {
    if name.ends_with("_ratio") { RATIO_BUCKETS } else { SECONDS_BUCKETS }
}

impl metrics::Recorder for Recorder {
    fn describe_counter(&self, key: KeyName, _: Option<Unit>, help: SharedString) {
        self.describe(&key, &help);
    }

    fn describe_gauge(&self, key: KeyName, _: Option<Unit>, help: SharedString) {
        self.describe(&key, &help);
    }

    fn describe_histogram(&self, key: KeyName, _: Option<Unit>, help: SharedString) {
        self.describe(&key, &help);
    }

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        match self.series(key, || Value::Counter(Arc::default())) {
            Some(Value::Counter(count)) => Counter::from_arc(count),
            _ => Counter::noop(),
        }
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        match self.series(key, || Value::Gauge(Arc::default())) {
            Some(Value::Gauge(bits)) => Gauge::from_arc(bits),
            _ => Gauge::noop(),
        }
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        match self.series(key, || Value::Histogram(Arc::new(Buckets::new(bounds(key.name()))))) {
            Some(Value::Histogram(buckets)) => Histogram::from_arc(buckets),
            _ => Histogram::noop(),
        }
    }
}
