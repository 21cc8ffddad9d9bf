//! A recorder whose numbers can be read, and the engines to measure.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use clinch::LockManager;
use clinch_testkit::server::RedisServer;
use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};

/// Long enough for anything that happens at all, on a busy machine too.
pub(crate) const LONG: Duration = Duration::from_secs(30);
/// A TTL that no test outlives.
pub(crate) const TTL: Duration = Duration::from_secs(60);

/// A series: the name of a metric, and its labels in their order.
pub(crate) type Series = (String, Vec<(String, String)>);

/// Everything that was measured on this thread since it was made. A test runs on one thread, its tasks included.
pub(crate) struct Ledger {
    snapshotter: Snapshotter,
    sums: RefCell<BTreeMap<Series, f64>>,
    values: RefCell<BTreeMap<Series, Vec<f64>>>,
    _recording: metrics::LocalRecorderGuard<'static>,
}

impl Ledger {
    pub(crate) fn new() -> Self {
        // Left behind on purpose: where it is says which one it is.
        let recorder: &'static _ = Box::leak(Box::new(DebuggingRecorder::new()));
        Self {
            snapshotter: recorder.snapshotter(),
            sums: RefCell::default(),
            values: RefCell::default(),
            _recording: metrics::set_default_local_recorder(recorder),
        }
    }

    /// Reads what came since it was read last: a snapshot takes everything with it.
    fn read(&self) {
        let (mut sums, mut values) = (self.sums.borrow_mut(), self.values.borrow_mut());
        for (key, _, _, value) in self.snapshotter.snapshot().into_vec() {
            let key = key.key();
            let mut labels: Vec<_> =
                key.labels().map(|label| (label.key().to_owned(), label.value().to_owned())).collect();
            labels.sort();
            let series = (key.name().to_owned(), labels);
            match value {
                #[expect(clippy::cast_precision_loss, reason = "tests count to small numbers")]
                DebugValue::Counter(more) => *sums.entry(series).or_default() += more as f64,
                DebugValue::Gauge(more) => *sums.entry(series).or_default() += more.0,
                DebugValue::Histogram(more) => {
                    values.entry(series).or_default().extend(more.into_iter().map(|value| value.0));
                }
            }
        }
    }

    /// The sum of all series of a counter or gauge that have these labels.
    pub(crate) fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        self.read();
        let sums = self.sums.borrow();
        sums.iter().filter(|(series, _)| is(series, name, labels)).map(|(_, sum)| sum).sum()
    }

    /// The values of all series of a histogram that have these labels.
    pub(crate) fn values(&self, name: &str, labels: &[(&str, &str)]) -> Vec<f64> {
        self.read();
        let values = self.values.borrow();
        values
            .iter()
            .filter(|(series, _)| is(series, name, labels))
            .flat_map(|(_, all)| all.clone())
            .collect()
    }

    /// The series of a counter by the values of one label, without those that are zero.
    pub(crate) fn by(&self, name: &str, label: &str, labels: &[(&str, &str)]) -> BTreeMap<String, f64> {
        self.read();
        let mut found = BTreeMap::new();
        for (series, sum) in self.sums.borrow().iter().filter(|(series, _)| is(series, name, labels)) {
            let by = series.1.iter().find(|(name, _)| name == label).map(|(_, value)| value.clone());
            *found.entry(by.unwrap_or_default()).or_default() += sum;
        }
        found.retain(|_, sum: &mut f64| *sum != 0.0);
        found
    }

    /// All series, those that never moved included.
    pub(crate) fn series(&self) -> BTreeSet<Series> {
        self.read();
        self.sums.borrow().keys().chain(self.values.borrow().keys()).cloned().collect()
    }

    /// The names of what has moved so far.
    pub(crate) fn moved(&self) -> BTreeSet<String> {
        self.read();
        let (sums, values) = (self.sums.borrow(), self.values.borrow());
        let sums = sums.iter().filter(|(_, sum)| **sum != 0.0).map(|((name, _), _)| name.clone());
        sums.chain(values.iter().filter(|(_, all)| !all.is_empty()).map(|((name, _), _)| name.clone()))
            .collect()
    }
}

fn is(series: &Series, name: &str, labels: &[(&str, &str)]) -> bool {
    let has = |(label, value): &(&str, &str)| series.1.iter().any(|(l, v)| l == label && v == value);
    series.0 == name && labels.iter().all(has)
}

/// Words and numbers, as [`Ledger::by`] gives them.
pub(crate) fn table<const N: usize>(rows: [(&str, f64); N]) -> BTreeMap<String, f64> {
    rows.into_iter().map(|(word, number)| (word.to_owned(), number)).collect()
}

/// The two engines on which everything is shown, each with what keeps it alive.
pub(crate) async fn engines() -> [(&'static str, LockManager, Option<RedisServer>); 2] {
    let server = RedisServer::start();
    let redis = LockManager::connect(&server.url()).await.unwrap();
    [("memory", LockManager::memory(), None), ("redis", redis, Some(server))]
}

/// Waits until something is so that nobody pushes; the pause is not what makes it so.
pub(crate) async fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = tokio::time::Instant::now() + LONG;
    while !is_so() {
        assert!(tokio::time::Instant::now() < deadline, "{what}: not within {LONG:?}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}
