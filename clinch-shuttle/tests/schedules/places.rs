//! Keys with several places, several keys at once, and the engine's own queue.
//!
//! Where the engine denies a line of this process, and another line or the next one of the same comes to hear of a release,
//! it may be taken for another process, for which the line steps back for 10 ms: there the clock has to go on.

use std::sync::Arc;

use clinch::LockOptions;
use clinch_shuttle::{Clock, Engine, Manner, Room, TTL, check, join, manager, spawn};
use tokio::sync::Notify;

use super::{all_is_given_back, unless, visit, waits};

fn permits(manner: Manner) {
    let engine = Engine::new(manner);
    let locks = manager(&engine, 1);
    let room = Room::new(2);
    let clock = Clock::start();
    let limit = locks.limit("a", 2).unwrap();
    let cancel = Arc::new(Notify::new());
    let threads = (0..4).map(|i| {
        let (limit, room, cancel) = (limit.clone(), room.clone(), cancel.clone());
        let visits = async move {
            for _ in 0..2 {
                let permit = limit.acquire(waits()).await.unwrap();
                room.visit();
                drop(permit);
            }
        };
        spawn(async move {
            if i == 0 {
                unless(cancel, visits).await.unwrap_or_default();
            } else {
                visits.await;
            }
        })
    });
    let threads: Vec<_> = threads.collect();
    cancel.notify_one();
    join(threads);
    drop(clock);
    assert!(room.visits() >= 6);
    all_is_given_back(&[locks], &engine);
}

/// Proves: T4, B4
#[test]
fn never_more_than_n_have_a_permit() {
    check(|| permits(Manner::Prompt));
}

/// Proves: T4, B4
#[test]
fn never_more_than_n_have_a_permit_of_a_slow_engine() {
    check(|| permits(Manner::Slow));
}

/// Proves: B7
#[test]
fn writers_and_readers_all_have_their_turn() {
    check(|| {
        let engine = Engine::new(Manner::Slow);
        let locks = manager(&engine, 1);
        // A writer takes all of the room.
        let (writers, readers) = (Room::new(1), Room::new(2));
        let clock = Clock::start();
        let read = |_| spawn(visit(locks.clone(), waits().shared(), readers.clone(), 2, true));
        let write = |_| {
            let (locks, writers, readers) = (locks.clone(), writers.clone(), readers.clone());
            spawn(async move {
                let guard = locks.lock("a", waits()).await.unwrap();
                writers.visit();
                assert!(readers.is_empty(), "a reader beside a writer");
                drop(guard);
            })
        };
        join((0..2).map(read).chain((0..2).map(write)));
        drop(clock);
        all_is_given_back(&[locks], &engine);
    });
}

/// Proves: B7
#[test]
fn several_keys_in_any_order_lock_nobody_out() {
    check(|| {
        let engine = Engine::new(Manner::Slow);
        let locks = manager(&engine, 1);
        let rooms = [Room::new(1), Room::new(1)];
        let both = [["a", "b"], ["b", "a"]].map(|keys| {
            let (locks, rooms) = (locks.clone(), rooms.clone());
            spawn(async move {
                for _ in 0..2 {
                    let guard = locks.lock_all(keys, waits()).await.unwrap();
                    rooms.iter().for_each(|room| room.visit());
                    drop(guard);
                }
            })
        });
        let one = ["a", "b"].into_iter().zip(rooms).map(|(key, room)| {
            let locks = locks.clone();
            spawn(async move {
                let guard = locks.lock(key, waits()).await.unwrap();
                room.visit();
                guard.release().await.unwrap();
            })
        });
        join(both.into_iter().chain(one.collect::<Vec<_>>()));
        all_is_given_back(&[locks], &engine);
    });
}

/// Proves: T3, T4
#[test]
fn a_lock_with_a_limit_takes_both_or_neither() {
    check(|| {
        let engine = Engine::new(Manner::Slow);
        let locks = manager(&engine, 1);
        let limit = locks.limit("few", 1).unwrap();
        let room = Room::new(1);
        join(["a", "b", "a"].map(|key| {
            let (locks, room) = (locks.clone(), room.clone());
            let options = waits().limited_by(&limit, TTL);
            spawn(async move {
                let guard = locks.lock(key, options).await.unwrap();
                room.visit();
                drop(guard);
            })
        }));
        assert_eq!(room.visits(), 3);
        all_is_given_back(&[locks], &engine);
    });
}

/// Proves: B7
#[test]
fn one_that_leaves_a_fair_queue_holds_up_nobody() {
    check(|| {
        let engine = Engine::new(Manner::Slow);
        let locks = manager(&engine, 1);
        let room = Room::new(1);
        let fair: LockOptions = waits().fair();
        let cancel = Arc::new(Notify::new());
        let stay = (0..2).map(|i| spawn(visit(locks.clone(), fair.clone(), room.clone(), 2, i == 0)));
        let threads: Vec<_> = stay.collect();
        let leaves = {
            let (visit, cancel) = (visit(locks.clone(), fair, room.clone(), 1, false), cancel.clone());
            spawn(async move { unless(cancel, visit).await.unwrap_or_default() })
        };
        cancel.notify_one();
        join(threads.into_iter().chain([leaves]));
        assert!(room.visits() >= 4);
        all_is_given_back(&[locks], &engine);
    });
}
