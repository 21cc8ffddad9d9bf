//! What stores on one file tell each other, and what of it stays in the file.

use std::time::{Duration, Instant};

use clinch::lease::{Attempt, Claim, Patience};
use clinch::store::{Notice, Store};
use tokio::time::timeout;

use crate::common::{Folder, LONG, denied, granted, key, lock, on, token};
use crate::kid::Kid;

/// Waits for what happens in another thread or process.
async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < LONG, "{what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// A release that nobody waits for writes no message; one that another store waits for writes one, and knows how many it woke.
#[tokio::test]
async fn messages_are_only_for_those_who_listen() {
    let folder = Folder::new();
    let (store, other, third) = (folder.store().await, folder.store().await, folder.store().await);
    let lease = lock("k", LONG);
    granted(&store, &lease).await;
    assert_eq!(store.release(&lease).await.unwrap().woken, Some(0));
    assert_eq!(folder.count("events"), 0);

    let mut streams =
        [other.wakeups(&on("k"), None), third.wakeups(&on("k"), None), store.wakeups(&on("k"), None)];
    for stream in &mut streams {
        timeout(LONG, stream.next()).await.unwrap();
    }
    granted(&store, &lease).await;
    assert_eq!(store.release(&lease).await.unwrap().woken, Some(3));
    for stream in &mut streams {
        timeout(LONG, stream.next()).await.unwrap();
    }
    assert_eq!(folder.count("events"), 1);
    granted(&store, &lock("unheard", LONG)).await;
    drop(streams);
    eventually("listeners are forgotten", || folder.count("listeners") == 0).await;
    granted(&store, &lease).await;
    assert_eq!(store.release(&lease).await.unwrap().woken, Some(0));
    assert_eq!(folder.count("events"), 1);
}

/// The turn in a queue is told to the one whose turn it is, in another store, and counts as one woken.
#[tokio::test]
async fn an_heir_in_another_store_is_told() {
    let folder = Folder::new();
    let (store, other) = (folder.store().await, folder.store().await);
    let queued = || {
        let patience = Patience::Queue { until: tokio::time::Instant::now() + LONG, confirm: LONG };
        Attempt::one(token(), Claim::exclusive(key("k"), LONG)).with_patience(patience)
    };
    let (holder, heir, next) = (queued(), queued(), queued());
    granted(&store, &holder).await;
    denied(&other, &heir).await;
    denied(&other, &next).await;
    let mut turn = other.wakeups(&on("k"), Some(heir.token()));
    let mut not_yet = other.wakeups(&on("k"), Some(next.token()));
    timeout(LONG, turn.next()).await.unwrap();
    timeout(LONG, not_yet.next()).await.unwrap();
    assert_eq!(store.release(&holder).await.unwrap().woken, Some(1));
    timeout(LONG, turn.next()).await.unwrap();
    assert!(timeout(Duration::from_millis(100), not_yet.next()).await.is_err());
    granted(&other, &heir).await;
}

/// A process that listened and was killed is forgotten after a while; until then it costs a message, and nothing is missed by
/// the others.
#[tokio::test]
async fn a_dead_listener_is_forgotten() {
    let folder = Folder::new();
    let store = folder.store().await;
    let mut kid = Kid::new("listens", &folder.file());
    assert_eq!(kid.hear(), "listens");
    kid.kill();
    assert_eq!(folder.count("listeners WHERE key = 'lock:k'"), 1);
    let lease = lock("k", LONG);
    granted(&store, &lease).await;
    assert_eq!(store.release(&lease).await.unwrap().woken, Some(1), "nobody knows of its death yet");
    // Half a minute later, as the file has it.
    folder
        .look()
        .execute_batch("UPDATE listeners SET until = until - 31000000; UPDATE machine SET swept = 0")
        .unwrap();
    granted(&store, &lease).await;
    assert_eq!(store.release(&lease).await.unwrap().woken, Some(0));
    eventually("it is swept", || folder.count("listeners WHERE key = 'lock:k'") == 0).await;
}

/// A store whose messages were thrown away before it read them, because it was stopped for long, is told that it may have missed
/// something.
#[tokio::test]
async fn whoever_missed_messages_is_told_so() {
    let folder = Folder::new();
    let (store, other) = (folder.store().await, folder.store().await);
    let mut revocations = other.revocations();
    assert_eq!(timeout(LONG, revocations.next()).await.unwrap(), Some(Notice::Listening));
    let mut stream = other.wakeups(&on("waited for"), None);
    timeout(LONG, stream.next()).await.unwrap();
    let lease = lock("k", LONG);
    granted(&store, &lease).await;
    // In one step, which it cannot come in between of: two messages, and the first one swept.
    folder
        .look()
        .execute_batch(
            "BEGIN IMMEDIATE;
             INSERT INTO events (id, at, store, kind, prefix, key, token)
                SELECT coalesce(max(id), 0) + 2, 0, 0, 0, 'clinch', 'lock:other', '' FROM events;
             COMMIT",
        )
        .unwrap();
    timeout(LONG, stream.next()).await.unwrap();
    assert_eq!(timeout(LONG, revocations.next()).await.unwrap(), Some(Notice::Listening));
}

/// Revocations are heard across processes' stores also when nobody waits for any key, and with nothing but polling seldom.
#[tokio::test]
async fn a_revocation_elsewhere_ends_a_guard_here() {
    let folder = Folder::new();
    let url = format!("sqlite:{}", folder.file().display());
    let (locks, other) = (
        clinch::LockManager::connect(&url).await.unwrap(),
        clinch::LockManager::connect(&url).await.unwrap(),
    );
    let guard = locks.lock("k", LONG).await.unwrap();
    let holder = other.inspect("k").await.unwrap().remove(0);
    assert!(other.force_release(&holder).await.unwrap());
    // Told, or looked up because it was taken before anything was heard.
    let loss = timeout(LONG, guard.lost()).await.unwrap();
    assert!(matches!(loss, clinch::Loss::Revoked | clinch::Loss::TakenOver), "{loss:?}");
}
