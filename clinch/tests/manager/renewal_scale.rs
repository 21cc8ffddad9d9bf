//! Ten thousand leases on one manager.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use clinch::lease::Attempt;
use clinch::store::{Capabilities, Renewal, Store, StoreAnswers, StoreFuture};
use clinch::stores::memory::MemoryStore;
use clinch::{LockGuard, LockManager, LockOptions, Loss};
use futures_util::future::join_all;
use tokio::time::{Instant, sleep};

use crate::common::Bench;

const MANY: usize = 10_000;

/// A memory store that renews in batches, counts its calls, and never answers a call that is about a slow key.
#[derive(Debug, Default)]
struct Counting {
    inner: MemoryStore,
    calls: AtomicUsize,
    renewed: AtomicUsize,
}

impl Counting {
    async fn answer(&self, leases: &[Arc<Attempt>]) {
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.renewed.fetch_add(leases.len(), Ordering::Relaxed);
        if leases.iter().any(|lease| lease.claims()[0].on().key.as_str().starts_with("slow")) {
            std::future::pending::<()>().await;
        }
    }
}

impl Store for Counting {
    clinch_testkit::passes_on!(inner: acquire, release, wakeups, revocations, inspect, list, revoke, ping);

    fn capabilities(&self) -> Capabilities {
        let mut mine = self.inner.capabilities();
        mine.batches = true;
        mine
    }

    fn renew<'a>(&'a self, lease: &'a Attempt) -> StoreFuture<'a, Renewal> {
        Box::pin(async move {
            self.calls.fetch_add(1, Ordering::Relaxed);
            self.renewed.fetch_add(1, Ordering::Relaxed);
            if lease.claims()[0].on().key.as_str().starts_with("slow") {
                std::future::pending::<()>().await;
            }
            self.inner.renew(lease).await
        })
    }

    fn renew_each<'a>(&'a self, leases: &'a [Arc<Attempt>]) -> StoreAnswers<'a, Renewal> {
        Box::pin(async move {
            self.answer(leases).await;
            self.inner.renew_each(leases).await
        })
    }
}

async fn take(locks: &LockManager, name: &str, count: usize, options: &LockOptions) -> Vec<LockGuard> {
    let taking = (0..count).map(|i| locks.lock(format!("{name}{i}"), options.clone()));
    join_all(taking).await.into_iter().map(Result::unwrap).collect()
}

/// Proves: B3
/// Ten thousand leases are renewed in few calls, and none is late.
#[tokio::test(start_paused = true)]
async fn ten_thousand_leases_are_renewed_in_few_calls_and_none_is_late() {
    let store = Arc::new(Counting::default());
    let locks = LockManager::builder().store(store.clone()).build().unwrap();
    let ttl = Duration::from_secs(30);
    let options = LockOptions::new(ttl).renew();
    let mut guards = Vec::new();
    // Not all at the same moment: what is due soon goes along.
    for part in 0..100 {
        guards.extend(take(&locks, &format!("k{part}:"), MANY / 100, &options).await);
        sleep(Duration::from_millis(50)).await;
    }
    let began = Instant::now();
    while began.elapsed() < ttl * 3 {
        sleep(Duration::from_secs(1)).await;
        // A renewal every third of the TTL: nobody ever has less than a half.
        assert!(guards.iter().all(|guard| guard.remaining() > ttl / 2));
    }
    let (calls, renewed) = (store.calls.load(Ordering::Relaxed), store.renewed.load(Ordering::Relaxed));
    println!("{MANY} leases: {renewed} renewals in {calls} calls");
    assert!(renewed >= MANY * 8 && calls * 50 <= renewed, "{renewed} renewals in {calls} calls");
}

/// Proves: B3
/// Slow keys, whose renewals never come back, delay no other lease: whoever was in a call with one of them is renewed alone.
#[tokio::test(start_paused = true)]
async fn slow_keys_delay_no_other() {
    let store = Arc::new(Counting::default());
    let locks = LockManager::builder().store(store).build().unwrap();
    let ttl = Duration::from_secs(6);
    let options = LockOptions::new(ttl).renew();
    let slow = take(&locks, "slow", 5, &options).await;
    let guards = take(&locks, "k", 1_000, &options).await;
    sleep(ttl * 3).await;
    assert!(guards.iter().all(|guard| guard.is_valid()));
    for guard in &slow {
        assert_eq!(guard.lost().await, Loss::Expired);
    }
}

/// Proves: B3
/// On Redis: thousands of leases live on far past their TTL, at a fraction of a command each.
#[tokio::test]
async fn thousands_of_leases_are_renewed_on_redis() {
    let bench = Bench::start().await;
    let locks = bench.patient().await;
    let (count, ttl) = (2_000, Duration::from_secs(5));
    let guards = take(&locks, "k", count, &LockOptions::new(ttl).renew()).await;
    bench.proxy.reset_counts();
    // The time that passes is what is tested.
    sleep(ttl * 2).await;
    assert!(guards.iter().all(|guard| guard.is_valid()));
    let calls = bench.proxy.commands_named("EVALSHA");
    println!("{count} leases over {:?}: {calls} calls", ttl * 2);
    assert!(calls > 0 && calls < u64::try_from(count).unwrap(), "{calls}");
}
