//! What is known of one key.

use std::sync::Arc;

use super::lane::Lane;
use super::{Answer, local_denial};
use crate::lease::{Attempt, ClaimKey, Mode, Token};
use crate::manager::held::{Held, Standing};
use crate::manager::release::Releases;

/// Local state of one key; it exists only while there is something to know.
#[derive(Debug, Default)]
pub(super) struct Slot {
    /// The leases with a claim on this key that this process has, or is giving back.
    pub(super) leases: Vec<Arc<Held>>,
    /// By the way in which the key is wanted; nearly always one.
    pub(super) lanes: Vec<(Mode, Lane)>,
    /// Calls in flight.
    pub(super) calls: usize,
    /// Revocations that came while a call was in flight: one may be of the very grant whose answer is on its way.
    pub(super) revoked: Vec<Token>,
}

/// Whether a place of the one kind excludes a place of the other on the same key.
const fn excludes(one: Mode, other: Mode) -> bool {
    matches!((one, other), (Mode::Exclusive, _) | (_, Mode::Exclusive))
}

impl Slot {
    pub(super) fn is_idle(&self) -> bool {
        self.leases.is_empty() && self.calls == 0 && self.lanes.iter().all(|(_, lane)| lane.is_idle())
    }

    pub(super) fn lane(&mut self, mode: Mode) -> &mut Lane {
        let place = self.lanes.iter().position(|(other, _)| *other == mode).unwrap_or_else(|| {
            self.lanes.push((mode, Lane::default()));
            self.lanes.len() - 1
        });
        &mut self.lanes[place].1
    }

    pub(super) fn begin_asking(&mut self, mode: Mode) {
        self.lane(mode).asking = true;
        self.calls += 1;
    }

    pub(super) fn end_asking(&mut self, mode: Mode) {
        self.lane(mode).asking = false;
        self.end_call();
    }

    pub(super) fn end_call(&mut self) {
        self.calls = self.calls.saturating_sub(1);
        // An orphan is still on its way.
        if self.calls == 0 && self.lanes.iter().all(|(_, lane)| lane.orphan.is_none()) {
            self.revoked.clear();
        }
    }

    pub(super) fn freed(&mut self, freed: bool) {
        self.lanes.iter_mut().for_each(|(_, lane)| lane.freed |= freed);
    }

    /// The local lease that stands in the way of such a place, or is on its way out and may still do. Leases that tell
    /// nothing any more are forgotten.
    pub(super) fn local(&mut self, on: &ClaimKey, mode: Mode) -> Option<(Arc<Held>, Standing)> {
        let mut freed = false;
        self.leases.retain(|held| {
            let over = held.standing() == Standing::Over;
            freed |= over && held.was_handed_out();
            !over
        });
        self.freed(freed);
        let places = || {
            let theirs = |held: &Arc<Held>| Some((held.clone(), held.standing(), held.mode_on(on)?));
            self.leases.iter().filter_map(theirs)
        };
        if let Mode::Permit { of } = mode {
            // Where this process alone has them all, nobody else can have one.
            let most = usize::try_from(of.get()).unwrap_or(usize::MAX);
            let ours = places().count();
            let valid = places().filter(|(_, standing, _)| *standing == Standing::Valid).count();
            let wanted = if valid >= most { Standing::Valid } else { Standing::Releasing };
            return places()
                .find(|(_, standing, _)| ours >= most && *standing == wanted)
                .map(|(held, standing, _)| (held, standing));
        }
        let in_the_way =
            |standing| places().find(|(_, theirs, other)| *theirs == standing && excludes(mode, *other));
        let found = in_the_way(Standing::Valid).or_else(|| in_the_way(Standing::Releasing));
        found.map(|(held, standing, _)| (held, standing))
    }

    /// In every lane in which nobody has the role, finds out who is next.
    pub(super) fn hand_on(&mut self, on: &ClaimKey, releases: &Releases) {
        for place in 0..self.lanes.len() {
            let mode = self.lanes[place].0;
            if self.lanes[place].1.asking {
                continue;
            }
            let local = self.local(on, mode);
            let lane = &mut self.lanes[place].1;
            match local {
                Some((held, Standing::Valid)) => {
                    lane.answer_tries(&Answer::Denied(local_denial(&held, 0, on)));
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
            if lane.call_next() {
                self.calls += 1;
            }
        }
    }

    pub(super) fn take_back(&mut self, attempt: Arc<Attempt>, releases: &Releases) {
        let held = Arc::new(Held::to_take_back(attempt));
        self.leases.push(held.clone());
        releases.push(held);
    }
}
