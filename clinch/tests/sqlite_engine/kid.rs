//! Another process: this very test binary, running [`kid`], which plays the part that it is told.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use clinch::store::Store;
use clinch::stores::StoreOptions;
use clinch::stores::sqlite::SqliteStore;
use rusqlite::Connection;
use rustix::process::{Pid, Signal, kill_process};

use crate::common::{LONG, MOMENT, granted, holders, lock, locks};
use crate::{disk, threads};

const PART: &str = "CLINCH_KID";
const FILE: &str = "CLINCH_KID_FILE";
const MARK: &str = "kid:";

/// Killed and waited for when it is dropped.
pub(crate) struct Kid {
    child: Child,
    to: Option<ChildStdin>,
    from: std::io::Lines<BufReader<ChildStdout>>,
}

impl Kid {
    pub(crate) fn new(part: &str, file: &Path) -> Self {
        Self::under(&[], part, file)
    }

    /// Started by another program, which is named with its arguments.
    pub(crate) fn under(wrapper: &[&str], part: &str, file: &Path) -> Self {
        Self::of(&mut command(wrapper, part, file))
    }

    pub(crate) fn of(command: &mut Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let from = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { to: child.stdin.take(), child, from }
    }

    /// The next thing that it says itself.
    pub(crate) fn hear(&mut self) -> String {
        let mut lines = self.from.by_ref().map(Result::unwrap);
        let line = lines.find_map(|line| line.split_once(MARK).map(|(_, rest)| rest.trim().to_owned()));
        line.expect("the child ended without a word")
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Lets it go on, and waits for its end.
    pub(crate) fn end(mut self) {
        self.to = None;
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Kid {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What starts it.
pub(crate) fn command(wrapper: &[&str], part: &str, file: &Path) -> Command {
    let this = std::env::current_exe().unwrap();
    let mut command = match wrapper {
        [] => Command::new(&this),
        [program, arguments @ ..] => {
            let mut command = Command::new(program);
            command.args(arguments).arg(&this);
            command
        }
    };
    command.args(["--exact", "kid::kid", "--nocapture", "--ignored"]).env(PART, part).env(FILE, file);
    command
}

pub(crate) fn say(line: &str) {
    println!("{MARK} {line}");
    std::io::stdout().flush().unwrap();
}

/// Waits until the parent lets it go on.
fn wait_for_parent() {
    let _ = std::io::stdin().lines().next();
}

/// Not a test: what [`Kid`] runs.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "the other process of other tests"]
async fn kid() {
    let (Ok(part), Ok(file)) = (std::env::var(PART), std::env::var(FILE)) else { return };
    let file = Path::new(&file);
    match part.as_str() {
        "holds for a moment" => hold(file, MOMENT).await,
        "holds" => hold(file, LONG).await,
        "stops in the middle" => stop_in_the_middle(file),
        "takes three at a time" => take_three(file).await,
        "looks" => look(file).await,
        "tries to open" => try_to_open(file).await,
        "listens" => listen(file).await,
        "fills the disk" => disk::fill(file).await,
        "counts its threads" => threads::count(file).await,
        other => panic!("there is no part called {other}"),
    }
}

async fn open(file: &Path) -> SqliteStore {
    SqliteStore::open(file, &StoreOptions::default()).await.unwrap()
}

async fn hold(file: &Path, ttl: Duration) {
    let store = open(file).await;
    granted(&store, &lock("k", ttl)).await;
    say("held");
    wait_for_parent();
}

/// Half of a lease is written, as a step of the store writes it, and the process stops there.
fn stop_in_the_middle(file: &Path) {
    let file = Connection::open(file).unwrap();
    file.busy_timeout(LONG).unwrap();
    file.execute_batch(
        "BEGIN IMMEDIATE;
         UPDATE machine SET fence = fence + 1000000000;
         INSERT INTO places SELECT hash, prefix, key, 'half', 0, expires + 60000000, NULL, 0, NULL FROM places;
         DELETE FROM places WHERE token <> 'half';",
    )
    .unwrap();
    say("in the middle");
    wait_for_parent();
    file.execute_batch("COMMIT").unwrap();
}

/// Takes and gives back three locks at a time, until it is killed.
async fn take_three(file: &Path) {
    let store = open(file).await;
    say("begins");
    loop {
        let lease = locks(&["a", "b", "c"], LONG);
        granted(&store, &lease).await;
        store.release(&lease).await.unwrap();
    }
}

/// Says how much time the holder of `k` has left.
async fn look(file: &Path) {
    let store = open(file).await;
    let holders = holders(&store, "k").await;
    let left = holders.first().and_then(clinch::Holder::remaining).map(|left| left.as_millis());
    say(&left.map_or("free".to_owned(), |left| left.to_string()));
}

async fn try_to_open(file: &Path) {
    match SqliteStore::open(file, &StoreOptions::default()).await {
        Ok(_) => say("opened"),
        Err(error) => say(&format!("{:?}: {error}", error.kind())),
    }
}

/// Listens to `k`, and to revocations.
async fn listen(file: &Path) {
    let store = open(file).await;
    let (mut wakeups, _revocations) = (store.wakeups(&crate::common::on("k"), None), store.revocations());
    wakeups.next().await;
    say("listens");
    wait_for_parent();
}
