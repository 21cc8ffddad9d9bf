//! A simulated engine behind a simulated network, on tokio's paused clock, with faults drawn from a seed.
//!
//! [`Sim`] is the world: one engine, its memory and its clock, and the chance that rules over them. [`SimStore`] is one
//! process's way to that engine, a [`Store`](clinch::store::Store) like any other. [`workload::run`] lets several
//! managers work in such a world and returns the history. Nothing takes real time, and the same seed gives the same
//! history, byte for byte.
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
//! Managers, as they are; and *bare* clients of the port, which ask for every kind of claim and can be stopped for a
//! while ([`Gate`]), as SIGSTOP would. A manager cannot be stopped: it spawns its background tasks itself.

mod config;
mod engine;
mod execute;
pub mod fences;
mod gate;
mod network;
mod register;
mod store;
pub mod workload;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use clinch::lease::{ClaimKey, Fence, Token};
use clinch::store::Notice;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::sync::{Notify, broadcast};
use tokio::time::Instant;

pub use self::config::{Chance, Faults};
pub use self::engine::{Asked, Asking, EngineTime, Honest, Place, Refusal, Rules, Table, acquire_by};
pub use self::gate::Gate;
pub use self::register::Register;
pub use self::store::SimStore;

use self::execute::{Reply, Request};
use self::network::Connection;
use crate::history::{Call, Event, FaultKind, Header, History, Placed, Recorder, Role, Tag};

/// The time limit of every call.
pub const CALL_LIMIT: Duration = Duration::from_secs(1);
/// The latest that a request reaches the engine after it was sent: its own delay, a dead pipe's, and a stall.
pub const LATEST_LANDING: Duration = Duration::from_secs(8);
/// How many revocations a slow listener may fall behind.
const REVOCATIONS: usize = 256;

/// A simulated world: one engine and the way to it. Clones are the same world.
#[derive(Clone)]
pub struct Sim {
    world: Arc<World>,
}

struct World {
    seed: u64,
    faults: Faults,
    rules: Box<dyn Rules>,
    recorder: Recorder,
    state: Mutex<State>,
}

struct State {
    rng: StdRng,
    table: Table,
    /// How much faster than everybody else's the engine's clock runs, in millionths.
    drift_ppm: i64,
    counters: BTreeMap<FaultKind, u64>,
    /// One-shot orders: the next request of this kind meets this fault.
    orders: Vec<(Call, FaultKind)>,
    next_id: u64,
    stalled_until: Instant,
    down_until: Instant,
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
}

impl Sim {
    /// A world with an honest engine. To be made inside a runtime whose clock is paused.
    pub fn new(seed: u64, faults: Faults) -> Self {
        Self::with_rules(seed, faults, Box::new(Honest))
    }

    /// A world whose engine goes by these rules.
    pub fn with_rules(seed: u64, faults: Faults, rules: Box<dyn Rules>) -> Self {
        let mut rng = StdRng::seed_from_u64(seed);
        let now = Instant::now();
        let state = State {
            drift_ppm: rng.random_range(-faults.drift_ppm..=faults.drift_ppm),
            rng,
            table: Table::default(),
            counters: BTreeMap::new(),
            orders: Vec::new(),
            next_id: 0,
            stalled_until: now,
            down_until: now,
            connections: Vec::new(),
            listeners: Vec::new(),
            revoked: BTreeMap::new(),
        };
        let world = World { seed, faults, rules, recorder: Recorder::new(), state: Mutex::new(state) };
        Self { world: Arc::new(world) }
    }

    /// The way of one process to the engine.
    pub fn store(&self, client: usize) -> Arc<SimStore> {
        Arc::new(SimStore::new(self.world.clone(), client))
    }

    /// Where events are taken down.
    pub fn recorder(&self) -> Recorder {
        self.world.recorder.clone()
    }

    /// What happened so far.
    pub fn history(&self) -> History {
        let header = Header {
            seed: self.world.seed,
            call_limit: CALL_LIMIT,
            latest_landing: LATEST_LANDING,
            quiet: self.world.faults.is_none(),
        };
        self.world.recorder.history(header)
    }

    /// How often each fault was caused.
    pub fn counters(&self) -> BTreeMap<FaultKind, u64> {
        self.world.state().counters.clone()
    }

    /// The next request of this kind meets this fault, whatever chance says. For tests of one fault.
    pub fn order(&self, call: Call, fault: FaultKind) {
        self.world.state().orders.push((call, fault));
    }

    /// Cuts the connection of a process.
    pub fn cut(&self, client: usize) {
        let connections = self.world.connections(Some(client));
        self.world.fault(FaultKind::Cut, Some(client));
        connections.iter().for_each(|connection| connection.cut(&self.world, true));
    }

    /// The engine restarts: every connection is gone, and so is its memory if it has none that lasts.
    pub fn restart(&self, with_memory: bool) {
        let world = &self.world;
        world.fault(if with_memory { FaultKind::Restart } else { FaultKind::Amnesia }, None);
        for connection in world.connections(None) {
            connection.cut(world, false);
        }
        let mut state = world.state();
        let down_ms = state.rng.random_range(10..300);
        state.down_until = Instant::now() + Duration::from_millis(down_ms);
        if !with_memory {
            let now = world.engine_now(&state);
            for (on, places) in state.table.lose_all() {
                for place in places.iter().filter(|place| world.rules.is_live(place, now)) {
                    let place = world.placed(&state, place);
                    world.recorder.record(Event::Forgot { key: on.to_string(), place });
                }
            }
        }
    }

    /// The engine loses the numbers of its fences, and nothing else.
    pub fn lose_counters(&self) {
        self.world.fault(FaultKind::LostCounter, None);
        self.world.state().table.lose_counters();
    }

    /// The engine does nothing for a while; what arrives meanwhile waits.
    pub fn stall(&self, time: Duration) {
        self.world.fault(FaultKind::Stall, None);
        let mut state = self.world.state();
        state.stalled_until = state.stalled_until.max(Instant::now() + time);
    }

    /// Stops what runs behind a process's gate for a while.
    pub fn stop(&self, client: usize, gate: &Gate, time: Duration) {
        self.world.fault(FaultKind::Stopped, Some(client));
        let until = Instant::now() + time;
        gate.stop_until(until);
        let until = until - self.world.recorder.start();
        self.world.recorder.record(Event::Stopped { client, until });
    }

    /// Who holds what in the engine at this instant, or waits for it. What is done is nobody's.
    pub fn live(&self) -> Vec<(String, Tag)> {
        let state = self.world.state();
        let now = self.world.engine_now(&state);
        let there = |place: &Place| place.role != Role::Done && self.world.rules.is_live(place, now);
        let live = state.table.iter().filter(|(_, place)| there(place));
        live.map(|(on, place)| (on.to_string(), Tag::from(&place.token))).collect()
    }
}

impl fmt::Debug for Sim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.world.fmt(f)
    }
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sim").field("seed", &self.seed).field("faults", &self.faults).finish_non_exhaustive()
    }
}

impl World {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn id(&self) -> u64 {
        let mut state = self.state();
        state.next_id += 1;
        state.next_id
    }

    fn fault(&self, kind: FaultKind, client: Option<usize>) {
        *self.state().counters.entry(kind).or_default() += 1;
        self.recorder.record(Event::Fault { kind, client });
    }

    /// Whether chance, or an order, wants this fault now.
    fn strikes(&self, kind: FaultKind, call: Call, chance: Chance, client: usize) -> bool {
        let mut state = self.state();
        let ordered = state.orders.iter().position(|order| *order == (call, kind));
        let strikes = match ordered {
            Some(index) => {
                state.orders.remove(index);
                true
            }
            None => chance.strikes(&mut state.rng),
        };
        drop(state);
        if strikes {
            self.fault(kind, Some(client));
        }
        strikes
    }

    fn random_ms(&self, range: std::ops::RangeInclusive<u64>) -> Duration {
        Duration::from_millis(self.state().rng.random_range(range))
    }

    /// How long a packet is on its way: a few milliseconds, now and then a good deal more.
    fn travel(&self) -> Duration {
        let mut state = self.state();
        let slow = state.rng.random_range(0..10) == 0;
        let ms = if slow { state.rng.random_range(20..=200) } else { state.rng.random_range(1..=10) };
        Duration::from_millis(ms)
    }

    fn connections(&self, client: Option<usize>) -> Vec<Arc<Connection>> {
        let mut state = self.state();
        state.connections.retain(|connection| connection.strong_count() > 0);
        let all = state.connections.iter().filter_map(Weak::upgrade);
        all.filter(|connection| client.is_none_or(|client| client == connection.client)).collect()
    }

    fn engine_now(&self, state: &State) -> EngineTime {
        EngineTime::of(self.recorder.start().elapsed(), state.drift_ppm)
    }

    fn placed(&self, state: &State, place: &Place) -> Placed {
        Placed {
            token: (&place.token).into(),
            role: place.role,
            expires: place.expires.elapsed(state.drift_ppm),
            fence: place.fence.map(Fence::get),
        }
    }

    fn revocations(&self, client: usize) -> broadcast::Receiver<Notice> {
        self.state().revoked.entry(client).or_insert_with(|| broadcast::channel(REVOCATIONS).0).subscribe()
    }
}
