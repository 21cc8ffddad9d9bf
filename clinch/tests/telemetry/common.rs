//! A recorder whose numbers can be read, and the engines to measure.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::time::Duration;

use clinch::LockManager;
use clinch_testkit::server::RedisServer;

/// Long enough for anything that happens at all, on a busy machine too.
pub(crate) const LONG: Duration = Duration::from_secs(30);
/// A TTL that no test outlives.
pub(crate) const TTL: Duration = Duration::from_secs(60);

/// Everything that is measured on this thread from now on. A test runs on one thread, its tasks included.
pub(crate) struct Ledger {
    ledger: clinch_testkit::ledger::Ledger,
    _listening: metrics::LocalRecorderGuard<'static>,
}

impl Ledger {
    pub(crate) fn new() -> Self {
        let ledger = clinch_testkit::ledger::Ledger::default();
        Self { _listening: ledger.listen(), ledger }
    }
}

impl Deref for Ledger {
    type Target = clinch_testkit::ledger::Ledger;

    fn deref(&self) -> &Self::Target {
        &self.ledger
    }
}

/// Words and numbers, as [`Ledger::by`] gives them.
pub(crate) fn table<const N: usize>(rows: [(&str, f64); N]) -> BTreeMap<String, f64> {
    rows.into_iter().map(|(word, number)| (word.to_owned(), number)).collect()
}

/// The two engines on which everything is shown, each with what keeps it alive.
pub(crate) async fn engines() -> [(&'static str, LockManager, Option<RedisServer>); 2] {
    let server = RedisServer::start();
    let redis = LockManager::builder().call_timeout(LONG).connect(&server.url()).await.unwrap();
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
