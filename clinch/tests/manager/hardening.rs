//! What once broke, on the memory engine and mostly on a paused clock. Each test is a promise that did not hold.
//!
//! What needs a real server is in `hardening_redis` and `hardening_runtimes`.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use clinch::lease::Attempt;
use clinch::store::{ErrorKind, Release, Store, StoreError, StoreFuture, Verdict};
use clinch::stores::memory::MemoryStore;
use clinch::{DeniedBy, Error, Holder, LockManager, LockOptions, Outcome};
use tokio::time::{advance, sleep, timeout};

use crate::common::{LONG, TTL, poll_once, take, waiting};

/// What is odd about a store.
#[derive(Debug, Clone, Copy)]
enum Quirk {
    /// It grants, and the answer is lost.
    LosesAnswers,
    /// It grants, and answers after this time.
    AnswersAfter(Duration),
    /// It grants the first attempt, and never answers it.
    ForgetsTheFirst,
    /// It panics, after this time, when `poison` is to be given back.
    PanicsAfter(Duration),
    /// It is too busy for the first releases, this many.
    BusyFor(usize),
}

/// A memory store with a quirk, and a count of its acquires and of the releases that it failed at.
#[derive(Debug)]
struct Quirky {
    store: MemoryStore,
    quirk: Quirk,
    acquires: AtomicUsize,
    failed: AtomicUsize,
}

impl Quirky {
    fn manager(quirk: Quirk) -> (LockManager, Arc<Self>) {
        let (acquires, failed) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let store = Arc::new(Self { store: MemoryStore::new(), quirk, acquires, failed });
        (LockManager::builder().store(store.clone()).build().unwrap(), store)
    }

    fn acquires(&self) -> usize {
        self.acquires.load(Ordering::Relaxed)
    }
}

impl Store for Quirky {
    clinch_testkit::passes_on!(store: capabilities, renew, wakeups, revocations, inspect, list, revoke, ping);

    fn acquire<'a>(&'a self, attempt: &'a Attempt) -> StoreFuture<'a, Verdict> {
        Box::pin(async move {
            let before = self.acquires.fetch_add(1, Ordering::Relaxed);
            let answer = self.store.acquire(attempt).await;
            match self.quirk {
                Quirk::LosesAnswers => Err(StoreError::unknown(ErrorKind::Unavailable, "on purpose")),
                Quirk::ForgetsTheFirst if before == 0 => std::future::pending().await,
                Quirk::AnswersAfter(time) => {
                    sleep(time).await;
                    answer
                }
                Quirk::ForgetsTheFirst | Quirk::PanicsAfter(_) | Quirk::BusyFor(_) => answer,
            }
        })
    }

    fn release<'a>(&'a self, lease: &'a Attempt) -> StoreFuture<'a, Release> {
        Box::pin(async move {
            match self.quirk {
                Quirk::PanicsAfter(time) if lease.claims()[0].on().key.as_str() == "poison" => {
                    self.failed.fetch_add(1, Ordering::Relaxed);
                    sleep(time).await;
                    panic!("on purpose");
                }
                Quirk::BusyFor(releases) if self.failed.load(Ordering::Relaxed) < releases => {
                    self.failed.fetch_add(1, Ordering::Relaxed);
                    return Err(StoreError::not_applied(ErrorKind::Busy, "on purpose"));
                }
                _ => {}
            }
            self.store.release(lease).await
        })
    }
}

/// Two managers on one store: as two processes on one engine.
fn two_managers() -> (LockManager, LockManager) {
    let store = Arc::new(MemoryStore::new());
    let manager = || LockManager::builder().store(store.clone()).build().unwrap();
    (manager(), manager())
}

/// Proves: L9
/// An attempt whose answer was lost is taken back, and that is no news: the waiter asks again after its interval.
#[tokio::test(start_paused = true)]
async fn a_waiter_does_not_spin_when_its_own_attempts_are_taken_back() {
    let (manager, store) = Quirky::manager(Quirk::LosesAnswers);
    let interval = Duration::from_secs(10);
    let error = manager.lock("k", waiting(TTL, interval * 5).retry_interval(interval)).await.unwrap_err();
    assert!(matches!(error, Error::Engine { .. }), "{error}");
    // The first ask and one per interval, each at most twice more because the connection failed.
    let asked = store.acquires();
    assert!((6..=6 * 3).contains(&asked), "{asked}");
    assert!(manager.shutdown(LONG).await.is_clean());
    assert!(store.store.is_empty(), "all of it was taken back");
}

/// Proves: L9
/// The same for a grant that arrives after its validity, again and again.
#[tokio::test(start_paused = true)]
async fn a_waiter_does_not_spin_when_its_grants_come_too_late() {
    let ttl = Duration::from_millis(500);
    let (manager, store) = Quirky::manager(Quirk::AnswersAfter(ttl * 3 / 2));
    let interval = Duration::from_secs(10);
    match manager.attempt("k", waiting(ttl, interval * 5).retry_interval(interval)).await.unwrap() {
        Outcome::DeniedByLock(denied) => assert_eq!(denied.cause, DeniedBy::TooLate, "{denied}"),
        other => panic!("{other:?}"),
    }
    // One more, because a waiter that was denied asks once after it has subscribed.
    let asked = store.acquires();
    assert!((2..=7).contains(&asked), "{asked}");
}

/// Whoever takes over the call of one who is gone gets a lease with most of its validity before it, not the old one's
/// last moments.
#[tokio::test(start_paused = true)]
async fn an_attempt_that_is_half_over_is_not_adopted() {
    let ttl = Duration::from_secs(10);
    let (manager, _store) = Quirky::manager(Quirk::ForgetsTheFirst);
    let mut first = Box::pin(manager.try_lock("k", ttl));
    assert!(poll_once(first.as_mut()).await.is_pending());
    advance(ttl * 3 / 4).await;
    let mut second = Box::pin(manager.try_lock("k", ttl));
    assert!(poll_once(second.as_mut()).await.is_pending(), "it waits for the call that is under way");
    drop(first);

    let guard = second.await.unwrap().expect("what stood in the way was this process's own");
    assert!(guard.remaining() > ttl / 2, "{guard:?}");
}

/// A store that panics in one step fails that step: renewals and other releases go on.
#[tokio::test(start_paused = true)]
async fn a_store_that_panics_takes_no_other_lease_with_it() {
    let ttl = Duration::from_millis(600);
    // In its first poll, and while other jobs are under way.
    for latency in [Duration::ZERO, Duration::from_millis(5)] {
        let (manager, store) = Quirky::manager(Quirk::PanicsAfter(latency));
        let kept = manager.try_lock("kept", LockOptions::new(ttl).renew()).await.unwrap().unwrap();
        drop(take(&manager, "poison").await);
        sleep(ttl / 2).await;
        assert!(store.failed.load(Ordering::Relaxed) > 0);
        drop(take(&manager, "other").await);
        sleep(ttl * 10).await;
        assert!(kept.is_valid(), "after a latency of {latency:?}");
        assert!(manager.inspect("other").await.unwrap().is_empty());
        assert!(kept.release().await.unwrap());
    }
}

/// A release that the store panics at is given up with its lease at the latest, as any other that fails.
#[tokio::test(start_paused = true)]
async fn a_release_that_always_panics_ends_with_its_lease() {
    let (manager, store) = Quirky::manager(Quirk::PanicsAfter(Duration::ZERO));
    let ttl = Duration::from_secs(2);
    drop(manager.try_lock("poison", ttl).await.unwrap().unwrap());
    sleep(ttl * 3).await;
    let panics = store.failed.load(Ordering::Relaxed);
    assert!(panics > 0);
    sleep(ttl * 3).await;
    assert_eq!(store.failed.load(Ordering::Relaxed), panics, "the lease is long over");
    assert!(manager.shutdown(LONG).await.is_clean());
}

/// Proves: B4
/// The last guard is dropped while the background task looks whether it may end: its release is not lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_last_release_is_not_lost_to_the_end_of_the_background_task() {
    let store = MemoryStore::new();
    // A race, tried as often as two seconds allow. The moment is so short that a task which misses the release is
    // caught by some of the runs, not by each.
    let until = std::time::Instant::now() + Duration::from_secs(2);
    let mut rounds = 0_u32;
    while std::time::Instant::now() < until {
        rounds += 1;
        let manager = LockManager::builder().store(Arc::new(store.clone())).build().unwrap();
        let (first, last) = (take(&manager, "first").await, take(&manager, "last").await);
        drop(manager);
        drop(first);
        // The task is running now, on another thread; each round meets it at another point.
        for _ in 0..rounds % 200 {
            std::hint::spin_loop();
        }
        drop(last);
        let released = async {
            while !store.is_empty() {
                tokio::task::yield_now().await;
            }
        };
        assert!(timeout(LONG / 6, released).await.is_ok(), "round {rounds}: {} left", store.len());
    }
}

/// Proves: B4
/// The background task does not end while a release waits to be tried again, although the manager is gone.
#[tokio::test(start_paused = true)]
async fn a_release_that_fails_is_tried_again_after_its_manager_is_gone() {
    let (manager, store) = Quirky::manager(Quirk::BusyFor(3));
    let guard = take(&manager, "k").await;
    drop(manager);
    drop(guard);
    sleep(TTL / 2).await;
    assert_eq!(store.failed.load(Ordering::Relaxed), 3);
    assert!(store.store.is_empty(), "given back, long before the end of its TTL");
}

/// Waiters that have gone leave nothing behind in the line, however long its head stands there.
#[tokio::test(start_paused = true)]
async fn a_line_forgets_those_who_left_it() {
    let (one, two) = two_managers();
    let _held = take(&one, "k").await;
    let mut head = Box::pin(two.lock("k", waiting(TTL, LONG)));
    assert!(poll_once(head.as_mut()).await.is_pending());
    // What a manager knows is in its `Debug`.
    let known = format!("{two:?}").len();
    for _ in 0..1_000 {
        let mut waiter = Box::pin(two.lock("k", waiting(TTL, LONG)));
        assert!(poll_once(waiter.as_mut()).await.is_pending());
    }
    let now = format!("{two:?}").len();
    assert!(now < known + 1_000, "{known} bytes have become {now}");
}

/// A try beside a line whose head nobody polls waits a moment for it, and then asks itself.
#[tokio::test(start_paused = true)]
async fn a_try_does_not_depend_on_a_head_that_nobody_polls() {
    let (one, two) = two_managers();
    let held = take(&one, "k").await;
    let mut head = Box::pin(two.lock("k", waiting(TTL, LONG)));
    assert!(poll_once(head.as_mut()).await.is_pending());
    assert!(held.release().await.unwrap());

    let tried = two.try_lock("k", TTL).await.unwrap().expect("the key is free");
    assert!(tried.release().await.unwrap());
    assert!(head.await.unwrap().is_valid(), "the head has lost nothing but its turn");
}

/// Proves: T2
/// A denial at the end of a wait tells the time that is left then, not the time that was left when the engine was
/// asked; to one who never came to ask as well.
#[tokio::test(start_paused = true)]
async fn a_denial_tells_the_time_left_at_its_end() {
    let (one, two) = two_managers();
    let (ttl, wait) = (Duration::from_secs(40), Duration::from_secs(30));
    let _held = one.try_lock("k", ttl).await.unwrap().unwrap();
    let options = waiting(TTL, wait).retry_interval(TTL);
    let (head, second) = tokio::join!(two.attempt("k", options.clone()), two.attempt("k", options));
    for outcome in [head, second] {
        let Outcome::DeniedByLock(denied) = outcome.unwrap() else { panic!("the key is held") };
        let left = ttl - wait;
        for told in [denied.retry_after, denied.holder.as_ref().and_then(Holder::remaining)] {
            let told = told.expect("a lease in memory has an end");
            assert!(told <= left && told > left - Duration::from_secs(1), "{told:?}");
        }
    }
}

/// Proves: L1
/// Intervals that overflow a clock, or leave no time for a second renewal, are refused and named; nothing is left held.
#[tokio::test(start_paused = true)]
async fn intervals_that_cannot_work_are_refused() {
    let (one, two) = two_managers();
    let day = Duration::from_secs(86_400);
    let retry = |interval| (waiting(TTL, TTL).retry_interval(interval), "retry_interval");
    let renew = |interval| (LockOptions::new(TTL).renew_every(interval), "renew_every");
    for (options, field) in [
        retry(Duration::MAX),
        retry(Duration::from_secs(u64::MAX / 2)),
        retry(day * 366 + Duration::from_millis(1)),
        renew(Duration::MAX),
        renew(TTL - Duration::from_millis(10)),
        renew(TTL / 2 + Duration::from_millis(1)),
    ] {
        match one.try_lock("k", options).await {
            Err(Error::InvalidOption { field: named, .. }) => assert_eq!(named, field),
            other => panic!("{field}: {other:?}"),
        }
    }
    assert!(one.inspect("k").await.unwrap().is_empty());

    // What is accepted works: an interval without a wait, the longest one, the rarest renewal.
    let tried = one.try_lock("tried", LockOptions::new(TTL).retry_interval(Duration::MAX)).await.unwrap();
    assert!(tried.is_some());
    let denied = two.try_lock("tried", waiting(TTL, TTL / 2).retry_interval(day * 366)).await.unwrap();
    assert!(denied.is_none());
    let options = LockOptions::new(TTL).renew_every(TTL / 2).renew_for(Duration::MAX);
    let renewed = one.try_lock("renewed", options).await.unwrap().unwrap();
    sleep(TTL * 10).await;
    assert!(renewed.is_valid());
}
