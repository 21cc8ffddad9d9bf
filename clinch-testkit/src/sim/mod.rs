//! A simulated engine behind a simulated network, on tokio's paused clock, with faults drawn from a seed.
//!
//! [`Sim`] is the world: an engine of some [`Shape`] (one server; one with a replica that takes over; a quorum of several),
//! its memory and its clock, and the chance that rules over them. [`SimStore`] is one process's way to one server, a
//! [`Store`] like any other; over several of them works the very
//! [`QuorumStore`] that runs in production. [`workload::run`] lets several
//! managers work in such a world and returns the history. Nothing takes real time, and the same seed gives the same
//! history, byte for byte. Every fault has a name, so that a run can be repeated with only some of them ([`shrink`]).
//!
//! # How a call goes
//! A request travels down the *pipe* of its process's connection, is carried out by the engine at one instant, and the
//! reply travels back. Pipes are first in, first out, as TCP is: what follows a late request waits behind it. Every
//! call keeps its time limit. What can go wrong on the way is drawn when the request is sent; see [`Faults`].
//!
//! A connection that is cut fails its calls in flight as *unknown*. Some of the requests that were in its pipe, the
//! first ones, may still reach the engine later: by then the process has a new connection, and what it sends there
//! overtakes them. So a release is *conclusive* only over the connection of all acquires of its token that were not
//! answered, and only while that is open.
//!
//! # Who works in it
//! Managers, as they are; and *bare* clients of the port, which ask for every kind of claim. Both can be stopped for a while
//! ([`Gate`]), as SIGSTOP would: their tasks do not run. Of a manager's own background task it is the calls to the store
//! that do not go on, so that nothing leaves such a process or reaches it.

mod chance;
mod config;
mod engine;
mod execute;
pub mod fences;
mod gate;
mod gated;
mod network;
mod node;
mod register;
pub mod shrink;
mod store;
pub mod workload;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use clinch::lease::{ClaimKey, Fence, Token};
use clinch::store::{Kept, Notice, Store};
use clinch::stores::quorum::{Probation, QuorumStore};
use rand::RngExt;
use tokio::sync::{Notify, broadcast};
use tokio::time::Instant;

pub use self::chance::{FaultId, Only};
pub use self::config::{Chance, Faults};
pub use self::engine::{Asked, Asking, EngineTime, Honest, Place, Refusal, Rules, Table, acquire_by};
pub use self::gate::Gate;
pub use self::register::Register;
pub use self::store::SimStore;

use self::chance::Fortune;
use self::engine::Replica;
use self::execute::{Reply, Request};
use self::network::Connection;
use crate::history::{Call, Event, FaultKind, Header, History, Placed, Recorder, Role, Tag};

/// The time limit of every call.
pub const CALL_LIMIT: Duration = Duration::from_secs(1);
/// The latest that a request reaches the engine after it was sent: its own delay, a dead pipe's, and a stall.
pub const LATEST_LANDING: Duration = Duration::from_secs(8);
/// The longest TTL of a quorum.
pub const QUORUM_TTL: Duration = Duration::from_secs(6);
/// What an answer of a quorum may take longer than a call of a node: a moment for votes that an earlier try gives back, one for
/// slower nodes to decide, and one to give its own votes back. (A manager ends it after the time of one call all the same.)
const ROLL_BACK: Duration = Duration::from_millis(750);
/// How many revocations a slow listener may fall behind.
const REVOCATIONS: usize = 256;
/// How long a node has run when the history begins.
const UPTIME: Duration = Duration::from_secs(3600);

/// What the engine consists of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Shape {
    /// One server.
    #[default]
    Single,
    /// One server, and a replica that takes over.
    Replicated,
    /// So many servers that know nothing of each other, of which more than half must grant.
    Quorum {
        /// How many.
        nodes: usize,
        /// Whether a node that was restarted sits out. (If not, that is a bug.)
        sits_out: bool,
    },
}

/// Puts a store around a process's way to one node, by its number.
pub type Around = fn(usize, Arc<dyn Store>) -> Arc<dyn Store>;

/// A simulated world: an engine and the way to it. Clones are the same world.
#[derive(Clone)]
pub struct Sim {
    /// The nodes of the engine; mostly one.
    nodes: Vec<Arc<World>>,
    shape: Shape,
}

/// One node and the way to it.
struct World {
    seed: u64,
    node: usize,
    faults: Faults,
    rules: Box<dyn Rules>,
    recorder: Recorder,
    /// What it sits out when it was restarted.
    sits_out: Option<Duration>,
    state: Mutex<State>,
}

struct State {
    fortune: Fortune,
    table: Table,
    replica: Option<Replica>,
    /// Until when the replica is far behind.
    lags_until: Instant,
    /// How much faster than everybody else's the engine's clock runs, in millionths.
    drift_ppm: i64,
    /// By how much the engine's clock was set, in microseconds.
    set_by: i64,
    /// By how much it was set back altogether, in milliseconds.
    set_back_ms: u64,
    /// When the engine was started, by its own clock.
    started: EngineTime,
    counters: BTreeMap<FaultKind, u64>,
    /// One-shot orders: the next request of this kind meets this fault.
    orders: Vec<(Call, FaultKind)>,
    next_id: u64,
    stalled_until: Instant,
    down_until: Instant,
    /// Who does not hear the engine, and is not heard, until when.
    cut_off: BTreeMap<usize, Instant>,
    connections: Vec<Weak<Connection>>,
    listeners: Vec<Listener>,
    revoked: BTreeMap<usize, broadcast::Sender<Notice>>,
}

/// Who wants to be woken.
struct Listener {
    id: u64,
    client: usize,
    on: ClaimKey,
    /// The attempt in the key's queue for which it listens.
    queued: Option<Token>,
    signal: Arc<Notify>,
    kept: Arc<Kept>,
}

impl Sim {
    /// A world with an honest engine. To be made inside a runtime whose clock is paused.
    pub fn new(seed: u64, faults: Faults) -> Self {
        Self::with_rules(seed, faults, Box::new(Honest))
    }

    /// A world whose engine goes by these rules.
    pub fn with_rules(seed: u64, faults: Faults, rules: Box<dyn Rules>) -> Self {
        let world = World::new(seed, 0, faults, rules, Recorder::new(), Shape::Single, None);
        Self { nodes: vec![Arc::new(world)], shape: Shape::Single }
    }

    /// A world with an engine of this shape, and only these faults.
    pub fn shaped(
        seed: u64,
        faults: &Faults,
        rules: fn() -> Box<dyn Rules>,
        shape: Shape,
        only: &Only,
    ) -> Self {
        let recorder = Recorder::new();
        let nodes = match shape {
            Shape::Quorum { nodes, .. } => nodes,
            Shape::Single | Shape::Replicated => 1,
        };
        let node =
            |node| World::new(seed, node, faults.clone(), rules(), recorder.clone(), shape, only.clone());
        Self { nodes: (0..nodes).map(|number| Arc::new(node(number))).collect(), shape }
    }

    fn world(&self) -> &Arc<World> {
        &self.nodes[0]
    }

    /// The way of one process to the engine; of a quorum, to its first node.
    pub fn store(&self, client: usize) -> Arc<SimStore> {
        Arc::new(SimStore::new(self.world().clone(), client))
    }

    /// The way of one process to each node, by its name.
    pub fn node_stores(&self, client: usize) -> Vec<(String, Arc<dyn Store>)> {
        let store = |world: &Arc<World>| Arc::new(SimStore::new(world.clone(), client)) as Arc<dyn Store>;
        self.nodes.iter().map(|world| (format!("n{}", world.node), store(world))).collect()
    }

    /// The way of one process to the whole engine, with `around` put around its way to each node.
    pub fn client(&self, client: usize, around: Option<Around>) -> Arc<dyn Store> {
        match self.shape {
            Shape::Single | Shape::Replicated => self.store(client),
            Shape::Quorum { .. } => {
                let seed = self.world().seed.wrapping_mul(31).wrapping_add(client as u64);
                let mut nodes = self.node_stores(client);
                if let Some(around) = around {
                    let wrapped = |(number, (name, store))| (name, around(number, store));
                    nodes = nodes.into_iter().enumerate().map(wrapped).collect();
                }
                match QuorumStore::new(nodes, QUORUM_TTL, seed) {
                    Ok(store) => Arc::new(store),
                    // Too few nodes for a quorum: a world that was set up wrong, and whose emptiness shows.
                    Err(_) => self.store(client),
                }
            }
        }
    }

    /// How many nodes the engine has.
    pub fn nodes(&self) -> usize {
        self.nodes.len()
    }

    /// Where events are taken down.
    pub fn recorder(&self) -> Recorder {
        self.world().recorder.clone()
    }

    /// What happened so far.
    pub fn history(&self) -> History {
        let world = self.world();
        let header = Header {
            seed: world.seed,
            call_limit: CALL_LIMIT + if self.nodes() > 1 { ROLL_BACK } else { Duration::ZERO },
            latest_landing: LATEST_LANDING,
            quiet: world.faults.is_none(),
            nodes: self.nodes(),
        };
        world.recorder.history(header)
    }

    /// How often each fault was caused.
    pub fn counters(&self) -> BTreeMap<FaultKind, u64> {
        let mut all = BTreeMap::new();
        for world in &self.nodes {
            world.state().counters.iter().for_each(|(kind, times)| *all.entry(*kind).or_default() += times);
        }
        all
    }

    /// The next request of this kind meets this fault, whatever chance says. For tests of one fault.
    pub fn order(&self, call: Call, fault: FaultKind) {
        self.world().state().orders.push((call, fault));
    }

    /// Cuts the connection of a process.
    pub fn cut(&self, client: usize) {
        self.world().cut(&ordered(FaultKind::Cut, Some(client)));
    }

    /// The engine restarts: every connection is gone, and so is its memory if it has none that lasts.
    pub fn restart(&self, with_memory: bool) {
        self.restart_node(0, with_memory);
    }

    /// One node restarts.
    pub fn restart_node(&self, node: usize, with_memory: bool) {
        let kind = if with_memory { FaultKind::Restart } else { FaultKind::Amnesia };
        self.nodes[node].restart(&FaultId { node, ..ordered(kind, None) });
    }

    /// Nobody reaches this node, nor is reached by it, for so long.
    pub fn isolate(&self, node: usize, clients: std::ops::Range<usize>, time: Duration) {
        for client in clients {
            let id = FaultId { node, ..ordered(FaultKind::Partition, Some(client)) };
            self.nodes[node].partition(&id, time);
        }
    }

    /// The engine loses the numbers of its fences, and nothing else.
    pub fn lose_counters(&self) {
        self.world().lose_counters(&ordered(FaultKind::LostCounter, None));
    }

    /// The engine does nothing for a while; what arrives meanwhile waits.
    pub fn stall(&self, time: Duration) {
        self.world().stall(&ordered(FaultKind::Stall, None), time);
    }

    /// A replica that has what arrived by now takes over.
    pub fn fail_over(&self) {
        self.world().fail_over(&ordered(FaultKind::Failover, None));
    }

    /// The replica falls behind, for so long.
    pub fn lag(&self, time: Duration) {
        self.world().lag(&ordered(FaultKind::Lag, None), time);
    }

    /// Stops what runs behind a process's gate for a while.
    pub fn stop(&self, client: usize, gate: &Gate, time: Duration) {
        self.world().stop(&ordered(FaultKind::Stopped, Some(client)), gate, time);
    }

    /// How far the clock of any node was set back altogether.
    pub fn set_back(&self) -> Duration {
        let most = self.nodes.iter().map(|world| world.state().set_back_ms).max();
        Duration::from_millis(most.unwrap_or_default())
    }

    /// Who holds what in the engine at this instant, or waits for it. What is done is nobody's.
    pub fn live(&self) -> Vec<(String, Tag)> {
        let mut all = Vec::new();
        for world in &self.nodes {
            let state = world.state();
            let now = world.engine_now(&state);
            let there = |place: &Place| place.role != Role::Done && world.rules.is_live(place, now);
            let live = state.table.iter().filter(|(_, place)| there(place));
            all.extend(live.map(|(on, place)| (on.to_string(), Tag::from(&place.token))));
        }
        all
    }
}

/// A fault that a test caused.
const fn ordered(kind: FaultKind, client: Option<usize>) -> FaultId {
    FaultId { kind, node: 0, client, nth: 0 }
}

impl fmt::Debug for Sim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.world().fmt(f)
    }
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sim").field("seed", &self.seed).field("faults", &self.faults).finish_non_exhaustive()
    }
}

impl World {
    fn new(
        seed: u64,
        node: usize,
        faults: Faults,
        rules: Box<dyn Rules>,
        recorder: Recorder,
        shape: Shape,
        only: Only,
    ) -> Self {
        let mut fortune = Fortune::new(seed, node, only);
        let now = Instant::now();
        let drift_ppm = fortune.of(None).random_range(-faults.drift_ppm..=faults.drift_ppm);
        let table = Table::default();
        let state = State {
            fortune,
            replica: (shape == Shape::Replicated).then(|| Replica::of(&table)),
            table,
            lags_until: now,
            drift_ppm,
            set_by: 0,
            set_back_ms: 0,
            started: EngineTime::of(Duration::ZERO, 0).before(UPTIME),
            counters: BTreeMap::new(),
            orders: Vec::new(),
            next_id: 0,
            stalled_until: now,
            down_until: now,
            cut_off: BTreeMap::new(),
            connections: Vec::new(),
            listeners: Vec::new(),
            revoked: BTreeMap::new(),
        };
        let sits_out = match shape {
            Shape::Quorum { sits_out: true, .. } => Some(QUORUM_TTL),
            _ => None,
        };
        Self { seed, node, faults, rules, recorder, sits_out, state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn id(&self) -> u64 {
        let mut state = self.state();
        state.next_id += 1;
        state.next_id
    }

    fn fault(&self, id: &FaultId) {
        *self.state().counters.entry(id.kind).or_default() += 1;
        self.recorder.record(Event::Fault { id: *id });
    }

    /// Whether chance, or an order, wants this fault now; its name then.
    fn strikes(&self, kind: FaultKind, call: Call, chance: Chance, client: usize) -> Option<FaultId> {
        let mut state = self.state();
        let ordered = state.orders.iter().position(|order| *order == (call, kind));
        let struck = match ordered {
            Some(index) => {
                state.orders.remove(index);
                Some(FaultId { kind, node: self.node, client: Some(client), nth: 0 })
            }
            None => state.fortune.strikes(kind, Some(client), chance),
        };
        drop(state);
        struck.inspect(|id| self.fault(id))
    }

    /// A time that belongs to a fault.
    fn ms_of(&self, id: &FaultId, range: std::ops::RangeInclusive<u64>) -> Duration {
        Duration::from_millis(self.state().fortune.of_fault(*id).random_range(range))
    }

    fn random_ms(&self, client: usize, range: std::ops::RangeInclusive<u64>) -> Duration {
        Duration::from_millis(self.state().fortune.of(Some(client)).random_range(range))
    }

    /// How long a packet is on its way to or from a client: a few milliseconds, now and then a good deal more.
    fn travel(&self, client: usize) -> Duration {
        let mut state = self.state();
        let rng = state.fortune.of(Some(client));
        let slow = rng.random_range(0..10) == 0;
        let ms = if slow { rng.random_range(20..=200) } else { rng.random_range(1..=10) };
        Duration::from_millis(ms)
    }

    /// Whether nothing gets through between this client and the engine.
    fn is_cut_off(&self, client: usize) -> bool {
        self.state().cut_off.get(&client).is_some_and(|until| *until > Instant::now())
    }

    /// What the engine says of its age, to a new connection.
    fn probation(&self) -> Option<Probation> {
        let sits_out = self.sits_out?;
        let state = self.state();
        let uptime = self.engine_now(&state).since(state.started);
        // As servers tell it.
        Some(Probation::after(Duration::from_secs(uptime.as_secs()), sits_out))
    }

    fn connections(&self, client: Option<usize>) -> Vec<Arc<Connection>> {
        let mut state = self.state();
        state.connections.retain(|connection| connection.strong_count() > 0);
        let all = state.connections.iter().filter_map(Weak::upgrade);
        all.filter(|connection| client.is_none_or(|client| client == connection.client)).collect()
    }

    fn engine_now(&self, state: &State) -> EngineTime {
        EngineTime::of(self.recorder.start().elapsed(), state.drift_ppm).set_by(state.set_by)
    }

    fn placed(&self, state: &State, place: &Place) -> Placed {
        Placed {
            token: (&place.token).into(),
            role: place.role,
            expires: place.expires.set_by(-state.set_by).elapsed(state.drift_ppm),
            fence: place.fence.map(Fence::get),
        }
    }

    fn revocations(&self, client: usize) -> broadcast::Receiver<Notice> {
        self.state().revoked.entry(client).or_insert_with(|| broadcast::channel(REVOCATIONS).0).subscribe()
    }
}
