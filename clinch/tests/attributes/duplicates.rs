//! `#[clinch::prevent_duplicate]` on plain functions and methods.

use std::collections::HashMap;
use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use clinch::stores::memory::MemoryStore;
use clinch::submit::Guards;
use clinch::{Error, LockManager};
use serde::Serialize;

use crate::common::{Failed, Gate, Inside, Outcome};

/// A parameter that cannot be serialised, and so does not count.
#[derive(Clone, Copy)]
struct Pool(u64);

#[derive(Serialize, Clone, Copy)]
struct Order {
    item: u64,
    timestamp: u64,
}

#[clinch::prevent_duplicate(
    user = "{user_id}",
    exclude_params = ["order.timestamp", "trace"],
    key_prefix = "shop",
    message = "einen Moment bitte",
    manager = locks
)]
async fn create(
    locks: LockManager,
    pool: Pool,
    user_id: u64,
    order: Order,
    trace: String,
    gate: Gate,
) -> Outcome {
    let _ = (pool.0, order.item, trace);
    gate.pass().await
}

/// What a refused call is told: the key, the message, the time left, and whether the first one still runs.
#[track_caller]
fn refused<T: std::fmt::Debug>(outcome: Result<T, Failed>) -> (String, String, Duration, bool) {
    match outcome.unwrap_err().guard() {
        Error::DuplicateSubmit { key, message, remaining, in_progress } => {
            (key.to_string(), message, remaining, in_progress)
        }
        other => panic!("{other}"),
    }
}

/// Proves: D1, D2
#[tokio::test(start_paused = true)]
async fn the_same_is_the_same_function_user_and_parameters() {
    let locks = LockManager::memory();
    let call = |user, item, timestamp, gate| {
        let (pool, trace) = (Pool(timestamp), timestamp.to_string());
        create(locks.clone(), pool, user, Order { item, timestamp }, trace, gate)
    };
    let inside = Inside::enter(|gate| call(1, 7, 100, gate)).await;

    let (key, message, remaining, in_progress) = refused(call(1, 7, 100, Gate::open()).await);
    assert_eq!((message.as_str(), in_progress), ("einen Moment bitte", true));
    assert!((Duration::from_secs(4)..=Duration::from_secs(5)).contains(&remaining), "{remaining:?}");
    let parts: Vec<&str> = key.split(':').collect();
    assert_eq!(parts[..2], ["shop", "attributes%3A%3Aduplicates%3A%3Acreate"]);
    assert_eq!((parts.len(), parts[2].len(), parts[3].len()), (4, 32, 32), "{key}");

    assert_eq!(refused(call(1, 7, 200, Gate::open()).await).0, key, "what is excluded does not count");
    call(2, 7, 100, Gate::open()).await.unwrap();
    call(1, 8, 100, Gate::open()).await.unwrap();

    inside.end(Ok(1)).await.unwrap();
    call(1, 7, 100, Gate::open()).await.unwrap();
}

/// Proves: D7
#[tokio::test(start_paused = true)]
async fn it_opens_again_however_the_function_ends() {
    let store = Arc::new(MemoryStore::new());
    let call = |locks: &LockManager, gate| {
        create(locks.clone(), Pool(0), 1, Order { item: 7, timestamp: 0 }, String::new(), gate)
    };
    for how in ["value", "error", "panic", "drop"] {
        let locks = LockManager::builder().store(store.clone()).build().unwrap();
        let inside = Inside::enter(|gate| call(&locks, gate)).await;
        assert!(refused(call(&locks, Gate::open()).await).3);
        match how {
            "value" => assert_eq!(inside.end(Ok(3)).await.unwrap(), 3),
            "error" => assert!(matches!(inside.end(Err(Failed::Own("x"))).await, Err(Failed::Own("x")))),
            "panic" => inside.panic().await,
            _ => inside.abort().await,
        }
        // What goes on in the background after a panic or a drop is over then. The next one finds it open.
        locks.shutdown(Duration::from_secs(1)).await;
    }
    let locks = LockManager::builder().store(store).build().unwrap();
    call(&locks, Gate::open()).await.unwrap();
}

/// Proves: D8
#[tokio::test(start_paused = true)]
async fn after_a_success_the_rest_of_the_interval_is_kept_if_that_is_asked_for() {
    #[clinch::prevent_duplicate(
        interval = "3s", release = "on_failure", user = "{user}", exclude_params = ["outcome"], manager = locks
    )]
    async fn once(locks: &LockManager, user: &str, outcome: Result<u64, &'static str>) -> Outcome {
        outcome.map_err(Failed::Own)
    }

    let locks = LockManager::memory();
    assert!(matches!(once(&locks, "a", Err("x")).await, Err(Failed::Own("x"))));
    assert_eq!(once(&locks, "a", Ok(1)).await.unwrap(), 1);
    let (_, _, remaining, in_progress) = refused(once(&locks, "a", Ok(1)).await);
    assert!(!in_progress && remaining <= Duration::from_secs(3), "{remaining:?}");
    tokio::time::advance(Duration::from_secs(3)).await;
    assert_eq!(once(&locks, "a", Ok(2)).await.unwrap(), 2);
}

/// Proves: D2
#[tokio::test]
async fn without_user_and_parameters_it_is_one_gate_for_everybody() {
    #[clinch::prevent_duplicate(include_user = false, include_params = false, manager = locks)]
    async fn import(locks: LockManager, file: u64, gate: Gate) -> Outcome {
        gate.pass().await.map(|_| file)
    }

    let locks = LockManager::memory();
    let inside = Inside::enter(|gate| import(locks.clone(), 1, gate)).await;
    assert!(refused(import(locks.clone(), 2, Gate::open()).await).0.ends_with(":*:*"));
    inside.end(Ok(0)).await.unwrap();
}

struct Shop<T> {
    locks: LockManager,
    tenant: T,
}

impl<T: Display + Sync + Send + 'static> Shop<T> {
    #[clinch::prevent_duplicate(release = "never", user = "{self.tenant}", manager = self.locks)]
    async fn order(&self, item: u64) -> Outcome {
        Ok(item)
    }
}

struct Till(LockManager);

impl Till {
    #[clinch::prevent_duplicate(release = "never", include_user = false, manager = self.0)]
    async fn order(&self, item: u64) -> Outcome {
        Ok(item)
    }
}

struct Kiosk(LockManager);

impl Kiosk {
    #[clinch::prevent_duplicate(release = "never", include_user = false, manager = self.0)]
    async fn order(&self, item: u64) -> Outcome {
        Ok(item)
    }
}

#[tokio::test]
async fn a_method_is_told_apart_by_its_type() {
    let locks = LockManager::memory();
    Shop { locks: locks.clone(), tenant: 1 }.order(7).await.unwrap();
    Shop { locks: locks.clone(), tenant: 2 }.order(7).await.unwrap();
    Shop { locks: locks.clone(), tenant: "1" }.order(7).await.unwrap();
    let (key, ..) = refused(Shop { locks: locks.clone(), tenant: 1 }.order(7).await);
    assert!(key.contains("Shop<i32>%3A%3Aorder:"), "{key}");
    Till(locks.clone()).order(7).await.unwrap();
    Kiosk(locks.clone()).order(7).await.unwrap();
    refused(Till(locks).order(7).await);
}

#[tokio::test]
async fn a_type_parameter_counts_if_its_bound_says_that_it_can_be_serialised() {
    #[clinch::prevent_duplicate(release = "never", include_user = false, manager = locks)]
    async fn counted<T: Serialize>(locks: &LockManager, value: T) -> Outcome {
        let _ = value;
        Ok(0)
    }

    #[clinch::prevent_duplicate(release = "never", include_user = false, manager = locks)]
    async fn ignored<T>(locks: &LockManager, value: T) -> Outcome {
        let _ = value;
        Ok(0)
    }

    let locks = LockManager::memory();
    counted(&locks, 1).await.unwrap();
    counted(&locks, "1").await.unwrap();
    refused(counted(&locks, 1).await);
    ignored(&locks, 1).await.unwrap();
    refused(ignored(&locks, 2).await);
}

#[tokio::test]
async fn what_is_missing_or_cannot_be_written_is_an_error_and_the_body_does_not_run() {
    #[clinch::prevent_duplicate]
    async fn nobody_knows_the_user(item: u64) -> Outcome {
        panic!("{item}")
    }

    #[clinch::prevent_duplicate(include_user = false)]
    async fn not_json(map: HashMap<(u8, u8), u8>) -> Outcome {
        panic!("{}", map.len())
    }

    let error = |outcome: Outcome| outcome.unwrap_err().guard();
    let guards = Guards::new(LockManager::memory());
    assert!(matches!(error(nobody_knows_the_user(1).await), Error::Missing { .. }), "no manager");
    let user = error(guards.enter(nobody_knows_the_user(1)).await);
    assert!(matches!(user, Error::Missing { what: "the user of a submission", .. }), "{user}");
    let map = HashMap::from([((1, 2), 3)]);
    assert!(matches!(error(guards.enter(not_json(map)).await), Error::InvalidOption { .. }));
}

/// Proves: D8
#[cfg(feature = "http")]
#[tokio::test]
async fn a_status_of_400_or_more_is_a_failure_also_behind_impl_trait() {
    use http::StatusCode;

    #[clinch::prevent_duplicate(release = "on_failure", user = "{user}", exclude_params = ["status"], manager = locks)]
    async fn plain(locks: &LockManager, user: u64, status: u16) -> Result<StatusCode, Failed> {
        Ok(StatusCode::from_u16(status).unwrap())
    }

    #[clinch::prevent_duplicate(release = "on_failure", user = "{user}", exclude_params = ["status"], manager = locks)]
    async fn hidden(
        locks: &LockManager,
        user: u64,
        status: u16,
    ) -> Result<impl std::fmt::Debug + use<>, Failed> {
        Ok((StatusCode::from_u16(status).unwrap(), "text"))
    }

    let locks = LockManager::memory();
    plain(&locks, 1, 500).await.unwrap();
    plain(&locks, 1, 200).await.unwrap();
    refused(plain(&locks, 1, 200).await);
    hidden(&locks, 1, 404).await.unwrap();
    hidden(&locks, 1, 201).await.unwrap();
    refused(hidden(&locks, 1, 201).await);
}
