//! Leases that go from one local holder to the next, and lines that let others go first.

use std::sync::Arc;
use std::time::Duration;

use clinch::stores::memory::MemoryStore;
use clinch::{LockManager, Loss};
use clinch_testkit::proxy::{Action, Rule};
use futures_util::future::join_all;
use tokio::time::{Instant, advance, sleep, timeout};

use crate::common::{Bench, LONG, StandingClock, Step, TTL, eventually, poll_once, take, waiting};

/// Proves: B5, T7
/// A local waiter with the same TTL gets the lease itself: the same token, no acquire and no release, and one renewal that nobody
/// waits for, unless the lease is as good as new.
#[tokio::test]
async fn the_next_in_line_gets_the_lease_without_a_call() {
    let bench = Bench::start().await;
    let locks = bench.manager().await;
    for (ttl, passed_after, renewals) in
        [(TTL, Duration::ZERO, 0), (Duration::from_secs(3), Duration::from_millis(40), 1)]
    {
        let clock = StandingClock::stop(); // a lease is passed on for a short time only
        let first = locks.try_lock("k", ttl).await.unwrap().expect("the key is free");
        let token = first.token().clone();
        let lease = first.lease();
        let mut second = Box::pin(locks.lock("k", waiting(ttl, LONG)));
        assert!(poll_once(second.as_mut()).await.is_pending());
        advance(passed_after).await;
        bench.proxy.reset_counts();
        assert!(first.release().await.unwrap());
        let second = second.await.unwrap();
        assert_eq!((second.token(), bench.count(Step::Acquire), bench.count(Step::Release)), (&token, 0, 0));
        drop(clock);
        // The first one's time is over, though the lease lives.
        assert!(!lease.is_valid() && second.is_valid());
        assert_eq!(lease.lost().await, Loss::Released);
        eventually("it is renewed to its full TTL", || bench.count(Step::Renew) >= renewals).await;
        drop(second);
        bench.free("k").await;
        assert_eq!(
            (bench.count(Step::Renew), bench.count(Step::Release)),
            (renewals, 1),
            "the last one gives it back"
        );
    }
}

/// Proves: B5
/// Those who stand behind are not told of each pass, but the first of them looks after the lease that stands in its way in the
/// end: it may run out with nobody saying so.
#[tokio::test(start_paused = true)]
async fn a_lease_that_was_passed_on_and_runs_out_is_noticed_by_the_next_in_line() {
    let locks = LockManager::memory();
    let options = || waiting(Duration::from_secs(2), LONG);
    let first = locks.lock("k", options()).await.unwrap();
    let token = first.token().clone();
    let mut line: Vec<_> = (0..4).map(|_| Box::pin(locks.lock("k", options()))).collect();
    for waiter in &mut line {
        assert!(poll_once(waiter.as_mut()).await.is_pending());
    }
    let (mut guard, mut line) = (first, line.into_iter());
    for waiter in line.by_ref().take(2) {
        guard.release().await.unwrap();
        guard = waiter.await.unwrap();
        assert_eq!(guard.token(), &token, "it was passed on");
    }
    // Its holder is stuck.
    let began = Instant::now();
    for waiter in line {
        let next = waiter.await.unwrap();
        assert!(!guard.is_valid() && began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
        assert_ne!(next.token(), &token);
        next.release().await.unwrap();
    }
}

/// Proves: B5
/// A pass only where it is just what the next one asked for: not with another TTL, not with a fence, not where either side
/// turned it off, and never for a fair lock.
#[tokio::test]
async fn only_what_fits_is_passed_on() {
    let bench = Bench::start().await;
    let locks = bench.manager().await;
    let plain = || waiting(TTL, LONG);
    for (mine, next, passes) in [
        (plain(), plain(), true),
        (plain(), plain().label("other"), true),
        (plain(), waiting(TTL * 2, LONG), false),
        (plain(), plain().fenced(), false),
        (plain().fenced(), plain().fenced(), true),
        (plain().no_local_pass(), plain(), false),
        (plain(), plain().no_local_pass(), false),
        (plain().fair(), plain().fair(), false),
        (plain().shared(), plain(), false),
    ] {
        let clock = StandingClock::stop(); // a lease is passed on for a short time only
        let first = locks.lock("k", mine.clone()).await.unwrap();
        let token = first.token().clone();
        let mut second = Box::pin(locks.lock("k", next.clone()));
        assert!(poll_once(second.as_mut()).await.is_pending());
        drop((first, clock));
        let second = timeout(LONG, second).await.unwrap().unwrap();
        assert_eq!(*second.token() == token, passes, "{mine:?} then {next:?}");
        second.release().await.unwrap();
    }
}

/// Proves: B5
/// A bounded number of passes: then the lease goes back to the engine, and a waiter of another process is next although the
/// line here is not empty.
#[tokio::test(start_paused = true)]
async fn after_so_many_passes_others_get_their_turn() {
    let store = Arc::new(MemoryStore::new());
    let manager = || LockManager::builder().store(store.clone()).build().unwrap();
    let (here, there) = (manager(), manager());
    let first = take(&here, "k").await;
    let mut tokens = vec![first.token().clone()];
    let mut line: Vec<_> = (0..200).map(|_| Box::pin(here.lock("k", waiting(TTL, LONG)))).collect();
    for waiter in &mut line {
        assert!(poll_once(waiter.as_mut()).await.is_pending());
    }
    let mut other = Box::pin(there.lock("k", waiting(TTL, LONG).retry_interval(LONG)));
    assert!(poll_once(other.as_mut()).await.is_pending());
    let mut guard = first;
    let mut passes = 0;
    for waiter in line {
        let mut waiter = waiter;
        guard.release().await.unwrap();
        tokio::select! {
            biased;
            turn = &mut other => {
                println!("after {passes} passes the other process had its turn");
                assert!((1..=64).contains(&passes), "{passes}");
                drop(turn);
                assert!(timeout(LONG, waiter).await.unwrap().is_ok(), "and then this one again");
                return;
            }
            next = &mut waiter => guard = next.unwrap(),
        }
        passes += usize::from(guard.token() == &tokens[0]);
        tokens.push(guard.token().clone());
    }
    panic!("the other process never had its turn");
}

/// Proves: B5
/// A bounded time as well: whoever works long under the lock passes it on less often.
#[tokio::test(start_paused = true)]
async fn after_so_long_a_lease_goes_back() {
    let locks = LockManager::memory();
    let first = take(&locks, "k").await;
    let token = first.token().clone();
    let mut second = Box::pin(locks.lock("k", waiting(TTL, LONG)));
    assert!(poll_once(second.as_mut()).await.is_pending());
    advance(Duration::from_millis(60)).await;
    drop(first);
    let second = second.await.unwrap();
    assert_ne!(second.token(), &token);
}

/// Proves: B5, B1
/// With less than half its validity left, the lease is renewed before it is passed on, and that is waited for. If it cannot
/// be renewed, nobody gets it.
#[tokio::test]
async fn with_little_left_it_is_renewed_first() {
    let bench = Bench::start().await;
    let locks = bench.manager().await;
    let ttl = Duration::from_millis(90);
    let options = || waiting(ttl, LONG).retry_interval(Duration::from_millis(10));
    bench.strike(Step::Renew, Action::HoldReply);
    let first = locks.lock("k", options()).await.unwrap();
    let mut second = Box::pin(locks.lock("k", options()));
    assert!(poll_once(second.as_mut()).await.is_pending());
    // More than half of it passes, but less than the time for which leases are passed on.
    sleep(Duration::from_millis(47)).await;
    let in_time = first.is_valid();
    drop(first);
    if in_time && timeout(Duration::from_millis(20), bench.proxy.wait_until_held()).await.is_ok() {
        assert!(poll_once(second.as_mut()).await.is_pending(), "it waits for the renewal");
        bench.proxy.release_held();
    }
    // In time or not, on a machine that is slow today: the next one gets a lease that is valid.
    let second = timeout(LONG, second).await.unwrap().unwrap();
    assert!(second.is_valid());
}

/// Proves: B5
/// "Not mine" stops the passing and ends the holder's time: the lease was taken away behind its back.
#[tokio::test]
async fn what_the_engine_no_longer_has_is_not_passed_on() {
    let bench = Bench::start().await;
    let locks = bench.manager().await;
    let clock = StandingClock::stop(); // a lease is passed on for a short time only
    let first = take(&locks, "k").await;
    let token = first.token().clone();
    let mut waiters: Vec<_> = (0..2).map(|_| Box::pin(locks.lock("k", waiting(TTL, LONG)))).collect();
    for waiter in &mut waiters {
        assert!(poll_once(waiter.as_mut()).await.is_pending());
    }
    bench.server.command(&["DEL", "clinch:lock:k"]);
    drop((first, clock));
    // Passed on in good faith; the renewal finds out.
    let second = waiters.remove(0).await.unwrap();
    assert_eq!(second.token(), &token);
    assert_eq!(timeout(LONG, second.lost()).await.unwrap(), Loss::TakenOver);
    let third = timeout(LONG, waiters.remove(0)).await.unwrap().unwrap();
    assert_ne!(third.token(), &token);
    assert_eq!(bench.value("k").as_deref(), Some(third.token().as_str()));
    drop(second);
    assert!(third.release().await.unwrap(), "the guard that lost it gave nothing back");
}

/// Proves: B4, B5
/// A waiter that is dropped after the lease was passed to it, and before it was polled, passes it on.
#[tokio::test]
async fn a_pass_that_nobody_takes_goes_on() {
    let bench = Bench::start().await;
    let locks = bench.manager().await;
    let clock = StandingClock::stop(); // a lease is passed on for a short time only
    let first = take(&locks, "k").await;
    let token = first.token().clone();
    let mut waiters: Vec<_> = (0..3).map(|_| Box::pin(locks.lock("k", waiting(TTL, LONG)))).collect();
    for waiter in &mut waiters {
        assert!(poll_once(waiter.as_mut()).await.is_pending());
    }
    drop(first);
    drop(waiters.remove(0));
    let second = waiters.remove(0).await.unwrap();
    assert_eq!(second.token(), &token);
    drop((second, clock));
    // And with nobody left it goes back.
    drop(waiters);
    bench.free("k").await;
    assert!(locks.shutdown(LONG).await.is_clean());
}

/// Proves: B5, B4
/// A shutdown ends the passing: everybody in line is told, and the lease goes back.
#[tokio::test]
async fn a_shutdown_ends_the_passing() {
    let bench = Bench::start().await;
    let locks = bench.manager().await;
    let first = take(&locks, "k").await;
    let waiters: Vec<_> = (0..5).map(|_| locks.lock("k", waiting(TTL, LONG))).collect();
    let waiting = join_all(waiters);
    let ending = async {
        tokio::task::yield_now().await;
        drop(first);
        locks.shutdown(LONG).await
    };
    let (answers, left) = tokio::join!(waiting, ending);
    drop(answers);
    assert!(left.is_clean() || left.guards > 0, "{left:?}");
    bench.free("k").await;
}

/// Proves: B5
/// At most one renewal of a lease is under way, however fast it is passed on.
#[tokio::test]
async fn one_renewal_at_a_time() {
    let bench = Bench::start().await;
    let locks = bench.manager().await;
    bench.proxy.add(
        Rule::new(Action::DelayReply(Duration::from_millis(20))).matching(bench.is(Step::Renew)).always(),
    );
    let began = Instant::now();
    let tasks = (0..40).map(|_| async {
        locks.lock("k", waiting(TTL, LONG)).await.unwrap().release().await.unwrap();
    });
    join_all(tasks).await;
    let most = began.elapsed().as_millis() / 20 + 2;
    let renewals = bench.count(Step::Renew);
    assert!(
        u128::try_from(renewals).unwrap() <= most,
        "{renewals} renewals, at most {most} one after the other"
    );
}
