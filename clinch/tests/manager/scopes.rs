//! Re-entry by scope.

use std::time::Duration;

use clinch::{Error, LockManager, LockOptions, Outcome};

use crate::common::{Bench, LONG, TTL, both, poll_once};

fn again() -> LockOptions {
    LockOptions::new(TTL).reentrant()
}

/// Proves: B6, T1
/// The same scope enters again, counted; the last one out gives the lock back, in whatever order they go.
#[tokio::test]
async fn a_scope_enters_again_and_the_last_one_out_releases() {
    for (locks, _server) in both().await {
        locks
            .scope(async {
                let outer = locks.lock("k", again()).await.unwrap();
                let Outcome::Reentered(inner) = locks.attempt("k", again()).await.unwrap() else {
                    panic!("held by this scope")
                };
                let third = locks.try_lock("k", again()).await.unwrap().unwrap();
                assert_eq!(outer.token(), third.token());
                assert!(outer.release().await.unwrap(), "it is still held, by the others");
                assert_eq!(locks.inspect("k").await.unwrap().len(), 1);
                drop(inner);
                assert_eq!(locks.inspect("k").await.unwrap().len(), 1);
                assert!(third.release().await.unwrap());
                assert!(locks.inspect("k").await.unwrap().is_empty());
                // From here on it is a new lock.
                assert!(matches!(locks.attempt("k", again()).await.unwrap(), Outcome::Acquired(_)));
            })
            .await;
    }
}

/// Who stands in its own way is told so, and what to do.
/// Proves: T2
#[tokio::test]
async fn who_is_denied_by_its_own_scope_is_told_so() {
    for (locks, _server) in both().await {
        locks
            .scope(async {
                let _outer = locks.lock("k", TTL).await.unwrap();
                let error = locks.lock("k", TTL).await.unwrap_err();
                assert!(error.to_string().contains("of the same scope; make it `reentrant`"), "{error}");
                let Error::LockNotAcquired { denied, .. } = error else { panic!("{error}") };
                assert!(denied.by_own_scope);
                assert!(locks.try_lock("k", again()).await.unwrap().is_some(), "the inner one alone will do");
            })
            .await;
        let _outside = locks.lock("k", TTL).await.unwrap();
        let denied = locks.scope(async { locks.attempt("k", TTL).await.unwrap() }).await;
        assert!(matches!(denied, Outcome::DeniedByLock(denied) if !denied.by_own_scope));
    }
}

/// Proves: B6
/// Only where it was asked for, only in the same scope: not outside of it, not in another, not in a spawned task that was not
/// given it, although all of them run on this one thread.
#[tokio::test]
async fn never_across_scopes_and_never_by_thread() {
    let locks = LockManager::memory();
    let scope = locks
        .scope(async {
            let _outer = locks.lock("k", again()).await.unwrap();
            assert!(locks.try_lock("k", TTL).await.unwrap().is_none(), "not asked for");
            let inner = locks.scope(async { locks.try_lock("k", again()).await.unwrap() }).await;
            assert!(inner.is_none(), "another scope");
            let stranger = locks.clone();
            let spawned =
                tokio::spawn(async move { stranger.try_lock("k", again()).await.unwrap().is_some() });
            assert!(!spawned.await.unwrap(), "another task");
            let scope = locks.current_scope().unwrap();
            let (given, helper) = (scope.clone(), locks.clone());
            let spawned = tokio::spawn(async move {
                given.enter(async { helper.try_lock("k", again()).await.unwrap().is_some() }).await
            });
            assert!(spawned.await.unwrap(), "a task that was given it");
            scope
        })
        .await;
    assert!(locks.current_scope().is_none());
    assert!(scope.has_ended());
    // A scope that has ended enters nothing, and says so.
    let late = scope.enter(locks.try_lock("k", again())).await;
    assert!(matches!(late, Err(Error::ScopeEnded { .. })), "{late:?}");
    // Outside of a scope it is an ordinary lock.
    assert!(matches!(locks.attempt("k", again()).await.unwrap(), Outcome::Acquired(_)));
}

/// Proves: B6, T4
/// Entering again costs no call, and no second permit.
#[tokio::test]
async fn entering_again_costs_no_call_and_no_permit() {
    let bench = Bench::start().await;
    let locks = bench.manager().await;
    let limit = locks.limit("export", 1).unwrap();
    locks
        .scope(async {
            let options = again().limited_by(&limit, TTL);
            let outer = locks.lock("k", options.clone()).await.unwrap();
            let permit = limit.attempt(again()).await.unwrap();
            assert!(matches!(permit, Outcome::Reentered(_)));
            bench.proxy.reset_counts();
            let inner = locks.attempt("k", options).await.unwrap();
            assert!(matches!(inner, Outcome::Reentered(_)));
            let alone = locks.attempt("k", again()).await.unwrap();
            assert!(matches!(alone, Outcome::Reentered(_)));
            assert_eq!(bench.proxy.lease_commands(), 0);
            assert_eq!(limit.holders().await.unwrap().len(), 1);
            drop((outer, permit, inner, alone));
        })
        .await;
    bench.free("k").await;
    assert!(limit.try_acquire(TTL).await.unwrap().is_some());
}

/// Proves: B6
/// Two tasks of one scope that want the same key at the same time: one gets it, the other enters it. Neither waits for the
/// other for ever.
#[tokio::test]
async fn two_tasks_of_a_scope_share_what_one_of_them_gets() {
    for (locks, _server) in both().await {
        let held = locks.lock("k", TTL).await.unwrap();
        locks
            .scope(async {
                let options = again().wait(LONG);
                let mut one = Box::pin(locks.attempt("k", options.clone()));
                let mut two = Box::pin(locks.attempt("k", options));
                assert!(poll_once(one.as_mut()).await.is_pending());
                assert!(poll_once(two.as_mut()).await.is_pending());
                drop(held);
                let one = tokio::time::timeout(LONG, one).await.unwrap().unwrap();
                let two = tokio::time::timeout(LONG, two).await.unwrap().unwrap();
                assert!(
                    matches!(one, Outcome::Acquired(_)) && matches!(two, Outcome::Reentered(_)),
                    "{one:?} {two:?}"
                );
                drop((one, two));
                // Tries as well.
                let (one, two) = tokio::join!(locks.attempt("k", again()), locks.attempt("k", again()));
                let guards = [one.unwrap().guard(), two.unwrap().guard()];
                assert!(guards.iter().all(Option::is_some), "{guards:?}");
            })
            .await;
    }
}

/// Proves: B6, B7
/// A scope that asks for more than it could ever get while it holds what it holds is told so.
#[tokio::test]
async fn what_would_wait_for_itself_is_an_error() {
    let locks = LockManager::memory();
    locks
        .scope(async {
            let reading = locks.lock("k", again().shared()).await.unwrap();
            for options in
                [again(), again().wait(LONG), LockOptions::new(TTL), LockOptions::new(TTL).wait(LONG)]
            {
                let upgrade = locks.lock("k", options).await;
                assert!(matches!(upgrade, Err(Error::SelfDeadlock { .. })), "{upgrade:?}");
            }
            assert!(matches!(locks.attempt("k", again().shared()).await.unwrap(), Outcome::Reentered(_)));
            drop(reading);
            let writing = locks.lock("k", again()).await.unwrap();
            assert!(matches!(locks.attempt("k", again().shared()).await.unwrap(), Outcome::Reentered(_)));
            let partly = locks.lock_all(["k", "other"], again()).await;
            assert!(matches!(partly, Err(Error::SelfDeadlock { .. })), "{partly:?}");
            drop(writing);
        })
        .await;
}

/// Proves: B6
/// What was lost is not entered again, and a scope forgets what its guards gave back.
#[tokio::test(start_paused = true)]
async fn what_is_lost_is_not_entered() {
    let locks = LockManager::memory();
    locks
        .scope(async {
            let short = LockOptions::new(Duration::from_secs(1)).reentrant();
            let lost = locks.lock("k", short.clone()).await.unwrap();
            lost.lost().await;
            let next = locks.attempt("k", short.wait(LONG)).await.unwrap();
            assert!(matches!(next, Outcome::Acquired(_)), "{next:?}");
        })
        .await;
}

/// Proves: B6, B5
/// A lease that was passed to another scope is not the first one's any more: a try of the first is denied at once.
#[tokio::test(start_paused = true)]
async fn a_lease_that_was_passed_on_is_entered_by_its_new_scope_only() {
    let locks = LockManager::memory();
    let waiting = again().wait(LONG);
    locks
        .scope(async {
            let first = locks.lock("k", again()).await.unwrap();
            let mut other = Box::pin(locks.scope(async {
                let passed = locks.lock("k", waiting.clone()).await.unwrap();
                let inner = locks.attempt("k", again()).await.unwrap();
                assert!(matches!(inner, Outcome::Reentered(_)));
                (passed, inner)
            }));
            assert!(poll_once(other.as_mut()).await.is_pending());
            let token = first.token().clone();
            drop(first);
            let (passed, inner) = other.await;
            assert_eq!(passed.token(), &token);
            let denied = tokio::time::timeout(Duration::from_millis(1), locks.attempt("k", again())).await;
            assert!(matches!(denied.unwrap().unwrap(), Outcome::DeniedByLock(_)));
            drop((passed, inner));
        })
        .await;
}
