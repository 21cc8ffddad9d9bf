//! Several processes that want the same few keys, in every way that the manager and the port offer.
//!
//! [`run`] makes a world from a seed, lets every task of every process do its steps, shuts the managers down, lets
//! everything run out, and returns the history for [`check`](crate::history::check).
//!
//! Some processes have a manager (`manager`); the others are bare clients of the port (`bare`), which ask for every kind
//! of claim, take their time, and can be stopped. They share keys.

mod bare;
mod bare_steps;
mod manager;
mod manager_steps;
mod operation;
mod seam;

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use clinch::store::Store;
use clinch::{LockManager, Sources};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use self::bare::Bare;
pub use self::bare::Habit;
use self::bare_steps::BareWorker;
use self::manager::Process;
use self::manager_steps::Worker;
use self::operation::Journal;
use super::{Chance, Faults, Gate, Honest, LATEST_LANDING, Register, Rules, Sim};
use crate::history::{Event, FaultKind, History, Observed};

const LONGEST_TTL: Duration = Duration::from_secs(60);
const SHUTDOWN_LIMIT: Duration = Duration::from_secs(10);

/// A store put around every process's own.
pub type Wrap = Arc<dyn Fn(Arc<dyn Store>) -> Arc<dyn Store> + Send + Sync>;

/// Who works on what, under which faults, on which engine.
#[derive(Clone)]
pub struct Setup {
    /// Processes, each with its own manager and connection.
    pub clients: usize,
    /// Processes without a manager, each with its own connection; their numbers follow.
    pub bare: usize,
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
    /// How the bare clients go about it.
    pub habit: Habit,
}

impl Setup {
    /// What a seed stands for: every fourth has no faults, the others have all.
    pub fn of_seed(seed: u64) -> Self {
        let faults = if seed.is_multiple_of(4) { Faults::NONE } else { Faults::ALL };
        let (rules, habit): (fn() -> Box<dyn Rules>, _) = (|| Box::new(Honest), Habit::Honest);
        Self { clients: 3, bare: 2, tasks: 3, steps: 10, keys: 2, faults, rules, wrap: None, habit }
    }
}

impl fmt::Debug for Setup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { clients, bare, tasks, steps, keys, faults, .. } = self;
        write!(f, "Setup({clients} + {bare} clients, {tasks} tasks, {steps} steps, {keys} keys, {faults:?})")
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
    let journal = Journal::new(sim.recorder());
    let store = |client| -> Arc<dyn Store> {
        let store: Arc<dyn Store> = sim.store(client);
        let store = setup.wrap.as_ref().map_or_else(|| store.clone(), |wrap| wrap(store.clone()));
        Arc::new(Observed::new(store, sim.recorder(), client))
    };
    let register = Register::new(setup.habit != Habit::NoFenceCheck);
    let mut processes = Vec::new();
    for client in 0..setup.clients {
        let builder =
            LockManager::builder().sources(Sources::seeded(rng.random())).host(format!("sim-{client}"));
        // The defaults are valid; a manager that cannot be built has no tasks, and its absence shows.
        let Ok(manager) = builder.store(store(client)).build() else { continue };
        let (register, journal) = (register.clone(), journal.clone());
        processes.push(Process { client, register, manager, journal });
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
    let mut gates = Vec::new();
    let focus = rng.random_range(0..100);
    for client in setup.clients..setup.clients + setup.bare {
        let (journal, register, gate) = (journal.clone(), register.clone(), Gate::default());
        let bare = Bare::new(client, store(client), journal, register, gate.clone(), setup.habit);
        for _ in 0..setup.tasks {
            let rng = StdRng::seed_from_u64(rng.random());
            let worker = BareWorker::new(bare.clone(), rng, setup.keys, setup.faults.is_none(), focus);
            tasks.push((client, tokio::spawn(gate.behind(worker.work(setup.steps)))));
        }
        gates.push((client, gate));
    }
    let chaos = tokio::spawn(chaos(sim.clone(), setup.clone(), gates, StdRng::seed_from_u64(rng.random())));
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
async fn chaos(sim: Sim, setup: Setup, gates: Vec<(usize, Gate)>, mut rng: StdRng) {
    let faults = &setup.faults;
    if faults.is_none() {
        return;
    }
    loop {
        sleep(ms(&mut rng, 300, 1500)).await;
        let strikes = |chance: Chance, rng: &mut StdRng| chance.strikes(rng);
        if strikes(faults.chaos_cut, &mut rng) {
            sim.cut(rng.random_range(0..setup.clients + setup.bare));
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
        if strikes(faults.lost_counter, &mut rng) {
            sim.lose_counters();
        }
        if strikes(faults.stopped, &mut rng) && !gates.is_empty() {
            let (client, gate) = &gates[rng.random_range(0..gates.len())];
            sim.stop(*client, gate, ms(&mut rng, 500, 9000));
        }
    }
}

fn ms(rng: &mut StdRng, from: u64, to: u64) -> Duration {
    Duration::from_millis(rng.random_range(from..=to))
}
