//! Several processes that want the same few keys, in every way that the manager offers.
//!
//! [`run`] makes a world from a seed, lets every task of every process do its steps, shuts the managers down, lets
//! everything run out, and returns the history for [`check`](crate::history::check).

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use clinch::store::{Effect, Store};
use clinch::{
    Denied, DeniedBy, Error, Lease, LockGuard, LockManager, LockOptions, Outcome as Answer, Sources,
};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::{Chance, Faults, Honest, LATEST_LANDING, Rules, Sim};
use crate::history::{Event, FaultKind, History, Observed, Outcome, Recorder, Stop, Tag, Wish, in_operation};

/// The TTLs that are asked for: shorter than one call's limit, and longer.
const TTLS_MS: [u64; 4] = [300, 800, 2500, 6000];
const LONGEST_TTL: Duration = Duration::from_secs(6);
const SHUTDOWN_LIMIT: Duration = Duration::from_secs(10);

/// A store put around every process's own.
pub type Wrap = Arc<dyn Fn(Arc<dyn Store>) -> Arc<dyn Store> + Send + Sync>;

/// Who works on what, under which faults, on which engine.
#[derive(Clone)]
pub struct Setup {
    /// Processes, each with its own manager and connection.
    pub clients: usize,
    /// Tasks of each process.
    pub tasks: usize,
    /// What each task does, one after the other.
    pub steps: usize,
    /// How many keys they share.
    pub keys: usize,
    /// What can go wrong.
    pub faults: Faults,
    /// Makes the rules of the engine.
    pub rules: fn() -> Box<dyn Rules>,
    /// What is put around each process's store.
    pub wrap: Option<Wrap>,
}

impl Setup {
    /// What a seed stands for: every fourth has no faults, the others have all.
    pub fn of_seed(seed: u64) -> Self {
        let faults = if seed.is_multiple_of(4) { Faults::NONE } else { Faults::ALL };
        Self { clients: 3, tasks: 3, steps: 10, keys: 2, faults, rules: || Box::new(Honest), wrap: None }
    }
}

impl fmt::Debug for Setup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { clients, tasks, steps, keys, faults, .. } = self;
        write!(f, "Setup({clients} clients, {tasks} tasks, {steps} steps, {keys} keys, {faults:?})")
    }
}

/// What came of a run.
#[derive(Debug, Clone)]
pub struct Run {
    /// What happened.
    pub history: History,
    /// How often each fault was caused.
    pub faults: BTreeMap<FaultKind, u64>,
}

/// Runs `future` on a runtime of its own, on one thread, with a paused clock: the only kind on which a seed replays.
///
/// # Errors
/// If there is no such runtime to be had.
pub fn on_paused_clock<F: Future>(future: F) -> io::Result<F::Output> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?;
    Ok(runtime.block_on(future))
}

/// Runs the workload of this seed.
///
/// # Errors
/// As [`on_paused_clock`].
pub fn run(seed: u64, setup: &Setup) -> io::Result<Run> {
    on_paused_clock(work(seed, setup.clone()))
}

async fn work(seed: u64, setup: Setup) -> Run {
    let sim = Sim::with_rules(seed, setup.faults.clone(), (setup.rules)());
    let mut rng = StdRng::seed_from_u64(seed ^ 0x5eed);
    let operations = Arc::new(AtomicU64::new(0));
    let mut processes = Vec::new();
    for client in 0..setup.clients {
        let store: Arc<dyn Store> = sim.store(client);
        let store = setup.wrap.as_ref().map_or_else(|| store.clone(), |wrap| wrap(store.clone()));
        let store = Arc::new(Observed::new(store, sim.recorder(), client));
        let builder =
            LockManager::builder().sources(Sources::seeded(rng.random())).host(format!("sim-{client}"));
        // The defaults are valid; a manager that cannot be built has no tasks, and its absence shows.
        let Ok(manager) = builder.store(store).build() else { continue };
        processes.push(Process { client, manager, recorder: sim.recorder(), operations: operations.clone() });
    }
    let mut tasks: Vec<(usize, JoinHandle<()>)> = Vec::new();
    for process in &processes {
        for _ in 0..setup.tasks {
            let worker = Worker {
                process: process.clone(),
                rng: StdRng::seed_from_u64(rng.random()),
                keys: setup.keys,
            };
            tasks.push((process.client, tokio::spawn(worker.work(setup.steps))));
        }
    }
    let chaos = tokio::spawn(chaos(sim.clone(), setup.clone(), StdRng::seed_from_u64(rng.random())));
    // Now and then a process goes early, in the middle of its work.
    if rng.random_range(0..3) == 0
        && let Some(process) = processes.first().cloned()
    {
        let after = Duration::from_millis(rng.random_range(500..10_000));
        let early = async move {
            sleep(after).await;
            process.shut_down().await;
        };
        tasks.push((0, tokio::spawn(early)));
    }
    for (client, task) in tasks {
        if task.await.is_err() {
            sim.recorder().record(Event::Panicked { client });
        }
    }
    chaos.abort();
    for process in &processes {
        process.shut_down().await;
    }
    drop(processes);
    sleep(LONGEST_TTL + LONGEST_TTL / 10 + LATEST_LANDING).await;
    sim.recorder().record(Event::End { left: sim.live() });
    Run { history: sim.history(), faults: sim.counters() }
}

/// What strikes by itself, about every second.
async fn chaos(sim: Sim, setup: Setup, mut rng: StdRng) {
    let faults = &setup.faults;
    if faults.is_none() {
        return;
    }
    loop {
        sleep(ms(&mut rng, 300, 1500)).await;
        let strikes = |chance: Chance, rng: &mut StdRng| chance.strikes(rng);
        if strikes(faults.chaos_cut, &mut rng) {
            sim.cut(rng.random_range(0..setup.clients));
        }
        if strikes(faults.stall, &mut rng) {
            sim.stall(ms(&mut rng, 100, 2000));
        }
        if strikes(faults.restart, &mut rng) {
            sim.restart(true);
        }
        if strikes(faults.amnesia, &mut rng) {
            sim.restart(false);
        }
    }
}

fn ms(rng: &mut StdRng, from: u64, to: u64) -> Duration {
    Duration::from_millis(rng.random_range(from..=to))
}

/// A process: a manager, and how its operations are written down.
#[derive(Debug, Clone)]
struct Process {
    client: usize,
    manager: LockManager,
    recorder: Recorder,
    operations: Arc<AtomicU64>,
}

/// An operation under way; dropped before it completed, it was abandoned.
struct Operation {
    op: u64,
    recorder: Recorder,
    open: bool,
}

impl Operation {
    fn complete(mut self, outcome: Outcome) {
        self.open = false;
        self.recorder.record(Event::Complete { op: self.op, outcome });
    }
}

impl Drop for Operation {
    fn drop(&mut self) {
        if self.open {
            self.recorder.record(Event::Complete { op: self.op, outcome: Outcome::Abandoned });
        }
    }
}

/// A belief to hold a key; it ends with this value at the latest.
struct Belief {
    lease: Lease,
    recorder: Recorder,
    open: bool,
}

impl Belief {
    fn end(&mut self, how: Stop) {
        if std::mem::replace(&mut self.open, false) {
            self.recorder.record(Event::Ended { token: self.lease.token().into(), how });
        }
    }

    fn probe(&self) {
        let (token, valid) = (self.lease.token().into(), self.lease.is_valid());
        self.recorder.record(Event::Probe { token, valid });
    }

    /// Goes on as long as `time`, or until the lease is lost.
    async fn keep(&mut self, time: Duration) {
        let lease = self.lease.clone();
        tokio::select! {
            biased;
            _ = lease.lost() => self.end(Stop::Lost),
            () = sleep(time) => {}
        }
        self.probe();
    }
}

impl Drop for Belief {
    fn drop(&mut self) {
        self.end(Stop::Dropped);
    }
}

/// A guard with the belief that comes with it. The belief ends first.
struct Holding {
    belief: Belief,
    guard: LockGuard,
}

/// How a lock is asked for.
#[derive(Debug, Clone)]
struct Ask {
    key: String,
    ttl: Duration,
    wait: Duration,
    retry: Duration,
    renew: Option<Renew>,
}

/// How a lock is renewed.
#[derive(Debug, Clone, Copy)]
struct Renew {
    every: Duration,
    /// After this it is left to run out.
    up_to: Option<Duration>,
}

impl Ask {
    fn options(&self) -> LockOptions {
        let options = LockOptions::new(self.ttl).wait(self.wait).retry_interval(self.retry);
        match self.renew {
            Some(Renew { every, up_to: None }) => options.renew_every(every),
            Some(Renew { every, up_to: Some(up_to) }) => options.renew_every(every).renew_for(up_to),
            None => options,
        }
    }
}

impl Process {
    fn begin(&self, key: &str, wish: Wish) -> Operation {
        let op = self.operations.fetch_add(1, Ordering::Relaxed);
        self.recorder.record(Event::Invoke { op, client: self.client, key: key.to_owned(), wish });
        Operation { op, recorder: self.recorder.clone(), open: true }
    }

    fn believe(&self, op: u64, ask: &Ask, lease: Lease) -> Belief {
        let (key, token, ttl) = (ask.key.clone(), lease.token().into(), ask.ttl);
        self.recorder.record(Event::Held { op, client: self.client, key, token, ttl });
        Belief { lease, recorder: self.recorder.clone(), open: true }
    }

    async fn acquire(&self, ask: &Ask) -> Option<Holding> {
        let operation = self.begin(&ask.key, Wish::Lock { ttl: ask.ttl, wait: ask.wait });
        let op = operation.op;
        match in_operation(op, self.manager.attempt(ask.key.as_str(), ask.options())).await {
            Ok(Answer::Acquired(guard)) => {
                let belief = self.believe(op, ask, guard.lease());
                operation.complete(Outcome::Granted(guard.token().into()));
                Some(Holding { belief, guard })
            }
            Ok(Answer::DeniedByLock(denied)) => {
                operation.complete(denial(&denied));
                None
            }
            Ok(Answer::EngineFailed(error)) | Err(error) => {
                operation.complete(failure(&error));
                None
            }
            // There is no other outcome yet.
            Ok(_) => None,
        }
    }

    async fn run_under(&self, ask: &Ask, time: Duration) {
        let operation = self.begin(&ask.key, Wish::Run { ttl: ask.ttl, wait: ask.wait });
        let op = operation.op;
        let block = async |lease: Lease| {
            let mut belief = self.believe(op, ask, lease);
            belief.keep(time).await;
            belief.end(Stop::Done);
        };
        let result = in_operation(op, self.manager.with_lock(ask.key.as_str(), ask.options(), block)).await;
        operation.complete(match result {
            Ok(()) => Outcome::Ran,
            Err(Error::LockNotAcquired { denied, .. }) => denial(&denied),
            Err(error) => failure(&error),
        });
    }

    async fn release(&self, key: &str, holding: Holding) {
        let Holding { mut belief, guard } = holding;
        let token: Tag = guard.token().into();
        let operation = self.begin(key, Wish::Release { token });
        belief.end(Stop::Released);
        match in_operation(operation.op, guard.release()).await {
            Ok(held) => operation.complete(Outcome::Released(held)),
            Err(error) => operation.complete(failure(&error)),
        }
    }

    /// Looks who holds the key, and ends that lease by force if `by_force`.
    async fn look(&self, key: &str, by_force: bool) {
        let operation = self.begin(key, Wish::Inspect);
        let holder = match in_operation(operation.op, self.manager.inspect(key)).await {
            Ok(holders) => {
                let holder = holders.into_iter().next();
                operation.complete(Outcome::Seen(holder.as_ref().map(|holder| holder.token().into())));
                holder
            }
            Err(error) => return operation.complete(failure(&error)),
        };
        let Some(holder) = holder.filter(|_| by_force) else { return };
        // People take their time.
        sleep(Duration::from_millis(20)).await;
        let operation = self.begin(key, Wish::Revoke { token: holder.token().into() });
        match in_operation(operation.op, self.manager.force_release(&holder)).await {
            Ok(revoked) => operation.complete(Outcome::Revoked(revoked)),
            Err(error) => operation.complete(failure(&error)),
        }
    }

    async fn shut_down(&self) {
        let left = self.manager.shutdown(SHUTDOWN_LIMIT).await;
        let (unreleased, guards) = (left.unreleased, left.guards);
        self.recorder.record(Event::Shutdown { client: self.client, unreleased, guards });
    }
}

fn denial(denied: &Denied) -> Outcome {
    match denied.cause {
        DeniedBy::TooLate => Outcome::TooLate,
        _ => Outcome::Denied { holder: denied.holder.as_ref().map(|holder| holder.token().into()) },
    }
}

fn failure(error: &Error) -> Outcome {
    match error {
        Error::ShutDown { .. } => Outcome::ShutDown,
        Error::Engine { cause: source, .. } if source.effect() == Effect::Unknown => Outcome::Unknown,
        _ => Outcome::Failed,
    }
}

/// One task of a process.
struct Worker {
    process: Process,
    rng: StdRng,
    keys: usize,
}

impl Worker {
    async fn work(mut self, steps: usize) {
        for _ in 0..steps {
            sleep(ms(&mut self.rng, 0, 400)).await;
            self.step().await;
        }
    }

    fn ask(&mut self) -> Ask {
        let key = format!("k{}", self.rng.random_range(0..self.keys));
        let ttl = Duration::from_millis(TTLS_MS[self.rng.random_range(0..TTLS_MS.len())]);
        let retry = ms(&mut self.rng, 20, 200);
        Ask { key, ttl, wait: Duration::ZERO, retry, renew: None }
    }

    fn patient(&mut self) -> Ask {
        let ask = self.ask();
        Ask { wait: ms(&mut self.rng, 50, 3000), ..ask }
    }

    fn any(&mut self) -> Ask {
        let mut ask = if self.rng.random() { self.ask() } else { self.patient() };
        let every = ask.ttl / 3;
        ask.renew = match self.rng.random_range(0..6) {
            0 => Some(Renew { every, up_to: None }),
            1 => Some(Renew { every, up_to: Some(every * 2) }),
            _ => None,
        };
        ask
    }

    /// How long to hold: mostly short, sometimes past the TTL.
    fn hold_time(&mut self, ask: &Ask) -> Duration {
        let most = if ask.renew.is_some() { ask.ttl * 2 } else { ask.ttl + ask.ttl / 4 };
        let most = most.as_millis().try_into().unwrap_or(u64::MAX);
        match self.rng.random_range(0..3) {
            // Until it has run out for sure.
            _ if ask.renew.is_some_and(|renew| renew.up_to.is_some()) => ask.ttl * 2,
            0 => ms(&mut self.rng, 0, 50),
            1 => ms(&mut self.rng, 0, most / 4),
            _ => ms(&mut self.rng, 0, most),
        }
    }

    async fn step(&mut self) {
        match self.rng.random_range(0..100) {
            0..35 => self.lock_and_give_back().await,
            35..50 => {
                let ask = self.any();
                let time = self.hold_time(&ask);
                Box::pin(self.process.run_under(&ask, time)).await;
            }
            50..60 => {
                let ask = self.any();
                let (time, patience) = (self.hold_time(&ask), ms(&mut self.rng, 0, 500));
                // Dropped in the middle of whatever it does.
                let _ = timeout(patience, Box::pin(self.process.run_under(&ask, time))).await;
            }
            60..72 => {
                let ask = self.any();
                let patience = ms(&mut self.rng, 0, 60);
                let _ = timeout(patience, self.process.acquire(&ask)).await;
            }
            72..82 => self.drop_and_try().await,
            82..92 => self.try_together().await,
            _ => {
                let ask = self.ask();
                let by_force = self.rng.random();
                self.process.look(&ask.key, by_force).await;
            }
        }
    }

    async fn lock_and_give_back(&mut self) {
        let ask = self.any();
        let time = self.hold_time(&ask);
        let Some(mut holding) = self.process.acquire(&ask).await else { return };
        holding.belief.keep(time).await;
        match self.rng.random_range(0..4) {
            0 => drop(holding),
            1 => {
                // A release whose future is dropped goes on in the background.
                let patience = ms(&mut self.rng, 0, 20);
                let _ = timeout(patience, self.process.release(&ask.key, holding)).await;
            }
            _ => self.process.release(&ask.key, holding).await,
        }
    }

    /// Gives a lock back by dropping it, and wants it again at once.
    async fn drop_and_try(&mut self) {
        let ask = self.ask();
        let time = ms(&mut self.rng, 0, 100);
        let Some(mut holding) = self.process.acquire(&ask).await else { return };
        holding.belief.keep(time).await;
        drop(holding);
        if let Some(again) = self.process.acquire(&ask).await {
            self.process.release(&ask.key, again).await;
        }
    }

    /// Several tries of one process at once: they share calls.
    async fn try_together(&mut self) {
        let ask = self.ask();
        let other = Ask { ttl: Duration::from_millis(1500), ..ask.clone() };
        let process = &self.process;
        let some = async |ask: &Ask| {
            if let Some(holding) = process.acquire(ask).await {
                sleep(Duration::from_millis(5)).await;
                drop(holding);
            }
        };
        tokio::join!(some(&ask), some(&other), some(&ask), some(&other));
    }
}
