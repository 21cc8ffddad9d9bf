//! Many waiters of one fair key: all get their turn, once, in the order in which they came, and what that costs.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use clinch::LockManager;

use super::engine::{Engine, StoreArg};

use super::fair::{KEY, in_turn, wait_for_queue};

const MANAGERS: usize = 4;

/// What to run.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// How many waiters.
    #[arg(long, default_value_t = 1_000)]
    waiters: usize,
    #[command(flatten)]
    store: StoreArg,
}

pub(crate) async fn run(args: &Args) -> bool {
    let engine = Engine::of(&args.store);
    let mut managers = Vec::new();
    for _ in 0..MANAGERS {
        managers.push(LockManager::connect(&engine.url()).await.unwrap());
    }
    let guard = managers[0].lock(KEY, in_turn()).await.unwrap();
    let turns = Arc::new(Mutex::new(Vec::new()));
    let (came, before) = (Instant::now(), sent(&engine));
    let mut tasks = Vec::new();
    for waiter in 0..args.waiters {
        let (manager, turns) = (managers[waiter % MANAGERS].clone(), turns.clone());
        tasks.push(tokio::spawn(async move {
            let guard = manager.lock(KEY, in_turn()).await.unwrap();
            turns.lock().unwrap().push(waiter);
            guard.release().await.unwrap()
        }));
        wait_for_queue(&engine, waiter + 1);
    }
    let (came, coming) = (came.elapsed(), sent(&engine).since(before));
    let (started, before) = (Instant::now(), sent(&engine));
    guard.release().await.unwrap();
    let mut all_held = true;
    for task in tasks {
        all_held &= task.await.unwrap();
    }
    let (took, going) = (started.elapsed(), sent(&engine).since(before));
    let turns = turns.lock().unwrap().clone();
    let in_order = turns.iter().copied().eq(0..args.waiters);
    let mut clean = true;
    for manager in &managers {
        clean &= manager.shutdown(Duration::from_secs(10)).await.is_clean();
    }

    println!(
        "{} waiters of one fair key on {MANAGERS} managers and {}: {} turns, {}, in {took:.1?} ({:.2?} each)",
        args.waiters,
        engine.name(),
        turns.len(),
        if in_order { "in the order of arrival" } else { "NOT in the order of arrival" },
        took / u32::try_from(args.waiters).unwrap(),
    );
    println!("commands per waiter to come into the queue (in {came:.1?}): {}", coming.each(args.waiters));
    println!("commands per hand-over: {}", going.each(args.waiters));
    all_held && in_order && clean && engine.left().is_empty()
}

/// Commands that the server was sent, by kind; those that its scripts run are not among them.
#[derive(Clone, Copy)]
struct Sent {
    scripts: u64,
    subscriptions: u64,
}

/// Zeros for an engine that is sent no commands.
fn sent(engine: &Engine) -> Sent {
    let calls = engine.redis().map(clinch_testkit::server::RedisServer::command_calls).unwrap_or_default();
    let sum = |names: &[&str]| names.iter().filter_map(|name| calls.get(*name)).sum();
    Sent {
        scripts: sum(&["eval", "evalsha"]),
        subscriptions: sum(&["subscribe", "unsubscribe", "ssubscribe", "sunsubscribe"]),
    }
}

impl Sent {
    const fn since(self, before: Self) -> Self {
        Self {
            scripts: self.scripts - before.scripts,
            subscriptions: self.subscriptions - before.subscriptions,
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "for people")]
    fn each(self, of: usize) -> String {
        let each = |count: u64| count as f64 / of as f64;
        format!("{:.2} scripts, {:.2} subscriptions", each(self.scripts), each(self.subscriptions))
    }
}
