//! Near misses, and what is lost.

use std::time::Duration;

use clinch::telemetry as t;
use clinch::{LockManager, LockOptions, Loss};
use clinch_testkit::server::RedisServer;
use tokio::time::{sleep, timeout};

use crate::common::{LONG, Ledger, TTL, eventually, table};

/// How much of its validity a guard had left is a ratio, whatever its TTL.
///
/// Proves: O1
#[tokio::test(start_paused = true)]
async fn what_is_left_of_the_validity_at_the_release_is_measured() {
    let ledger = Ledger::new();
    let locks = LockManager::memory();
    for (seconds, key) in [(3, "a"), (15, "b"), (59, "c")] {
        let guard = locks.lock(key, TTL).await.unwrap();
        sleep(Duration::from_secs(seconds)).await;
        guard.release().await.unwrap();
    }
    let left = ledger.values(t::VALIDITY_LEFT_RATIO, &[("guard", "lock")]);
    assert_eq!(left, [0.95, 0.75, 1.0 / 60.0]);
}

/// A guard that nobody gives up is found once its lease has run out, and counted once.
///
/// Proves: O1
#[tokio::test(start_paused = true)]
async fn a_guard_that_outlives_its_lease_is_counted_once() {
    let ledger = Ledger::new();
    let locks = LockManager::memory();
    let leaked = locks.lock("a", LockOptions::new(TTL).named("leaked")).await.unwrap();
    let fine = locks.lock("b", LockOptions::new(TTL).renew().named("renewed")).await.unwrap();
    sleep(TTL - Duration::from_secs(1)).await;
    assert_eq!(ledger.sum(t::GUARDS_LEAKED, &[]), 0.0);
    sleep(TTL).await;
    // Nobody looked at it, and nobody wants its key.
    assert_eq!(ledger.by(t::GUARDS_LEAKED, "guard", &[]), table([("leaked", 1.0)]));
    assert_eq!(ledger.by(t::LEASES_LOST, "cause", &[]), table([("expired", 1.0)]));
    assert_eq!(ledger.sum(t::GUARDS_HELD, &[]), 2.0);
    // Somebody else takes the key, it is looked at, and given up: that is still one.
    let other = locks.lock("a", TTL).await.unwrap();
    assert_eq!(leaked.lost().await, Loss::Expired);
    sleep(TTL / 2).await;
    drop((leaked, other));
    assert!(fine.release().await.unwrap());
    eventually("all is given back", || ledger.sum(t::RELEASES, &[]) == 3.0).await;
    assert_eq!(ledger.by(t::GUARDS_LEAKED, "guard", &[]), table([("leaked", 1.0)]));
    assert_eq!(ledger.by(t::RELEASES, "outcome", &[("guard", "leaked")]), table([("expired", 1.0)]));
    assert!(ledger.sum(t::RENEWALS, &[("guard", "renewed"), ("outcome", "extended")]) >= 5.0);
}

/// A guard whose key somebody else takes meanwhile is found at that moment.
#[tokio::test(start_paused = true)]
async fn a_guard_that_outlives_its_lease_is_found_by_who_takes_its_key() {
    let ledger = Ledger::new();
    let locks = LockManager::memory();
    let short = Duration::from_millis(100);
    let leaked = locks.lock("a", LockOptions::new(short).named("leaked")).await.unwrap();
    sleep(short).await;
    let _other = locks.lock("a", TTL).await.unwrap();
    assert_eq!(ledger.by(t::GUARDS_LEAKED, "guard", &[]), table([("leaked", 1.0)]));
    drop(leaked);
}

/// A holder that gives its key back without telling anybody (another client's plain lock) is found by a poll.
///
/// Proves: O1
#[tokio::test]
async fn a_wake_up_that_did_not_come_is_counted() {
    let ledger = Ledger::new();
    let server = RedisServer::start();
    let locks = LockManager::builder().call_timeout(LONG).connect(&server.url()).await.unwrap();
    let waits = LockOptions::new(TTL).wait(LONG).named("orders");
    let asked = || ledger.sum(t::ENGINE_CALLS, &[("operation", "acquire")]);
    server.command(&["SET", "clinch:lock:a", "somebody's", "PX", "60000"]);
    let silent = async {
        // It has asked, subscribed, asked again, and polls.
        eventually("somebody waits", || asked() >= 4.0).await;
        assert_eq!(ledger.sum(t::WAITERS, &[("guard", "orders")]), 1.0);
        server.command(&["DEL", "clinch:lock:a"]);
    };
    let (guard, ()) = tokio::join!(locks.lock("a", waits.clone()), silent);
    assert_eq!(ledger.sum(t::WAKEUPS_MISSED, &[("guard", "orders")]), 1.0);

    // One that tells is not.
    let other = LockManager::builder().call_timeout(LONG).connect(&server.url()).await.unwrap();
    let slow = waits.retry_interval(TTL);
    let before = asked();
    let told = async {
        // It has asked, subscribed, and asked again.
        eventually("somebody listens", || asked() >= before + 2.0).await;
        guard.unwrap().release().await.unwrap();
    };
    let (next, ()) = tokio::join!(timeout(LONG, other.lock("a", slow)), told);
    assert!(next.unwrap().unwrap().release().await.unwrap());
    assert_eq!(ledger.sum(t::WAKEUPS_MISSED, &[]), 1.0);
}

/// Why a lease was lost, and why its release failed, are told apart.
///
/// Proves: O1
#[tokio::test]
async fn losses_and_failed_releases_have_their_causes() {
    let ledger = Ledger::new();
    let server = RedisServer::start();
    let locks = LockManager::builder().call_timeout(LONG).connect(&server.url()).await.unwrap();

    // Somebody ended it by force.
    let revoked = locks.lock("a", LockOptions::new(TTL).named("revoked")).await.unwrap();
    let holder = locks.inspect("a").await.unwrap().remove(0);
    assert!(locks.force_release(&holder).await.unwrap());
    assert!(!revoked.release().await.unwrap());
    // The engine forgot it, which the release finds.
    let forgotten = locks.lock("a", LockOptions::new(TTL).named("forgotten")).await.unwrap();
    server.command(&["DEL", "clinch:lock:a"]);
    assert!(!forgotten.release().await.unwrap());
    // The engine forgot it, which a renewal finds.
    let every = Duration::from_millis(20);
    let renewed = locks.lock("a", LockOptions::new(TTL).renew_every(every).named("renewed")).await.unwrap();
    server.command(&["SET", "clinch:lock:a", "somebody's", "PX", "60000"]);
    assert_eq!(timeout(LONG, renewed.lost()).await.unwrap(), Loss::TakenOver);
    assert!(!renewed.release().await.unwrap());
    // It ran out under its guard.
    let short = Duration::from_millis(1_500);
    let late = locks.lock("b", LockOptions::new(short).named("late")).await.unwrap();
    eventually("it is gone", || !server.exists("clinch:lock:b")).await;
    assert!(!late.release().await.unwrap());

    let lost = |guard| ledger.by(t::LEASES_LOST, "cause", &[("guard", guard)]);
    let released = |guard| ledger.by(t::RELEASES, "outcome", &[("guard", guard)]);
    assert_eq!(
        (lost("revoked"), released("revoked")),
        (table([("revoked", 1.0)]), table([("revoked", 1.0)]))
    );
    assert_eq!((lost("forgotten"), released("forgotten")), (table([]), table([("taken_over", 1.0)])));
    assert_eq!(lost("renewed"), table([("taken_over", 1.0)]));
    assert_eq!(released("renewed"), table([("taken_over", 1.0)]));
    assert_eq!(ledger.sum(t::RENEWALS, &[("guard", "renewed"), ("outcome", "lost")]), 1.0);
    assert_eq!((lost("late"), released("late")), (table([("expired", 1.0)]), table([("expired", 1.0)])));
    assert_eq!(ledger.sum(t::GUARDS_LEAKED, &[("guard", "late")]), 1.0);
}
