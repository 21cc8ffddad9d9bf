//! Two managers on one store, as two processes are.

use clinch_shuttle::{Clock, Engine, Manner, Room, check, join, manager, spawn};

use super::{all_is_given_back, visit, waits};

/// One thread each, two rounds; the clock stands still, so only a wake-up tells that it is free.
pub(super) fn by_push(manner: Manner) {
    let engine = Engine::new(manner);
    let processes = [manager(&engine, 1), manager(&engine, 2)];
    let room = Room::new(1);
    // Awaited, so that nobody stands in the line of a process that gives it back: such a line steps back for a time.
    join(processes.clone().map(|locks| spawn(visit(locks, waits(), room.clone(), 2, true))));
    assert_eq!(room.visits(), 4);
    all_is_given_back(&processes, &engine);
}

/// Proves: B5, L9
#[test]
fn a_hand_over_between_processes_needs_no_poll() {
    check(|| by_push(Manner::Prompt));
}

/// Proves: B5, L9
#[test]
fn a_hand_over_between_processes_needs_no_poll_of_a_slow_engine() {
    check(|| by_push(Manner::Slow));
}

/// Two threads each, two rounds, half of which wait for their release or none. Lines that step back for each other need the clock.
pub(super) fn lines(manner: Manner, releases: bool) {
    let engine = Engine::new(manner);
    let processes = [manager(&engine, 1), manager(&engine, 2)];
    let room = Room::new(1);
    let clock = Clock::start();
    let visits =
        |i: usize| spawn(visit(processes[i % 2].clone(), waits(), room.clone(), 2, releases && i < 2));
    join((0..4).map(visits));
    drop(clock);
    assert_eq!(room.visits(), 8);
    all_is_given_back(&processes, &engine);
}

/// Proves: B5
#[test]
fn two_lines_take_turns() {
    check(|| lines(Manner::Prompt, true));
}

/// Proves: B5
#[test]
fn two_lines_take_turns_on_a_slow_engine() {
    check(|| lines(Manner::Slow, true));
}
