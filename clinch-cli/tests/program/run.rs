//! `clinch run` on a real Redis.
//!
//! Commands are small shell scripts. They tell what they do on stdout, line by line, and go on or end when they are
//! told to on stdin; so nothing here waits for a time to pass, except where passing time is what is tested. A script
//! whose test is gone reads the end of its input, and ends.

use std::time::{Duration, Instant};

use clinch::LockManager;
use clinch_testkit::proxy::{Action, FaultProxy, Rule};
use clinch_testkit::server::{RedisServer, Reply};
use rustix::process::Signal;

use crate::common::{self, Clinch, UNTIL_TOLD, clinch, ended, eventually, held, run};

/// Starts a second clinch on `key`, and returns when it was told that somebody has the lock, and waits.
fn waiter(server: &RedisServer, key: &str) -> Clinch {
    let waiter = clinch(server, &["--key", key, "--wait", "60s", "--", "echo", "my turn"]);
    let channel = format!("clinch:wake:{{clinch:lock:{key}}}");
    let subscribed = || match server.command(&["PUBSUB", "NUMSUB", &channel]) {
        Reply::Array(answer) => answer.get(1).and_then(Reply::int) == Some(1),
        other => panic!("{other:?}"),
    };
    eventually("the waiter was denied and wants to be woken", subscribed);
    waiter
}

/// Proves: B12
#[test]
fn the_lock_is_held_exactly_while_the_command_runs() {
    let server = RedisServer::start();
    let mut job = clinch(&server, &["--key", "nightly", "--", "sh", "-c", UNTIL_TOLD]);
    job.expect_line("ready");
    assert_eq!(held(&server), ["clinch:lock:nightly"]);
    let pttl = server.pttl("clinch:lock:nightly");
    assert!((1..=30_000).contains(&pttl), "the TTL is 30 s unless set, not {pttl} ms");

    job.tell("0");

    assert_eq!(job.end(), ended(0, ""));
    assert_eq!(held(&server), [""; 0]);
}

/// Proves: B12
#[test]
fn the_exit_code_is_the_commands() {
    let server = RedisServer::start();
    for (script, code) in
        [("exit 0", 0), ("exit 3", 3), ("exit 255", 255), ("kill -TERM $$", 143), ("kill -KILL $$", 137)]
    {
        assert_eq!(run(&server, &["--key", "k", "--", "sh", "-c", script]), ended(code, ""), "{script}");
        assert_eq!(held(&server), [""; 0]);
    }
}

#[test]
fn the_command_inherits_its_streams_and_is_told_its_key() {
    let server = RedisServer::start();
    let script = "read line; echo \"$line $CLINCH_KEY\"; echo problem >&2";
    let mut job = clinch(&server, &["--key", "{shop}:deploy", "--", "sh", "-c", script]);
    job.tell("deploying");
    job.expect_line("deploying {shop}:deploy");
    assert_eq!(job.end(), ended(0, "problem\n"));
}

/// Proves: B2, B12
#[test]
fn the_command_is_told_a_fence_that_rises_with_every_holder() {
    let server = RedisServer::start();
    let mut last = 0;
    for run_of_it in 1..=3 {
        let ended = run(&server, &["--key", "k", "--", "sh", "-c", "echo \"$CLINCH_FENCE\""]);
        let fence: u64 = ended.stdout.trim().parse().unwrap();
        assert!(fence > last, "run {run_of_it}: {fence} is not above {last}");
        last = fence;
        // The record of it outlives the lock, but not for ever.
        assert!(server.pttl("clinch:fence:{clinch:lock:k}") > 0);
    }
    // Also for a clinch that runs under a clinch: each has its own.
    let clinch = env!("CARGO_BIN_EXE_clinch");
    let inner = format!("{clinch} run --store {} --key j -- sh -c 'echo \"$CLINCH_FENCE\"'", server.url());
    let ended = run(&server, &["--key", "k", "--", "sh", "-c", &format!("echo \"$CLINCH_FENCE\"; {inner}")]);
    let fences: Vec<u64> = ended.stdout.lines().map(|line| line.parse().unwrap()).collect();
    assert_eq!(fences.len(), 2);
    assert!(fences[0] > last && fences[1] > last && fences[0] != fences[1], "{fences:?}");
}

/// Proves: B12
#[test]
fn whoever_comes_second_is_told_who_has_it() {
    let server = RedisServer::start();
    let mut first = clinch(&server, &["--key", "nightly", "--label", "backup", "--", "sh", "-c", UNTIL_TOLD]);
    first.expect_line("ready");

    let second = run(&server, &["--key", "nightly", "--", "echo", "must not run"]);

    assert_eq!((second.code, second.stdout.as_str()), (75, ""));
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let holder = format!("`nightly` is held by {host}:{} (backup) since 20", first.id());
    assert!(second.stderr.starts_with("clinch: lock not acquired: "), "{}", second.stderr);
    assert!(second.stderr.contains(&holder), "{} has no {holder}", second.stderr);
    assert!(
        second.stderr.contains("s left; nothing was run (use --wait to wait for it)"),
        "{}",
        second.stderr
    );
    assert_eq!(second.stderr.lines().count(), 1);
    first.tell("0");
    assert_eq!(first.end(), ended(0, ""));
}

#[test]
fn the_label_is_the_commands_file_name_unless_set() {
    let server = RedisServer::start();
    let mut first = clinch(&server, &["--key", "k", "--", "/bin/sh", "-c", UNTIL_TOLD]);
    first.expect_line("ready");
    let second = run(&server, &["--key", "k", "--", "true"]);
    assert!(second.stderr.contains(&format!(":{} (sh) since ", first.id())), "{}", second.stderr);
}

#[test]
fn who_waits_gets_the_lock_when_it_is_given_back() {
    let server = RedisServer::start();
    let mut first = clinch(&server, &["--key", "k", "--", "sh", "-c", UNTIL_TOLD]);
    first.expect_line("ready");
    let mut second = waiter(&server, "k");

    first.tell("0");

    second.expect_line("my turn");
    assert_eq!(first.end(), ended(0, ""));
    assert_eq!(second.end(), ended(0, ""));
}

#[test]
fn a_wait_that_is_over_says_so() {
    let server = RedisServer::start();
    server.set("clinch:lock:k", "another client's value");
    let late = run(&server, &["--key", "k", "--wait", "1s", "--", "true"]);
    assert_eq!(late.code, 75);
    assert!(late.stderr.contains("waited 1.0s"), "{}", late.stderr);
    assert_eq!(server.get("clinch:lock:k").as_deref(), Some("another client's value"));
}

#[test]
fn a_signal_ends_the_waiting() {
    let server = RedisServer::start();
    let mut first = clinch(&server, &["--key", "k", "--", "sh", "-c", UNTIL_TOLD]);
    first.expect_line("ready");
    let value = server.get("clinch:lock:k");
    for (signal, code) in [(Signal::TERM, 143), (Signal::USR1, 138), (Signal::HUP, 129)] {
        let second = waiter(&server, "k");
        second.signal(signal);
        let second = second.end();
        assert_eq!((second.code, second.stdout.as_str()), (code, ""), "{}", second.stderr);
        assert!(second.stderr.starts_with("clinch: gave up waiting for `k`"), "{}", second.stderr);
    }
    assert_eq!(server.get("clinch:lock:k"), value);
    first.tell("0");
    assert_eq!(first.end(), ended(0, ""));
    assert_eq!(held(&server), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signal_that_comes_before_the_answer_leaves_no_lock() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.addr()).await;
    // The server does not know the script yet, so it comes as a whole.
    proxy.add(Rule::new(Action::HoldReply).named("EVAL"));
    let args = ["run", "--store", &proxy.url(), "--key", "k", "--ttl", "1h", "--wait", "1h", "--", "true"];
    let job = common::plain(&args);
    proxy.wait_until_held().await;
    assert_eq!(held(&server), ["clinch:lock:k"]);

    job.signal(Signal::TERM);

    eventually("it is given back", || !server.exists("clinch:lock:k"));
    proxy.release_held();
    assert_eq!(job.end().code, 143);
}

/// Proves: B12
#[test]
fn the_lock_is_renewed_as_long_as_the_command_runs() {
    let server = RedisServer::start();
    let mut job = clinch(&server, &["--key", "k", "--ttl", "2s", "--", "sh", "-c", UNTIL_TOLD]);
    job.expect_line("ready");
    let value = server.get("clinch:lock:k").expect("it is held");
    let began = Instant::now();
    // Time is what is tested: two and a half TTLs.
    while began.elapsed() < Duration::from_secs(5) {
        assert_eq!(server.get("clinch:lock:k").as_ref(), Some(&value));
        std::thread::sleep(Duration::from_millis(20));
    }
    job.tell("0");
    assert_eq!(job.end(), ended(0, ""));
}

/// Proves: B12
#[test]
fn when_the_lease_is_lost_the_command_is_sent_term() {
    let server = RedisServer::start();
    let script = "trap 'echo got TERM; exit 0' TERM; echo ready; read code; exit 99";
    let mut job = clinch(&server, &["--key", "k", "--ttl", "3s", "--", "sh", "-c", script]);
    job.expect_line("ready");

    server.set("clinch:lock:k", "somebody else");

    job.expect_line("got TERM");
    let job = job.end();
    assert_eq!(job.code, 70);
    assert!(job.stderr.starts_with("clinch: lease lost on `k`: "), "{}", job.stderr);
    assert_eq!(job.stderr.lines().count(), 1);
    assert_eq!(server.get("clinch:lock:k").as_deref(), Some("somebody else"), "a successor is not touched");
}

/// Proves: B12
#[test]
fn a_command_that_does_not_listen_to_term_is_killed_after_the_grace() {
    let server = RedisServer::start();
    let script = "trap '' TERM; echo ready; read code; echo survived";
    let args = ["--key", "k", "--ttl", "3s", "--grace", "100ms", "--", "sh", "-c", script];
    let mut job = clinch(&server, &args);
    job.expect_line("ready");

    server.command(&["DEL", "clinch:lock:k"]);

    let job = job.end();
    assert_eq!((job.code, job.stdout.as_str()), (70, ""));
    assert!(job.stderr.contains("did not end within 100ms and was sent KILL"), "{}", job.stderr);
}

#[test]
fn when_the_lease_is_lost_what_the_command_started_ends_too() {
    let server = RedisServer::start();
    // The command itself listens to TERM; what it started does not. Both have the test's stdout.
    let script =
        "trap 'exit 0' TERM; exec 3<&0; (trap '' TERM; echo ready; read code <&3; echo survived) & wait";
    let args = ["--key", "k", "--ttl", "3s", "--grace", "100ms", "--", "sh", "-c", script];
    let mut job = clinch(&server, &args);
    job.expect_line("ready");

    server.command(&["DEL", "clinch:lock:k"]);

    // It reads stdout to its end, which comes when all who have it are gone.
    let job = job.end();
    assert_eq!((job.code, job.stdout.as_str()), (70, ""));
    assert!(job.stderr.contains("was sent KILL"), "{}", job.stderr);
}

#[test]
fn a_lease_ended_by_force_ends_the_command_at_once() {
    let server = RedisServer::start();
    let mut job = clinch(&server, &["--key", "k", "--ttl", "1h", "--", "sh", "-c", UNTIL_TOLD]);
    job.expect_line("ready");
    // A revocation that nobody listens to yet would be noticed only at the next renewal, in 20 minutes.
    eventually("it listens", || server.command(&["PUBSUB", "CHANNELS"]) != Reply::Array(vec![]));

    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let locks = LockManager::connect(&server.url()).await.unwrap();
        let holders = locks.inspect("k").await.unwrap();
        assert!(locks.force_release(&holders[0]).await.unwrap());
    });

    let job = job.end();
    assert_eq!(job.code, 70);
    assert!(job.stderr.contains("somebody ended it by force"), "{}", job.stderr);
}

#[test]
fn an_engine_that_stays_away_costs_the_lease() {
    let server = RedisServer::start();
    let mut job = clinch(&server, &["--key", "k", "--ttl", "2s", "--", "sh", "-c", UNTIL_TOLD]);
    job.expect_line("ready");
    server.kill();
    let job = job.end();
    assert_eq!(job.code, 70);
    assert!(job.stderr.contains("lease lost on `k`: it could not be renewed in time"), "{}", job.stderr);
    assert_eq!(job.stderr.lines().count(), 1, "{}", job.stderr);
}

/// What a command does behind the back of a clinch that was stopped, it does without a lock.
#[test]
fn a_command_that_ended_after_its_lease_does_not_count() {
    let server = RedisServer::start();
    let mut job = clinch(&server, &["--key", "k", "--ttl", "2s", "--", "sh", "-c", UNTIL_TOLD]);
    job.expect_line("ready");
    job.signal(Signal::STOP);
    eventually("the lease has run out", || !server.exists("clinch:lock:k"));
    job.tell("0");
    job.signal(Signal::CONT);
    let job = job.end();
    assert_eq!(job.code, 70);
    assert!(job.stderr.starts_with("clinch: lease lost on `k`: "), "{}", job.stderr);
}

#[test]
fn a_lock_that_cannot_be_given_back_does_not_change_the_exit_code() {
    let server = RedisServer::start();
    // The second code is also what a lost lease gives, but here it is the command's.
    let codes = [3, 70];
    let mut jobs =
        codes.map(|code| clinch(&server, &["--key", &code.to_string(), "--", "sh", "-c", UNTIL_TOLD]));
    for job in &mut jobs {
        job.expect_line("ready");
    }
    server.kill();
    for (mut job, code) in jobs.into_iter().zip(codes) {
        job.tell(&code.to_string());
        let job = job.end();
        assert_eq!(job.code, code);
        assert!(job.stderr.starts_with("clinch: warning: the lock was not given back"), "{}", job.stderr);
        assert_eq!(job.stderr.lines().count(), 1, "{}", job.stderr);
    }
}

#[test]
fn a_lease_that_was_gone_at_the_end_is_mentioned() {
    // Without the right to channels nothing is heard of the loss before the next renewal, which is far away.
    let server = RedisServer::builder().acl_user("deaf", "on >secret ~* resetchannels +@all").start();
    let url = server.url_with(0, Some("deaf"), Some("secret"));
    let mut job =
        common::with_env(&[], &["run", "--store", &url, "--key", "k", "--", "sh", "-c", UNTIL_TOLD]);
    job.expect_line("ready");
    server.command(&["DEL", "clinch:lock:k"]);
    job.tell("3");
    let job = job.end();
    assert_eq!(job.code, 3);
    assert!(job.stderr.starts_with("clinch: warning: the lease on `k` was gone"), "{}", job.stderr);
}

/// Proves: B12
#[test]
fn signals_are_passed_on() {
    let server = RedisServer::start();
    for (signal, name) in [
        (Signal::TERM, "TERM"),
        (Signal::INT, "INT"),
        (Signal::HUP, "HUP"),
        (Signal::QUIT, "QUIT"),
        (Signal::USR1, "USR1"),
        (Signal::USR2, "USR2"),
    ] {
        let script = format!("trap 'echo got {name}; exit 7' {name}; echo ready; read code; exit 99");
        let mut job = clinch(&server, &["--key", "k", "--", "sh", "-c", &script]);
        job.expect_line("ready");
        job.signal(signal);
        job.expect_line(&format!("got {name}"));
        assert_eq!(job.end(), ended(7, ""), "{name}");
    }
    assert_eq!(held(&server), [""; 0]);
}

#[test]
fn a_signal_that_ends_the_command_makes_the_exit_code() {
    let server = RedisServer::start();
    let mut job = clinch(&server, &["--key", "k", "--", "sh", "-c", UNTIL_TOLD]);
    job.expect_line("ready");
    job.signal(Signal::TERM);
    assert_eq!(job.end(), ended(143, ""));
    assert_eq!(held(&server), [""; 0]);
}

#[test]
fn signals_reach_what_the_command_started() {
    let server = RedisServer::start();
    // A shell ignores INT for what it starts in the background, so it is TERM here.
    let inner = "trap 'echo got TERM; exit 0' TERM; echo ready; read code <&3";
    let script = format!("trap : TERM; exec 3<&0; ({inner}) & wait; wait; exit 5");
    let mut job = clinch(&server, &["--key", "k", "--", "sh", "-c", &script]);
    job.expect_line("ready");
    job.signal(Signal::TERM);
    job.expect_line("got TERM");
    assert_eq!(job.end(), ended(5, ""));
}

/// `nohup clinch run …` outlives its terminal.
#[cfg(target_os = "linux")]
#[test]
fn a_signal_that_clinch_was_started_to_ignore_stays_ignored() {
    let server = RedisServer::start();
    let mut job = common::under(
        &["env", "--ignore-signal=HUP"],
        &["run", "--store", &server.url(), "--key", "k", "--", "sh", "-c", UNTIL_TOLD],
    );
    job.expect_line("ready");
    let ignored = |pid: u32| {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let set = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
        u64::from_str_radix(set.trim(), 16).unwrap() & 1 == 1 // HUP is 1
    };
    assert!(ignored(job.id()));
    job.signal(Signal::HUP);
    job.tell("0");
    assert_eq!(job.end(), ended(0, ""));
}

/// In a terminal the kernel sends Ctrl-C to the command as well: it gets it once, not twice.
#[cfg(target_os = "linux")]
#[test]
fn control_c_in_a_terminal_reaches_the_command_once() {
    let server = RedisServer::start();
    let script =
        "trap 'echo got INT' INT; trap 'echo got USR1; exit 4' USR1; echo $PPID; while :; do read x; done";
    let run = format!("{} run --store {} --key k", env!("CARGO_BIN_EXE_clinch"), server.url());
    let script = script.replace('$', "\\$");
    // The shell around it stays, so that `script` does not stop with clinch.
    let mut job = common::terminal(&format!("stty -echo; trap : INT; {run} -- sh -c \"{script}\"; exit $?"));
    let clinch = job.line().parse().unwrap();
    // With clinch stopped, the command is done with the terminal's INT before clinch could send another.
    common::send(clinch, Signal::STOP);
    job.type_in("\x03");
    job.expect_line("got INT");
    common::send(clinch, Signal::CONT);
    // clinch takes INT before USR1, so a second INT would come before this.
    common::send(clinch, Signal::USR1);
    job.expect_line("got USR1");
    assert_eq!(job.end(), ended(4, ""));
    assert_eq!(held(&server), [""; 0]);
}

/// A clinch that is killed cannot stop its command; its lock is free after its TTL.
///
/// Fault: 11
#[test]
fn the_lock_of_a_killed_clinch_runs_out() {
    let server = RedisServer::start();
    let script = "echo ready; read line; echo $line";
    let mut job = clinch(&server, &["--key", "k", "--ttl", "3s", "--", "sh", "-c", script]);
    job.expect_line("ready");
    job.signal(Signal::KILL);
    let died = Instant::now();

    let next = clinch(&server, &["--key", "k", "--wait", "60s", "--", "echo", "my turn"]).end();

    assert_eq!((next.code, next.stdout.as_str()), (0, "my turn\n"));
    // Its TTL, and some time for this machine.
    assert!(died.elapsed() < Duration::from_secs(20), "{:?}", died.elapsed());
    job.tell("goes on without a lock");
    job.expect_line("goes on without a lock");
    assert_eq!(job.end().code, 128 + 9);
}
