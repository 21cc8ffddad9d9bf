//! Concurrency limits, alone and along with a lock.

use std::time::Duration;

use clinch::stores::memory::MemoryStore;
use clinch::{DeniedBy, Error, Limit, LockGuard, LockManager, LockOptions, Outcome};
use clinch_testkit::hears;
use futures_util::future::join_all;
use std::sync::Arc;

use crate::common::{Bench, LONG, TTL, both, eventually, waiting};

async fn take(limit: &Limit) -> LockGuard {
    limit.try_acquire(TTL).await.unwrap().expect("a permit is free")
}

/// Proves: T4, T5
/// Never more than N, from one manager; what is given back or dropped can be taken at once.
#[tokio::test]
async fn never_more_than_n_and_each_comes_back() {
    for (locks, _server) in both().await {
        for n in [1, 3] {
            let limit = locks.limit("export", n).unwrap();
            let mut held = Vec::new();
            for _ in 0..n {
                held.push(take(&limit).await);
            }
            assert!(limit.try_acquire(TTL).await.unwrap().is_none());
            assert_eq!(limit.holders().await.unwrap().len(), n as usize);
            drop(held.pop());
            held.push(take(&limit).await);
            assert!(held.pop().unwrap().release().await.unwrap());
            held.push(take(&limit).await);
            assert!(limit.try_acquire(TTL).await.unwrap().is_none());
            for guard in held {
                assert!(guard.release().await.unwrap());
            }
            assert!(limit.holders().await.unwrap().is_empty());
        }
    }
}

/// Fault: 40
/// Proves: T4
/// The caller's own number counts for its own permits: raised, more are granted at once; lowered, none until enough are back,
/// and nobody loses what it has.
#[tokio::test]
async fn a_limit_is_raised_and_lowered_while_in_use() {
    for (locks, _server) in both().await {
        let (low, high) = (locks.limit("export", 2).unwrap(), locks.limit("export", 4).unwrap());
        let mut held = vec![take(&low).await, take(&low).await];
        assert!(low.try_acquire(TTL).await.unwrap().is_none());
        held.push(take(&high).await);
        held.push(take(&high).await);
        assert!(high.try_acquire(TTL).await.unwrap().is_none());
        for left in [3, 2] {
            held.pop().unwrap().release().await.unwrap();
            assert!(low.try_acquire(TTL).await.unwrap().is_none(), "{left} are held");
            assert!(held.iter().all(|guard| guard.is_valid()));
        }
        held.pop().unwrap().release().await.unwrap();
        assert!(low.try_acquire(TTL).await.unwrap().is_some());
    }
}

/// Fault: 39
/// A holder that dies gives its permit back when its TTL is over, whatever the others do meanwhile.
#[tokio::test(start_paused = true)]
async fn a_dead_holders_permit_comes_back_within_its_ttl() {
    let store = Arc::new(MemoryStore::new());
    let manager = || LockManager::builder().store(store.clone()).build().unwrap();
    let (dying, living) = (manager(), manager());
    let ttl = Duration::from_secs(1);
    std::mem::forget(dying.limit("export", 2).unwrap().acquire(ttl).await.unwrap());
    let limit = living.limit("export", 2).unwrap();
    let renewed = LockOptions::new(ttl).renew();
    let _other = limit.acquire(renewed.clone()).await.unwrap();
    let began = tokio::time::Instant::now();
    let next = limit.acquire(renewed.wait(LONG)).await.unwrap();
    assert!(began.elapsed() <= ttl + Duration::from_millis(100), "{:?}", began.elapsed());
    assert!(limit.try_acquire(ttl).await.unwrap().is_none());
    drop(next);
}

/// Proves: T4, B5
/// Waiting is the lock's: first come first served inside the process, woken by push, and a place that becomes free is not
/// left empty while somebody waits.
#[tokio::test]
async fn waiters_are_woken_in_their_order() {
    for (locks, _server) in both().await {
        let limit = locks.limit("export", 2).unwrap();
        let (first, second) = (take(&limit).await, take(&limit).await);
        let order = Arc::new(std::sync::Mutex::new(Vec::new()));
        let options = waiting(TTL, LONG).retry_interval(LONG);
        let mut waiters = Vec::new();
        for i in 0..6 {
            let (limit, order, options) = (limit.clone(), order.clone(), options.clone());
            let mut waiter = Box::pin(async move {
                let guard = limit.acquire(options).await.unwrap();
                order.lock().unwrap().push(i);
                guard.release().await.unwrap();
            });
            assert!(crate::common::poll_once(waiter.as_mut()).await.is_pending());
            waiters.push(tokio::spawn(waiter));
        }
        drop(first);
        drop(second);
        for waiter in waiters {
            tokio::time::timeout(LONG, waiter).await.unwrap().unwrap();
        }
        // Two at a time, so neighbours may change places.
        let order = order.lock().unwrap().clone();
        assert!(order.iter().enumerate().all(|(place, i)| place.abs_diff(*i) <= 1), "{order:?}");
    }
}

/// Proves: T7
/// A storm on a limit costs a call for each permit, and at most as many again for all who are refused; where this process has
/// them all, none.
#[tokio::test]
async fn a_storm_costs_a_call_for_each_permit() {
    let bench = Bench::start().await;
    let manager = bench.manager().await;
    hears(&manager, &bench.outsider().await).await;
    let limit = manager.limit("export", 8).unwrap();
    drop(take(&limit).await);
    eventually("it is given back", || {
        bench.server.command(&["EXISTS", "clinch:sem:export"]).int() == Some(0)
    })
    .await;
    bench.proxy.reset_counts();
    let answers = join_all((0..500).map(|_| limit.try_acquire(TTL))).await;
    let winners: Vec<_> = answers.into_iter().filter_map(Result::unwrap).collect();
    assert_eq!(winners.len(), 8);
    let calls = bench.proxy.lease_commands();
    // Grants let more go out together, so that many permits are taken quickly; the first denial answers all.
    assert!(calls <= 16, "{calls} calls");
    assert!(limit.try_acquire(TTL).await.unwrap().is_none());
    assert_eq!(bench.proxy.lease_commands(), calls, "this process has them all");
}

/// Proves: T1, T3
/// A lock with a limit takes both or neither, and tells which of the two was refused.
#[tokio::test]
async fn a_lock_with_a_limit_takes_both_or_neither() {
    for (locks, _server) in both().await {
        let limit = locks.limit("export", 1).unwrap();
        let options = LockOptions::new(TTL).limited_by(&limit, TTL * 2);
        let both = locks.lock("order:1", options.clone()).await.unwrap();
        assert_eq!(limit.holders().await.unwrap().len(), 1);

        let Outcome::DeniedByLock(denied) = locks.attempt("order:1", options.clone()).await.unwrap() else {
            panic!("the lock is held")
        };
        assert_eq!((denied.cause, denied.key.as_str()), (DeniedBy::Lock, "order:1"));
        let Outcome::DeniedByLimit(denied) = locks.attempt("order:2", options.clone()).await.unwrap() else {
            panic!("the permit is held")
        };
        assert_eq!((denied.cause, denied.key.as_str()), (DeniedBy::Limit, "export"));
        assert!(denied.to_string().contains("no permit"), "{denied}");
        // A refused permit leaves no lock behind.
        assert!(locks.inspect("order:2").await.unwrap().is_empty());
        let error = locks.lock("order:2", options.clone()).await.unwrap_err();
        assert!(
            matches!(error, Error::LockNotAcquired { ref denied, .. } if denied.cause == DeniedBy::Limit)
        );

        assert!(both.release().await.unwrap());
        assert!(limit.holders().await.unwrap().is_empty());
        assert!(locks.inspect("order:1").await.unwrap().is_empty());
        // A refused lock leaves no permit behind.
        let _held = locks.lock("order:1", TTL).await.unwrap();
        assert!(matches!(locks.attempt("order:1", options).await.unwrap(), Outcome::DeniedByLock(_)));
        assert!(limit.holders().await.unwrap().is_empty());
    }
}

/// Proves: T3
/// Both are one command to take and one to give back, each with a TTL of its own.
#[tokio::test]
async fn a_lock_with_a_limit_is_one_command_each_way() {
    let bench = Bench::start().await;
    let manager = bench.manager().await;
    let limit = manager.limit("export", 8).unwrap();
    let options = LockOptions::new(TTL).limited_by(&limit, TTL * 2);
    manager.lock("warm-up", options.clone()).await.unwrap().release().await.unwrap();
    bench.proxy.reset_counts();
    let guard = manager.lock("order:1", options).await.unwrap();
    let taken = bench.proxy.lease_commands();
    let ttl = |ttl: Option<i64>| ttl.unwrap();
    let lock = ttl(bench.server.command(&["PTTL", "clinch:lock:order:1"]).int());
    let permit = ttl(bench.server.command(&["PTTL", "clinch:sem:export"]).int());
    assert!(lock <= 60_000 && permit > 60_000 && permit <= 120_000, "{lock} {permit}");
    assert!(guard.release().await.unwrap());
    let given_back = bench.proxy.lease_commands() - taken;
    println!("lock with a limit: {taken} command(s) to take both, {given_back} to give both back");
    assert_eq!((taken, given_back), (1, 1));
}

/// Proves: T3, B3
/// What is taken together is waited for and renewed together.
#[tokio::test]
async fn a_lock_with_a_limit_is_waited_for_and_renewed() {
    for (locks, _server) in both().await {
        let limit = locks.limit("export", 1).unwrap();
        let ttl = Duration::from_secs(2);
        let options =
            LockOptions::new(ttl).limited_by(&limit, ttl * 2).renew().wait(LONG).retry_interval(LONG);
        let first = locks.lock("order:1", options.clone()).await.unwrap();
        let mut second = Box::pin(locks.lock("order:2", options));
        assert!(tokio::time::timeout(ttl * 2, second.as_mut()).await.is_err(), "the first is renewed");
        assert!(first.is_valid());
        assert!(first.release().await.unwrap());
        let second = tokio::time::timeout(LONG, second).await.unwrap().unwrap();
        assert_eq!(limit.holders().await.unwrap().len(), 1);
        assert!(second.release().await.unwrap());
    }
}
