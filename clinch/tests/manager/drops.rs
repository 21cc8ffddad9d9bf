//! Dropped futures, dropped guards, panics, ends of runtimes: nothing is left behind and nothing panics.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use clinch::stores::memory::MemoryStore;
use clinch::{Error, LockManager, LockOptions, Outcome};
use clinch_testkit::proxy::Action;
use clinch_testkit::server::RedisServer;
use rand::{RngExt, SeedableRng};
use tokio::runtime::Builder;
use tokio::time::timeout;

use crate::common::{Bench, LONG, Step, TTL, both, eventually, take, waiting};

/// Proves: B4
/// `drop(guard); try_lock()` never answers "held": the lease on its way out is waited for.
#[tokio::test(flavor = "multi_thread")]
async fn a_try_after_a_drop_is_never_denied_by_the_lease_on_its_way_out() {
    for (manager, _server) in both().await {
        for _ in 0..2_000 {
            let guard = take(&manager, "k").await;
            drop(guard);
        }
        take(&manager, "k").await.release().await.unwrap();
        assert!(manager.shutdown(LONG).await.is_clean());
    }
}

/// Proves: B4
/// 10,000 dropped guards leave no key behind after `shutdown`.
#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_dropped_guards_leave_no_key_behind() {
    let server = RedisServer::start();
    // A busy machine must not turn into time-outs.
    let patient = || LockManager::builder().call_timeout(LONG);
    let redis = patient().connect(&server.url()).await.unwrap();
    let store = MemoryStore::new();
    let memory = patient().store(Arc::new(store.clone())).build().unwrap();
    for manager in [redis, memory] {
        let tasks = (0..16).map(|task| {
            let manager = manager.clone();
            tokio::spawn(async move {
                for i in 0..625 {
                    drop(take(&manager, &format!("{task}:{i}")).await);
                }
            })
        });
        for task in tasks.collect::<Vec<_>>() {
            task.await.unwrap();
        }
        let left = manager.shutdown(LONG).await;
        assert!(left.is_clean(), "{left:?}");
    }
    assert_eq!(server.keys("*"), Vec::<String>::new());
    assert!(store.is_empty());
}

/// Proves: B4
/// 10,000 acquire futures dropped at random points leave no key behind after `shutdown`.
#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_acquires_dropped_at_random_points_leave_no_key_behind() {
    let server = RedisServer::start();
    // A busy machine must not turn into time-outs.
    let patient = || LockManager::builder().call_timeout(LONG);
    let redis = patient().connect(&server.url()).await.unwrap();
    let store = MemoryStore::new();
    let memory = patient().store(Arc::new(store.clone())).build().unwrap();
    for manager in [redis, memory] {
        let tasks = (0..16).map(|task| {
            let manager = manager.clone();
            tokio::spawn(async move {
                let mut random = rand::rngs::StdRng::seed_from_u64(task);
                let mut dropped = 0;
                for i in 0..625 {
                    // Few keys, so that some stand in line, some share a call and some ask themselves.
                    let (key, wait) = (format!("{}", i % 5), Duration::from_millis(5 * (i % 3)));
                    let acquire = manager.try_lock(key, waiting(TTL, wait));
                    // At most the time of a few round trips, so that every point is hit.
                    let patience = Duration::from_micros(random.random_range(0..1_500));
                    tokio::select! {
                        biased;
                        guard = acquire => drop(guard.unwrap()),
                        () = spin_for(patience) => dropped += 1,
                    }
                }
                dropped
            })
        });
        let mut dropped = 0;
        for task in tasks.collect::<Vec<_>>() {
            dropped += task.await.unwrap();
        }
        println!("{dropped} of 10,000 futures were dropped before their answer");
        let left = manager.shutdown(LONG).await;
        assert!(left.is_clean(), "{left:?}");
    }
    assert_eq!(server.keys("*"), Vec::<String>::new());
    assert!(store.is_empty());
}

/// Proves: B4
/// A release that was never polled gives back all the same, whichever kind of guard it is of.
#[tokio::test]
async fn a_release_dropped_before_its_first_poll_gives_back() {
    for (manager, _server) in both().await {
        drop(take(&manager, "k").await.release());
        let renewed = manager.try_lock("k", LockOptions::new(TTL).renew()).await.unwrap();
        drop(renewed.unwrap().release());
        manager
            .scope(async {
                let again = || LockOptions::new(TTL).reentrant();
                let outer = manager.try_lock("k", again()).await.unwrap().unwrap();
                let Outcome::Reentered(inner) = manager.attempt("k", again()).await.unwrap() else {
                    panic!("held by this scope")
                };
                drop(inner.release());
                assert!(outer.is_valid() && manager.inspect("k").await.unwrap().len() == 1);
                drop(outer.release());
            })
            .await;
        take(&manager, "k").await.release().await.unwrap();
        assert!(manager.shutdown(LONG).await.is_clean());
    }
}

/// As the future of an `async fn` does, instead of leaving a task to wait for ever.
#[tokio::test]
async fn a_release_polled_after_its_end_panics() {
    for (manager, _server) in both().await {
        let mut release = Box::pin(take(&manager, "k").await.release());
        assert!(release.as_mut().await.unwrap());
        let polled = std::panic::catch_unwind(AssertUnwindSafe(|| {
            let _ = release.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        }));
        let message = *polled.unwrap_err().downcast::<&str>().unwrap();
        assert_eq!(message, "the future of a release was polled after its end");
    }
}

/// Ends after a time that timers are too coarse for.
async fn spin_for(time: Duration) {
    let until = std::time::Instant::now() + time;
    while std::time::Instant::now() < until {
        tokio::task::yield_now().await;
    }
}

/// Fault: 12
/// A panic in the protected section releases the lock, and is the only panic.
#[tokio::test]
async fn a_panic_in_the_protected_section_releases() {
    for (manager, _server) in both().await {
        let panicking = tokio::spawn({
            let manager = manager.clone();
            async move {
                let _guard = take(&manager, "k").await;
                panic!("on purpose");
            }
        });
        assert!(panicking.await.unwrap_err().is_panic());
        let guard = manager.lock("k", waiting(TTL, LONG)).await.unwrap();
        assert!(guard.release().await.unwrap());
    }
}

/// Fault: 14
/// A guard dropped while its runtime shuts down never panics; another runtime finishes the release.
#[test]
fn a_guard_dropped_while_the_runtime_shuts_down_never_panics() {
    let server = RedisServer::start();
    let runtime = || Builder::new_current_thread().enable_all().build().unwrap();
    let first = runtime();
    let manager = first.block_on(async {
        let manager = LockManager::connect(&server.url()).await.unwrap();
        let guard = take(&manager, "k").await;
        // This task is dropped, and its guard with it, in the middle of the shutdown.
        tokio::spawn(async move {
            let _guard = guard;
            std::future::pending::<()>().await;
        });
        tokio::task::yield_now().await;
        manager
    });
    first.shutdown_background();
    runtime().block_on(async {
        // The sure way: a shutdown with a deadline, on a runtime that lives.
        assert!(manager.shutdown(LONG).await.is_clean());
    });
    assert_eq!(server.keys("*"), Vec::<String>::new());
}

/// Fault: 15
/// A guard dropped outside any runtime never panics; the background task still releases.
#[tokio::test]
async fn a_guard_dropped_outside_a_runtime_never_panics() {
    for (manager, _server) in both().await {
        let guard = take(&manager, "k").await;
        std::thread::spawn(move || drop(guard)).join().unwrap();
        let guard = manager.lock("k", waiting(TTL, LONG)).await.unwrap();
        assert!(guard.release().await.unwrap());
    }
}

/// Fault: 10
/// The executor is starved past the TTL: the guard says *lost* at its first check. A manager with a runtime of its own
/// renews meanwhile.
#[test]
fn a_starved_executor_loses_its_lease_unless_the_manager_has_its_own_runtime() {
    let server = RedisServer::start();
    let own = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let starved = Builder::new_current_thread().enable_all().build().unwrap();
    starved.block_on(async {
        let ttl = Duration::from_secs(2);
        let options = LockOptions::new(ttl).renew();
        let shared = LockManager::connect(&server.url()).await.unwrap();
        let own = LockManager::builder().runtime(own.handle().clone()).connect(&server.url()).await.unwrap();
        let lost = shared.try_lock("shared", options.clone()).await.unwrap().unwrap();
        let kept = own.try_lock("own", options).await.unwrap().unwrap();
        assert!(lost.is_valid() && kept.is_valid());
        // Real time is what this test is about: the only thread of the runtime is blocked.
        std::thread::sleep(ttl * 2);
        assert!(!lost.is_valid());
        assert_eq!(lost.lost().await, clinch::Loss::Expired);
        assert!(kept.is_valid(), "renewed by the manager's own runtime");
        assert!(kept.release().await.unwrap());
    });
}

/// Proves: B4
/// `shutdown` refuses new attempts, ends waiting ones, drains, and reports what is left.
#[tokio::test]
async fn shutdown_refuses_drains_and_reports() {
    let bench = Bench::start().await;
    let manager = bench.manager().await;
    let held = take(&manager, "held").await;
    let dropped = take(&manager, "dropped").await;
    let waiter = tokio::spawn({
        let manager = manager.clone();
        async move { manager.lock("held", waiting(TTL, LONG)).await }
    });
    tokio::task::yield_now().await;
    bench.strike(Step::Release, Action::HoldReply);
    drop(dropped);
    bench.proxy.wait_until_held().await;

    let left = manager.shutdown(Duration::from_millis(50)).await;
    assert_eq!((left.unreleased, left.guards), (1, 1));
    assert!(!left.is_clean());
    assert!(matches!(waiter.await.unwrap(), Err(Error::ShutDown { .. })));
    assert!(matches!(manager.try_lock("k", TTL).await, Err(Error::ShutDown { key: Some(_) })));

    bench.proxy.release_held();
    assert!(held.release().await.unwrap(), "a guard that is still there can still be released");
    assert!(manager.shutdown(LONG).await.is_clean());
    assert_eq!(bench.server.keys("*"), Vec::<String>::new());
    eventually("no connection is left", || bench.proxy.connections_open() == 0).await;
}

/// The manager is dropped right after its guards: what is queued is still released.
#[tokio::test]
async fn a_dropped_manager_finishes_its_releases() {
    let bench = Bench::start().await;
    let manager = bench.manager().await;
    let guards = [take(&manager, "a").await, take(&manager, "b").await];
    drop(guards);
    drop(manager);
    bench.free("a").await;
    bench.free("b").await;
    eventually("no connection is left", || bench.proxy.connections_open() == 0).await;
}

/// Proves: B4
/// A release future that is dropped goes on in the background.
#[tokio::test]
async fn a_dropped_release_goes_on_in_the_background() {
    let bench = Bench::start().await;
    let manager = bench.hasty().await;
    let guard = take(&manager, "k").await;
    bench.strike(Step::Release, Action::DropRequestThenStall);
    assert!(timeout(Duration::from_millis(50), guard.release()).await.is_err());
    bench.free("k").await;
}
