//! What is known of one key.

use std::num::NonZeroU32;
use std::sync::Arc;

use super::known::Few;
use super::lane::Lane;
use super::{Answer, Flight, Shape, Unkept, local_denial};
use crate::lease::{Attempt, ClaimKey, Mode, Token};
use crate::manager::held::{Held, Standing};
use crate::manager::release::Releases;

/// Local state of one key; it exists only while there is something to know.
#[derive(Debug, Default)]
pub(super) struct Slot {
    /// The leases with a claim on this key that this process has, or is giving back.
    pub(super) leases: Few<Arc<Held>>,
    /// Somebody asks in this way, and nobody else is there: most calls need no lane.
    sole: Option<Mode>,
    /// By the way in which the key is wanted; nearly always one.
    pub(super) lanes: Vec<(Mode, Lane)>,
    /// Calls in flight.
    pub(super) calls: usize,
    /// Revocations that came while a call was in flight: one may be of the very grant whose answer is on its way.
    pub(super) revoked: Vec<Token>,
    /// Leases that were found to be over, of which it is still to be noted whether their guards live on.
    pub(super) forgotten: Vec<Arc<Held>>,
}

/// Whether a place of the one kind excludes a place of the other on the same key.
const fn excludes(one: Mode, other: Mode) -> bool {
    matches!((one, other), (Mode::Exclusive, _) | (_, Mode::Exclusive))
}

impl Slot {
    /// Of a key of which nothing is known but this lease.
    pub(super) fn of(held: Arc<Held>) -> Self {
        Self { leases: Few::One(held), ..Self::default() }
    }

    /// Whether all that is known is a lease of this key only.
    pub(super) fn is_only_lease(&self) -> bool {
        let alone = matches!(&*self.leases, [held] if held.claims().len() == 1);
        let nothing_else = self.calls == 0 && self.sole.is_none() && self.lanes.is_empty();
        alone && nothing_else && self.revoked.is_empty() && self.forgotten.is_empty()
    }

    /// That lease.
    pub(super) fn into_only_lease(mut self) -> Result<Arc<Held>, Self> {
        if !self.is_only_lease() {
            return Err(self);
        }
        std::mem::take(&mut self.leases).into_only().map_err(|leases| Self { leases, ..self })
    }

    pub(super) fn is_idle(&self) -> bool {
        self.leases.is_empty() && self.calls == 0 && self.lanes.iter().all(|(_, lane)| lane.is_idle())
    }

    /// Forgets the lanes that nobody is in. A lease that is only held needs none, and a lane is most of what a slot takes.
    pub(super) fn tidy(&mut self) {
        match self.lanes.as_slice() {
            [] => {}
            [(_, only)] if only.is_idle() && only.knows_nothing() => self.lanes = Vec::new(),
            [_] => {}
            _ => self.lanes.retain(|(_, lane)| !lane.is_idle()),
        }
    }

    pub(super) fn lane(&mut self, mode: Mode) -> &mut Lane {
        if let Some(mode) = self.sole.take() {
            // Not any longer the only one: from now on it is known in a lane.
            self.lane(mode).asking = 1;
        }
        let place = self.lanes.iter().position(|(other, _)| *other == mode).unwrap_or_else(|| {
            // Nearly always the only one: a vector would take room for four.
            self.lanes.reserve_exact(1);
            self.lanes.push((mode, Lane::default()));
            self.lanes.len() - 1
        });
        &mut self.lanes[place].1
    }

    /// The lane, if there is anything to know of it.
    pub(super) fn known_lane(&mut self, mode: Mode) -> Option<&mut Lane> {
        self.lanes.iter_mut().find(|(other, _)| *other == mode).map(|(_, lane)| lane)
    }

    /// Whether somebody asks for it in this way, or waits to.
    pub(super) fn is_asked_for(&self, mode: Mode) -> bool {
        let lane = || self.lanes.iter().find(|(other, _)| *other == mode);
        self.sole == Some(mode) || lane().is_some_and(|(_, lane)| lane.is_busy() || !lane.line.is_empty())
    }

    /// Lets one ask where nobody else is; `false` if somebody is.
    pub(super) fn ask_alone(&mut self, mode: Mode) -> bool {
        let alone = self.sole.is_none() && self.lanes.is_empty();
        if alone {
            self.sole = Some(mode);
            self.calls += 1;
        }
        alone
    }

    pub(super) fn begin_asking(&mut self, mode: Mode) {
        self.lane(mode).asking += 1;
        self.calls += 1;
    }

    pub(super) fn end_asking(&mut self, mode: Mode) {
        if self.sole.take_if(|sole| *sole == mode).is_none() {
            let lane = self.lane(mode);
            lane.asking = lane.asking.saturating_sub(1);
        }
        self.end_call();
    }

    pub(super) fn end_call(&mut self) {
        self.calls = self.calls.saturating_sub(1);
        if !self.may_be_granted() {
            self.revoked.clear();
        }
    }

    /// Whether something may be granted to an attempt of this process without its knowing yet: a call is under way, an orphan's
    /// answer is still to come, or an heir waits.
    pub(super) fn may_be_granted(&self) -> bool {
        self.calls > 0 || self.lanes.iter().any(|(_, lane)| lane.orphan.is_some() || lane.heir.is_some())
    }

    /// Notes a lease that was granted to one who asked.
    ///
    /// # Errors
    /// Why it cannot be kept.
    pub(super) fn keep(&mut self, held: &Arc<Held>, on: &ClaimKey, mode: Mode) -> Result<(), Unkept> {
        if self.revoked.contains(held.attempt().token()) {
            return Err(Unkept::Revoked);
        }
        if let Some((other, Standing::Valid)) = self.local(on, mode) {
            return Err(Unkept::InTheWay(other));
        }
        self.leases.push(held.clone());
        if let Some(lane) = self.known_lane(mode) {
            lane.denial = None;
            // There may be another place for the next one.
            if mode != Mode::Exclusive {
                lane.freed = true;
                lane.widen();
            }
        }
        Ok(())
    }

    pub(super) fn freed(&mut self, freed: bool) {
        self.lanes.iter_mut().for_each(|(_, lane)| lane.freed |= freed);
    }

    /// A lease of this process was given back, and so many streams of wake-ups were fired by that. Those of its own lines are no
    /// reason to step back: each would wait for the other.
    pub(super) fn step_back(&mut self, woken: Option<usize>) {
        let own = self.lanes.iter().filter(|(_, lane)| lane.subscribed).count();
        let others = woken.unwrap_or_default().saturating_sub(own);
        if others > 0 {
            self.lanes.iter_mut().for_each(|(_, lane)| lane.step_back(others));
        }
    }

    /// The local lease that stands in the way of such a place, or is on its way out and may still do. Leases that tell
    /// nothing any more are forgotten.
    pub(super) fn local(&mut self, on: &ClaimKey, mode: Mode) -> Option<(Arc<Held>, Standing)> {
        if let Mode::Permit { of } = mode {
            return self.all_taken_here(on, of);
        }
        let (mut leaving, mut over) = (None, false);
        let mut found = None;
        for held in self.leases.iter() {
            // The mode first: it costs no look at a clock.
            if !held.mode_on(on).is_some_and(|other| excludes(mode, other)) {
                continue;
            }
            match held.standing() {
                Standing::Valid => {
                    found = Some((held.clone(), Standing::Valid));
                    break;
                }
                Standing::Releasing => {
                    leaving = leaving.or_else(|| Some((held.clone(), Standing::Releasing)));
                }
                Standing::Over => over = true,
            }
        }
        if over {
            self.forget_what_is_over();
        }
        found.or(leaving)
    }

    /// Where this process alone has them all, nobody else can have a permit: one of its leases then, a valid one if all
    /// are.
    fn all_taken_here(&mut self, on: &ClaimKey, of: NonZeroU32) -> Option<(Arc<Held>, Standing)> {
        let most = usize::try_from(of.get()).unwrap_or(usize::MAX);
        if self.leases.len() < most {
            return None;
        }
        self.forget_what_is_over();
        let (valid, leaving): (Vec<_>, Vec<_>) =
            self.leases.iter().filter(|held| held.mode_on(on).is_some()).partition(|held| !held.is_leaving());
        if valid.len() >= most {
            // The one that ends first is whom to wait for.
            let first = valid.into_iter().min_by_key(|held| held.remaining());
            return first.map(|held| (held.clone(), Standing::Valid));
        }
        let enough = valid.len() + leaving.len() >= most;
        leaving.first().filter(|_| enough).map(|held| ((*held).clone(), Standing::Releasing))
    }

    fn forget_what_is_over(&mut self) {
        let mut freed = false;
        let mut forgotten = std::mem::take(&mut self.forgotten);
        self.leases.retain(|held| {
            let over = held.standing() == Standing::Over;
            freed |= over && held.was_handed_out();
            if over {
                forgotten.push(held.clone());
            }
            !over
        });
        self.forgotten = forgotten;
        self.freed(freed);
    }

    /// In every lane in which nobody has the role, finds out who is next.
    pub(super) fn hand_on(&mut self, on: &ClaimKey, releases: &Releases) {
        for place in 0..self.lanes.len() {
            let mode = self.lanes[place].0;
            if self.lanes[place].1.is_busy() || self.lanes[place].1.is_deserted() {
                continue;
            }
            let local = self.local(on, mode);
            let lane = &mut self.lanes[place].1;
            match local {
                Some((held, Standing::Valid)) => {
                    if !lane.tries.is_empty() {
                        lane.answer_tries(&Answer::Denied(Arc::new(local_denial(&held, 0, on))));
                    }
                    lane.call_head();
                    continue;
                }
                // Whoever gives it back comes here again.
                Some(_) => continue,
                None => {}
            }
            if let Some(attempt) = lane.unwanted_orphan() {
                // It must be out of the way before somebody else asks, or dies with nobody left to ask.
                self.take_back(attempt, releases);
                continue;
            }
            let given = lane.call_next();
            self.calls += given;
        }
    }

    /// An attempt was denied by which the engine knows the line from now on: its next head goes on with it.
    pub(super) fn stand_by(&mut self, flight: Flight, shape: Shape, releases: &Releases) {
        let lane = self.lane(Mode::Exclusive);
        if lane.line.is_empty() {
            // All have gone meanwhile.
            return self.take_back(flight.attempt, releases);
        }
        flight.attempt.route().know();
        flight.attempt.unsent();
        if let Some((before, _)) = lane.heir.replace((flight, shape)) {
            // There is one at a time; nothing may be left of another.
            self.take_back(before.attempt, releases);
        }
    }

    /// The line may have become empty: then nobody is there to inherit, and what was handed over meanwhile is given back.
    pub(super) fn disinherit(&mut self, mode: Mode, releases: &Releases) {
        let lane = self.known_lane(mode).filter(|lane| lane.line.is_empty());
        if let Some((heir, _)) = lane.and_then(|lane| lane.heir.take()) {
            self.take_back(heir.attempt, releases);
        }
    }

    pub(super) fn take_back(&mut self, attempt: Arc<Attempt>, releases: &Releases) {
        let held = Arc::new(Held::to_take_back(attempt));
        self.leases.push(held.clone());
        releases.push(held);
    }
}
