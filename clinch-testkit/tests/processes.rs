//! What takes more than one process.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test stops at the first surprise")]

use std::process::Command;

fn testkit(arguments: &[&str]) -> (bool, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_clinch-testkit")).args(arguments).output().unwrap();
    let text =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    println!("{text}");
    (output.status.success(), text)
}

/// Proves: L7, L8
/// 4 processes × 250 tasks increment a number in a file with nothing but one lock on Redis between them.
#[test]
fn four_processes_count_to_a_thousand() {
    let (holds, text) = testkit(&["counter"]);
    assert!(holds && text.contains("1000 of 1000"), "{text}");
}

/// A waiter in another process is woken by push: its poll is 10 s away and the holder's expiry 60 s.
#[test]
fn a_waiter_in_another_process_is_woken_by_push() {
    // Ten hand-overs by polling would take 100 s; how fast they are is the command's business, not a test's.
    let (holds, text) = testkit(&["handover", "--count", "10", "--p99-ms", "9000"]);
    assert!(holds, "{text}");
}

/// Proves: B4
/// Lock cycles do not grow the process: released, dropped, denied and renewed ones. (The full five million are a
/// command of their own.)
#[test]
fn lock_cycles_do_not_grow_the_process() {
    let (holds, text) = testkit(&["cycles", "--count", "200000"]);
    assert!(holds, "{text}");
    let (holds, text) = testkit(&["cycles", "--store", "redis", "--count", "20000"]);
    assert!(holds, "{text}");
    let (holds, text) = testkit(&["cycles", "--store", "sqlite", "--count", "20000"]);
    assert!(holds, "{text}");
}
