//! How many guard names are told apart is bounded, in the whole process; so this has a process of its own.

#![cfg(feature = "metrics")]

use std::collections::BTreeSet;
use std::time::Duration;

use clinch::telemetry::ATTEMPTS;
use clinch::{LockManager, LockOptions};
use clinch_testkit::ledger::Ledger;

/// Proves: O1
#[tokio::test]
async fn names_beyond_the_bound_are_counted_as_others() {
    let ledger = Ledger::default();
    ledger.listen_everywhere();
    let managers = [LockManager::memory(), LockManager::memory()];
    for n in 0..1000 {
        let options = LockOptions::new(Duration::from_secs(10)).named(format!("guard {n}"));
        // Of whichever manager: the recorder is one.
        managers[n % 2].lock("a", options).await.unwrap().release().await.unwrap();
    }
    let labels = ledger.series().into_iter().flat_map(|(_, labels)| labels);
    let names: BTreeSet<_> = labels.filter(|(label, _)| label == "guard").map(|(_, name)| name).collect();
    assert_eq!(names.len(), 257, "256 names and `other`");
    assert_eq!(ledger.sum(ATTEMPTS, &[]), 1000.0);
    assert_eq!(ledger.sum(ATTEMPTS, &[("guard", "other")]), 1000.0 - 256.0);
}
