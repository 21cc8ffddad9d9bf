//! Limits, queues, hand-overs, outages and renewals on a real Redis: short runs of the commands that check them.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test stops at the first surprise")]

use std::process::Command;

fn testkit(arguments: &[&str]) -> (bool, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_clinch-testkit")).args(arguments).output().unwrap();
    let text =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    println!("{text}");
    (output.status.success(), text)
}

/// Proves: T4
/// Fault: 9, 11, 39
/// Processes are killed and stopped while they hold permits of a limit of seven: never are more than seven valid, and in
/// the end exactly seven can be taken.
#[test]
fn never_more_permits_than_the_limit() {
    let (holds, text) = testkit(&["permits", "--seconds", "5"]);
    assert!(holds && text.contains("most valid at once: 7 of 7"), "{text}");
}

/// Holders that believe in a permit beyond its validity are found out, so the check above can fail.
#[test]
fn permits_that_are_believed_in_for_too_long_are_found() {
    let (holds, text) = testkit(&["permits", "--seconds", "5", "--gullible"]);
    assert!(!holds && !text.contains("panicked"), "{text}");
    let most = text.split("most valid at once: ").nth(1).and_then(|rest| rest.split(' ').next());
    assert!(most.is_some_and(|most| most.parse::<u32>().unwrap() > 7), "{text}");
}

/// Proves: B5
/// Leases are passed on inside a process, and still the other process gets its share.
#[test]
fn two_processes_share_a_key_that_both_want_all_the_time() {
    let (holds, text) = testkit(&["contend", "--seconds", "2"]);
    assert!(holds, "{text}");
}

/// Proves: B7
/// Fault: 11
/// Order across processes is that of arrival. One that died at the head of the queue is passed over long before the TTL of
/// 30 s; how long exactly is the command's business, not a test's.
#[test]
fn a_fair_key_keeps_its_order_across_processes() {
    let (holds, text) = testkit(&["fair", "--waiters", "5", "--deaths", "1", "--most-ms", "5000"]);
    assert!(holds, "{text}");
}

/// Proves: B7
#[test]
fn a_long_queue_is_served_in_order() {
    let (holds, text) = testkit(&["queue", "--waiters", "200"]);
    assert!(holds, "{text}");
}

/// Proves: D10
/// Fault: 22
/// Thousands of tries without an answering engine take hardly longer than the first. Renewed leases survive an engine that
/// was only stopped, and learn that one lost its memory.
#[test]
fn an_outage_costs_little_and_is_over_soon() {
    let (holds, text) = testkit(&["breaker"]);
    assert!(holds, "{text}");
}

/// The same with all tries on one key, whose first one is not given back before the engine answers.
#[test]
fn an_outage_costs_little_on_one_key() {
    let (holds, text) = testkit(&["breaker", "--one-key"]);
    assert!(holds, "{text}");
}

/// Proves: B3
#[test]
fn many_leases_are_renewed_and_none_is_lost() {
    let (holds, text) = testkit(&["renewals", "--leases", "2000", "--ttl", "3"]);
    assert!(holds, "{text}");
}
