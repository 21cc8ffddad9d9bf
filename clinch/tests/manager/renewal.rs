//! Honest time, and keeping a lease alive.

use std::sync::Arc;
use std::time::Duration;

use clinch::stores::memory::MemoryStore;
use clinch::{LockManager, LockOptions, Loss, Sources};
use clinch_testkit::proxy::{Action, Rule};
use tokio::time::{Instant, advance, sleep, timeout};

use crate::common::{Bench, LONG, Step, TTL, eventually, take};

fn on_memory() -> (LockManager, MemoryStore) {
    let store = MemoryStore::new();
    let builder = LockManager::builder().sources(Sources::seeded(7));
    (builder.store(Arc::new(store.clone())).build().unwrap(), store)
}

/// Proves: B1
/// `remaining`, `is_valid` and `lost` agree, and `lost` fires no later than the end of the validity.
#[tokio::test(start_paused = true)]
async fn a_guard_tells_the_truth_about_its_time() {
    let (manager, _store) = on_memory();
    let started = Instant::now();
    let guard = manager.try_lock("k", Duration::from_secs(10)).await.unwrap().unwrap();
    assert_eq!(guard.remaining(), Duration::from_secs(10));
    advance(Duration::from_secs(4)).await;
    assert_eq!(guard.remaining(), Duration::from_secs(6));
    assert!(guard.is_valid());
    assert_eq!(guard.lost().await, Loss::Expired);
    assert!(started.elapsed() <= Duration::from_secs(10), "{:?}", started.elapsed());
    assert!(started.elapsed() >= Duration::from_millis(9_990));
    assert!(!guard.is_valid());
    assert_eq!(guard.remaining(), Duration::ZERO);
    let lease = guard.lease();
    drop(guard);
    assert_ne!(lease.lost().await, Loss::TakenOver, "a look outlives its guard");
}

/// Proves: B1
/// Validity counts from before the first byte was sent, minus drift: never longer than the server's own count.
#[tokio::test]
async fn validity_ends_before_the_servers_expiry() {
    let bench = Bench::start().await;
    let manager = bench.manager().await;
    let delay = Duration::from_millis(200);
    bench.strike(Step::Acquire, Action::DelayReply(delay));
    let ttl = Duration::from_secs(20);
    let guard = manager.try_lock("k", ttl).await.unwrap().unwrap();
    // The server first: whatever passes between the two looks counts for the guard only.
    let server = Duration::from_millis(bench.server.pttl("clinch:lock:k").try_into().unwrap());
    let remaining = guard.remaining();
    assert!(remaining <= server, "{remaining:?} against {server:?}");
    assert!(remaining <= ttl - delay - ttl / 100, "drift is allowed for: {remaining:?}");
}

/// Proves: B1
/// `lost()` fires no later than the end of the validity even while a renewal hangs.
#[tokio::test]
async fn lost_fires_in_time_while_a_renewal_hangs() {
    let bench = Bench::start().await;
    let manager = bench.manager().await;
    let ttl = Duration::from_secs(2);
    bench.proxy.add(Rule::new(Action::HoldRequest).matching(bench.is(Step::Renew)));
    let guard = manager.try_lock("k", LockOptions::new(ttl).renew()).await.unwrap().unwrap();
    let (loss, ()) = tokio::join!(guard.lost(), bench.proxy.wait_until_held());
    // (That it fires before the validity ends is shown on a paused clock, where a busy machine plays no part.)
    assert_eq!(loss, Loss::Expired);
    // The hanging renewal is let go and even succeeds; a lost lease stays lost.
    bench.proxy.release_held();
    eventually("the renewal was carried out", || bench.server.command_calls().contains_key("get")).await;
    assert!(!guard.is_valid());
}

/// Proves: B3
/// A renewed lease outlives its TTL many times over, at a third of the TTL, and ends with its guard.
#[tokio::test(start_paused = true)]
async fn a_renewed_lease_lives_as_long_as_its_guard() {
    let (manager, store) = on_memory();
    let guard =
        manager.try_lock("k", LockOptions::new(Duration::from_secs(3)).renew()).await.unwrap().unwrap();
    for _ in 0..100 {
        sleep(Duration::from_secs(1)).await;
        assert!(guard.is_valid());
        assert!(guard.remaining() > Duration::from_millis(1_900), "{:?}", guard.remaining());
    }
    assert!(guard.release().await.unwrap());
    assert!(store.is_empty());
}

/// Proves: B3
/// There is a cap on the total: after it the lease is left to run out.
#[tokio::test(start_paused = true)]
async fn renewal_has_a_cap() {
    let (manager, _store) = on_memory();
    let options = LockOptions::new(Duration::from_secs(3)).renew_for(Duration::from_secs(10));
    let started = Instant::now();
    let guard = manager.try_lock("k", options).await.unwrap().unwrap();
    assert_eq!(guard.lost().await, Loss::Expired);
    let total = started.elapsed();
    assert!(total > Duration::from_secs(10) && total <= Duration::from_secs(13), "{total:?}");
}

/// Proves: B3
/// Renewal stops the moment the guard is gone: none goes out after the release, and none revives the key.
#[tokio::test]
async fn renewal_stops_with_the_guard_and_is_token_checked() {
    let bench = Bench::start().await;
    let manager = bench.manager().await;
    let every = Duration::from_millis(30);
    let guard = manager.try_lock("k", LockOptions::new(TTL).renew_every(every)).await.unwrap().unwrap();
    bench.seen(Step::Renew).await;
    assert!(guard.release().await.unwrap());
    // A renewal that was under way may still be counted; after the shutdown there is none.
    assert!(manager.shutdown(LONG).await.is_clean());
    bench.proxy.reset_counts();
    assert_eq!(bench.server.keys("*"), Vec::<String>::new());

    // Taken over by somebody else: the renewal does not touch it, and the guard learns it.
    let manager = bench.manager().await;
    let guard = manager.try_lock("k", LockOptions::new(TTL).renew_every(every)).await.unwrap().unwrap();
    bench.server.command(&["SET", "clinch:lock:k", "somebody else", "PX", "5000"]);
    assert_eq!(timeout(LONG, guard.lost()).await.unwrap(), Loss::TakenOver);
    assert!(bench.server.pttl("clinch:lock:k") <= 5_000, "not extended");
    assert!(!guard.release().await.unwrap());
    assert_eq!(bench.value("k").as_deref(), Some("somebody else"));
}

/// Proves: B3
/// Renewals that fail are tried again in time: the lease survives an outage shorter than its validity.
#[tokio::test]
async fn a_lease_survives_an_outage_shorter_than_its_validity() {
    let bench = Bench::start().await;
    let manager = bench.manager().await;
    let guard = manager
        .try_lock("k", LockOptions::new(Duration::from_secs(10)).renew_every(Duration::from_millis(100)))
        .await;
    let guard = guard.unwrap().unwrap();
    bench.proxy.refuse(true).await;
    bench.proxy.cut_all().await;
    let opened = bench.proxy.connections_opened();
    sleep(Duration::from_millis(300)).await;
    bench.proxy.refuse(false).await;
    bench.proxy.reset_counts();
    bench.seen(Step::Renew).await;
    bench.seen(Step::Renew).await;
    assert!(bench.proxy.connections_opened() > opened);
    assert!(guard.is_valid());
    assert!(guard.release().await.unwrap());
}

/// Proves: T2
/// Force-release ends exactly the holder that was seen, and its guard learns it, in another manager too.
#[tokio::test]
async fn a_force_release_reaches_the_holder_and_spares_its_successor() {
    let bench = Bench::start().await;
    let (manager, operator) = (bench.manager().await, bench.outsider().await);
    let guard = take(&manager, "k").await;
    let seen = operator.inspect("k").await.unwrap().remove(0);
    let lost = tokio::spawn({
        let lease = guard.lease();
        async move { lease.lost().await }
    });
    bench.proxy.wait_for(|command| command.name == "SUBSCRIBE").await;
    eventually("the subscription is confirmed", || {
        let channels = bench.server.command(&["PUBSUB", "NUMSUB", "clinch:revoked"]);
        matches!(channels, clinch_testkit::server::Reply::Array(ref a) if a[1].int() == Some(1))
    })
    .await;
    assert!(operator.force_release(&seen).await.unwrap());
    assert_eq!(timeout(LONG, lost).await.unwrap().unwrap(), Loss::Revoked);
    assert!(!guard.is_valid());

    let successor = take(&operator, "k").await;
    assert!(!operator.force_release(&seen).await.unwrap(), "that one no longer has it");
    assert!(!guard.release().await.unwrap());
    assert!(successor.is_valid());
    assert!(successor.release().await.unwrap());
}
