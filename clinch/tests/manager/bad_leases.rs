//! Bad input to limits, groups, scopes, fences and queues: each a clear error, and nothing sent.

use std::sync::Arc;
use std::time::Duration;

use clinch::lease::Attempt;
use clinch::store::{Capabilities, Store, StoreFuture, Verdict};
use clinch::stores::memory::MemoryStore;
use clinch::{Error, LockManager, LockOptions};

use crate::common::{Bench, LONG, TTL};

/// A store that can do nothing but plain locks.
#[derive(Debug)]
struct Plain(MemoryStore);

impl Store for Plain {
    clinch_testkit::passes_on!(0: renew, release, wakeups, revocations, inspect, list, revoke, ping);

    fn capabilities(&self) -> Capabilities {
        Capabilities::default()
    }

    fn acquire<'a>(&'a self, attempt: &'a Attempt) -> StoreFuture<'a, Verdict> {
        assert_eq!(attempt.claims().len(), 1, "what it cannot do is not asked of it");
        self.0.acquire(attempt)
    }
}

#[track_caller]
fn refused<T: std::fmt::Debug>(answer: Result<T, Error>, field: &str) {
    match answer {
        Err(error @ Error::InvalidOption { field: named, .. }) => {
            assert_eq!(named, field, "{error}");
            assert!(error.to_string().contains("accepted"), "{error}");
            assert!(!error.is_retryable());
        }
        other => panic!("{field}: {other:?}"),
    }
}

/// Proves: T3, T5, B7
#[tokio::test]
async fn what_cannot_be_is_refused_before_anything_is_sent() {
    let bench = Bench::start().await;
    let locks = bench.manager().await;
    bench.proxy.reset_counts();
    let plain = || LockOptions::new(TTL);
    refused(locks.limit("export", 0), "limit");
    assert!(matches!(locks.limit("", 1), Err(Error::InvalidKey(_))));
    let limit = locks.limit("export", 1).unwrap();
    refused(locks.lock_all(["a", "b", "a"], TTL).await, "keys");
    refused(locks.lock_all(Vec::<&str>::new(), TTL).await, "keys");
    refused(locks.lock_all((0..65).map(|i| format!("k{i}")), TTL).await, "keys");
    // Limits count too, and may not be named twice either.
    refused(locks.lock_all((0..64).map(|i| format!("k{i}")), plain().limited_by(&limit, TTL)).await, "keys");
    refused(locks.lock("a", plain().limited_by(&limit, TTL).limited_by(&limit, TTL)).await, "keys");
    refused(locks.lock("a", plain().limited_by(&limit, Duration::ZERO)).await, "permit_ttl");
    let renewed = plain().limited_by(&limit, Duration::from_secs(1)).renew_every(Duration::from_secs(10));
    refused(locks.lock("a", renewed).await, "renew_every");
    refused(locks.lock("a", plain().shared().fenced()).await, "fenced");
    refused(locks.lock("a", plain().shared().fair()).await, "fair");
    refused(locks.lock("a", plain().fair_within(Duration::ZERO)).await, "fair_within");
    refused(locks.lock("a", plain().fair_within(LONG * 10)).await, "fair_within");
    refused(locks.lock_all(["a", "b"], plain().fair()).await, "fair");
    refused(limit.acquire(plain().shared()).await, "shared");
    refused(limit.acquire(plain().fair()).await, "fair");
    refused(limit.acquire(plain().fenced()).await, "fenced");
    refused(limit.acquire(plain().limited_by(&limit, TTL)).await, "limited_by");
    refused(locks.attempt_each([("a", TTL), ("a", TTL)]).await, "group");
    refused(locks.attempt_each([("a", plain().wait(TTL))]).await, "wait");
    refused(locks.attempt_each([("a", plain()), ("b", plain().fair())]).await, "fair");
    assert_eq!(bench.proxy.lease_commands(), 0);
    assert_eq!(bench.keys_left(), 0);
}

/// Proves: B2, B7
/// What an engine has not is refused in words, by the manager, before the engine is asked.
#[tokio::test]
async fn what_an_engine_has_not_is_refused() {
    let store = Arc::new(Plain(MemoryStore::new()));
    let locks = LockManager::builder().store(store).build().unwrap();
    let plain = || LockOptions::new(TTL);
    refused(locks.lock("a", plain().fenced()).await, "fenced");
    refused(locks.lock("a", plain().shared()).await, "shared");
    refused(locks.lock("a", plain().fair()).await, "fair");
    refused(locks.lock_all(["a", "b"], TTL).await, "keys");
    let limit = locks.limit("export", 3).unwrap();
    refused(limit.acquire(TTL).await, "limit");
    refused(locks.lock("a", plain().limited_by(&limit, TTL)).await, "limit");
    // What it has works, waiting and passing included.
    let first = locks.lock("a", TTL).await.unwrap();
    let second = locks.lock("a", plain().wait(LONG));
    let (second, ()) = tokio::join!(second, async { drop(first) });
    assert!(second.unwrap().is_valid());
    assert_eq!(locks.attempt_each([("x", TTL), ("y", TTL)]).await.unwrap().len(), 2);
}
