//! When a manager hears what is pushed to it.

use std::time::Duration;

use clinch::LockManager;

/// Waits until the manager hears revocations. Before, it looks up once whether it still holds what it denies to others: a
/// command that a test which counts them does not expect. The operator is another manager on the same engine.
///
/// # Panics
/// If either of them gets no answer.
#[expect(clippy::expect_used, reason = "a test stops at the first surprise")]
pub async fn hears(manager: &LockManager, operator: &LockManager) {
    let key = "does it hear";
    let guard =
        manager.try_lock(key, Duration::from_secs(60)).await.expect("an answer").expect("nobody else's key");
    let held = operator.inspect(key).await.expect("an answer");
    for holder in &held {
        operator.force_release(holder).await.expect("an answer");
    }
    // By push, or because it was looked up once pushes were heard; no renewal tells it, and its time is longer than the wait.
    tokio::time::timeout(Duration::from_secs(30), guard.lost()).await.expect("it is told");
}
