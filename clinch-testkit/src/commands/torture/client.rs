//! A process that works with locks, until it is told to end or meets its end.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use clinch::store::Capabilities;
use clinch::stores::{self, StoreOptions};
use clinch::{Limit, LockGuard, LockManager, LockOptions, Outcome};
use clinch_testkit::planted;
use rand::RngExt;
use tokio::time::{interval, sleep};

use super::record::{Belief, Role, Writer};
use super::register::Resource;
use super::{KEYS, LIMIT, TTL};
use crate::commands::kid::{nanos, now, orders};

/// How many tasks a process has.
const TASKS: usize = 6;
/// How long a process waits for an engine that cannot be reached when it starts.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Debug, clap::Args)]
pub(crate) struct ClientArgs {
    url: String,
    /// Where the resource listens.
    resource: PathBuf,
    /// Where to write what happens.
    history: PathBuf,
    /// A planted bug of the store.
    #[arg(long)]
    plant: Option<String>,
    /// Works as one does who trusts a lock: takes it, works for a while, and writes without looking again.
    #[arg(long)]
    trusting: bool,
}

struct Client {
    locks: LockManager,
    can: Capabilities,
    limit: Option<Limit>,
    resource: Resource,
    history: Writer,
    operations: AtomicU64,
    ending: AtomicBool,
    trusting: bool,
}

pub(crate) async fn work(args: ClientArgs) -> bool {
    let mut orders = orders();
    let locks = connect(&args).await;
    let can = locks.capabilities();
    let client = Arc::new(Client {
        limit: can.permits.then(|| locks.limit("permits", LIMIT).unwrap()),
        can,
        locks,
        resource: Resource::connect(&args.resource).await,
        history: Writer::append_to(&args.history),
        operations: AtomicU64::new(0),
        ending: AtomicBool::new(false),
        trusting: args.trusting,
    });
    let tasks = if args.trusting { 1 } else { TASKS };
    let tasks: Vec<_> = (0..tasks).map(|_| tokio::spawn(client.clone().take_turns())).collect();
    let mut tick = interval(Duration::from_secs(1));
    loop {
        tokio::select! {
            order = orders.recv() => {
                assert_eq!(order.unwrap(), "end");
                break;
            }
            _ = tick.tick() => println!("{}", client.operations.load(Ordering::Relaxed)),
        }
    }
    client.ending.store(true, Ordering::Relaxed);
    for task in tasks {
        task.await.unwrap();
    }
    let left = client.locks.shutdown(Duration::from_secs(20)).await;
    println!("{}", if left.is_clean() { "ended".to_owned() } else { format!("left behind: {left:?}") });
    left.is_clean()
}

/// Connects, however long the engine takes to come up.
async fn connect(args: &ClientArgs) -> LockManager {
    let connecting = async {
        loop {
            match stores::connect(&args.url, &StoreOptions::default()).await {
                Ok(store) => return store,
                Err(_) => sleep(Duration::from_millis(100)).await,
            }
        }
    };
    let store = tokio::time::timeout(PATIENCE, connecting).await.expect("the engine can be reached");
    let store = match &args.plant {
        None => store,
        Some(name) => planted::wrap(name, store).expect("a bug that can be planted here"),
    };
    LockManager::builder().store(store).build().unwrap()
}

impl Client {
    async fn take_turns(self: Arc<Self>) {
        while !self.ending.load(Ordering::Relaxed) {
            // Boxed: several kinds of operations, of which the largest decides.
            Box::pin(self.turn()).await;
        }
    }

    async fn turn(&self) {
        let op = self.operations.fetch_add(1, Ordering::Relaxed);
        if self.trusting {
            return self.trust(op).await;
        }
        let dice = rand::rng().random_range(0..100);
        let wait = if dice % 2 == 0 { Duration::ZERO } else { millis(200, 2000) };
        let options = LockOptions::new(TTL).wait(wait).retry_interval(Duration::from_millis(50));
        let options = if dice < 20 { options.renew() } else { options };
        self.history.begin(op, now(), nanos(wait));
        let (key, role, outcome) = match &self.limit {
            Some(limit) if dice >= 85 => ("permits".to_owned(), Role::Permit, limit.attempt(options).await),
            _ => {
                let key = rand::rng().random_range(0..KEYS);
                // The last one has readers too.
                let (options, role) = match () {
                    () if key + 1 == KEYS && self.can.shared && dice % 3 > 0 => {
                        (options.shared(), Role::Shared)
                    }
                    () if self.can.fences => (options.fenced(), Role::Exclusive),
                    () => (options, Role::Exclusive),
                };
                let options = if dice % 10 == 9 && self.can.fair && role == Role::Exclusive {
                    options.fair()
                } else {
                    options
                };
                let key = format!("k{key}");
                let outcome = self.locks.attempt(key.as_str(), options).await;
                (key, role, outcome)
            }
        };
        let (said, guard) = match outcome {
            Ok(Outcome::Acquired(guard)) => ("granted", Some(guard)),
            Ok(Outcome::DeniedByLock(_) | Outcome::DeniedByLimit(_)) => ("denied", None),
            Ok(Outcome::EngineFailed(_)) => ("failed", None),
            other => panic!("{other:?}"),
        };
        self.history.done(op, now(), said);
        if let Some(guard) = guard {
            self.hold(op, guard, &key, role).await;
        } else if said == "failed" {
            // Nobody hammers an engine that is down.
            sleep(millis(20, 60)).await;
        }
    }

    /// Works under a guard as one should: looks before it writes, and writes with its fence.
    async fn hold(&self, op: u64, guard: LockGuard, key: &str, role: Role) {
        let from = now();
        let fence = guard.fence().map_or(0, clinch::Fence::get);
        let belief = |at, remaining| {
            let until = at + nanos(remaining);
            Belief { said: until - nanos(TTL), until }
        };
        let believed = belief(from, guard.remaining());
        self.history.held(op, from, believed, key, role, fence);
        // Most are short; some are longer than a lease that is not renewed.
        let looks = if rand::rng().random_range(0..100) == 0 { 12 } else { rand::rng().random_range(0..3) };
        for _ in 0..looks {
            sleep(millis(2, if looks > 3 { 200 } else { 15 })).await;
            let at = now();
            let remaining = guard.remaining();
            if remaining.is_zero() {
                break;
            }
            self.history.still(op, at, belief(at, remaining));
            if fence > 0 {
                self.resource.write(key, fence).await;
            }
        }
        let at = now();
        let remaining = guard.remaining();
        self.history.ended(op, at, !remaining.is_zero());
        if rand::random() {
            return drop(guard);
        }
        let released = guard.release().await;
        // One that takes long tried twice, which a busy machine alone brings about.
        let took = Duration::from_nanos(now() - at);
        if matches!(released, Ok(false)) && took < remaining && took < Duration::from_millis(200) {
            self.history.refuted(op, now(), believed.said, at);
        }
    }

    /// Takes the lock, works, and writes, without a look at whether it still has it.
    async fn trust(&self, op: u64) {
        let options = LockOptions::new(super::pauses::TTL).wait(Duration::from_secs(10)).fenced();
        self.history.begin(op, now(), nanos(Duration::from_secs(10)));
        let Ok(Outcome::Acquired(guard)) = self.locks.attempt("k0", options).await else {
            return self.history.done(op, now(), "denied");
        };
        self.history.done(op, now(), "granted");
        sleep(super::pauses::WORK).await;
        self.resource.write("k0", guard.fence().expect("it asked for one").get()).await;
        let _ = guard.release().await;
    }
}

fn millis(from: u64, to: u64) -> Duration {
    Duration::from_millis(rand::rng().random_range(from..to))
}
