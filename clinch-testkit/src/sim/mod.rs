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
//! # What it cannot do
//! - Stop a process (SIGSTOP): all processes share one thread. Their calls can be late, their code cannot.
//! - Fences, shared claims, permits, several claims in one attempt.

mod config;
mod engine;
mod network;
mod store;
pub mod workload;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use clinch::lease::{ClaimKey, Token};
use clinch::store::{Notice, Revocation};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::sync::{Notify, broadcast};
use tokio::time::{Instant, sleep};

pub use self::config::{Chance, Faults};
pub use self::engine::{EngineTime, Honest, Place, Rules, Table};
pub use self::store::SimStore;

use self::network::Connection;
use crate::history::{Call, Event, FaultKind, Header, History, Placed, Recorder, Step, Tag};

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
    signal: Arc<Notify>,
}

/// What the engine is asked to do.
#[derive(Debug, Clone)]
enum Request {
    Acquire { on: ClaimKey, token: Token, ttl: Duration },
    Renew { on: ClaimKey, token: Token, ttl: Duration },
    Release { on: ClaimKey, token: Token },
    Revoke { on: ClaimKey, token: Token },
    Inspect { on: ClaimKey },
    List,
    Ping,
}

/// What it answers.
#[derive(Debug, Clone)]
enum Reply {
    /// Granted, extended, held.
    Yes,
    No,
    Denied(Place, Duration),
    Places(Vec<(ClaimKey, Place, Duration)>),
    Busy,
}

impl Request {
    const fn call(&self) -> Call {
        match self {
            Self::Acquire { .. } => Call::Acquire,
            Self::Renew { .. } => Call::Renew,
            Self::Release { .. } => Call::Release,
            Self::Revoke { .. } => Call::Revoke,
            Self::Inspect { .. } | Self::List | Self::Ping => Call::Look,
        }
    }

    const fn on(&self) -> Option<(&ClaimKey, &Token)> {
        match self {
            Self::Acquire { on, token, .. }
            | Self::Renew { on, token, .. }
            | Self::Release { on, token }
            | Self::Revoke { on, token } => Some((on, token)),
            Self::Inspect { .. } | Self::List | Self::Ping => None,
        }
    }

    const fn ttl(&self) -> Duration {
        match self {
            Self::Acquire { ttl, .. } | Self::Renew { ttl, .. } => *ttl,
            _ => Duration::ZERO,
        }
    }
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
            for (on, place) in state.table.clear() {
                if world.rules.is_live(&place, now) {
                    let place = world.placed(&state, &place);
                    world.recorder.record(Event::Forgot { key: on.key.to_string(), place });
                }
            }
        }
    }

    /// The engine does nothing for a while; what arrives meanwhile waits.
    pub fn stall(&self, time: Duration) {
        self.world.fault(FaultKind::Stall, None);
        let mut state = self.world.state();
        state.stalled_until = state.stalled_until.max(Instant::now() + time);
    }

    /// Who holds what in the engine at this instant.
    pub fn live(&self) -> Vec<(String, Tag)> {
        let state = self.world.state();
        let now = self.world.engine_now(&state);
        let live = state.table.iter().filter(|(_, place)| self.world.rules.is_live(place, now));
        live.map(|(on, place)| (on.key.to_string(), Tag::from(&place.token))).collect()
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
        Placed { token: (&place.token).into(), expires: place.expires.elapsed(state.drift_ppm) }
    }

    /// The engine carries a request out: one instant, one change.
    fn execute(self: &Arc<Self>, request: &Request, client: usize, connection: u64) -> Reply {
        if request.on().is_some() && self.strikes(FaultKind::Busy, request.call(), self.faults.busy, client) {
            return Reply::Busy;
        }
        let mut guard = self.state();
        let state = &mut *guard;
        let now = self.engine_now(state);
        let before = request.on().and_then(|(on, _)| state.table.get(on).cloned());
        let (table, rules) = (&mut state.table, &self.rules);
        let left = |place: &Place| place.expires.since(now).max(Duration::from_millis(1));
        let reply = match request {
            Request::Acquire { on, token, ttl } => match rules.acquire(table, on, token, *ttl, now) {
                Ok(()) => Reply::Yes,
                Err(holder) => Reply::Denied(holder.clone(), left(&holder)),
            },
            Request::Renew { on, token, ttl } => yes(rules.renew(table, on, token, *ttl, now)),
            Request::Release { on, token } => yes(rules.release(table, on, token, now)),
            Request::Revoke { on, token } => yes(rules.revoke(table, on, token, now)),
            Request::Inspect { on } => {
                let live = table.get(on).filter(|place| rules.is_live(place, now)).cloned();
                Reply::Places(
                    live.map(|place| (on.clone(), place.clone(), left(&place))).into_iter().collect(),
                )
            }
            Request::List => {
                let live = table.iter().filter(|(_, place)| rules.is_live(place, now));
                Reply::Places(live.map(|(on, place)| (on.clone(), place.clone(), left(place))).collect())
            }
            Request::Ping => Reply::Yes,
        };
        let Some((on, token)) = request.on() else { return reply };
        let after = state.table.get(on).cloned();
        let step = Step {
            client,
            call: request.call(),
            connection,
            token: token.into(),
            key: on.key.to_string(),
            ttl: request.ttl(),
            before: before.as_ref().map(|place| self.placed(state, place)),
            after: after.as_ref().map(|place| self.placed(state, place)),
        };
        drop(guard);
        self.recorder.record(Event::Step(step));
        if before.is_some() && after.is_none() {
            self.wake(on);
            if request.call() == Call::Revoke {
                self.publish(&Revocation { on: on.clone(), token: token.clone() });
            }
        }
        reply
    }

    /// Tells everybody who waits for this key.
    fn wake(self: &Arc<Self>, on: &ClaimKey) {
        let listeners: Vec<_> = {
            let state = self.state();
            let listening = state.listeners.iter().filter(|listener| listener.on == *on);
            listening.map(|listener| (listener.client, listener.signal.clone())).collect()
        };
        for (client, signal) in listeners {
            let lost = self.strikes(FaultKind::LostWakeup, Call::Look, self.faults.lost_wakeup, client);
            let delay = self.travel();
            if !lost {
                tokio::spawn(async move {
                    sleep(delay).await;
                    signal.notify_one();
                });
            }
        }
    }

    /// Tells every process of a revocation.
    fn publish(self: &Arc<Self>, revocation: &Revocation) {
        let listeners: Vec<_> =
            self.state().revoked.iter().map(|(client, sender)| (*client, sender.clone())).collect();
        for (client, sender) in listeners {
            let lost =
                self.strikes(FaultKind::LostRevocation, Call::Revoke, self.faults.lost_revocation, client);
            let delay = self.travel();
            if !lost {
                let revocation = revocation.clone();
                tokio::spawn(async move {
                    sleep(delay).await;
                    // An error only says that nobody listens.
                    let _ = sender.send(Notice::Revoked(revocation));
                });
            }
        }
    }

    fn revocations(&self, client: usize) -> broadcast::Receiver<Notice> {
        self.state().revoked.entry(client).or_insert_with(|| broadcast::channel(REVOCATIONS).0).subscribe()
    }
}

const fn yes(yes: bool) -> Reply {
    if yes { Reply::Yes } else { Reply::No }
}
