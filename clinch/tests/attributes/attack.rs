//! What a second attack on the attributes found.

use std::future::Future;

use clinch::LockManager;

use crate::common::Outcome;

/// A parameter that is of another type elsewhere.
#[clinch::prevent_duplicate(user = "{user}", release = "never", manager = locks)]
async fn another_type(
    locks: &LockManager,
    user: u64,
    #[cfg(not(test))] item: u32,
    #[cfg(test)] item: u64,
) -> Outcome {
    Ok(item)
}

#[tokio::test]
async fn a_parameter_with_a_twin_that_is_not_there_counts() {
    let locks = LockManager::memory();
    assert!(another_type(&locks, 1, 1).await.is_ok());
    assert!(another_type(&locks, 1, 2).await.is_ok());
    assert!(another_type(&locks, 1, 2).await.is_err());
}
