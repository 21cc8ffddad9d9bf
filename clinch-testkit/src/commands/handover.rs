//! Hand-overs of one lock between two processes: the waiter is woken by push.
//!
//! The waiter's retry interval is 10 s and the holder's TTL 60 s, so neither a poll nor an expiry can be what wakes it.
//! Measured is the time from the call of `release` in one process until the other one says that it has its guard.

use std::io::{BufRead, BufReader, Write};
use std::time::{Duration, Instant};

use clinch::{LockManager, LockOptions};

use super::engine::{Engine, StoreArg};

const KEY: &str = "baton";
const TTL: Duration = Duration::from_secs(60);
const RETRY: Duration = Duration::from_secs(10);
const SECOND_TRY: Duration = Duration::from_millis(20);

/// What to run.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// How many hand-overs.
    #[arg(long, default_value_t = 100)]
    count: usize,
    /// The 99th percentile that must hold, in milliseconds.
    #[arg(long, default_value_t = 100)]
    p99_ms: u64,
    #[command(flatten)]
    store: StoreArg,
}

/// What the other process does.
#[derive(Debug, clap::Args)]
pub(crate) struct WaiterArgs {
    url: String,
}

pub(crate) async fn run(args: &Args) -> bool {
    let engine = Engine::of(&args.store);
    let manager = LockManager::connect(&engine.url()).await.unwrap();
    let mut waiter = super::another(&["handover-waiter".to_owned(), engine.url()]);
    let (mut to, from) = (waiter.stdin.take().unwrap(), waiter.stdout.take().unwrap());
    let mut from = BufReader::new(from).lines();
    let mut next = move || from.next().unwrap().unwrap();

    let mut times = Vec::with_capacity(args.count);
    for _ in 0..args.count {
        let guard = manager.lock(KEY, LockOptions::new(TTL).wait(TTL)).await.unwrap();
        let asked = scripts_run(&engine);
        writeln!(to, "wait").unwrap();
        // It has tried, subscribed, and tried again: from here on only the push can wake it.
        while engine.listeners(KEY) < 1 || asked.is_some_and(|asked| scripts_run(&engine) < Some(asked + 2)) {
            std::thread::sleep(Duration::from_micros(200));
        }
        if asked.is_none() {
            // Nothing tells of its second try; this is far more than it takes.
            std::thread::sleep(SECOND_TRY);
        }
        let started = Instant::now();
        guard.release().await.unwrap();
        assert_eq!(next(), "held");
        times.push(started.elapsed());
        writeln!(to, "release").unwrap();
        assert_eq!(next(), "released");
    }
    drop(to);
    let ended_well = waiter.wait().unwrap().success();

    times.sort_unstable();
    let at = |percent: usize| times[(times.len() * percent / 100).min(times.len() - 1)];
    println!(
        "{} hand-overs between two processes on {}, retry interval {RETRY:?}, TTL {TTL:?}: \
         p50 {:.2?}, p99 {:.2?}, longest {:.2?}",
        times.len(),
        engine.name(),
        at(50),
        at(99),
        times[times.len() - 1]
    );
    ended_well && at(99) < Duration::from_millis(args.p99_ms)
}

/// How many steps the engine has taken, if it tells.
fn scripts_run(engine: &Engine) -> Option<u64> {
    let calls = engine.redis()?.command_calls();
    Some(calls.get("evalsha").unwrap_or(&0) + calls.get("eval").unwrap_or(&0))
}

pub(crate) async fn wait(args: &WaiterArgs) -> bool {
    let manager = LockManager::connect(&args.url).await.unwrap();
    let mut lines = std::io::stdin().lines().map(Result::unwrap);
    while let Some(line) = lines.next() {
        assert_eq!(line, "wait");
        let options = LockOptions::new(TTL).wait(TTL).retry_interval(RETRY);
        let guard = manager.lock(KEY, options).await.unwrap();
        println!("held");
        assert_eq!(lines.next().unwrap(), "release");
        guard.release().await.unwrap();
        println!("released");
    }
    manager.shutdown(Duration::from_secs(10)).await.is_clean()
}
