//! A file that somebody else keeps locked: bounded, told as *not applied*, and nobody's runtime stands still for it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use clinch::store::{ErrorKind, Store};
use clinch::stores::StoreOptions;
use clinch::stores::sqlite::SqliteStore;
use clinch::{Error, LockManager, LockOptions};

use crate::common::{Folder, LONG, granted, holder, lock, not_applied};

/// A writer of another program, or one that hangs: the write lock is taken until it is dropped.
fn locked(folder: &Folder) -> rusqlite::Connection {
    let other = folder.look();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    other
}

async fn impatient(folder: &Folder, limit: Duration) -> SqliteStore {
    let mut options = StoreOptions::default();
    options.call_timeout = limit;
    SqliteStore::open(folder.file(), &options).await.unwrap()
}

/// Fault: 46
/// The lock is waited for within the limit of the call; then the step was not applied, and a retry can help. What only looks is
/// not kept from looking. As soon as the lock is free, everything goes on.
#[tokio::test]
async fn busy_is_waited_for_within_the_limit_and_then_not_applied() {
    let folder = Folder::new();
    // A busy file is told a tenth before the limit: long enough that a busy machine tells it, too.
    let store = impatient(&folder, Duration::from_secs(3)).await;
    let held = lock("held", LONG);
    granted(&store, &held).await;

    let other = locked(&folder);
    let (attempt, started) = (lock("k", LONG), Instant::now());
    let (acquired, renewed, released, answered) =
        tokio::join!(store.acquire(&attempt), store.renew(&held), store.release(&held), store.ping());
    let took = started.elapsed();
    let said = not_applied(acquired, ErrorKind::Busy, true);
    assert!(said.contains("locked for the whole time limit"), "{said}");
    assert!(took >= Duration::from_millis(2_500), "{took:?}");
    assert_eq!(attempt.sent_at(), None, "nothing was sent, so there is nothing to take back");
    not_applied(renewed, ErrorKind::Busy, true);
    not_applied(released, ErrorKind::Busy, true);
    not_applied(answered, ErrorKind::Busy, true);
    assert_eq!(holder(&store, "held").await.as_ref(), Some(held.token()), "who looks is not kept from it");

    drop(other);
    granted(&store, &attempt).await;
    assert!(store.release(&held).await.unwrap().held);
}

/// Fault: 46
/// A lock that is freed in time costs nothing but the wait.
#[tokio::test]
async fn a_lock_that_is_freed_in_time_is_waited_for() {
    let folder = Folder::new();
    let store = Arc::new(impatient(&folder, LONG).await);
    let other = locked(&folder);
    let waiting = tokio::spawn({
        let store = store.clone();
        async move { granted(&*store, &lock("k", LONG)).await }
    });
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(!waiting.is_finished());
    drop(other);
    waiting.await.unwrap();
}

/// Fault: 46
/// The same through a manager: the error says what to expect, and a waiter outlives the outage.
#[tokio::test]
async fn a_manager_waits_a_busy_file_out() {
    let folder = Folder::new();
    let store = impatient(&folder, Duration::from_secs(1)).await;
    let locks = LockManager::builder().store(Arc::new(store)).build().unwrap();
    let other = locked(&folder);
    match locks.try_lock("k", LONG).await {
        Err(Error::Engine { cause, .. }) => assert!(cause.is_retryable(), "{cause}"),
        other => panic!("{other:?}"),
    }
    let waiting = tokio::spawn({
        let locks = locks.clone();
        async move { locks.lock("k", LockOptions::new(LONG).wait(LONG)).await }
    });
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!waiting.is_finished());
    drop(other);
    let guard = waiting.await.unwrap().unwrap();
    assert!(guard.release().await.unwrap());
}

/// Calls behind one that waits have their own limits: whoever had no turn is told that nothing was done, and nothing is done
/// for him later. Meanwhile the runtime, which has a single thread here, goes on.
#[tokio::test]
async fn whoever_had_no_turn_in_time_has_changed_nothing() {
    let folder = Folder::new();
    let mut options = StoreOptions::default();
    (options.call_timeout, options.max_in_flight) = (Duration::from_secs(1), 8);
    let store = Arc::new(SqliteStore::open(folder.file(), &options).await.unwrap());
    let other = locked(&folder);
    let mut calls = tokio::task::JoinSet::new();
    for i in 0..40 {
        let store = store.clone();
        calls.spawn(async move {
            let attempt = lock(&format!("k{i}"), LONG);
            let started = tokio::time::Instant::now();
            let answer = store.acquire(&attempt).await;
            (attempt.sent_at(), started.elapsed(), answer)
        });
    }
    let mut turns = 0;
    while !calls.is_empty() {
        tokio::select! {
            biased;
            Some(call) = calls.join_next() => {
                let (sent_at, took, answer) = call.unwrap();
                let error = answer.unwrap_err();
                assert!(matches!(error.kind(), ErrorKind::Busy | ErrorKind::Overloaded), "{error}");
                assert_eq!((error.effect(), error.is_retryable()), (clinch::store::Effect::NotApplied, true));
                assert_eq!(sent_at, None);
                assert!(took < Duration::from_secs(5), "{took:?}");
            }
            () = tokio::time::sleep(Duration::from_millis(1)) => turns += 1,
        }
    }
    assert!(turns > 20, "the runtime stood still: {turns} turns");
    drop(other);
    granted(&*store, &lock("after", LONG)).await;
    assert_eq!(folder.count("places"), 1, "nothing came later");
}

/// A call that is dropped before its turn leaves nothing behind and is not noted as sent; one that was dropped later may.
#[tokio::test]
async fn a_dropped_call_that_had_no_turn_leaves_nothing() {
    let folder = Folder::new();
    let store = impatient(&folder, LONG).await;
    let other = locked(&folder);
    let attempt = lock("k", LONG);
    let limit = Duration::from_millis(50);
    assert!(tokio::time::timeout(limit, store.acquire(&attempt)).await.is_err());
    assert_eq!(attempt.sent_at(), None);
    drop(other);
    granted(&store, &lock("after", LONG)).await;
    assert_eq!(holder(&store, "k").await, None);
    assert!(store.release(&attempt).await.unwrap().conclusive, "nothing can come after this release");
}
