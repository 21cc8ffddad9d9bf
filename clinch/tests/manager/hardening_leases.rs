//! What an attack on limits, readers, scopes, several keys and strategies found, so that it stays mended.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use clinch::stores::memory::MemoryStore;
use clinch::{Error, LockManager, LockOptions, Outcome, Strategy};
use clinch_testkit::proxy::{Action, Rule};
use futures_util::future::join_all;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::common::{Bench, LONG, TTL, both, holds_back, poll_once, take, waiting};

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Proves: T1
/// A waiter whose time is over in the middle of a call was denied; the engine has not failed, and nobody goes on unprotected
/// or finds the breaker open for that.
#[tokio::test]
async fn a_waiters_own_deadline_is_no_failure_of_the_engine() {
    let bench = Bench::start().await;
    let _held = take(&bench.outsider().await, "a").await;
    let locks = LockManager::builder().strategy(Strategy::Proceed).connect(&bench.proxy.url()).await.unwrap();
    bench.proxy.add(Rule::new(Action::DelayReply(ms(30))).lease_only().always());
    for i in 0..6 {
        let options = waiting(TTL, ms(100 + i * 5)).retry_interval(ms(10));
        let several = locks.attempt_all(["a", "b"], options.clone()).await.unwrap();
        assert!(matches!(several, Outcome::DeniedByLock(_)), "{several:?}");
        let fair = locks.attempt("a", options.clone().fair_within(ms(20))).await.unwrap();
        assert!(matches!(fair, Outcome::DeniedByLock(_)), "{fair:?}");
        let line = locks.attempt("a", options).await.unwrap();
        assert!(matches!(line, Outcome::DeniedByLock(_)), "{line:?}");
        let other = locks.attempt("free", TTL).await.unwrap();
        assert!(matches!(other, Outcome::Acquired(_)), "{other:?}");
    }
}

/// Proves: T1, B5
/// One that stands behind others when its time is over is denied, although a lease of its process is just being given back.
#[tokio::test]
async fn one_that_stood_behind_others_is_denied() {
    let bench = Bench::start().await;
    let locks = LockManager::builder().strategy(Strategy::Proceed).connect(&bench.proxy.url()).await.unwrap();
    let held = take(&locks, "k").await;
    let mut first = Box::pin(locks.attempt("k", waiting(TTL * 2, LONG)));
    assert!(poll_once(first.as_mut()).await.is_pending());
    let mut second = Box::pin(locks.attempt("k", waiting(TTL, ms(50))));
    assert!(poll_once(second.as_mut()).await.is_pending());
    bench.proxy.add(Rule::new(Action::DelayReply(ms(150))).lease_only());
    drop(held);
    let second = second.await.unwrap();
    assert!(matches!(second, Outcome::DeniedByLock(_)), "{second:?}");
    assert!(matches!(first.await.unwrap(), Outcome::Acquired(_)));
}

/// Proves: B7
/// A writer is not starved by readers of its own process either: they are kept out by the engine, which knows of it.
#[tokio::test]
async fn a_writer_is_let_in_by_readers_of_its_own_process() {
    for (locks, _server) in both().await {
        let reads = Arc::new(AtomicUsize::new(0));
        let mut readers = JoinSet::new();
        for i in 0..3 {
            let (locks, reads) = (locks.clone(), reads.clone());
            readers.spawn(async move {
                sleep(ms(i * 10)).await;
                loop {
                    let options = LockOptions::new(TTL).shared().wait(LONG);
                    let guard = locks.lock("k", options).await.unwrap();
                    reads.fetch_add(1, Ordering::Relaxed);
                    // Longer than the others are apart: somebody always reads.
                    sleep(ms(30)).await;
                    guard.release().await.unwrap();
                }
            });
        }
        crate::common::eventually("they read", || reads.load(Ordering::Relaxed) > 6).await;
        for keys in [vec!["k"], vec!["k", "other"]] {
            let writing = locks.lock_all(keys, waiting(TTL, LONG));
            timeout(LONG, writing).await.unwrap().unwrap().release().await.unwrap();
        }
        // And a reader that comes while a writer waits is held back.
        readers.shutdown().await;
        let reader = locks.lock("quiet", LockOptions::new(TTL).shared()).await.unwrap();
        let mut writer = Box::pin(locks.lock("quiet", waiting(TTL, LONG)));
        holds_back(writer.as_mut(), &locks, "quiet").await;
        drop(reader);
        assert!(timeout(LONG, writer).await.unwrap().unwrap().is_valid());
    }
}

/// Proves: T4
/// Free permits and free places to read are not refused because many ask at once over a slow network.
#[tokio::test]
async fn free_places_are_not_refused_to_a_crowd() {
    let bench = Bench::start().await;
    let locks = LockManager::builder().call_timeout(LONG).connect(&bench.proxy.url()).await.unwrap();
    // One after the other: a call each would take the whole of the wait.
    bench.proxy.add(Rule::new(Action::DelayReply(ms(2))).lease_only().always());
    let limit = locks.limit("export", 10_000).unwrap();
    for wait in [Duration::ZERO, ms(500)] {
        let permits = join_all((0..300).map(|_| limit.try_acquire(waiting(TTL, wait)))).await;
        assert!(permits.iter().all(|permit| permit.as_ref().unwrap().is_some()));
        let reading = waiting(TTL, wait).shared();
        let readers = join_all((0..300).map(|_| locks.try_lock("k", reading.clone()))).await;
        assert!(readers.iter().all(|reader| reader.as_ref().unwrap().is_some()));
    }
}

/// Proves: L9, L12
/// The next head of a line polls at its own interval, not at that of the one before.
#[tokio::test]
async fn the_next_head_polls_at_its_own_interval() {
    let bench = Bench::start().await;
    let locks = bench.outsider().await;
    bench.server.command(&["SET", "clinch:lock:k", "plain"]);
    let mut slow = Box::pin(locks.try_lock("k", waiting(TTL, ms(100)).retry_interval(LONG * 10)));
    assert!(poll_once(slow.as_mut()).await.is_pending());
    let mut quick = Box::pin(locks.lock("k", waiting(TTL, LONG).retry_interval(ms(20))));
    assert!(poll_once(quick.as_mut()).await.is_pending());
    assert!(slow.await.unwrap().is_none());
    timeout(ms(50), quick.as_mut()).await.unwrap_err();
    // As any `SET NX PX` client does: without a message.
    bench.server.command(&["DEL", "clinch:lock:k"]);
    assert!(timeout(LONG / 2, quick).await.unwrap().is_ok());
}

/// Proves: T4, B4
/// A short wait for a permit is not denied by one that the same process is giving back.
#[tokio::test]
async fn a_short_wait_is_not_denied_by_a_permit_on_its_way_out() {
    let bench = Bench::start().await;
    let locks = bench.manager().await;
    let limit = locks.limit("export", 1).unwrap();
    let mut held = limit.acquire(TTL).await.unwrap();
    bench.proxy.add(Rule::new(Action::DelayRequest(ms(30))).lease_only().always());
    for wait in [0, 5, 5, 0] {
        drop(held);
        held = limit.acquire(waiting(TTL, ms(wait))).await.unwrap();
    }
}

/// Intervals and limits at their ends do not panic.
#[tokio::test(start_paused = true)]
async fn extreme_options_do_not_panic() {
    let locks = LockManager::memory();
    let options = LockOptions::new(TTL).retry_interval(Duration::MAX);
    let all = locks.try_lock_all(["a", "b"], options.clone()).await.unwrap();
    assert!(all.is_some());
    assert!(locks.try_lock_all(["a", "b"], options).await.unwrap().is_none());
    let most = locks.limit("export", u32::MAX).unwrap();
    assert!(most.try_acquire(TTL).await.unwrap().is_some());
    let long = LockOptions::new(LockOptions::MAX_TTL).wait(LockOptions::MAX_WAIT).renew_for(Duration::MAX);
    assert!(locks.lock("c", long.clone()).await.unwrap().is_valid());
    assert!(locks.lock("d", long.fair()).await.unwrap().is_valid());
}

/// Proves: L3
/// A release that was awaited has been sent, whatever else goes on in its scope.
#[tokio::test]
async fn an_awaited_release_has_been_sent() {
    let store = Arc::new(MemoryStore::new());
    let locks = LockManager::builder().store(store.clone()).build().unwrap();
    locks
        .scope(async {
            let scope = locks.current_scope().unwrap();
            let mut others = JoinSet::new();
            for _ in 0..2 {
                let (scope, locks) = (scope.clone(), locks.clone());
                others.spawn(async move {
                    scope
                        .enter(async {
                            loop {
                                drop(locks.try_lock("k", TTL).await);
                                tokio::task::yield_now().await;
                            }
                        })
                        .await
                });
            }
            for _ in 0..300 {
                let Some(guard) = locks.try_lock("k", LockOptions::new(TTL).label("mine")).await.unwrap()
                else {
                    tokio::task::yield_now().await;
                    continue;
                };
                let token = guard.token().clone();
                guard.release().await.unwrap();
                let holders = locks.inspect("k").await.unwrap();
                assert!(holders.iter().all(|holder| *holder.token() != token), "it is still there");
            }
            others.shutdown().await;
        })
        .await;
}

/// Proves: B6
/// Errors of re-entry name the key that the scope holds; a second permit is taken where there is room for one.
#[tokio::test]
async fn errors_of_re_entry_name_what_is_held() {
    let locks = LockManager::memory();
    locks
        .scope(async {
            let again = || LockOptions::new(TTL).reentrant();
            let five = locks.limit("five", 5).unwrap();
            let _first = locks.lock("order:61", again().limited_by(&five, TTL)).await.unwrap();
            for keys in [["order:61", "order:70"], ["order:70", "order:61"]] {
                let error = locks.attempt_all(keys, again()).await.unwrap_err();
                assert!(
                    matches!(&error, Error::SelfDeadlock { key, .. } if key.as_str() == "order:61"),
                    "{error}"
                );
            }
            let second = locks.attempt("order:62", again().limited_by(&five, TTL)).await.unwrap();
            assert!(matches!(second, Outcome::Acquired(_)), "{second:?}");
            assert_eq!(five.holders().await.unwrap().len(), 2);
            let fenced = locks.attempt("order:61", again().fenced()).await;
            assert!(matches!(fenced, Err(Error::SelfDeadlock { .. })), "{fenced:?}");
        })
        .await;
}

/// Proves: T2
/// The time left of a permit that came along with a lock is its own, also where the same process denies it.
#[tokio::test(start_paused = true)]
async fn a_denial_tells_the_permits_own_time() {
    let locks = LockManager::memory();
    let limit = locks.limit("tenant", 1).unwrap();
    let options = LockOptions::new(Duration::from_secs(5)).limited_by(&limit, Duration::from_secs(20));
    let _both = locks.lock("k", options).await.unwrap();
    let Outcome::DeniedByLimit(denied) = limit.attempt(TTL).await.unwrap() else { panic!("it is taken") };
    assert!(denied.retry_after.unwrap() > Duration::from_secs(19), "{denied:?}");
}

/// Proves: L2, B1
/// When the lease is lost while the engine hangs, the caller of `with_lock` is told at once: nobody waits for a release.
#[tokio::test]
async fn a_lost_block_does_not_wait_for_its_release() {
    let bench = Bench::start().await;
    let locks = LockManager::builder().call_timeout(LONG).connect(&bench.proxy.url()).await.unwrap();
    let began = Instant::now();
    let block = locks
        .with_lock("k", ms(2_000), async |_| {
            bench.proxy.stall();
            sleep(LONG).await;
        })
        .cancel_on_loss();
    let lost = block.await;
    assert!(matches!(lost, Err(Error::LeaseLost { .. })), "{lost:?}");
    // The limit of a call is far longer than this.
    assert!(began.elapsed() < LONG / 2);
    bench.proxy.resume();
}
