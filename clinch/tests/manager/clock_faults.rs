//! Clocks that jump, and servers that refuse to write.

use std::time::Duration;

use clinch::store::{Effect, ErrorKind};
use clinch::{Error, LockManager, LockOptions, Loss};
use clinch_testkit::server::RedisServer;
use tokio::time::timeout;

use crate::common::{LONG, TTL, eventually, take};

const HOUR: i64 = 3_600;

async fn on_a_movable_clock() -> (RedisServer, LockManager) {
    let server = RedisServer::builder().movable_clock(true).start();
    let manager = LockManager::connect(&server.url()).await.unwrap();
    (server, manager)
}

/// Fault: 16
/// Proves: B2
/// The server's clock jumps an hour ahead: the lock is gone and another can take it, which is what cannot be helped. The
/// holder sees it at its next renewal, and the fence of the next one is higher.
#[tokio::test]
async fn a_server_clock_that_jumps_ahead_is_seen_at_the_next_renewal() {
    let (server, locks) = on_a_movable_clock().await;
    let options = LockOptions::new(TTL).renew_every(Duration::from_millis(50)).fenced();
    let guard = locks.lock("k", options).await.unwrap();
    let limit = locks.limit("export", 1).unwrap();
    let options = LockOptions::new(TTL).renew_every(Duration::from_millis(50));
    let permit = limit.acquire(options).await.unwrap();
    server.move_clock(HOUR);
    assert_eq!(timeout(LONG, guard.lost()).await.unwrap(), Loss::TakenOver);
    assert_eq!(timeout(LONG, permit.lost()).await.unwrap(), Loss::TakenOver);
    let other = LockManager::connect(&server.url()).await.unwrap();
    let next = other.lock("k", LockOptions::new(TTL).fenced()).await.unwrap();
    assert!(next.fence() > guard.fence());
    assert!(!guard.release().await.unwrap(), "and takes nothing from the next one");
    assert!(next.is_valid() && next.release().await.unwrap());
    assert!(other.limit("export", 1).unwrap().try_acquire(TTL).await.unwrap().is_some());
}

/// Fault: 16
/// A lease that is not renewed is not seen to be lost, but its holder stops trusting it at the end of its validity, and a
/// client whose own machine slept past that sees it at its first look, by the clock that does not stop
/// (a test of fault 9 stops a client for real).
#[tokio::test]
async fn without_renewal_validity_ends_by_the_clients_own_clock() {
    let (server, locks) = on_a_movable_clock().await;
    let guard = locks.lock("k", Duration::from_secs(2)).await.unwrap();
    server.move_clock(HOUR);
    // At the end of its validity, or sooner if it was looked up meanwhile.
    let loss = timeout(LONG, guard.lost()).await.unwrap();
    assert!(matches!(loss, Loss::Expired | Loss::TakenOver), "{loss:?}");
    assert!(!guard.is_valid());
}

/// Fault: 17
/// The server's clock jumps an hour back: a lease of ten seconds lasts an hour more, which is what cannot be helped.
/// Whoever waits is told the time left, and force-release ends it. Fences still rise, as long as their counter is there.
#[tokio::test]
async fn a_server_clock_that_jumps_back_keeps_a_dead_lease_until_it_is_forced() {
    let (server, dying) = on_a_movable_clock().await;
    let first = dying.lock("k", LockOptions::new(Duration::from_secs(10)).fenced()).await.unwrap();
    let fence = first.fence();
    std::mem::forget(first);
    server.move_clock(-HOUR);
    let other = LockManager::connect(&server.url()).await.unwrap();
    let Err(Error::LockNotAcquired { denied, .. }) = other.lock("k", TTL).await else { panic!("it is held") };
    let left = denied.retry_after.unwrap();
    println!("a lease of 10 s has {left:?} left");
    assert!(left > Duration::from_secs(3_500));
    let holder = other.inspect("k").await.unwrap().remove(0);
    assert!(other.force_release(&holder).await.unwrap());
    let next = other.lock("k", LockOptions::new(TTL).fenced()).await.unwrap();
    assert!(next.fence() > fence);
}

/// Fault: 21
/// NOREPLICAS: the server has too few replicas to write. Not applied, and worth another try.
#[tokio::test]
async fn too_few_replicas_is_not_applied_and_retryable() {
    let server = RedisServer::start();
    let locks = LockManager::connect(&server.url()).await.unwrap();
    let held = take(&locks, "held").await;
    server.config_set("min-replicas-to-write", "1");
    let limit = locks.limit("export", 3).unwrap();
    let fair = LockOptions::new(TTL).fair();
    for refused in [
        locks.try_lock("k", TTL).await,
        limit.try_acquire(TTL).await,
        locks.try_lock("k", LockOptions::new(TTL).shared()).await,
        locks.try_lock_all(["a", "b"], LockOptions::new(TTL).fenced()).await,
        locks.try_lock("k", fair).await,
    ] {
        let Err(Error::Engine { cause, .. }) = refused else { panic!("{refused:?}") };
        assert_eq!((cause.kind(), cause.effect()), (ErrorKind::Refused, Effect::NotApplied), "{cause}");
        assert!(cause.is_retryable() && cause.to_string().contains("NOREPLICAS"), "{cause}");
    }
    server.config_set("min-replicas-to-write", "0");
    assert_eq!(server.keys("*"), ["clinch:lock:held"], "nothing was half done");
    assert!(locks.try_lock("k", TTL).await.unwrap().is_some());
    assert!(held.release().await.unwrap());
}

/// Fault: 27
/// MISCONF: the server cannot write its disk and refuses. An acquire is not applied; renewals are refused as well, and a
/// holder that is not renewed in time counts its lease as lost.
#[tokio::test]
async fn a_server_that_cannot_save_refuses_and_the_lease_is_lost_in_time() {
    let server = RedisServer::start();
    let locks = LockManager::connect(&server.url()).await.unwrap();
    let ttl = Duration::from_millis(900);
    let held = locks.lock("held", LockOptions::new(ttl).renew()).await.unwrap();
    // A folder that is not there any more cannot be written.
    let folder = std::env::temp_dir().join(format!("clinch-misconf-{}", std::process::id()));
    std::fs::create_dir(&folder).unwrap();
    server.config_set("dir", folder.to_str().unwrap());
    std::fs::remove_dir(&folder).unwrap();
    server.config_set("save", "3600 1");
    server.command(&["SET", "dirty", "1"]);
    server.command(&["BGSAVE"]);
    eventually("the save has failed", || {
        server.info("persistence").get("rdb_last_bgsave_status").map(String::as_str) == Some("err")
    })
    .await;
    let Err(Error::Engine { cause, .. }) = locks.try_lock("k", TTL).await else { panic!("it cannot write") };
    assert_eq!((cause.kind(), cause.effect()), (ErrorKind::Refused, Effect::NotApplied), "{cause}");
    assert!(cause.is_retryable() && cause.to_string().contains("MISCONF"), "{cause}");
    assert_eq!(timeout(LONG, held.lost()).await.unwrap(), Loss::Expired);
    server.config_set("save", "");
    assert!(locks.try_lock("k", TTL).await.unwrap().is_some());
}
