//! What happens when the engine fails.

use std::time::Duration;

use clinch::{Error, LockManager, LockOptions, Outcome, Strategy};
use clinch_testkit::proxy::{Action, Rule};
use tokio::time::{Instant, timeout};

use crate::common::{Bench, LONG, Step, TTL, eventually, take, waiting};

/// Long enough for an answer on a busy machine, and short enough to wait for its end.
const SHORT: Duration = Duration::from_millis(1_500);

async fn manager(bench: &Bench, strategy: Strategy) -> LockManager {
    LockManager::builder().call_timeout(SHORT).strategy(strategy).connect(&bench.proxy.url()).await.unwrap()
}

/// Proves: T1
/// Fail fast is the default: nothing is held, the cause is kept. A call can say otherwise than its manager.
#[tokio::test]
async fn fail_fast_is_the_default_and_a_call_has_the_last_word() {
    let bench = Bench::start().await;
    let fast = manager(&bench, Strategy::default()).await;
    let proceeding = manager(&bench, Strategy::Proceed).await;
    let taken = take(&fast, "taken").await;
    bench.server.stop();
    let Outcome::EngineFailed(Error::Engine { cause, .. }) = fast.attempt("k", TTL).await.unwrap() else {
        panic!("the engine hangs")
    };
    assert!(cause.is_retryable());
    let options = LockOptions::new(TTL).strategy(Strategy::Proceed);
    assert!(matches!(fast.attempt("k", options).await.unwrap(), Outcome::Unprotected(_)));
    let options = LockOptions::new(TTL).strategy(Strategy::FailFast);
    assert!(matches!(proceeding.attempt("k", options).await.unwrap(), Outcome::EngineFailed(_)));
    // A denial is no failure, whatever the strategy.
    let options = LockOptions::new(TTL).strategy(Strategy::Proceed);
    assert!(matches!(fast.attempt("taken", options).await.unwrap(), Outcome::DeniedByLock(_)));
    bench.server.cont();
    drop(taken);
}

/// Proves: T1
/// Whoever goes on unprotected is told so, still excludes inside its process, and leaves nothing behind at its end.
#[tokio::test]
async fn unprotected_is_never_silent_and_excludes_in_its_process() {
    let bench = Bench::start().await;
    let locks = manager(&bench, Strategy::Proceed).await;
    bench.server.stop();
    let guard = locks.try_lock("k", TTL).await.unwrap().unwrap();
    assert!(guard.is_degraded() && guard.fence().is_none());
    let second = locks.attempt("k", TTL).await.unwrap();
    assert!(matches!(second, Outcome::DeniedByLock(_)), "{second:?}");
    let limit = locks.limit("export", 2).unwrap();
    let permits = [limit.try_acquire(TTL).await.unwrap(), limit.try_acquire(TTL).await.unwrap()];
    assert!(permits.iter().flatten().all(|permit| permit.is_degraded()));
    assert!(limit.try_acquire(TTL).await.unwrap().is_none(), "two of two");
    let both = locks.lock_all(["a", "b"], TTL).await.unwrap();
    assert!(both.is_degraded());
    assert!(locks.try_lock("b", TTL).await.unwrap().is_none());
    // A waiter is next when it is done.
    let mut next = Box::pin(locks.lock("k", waiting(TTL, LONG)));
    timeout(Duration::from_millis(50), next.as_mut()).await.unwrap_err();
    drop(guard);
    let next = timeout(LONG, next).await.unwrap().unwrap();
    assert!(next.is_degraded());
    bench.server.cont();
    drop((next, permits, both));
    eventually("nothing is left", || bench.keys_left() == 0).await;
}

/// Proves: T1
/// If the attempt was granted after all, it is given back when the guard ends, and not before.
#[tokio::test]
async fn what_was_granted_after_all_is_kept_until_the_guard_ends() {
    let bench = Bench::start().await;
    let locks = manager(&bench, Strategy::Proceed).await;
    bench.strike(Step::Acquire, Action::HoldReply);
    let guard = locks.try_lock("k", TTL).await.unwrap().unwrap();
    assert!(guard.is_degraded());
    assert_eq!(bench.value("k").as_deref(), Some(guard.token().as_str()), "it was granted");
    let other = bench.outsider().await;
    assert!(other.try_lock("k", TTL).await.unwrap().is_none(), "and so protects after all");
    drop(guard);
    bench.free("k").await;
}

/// Proves: T1
/// Retry once: a failure that passes is not seen; one that stays is told after the second try.
#[tokio::test]
async fn retry_once_tries_twice() {
    let bench = Bench::start().await;
    let locks = manager(&bench, Strategy::RetryOnce).await;
    bench.strike(Step::Acquire, Action::HoldReply);
    let guard = locks.try_lock("k", TTL).await.unwrap().unwrap();
    assert!(!guard.is_degraded());
    drop(guard);
    bench.free("k").await;
    bench.proxy.add(Rule::new(Action::HoldReply).matching(bench.is(Step::Acquire)).always());
    let began = Instant::now();
    let outcome = locks.attempt("other", TTL).await.unwrap();
    assert!(matches!(outcome, Outcome::EngineFailed(_)), "{outcome:?}");
    assert!(began.elapsed() < LONG);
}

/// Proves: T1, B3
/// The breaker: an engine that does not answer is not asked by everybody again, protection is back soon after the engine is,
/// and leases that were renewed meanwhile were not given up.
#[tokio::test]
async fn the_breaker_spares_callers_and_gives_up_no_lease() {
    let bench = Bench::start().await;
    let locks = manager(&bench, Strategy::Proceed).await;
    let kept = locks.lock("kept", LockOptions::new(TTL).renew_every(ms(200))).await.unwrap();
    bench.server.stop();
    let began = Instant::now();
    for i in 0..10_000 {
        let outcome = locks.attempt(format!("k{i}"), TTL).await.unwrap();
        assert!(matches!(outcome, Outcome::Unprotected(_)), "{outcome:?}");
    }
    println!("10,000 calls with the engine stopped: {:?}", began.elapsed());
    bench.server.cont();
    let back = Instant::now();
    loop {
        let outcome = locks.attempt("after", TTL).await.unwrap();
        if matches!(outcome, Outcome::Acquired(_)) {
            break;
        }
        assert!(back.elapsed() < LONG);
        drop(outcome);
        tokio::time::sleep(ms(5)).await;
    }
    println!("protected again {:?} after its return", back.elapsed());
    assert!(kept.is_valid());
    assert!(kept.release().await.unwrap());
}

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Proves: T1
/// A refusal that is about one key does not count against the engine: others are served.
#[tokio::test]
async fn a_refusal_of_one_key_opens_no_breaker() {
    let bench = Bench::start().await;
    let locks = manager(&bench, Strategy::FailFast).await;
    bench.server.command(&["RPUSH", "clinch:lock:list", "x"]);
    for _ in 0..20 {
        assert!(locks.try_lock("list", TTL).await.is_err());
    }
    assert!(locks.try_lock("k", TTL).await.unwrap().is_some());
    // And nobody goes on unprotected with a key that is no lock.
    let options = LockOptions::new(TTL).strategy(Strategy::Proceed);
    assert!(matches!(locks.attempt("list", options).await.unwrap(), Outcome::EngineFailed(_)));
}

/// Proves: T1, D13
/// A group goes by the strategy of each of its keys.
#[tokio::test]
async fn a_group_goes_by_the_strategy_of_each() {
    let bench = Bench::start().await;
    let locks = manager(&bench, Strategy::FailFast).await;
    bench.server.stop();
    let plain = LockOptions::new(TTL);
    let outcomes =
        locks.attempt_each([("a", plain.clone()), ("b", plain.strategy(Strategy::Proceed))]).await.unwrap();
    assert!(matches!(outcomes[..], [Outcome::EngineFailed(_), Outcome::Unprotected(_)]), "{outcomes:?}");
    bench.server.cont();
    drop(outcomes);
    eventually("nothing is left", || bench.keys_left() == 0).await;
}

/// Proves: T1
/// One that went on unprotected stays what it is when the engine is back, although the engine knows nothing of it.
#[tokio::test]
async fn unprotected_stays_unprotected_when_the_engine_is_back() {
    let bench = Bench::start().await;
    let locks = manager(&bench, Strategy::Proceed).await;
    bench.proxy.refuse(true).await;
    bench.proxy.cut_all().await;
    let guard = locks.try_lock("k", TTL).await.unwrap().unwrap();
    assert!(guard.is_degraded());
    bench.proxy.refuse(false).await;
    loop {
        match locks.attempt("other", TTL).await.unwrap() {
            Outcome::Acquired(_) => break,
            other => drop(other),
        }
    }
    for _ in 0..20 {
        assert!(locks.try_lock("k", TTL).await.unwrap().is_none());
        tokio::task::yield_now().await;
    }
    assert!(timeout(Duration::from_millis(100), guard.lost()).await.is_err(), "it is not looked up");
    assert!(guard.is_valid());
}
