//! One key of one process: the local line, its roles, and the passing of leases.

use std::sync::Arc;

use clinch::{Fence, LockOptions};
use clinch_shuttle::{Engine, Manner, Room, TTL, block_on, check, join, manager, spawn};
use shuttle::sync::Mutex;
use tokio::sync::Notify;

use super::{all_is_given_back, unless, visit, waits};

/// Three threads, two rounds each.
pub(super) fn one_after_the_other(manner: Manner, options: &LockOptions) {
    let engine = Engine::new(manner);
    let locks = manager(&engine, 1);
    let room = Room::new(1);
    join((0..3).map(|i| spawn(visit(locks.clone(), options.clone(), room.clone(), 2, i % 2 == 0))));
    assert_eq!(room.visits(), 6);
    all_is_given_back(&[locks], &engine);
}

/// Proves: L2, B4, B5
#[test]
fn waiters_are_in_one_after_the_other() {
    check(|| one_after_the_other(Manner::Prompt, &waits()));
}

/// Proves: L2, B4, B5
#[test]
fn waiters_are_in_one_after_the_other_on_a_slow_engine() {
    check(|| one_after_the_other(Manner::Slow, &waits()));
}

/// Proves: L2, B4
#[test]
fn waiters_that_pass_nothing_on_are_in_one_after_the_other() {
    check(|| one_after_the_other(Manner::Slow, &waits().no_local_pass()));
}

/// Proves: B2
#[test]
fn fences_rise_in_the_order_in_which_they_are_in() {
    check(|| {
        let engine = Engine::new(Manner::Slow);
        let locks = manager(&engine, 1);
        let last = Arc::new(Mutex::new(Fence::new(0)));
        join((0..3).map(|_| {
            let (locks, last) = (locks.clone(), last.clone());
            spawn(async move {
                for _ in 0..2 {
                    let guard = locks.lock("a", waits().fenced()).await.unwrap();
                    let (fence, mut last) = (guard.fence().unwrap(), last.lock().unwrap());
                    assert!(fence > *last, "{fence} after {}", *last);
                    *last = fence;
                }
            })
        }));
        all_is_given_back(&[locks], &engine);
    });
}

/// Tries beside one that waits: nobody is left without an answer, and somebody is in.
fn tries(manner: Manner) {
    let engine = Engine::new(manner);
    let locks = manager(&engine, 1);
    let room = Room::new(1);
    let waiter = spawn(visit(locks.clone(), waits(), room.clone(), 1, false));
    join((0..3).map(|_| {
        let (locks, room) = (locks.clone(), room.clone());
        spawn(async move {
            for _ in 0..2 {
                if let Some(guard) = locks.try_lock("a", TTL).await.unwrap() {
                    room.visit();
                    drop(guard);
                }
            }
        })
    }));
    join([waiter]);
    assert!(block_on(locks.try_lock("a", TTL)).unwrap().is_some(), "all have let it go");
    all_is_given_back(&[locks], &engine);
}

/// Proves: L1, B4
#[test]
fn tries_have_an_answer() {
    check(|| tries(Manner::Prompt));
}

/// Proves: L1, B4
#[test]
fn tries_have_an_answer_of_a_slow_engine() {
    check(|| tries(Manner::Slow));
}

/// Proves: B4
#[test]
fn who_lets_go_of_a_lock_can_try_it_at_once() {
    check(|| {
        let engine = Engine::new(Manner::Slow);
        let locks = manager(&engine, 1);
        join(["a", "b", "c"].map(|key| {
            let locks = locks.clone();
            spawn(async move {
                for _ in 0..3 {
                    assert!(locks.try_lock(key, TTL).await.unwrap().is_some(), "denied by what was let go");
                }
            })
        }));
        all_is_given_back(&[locks], &engine);
    });
}

/// One that holds, two that wait and may be gone at any moment, one that waits for ever: it is in.
fn cancelled(manner: Manner, options: &LockOptions, others: &LockOptions) {
    let engine = Engine::new(manner);
    let locks = manager(&engine, 1);
    let room = Room::new(1);
    let first = spawn(visit(locks.clone(), options.clone(), room.clone(), 2, false));
    let cancels = [Arc::new(Notify::new()), Arc::new(Notify::new())];
    let quitters = cancels.clone().map(|cancel| {
        let visit = visit(locks.clone(), others.clone(), room.clone(), 2, true);
        spawn(async move { unless(cancel, visit).await.unwrap_or_default() })
    });
    let stays = spawn(visit(locks.clone(), options.clone(), room.clone(), 1, false));
    let canceller = spawn(async move { cancels.iter().for_each(|cancel| cancel.notify_one()) });
    join([first, stays, canceller].into_iter().chain(quitters));
    assert!(room.visits() >= 3);
    all_is_given_back(&[locks], &engine);
}

/// Proves: B4, B5
/// Fault: 13
#[test]
fn a_dropped_waiter_swallows_nothing() {
    check(|| cancelled(Manner::Prompt, &waits(), &waits()));
}

/// Proves: B4, B5
/// Fault: 13
#[test]
fn a_waiter_that_is_dropped_in_mid_call_swallows_nothing() {
    check(|| cancelled(Manner::Slow, &waits(), &waits()));
}

/// The grant of the dropped one is not what the next one wants: it is out of the way first.
///
/// Proves: B4
/// Fault: 13
#[test]
fn what_a_dropped_waiter_was_granted_is_taken_back() {
    check(|| cancelled(Manner::Slow, &waits(), &LockOptions::new(2 * TTL).wait(TTL).retry_interval(TTL)));
}

/// Proves: B4
/// Fault: 13
#[test]
fn dropped_tries_leave_nothing_behind() {
    check(|| {
        let engine = Engine::new(Manner::Slow);
        let locks = manager(&engine, 1);
        let room = Room::new(1);
        let cancel = Arc::new(Notify::new());
        let tries = (0..3).map(|_| {
            let (locks, cancel, room) = (locks.clone(), cancel.clone(), room.clone());
            spawn(async move {
                let guard = unless(cancel, locks.try_lock("a", TTL)).await;
                if let Some(Ok(Some(guard))) = guard {
                    room.visit();
                    drop(guard);
                }
            })
        });
        let threads: Vec<_> = tries.collect();
        let canceller = spawn(async move { (0..2).for_each(|_| cancel.notify_one()) });
        join(threads.into_iter().chain([canceller]));
        assert!(block_on(locks.try_lock("a", TTL)).unwrap().is_some(), "nobody holds it");
        all_is_given_back(&[locks], &engine);
    });
}
