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
#[cfg(all(feature = "axum", feature = "macros"))]
#[path = "../examples/shop.rs"]
mod shop;
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

#[cfg(all(feature = "axum", feature = "macros"))]
#[test]
#[ignore = "a program that other tests start"]
fn program_shop() {
    if was_started() {
        shop::main().unwrap();
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
            .env("SHOP_LISTEN", "127.0.0.1:0")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        Self { child, stdout }
    }

    /// Reads on until this has been said; the line in which it was.
    fn says(&mut self, what: &str) -> String {
        let mut said = String::new();
        while !said.contains(what) {
            said.clear();
            assert_ne!(self.stdout.read_line(&mut said).unwrap(), 0, "it has ended without `{what}`");
        }
        said
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

/// Two shops on two ports with one Redis below: who submits to the one, and then the same to the other, is refused there.
///
/// Proves: D2, D6
#[cfg(all(feature = "axum", feature = "macros"))]
#[test]
fn two_shops_on_one_redis_refuse_each_others_duplicates() {
    let server = RedisServer::start();
    let mut shops = [(); 2].map(|()| Program::start("program_shop", &server.url()));
    let addresses = shops.each_mut().map(|shop| {
        let said = shop.says("http://");
        said.trim().rsplit_once("http://").unwrap().1.to_owned()
    });
    let order = |shop: usize, item: u32, timestamp: u32| {
        let body = format!(r#"{{"item": {item}, "timestamp": {timestamp}}}"#);
        submit(&addresses[shop], "/orders", "", &body)
    };
    assert!(order(0, 7, 1).starts_with("HTTP/1.1 200"));
    for shop in [0, 1] {
        let refused = order(shop, 7, 2);
        assert!(
            refused.starts_with("HTTP/1.1 429") && refused.contains(r#""inProgress":false"#),
            "{refused}"
        );
        assert!(refused.contains("please do not submit twice"), "{refused}");
    }
    assert!(order(1, 8, 1).starts_with("HTTP/1.1 200"));
    // One that fails may be sent again, anywhere.
    assert!(order(0, 0, 1).starts_with("HTTP/1.1 404"));
    assert!(order(1, 0, 1).starts_with("HTTP/1.1 404"));

    let refund = |shop: usize| submit(&addresses[shop], "/refunds", "Idempotency-Key: \"k1\"\r\n", "");
    let (first, again) = (refund(0), refund(1));
    assert!(first.starts_with("HTTP/1.1 200") && again.contains("idempotency-replayed: true"), "{again}");
    assert_eq!(first.lines().last(), again.lines().last());
    assert!(submit(&addresses[0], "/orders/17/pay", "", "").contains(r#""fence":"#));
}

/// Sends a request and reads the whole answer.
#[cfg(all(feature = "axum", feature = "macros"))]
fn submit(address: &str, path: &str, headers: &str, body: &str) -> String {
    use std::io::Write;

    let mut connection = std::net::TcpStream::connect(address).unwrap();
    let length = body.len();
    write!(
        connection,
        "POST {path} HTTP/1.1\r\nHost: shop\r\nConnection: close\r\nContent-Type: application/json\r\n{headers}\
         Content-Length: {length}\r\n\r\n{body}"
    )
    .unwrap();
    let mut answer = String::new();
    connection.read_to_string(&mut answer).unwrap();
    answer
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
