//! Other languages' lock libraries on the same Redis key: they exclude Clinch and are excluded by it.
//!
//! redis-py's `Lock` and node's `redlock` run in processes of their own (`interop/`), which take and give back when a line
//! on their standard input says so, so that the test alone decides what happens when. Both are installed by the test,
//! once, under cargo's target folder, in the versions that `interop/` pins by checksum.
//!
//! Needs `python3` with `venv`, and `node` with `npm`: `scripts/install-test-tools`. The first run needs the network.

#![cfg(feature = "redis")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot go on stops with a message"
)]

use std::cell::Cell;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use clinch::{LockGuard, LockManager, LockOptions, Outcome};
use clinch_testkit::server::RedisServer;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout};
use tokio::sync::watch;
use tokio::time::timeout;

/// What Clinch's callers write, and what other clients must write for the same lock.
const KEY: &str = "order:42";
const ENGINE_KEY: &str = "clinch:lock:order:42";

/// Long enough that nothing here ends by expiry, and short enough to be a real lease.
const TTL: Duration = Duration::from_secs(60);

/// A bound for a test that hangs, not a measure.
const ANSWER_LIMIT: Duration = Duration::from_secs(30);

/// How often the lock changes hands in the contention tests.
const ROUNDS: usize = 50;

/// Proves: L12
#[tokio::test]
async fn redis_py_and_clinch_exclude_each_other() {
    exclude_each_other(Library::RedisPy).await;
}

/// Proves: L12
#[tokio::test]
async fn node_redlock_and_clinch_exclude_each_other() {
    exclude_each_other(Library::NodeRedlock).await;
}

/// Proves: L12
#[tokio::test]
async fn redis_py_and_clinch_never_release_each_others_lock() {
    never_release_each_others_lock(Library::RedisPy).await;
}

/// Proves: L12
#[tokio::test]
async fn node_redlock_and_clinch_never_release_each_others_lock() {
    never_release_each_others_lock(Library::NodeRedlock).await;
}

/// Proves: L12
#[tokio::test]
async fn redis_py_and_clinch_are_never_both_inside_under_contention() {
    never_both_inside(Library::RedisPy).await;
}

/// Proves: L12
#[tokio::test]
async fn node_redlock_and_clinch_are_never_both_inside_under_contention() {
    never_both_inside(Library::NodeRedlock).await;
}

async fn exclude_each_other(library: Library) {
    let (server, locks, mut peer) = set_up(library).await;

    assert!(peer.acquire().await);
    assert!(locks.try_lock(KEY, TTL).await.unwrap().is_none());
    assert_sees_unknown_holder(&server, &locks).await;

    assert!(peer.release().await);
    let guard = take(&locks).await;
    assert!(!peer.acquire().await);
    assert!(guard.is_valid());

    assert!(guard.release().await.unwrap());
    assert!(peer.acquire().await);
    assert!(peer.release().await);
    assert!(!server.exists(ENGINE_KEY));
}

/// Denial and inspection show the peer as what it is: somebody else, with so much time left.
async fn assert_sees_unknown_holder(server: &RedisServer, locks: &LockManager) {
    let Outcome::DeniedByLock(denied) = locks.attempt(KEY, TTL).await.unwrap() else {
        panic!("the peer has the lock, and Clinch was not denied by it");
    };
    let inspected = locks.inspect(KEY).await.unwrap();
    assert_eq!(inspected.len(), 1, "{inspected:?}");
    for holder in [&denied.holder.expect("the engine knows the holder"), &inspected[0]] {
        assert_eq!(holder.owner(), None);
        assert_eq!(Some(holder.token().as_str()), server.get(ENGINE_KEY).as_deref());
        let left = holder.remaining().expect("the peer's lock has an expiry");
        assert!(left > Duration::ZERO && left <= TTL, "{left:?}");
        assert!(holder.to_string().starts_with("an unknown client, "), "{holder}");
    }
    let retry_after = denied.retry_after.expect("the peer's lock has an expiry");
    assert!(retry_after > Duration::ZERO && retry_after <= TTL, "{retry_after:?}");
}

async fn never_release_each_others_lock(library: Library) {
    let (server, locks, mut peer) = set_up(library).await;

    // The peer loses its lease, as by expiry, and does not know; Clinch is the next holder.
    assert!(peer.acquire().await);
    server.command(&["DEL", ENGINE_KEY]);
    let guard = take(&locks).await;
    assert!(!peer.release().await);
    assert_eq!(server.get(ENGINE_KEY).as_deref(), Some(guard.token().as_str()));

    // The same the other way round.
    server.command(&["DEL", ENGINE_KEY]);
    assert!(peer.acquire().await);
    let theirs = server.get(ENGINE_KEY);
    assert!(theirs.is_some());
    assert!(!guard.release().await.unwrap());
    assert_eq!(server.get(ENGINE_KEY), theirs);
    assert!(peer.release().await);
}

/// Both want the lock all the time. Every round has one denial of the peer and one change of hands in each direction.
async fn never_both_inside(library: Library) {
    let (_server, locks, mut peer) = set_up(library).await;
    let patient = LockOptions::new(TTL).wait(ANSWER_LIMIT).retry_interval(Duration::from_millis(1));
    let inside = Cell::new(None);
    let enter = |who: &'static str| assert_eq!(inside.replace(Some(who)), None, "{who} came in too");
    let leave = |who: &'static str| assert_eq!(inside.replace(None), Some(who));
    let (denials, mut denied) = watch::channel(());
    let (turns, mut turn) = watch::channel(());
    let done = Cell::new(false);

    let clinch = async {
        for _ in 0..ROUNDS {
            let guard = locks.lock(KEY, patient.clone()).await.unwrap();
            enter("Clinch");
            denied.mark_unchanged();
            denied.changed().await.unwrap();
            leave("Clinch");
            turn.mark_unchanged();
            assert!(guard.release().await.unwrap());
            turn.changed().await.unwrap();
        }
        done.set(true);
    };
    let other = async {
        while !done.get() {
            if !peer.acquire().await {
                denials.send(()).unwrap();
                continue;
            }
            enter("the peer");
            locks.ping().await.unwrap(); // time in which Clinch would come in, if it could
            leave("the peer");
            assert!(peer.release().await);
            turns.send(()).unwrap();
        }
    };
    tokio::join!(clinch, other);
}

async fn set_up(library: Library) -> (RedisServer, LockManager, Peer) {
    let server = RedisServer::start();
    let locks = LockManager::connect(&server.url()).await.unwrap();
    let peer = Peer::start(library, &server.url());
    (server, locks, peer)
}

async fn take(locks: &LockManager) -> LockGuard {
    locks.try_lock(KEY, TTL).await.unwrap().expect("the lock is free")
}

/// Another library in a process of its own, which ends with this value.
struct Peer {
    library: Library,
    _process: Child,
    commands: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
}

impl Peer {
    fn start(library: Library, url: &str) -> Self {
        let mut process = tokio::process::Command::from(library.command())
            .arg(url)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap_or_else(|error| panic!("cannot start {library:?}: {error}"));
        let commands = process.stdin.take().unwrap();
        let answers = BufReader::new(process.stdout.take().unwrap()).lines();
        Self { library, _process: process, commands, answers }
    }

    /// Asks once; whether it has the lock.
    async fn acquire(&mut self) -> bool {
        self.ask(&format!("acquire {ENGINE_KEY} {}", TTL.as_millis()), "denied").await
    }

    /// Gives back what it took; whether its library found that it still had it.
    async fn release(&mut self) -> bool {
        self.ask(&format!("release {ENGINE_KEY}"), "not-held").await
    }

    async fn ask(&mut self, command: &str, no: &str) -> bool {
        let library = self.library;
        let exchange = async {
            self.commands.write_all(format!("{command}\n").as_bytes()).await?;
            self.answers.next_line().await
        };
        match timeout(ANSWER_LIMIT, exchange).await {
            Ok(Ok(Some(answer))) if answer == "ok" => true,
            Ok(Ok(Some(answer))) if answer == no => false,
            Ok(Ok(None)) => panic!("{library:?} ended at `{command}`; its reason is on standard error"),
            other => panic!("{library:?} to `{command}`: {other:?}"),
        }
    }
}

/// Who Clinch is tested against.
#[derive(Debug, Clone, Copy)]
enum Library {
    RedisPy,
    NodeRedlock,
}

impl Library {
    /// The command that runs it, installed first if need be.
    fn command(self) -> Command {
        // One install for all tests of this process; other processes may be installing at the same time.
        static REDIS_PY: OnceLock<PathBuf> = OnceLock::new();
        static NODE_REDLOCK: OnceLock<PathBuf> = OnceLock::new();
        match self {
            Self::RedisPy => {
                let home = REDIS_PY.get_or_init(install_redis_py);
                let mut command = Command::new(home.join(VENV_PYTHON));
                command.arg("-I").arg(home.join("redis_py.py"));
                command
            }
            Self::NodeRedlock => {
                let home = NODE_REDLOCK.get_or_init(install_node_redlock);
                let mut command = Command::new("node");
                command.arg(home.join("node_redlock.mjs"));
                command
            }
        }
    }
}

const VENV_PYTHON: &str = "venv/bin/python";

fn install_redis_py() -> PathBuf {
    let files = [
        ("redis_py.py", include_str!("interop/redis_py.py")),
        ("requirements.txt", include_str!("interop/requirements.txt")),
    ];
    // A virtual environment is bound to the interpreter that made it.
    let python = run(Command::new("python3").args(["-c", "import sys; print(sys.executable, sys.version)"]));
    install("redis-py", &files, &python, |home| {
        run(Command::new("python3").args(["-m", "venv"]).arg(home.join("venv")));
        run(Command::new(home.join(VENV_PYTHON))
            .args(["-m", "pip", "install", "--quiet", "--require-hashes", "--only-binary", ":all:"])
            .arg("--requirement")
            .arg(home.join("requirements.txt")));
    })
}

fn install_node_redlock() -> PathBuf {
    let files = [
        ("node_redlock.mjs", include_str!("interop/node_redlock.mjs")),
        ("package.json", include_str!("interop/package.json")),
        ("package-lock.json", include_str!("interop/package-lock.json")),
    ];
    let node = run(Command::new("node").arg("--version"));
    install("node-redlock", &files, &node, |home| {
        run(Command::new("npm")
            .args(["ci", "--ignore-scripts", "--no-audit", "--no-fund"])
            .current_dir(home));
    })
}

/// A folder with `files` in which `fill` has run: the one from an earlier run if nothing has changed since.
///
/// It is made under another name and then renamed, so that whoever sees it sees all of it, and of two who make it at
/// the same time one wins and both go on.
fn install(name: &str, files: &[(&str, &str)], interpreter: &str, fill: impl FnOnce(&Path)) -> PathBuf {
    let mut hasher = DefaultHasher::new();
    (files, interpreter).hash(&mut hasher);
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("interop");
    let home = cache.join(format!("{name}-{:016x}", hasher.finish()));
    if home.exists() {
        return home;
    }
    fs::create_dir_all(&cache).unwrap();
    let new = Unfinished::create(&cache, name);
    for (file, text) in files {
        fs::write(new.0.join(file), text).unwrap();
    }
    fill(&new.0);
    if let Err(error) = fs::rename(&new.0, &home) {
        assert!(home.exists(), "cannot rename {} to {}: {error}", new.0.display(), home.display());
    }
    home
}

/// A folder that nobody else uses, removed if it is still there in the end, also by a panic.
struct Unfinished(PathBuf);

impl Unfinished {
    fn create(cache: &Path, name: &str) -> Self {
        let mut number = 0;
        loop {
            let folder = cache.join(format!("{name}.{}.{number}", std::process::id()));
            match fs::create_dir(&folder) {
                Ok(()) => return Self(folder),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
                Err(error) => panic!("cannot make {}: {error}", folder.display()),
            }
        }
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0); // renamed away, if all went well
    }
}

/// Runs a tool to its end and gives what it printed. A test without its tools fails and says what to do.
fn run(command: &mut Command) -> String {
    const HINT: &str = "This test needs python3 with venv, node and npm (`scripts/install-test-tools` installs them), \
                        and for its first run the network.";
    let program = command.get_program().display().to_string();
    match command.stdin(Stdio::null()).output() {
        Ok(output) if output.status.success() => String::from_utf8_lossy(&output.stdout).into_owned(),
        Ok(output) => panic!(
            "{command:?} failed, {}:\n{}{}\n{HINT}",
            output.status,
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr),
        ),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            panic!("`{program}` is not installed. {HINT}")
        }
        Err(error) => panic!("cannot run `{program}`: {error}. {HINT}"),
    }
}
