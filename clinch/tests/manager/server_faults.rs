//! A server that is ill: restarted, out of memory, read-only, busy, or a client that is.

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use clinch::fencing::FencedRegister;
use clinch::lease::Token;
use clinch::store::{Effect, ErrorKind};
use clinch::{Error, LockManager, LockOptions, Loss};
use clinch_testkit::proxy::{Action, Rule};
use clinch_testkit::server::RedisServer;
use rustix::process::{Pid, Signal, kill_process};
use tokio::time::timeout;

use crate::common::{Bench, LONG, Step, TTL, eventually, take, waiting};

fn kind(error: &Error) -> (ErrorKind, Effect) {
    match error {
        Error::Engine { cause: source, .. } => (source.kind(), source.effect()),
        other => panic!("{other}"),
    }
}

/// Fault: 22
/// A restart without persistence loses the lock; the holder learns it at its next renewal.
#[tokio::test]
async fn a_restart_without_persistence_is_seen_at_the_next_renewal() {
    let server = RedisServer::start();
    let manager = LockManager::connect(&server.url()).await.unwrap();
    let options = LockOptions::new(TTL).renew_every(Duration::from_millis(50));
    let guard = manager.try_lock("k", options).await.unwrap().unwrap();
    server.kill();
    server.restart();
    assert_eq!(server.get("clinch:lock:k"), None, "this is what cannot hold: the lock is gone");
    assert_eq!(timeout(LONG, guard.lost()).await.unwrap(), Loss::TakenOver);
    assert!(!guard.release().await.unwrap());
    let again = manager.lock("k", waiting(TTL, LONG)).await.unwrap();
    assert!(again.release().await.unwrap());
}

/// The same restart with persistence loses nothing.
#[tokio::test]
async fn a_restart_with_persistence_keeps_the_lock() {
    let server = RedisServer::builder().appendonly(true).arg("appendfsync", "always").start();
    let manager = LockManager::connect(&server.url()).await.unwrap();
    let guard = take(&manager, "k").await;
    server.kill();
    server.restart();
    assert_eq!(server.get("clinch:lock:k").as_deref(), Some(guard.token().as_str()));
    assert!(guard.release().await.unwrap());
}

/// The append-only file that is written to. Since 7.0 it is one of several, in a folder of their own.
fn append_only_file(server: &RedisServer) -> PathBuf {
    let one = server.folder().join("appendonly.aof");
    if one.exists() {
        return one;
    }
    let files = std::fs::read_dir(server.folder().join("appendonlydir")).unwrap();
    let mut files = files.map(|file| file.unwrap().path());
    files.find(|path| path.to_string_lossy().ends_with(".incr.aof")).expect("an append-only file")
}

fn contains(bytes: &[u8], token: &Token) -> bool {
    bytes.windows(token.as_str().len()).any(|part| part == token.as_str().as_bytes())
}

/// Fault: 23
/// Power is lost where the append-only file is written to the disk once a second: what was granted last is gone, its counter
/// of fences too, what was given back last is held again until its TTL ends, and what was on the disk is as it was. The
/// holder learns it at its next renewal, and the fence of the next one is higher all the same.
#[tokio::test]
async fn power_lost_with_fsync_every_second_forgets_what_came_last() {
    let server = RedisServer::builder().appendonly(true).arg("appendfsync", "everysec").start();
    let manager = LockManager::connect(&server.url()).await.unwrap();
    let kept = take(&manager, "kept").await;
    let given_back = take(&manager, "given-back").await;
    let old = given_back.token().clone();
    let file = append_only_file(&server);
    let written = |token: &Token| std::fs::read(&file).is_ok_and(|bytes| contains(&bytes, token));
    eventually("it is written", || written(&old)).await;
    let on_the_disk = std::fs::metadata(&file).unwrap().len();

    assert!(given_back.release().await.unwrap());
    let options = LockOptions::new(TTL).fenced().renew_every(Duration::from_millis(50));
    let forgotten = manager.try_lock("forgotten", options).await.unwrap().unwrap();
    eventually("it is written", || written(forgotten.token())).await;
    server.kill();
    // A process that dies loses nothing of its file: the system still has it. Without power, what was not brought to the disk
    // is not there, and the last of it may be there by half.
    std::fs::File::options().write(true).open(&file).unwrap().set_len(on_the_disk + 10).unwrap();
    server.restart();

    assert_eq!(server.get("clinch:lock:kept").as_deref(), Some(kept.token().as_str()));
    assert_eq!(server.get("clinch:lock:given-back").as_deref(), Some(old.as_str()), "it is held by nobody");
    assert!(server.pttl("clinch:lock:given-back") > 0, "and ends by itself");
    assert!(server.keys("*forgotten*").is_empty(), "this is what cannot hold: lock and counter are gone");
    assert_eq!(timeout(LONG, forgotten.lost()).await.unwrap(), Loss::TakenOver);

    let other = LockManager::connect(&server.url()).await.unwrap();
    let next = other.lock("forgotten", LockOptions::new(TTL).fenced()).await.unwrap();
    let register = FencedRegister::default();
    register.write(next.fence().unwrap(), "next").unwrap();
    assert!(register.write(forgotten.fence().unwrap(), "stale").is_err(), "the resource is not fooled");
    assert!(!forgotten.release().await.unwrap() && next.release().await.unwrap());
    assert!(kept.release().await.unwrap());
    let seen = other.inspect("given-back").await.unwrap().remove(0);
    assert!(other.force_release(&seen).await.unwrap(), "whoever cannot wait for the TTL takes it away");
}

/// Fault: 26
/// Out of memory: acquiring fails and says so; renewing and releasing still work.
#[tokio::test]
async fn out_of_memory_stops_acquires_but_not_renewals_and_releases() {
    let bench = Bench::start().await;
    let manager = bench.manager().await;
    let options = LockOptions::new(TTL).renew_every(Duration::from_millis(50));
    let guard = manager.try_lock("k", options).await.unwrap().unwrap();
    bench.server.config_set("maxmemory", "1");
    // A release must not need memory even where the script has to be loaded again.
    bench.server.script_flush();

    let error = manager.try_lock("other", TTL).await.unwrap_err();
    assert_eq!(kind(&error), (ErrorKind::Full, Effect::NotApplied), "{error}");
    bench.proxy.reset_counts();
    bench.seen(Step::Renew).await;
    bench.seen(Step::Renew).await;
    assert!(guard.is_valid());
    assert!(guard.release().await.unwrap());
    assert_eq!(bench.value("k"), None);
}

/// Fault: 28
/// The server has become a read-only replica: nothing is applied, and the primary is looked for again under the same
/// name, with the same token.
#[tokio::test]
async fn a_primary_that_became_a_replica_is_looked_for_again() {
    let bench = Bench::start().await;
    let manager = bench.patient().await;
    let new_primary = RedisServer::start();
    let refusal = b"-READONLY You can't write against a read only replica.\r\n";
    // Whatever is asked over the old connection is refused; a new one leads to the new primary.
    bench.proxy.add(Rule::new(Action::ReplaceReply(refusal.to_vec())).on_connection(0).lease_only().always());
    bench.proxy.set_upstream(new_primary.addr());

    let guard = take(&manager, "k").await;
    assert_eq!(new_primary.get("clinch:lock:k").as_deref(), Some(guard.token().as_str()));
    assert_eq!(bench.value("k"), None);
    let tokens = bench.tokens(Step::Acquire);
    assert!(tokens.len() >= 2 && tokens.iter().all(|token| token == &tokens[0]), "{tokens:?}");
    assert!(guard.release().await.unwrap());
}

/// Fault: 28
/// A server that really is a replica is refused when it is connected to, and refuses by itself later.
#[tokio::test]
async fn a_replica_takes_no_locks() {
    let primary = RedisServer::start();
    let replica = RedisServer::builder().replica_of(&primary).start();
    let error = LockManager::connect(&replica.url()).await.unwrap_err();
    assert_eq!(kind(&error), (ErrorKind::ReadOnly, Effect::NotApplied), "{error}");

    let manager = LockManager::connect(&primary.url()).await.unwrap();
    primary.command(&["REPLICAOF", "127.0.0.1", &replica.port().to_string()]);
    replica.command(&["REPLICAOF", "NO", "ONE"]);
    let error = manager.try_lock("k", TTL).await.unwrap_err();
    assert_eq!(kind(&error), (ErrorKind::ReadOnly, Effect::NotApplied), "{error}");
    assert!(error.to_string().contains("primary"), "{error}");
}

/// Fault: 29
/// LOADING, BUSY and MASTERDOWN pass: asked again with a growing pause, the same token, and an end.
#[tokio::test]
async fn a_busy_server_is_asked_again_within_the_limit() {
    for refusal in [
        &b"-LOADING Redis is loading the dataset in memory\r\n"[..],
        b"-BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.\r\n",
        b"-MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.\r\n",
    ] {
        let bench = Bench::start().await;
        let manager = bench.patient().await;
        let refused = Action::ReplaceReply(refusal.to_vec());
        bench.proxy.add(Rule::new(refused.clone()).matching(bench.is(Step::Acquire)).times(3));
        let guard = take(&manager, "k").await;
        assert_eq!(bench.count(Step::Acquire), 4);
        assert!(guard.release().await.unwrap());

        // For good: it ends by itself, and nothing was applied.
        let manager = bench.hasty().await;
        bench.proxy.reset_counts();
        bench.proxy.add(Rule::new(refused).matching(bench.is(Step::Acquire)).always());
        let error = timeout(LONG, manager.try_lock("k", TTL)).await.unwrap().unwrap_err();
        assert_eq!(kind(&error), (ErrorKind::Busy, Effect::NotApplied), "{error}");
        assert!(bench.count(Step::Acquire) < 40, "with pauses: {}", bench.count(Step::Acquire));
    }
}

/// Fault: 29
/// A server that is really busy, with a script that runs too long.
#[tokio::test]
async fn a_server_busy_with_a_script_is_waited_for() {
    let server = RedisServer::builder().arg("lua-time-limit", "50").start();
    let manager = LockManager::connect(&server.url()).await.unwrap();
    take(&manager, "warm-up").await.release().await.unwrap();
    std::thread::scope(|scope| {
        let looping = scope.spawn(|| server.try_command(&["EVAL", "while true do end", "0"]));
        // The only thread of the runtime watches the server; the manager has its turn afterwards.
        let busy = || server.try_command(&["PING"]).is_ok_and(|reply| reply.is_error());
        while !busy() {
            std::thread::yield_now();
        }
        let runtime = tokio::runtime::Handle::current();
        let waiter = runtime.spawn({
            let manager = manager.clone();
            async move { manager.lock("k", waiting(TTL, LONG)).await }
        });
        server.command(&["SCRIPT", "KILL"]);
        let _ = looping.join();
        waiter
    })
    .await
    .unwrap()
    .unwrap()
    .release()
    .await
    .unwrap();
}

/// A child process that holds a lock: this very test binary, running [`helper_that_holds`].
struct Holder {
    child: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl Holder {
    fn start(url: &str, ttl: Duration, renew: bool) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "server_faults::helper_that_holds", "--nocapture", "--ignored"])
            .env("CLINCH_HELPER_URL", url)
            .env("CLINCH_HELPER_TTL_MS", ttl.as_millis().to_string())
            .env("CLINCH_HELPER_RENEW", renew.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut this = Self { child, lines };
        assert_eq!(this.line("helper:"), "held");
        this
    }

    /// The next line that the helper itself prints.
    fn line(&mut self, marker: &str) -> String {
        let mut lines = self.lines.by_ref().map(Result::unwrap);
        let line = lines.find_map(|line| line.split_once(marker).map(|(_, rest)| rest.trim().to_owned()));
        line.expect("the helper said something")
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.child.id().try_into().unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Not a test: what [`Holder`] runs. It takes the lock, says so, and answers each line on its standard input with
/// whether it still believes to hold it.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "the helper process of other tests"]
async fn helper_that_holds() {
    let Ok(url) = std::env::var("CLINCH_HELPER_URL") else { return };
    let ttl = Duration::from_millis(std::env::var("CLINCH_HELPER_TTL_MS").unwrap().parse().unwrap());
    let mut options = LockOptions::new(ttl);
    if std::env::var("CLINCH_HELPER_RENEW").unwrap() == "true" {
        options = options.renew();
    }
    let manager = LockManager::connect(&url).await.unwrap();
    let guard = manager.try_lock("k", options).await.unwrap().unwrap();
    println!("helper: held");
    for line in std::io::stdin().lines() {
        if line.is_ok() {
            println!("helper: {}", if guard.is_valid() { "valid" } else { "lost" });
            let _ = std::io::stdout().flush();
        }
    }
}

/// Fault: 9
/// A client that was stopped past its TTL: its guard says *lost* at its first check. (Its writes need a fence.)
#[tokio::test]
async fn a_client_stopped_past_its_ttl_says_lost_at_its_first_check() {
    let server = RedisServer::start();
    let ttl = Duration::from_secs(2);
    let mut holder = Holder::start(&server.url(), ttl, true);
    let ask = |holder: &mut Holder| {
        writeln!(holder.child.stdin.as_mut().unwrap()).unwrap();
        holder.line("helper:")
    };
    assert_eq!(ask(&mut holder), "valid");
    holder.signal(Signal::STOP);
    // Somebody else has it meanwhile: this is what cannot be prevented without a fence.
    let manager = LockManager::connect(&server.url()).await.unwrap();
    let guard = manager.lock("k", waiting(TTL, LONG)).await.unwrap();
    holder.signal(Signal::CONT);
    assert_eq!(ask(&mut holder), "lost");
    assert!(guard.is_valid());
    assert_eq!(server.get("clinch:lock:k").as_deref(), Some(guard.token().as_str()));
}

/// Fault: 11
/// A client that was killed: the lock is free within its TTL.
#[tokio::test]
async fn a_killed_clients_lock_is_free_within_its_ttl() {
    let server = RedisServer::start();
    let mut holder = Holder::start(&server.url(), Duration::from_secs(3), true);
    holder.child.kill().unwrap();
    holder.child.wait().unwrap();
    let left = server.pttl("clinch:lock:k");
    assert!(left > 0 && left <= 3_000, "it ends by itself, in {left} ms");
    let manager = LockManager::connect(&server.url()).await.unwrap();
    let guard = manager.lock("k", waiting(TTL, LONG)).await.unwrap();
    assert!(guard.release().await.unwrap());
}

/// Fault: 18
/// No wall clock of the client takes part: one that is an hour ahead, and jumps back while it holds, changes nothing.
#[tokio::test]
async fn the_clients_wall_clock_takes_no_part() {
    let server = RedisServer::start();
    let manager = LockManager::connect(&server.url()).await.unwrap();
    // What the client says of its wall clock is in the token, for people; whatever it says, it decides nothing.
    for since in ["0", "99999999999999", "-5", "yesterday"] {
        let token = format!("{}@elsewhere:1:label:7:{since}", "0".repeat(32));
        server.command(&["SET", "clinch:lock:k", &token, "PX", "60000"]);
        let holder = manager.inspect("k").await.unwrap().remove(0);
        assert!(holder.remaining().unwrap() <= TTL);
        server.command(&["PEXPIRE", "clinch:lock:k", "100"]);
        let guard = manager.lock("k", waiting(TTL, LONG)).await.unwrap();
        assert!(guard.is_valid());
        assert!(guard.remaining() > TTL - TTL / 10);
        assert!(guard.release().await.unwrap());
    }
    // And none is read on the way to a decision.
    for file in ["acquire", "release", "renew", "held", "schedule", "core", "background"] {
        let path = format!("{}/src/manager/{file}.rs", env!("CARGO_MANIFEST_DIR"));
        let source = std::fs::read_to_string(path).unwrap();
        assert!(!source.contains("SystemTime"), "{file}.rs reads the wall clock");
    }
    eventually("nothing is left", || server.keys("*").is_empty()).await;
}
