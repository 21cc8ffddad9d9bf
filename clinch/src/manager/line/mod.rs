//! What this process knows of each key: the lease it has, the call it is making, who waits. Plain state under a lock.
//!
//! At most one call per key is in flight from a process. Whoever makes it has the *role*; the others either share its
//! answer, if they came before it was sent, or wait for the next one. Tries (`wait` 0) queue behind a call in flight;
//! waiters stand in a line of which only the head asks. Every future that has a seat here gives it up when it is
//! dropped, and a role that is dropped is handed on.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::held::{Held, Standing};
use super::release::Releases;
use super::schedule::Schedule;
use crate::lease::{Attempt, ClaimKey, Token};
use crate::store::{Denial, StoreError};

mod seats;

pub(super) use seats::{LineSeat, Ride, Rider, Role};

const SHARDS: usize = 32;
/// A map that is larger than this and nearly empty is shrunk.
const LARGE: usize = 256;
/// How many revocations are remembered during one call; nobody revokes more by hand.
const MOST_REVOKED: usize = 64;

/// Local state of all keys.
#[derive(Debug)]
pub(super) struct Lines {
    shards: Box<[Mutex<HashMap<ClaimKey, Slot>>]>,
    hasher: RandomState,
    /// Where attempts go that nobody is left to go on with.
    releases: Arc<Releases>,
}

/// Local state of one key; it exists only while there is something to know.
#[derive(Debug, Default)]
struct Slot {
    /// The lease this process has, or is giving back.
    held: Option<Arc<Held>>,
    /// Somebody has the role.
    asking: bool,
    /// An attempt that was sent and whose caller is gone: the next one with the same shape asks on with it.
    orphan: Option<(Flight, Shape)>,
    /// Tries that came after the call in flight was sent.
    tries: VecDeque<Arc<Seat>>,
    /// Waiters by the number with which they came, first come first served.
    line: BTreeMap<u64, Arc<Seat>>,
    next_number: u64,
    /// A local lease ended since the head asked last.
    freed: bool,
    /// What the head knows, while no head has it.
    schedule: Option<Schedule>,
    /// The engine's last denial, and when it came.
    denial: Option<(Denial, Instant)>,
    /// Revocations that came while the role was taken: one may be of the very grant whose answer is on its way.
    revoked: Vec<Token>,
}

/// What two attempts must have in common for one to go on with the other's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) ttl: Duration,
    pub(super) label: Option<String>,
}

/// An attempt on its way to the engine.
#[derive(Debug, Clone)]
pub(super) struct Flight {
    pub(super) attempt: Arc<Attempt>,
    /// The boot clock before its first send.
    pub(super) boot_at: Option<Duration>,
    /// Whether the outcome of one of its acquires is unknown.
    pub(super) doubtful: bool,
    /// Since when revocations were heard before its first send.
    pub(super) heard_since: Option<u64>,
}

impl Flight {
    /// Whether enough of its validity is left to go on with it.
    fn is_worth_adopting(&self) -> bool {
        self.attempt.sent_at().is_some_and(|sent_at| sent_at.elapsed() < self.attempt.ttl() / 2)
    }
}

/// One who waits.
#[derive(Debug)]
struct Seat {
    shape: Shape,
    turn: Mutex<Turn>,
    called: Notify,
}

#[derive(Debug)]
enum Turn {
    Waiting,
    /// The role is this seat's.
    Ask,
    Answer(Answer),
    /// Its future is gone.
    Gone,
}

/// An answer that is shared.
#[derive(Debug, Clone)]
pub(super) enum Answer {
    Denied(Denial),
    Failed(StoreError),
}

/// What becomes of a try.
pub(super) enum Entry<'a> {
    /// This process holds the key: nobody else can have it.
    HeldHere(Arc<Held>),
    /// This process is giving the key back: to be waited for.
    Releasing(Arc<Held>),
    /// Ask the engine.
    Ask(Role<'a>),
    /// Wait for an answer that is asked for after now.
    Ride(Rider<'a>),
}

/// What the head of a line is to do.
pub(super) enum HeadTurn<'a> {
    NotHead,
    /// This process holds the key or is giving it back.
    Local(Arc<Held>),
    /// Somebody else is asking.
    Busy,
    /// There is no reason to ask now.
    Idle,
    Ask(Role<'a>),
}

impl Lines {
    pub(super) fn new(releases: Arc<Releases>) -> Self {
        Self { shards: (0..SHARDS).map(|_| Mutex::default()).collect(), hasher: RandomState::new(), releases }
    }

    fn shard(&self, on: &ClaimKey) -> MutexGuard<'_, HashMap<ClaimKey, Slot>> {
        #[expect(clippy::cast_possible_truncation, reason = "only the low bits are wanted")]
        let hash = self.hasher.hash_one(on) as usize;
        self.shards[hash & (SHARDS - 1)].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `step` on the slot of `on`, and forgets the slot if nothing is left to know.
    fn with_slot<T>(&self, on: &ClaimKey, step: impl FnOnce(&mut Slot) -> T) -> T {
        let mut shard = self.shard(on);
        match shard.get_mut(on) {
            Some(slot) => {
                let value = step(slot);
                if slot.is_idle() {
                    shard.remove(on);
                    if shard.capacity() > LARGE && shard.len() * 8 < shard.capacity() {
                        // What a burst needed is given back.
                        let keep = shard.len() * 2;
                        shard.shrink_to(keep);
                    }
                }
                value
            }
            None => {
                let mut slot = Slot::default();
                let value = step(&mut slot);
                if !slot.is_idle() {
                    shard.insert(on.clone(), slot);
                }
                value
            }
        }
    }

    /// A try comes.
    pub(super) fn enter<'a>(&'a self, on: &'a ClaimKey, shape: &Shape) -> Entry<'a> {
        self.with_slot(on, |slot| {
            match slot.local() {
                Some((held, Standing::Valid)) => return Entry::HeldHere(held),
                Some((held, _)) => return Entry::Releasing(held),
                None => {}
            }
            if slot.asking || !slot.line.is_empty() {
                let seat = Seat::new(shape);
                slot.tries.push_back(seat.clone());
                if !slot.asking {
                    // The try counts as the head's poll.
                    slot.call_head();
                }
                return Entry::Ride(Rider::new(self, on, seat));
            }
            slot.asking = true;
            Entry::Ask(Role::new(self, on, shape.clone()))
        })
    }

    /// A waiter comes.
    pub(super) fn join<'a>(&'a self, on: &'a ClaimKey, shape: &Shape) -> LineSeat<'a> {
        let seat = Seat::new(shape);
        let number = self.with_slot(on, |slot| {
            slot.next_number += 1;
            slot.line.insert(slot.next_number, seat.clone());
            slot.next_number
        });
        LineSeat::new(self, on, seat, number)
    }

    /// The lease was given back, or lost: the key may be free.
    pub(super) fn ended(&self, held: &Arc<Held>) {
        self.with_slot(held.on(), |slot| {
            if slot.held.as_ref().is_some_and(|here| Arc::ptr_eq(here, held)) {
                slot.held = None;
                // An attempt that was only taken back is no news for the head: it goes by its schedule.
                slot.freed |= held.was_handed_out();
                slot.hand_on(&self.releases);
            }
        });
    }

    /// The lease of this token was ended by force: the lease, if it is one that this process has.
    pub(super) fn revoked(&self, on: &ClaimKey, token: &Token) -> Option<Arc<Held>> {
        self.with_slot(on, |slot| {
            if slot.asking && slot.revoked.len() < MOST_REVOKED {
                slot.revoked.push(token.clone());
            }
            slot.held.clone().filter(|held| held.attempt().token() == token)
        })
    }

    /// Why the key is denied to somebody who stood in its line: by its holder, or by those who stood before.
    pub(super) fn denial(&self, on: &ClaimKey) -> Denial {
        self.with_slot(on, |slot| match slot.local() {
            Some((held, Standing::Valid)) => local_denial(&held),
            Some(_) => Denial::default(),
            None => slot.denial.clone().map(|(denial, at)| denial.aged(at.elapsed())).unwrap_or_default(),
        })
    }

    /// Whether nothing is known of any key; for tests.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.shards.iter().all(|shard| shard.lock().unwrap_or_else(PoisonError::into_inner).is_empty())
    }
}

/// What a try is told that this very process stands in the way of.
pub(super) fn local_denial(held: &Held) -> Denial {
    let holder = held.holder();
    Denial { claim: 0, retry_after: holder.remaining(), holder: Some(holder) }
}

impl Slot {
    fn is_idle(&self) -> bool {
        self.held.is_none()
            && !self.asking
            && self.orphan.is_none()
            && self.tries.is_empty()
            && self.line.is_empty()
    }

    /// The local lease, unless it tells nothing any more; then it is forgotten.
    fn local(&mut self) -> Option<(Arc<Held>, Standing)> {
        let held = self.held.clone()?;
        match held.standing() {
            Standing::Over => {
                self.held = None;
                self.freed |= held.was_handed_out();
                None
            }
            standing => Some((held, standing)),
        }
    }

    /// The first of the line.
    fn head(&self) -> Option<&Arc<Seat>> {
        self.line.first_key_value().map(|(_, seat)| seat)
    }

    fn call_head(&self) {
        if let Some(head) = self.head() {
            head.called.notify_one();
        }
    }

    /// If nobody has the role, finds out who is next.
    fn hand_on(&mut self, releases: &Releases) {
        if self.asking {
            return;
        }
        match self.local() {
            Some((held, Standing::Valid)) => {
                let denial = local_denial(&held);
                self.answer_tries(&Answer::Denied(denial));
                self.call_head();
                return;
            }
            // Whoever gives it back comes here again.
            Some(_) => return,
            None => {}
        }
        while self.tries.front().is_some_and(|seat| seat.is_gone()) {
            self.tries.pop_front();
        }
        if let Some((orphan, shape)) = self.orphan.take() {
            let heir = self.head().or(self.tries.front());
            if heir.is_some_and(|heir| heir.shape == shape) && orphan.is_worth_adopting() {
                self.orphan = Some((orphan, shape));
            } else {
                // It must be out of the way before somebody else asks, or dies with nobody left to ask.
                self.take_back(orphan.attempt, releases);
                return;
            }
        }
        if !self.line.is_empty() {
            self.call_head();
        } else if let Some(seat) = self.tries.pop_front() {
            self.asking = true;
            seat.give(Turn::Ask);
        }
    }

    /// Sends an attempt whose outcome is not known, or not wanted, to be released. Until that is answered, tries wait
    /// for it instead of being denied by it.
    fn take_back(&mut self, attempt: Arc<Attempt>, releases: &Releases) {
        let held = Arc::new(Held::to_take_back(attempt));
        if self.local().is_none() {
            self.held = Some(held.clone());
        }
        releases.push(held);
    }

    fn answer_tries(&mut self, answer: &Answer) {
        for seat in self.tries.drain(..) {
            seat.give(Turn::Answer(answer.clone()));
        }
    }
}

impl Seat {
    fn new(shape: &Shape) -> Arc<Self> {
        Arc::new(Self { shape: shape.clone(), turn: Mutex::new(Turn::Waiting), called: Notify::new() })
    }

    fn turn(&self) -> MutexGuard<'_, Turn> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_gone(&self) -> bool {
        matches!(*self.turn(), Turn::Gone)
    }

    fn give(&self, turn: Turn) {
        let mut mine = self.turn();
        if !matches!(*mine, Turn::Gone) {
            *mine = turn;
            self.called.notify_one();
        }
    }
}
