//! Several processes that want the same few keys, in every way that the manager and the port offer.
//!
//! [`run`] makes a world from a seed, lets every task of every process do its steps, shuts the managers down, lets
//! everything run out, and returns the history for [`check`](crate::history::check).
//!
//! Some processes have a manager (`manager`); the others are bare clients of the port (`bare`), which ask for every kind
//! of claim that the engine grants, and take their time. They share keys. Both are stopped, cut off and killed by `chaos`.

mod bare;
mod bare_steps;
mod chaos;
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
use self::bare_steps::{BareWorker, Focus};
use self::chaos::{Chaos, Victim};
use self::manager::Process;
use self::manager_steps::Worker;
use self::operation::Journal;
use super::gated::Gated;
use super::{Around, Faults, Gate, Honest, LATEST_LANDING, Only, Register, Rules, Shape, Sim};
use crate::history::{Event, FaultKind, History, Observed};

const LONGEST_TTL: Duration = Duration::from_secs(60);
const SHUTDOWN_LIMIT: Duration = Duration::from_secs(10);

/// A store put around every process's own.
pub type Wrap = Arc<dyn Fn(Arc<dyn Store>) -> Arc<dyn Store> + Send + Sync>;

/// What kind of engine is worked on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// One server, which may restart and forget, and whose clock may be set.
    Single,
    /// One server and a replica, which is behind when it takes over.
    Failover,
    /// Three or five servers that know nothing of each other, of which more than half must grant.
    Quorum,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Single, Self::Failover, Self::Quorum];
}

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
    /// Of that, only this does.
    pub only: Only,
    /// What the engine consists of.
    pub shape: Shape,
    /// Makes the rules of the engine.
    pub rules: fn() -> Box<dyn Rules>,
    /// What is put around each process's store.
    pub wrap: Option<Wrap>,
    /// What is put around each process's way to a node of a quorum.
    pub around: Option<Around>,
    /// How the bare clients go about it.
    pub habit: Habit,
}

impl Setup {
    /// What a seed stands for on one server: every fourth has no faults, the others have all.
    pub fn of_seed(seed: u64) -> Self {
        if seed.is_multiple_of(4) {
            Self::quiet(Kind::Single, seed)
        } else {
            Self::stormy(Kind::Single, seed)
        }
    }

    /// The same on any engine.
    pub fn of_seed_on(kind: Kind, seed: u64) -> Self {
        if seed.is_multiple_of(4) { Self::quiet(kind, seed) } else { Self::stormy(kind, seed) }
    }

    /// What a seed stands for where nothing goes wrong.
    pub fn quiet(kind: Kind, seed: u64) -> Self {
        Self { faults: Faults::NONE, ..Self::stormy(kind, seed) }
    }

    /// What a seed stands for where everything goes wrong that the engine is to bear, and what it cannot bear as well,
    /// where that is known and excused.
    pub fn stormy(kind: Kind, seed: u64) -> Self {
        let (shape, faults) = match kind {
            Kind::Single if seed % 5 == 3 => (Shape::Single, Faults::CLOCK_BACK),
            Kind::Single => (Shape::Single, Faults::ALL),
            Kind::Failover => (Shape::Replicated, Faults::FAILOVER),
            Kind::Quorum => {
                let nodes = if seed % 3 == 2 { 5 } else { 3 };
                (Shape::Quorum { nodes, sits_out: true }, Faults::QUORUM)
            }
        };
        Self {
            clients: 3,
            bare: 2,
            tasks: 3,
            steps: 24,
            keys: 2,
            faults,
            only: None,
            shape,
            rules: || Box::new(Honest),
            wrap: None,
            around: None,
            habit: Habit::Honest,
        }
    }
}

impl fmt::Debug for Setup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { clients, bare, tasks, steps, keys, shape, faults, .. } = self;
        write!(
            f,
            "Setup({clients} + {bare} clients, {tasks} tasks, {steps} steps, {keys} keys, {shape:?}, {faults:?})"
        )
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
    let sim = Sim::shaped(seed, &setup.faults, setup.rules, setup.shape, &setup.only);
    let mut rng = StdRng::seed_from_u64(seed ^ 0x5eed);
    let journal = Journal::new(sim.recorder());
    let store = |client, gate: &Gate| -> Arc<dyn Store> {
        let store = sim.client(client, setup.around);
        let store = setup.wrap.as_ref().map_or_else(|| store.clone(), |wrap| wrap(store.clone()));
        let store = Arc::new(Gated::new(store, gate.clone()));
        Arc::new(Observed::new(store, sim.recorder(), client))
    };
    let plain = matches!(setup.shape, Shape::Quorum { .. });
    let register = Register::new(setup.habit != Habit::NoFenceCheck);
    let mut processes = Vec::new();
    let mut victims = Vec::new();
    for client in 0..setup.clients {
        let gate = Gate::default();
        let builder =
            LockManager::builder().sources(Sources::seeded(rng.random())).host(format!("sim-{client}"));
        // The defaults are valid; a manager that cannot be built has no tasks, and its absence shows.
        let Ok(manager) = builder.store(store(client, &gate)).build() else { continue };
        let (register, journal) = (register.clone(), journal.clone());
        processes.push((Process { client, register, manager, journal }, gate.clone()));
        victims.push(Victim { client, gate, tasks: Vec::new() });
    }
    let mut tasks: Vec<(usize, JoinHandle<()>)> = Vec::new();
    for (process, gate) in &processes {
        for _ in 0..setup.tasks {
            let worker = Worker {
                process: process.clone(),
                rng: StdRng::seed_from_u64(rng.random()),
                keys: setup.keys,
                plain,
            };
            tasks.push((process.client, tokio::spawn(gate.behind(worker.work(setup.steps)))));
        }
    }
    let focus = rng.random_range(0..100);
    for client in setup.clients..setup.clients + setup.bare {
        let (journal, register, gate) = (journal.clone(), register.clone(), Gate::default());
        let bare = Bare::new(client, store(client, &gate), journal, register, gate.clone(), setup.habit);
        let mut own = Vec::new();
        for _ in 0..setup.tasks {
            let rng = StdRng::seed_from_u64(rng.random());
            let focus = if plain { Focus::Plain } else { Focus::Most(focus) };
            let worker = BareWorker::new(bare.clone(), rng, setup.keys, setup.faults.is_none(), focus);
            let task = tokio::spawn(gate.behind(worker.work(setup.steps)));
            own.push(task.abort_handle());
            tasks.push((client, task));
        }
        victims.push(Victim { client, gate, tasks: own });
    }
    let chaos = Chaos { sim: sim.clone(), faults: setup.faults.clone(), managers: setup.clients, victims };
    let chaos = tokio::spawn(chaos.reign(StdRng::seed_from_u64(rng.random())));
    // Now and then a process goes early, in the middle of its work.
    if rng.random_range(0..3) == 0
        && let Some((process, _)) = processes.first().cloned()
    {
        let after = Duration::from_millis(rng.random_range(500..10_000));
        let early = async move {
            sleep(after).await;
            process.shut_down().await;
        };
        tasks.push((0, tokio::spawn(early)));
    }
    for (client, task) in tasks {
        if task.await.is_err_and(|error| error.is_panic()) {
            sim.recorder().record(Event::Panicked { client });
        }
    }
    chaos.abort();
    for (process, _) in &processes {
        process.shut_down().await;
    }
    drop(processes);
    // A clock that was set back keeps leases for so much longer.
    sleep(LONGEST_TTL + LONGEST_TTL / 10 + LATEST_LANDING + sim.set_back()).await;
    sim.recorder().record(Event::End { left: sim.live() });
    Run { history: sim.history(), faults: sim.counters() }
}

fn ms(rng: &mut StdRng, from: u64, to: u64) -> Duration {
    Duration::from_millis(rng.random_range(from..=to))
}
