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

struct Orders;
struct Refunds;

impl Orders {
    #[clinch::prevent_duplicate(user = "{user}", release = "never", manager = locks)]
    async fn create(locks: &LockManager, user: u64) -> Outcome {
        Ok(user)
    }
}

impl Refunds {
    #[clinch::prevent_duplicate(user = "{user}", release = "never", manager = locks)]
    async fn create(locks: &LockManager, user: u64) -> Outcome {
        Ok(user)
    }
}

fn one(locks: &LockManager) -> impl Future<Output = Outcome> + use<'_> {
    #[clinch::prevent_duplicate(user = "1", release = "never", manager = locks)]
    async fn inner(locks: &LockManager) -> Outcome {
        Ok(1)
    }
    inner(locks)
}

fn two(locks: &LockManager) -> impl Future<Output = Outcome> + use<'_> {
    #[clinch::prevent_duplicate(user = "1", release = "never", manager = locks)]
    async fn inner(locks: &LockManager) -> Outcome {
        Ok(2)
    }
    inner(locks)
}

#[tokio::test]
async fn functions_of_one_name_in_one_module_are_different_ones() {
    let locks = LockManager::memory();
    assert!(Orders::create(&locks, 1).await.is_ok());
    assert!(Orders::create(&locks, 1).await.is_err());
    assert!(Refunds::create(&locks, 1).await.is_ok());
    assert!(one(&locks).await.is_ok());
    assert!(one(&locks).await.is_err());
    assert!(two(&locks).await.is_ok());
}

/// Calls itself, each time on another key.
#[clinch::lock(key = "level:{n}", manager = locks)]
async fn recursive(locks: LockManager, n: u64) -> Outcome {
    if n == 0 {
        return Ok(0);
    }
    Ok(1 + Box::pin(recursive(locks, n - 1)).await?)
}

#[axum::debug_handler]
#[clinch::lock(key = "checked:{n}")]
async fn checked_outside(
    axum::extract::Path(mut n): axum::extract::Path<u64>,
) -> Result<String, clinch::Error> {
    n += 1;
    Ok(n.to_string())
}

#[clinch::lock(key = "checked:{n}")]
#[axum::debug_handler]
async fn checked_inside(axum::extract::Path(n): axum::extract::Path<u64>) -> Result<String, clinch::Error> {
    Ok(n.to_string())
}

#[clinch::prevent_duplicate(user = "{n}", manager = locks)]
async fn borrows<'a, T>(locks: &'a LockManager, n: u64, text: &'a T) -> Result<&'a str, crate::common::Failed>
where
    T: AsRef<str> + ?Sized + Sync,
{
    let shout = async |text: &'a T| text.as_ref();
    Ok(shout(text).await)
}

#[tokio::test]
async fn shapes_that_go_together() {
    let locks = LockManager::memory();
    assert_eq!(tokio::spawn(recursive(locks.clone(), 3)).await.unwrap().unwrap(), 3);
    assert_eq!(borrows(&locks, 1, "text").await.unwrap(), "text");
    let _handlers: axum::Router =
        axum::Router::new().route("/o/{n}", axum::routing::post(checked_outside).put(checked_inside));
}
