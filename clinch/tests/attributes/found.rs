//! What looking hard at the attributes found.

use std::time::Duration;

use clinch::submit::{DuplicatePolicy, Guards, Identity, Submission};
use clinch::{Error, LockManager};

use crate::common::{Failed, Gate, Inside, Outcome};

/// The library under another name.
mod renamed {
    pub(crate) use clinch as locks;

    #[clinch::lock(key = "order:{id}", fair, strategy = "retry_once", manager = manager, crate = "locks")]
    pub(crate) async fn lock(manager: &locks::LockManager, id: u64) -> Result<u64, locks::Error> {
        Ok(id)
    }

    #[clinch::limit(key = "export", limit = 1, manager = manager, crate = "self::locks")]
    pub(crate) async fn limit(manager: &locks::LockManager) -> Result<u64, locks::Error> {
        Ok(1)
    }

    #[clinch::prevent_duplicate(user = "{id}", release = "never", manager = manager, crate = "crate::found::renamed::locks")]
    pub(crate) async fn once(manager: &locks::LockManager, id: u64) -> Result<u64, locks::Error> {
        Ok(id)
    }
}

#[tokio::test(start_paused = true)]
async fn the_library_may_have_another_name() {
    let locks = LockManager::memory();
    assert_eq!(renamed::lock(&locks, 7).await.unwrap(), 7);
    assert_eq!(renamed::limit(&locks).await.unwrap(), 1);
    assert_eq!(renamed::once(&locks, 7).await.unwrap(), 7);
    assert!(matches!(renamed::once(&locks, 7).await, Err(Error::DuplicateSubmit { .. })));
}

/// A body of one line is as good as any other.
#[deny(warnings)]
mod one_line {
    #[rustfmt::skip]
    #[clinch::lock(key = "k", manager = locks)]
    pub(super) async fn value(locks: &clinch::LockManager) -> Result<u64, clinch::Error> { Ok(1) }

    #[rustfmt::skip]
    #[clinch::prevent_duplicate(include_user = false, manager = locks)]
    pub(super) async fn call(locks: &clinch::LockManager) -> Result<u64, clinch::Error> { value(locks).await }
}

/// A parameter that is there only sometimes counts only then.
#[clinch::prevent_duplicate(user = "{user}", release = "never", manager = locks)]
async fn with_cfg(
    locks: &LockManager,
    user: u64,
    #[cfg(test)] item: u64,
    #[cfg(not(test))] missing: NoSuchType,
) -> Outcome {
    Ok(item)
}

#[tokio::test(start_paused = true)]
async fn parameters_may_depend_on_the_configuration() {
    let locks = LockManager::memory();
    assert_eq!(one_line::call(&locks).await.unwrap(), 1);
    assert_eq!(with_cfg(&locks, 1, 7).await.unwrap(), 7);
    assert_eq!(with_cfg(&locks, 1, 8).await.unwrap(), 8);
    assert!(matches!(with_cfg(&locks, 1, 8).await, Err(Failed::Guard(Error::DuplicateSubmit { .. }))));
}

#[clinch::prevent_duplicate(user = "{user}", manager = locks)]
async fn submit(locks: LockManager, user: u64, gate: Gate) -> Outcome {
    gate.pass().await
}

/// Only a request comes to the same guard twice without meaning it twice: of two calls at once in one scope the second one is
/// a duplicate like any other.
/// Proves: D2, B6
#[tokio::test(start_paused = true)]
async fn two_calls_in_one_scope_are_duplicates() {
    let locks = LockManager::memory();
    let both = async {
        let scope = locks.current_scope().unwrap();
        let first = Inside::enter(|gate| {
            let call = submit(locks.clone(), 1, gate);
            async move { scope.enter(call).await }
        })
        .await;
        let second = submit(locks.clone(), 1, Gate::open()).await;
        assert!(matches!(second, Err(Failed::Guard(Error::DuplicateSubmit { in_progress: true, .. }))));
        first.end(Ok(1)).await.unwrap();

        let guards = Guards::new(locks.clone());
        let submission = Submission::of("create").user(Identity::user("1"));
        let _first = guards.duplicate(&DuplicatePolicy::new(), &submission).await.unwrap();
        let second = guards.duplicate(&DuplicatePolicy::new(), &submission).await;
        assert!(matches!(second, Err(Error::DuplicateSubmit { in_progress: true, .. })));
    };
    locks.scope(Box::pin(both)).await;
}

/// A key that cannot be one is an error, but not one of a guard that only looks on.
/// Proves: B14
#[tokio::test(start_paused = true)]
async fn in_shadow_mode_a_bad_key_refuses_nobody() {
    #[clinch::lock(key = "{key}", shadow, manager = guards)]
    async fn shadowed(guards: &Guards, key: &str) -> Outcome {
        Ok(1)
    }
    #[clinch::limit(key = "{key}", limit = 1, shadow, manager = guards)]
    async fn shadowed_limit(guards: &Guards, key: &str) -> Outcome {
        Ok(2)
    }
    #[clinch::lock(key = "{key}", manager = guards)]
    async fn guarded(guards: &Guards, key: &str) -> Outcome {
        Ok(3)
    }
    let guards = Guards::new(LockManager::memory());
    let long = "x".repeat(1000);
    for bad in ["", &long] {
        assert_eq!(shadowed(&guards, bad).await.unwrap(), 1);
        assert_eq!(shadowed_limit(&guards, bad).await.unwrap(), 2);
        let refused = guarded(&guards, bad).await;
        assert!(matches!(refused, Err(Failed::Guard(Error::InvalidKey(_)))), "{refused:?}");
    }
    assert_eq!(guards.statistics().shadowed, 4);
    tokio::time::advance(Duration::from_secs(1)).await;
}
