//! The release worker: every guard's end is one in the engine, and a shutdown misses none.

use std::time::Duration;

use clinch::{Error, LockOptions, Loss};
use clinch_shuttle::{Clock, Engine, Manner, TTL, block_on, check, join, manager, pause, spawn};

use super::{all_is_given_back, waits};

/// Guards that are dropped and locks that are taken beside a shutdown: what it calls clean is clean.
pub(super) fn beside_a_shutdown(manner: Manner) {
    let engine = Engine::new(manner);
    let locks = manager(&engine, 1);
    let users = ["a", "a", "b"].map(|key| {
        let locks = locks.clone();
        spawn(async move {
            for _ in 0..2 {
                match locks.lock(key, waits()).await {
                    Ok(guard) => drop(guard),
                    Err(Error::ShutDown { .. }) => return,
                    Err(error) => panic!("{error}"),
                }
            }
        })
    });
    let left = block_on(locks.shutdown(TTL));
    // Of guards that live on it knows only that.
    if left.is_clean() {
        assert_eq!(engine.memory().len(), 0, "held after a clean shutdown");
    }
    join(users);
    all_is_given_back(&[locks], &engine);
}

/// Proves: B4
/// Fault: 14
#[test]
fn a_shutdown_misses_no_lease() {
    check(|| beside_a_shutdown(Manner::Prompt));
}

/// Proves: B4
/// Fault: 14
#[test]
fn a_shutdown_misses_no_lease_of_a_slow_engine() {
    check(|| beside_a_shutdown(Manner::Slow));
}

/// Proves: B4
/// Fault: 15
#[test]
fn guards_that_outlive_their_manager_are_given_back() {
    check(|| {
        let engine = Engine::new(Manner::Slow);
        let locks = manager(&engine, 1);
        let guards = ["a", "b", "c"].map(|key| block_on(locks.lock(key, TTL)).unwrap());
        let threads = guards.map(|guard| spawn(async move { drop(guard) }));
        drop(locks);
        join(threads);
        // Who ended the background task too early would let this wait for ever.
        block_on(engine.emptied());
    });
}

/// Proves: B4, B13
#[test]
fn a_force_release_is_heard_whatever_it_meets() {
    check(|| {
        let engine = Engine::new(Manner::Slow);
        let locks = manager(&engine, 1);
        let guard = block_on(locks.lock("a", TTL)).unwrap();
        let lease = guard.lease();
        let watcher = spawn(async move {
            let loss = lease.lost().await;
            assert!(matches!(loss, Loss::Revoked | Loss::TakenOver | Loss::Released), "{loss:?}");
        });
        let forces = locks.clone();
        let forcer = spawn(async move {
            if let Some(holder) = forces.inspect("a").await.unwrap().first() {
                forces.force_release(holder).await.unwrap();
            }
        });
        let next = locks.clone();
        let next = spawn(async move { drop(next.lock("a", waits()).await.unwrap()) });
        let holder = spawn(async move {
            pause().await;
            drop(guard);
        });
        join([watcher, forcer, next, holder]);
        all_is_given_back(&[locks], &engine);
    });
}

/// Short leases, renewed or passed on after a renewal, while the clock goes on.
///
/// Proves: B3, B4
#[test]
fn renewals_and_passes_of_short_leases_end_with_their_guards() {
    check(|| {
        let engine = Engine::new(Manner::Slow);
        let locks = manager(&engine, 1);
        let clock = Clock::start();
        let options = LockOptions::new(TTL).wait(TTL).renew_every(Duration::from_millis(10));
        // It may have run out on the engine before it was given back: nobody is called then.
        let short = LockOptions::new(Duration::from_millis(30)).wait(TTL);
        join([options.clone(), options, short.clone(), short].map(|options| {
            let locks = locks.clone();
            spawn(async move {
                let guard = locks.lock("a", options).await.unwrap();
                pause().await;
                drop(guard);
            })
        }));
        let left = block_on(locks.shutdown(TTL));
        assert!(left.is_clean(), "{left:?}");
        drop(clock);
    });
}
