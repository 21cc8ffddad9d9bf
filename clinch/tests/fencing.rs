//! Fences at the resource: late writers are refused, by a register, by Redis and by a database.

#![cfg(all(unix, feature = "redis"))]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test stops at the first surprise"
)]

use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use clinch::fencing::redis::{FencedKey, WriteError};
use clinch::fencing::{FencedRegister, Stale, sql};
use clinch::{Fence, LockManager, LockOptions};
use clinch_testkit::server::RedisServer;
use proptest::prelude::*;
use redis::aio::MultiplexedConnection;
use rusqlite::{Connection, params};
use rustix::process::{Pid, Signal, kill_process};

const LONG: Duration = Duration::from_secs(60);
/// From here on, two neighbours are one and the same double.
const EXACT: u64 = 1 << 53;
/// As a fence is today: microseconds since 1970, times 1024.
const TODAY: u64 = 1_790_000_000_000_000 * Fence::STEP;

async fn connection(server: &RedisServer) -> MultiplexedConnection {
    let client = redis::Client::open(server.url()).unwrap();
    client.get_multiplexed_async_connection().await.unwrap()
}

fn stale(written: Result<(), WriteError>) -> Stale {
    match written {
        Err(WriteError::Stale(stale)) => stale,
        other => panic!("not stale: {other:?}"),
    }
}

proptest! {
    /// Proves: B2
    /// Whatever comes in whatever order: it is taken if no higher fence was there before, and then it is what is read.
    #[test]
    fn a_register_takes_no_stale_write(writes in prop::collection::vec((0..8_u64, any::<u32>()), 0..40)) {
        let register = FencedRegister::new();
        let mut last = None;
        for (number, value) in writes {
            let fence = Fence::new(number);
            match last {
                Some((highest, _)) if highest > fence => {
                    prop_assert_eq!(register.write(fence, value), Err(Stale { offered: fence, highest }));
                }
                _ => {
                    prop_assert_eq!(register.write(fence, value), Ok(()));
                    last = Some((fence, value));
                }
            }
            prop_assert_eq!(register.read(), last);
        }
    }
}

#[test]
fn a_register_is_shared_by_threads() {
    let register = FencedRegister::default();
    std::thread::scope(|scope| {
        for start in 0..4 {
            let register = &register;
            scope.spawn(move || {
                for number in (start..4000).step_by(4) {
                    let _ = register.write(Fence::new(number), number);
                    assert!(register.read().unwrap().0 >= Fence::new(number));
                }
            });
        }
    });
    assert_eq!(register.read(), Some((Fence::new(3999), 3999)));
}

#[test]
fn a_stale_write_says_so() {
    let stale = Stale { offered: Fence::new(33), highest: Fence::new(34) };
    assert_eq!(
        stale.to_string(),
        "stale write refused: its fence 33 is lower than 34, which was seen before; the lock was lost to a later holder"
    );
    assert_eq!(WriteError::from(stale).to_string(), stale.to_string());
}

/// Proves: B2
/// Also where the two are the same to Lua's numbers, and where the lower one is the greater text.
#[tokio::test]
async fn redis_compares_fences_exactly() {
    let server = RedisServer::start();
    let mut redis = connection(&server).await;
    let pairs = [
        (0, 1),
        (9, 10),
        (99, 100),
        (EXACT - 1, EXACT),
        (EXACT, EXACT + 1),
        (EXACT + 1, EXACT + 2),
        (TODAY, TODAY + 1),
        (999_999_999_999_999_999, 1_000_000_000_000_000_000),
        (i64::MAX as u64, i64::MAX as u64 + 1),
        (9_999_999_999_999_999_999, 10_000_000_000_000_000_000),
        (u64::MAX - 1, u64::MAX),
    ];
    for (low, high) in pairs.map(|(low, high)| (Fence::new(low), Fence::new(high))) {
        let value = FencedKey::new(format!("value:{low}"));
        assert_eq!(value.read::<String>(&mut redis).await.unwrap(), None);
        value.write(&mut redis, low, "low").await.unwrap();
        value.write(&mut redis, high, "high").await.unwrap();
        let late = stale(value.write(&mut redis, low, "late").await);
        assert_eq!(late, Stale { offered: low, highest: high });
        assert_eq!(value.read(&mut redis).await.unwrap(), Some((high, "high".to_owned())));
        // The same one may write again.
        value.write(&mut redis, high, "again").await.unwrap();
        value.write(&mut redis, high, "again").await.unwrap();
        assert_eq!(value.read(&mut redis).await.unwrap(), Some((high, "again".to_owned())));
        let plain = server.command(&["HGET", value.key(), "fence"]).text();
        assert_eq!(plain, Some(high.to_string()), "as it is written, for people and other languages");
    }
}

#[tokio::test]
async fn redis_keeps_any_value_and_knows_the_script_again() {
    let server = RedisServer::start();
    let mut redis = connection(&server).await;
    let value = FencedKey::new("value");
    let bytes: Vec<u8> = (0..=255).collect();
    value.write(&mut redis, Fence::new(1), &bytes[..]).await.unwrap();
    assert_eq!(value.read(&mut redis).await.unwrap(), Some((Fence::new(1), bytes)));
    server.script_flush();
    value.write(&mut redis, Fence::new(2), "").await.unwrap();
    assert_eq!(value.read(&mut redis).await.unwrap(), Some((Fence::new(2), String::new())));
}

#[tokio::test]
async fn redis_lets_a_value_expire_only_if_told_to() {
    let server = RedisServer::start();
    let mut redis = connection(&server).await;
    let (lasting, passing) =
        (FencedKey::new("value"), FencedKey::new("value").expires_after(Duration::from_secs(60)));
    lasting.write(&mut redis, Fence::new(1), 1).await.unwrap();
    assert_eq!(server.pttl("value"), -1);
    passing.write(&mut redis, Fence::new(2), 2).await.unwrap();
    assert!((1..=60_000).contains(&server.pttl("value")));
    // What is refused changes nothing.
    stale(lasting.write(&mut redis, Fence::new(1), 1).await);
    assert!((1..=60_000).contains(&server.pttl("value")));
    lasting.write(&mut redis, Fence::new(2), 2).await.unwrap();
    assert_eq!(server.pttl("value"), -1);

    // The longest and the shortest there are.
    lasting.clone().expires_after(Duration::MAX).write(&mut redis, Fence::new(3), 3).await.unwrap();
    assert!(server.pttl("value") > 1 << 51);
    lasting.clone().expires_after(Duration::ZERO).write(&mut redis, Fence::new(4), 4).await.unwrap();
    while lasting.read::<u32>(&mut redis).await.unwrap().is_some() {} // for a millisecond
    // The fence is forgotten with the value.
    lasting.write(&mut redis, Fence::new(1), 1).await.unwrap();
}

#[tokio::test]
async fn redis_writes_over_nothing_that_it_does_not_know() {
    let server = RedisServer::start();
    let mut redis = connection(&server).await;
    server.command(&["SET", "text", "precious"]);
    server.command(&["HSET", "hash", "value", "precious"]);
    server.command(&["HSET", "odd", "value", "precious", "fence", "-1"]);
    for (key, code) in [("text", "WRONGTYPE"), ("hash", "ERR"), ("odd", "ERR")] {
        match FencedKey::new(key).write(&mut redis, Fence::new(1), "new").await {
            Err(WriteError::Redis(error)) => assert_eq!(error.code(), Some(code), "{error}"),
            other => panic!("{key}: {other:?}"),
        }
    }
    assert_eq!(server.get("text").as_deref(), Some("precious"));
    for key in ["hash", "odd"] {
        assert_eq!(server.command(&["HGET", key, "value"]).text().as_deref(), Some("precious"));
    }
    assert!(FencedKey::new("text").read::<String>(&mut redis).await.is_err());
    assert_eq!(FencedKey::new("hash").read::<String>(&mut redis).await.unwrap(), None);
    assert!(FencedKey::new("odd").read::<String>(&mut redis).await.is_err());

    // Nor is anything written by halves when there is no memory.
    let value = FencedKey::new("value").expires_after(LONG);
    value.write(&mut redis, Fence::new(1), "old").await.unwrap();
    server.config_set("maxmemory", "1");
    assert!(matches!(value.write(&mut redis, Fence::new(2), "new").await, Err(WriteError::Redis(_))));
    server.config_set("maxmemory", "0");
    assert_eq!(value.read(&mut redis).await.unwrap(), Some((Fence::new(1), "old".to_owned())));
}

/// Proves: B2
/// A lease that is passed on inside a process rises by one, which a resource in Redis must tell apart.
#[tokio::test]
async fn a_lease_that_is_passed_on_leaves_its_last_holder_behind() {
    let server = RedisServer::start();
    let mut redis = connection(&server).await;
    let locks = LockManager::builder().call_timeout(LONG).connect(&server.url()).await.unwrap();
    let options = LockOptions::new(LONG).wait(LONG).fenced();
    let first = locks.lock("k", options.clone()).await.unwrap();
    let next = tokio::spawn({
        let locks = locks.clone();
        async move { locks.lock("k", options).await.unwrap() }
    });
    tokio::task::yield_now().await; // It stands in line.
    let before = first.fence().unwrap();
    first.release().await.unwrap();
    let second = next.await.unwrap();
    let after = second.fence().unwrap();
    assert_eq!(after.get(), before.get() + 1);
    assert!(before.get() > EXACT);

    let value = FencedKey::new("value");
    value.write(&mut redis, after, "second").await.unwrap();
    assert_eq!(
        stale(value.write(&mut redis, before, "first").await),
        Stale { offered: before, highest: after }
    );
}

/// Proves: B2
/// Fault: 22, 24
/// The lock and the record of its fences are lost; the next fence is above the last one all the same.
#[tokio::test]
async fn a_holder_from_before_the_engine_forgot_everything_is_refused() {
    let server = RedisServer::start();
    let locks = LockManager::builder().call_timeout(LONG).connect(&server.url()).await.unwrap();
    let register = FencedRegister::new();
    let before = locks.lock("k", LockOptions::new(LONG).fenced()).await.unwrap();
    register.write(before.fence().unwrap(), 1).unwrap();
    server.flushall();
    // Another process, which has seen nothing of it.
    let others = LockManager::builder().call_timeout(LONG).connect(&server.url()).await.unwrap();
    let after = others.lock("k", LockOptions::new(LONG).fenced()).await.unwrap();
    register.write(after.fence().unwrap(), 2).unwrap();
    assert!(register.write(before.fence().unwrap(), 1).is_err());
    assert_eq!(register.read().map(|(_, value)| value), Some(2));
}

/// A process that holds the lock: this very test binary, running [`helper_that_writes`].
struct Writer {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Writer {
    fn start(url: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "helper_that_writes", "--nocapture", "--ignored"])
            .env("CLINCH_HELPER_URL", url)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines }
    }

    /// The next line that the helper itself prints.
    fn says(&mut self) -> String {
        let mut lines = self.lines.by_ref().map(Result::unwrap);
        let said = lines.find_map(|line| line.split_once("helper: ").map(|(_, rest)| rest.to_owned()));
        said.expect("the helper said something")
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.child.id().try_into().unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Not a test: what [`Writer`] runs. It takes the lock, and writes when it is told to, without another look at its lease.
#[tokio::test]
#[ignore = "the helper process of another test"]
async fn helper_that_writes() {
    let Ok(url) = std::env::var("CLINCH_HELPER_URL") else { return };
    let locks = LockManager::connect(&url).await.unwrap();
    let mut redis = redis::Client::open(url).unwrap().get_multiplexed_async_connection().await.unwrap();
    let options = LockOptions::new(Duration::from_secs(2)).renew().fenced();
    let guard = locks.lock("k", options).await.unwrap();
    let fence = guard.fence().unwrap();
    println!("helper: {fence}");
    for _ in std::io::stdin().lines() {
        match FencedKey::new("value").write(&mut redis, fence, "late").await {
            Ok(()) => println!("helper: written"),
            Err(error) => println!("helper: {error}"),
        }
    }
}

/// Proves: B2
/// Fault: 9
/// A client that was stopped past its TTL goes on and writes: its fence is refused.
#[tokio::test]
async fn a_client_stopped_past_its_ttl_cannot_write() {
    let server = RedisServer::start();
    let mut redis = connection(&server).await;
    let mut writer = Writer::start(&server.url());
    let before = Fence::new(writer.says().parse().unwrap());
    writer.signal(Signal::STOP);

    let locks = LockManager::builder().call_timeout(LONG).connect(&server.url()).await.unwrap();
    let guard = locks.lock("k", LockOptions::new(LONG).wait(LONG).fenced()).await.unwrap();
    let after = guard.fence().unwrap();
    let value = FencedKey::new("value");
    value.write(&mut redis, after, "in time").await.unwrap();

    writer.signal(Signal::CONT);
    writeln!(writer.child.stdin.as_mut().unwrap()).unwrap();
    assert_eq!(writer.says(), Stale { offered: before, highest: after }.to_string());
    assert_eq!(value.read(&mut redis).await.unwrap(), Some((after, "in time".to_owned())));
}

/// Proves: B2
#[test]
fn a_database_takes_no_stale_write() {
    let database = Connection::open_in_memory().unwrap();
    database.execute(sql::CREATE, []).unwrap();
    let row = |id: &str| {
        let read = |row: &rusqlite::Row<'_>| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?));
        let (balance, fence) =
            database.query_row("SELECT balance, fence FROM account WHERE id = $1", [id], read).unwrap();
        (balance, Fence::try_from(fence).unwrap())
    };
    let write = |statement, balance: i64, fence: Fence, id: &str| {
        database.execute(statement, params![balance, i64::try_from(fence).unwrap(), id]).unwrap()
    };
    let (low, high) = (Fence::new(TODAY), Fence::new(TODAY + 1));
    for (id, statement) in [("by update", sql::UPDATE), ("by upsert", sql::UPSERT)] {
        assert_eq!(write(sql::UPSERT, 1, low, id), 1);
        assert_eq!(write(statement, 2, high, id), 1);
        assert_eq!(write(statement, 3, low, id), 0, "stale");
        assert_eq!(row(id), (2, high));
        assert_eq!(write(statement, 2, high, id), 1, "the same again");
        assert_eq!(write(statement, 4, high, id), 1, "its holder once more");
        assert_eq!(row(id), (4, high));
    }
    assert_eq!(write(sql::UPDATE, 1, high, "nobody"), 0);
    // A row that was there before there were fences.
    database.execute("INSERT INTO account (id, balance) VALUES ('old', 9)", []).unwrap();
    assert_eq!(write(sql::UPDATE, 1, low, "old"), 1);
    assert_eq!(row("old"), (1, low));
}

#[test]
fn a_fence_fits_a_signed_integer_or_says_that_it_does_not() {
    let largest = Fence::new(i64::MAX as u64);
    assert_eq!(i64::try_from(largest).unwrap(), i64::MAX);
    assert_eq!(Fence::try_from(i64::MAX).unwrap(), largest);
    assert!(i64::try_from(Fence::new(largest.get() + 1)).is_err());
    assert!(Fence::try_from(-1).is_err());
}
