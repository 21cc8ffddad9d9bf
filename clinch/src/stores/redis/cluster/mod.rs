//! A Redis Cluster: which server a step goes to, and what is done when it has to go to another.
//!
//! The client library's plain connections are used, one a node and made on demand; the routing is our own. So we know over
//! which connection an attempt went, and nothing is ever sent again but by us, with the same token:
//! - `MOVED`: the slot's owner is noted, the whole map is asked for in the background, the step follows;
//! - `ASK`: the step goes to the one named, behind an `ASKING` in the same exchange, and nothing is noted;
//! - `TRYAGAIN`, `CLUSTERDOWN`, a slot that nobody serves: asked again with growing pauses within the call's limit;
//! - no connection: the map is asked for, and if the slot has another owner by now, the step goes there.

mod listen;
mod many;
mod several;
mod slots;
mod store;
mod topology;

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::{RedisError, ServerErrorKind, Value};
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, sleep, timeout_at};

pub use self::store::RedisClusterStore;
use self::topology::{Node, Topology, ranges};
use super::address::{Opener, Place, shown_place, told_place};
use super::connection::{Connection, Target};
use super::link::{Link, pause_after};
use super::race::first_answer;
use super::scripts::Call;
use super::{came_back, going_out};
use crate::lease::Attempt;
use crate::store::{Effect, ErrorKind, StoreError};
use crate::stores::StoreOptions;
use crate::stores::in_flight::Purpose;

pub(super) use self::listen::attend;

/// How often one step is sent on or sent again at most.
const HOPS: u32 = 64;
/// How often it is sent on without a pause: servers that have not heard of a move yet send each other's callers to and fro.
const STRAIGHT: u32 = 4;

/// The way to the servers of a Cluster.
pub(super) struct Cluster {
    seeds: Vec<Place>,
    opener: Opener,
    options: StoreOptions,
    shown: String,
    topology: Mutex<Topology>,
    /// Counts the changes of the map.
    changed: watch::Sender<u64>,
    /// Counts how often the map was learnt, changed or not.
    learnt: watch::Sender<u64>,
    /// Who is asked for the map last: it failed, and may not know that it was replaced.
    doubted: Mutex<Option<Arc<str>>>,
    /// One asks for the map at a time.
    asking: Semaphore,
    /// Somebody asks for the map in the background.
    refreshing: AtomicBool,
    closed: AtomicBool,
    /// Wake-ups go by sharded channels.
    sharded: AtomicBool,
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster").field("to", &self.shown).finish_non_exhaustive()
    }
}

/// What a step must know and tells of its way.
#[derive(Default)]
pub(super) struct Trip<'a> {
    /// For an acquire: over which connections it goes out, and was answered, is noted here.
    acquires: Option<&'a Attempt>,
    /// Connections that must be taken where they lead to the server that the step goes to.
    over: &'a [Arc<Connection>],
    /// Those over which an answer came.
    answered: Vec<Arc<Connection>>,
    /// When it went out last.
    sent_at: Option<Instant>,
}

impl<'a> Trip<'a> {
    fn acquiring(attempt: &'a Attempt) -> Self {
        Self { acquires: Some(attempt), ..Self::default() }
    }

    fn over(over: &'a [Arc<Connection>]) -> Self {
        Self { over, ..Self::default() }
    }
}

/// Where a step goes next.
enum Hop {
    /// To whom the slot belongs, as far as is known.
    Owner,
    To(Place),
    /// The same, with an `ASKING` before it.
    Asking(Place),
}

/// What a refusal asks for.
enum Redirect {
    Moved(Place),
    Ask(Place),
    /// It passes.
    Later,
    /// It passes once the map is another.
    Elsewhere,
}

/// What the server's error behind a failure asks for. A redirect without a host means the server's own.
fn redirect(error: &StoreError, from: &Place) -> Option<Redirect> {
    let cause = error.cause()?.downcast_ref::<RedisError>()?;
    let place = || {
        let (to, _) = cause.redirect_node()?;
        let (host, port) = told_place(to)?;
        Some((if host.is_empty() { from.0.clone() } else { host }, port))
    };
    match cause.kind() {
        redis::ErrorKind::Server(ServerErrorKind::Moved) => place().map(Redirect::Moved),
        redis::ErrorKind::Server(ServerErrorKind::Ask) => place().map(Redirect::Ask),
        redis::ErrorKind::Server(ServerErrorKind::TryAgain) => Some(Redirect::Later),
        redis::ErrorKind::Server(
            ServerErrorKind::ClusterDown | ServerErrorKind::ReadOnly | ServerErrorKind::MasterDown,
        ) => Some(Redirect::Elsewhere),
        _ => None,
    }
}

impl Cluster {
    pub(super) fn new(seeds: Vec<Place>, opener: Opener, options: StoreOptions, shown: String) -> Self {
        Self {
            seeds,
            opener,
            options,
            shown,
            topology: Mutex::default(),
            changed: watch::Sender::new(0),
            learnt: watch::Sender::new(0),
            doubted: Mutex::default(),
            asking: Semaphore::new(1),
            refreshing: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            sharded: AtomicBool::new(false),
        }
    }

    pub(super) const fn options(&self) -> &StoreOptions {
        &self.options
    }

    fn topology(&self) -> MutexGuard<'_, Topology> {
        self.topology.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn close(&self) {
        self.closed.store(true, Ordering::Release);
        let topology = std::mem::take(&mut *self.topology());
        topology.primaries().iter().for_each(|node| node.link.close());
    }

    fn check_open(&self) -> Result<(), StoreError> {
        if self.closed.load(Ordering::Acquire) {
            return Err(StoreError::not_applied(ErrorKind::Closed, "the store was closed"));
        }
        Ok(())
    }

    fn make_node(&self, place: &Place) -> Result<Arc<Node>, StoreError> {
        let at: Arc<str> = shown_place(place).into();
        let target = Target::Fixed(Arc::new(self.opener.at(&place.0, place.1)?), at.clone());
        let link = Link::new(target, self.options.clone(), format!("{at} (of {})", self.shown));
        Ok(Arc::new(Node { place: place.clone(), at, link: Arc::new(link) }))
    }

    fn node(&self, place: &Place) -> Result<Arc<Node>, StoreError> {
        self.topology().node(place, |place| self.make_node(place))
    }

    /// Those that serve slots, in the order of their addresses.
    fn primaries(&self) -> Vec<Arc<Node>> {
        self.topology().primaries().to_vec()
    }

    fn owner(&self, slot: u16) -> Option<Arc<Node>> {
        self.topology().owner(slot).cloned()
    }

    /// Notes what a server said of one slot, and asks for the rest in the background.
    fn moved(self: &Arc<Self>, slot: u16, to: &Place) {
        let Ok(node) = self.node(to) else { return };
        if self.topology().moved(slot, &node) {
            self.changed.send_modify(|changes| *changes += 1);
        }
        self.refresh_soon();
    }

    /// Asks for the map in the background.
    fn refresh_soon(self: &Arc<Self>) {
        let runtime = self.options.runtime.clone().or_else(|| Handle::try_current().ok());
        let Some(runtime) = runtime else { return };
        if !self.refreshing.swap(true, Ordering::AcqRel) {
            let refreshing = Refreshing(self.clone());
            runtime.spawn(async move {
                let by = Instant::now() + refreshing.0.options.call_timeout;
                // Whoever needs it and does not have it asks again.
                let _ = refreshing.0.refresh(by).await;
            });
        }
    }

    /// Asks for the map. Those who come while somebody asks share an answer that was asked for after they came.
    async fn refresh(&self, by: Instant) -> Result<(), StoreError> {
        let seen = *self.learnt.borrow();
        let in_time = timeout_at(by, self.asking.acquire()).await;
        let Ok(Ok(_turn)) = in_time else { return Err(self.no_map()) };
        if *self.learnt.borrow() > seen + 1 {
            return Ok(());
        }
        self.check_open()?;
        let mut nodes = self.primaries();
        let doubted = self.doubted().clone();
        nodes.sort_by_key(|node| Some(&node.at) == doubted.as_ref());
        let mut places: Vec<Place> = nodes.iter().map(|node| node.place.clone()).collect();
        let seeds = self.seeds.iter().filter(|seed| !places.contains(seed)).cloned().collect::<Vec<_>>();
        places.extend(seeds);
        let asked = first_answer(places, by, |place| async move {
            let node = self.node(&place)?;
            let answer: Value = node.link.upkeep(redis::cmd("CLUSTER").arg("SLOTS"), by).await?;
            let ranges = ranges(answer, &place)?;
            if ranges.is_empty() {
                let message = format!("the Cluster's server at {} knows of no slots", node.at);
                return Err(StoreError::not_applied(ErrorKind::Busy, message));
            }
            Ok(ranges)
        });
        let (_, ranges) = asked.await.map_err(|last| last.unwrap_or_else(|| self.no_map()))?;
        // Nothing is made for a store that was closed meanwhile.
        self.check_open()?;
        if self.topology().learn(&ranges, |place| self.make_node(place))? {
            self.changed.send_modify(|changes| *changes += 1);
        }
        self.learnt.send_modify(|times| *times += 1);
        Ok(())
    }

    fn doubted(&self) -> MutexGuard<'_, Option<Arc<str>>> {
        self.doubted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn no_map(&self) -> StoreError {
        let message = format!("no server of the Cluster at {} told who serves which slot", self.shown);
        StoreError::not_applied(ErrorKind::Unavailable, message)
    }

    /// Runs a script on the keys of one slot, wherever that is served.
    async fn run(
        self: &Arc<Self>,
        purpose: Purpose,
        slot: u16,
        call: &Call,
        trip: &mut Trip<'_>,
    ) -> Result<Value, StoreError> {
        let by = Instant::now() + self.options.call_timeout;
        let (mut hop, mut pauses) = (Hop::Owner, 0);
        for hops in 1..=HOPS {
            self.check_open()?;
            let (node, asking) = match &hop {
                Hop::Owner => (self.owner_by(slot, by).await?, false),
                Hop::To(place) => (self.node(place)?, false),
                Hop::Asking(place) => (self.node(place)?, true),
            };
            let error = match self.step(&node, purpose, call, asking, trip, by).await {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            let redirect = redirect(&error, &node.place);
            let later = matches!(redirect, Some(Redirect::Later | Redirect::Elsewhere));
            if later || (redirect.is_some() && hops > STRAIGHT) {
                pauses += 1;
                let pause = pause_after(pauses);
                if Instant::now() + pause >= by {
                    return Err(if later { error } else { sent_on_and_on() });
                }
                sleep(pause).await;
            }
            hop = match redirect {
                Some(Redirect::Moved(to)) => {
                    self.moved(slot, &to);
                    Hop::To(to)
                }
                Some(Redirect::Ask(to)) => Hop::Asking(to),
                Some(Redirect::Later) => Hop::Owner,
                Some(Redirect::Elsewhere) => {
                    *self.doubted() = Some(node.at.clone());
                    // What became of that is seen by what becomes of the next step.
                    let _ = self.refresh(by).await;
                    Hop::Owner
                }
                None if is_out_of_reach(&error) && self.has_moved(slot, &node, by).await => Hop::Owner,
                None => {
                    if error.effect() == Effect::Unknown || is_out_of_reach(&error) {
                        *self.doubted() = Some(node.at.clone());
                        self.refresh_soon();
                    }
                    return Err(error);
                }
            };
        }
        Err(sent_on_and_on())
    }

    /// One exchange with one server.
    async fn step(
        &self,
        node: &Node,
        purpose: Purpose,
        call: &Call,
        asking: bool,
        trip: &mut Trip<'_>,
        by: Instant,
    ) -> Result<Value, StoreError> {
        let leads_there = |over: &&Arc<Connection>| *over.at() == node.at && !over.is_broken();
        let over = trip.over.iter().rfind(leads_there).cloned();
        let mut sent_over = None;
        let (acquires, sent_at) = (trip.acquires, &mut trip.sent_at);
        let answer = node.link.step(purpose, call, asking, over, by, |connection| {
            if let Some(attempt) = acquires {
                going_out(attempt, connection);
            }
            *sent_at = Some(Instant::now());
            sent_over = Some(connection.clone());
        });
        let answer = answer.await;
        if let Some(connection) = sent_over {
            if let Some(attempt) = acquires {
                came_back(attempt, &connection, answer.as_ref().err());
            }
            if answer.as_ref().err().is_none_or(|error| error.effect() == Effect::NotApplied) {
                trip.answered.push(connection);
            }
        }
        answer
    }

    /// Who serves a slot; asked for if it is not known.
    async fn owner_by(&self, slot: u16, by: Instant) -> Result<Arc<Node>, StoreError> {
        let mut pauses = 0;
        loop {
            if let Some(owner) = self.owner(slot) {
                return Ok(owner);
            }
            self.refresh(by).await?;
            if let Some(owner) = self.owner(slot) {
                return Ok(owner);
            }
            pauses += 1;
            let pause = pause_after(pauses);
            if Instant::now() + pause >= by {
                let message = format!("no server of the Cluster serves the slot {slot}");
                return Err(StoreError::not_applied(ErrorKind::Busy, message));
            }
            sleep(pause).await;
        }
    }

    /// Whether a slot has another owner than that one, whom we do not reach.
    async fn has_moved(&self, slot: u16, from: &Node, by: Instant) -> bool {
        let elsewhere = || self.owner(slot).is_some_and(|owner| owner.at != from.at);
        if elsewhere() {
            return true;
        }
        *self.doubted() = Some(from.at.clone());
        // Not longer than it takes others to answer: whoever tries wants to know.
        let by = by.min(Instant::now() + Duration::from_millis(500));
        self.refresh(by).await.is_ok() && elsewhere()
    }
}

/// Resets `refreshing` when the task ends in any way, the end of its runtime included.
struct Refreshing(Arc<Cluster>);

impl Drop for Refreshing {
    fn drop(&mut self) {
        self.0.refreshing.store(false, Ordering::Release);
    }
}

fn sent_on_and_on() -> StoreError {
    let message = "the servers of the Cluster sent the step on and on to each other";
    StoreError::not_applied(ErrorKind::Busy, message)
}

/// Whether nothing was sent, because there is no connection.
fn is_out_of_reach(error: &StoreError) -> bool {
    error.effect() == Effect::NotApplied && error.kind() == ErrorKind::Unavailable
}
