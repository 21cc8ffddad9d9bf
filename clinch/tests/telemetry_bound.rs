//! How many guard names are told apart is bounded, in the whole process; so this has a process of its own.

#![cfg(feature = "metrics")]

use std::collections::BTreeSet;
use std::time::Duration;

use clinch::telemetry::ATTEMPTS;
use clinch::{LockManager, LockOptions};
use metrics_util::debugging::DebuggingRecorder;

/// Proves: O1
#[tokio::test]
async fn names_beyond_the_bound_are_counted_as_others() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    recorder.install().unwrap();
    let managers = [LockManager::memory(), LockManager::memory()];
    for n in 0..1000 {
        let options = LockOptions::new(Duration::from_secs(10)).named(format!("guard {n}"));
        // Of whichever manager: the recorder is one.
        managers[n % 2].lock("a", options).await.unwrap().release().await.unwrap();
    }
    let (mut names, mut counted, mut others) = (BTreeSet::new(), 0, 0);
    for (key, _, _, value) in snapshotter.snapshot().into_vec() {
        for label in key.key().labels().filter(|label| label.key() == "guard") {
            names.insert(label.value().to_owned());
            if let metrics_util::debugging::DebugValue::Counter(count) = value
                && key.key().name() == ATTEMPTS
            {
                counted += count;
                others += if label.value() == "other" { count } else { 0 };
            }
        }
    }
    assert_eq!(names.len(), 257, "256 names and `other`");
    assert_eq!((counted, others), (1000, 1000 - 256));
}
