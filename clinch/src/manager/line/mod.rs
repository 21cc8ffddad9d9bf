//! What this process knows of each key: the leases it has, the calls it is making, who waits. Plain state under a lock.
//!
//! A key has a *lane* for each way in which it is wanted (exclusively, shared, as one of so many permits). One call per lane
//! is in flight from a process, and more only where there are several places and the last ones were granted. Whoever makes
//! one has the *role*; the others either share its answer, if they came
//! before it was sent, or wait for the next one. Tries (`wait` 0) queue behind a call in flight; waiters stand in a line of
//! which only the head asks. Every future that has a seat here gives it up when it is dropped, and a role that is dropped
//! is handed on. Attempts with several claims and attempts in an engine's queue have no seat here; only their leases are
//! known.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::held::{Held, Standing};
use super::release::Releases;
use crate::apart::Apart;
use crate::key::hash::shard;
use crate::lease::{Attempt, Claim, ClaimKey, Mode, Token};
use crate::store::{Denial, StoreError};

mod at_once;
mod hand_over;
mod known;
mod lane;
mod ride;
mod seats;
mod slot;
#[cfg(test)]
mod tests;

pub(super) use at_once::Tried;
pub(super) use hand_over::Handed;
use known::Known;
pub(super) use ride::{Boarded, Ride, Rider};
pub(super) use seats::{LineSeat, Role, Unkept};
use slot::Slot;

use crate::sync::{Mutex, MutexGuard, Notify, PoisonError};

/// A power of two. So many that two threads with keys of their own rarely meet; fewer where every lock is a step of a schedule.
const SHARDS: usize = if cfg!(shuttle) { 32 } else { 1024 };
/// How many revocations are remembered during one call, or while an heir waits; then the oldest goes.
const MOST_REVOKED: usize = 64;

/// Local state of all keys.
#[derive(Debug)]
pub(super) struct Lines {
    shards: Box<[Apart<Mutex<Known>>]>,
    /// Where attempts go that nobody is left to go on with.
    releases: Arc<Releases>,
}

/// What two attempts must have in common for one to go on with the other's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) ttl: Duration,
    pub(super) label: Option<String>,
    pub(super) fenced: bool,
    /// Takes a lease that is passed on.
    pub(super) takes_passes: bool,
}

impl Shape {
    /// Whether a lease is what such an attempt would be granted, whoever it is labelled with.
    fn fits(&self, held: &Held) -> bool {
        matches!(held.claims(), [claim]
            if claim.ttl() == self.ttl && claim.fence_floor().is_some() == self.fenced)
    }
}

/// An attempt on its way to the engine.
#[derive(Debug, Clone)]
pub(super) struct Flight {
    pub(super) attempt: Arc<Attempt>,
    /// The boot clock before it was sent: first, or anew after it was denied.
    pub(super) boot_at: Option<Duration>,
    /// Just before it asked last, where the key can be kept for it.
    pub(super) asked_at: Option<Instant>,
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

    /// Whether the engine may know it as one that can inherit, once it was denied.
    fn inherits(&self) -> bool {
        self.attempt.patience().inherits().is_some()
    }

    /// Whether every acquire of it has had its answer.
    pub(super) fn is_settled(&self) -> bool {
        !self.doubtful && self.attempt.route().is_answered()
    }
}

/// One who waits.
#[derive(Debug)]
struct Seat {
    shape: Shape,
    /// The scope that it is in; 0: none.
    scope: u64,
    turn: Mutex<Turn>,
    called: Notify,
}

#[derive(Debug)]
enum Turn {
    Waiting,
    /// The lease is this seat's, under the number of its pass.
    Passed(Arc<Held>, u32),
    /// Its future is gone.
    Gone,
}

/// An answer that is shared.
#[derive(Debug, Clone)]
pub(super) enum Answer {
    Denied(Arc<Denial>),
    Failed(StoreError),
}

/// What becomes of a try.
pub(super) enum Entry<'a> {
    /// This process stands in the way: nobody else can have what is wanted.
    HeldHere(Arc<Held>),
    /// This process is giving the key back: to be waited for.
    Releasing(Arc<Held>),
    /// Ask the engine.
    Ask(Role<'a>),
    /// Wait for an answer that is asked for after now.
    Ride(Rider<'a>),
}

/// What stands before a try that wants the whole key.
pub(super) enum Behind {
    /// A lease of this process.
    HeldHere,
    /// Somebody's call.
    Ride(Boarded),
}

/// What the head of a line is to do.
pub(super) enum HeadTurn<'a> {
    NotHead,
    /// A lease of this process stands in the way, or is being given back.
    Local(Arc<Held>),
    /// Somebody else is asking.
    Busy,
    /// There is no reason to ask now.
    Idle,
    /// Others are to have their turn first, until then.
    SteppedBack(Instant),
    Ask(Role<'a>),
    /// The lease is this one's.
    Passed(Arc<Held>, u32),
}

impl Lines {
    pub(super) fn new(releases: Arc<Releases>) -> Self {
        Self { shards: (0..SHARDS).map(|_| Apart::default()).collect(), releases }
    }

    fn shard(&self, on: &ClaimKey) -> MutexGuard<'_, Known> {
        self.shards[shard(on, SHARDS)].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `step` on the slot of `on`, and forgets the slot if nothing is left to know.
    fn with_slot<T>(&self, on: &ClaimKey, step: impl FnOnce(&mut Slot) -> T) -> T {
        let mut shard = self.shard(on);
        let (value, forgotten) = shard.with(on, step);
        drop(shard);
        forgotten.iter().for_each(|held| held.note_expiry());
        value
    }

    /// What `found` makes of the lease of this process because of which nobody can have the whole key, if there is one.
    pub(super) fn held_here<T>(&self, on: &ClaimKey, found: impl FnOnce(&Arc<Held>) -> T) -> Option<T> {
        let shard = self.shard(on);
        let mut leases = shard.leases_on(on).iter();
        leases.find(|held| held.standing() == Standing::Valid).map(found)
    }

    /// A try comes that wants the whole key. Where a lease of this process stands in its way, `found` sees it; where somebody
    /// asks already, it shares the next answer. Else it has no place here yet, and goes the longer way.
    pub(super) fn enter_behind(
        &self,
        on: &ClaimKey,
        found: impl FnOnce(&Arc<Held>),
        wanted: impl FnOnce() -> Shape,
    ) -> Option<Behind> {
        let mut shard = self.shard(on);
        let mut leases = shard.leases_on(on).iter();
        if let Some(held) = leases.find(|held| held.standing() == Standing::Valid) {
            found(held);
            return Some(Behind::HeldHere);
        }
        let slot = shard.slot_mut(on)?;
        if !slot.leases.is_empty() || !slot.is_asked_for(Mode::Exclusive) {
            return None;
        }
        Some(Behind::Ride(slot.lane(Mode::Exclusive).ride(&wanted())))
    }

    /// A try comes that wants one place, until then if it shares somebody's call.
    pub(super) fn enter<'a>(
        &'a self,
        claim: &'a Claim,
        shape: &Shape,
        limit: impl FnOnce() -> Instant,
    ) -> Entry<'a> {
        let (on, mode) = (claim.on(), claim.mode());
        self.with_slot(on, |slot| {
            match slot.local(on, mode) {
                Some((held, Standing::Valid)) => return Entry::HeldHere(held),
                Some((held, _)) => return Entry::Releasing(held),
                None => {}
            }
            if slot.ask_alone(mode) {
                return Entry::Ask(Role::begun(self, claim, shape.clone()));
            }
            let lane = slot.lane(mode);
            if lane.is_busy() || !lane.line.is_empty() {
                let boarded = lane.ride(shape);
                return Entry::Ride(Rider::new(self, on.clone(), mode, boarded, limit()));
            }
            slot.begin_asking(mode);
            Entry::Ask(Role::new(self, claim, shape.clone()))
        })
    }

    /// A waiter comes that wants one place.
    pub(super) fn join<'a>(
        &'a self,
        claim: &'a Claim,
        shape: &Shape,
        scope: u64,
        poll_every: Duration,
    ) -> LineSeat<'a> {
        let seat = Seat::new(shape, scope);
        let (number, behind) = self.with_slot(claim.on(), |slot| {
            let lane = slot.lane(claim.mode());
            let behind = !lane.line.is_empty();
            (lane.join(seat.clone()), behind)
        });
        LineSeat::new(self, claim, (seat, number), behind, poll_every)
    }

    /// A local lease that stands in the way of one of these claims, or is on its way out, and of which claim.
    pub(super) fn in_the_way(&self, claims: &[Claim]) -> Option<(usize, Arc<Held>, Standing)> {
        let mut leaving = None;
        for (place, claim) in claims.iter().enumerate() {
            match self.with_slot(claim.on(), |slot| slot.local(claim.on(), claim.mode())) {
                Some((held, Standing::Valid)) => return Some((place, held, Standing::Valid)),
                Some((held, standing)) => leaving = leaving.or(Some((place, held, standing))),
                None => {}
            }
        }
        leaving
    }

    /// The local leases on this key that are on their way out.
    pub(super) fn releasing(&self, on: &ClaimKey) -> Vec<Arc<Held>> {
        let leaving = |held: &&Arc<Held>| held.is_leaving();
        self.with_slot(on, |slot| slot.leases.iter().filter(leaving).cloned().collect())
    }

    /// A lease that was granted to an attempt of this scope, and covers one of these claims.
    pub(super) fn of_scope(&self, claims: &[Claim], scope: u64) -> Option<Arc<Held>> {
        claims.iter().find_map(|claim| {
            let (on, mode) = (claim.on(), claim.mode());
            let local = self.with_slot(on, |slot| slot.local(on, mode));
            local
                .filter(|(held, standing)| *standing == Standing::Valid && held.scope() == scope)
                .map(|(held, _)| held)
        })
    }

    /// Calls without a role are counted, so that a revocation that overtakes their answer is not missed.
    pub(super) fn calling(&self, claims: &[Claim]) {
        claims.iter().for_each(|claim| self.with_slot(claim.on(), |slot| slot.calls += 1));
    }

    /// Such a call is over; says whether the news came that its lease was ended by force.
    pub(super) fn called(&self, claims: &[Claim], token: &Token) -> bool {
        let over = |slot: &mut Slot| {
            let revoked = slot.revoked.contains(token);
            slot.end_call();
            revoked
        };
        // All of them, also after the first that was revoked.
        claims.iter().fold(false, |revoked, claim| self.with_slot(claim.on(), over) | revoked)
    }

    /// Notes a lease of an attempt without a seat, or one that the engine knows nothing of, unless another one of this
    /// process stands in its way.
    ///
    /// # Errors
    /// The claim and the lease that stands in its way.
    pub(super) fn hold(&self, held: &Arc<Held>) -> Result<(), (usize, Arc<Held>)> {
        for (place, claim) in held.claims().iter().enumerate() {
            let way = self.with_slot(claim.on(), |slot| match slot.local(claim.on(), claim.mode()) {
                Some((other, Standing::Valid)) => Some(other),
                _ => {
                    slot.leases.push(held.clone());
                    None
                }
            });
            if let Some(other) = way {
                self.forget(held, &held.claims()[..place], None);
                return Err((place, other));
            }
        }
        Ok(())
    }

    /// Has an attempt whose outcome is not known, or not wanted, released. Until that is answered, tries wait for it
    /// instead of being denied by it.
    pub(super) fn take_back(&self, attempt: Arc<Attempt>) {
        self.give_back(Arc::new(Held::to_take_back(attempt)));
    }

    /// Has a lease released that is on its way out; the same for tries.
    pub(super) fn give_back(&self, held: Arc<Held>) {
        for claim in held.claims() {
            self.with_slot(claim.on(), |slot| {
                // One that was lost is not known here any more.
                if !slot.leases.iter().any(|other| Arc::ptr_eq(other, &held)) {
                    slot.leases.push(held.clone());
                }
            });
        }
        self.releases.push(held);
    }

    /// Has an attempt withdrawn that cannot have been granted: nobody has to wait for that.
    pub(super) fn withdraw(&self, attempt: Arc<Attempt>) {
        self.releases.push(Arc::new(Held::to_take_back(attempt)));
    }

    /// The lease was given back, or lost: its keys may be free. `woken` says how many waited for that, where it is known.
    pub(super) fn ended(&self, held: &Arc<Held>, woken: Option<usize>) {
        self.forget(held, held.claims(), woken);
    }

    fn forget(&self, held: &Arc<Held>, claims: &[Claim], woken: Option<usize>) {
        for claim in claims {
            self.with_slot(claim.on(), |slot| {
                let before = slot.leases.len();
                slot.leases.retain(|other| !Arc::ptr_eq(other, held));
                if slot.leases.len() < before {
                    // An attempt that was only taken back is no news for the heads: they go by their schedules.
                    slot.freed(held.was_handed_out());
                    if held.claims().len() == 1 {
                        slot.step_back(woken);
                    }
                }
                // Also if somebody saw before that it is over, and forgot it: nobody was called then.
                slot.hand_on(claim.on(), &self.releases);
            });
        }
    }

    /// The lease of this token was ended by force: the lease, if it is one that this process has.
    pub(super) fn revoked(&self, on: &ClaimKey, token: &Token) -> Option<Arc<Held>> {
        self.with_slot(on, |slot| {
            if slot.may_be_granted() {
                if slot.revoked.len() >= MOST_REVOKED {
                    slot.revoked.remove(0);
                }
                slot.revoked.push(token.clone());
            }
            slot.leases.iter().find(|held| held.attempt().token() == token).cloned()
        })
    }

    /// Notes of all leases of this process whether they have run out under their guards.
    pub(super) fn note_expired(&self) {
        for shard in &self.shards {
            let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            let over: Vec<_> =
                shard.leases().filter(|held| held.standing() == Standing::Over).cloned().collect();
            drop(shard);
            over.iter().for_each(|held| held.note_expiry());
        }
    }

    /// Why the key is denied to somebody who stood in its line: by its holder, or by those who stood before.
    pub(super) fn denial(&self, claim: &Claim) -> Denial {
        let (on, mode) = (claim.on(), claim.mode());
        self.with_slot(on, |slot| match slot.local(on, mode) {
            Some((held, Standing::Valid)) => local_denial(&held, 0, on),
            Some(_) => Denial::default(),
            None => {
                let last = slot.lane(mode).denial.clone();
                last.map(|(denial, at)| denial.aged(at.elapsed())).unwrap_or_default()
            }
        })
    }

    /// How many stand in line for each key.
    pub(super) fn waiting(&self) -> Vec<(ClaimKey, usize)> {
        let mut waiting = Vec::new();
        for shard in &self.shards {
            let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            let lines = shard
                .slots()
                .map(|(on, slot)| (on, slot.lanes.iter().map(|(_, lane)| lane.line.len()).sum()));
            waiting.extend(lines.filter(|(_, count)| *count > 0).map(|(on, count)| (on.clone(), count)));
        }
        waiting
    }

    /// In how many ways a key is wanted at the most; for tests.
    #[cfg(test)]
    pub(super) fn most_lanes(&self) -> usize {
        let lanes = |shard: &Apart<Mutex<Known>>| {
            let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            shard.slots().map(|(_, slot)| slot.lanes.len()).max().unwrap_or_default()
        };
        self.shards.iter().map(lanes).max().unwrap_or_default()
    }

    /// Whether nothing is known of any key; for tests.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.shards.iter().all(|shard| shard.lock().unwrap_or_else(PoisonError::into_inner).is_empty())
    }
}

/// What somebody is told that this very process stands in the way of.
pub(super) fn local_denial(held: &Held, claim: usize, on: &ClaimKey) -> Denial {
    let holder = held.holder(on);
    Denial { claim, retry_after: holder.remaining(), holder: Some(holder), done: None }
}

impl Seat {
    fn new(shape: &Shape, scope: u64) -> Arc<Self> {
        Arc::new(Self { shape: shape.clone(), scope, turn: Mutex::new(Turn::Waiting), called: Notify::new() })
    }

    fn turn(&self) -> MutexGuard<'_, Turn> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_waiting(&self) -> bool {
        matches!(*self.turn(), Turn::Waiting)
    }

    /// Says whether it is still there to be given anything.
    fn give(&self, turn: Turn) -> bool {
        let mut mine = self.turn();
        let there = !matches!(*mine, Turn::Gone);
        if there {
            *mine = turn;
            self.called.notify_one();
        }
        there
    }
}
