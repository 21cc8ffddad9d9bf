//! Many processes on one SQLite file, with no server at all: short runs of the commands that check them.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test stops at the first surprise")]

use std::process::Command;

fn on_sqlite(arguments: &[&str]) -> (bool, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_clinch-testkit"))
        .args(arguments)
        .args(["--store", "sqlite"])
        .output()
        .unwrap();
    let text =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    println!("{text}");
    (output.status.success(), text)
}

/// Fault: 46
/// 50 processes at once, which also make the file, increment a number with nothing but one lock between them: the sum is exact.
#[test]
fn fifty_processes_count_exactly() {
    let (holds, text) = on_sqlite(&["counter", "--processes", "50", "--tasks", "10"]);
    assert!(holds && text.contains("500 of 500"), "{text}");
}

/// Proves: T4
/// Fault: 9, 11, 39
/// Processes are killed and stopped while they hold permits of a limit of seven: never are more than seven valid, and in
/// the end exactly seven can be taken.
#[test]
fn never_more_permits_than_the_limit() {
    let (holds, text) = on_sqlite(&["permits", "--seconds", "5"]);
    assert!(holds && text.contains("most valid at once: 7 of 7"), "{text}");
}

/// A waiter in another process is woken by push: its poll is 10 s away and the holder's expiry 60 s.
#[test]
fn a_waiter_in_another_process_is_woken_by_push() {
    let (holds, text) = on_sqlite(&["handover", "--count", "10", "--p99-ms", "9000"]);
    assert!(holds, "{text}");
}

/// Proves: B5
/// Leases are passed on inside a process, and still the other process gets its share; and no two hold the key at a time.
#[test]
fn two_processes_share_a_key_that_both_want_all_the_time() {
    let (holds, text) = on_sqlite(&["contend", "--seconds", "2"]);
    assert!(holds && text.contains(" 0 overlaps"), "{text}");
}

/// Proves: B7
/// Fault: 11
/// Order across processes is that of arrival, and one that died at the head of the queue is passed over long before the TTL.
#[test]
fn a_fair_key_keeps_its_order_across_processes() {
    let (holds, text) = on_sqlite(&["fair", "--waiters", "5", "--deaths", "1", "--most-ms", "5000"]);
    assert!(holds, "{text}");
}

/// Proves: B7
#[test]
fn a_long_queue_is_served_in_order() {
    let (holds, text) = on_sqlite(&["queue", "--waiters", "100"]);
    assert!(holds, "{text}");
}
