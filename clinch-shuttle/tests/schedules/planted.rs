//! Bugs that only some schedules show, planted into the engine and into the manager's notifications: the scenarios that
//! pass without them find each.

use clinch_shuttle::{Manner, find};

use super::{locks, processes, releases, waits};

#[test]
fn a_store_that_checks_and_then_acts_is_found() {
    let found = find(|| processes::lines(Manner::ChecksThenActs, false));
    assert!(found.contains("inside where 1 may be"), "{found}");
}

#[test]
fn a_store_that_listens_late_is_found() {
    let found = find(|| processes::by_push(Manner::ListensLate));
    assert!(found.contains("deadlock"), "{found}");
}

#[test]
fn a_release_that_is_answered_too_early_is_found() {
    let found = find(|| releases::beside_a_shutdown(Manner::ReleasesLater));
    assert!(found.contains("held after a clean shutdown"), "{found}");
}

#[test]
fn calls_that_are_forgotten_are_found() {
    clinch::forget_calls(true);
    let found = find(|| locks::one_after_the_other(Manner::Prompt, &waits()));
    clinch::forget_calls(false);
    assert!(found.contains("deadlock"), "{found}");
}
