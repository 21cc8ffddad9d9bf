//! The manager in the simulated world: what each fault does to it, and that a seed replays.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use clinch::store::Effect;
use clinch::{DeniedBy, Error, LockManager, LockOptions, Loss, Outcome, Sources};
use clinch_testkit::history::{Call, Event, FaultKind, History, Observed, Step, check};
use clinch_testkit::sim::workload::{Setup, on_paused_clock, run};
use clinch_testkit::sim::{CALL_LIMIT, Chance, Faults, Sim};
use tokio::time::{Instant, sleep, timeout};

const TTL: Duration = Duration::from_secs(30);
/// Longer than any request and its reply are on their way where no fault strikes.
const ROUND_TRIP: Duration = Duration::from_millis(400);

fn manager(sim: &Sim, client: usize) -> LockManager {
    let store = Arc::new(Observed::new(sim.store(client), sim.recorder(), client));
    let seed = u64::try_from(client).unwrap();
    LockManager::builder()
        .sources(Sources::seeded(seed))
        .host(format!("sim-{client}"))
        .store(store)
        .build()
        .unwrap()
}

fn steps(history: &History, wanted: Call) -> Vec<(Duration, Step)> {
    let steps = history.entries.iter().filter_map(|entry| match &entry.event {
        Event::Step(step) if step.call == wanted => Some((entry.at, step.clone())),
        _ => None,
    });
    steps.collect()
}

fn assert_nothing_wrong(sim: &Sim) {
    let violations = check(&sim.history());
    assert!(violations.is_empty(), "{violations:#?}\n{}", sim.history());
}

#[test]
fn a_seed_replays_byte_for_byte() {
    let mut different = 0;
    for seed in 0..30 {
        let (first, second) =
            (run(seed, &Setup::of_seed(seed)).unwrap(), run(seed, &Setup::of_seed(seed)).unwrap());
        assert_eq!(first.history.to_string(), second.history.to_string(), "seed {seed}");
        different += usize::from(
            first.history.to_string() != run(seed + 50, &Setup::of_seed(seed)).unwrap().history.to_string(),
        );
    }
    assert_eq!(different, 30, "another seed is another history");
}

#[test]
fn no_rule_is_broken_whatever_fails() {
    let mut struck: BTreeMap<FaultKind, u64> = BTreeMap::new();
    let mut report = String::new();
    for seed in 1000..1060 {
        let run = run(seed, &Setup::of_seed(seed)).unwrap();
        run.faults.iter().for_each(|(kind, times)| *struck.entry(*kind).or_default() += times);
        for violation in check(&run.history) {
            report += &format!("seed {seed}: {violation}\n");
        }
    }
    assert!(report.is_empty(), "\n{report}");
    // All kinds of faults that one server knows did happen, many times.
    let kinds = FaultKind::ALL.len() - [FaultKind::Failover, FaultKind::Lag].len();
    assert!(struck.len() == kinds && struck.values().all(|times| *times > 5), "{struck:?}");
}

/// Fault: 2
#[test]
fn a_lost_request_is_unknown_and_can_be_tried_again() {
    on_paused_clock(async {
        let sim = Sim::new(1, Faults::NONE);
        let locks = manager(&sim, 0);
        sim.order(Call::Acquire, FaultKind::LostRequest);

        let error = locks.try_lock("k", TTL).await.unwrap_err();
        assert!(
            matches!(&error, Error::Engine { cause: source, .. } if source.effect() == Effect::Unknown),
            "{error}"
        );
        assert!(error.is_retryable());

        let guard = locks.try_lock("k", TTL).await.unwrap();
        assert!(guard.expect("nothing is in the way").release().await.unwrap());
        assert!(sim.live().is_empty());
        assert_nothing_wrong(&sim);
    })
    .unwrap();
}

/// Fault: 3
#[test]
fn requests_that_arrive_twice_change_nothing_the_second_time() {
    on_paused_clock(async {
        let sim = Sim::new(2, Faults::NONE);
        let locks = manager(&sim, 0);
        for call in [Call::Acquire, Call::Renew, Call::Release] {
            sim.order(call, FaultKind::Duplicate);
        }
        let options = LockOptions::new(TTL).renew_every(Duration::from_secs(10));
        let guard = locks.lock("k", options).await.unwrap();
        sleep(Duration::from_secs(11)).await;
        assert!(guard.is_valid());
        assert!(guard.release().await.unwrap(), "the first copy gave it back, and its answer counts");
        sleep(ROUND_TRIP).await;

        let history = sim.history();
        for call in [Call::Acquire, Call::Renew, Call::Release] {
            let steps = steps(&history, call);
            assert_eq!(steps.len(), 2, "{call:?}\n{history}");
            assert!(steps[0].1.changed(), "the first copy works");
            assert!(!steps[1].1.changed(), "the second does not");
        }
        assert!(sim.live().is_empty());
        assert_nothing_wrong(&sim);
    })
    .unwrap();
}

/// Fault: 3
#[test]
fn a_client_that_sends_again_by_itself_gets_its_own_grant_back() {
    on_paused_clock(async {
        let sim = Sim::new(3, Faults::NONE);
        let locks = manager(&sim, 0);
        for fault in [FaultKind::LostReply, FaultKind::Cut, FaultKind::Resent] {
            sim.order(Call::Acquire, fault);
        }
        let guard = locks.try_lock("k", TTL).await.unwrap().expect("the first copy's grant is ours");
        let steps = steps(&sim.history(), Call::Acquire);
        assert_eq!(steps.len(), 2);
        assert!(steps[0].1.changed() && !steps[1].1.changed());
        assert!(guard.release().await.unwrap());
        assert!(sim.live().is_empty());
        assert_nothing_wrong(&sim);
    })
    .unwrap();
}

/// Fault: 5
#[test]
fn a_grant_that_lands_after_the_time_out_is_taken_back_at_once() {
    on_paused_clock(async {
        let sim = Sim::new(4, Faults::NONE);
        let (locks, others) = (manager(&sim, 0), manager(&sim, 1));
        let began = sim.recorder().start();
        sim.order(Call::Acquire, FaultKind::Late);
        assert!(locks.try_lock("k", TTL).await.is_err());
        let gave_up = began.elapsed();
        assert_eq!(gave_up.as_secs(), CALL_LIMIT.as_secs());

        sleep(Duration::from_secs(4)).await;
        let granted = steps(&sim.history(), Call::Acquire);
        assert!(granted[0].0 > gave_up && granted[0].1.changed(), "it did land, and was granted");
        assert!(others.try_lock("k", TTL).await.unwrap().is_some(), "long before its TTL the key is free");
        assert_nothing_wrong(&sim);
    })
    .unwrap();
}

/// Fault: 5
#[test]
fn a_grant_that_is_overtaken_by_its_release_is_found_and_taken_back() {
    on_paused_clock(async {
        let faults = Faults { straggler: Chance::per_mille(1000), ..Faults::NONE };
        let sim = Sim::new(5, faults);
        let (locks, others) = (manager(&sim, 0), manager(&sim, 1));
        sim.order(Call::Acquire, FaultKind::Late);
        let attempt = timeout(Duration::from_millis(50), locks.try_lock("k", TTL));
        assert!(attempt.await.is_err(), "its future is dropped with the request on its way");
        sim.cut(0);
        sleep(Duration::from_secs(6)).await;

        let history = sim.history();
        let granted = steps(&history, Call::Acquire)[0].0;
        let releases = steps(&history, Call::Release);
        assert!(releases.iter().any(|(at, _)| *at < granted), "one release came before the grant\n{history}");
        assert!(others.try_lock("k", TTL).await.unwrap().is_some(), "and one after it\n{history}");
        assert_nothing_wrong(&sim);
    })
    .unwrap();
}

/// Fault: 13
/// Proves: B4
#[test]
fn a_dropped_acquire_leaves_nothing_behind_wherever_it_was() {
    for patience_ms in 0..40 {
        on_paused_clock(async {
            let sim = Sim::new(6, Faults::NONE);
            let (locks, others) = (manager(&sim, 0), manager(&sim, 1));
            let attempt = timeout(Duration::from_millis(patience_ms), locks.try_lock("k", TTL)).await;
            drop(attempt);
            sleep(ROUND_TRIP * 2).await;
            assert!(sim.live().is_empty(), "dropped after {patience_ms} ms\n{}", sim.history());
            assert!(others.try_lock("k", TTL).await.unwrap().is_some());
            assert!(locks.shutdown(CALL_LIMIT).await.is_clean());
            assert_nothing_wrong(&sim);
        })
        .unwrap();
    }
}

/// Fault: 22
#[test]
fn a_restart_without_memory_is_seen_at_the_next_renewal() {
    on_paused_clock(async {
        let sim = Sim::new(7, Faults::NONE);
        let (locks, others) = (manager(&sim, 0), manager(&sim, 1));
        let every = Duration::from_secs(10);
        let guard = locks.lock("k", LockOptions::new(TTL).renew_every(every)).await.unwrap();
        sleep(Duration::from_secs(3)).await;
        sim.restart(false);
        sleep(Duration::from_secs(1)).await;
        assert!(guard.is_valid(), "nobody can know it yet");
        assert!(others.try_lock("k", TTL).await.unwrap().is_some(), "the lock is lost");

        assert_eq!(guard.lost().await, Loss::TakenOver);
        let noticed = sim.recorder().start().elapsed();
        assert!(noticed < every + ROUND_TRIP * 2, "{noticed:?}");
        assert!(!guard.is_valid() && !guard.release().await.unwrap());
        assert_nothing_wrong(&sim);
    })
    .unwrap();
}

/// Fault: 36
#[test]
fn a_lost_wake_up_is_found_at_the_next_poll() {
    on_paused_clock(async {
        let sim = Sim::new(8, Faults { lost_wakeup: Chance::per_mille(1000), ..Faults::NONE });
        let (locks, others) = (manager(&sim, 0), manager(&sim, 1));
        let guard = others.lock("k", TTL).await.unwrap();
        let poll = Duration::from_secs(2);
        let waiter = tokio::spawn(async move {
            let options = LockOptions::new(TTL).wait(Duration::from_secs(20)).retry_interval(poll);
            let guard = locks.lock("k", options).await;
            (guard.map(|guard| guard.is_valid()), Instant::now())
        });
        sleep(Duration::from_secs(5)).await;
        assert!(guard.release().await.unwrap());
        let released = Instant::now();
        let (granted, at) = waiter.await.unwrap();
        assert!(granted.unwrap());
        assert!(sim.counters()[&FaultKind::LostWakeup] > 0, "the wake-up was lost");
        // A poll with its jitter, and one call.
        assert!(at - released <= poll * 3 / 2 + ROUND_TRIP, "{:?}", at - released);
        assert_nothing_wrong(&sim);
    })
    .unwrap();
}

#[test]
fn a_try_that_shares_a_call_ends_within_two_calls_limits() {
    on_paused_clock(async {
        let sim = Sim::new(9, Faults::NONE);
        let locks = manager(&sim, 0);
        sim.order(Call::Acquire, FaultKind::LostRequest);
        sim.order(Call::Acquire, FaultKind::LostRequest);
        let began = Instant::now();
        // The second shares the first one's call, waits for what that may have left, and then asks itself.
        let (first, second) = tokio::join!(locks.try_lock("k", TTL), locks.try_lock("k", TTL));
        assert!(first.is_err() && second.is_err());
        assert!(began.elapsed() <= CALL_LIMIT * 2, "{:?}\n{}", began.elapsed(), sim.history());
    })
    .unwrap();
}

#[test]
fn a_wait_ends_by_its_deadline_and_one_calls_limit() {
    on_paused_clock(async {
        let sim = Sim::new(10, Faults::NONE);
        let locks = manager(&sim, 0);
        sim.order(Call::Acquire, FaultKind::LostRequest);
        sim.order(Call::Acquire, FaultKind::LostRequest);
        let cut = async {
            sleep(CALL_LIMIT * 9 / 10).await;
            sim.cut(0);
        };
        let wait = Duration::from_millis(50);
        let began = Instant::now();
        let attempt = async {
            let denied = locks.try_lock("k", LockOptions::new(TTL).wait(wait)).await;
            (denied, began.elapsed())
        };
        let ((answer, took), ()) = tokio::join!(attempt, cut);
        assert!(answer.is_err());
        assert!(took <= wait + CALL_LIMIT, "{took:?}\n{}", sim.history());
    })
    .unwrap();
}

/// Proves: B4
#[test]
fn a_shutdown_is_not_clean_while_a_call_is_in_flight() {
    for after_ms in 0..20 {
        on_paused_clock(async {
            let sim = Sim::new(11, Faults::NONE);
            let locks = manager(&sim, 0);
            let attempt = async {
                match locks.try_lock("k", TTL).await {
                    Ok(Some(guard)) => drop(guard.release().await),
                    Ok(None) => panic!("nobody else is here"),
                    Err(error) => assert!(matches!(error, Error::ShutDown { .. }), "{error}"),
                }
            };
            let shutdown = async {
                sleep(Duration::from_millis(after_ms)).await;
                locks.shutdown(CALL_LIMIT).await
            };
            let ((), left) = tokio::join!(attempt, shutdown);
            sleep(ROUND_TRIP).await;
            let live = sim.live();
            assert!(
                !left.is_clean() || live.is_empty(),
                "shut down after {after_ms} ms: {left:?}\n{}",
                sim.history()
            );
        })
        .unwrap();
    }
}

#[test]
fn a_revocation_that_overtakes_the_grant_is_not_lost() {
    let mut overtaken = 0;
    for seed in 0..100 {
        on_paused_clock(async {
            let sim = Sim::new(seed, Faults::NONE);
            let (locks, others) = (manager(&sim, 0), manager(&sim, 1));
            others.ping().await.unwrap();
            // Listens to revocations, as every manager does whose guards are watched.
            let watched = locks.lock("another", TTL).await.unwrap();
            let _ = timeout(ROUND_TRIP, watched.lost()).await;
            let acquire = async { (locks.attempt("k", TTL).await.unwrap(), Instant::now()) };
            let revoke = async {
                while sim.live().len() < 2 {
                    sleep(Duration::from_millis(1)).await;
                }
                let holder = others.inspect("k").await.unwrap().remove(0);
                (others.force_release(&holder).await.unwrap(), Instant::now())
            };
            let ((outcome, granted), (revoked, at)) = tokio::join!(acquire, revoke);
            assert!(revoked);
            overtaken += usize::from(at < granted);
            match outcome {
                Outcome::Acquired(guard) => {
                    let lost = timeout(ROUND_TRIP, guard.lost()).await;
                    assert_eq!(lost, Ok(Loss::Revoked), "seed {seed}\n{}", sim.history());
                }
                Outcome::DeniedByLock(denied) => assert_eq!(denied.cause, DeniedBy::Revoked, "seed {seed}"),
                other => panic!("{other:?}"),
            }
        })
        .unwrap();
    }
    assert!(overtaken > 0, "it did happen");
}
