//! The example programs, run from beginning to end as processes of their own.
//!
//! They are compiled into this test, so that they are always the ones that stand here: the process is this very test
//! binary, running one of the "tests" that are programs.

#![cfg(all(unix, feature = "redis"))]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test stops at the first surprise"
)]

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout, Command, Stdio};

use clinch::LockManager;
use clinch_testkit::server::RedisServer;
use rustix::process::{Pid, Signal, kill_process};

#[path = "../examples/leader.rs"]
mod leader;
#[path = "../examples/single_flight.rs"]
mod single_flight;
#[path = "../examples/stale_writer.rs"]
mod stale_writer;

#[test]
#[ignore = "a program that other tests start"]
fn program_leader() {
    if was_started() {
        leader::main().unwrap();
    }
}

#[test]
#[ignore = "a program that other tests start"]
fn program_single_flight() {
    if was_started() {
        single_flight::main().unwrap();
    }
}

#[test]
#[ignore = "a program that other tests start"]
fn program_stale_writer() {
    if was_started() {
        stale_writer::main().unwrap();
    }
}

/// Whether this process is such a program, and not somebody's run of all tests that there are.
fn was_started() -> bool {
    std::env::var("CLINCH_EXAMPLE").is_ok()
}

/// A program that runs. It is killed when this is dropped.
struct Program {
    child: Child,
    stdout: BufReader<ChildStdout>,
}

impl Program {
    fn start(name: &str, store: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", name, "--nocapture", "--ignored"])
            .env("CLINCH_EXAMPLE", "")
            .env("CLINCH_STORE", store)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        Self { child, stdout }
    }

    /// Reads on until this has been said.
    fn says(&mut self, what: &str) {
        let mut said = String::new();
        while !said.contains(what) {
            said.clear();
            assert_ne!(self.stdout.read_line(&mut said).unwrap(), 0, "it has ended without `{what}`");
        }
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.child.id().try_into().unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// Waits for its end; what else it said.
    fn end(mut self) -> String {
        let mut said = String::new();
        self.stdout.read_to_string(&mut said).unwrap();
        assert!(self.child.wait().unwrap().success(), "{said}");
        said
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Proves: B2
/// Fault: 9
#[test]
fn a_stale_writer_is_refused_on_both_engines() {
    let server = RedisServer::start();
    for store in ["memory:", &server.url()] {
        let said = Program::start("program_stale_writer", store).end();
        assert!(said.contains("stale write refused"), "{said}");
    }
}

#[test]
fn a_report_that_many_want_is_made_once() {
    let server = RedisServer::start();
    for store in ["memory:", &server.url()] {
        let said = Program::start("program_single_flight", store).end();
        assert!(said.contains("20 of 20 callers have the report"), "{said}");
    }
}

/// Fault: 11
/// One leads; it hands over when it steps down, when it dies, and when it is deposed.
#[test]
fn two_instances_hand_the_lead_over() {
    let server = RedisServer::start();
    let leader = || Program::start("program_leader", &server.url());
    let of = |it: &Program| format!(":{}:", it.child.id());
    let holder = || server.get("clinch:lock:leader").unwrap_or_default();

    let mut first = leader();
    first.says("leads");
    let mut second = leader();
    second.says("stands for election");
    assert!(holder().contains(&of(&first)), "{}", holder());

    // It gives the lock back before it ends: nobody has to wait until it has run out.
    first.signal(Signal::INT);
    first.says("steps down");
    assert!(!holder().contains(&of(&first)), "{}", holder());
    first.end();
    second.says("leads");

    // By force: it notices, and stands for election again.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let locks = LockManager::connect(&server.url()).await.unwrap();
        let holder = locks.inspect("leader").await.unwrap().remove(0);
        assert!(locks.force_release(&holder).await.unwrap());
    });
    second.says("no longer leads");
    second.says("leads");

    let mut third = leader();
    third.says("stands for election");
    drop(second); // killed
    third.says("leads");
    third.signal(Signal::INT);
    third.end();
    assert_eq!(holder(), "");
}
