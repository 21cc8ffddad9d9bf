//! A fair key keeps its order across processes, and does not wait long for one that died at the head of its queue.

use std::time::{Duration, Instant};

use clinch::{LockManager, LockOptions};
use rand::RngExt;

use super::engine::{Engine, StoreArg};
use super::kid::{Kid, now, orders};

pub(super) const KEY: &str = "printer";
const PROCESSES: usize = 4;
const TTL: Duration = Duration::from_secs(30);
const WAIT: Duration = Duration::from_secs(120);
/// What to run.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// How many waiters in each process, about.
    #[arg(long, default_value_t = 25)]
    waiters: usize,
    /// How often the head of the queue is killed.
    #[arg(long, default_value_t = 3)]
    deaths: usize,
    /// How long the next one may take after that, in milliseconds: the second for which the lock is kept, and some.
    #[arg(long, default_value_t = 1_500)]
    most_ms: u64,
    #[command(flatten)]
    store: StoreArg,
}

/// What one process does.
#[derive(Debug, clap::Args)]
pub(crate) struct WaiterArgs {
    url: String,
}

pub(crate) async fn run(args: &Args) -> bool {
    let engine = Engine::of(&args.store);
    let manager = LockManager::connect(&engine.url()).await.unwrap();
    let waiters = args.waiters * PROCESSES;
    let in_order = order(&engine, &manager, waiters).await;
    println!(
        "{PROCESSES} processes, {waiters} waiters of one fair key: {}",
        if in_order { "all in the order of their arrival" } else { "NOT in the order of their arrival" }
    );
    let mut longest = Duration::ZERO;
    for _ in 0..args.deaths {
        longest = longest.max(passing_over(&engine, &manager).await);
    }
    println!(
        "the head of the queue killed {} times, TTL {TTL:?}: the next one had it within {longest:.2?}",
        args.deaths
    );
    let clean = manager.shutdown(Duration::from_secs(10)).await.is_clean();
    in_order && longest <= Duration::from_millis(args.most_ms) && clean && engine.left().is_empty()
}

pub(super) fn in_turn() -> LockOptions {
    LockOptions::new(TTL).wait(WAIT).fair()
}

/// Returns when the engine has heard of so many waiters. Only then may the next one come: that is the order that is kept.
pub(super) fn wait_for_queue(engine: &Engine, length: usize) {
    let started = Instant::now();
    while engine.queue_length(KEY) != length {
        assert!(started.elapsed() < WAIT / 2, "waiter number {length} does not come into the queue");
        std::thread::sleep(Duration::from_micros(100));
    }
}

fn waiting_process(engine: &Engine) -> Kid {
    Kid::new(&["fair-waiter".to_owned(), engine.url()])
}

/// Whether the waiters, each in a process at random, get their turns in the order in which they came, and all exactly once.
async fn order(engine: &Engine, manager: &LockManager, waiters: usize) -> bool {
    let mut processes: Vec<_> = (0..PROCESSES).map(|_| waiting_process(engine)).collect();
    let guard = manager.lock(KEY, in_turn()).await.unwrap();
    let mut waiting = [0; PROCESSES];
    for waiter in 0..waiters {
        let process = rand::rng().random_range(0..PROCESSES);
        processes[process].say(&waiter.to_string());
        waiting[process] += 1;
        wait_for_queue(engine, waiter + 1);
    }
    guard.release().await.unwrap();
    let mut turns = Vec::new();
    for (process, waiting) in processes.iter().zip(waiting) {
        for _ in 0..waiting {
            let (waiter, at) = heard(&process.hear());
            turns.push((at, waiter));
        }
    }
    turns.sort_unstable();
    let turns: Vec<_> = turns.into_iter().map(|(_, waiter)| waiter).collect();
    let in_order = turns.iter().copied().eq(0..waiters);
    if !in_order {
        println!("the turns went to {turns:?}");
    }
    in_order
}

fn heard(line: &str) -> (usize, u64) {
    let (waiter, at) = line.split_once(' ').unwrap();
    (waiter.parse().unwrap(), at.parse().unwrap())
}

/// Kills the process of the one whose turn is next, gives the lock back, and measures until the one after has it.
async fn passing_over(engine: &Engine, manager: &LockManager) -> Duration {
    let (mut first, mut second) = (waiting_process(engine), waiting_process(engine));
    let guard = manager.lock(KEY, in_turn()).await.unwrap();
    first.say("0");
    wait_for_queue(engine, 1);
    second.say("1");
    wait_for_queue(engine, 2);
    drop(first);
    let released = now();
    guard.release().await.unwrap();
    Duration::from_nanos(heard(&second.hear()).1 - released)
}

/// Waits for the lock as often as it is told to, gives it back at once, and says when it had it.
pub(crate) async fn wait(args: WaiterArgs) -> bool {
    let mut orders = orders();
    let manager = LockManager::connect(&args.url).await.unwrap();
    while let Some(waiter) = orders.recv().await {
        let manager = manager.clone();
        tokio::spawn(async move {
            let guard = manager.lock(KEY, in_turn()).await.unwrap();
            let at = now();
            guard.release().await.unwrap();
            println!("{waiter} {at}");
        });
    }
    true
}
