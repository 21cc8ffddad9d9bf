//! A recorder of metrics that can be read.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use metrics::{
    Counter, Gauge, Histogram, HistogramFn, Key, KeyName, LocalRecorderGuard, Metadata, Recorder,
    SharedString, Unit,
};

/// A series: the name of a metric, and its labels in the order of their names.
pub type Series = (String, Vec<(String, String)>);

/// Everything that was measured since it began to listen. Clones are the same.
///
/// ```
/// use clinch_testkit::ledger::Ledger;
///
/// let ledger = Ledger::default();
/// let _listening = ledger.listen();
/// metrics::counter!("orders_total", "shop" => "a").increment(2);
/// assert_eq!(ledger.sum("orders_total", &[("shop", "a")]), 2.0);
/// ```
#[derive(Debug, Clone, Default)]
pub struct Ledger(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    counters: Mutex<BTreeMap<Series, Arc<AtomicU64>>>,
    /// As the bits of a number with a fraction, which is what the facade makes of it.
    gauges: Mutex<BTreeMap<Series, Arc<AtomicU64>>>,
    histograms: Mutex<BTreeMap<Series, Arc<Values>>>,
    descriptions: Mutex<BTreeMap<String, (Option<Unit>, String)>>,
}

#[derive(Debug, Default)]
struct Values(Mutex<Vec<f64>>);

impl HistogramFn for Values {
    fn record(&self, value: f64) {
        locked(&self.0).push(value);
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn series(key: &Key) -> Series {
    let mut labels: Vec<_> =
        key.labels().map(|label| (label.key().to_owned(), label.value().to_owned())).collect();
    labels.sort();
    (key.name().to_owned(), labels)
}

fn has(series: &Series, name: &str, labels: &[(&str, &str)]) -> bool {
    let has = |(label, value): &(&str, &str)| series.1.iter().any(|(l, v)| l == label && v == value);
    series.0 == name && labels.iter().all(has)
}

impl Ledger {
    /// Listens on this thread until what is returned is dropped. (What it listens with is left behind.)
    pub fn listen(&self) -> LocalRecorderGuard<'static> {
        metrics::set_default_local_recorder(Box::leak(Box::new(self.clone())))
    }

    /// Listens in the whole process, from now on.
    ///
    /// # Panics
    /// If somebody does already.
    pub fn listen_everywhere(&self) {
        assert!(metrics::set_global_recorder(self.clone()).is_ok(), "there is a recorder already");
    }

    /// All counters and gauges.
    fn numbers(&self) -> Vec<(Series, f64)> {
        let counters = locked(&self.0.counters);
        let gauges = locked(&self.0.gauges);
        #[expect(clippy::cast_precision_loss, reason = "tests count to small numbers")]
        let counted =
            counters.iter().map(|(series, count)| (series.clone(), count.load(Ordering::SeqCst) as f64));
        let gauged =
            gauges.iter().map(|(series, bits)| (series.clone(), f64::from_bits(bits.load(Ordering::SeqCst))));
        counted.chain(gauged).collect()
    }

    /// The sum of all series of a counter or gauge that have these labels.
    pub fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        self.numbers().iter().filter(|(series, _)| has(series, name, labels)).map(|(_, number)| number).sum()
    }

    /// The values in all series of a histogram that have these labels.
    pub fn values(&self, name: &str, labels: &[(&str, &str)]) -> Vec<f64> {
        let histograms = locked(&self.0.histograms);
        let found = histograms.iter().filter(|(series, _)| has(series, name, labels));
        found.flat_map(|(_, values)| locked(&values.0).clone()).collect()
    }

    /// The series of a counter or gauge by the values of one label, without those that are zero.
    pub fn by(&self, name: &str, label: &str, labels: &[(&str, &str)]) -> BTreeMap<String, f64> {
        let mut found = BTreeMap::new();
        for (series, number) in self.numbers().into_iter().filter(|(series, _)| has(series, name, labels)) {
            let by = series.1.into_iter().find(|(name, _)| name == label).map(|(_, value)| value);
            *found.entry(by.unwrap_or_default()).or_default() += number;
        }
        found.retain(|_, number: &mut f64| *number != 0.0);
        found
    }

    /// All series, those that never moved included.
    pub fn series(&self) -> BTreeSet<Series> {
        let histograms = locked(&self.0.histograms).keys().cloned().collect::<Vec<_>>();
        self.numbers().into_iter().map(|(series, _)| series).chain(histograms).collect()
    }

    /// The names of the metrics that are not zero now, or have values.
    pub fn moved(&self) -> BTreeSet<String> {
        let histograms = locked(&self.0.histograms);
        let valued = histograms.iter().filter(|(_, values)| !locked(&values.0).is_empty());
        let numbers = self.numbers().into_iter().filter(|(_, number)| *number != 0.0);
        numbers.map(|((name, _), _)| name).chain(valued.map(|((name, _), _)| name.clone())).collect()
    }

    /// How a metric was described.
    pub fn description(&self, name: &str) -> Option<(Option<Unit>, String)> {
        locked(&self.0.descriptions).get(name).cloned()
    }

    #[expect(clippy::needless_pass_by_value, reason = "as the facade gives it")]
    fn describe(&self, name: KeyName, unit: Option<Unit>, description: SharedString) {
        locked(&self.0.descriptions).insert(name.as_str().to_owned(), (unit, description.to_string()));
    }
}

impl Recorder for Ledger {
    fn describe_counter(&self, name: KeyName, unit: Option<Unit>, description: SharedString) {
        self.describe(name, unit, description);
    }

    fn describe_gauge(&self, name: KeyName, unit: Option<Unit>, description: SharedString) {
        self.describe(name, unit, description);
    }

    fn describe_histogram(&self, name: KeyName, unit: Option<Unit>, description: SharedString) {
        self.describe(name, unit, description);
    }

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(locked(&self.0.counters).entry(series(key)).or_default().clone())
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(locked(&self.0.gauges).entry(series(key)).or_default().clone())
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(locked(&self.0.histograms).entry(series(key)).or_default().clone())
    }
}
