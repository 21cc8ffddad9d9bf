//! The engine's memory.

use std::collections::BTreeMap;
use std::time::Duration;

use clinch::lease::{ClaimKey, Fence, Mode, Record, Token};
use tokio::time::Instant;

use super::EngineTime;
use crate::history::Role;

/// Something that lies on a key in somebody's name: a place that is held, one that is kept or waited for, or what is left
/// of one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// By whom.
    pub token: Token,
    /// As what.
    pub role: Role,
    /// What it holds, or would.
    pub mode: Mode,
    /// Until when.
    pub expires: EngineTime,
    /// The fence of its grant.
    pub fence: Option<Fence>,
    /// In a queue, or as the next: how long the key is kept for it when its turn comes.
    pub confirm: Duration,
    /// As the next: when it asked last, as its process counts.
    pub asked_at: Option<Instant>,
    /// What it left behind, if its work is done.
    pub done: Option<Record>,
}

/// The engine's memory: what lies on each key, in the order in which it came. What has expired may still lie here;
/// nobody may see it.
#[derive(Debug, Default, Clone)]
pub struct Table {
    keys: BTreeMap<ClaimKey, Vec<Place>>,
    /// The last number that was given as a fence. They live longer than what they were given for.
    counters: BTreeMap<ClaimKey, u64>,
}

impl Table {
    /// What lies on the key, expired or not.
    pub fn on(&self, on: &ClaimKey) -> &[Place] {
        self.keys.get(on).map_or(&[], Vec::as_slice)
    }

    /// Puts a place there: over the one that this token has in this role, else behind all others.
    pub fn put(&mut self, on: &ClaimKey, place: Place) {
        if !self.keys.contains_key(on) {
            self.keys.insert(on.clone(), Vec::new());
        }
        let Some(places) = self.keys.get_mut(on) else { return };
        match places.iter_mut().find(|there| there.token == place.token && there.role == place.role) {
            Some(there) => *there = place,
            None => places.push(place),
        }
    }

    /// Takes away what is meant; says how much there was.
    pub fn remove(&mut self, on: &ClaimKey, mut meant: impl FnMut(&Place) -> bool) -> usize {
        let Some(places) = self.keys.get_mut(on) else { return 0 };
        let before = places.len();
        places.retain(|place| !meant(place));
        let removed = before - places.len();
        if places.is_empty() {
            self.keys.remove(on);
        }
        removed
    }

    /// Changes what is there.
    pub fn change(&mut self, on: &ClaimKey, change: impl FnMut(&mut Place)) {
        self.keys.get_mut(on).into_iter().flatten().for_each(change);
    }

    /// The last number that was given as a fence on this key, in steps of [`Fence::STEP`]; 0 if none is known.
    pub fn last_fence(&self, on: &ClaimKey) -> u64 {
        self.counters.get(on).copied().unwrap_or_default()
    }

    /// Notes the last number.
    pub fn count_fence(&mut self, on: &ClaimKey, number: u64) {
        match self.counters.get_mut(on) {
            Some(last) => *last = number,
            None => {
                self.counters.insert(on.clone(), number);
            }
        }
    }

    /// Puts these places there in the place of all others, and the number that was given last.
    pub(in crate::sim) fn set(&mut self, on: &ClaimKey, places: Vec<Place>, number: u64) {
        if places.is_empty() {
            self.keys.remove(on);
        } else {
            self.keys.insert(on.clone(), places);
        }
        if number > 0 {
            self.counters.insert(on.clone(), number);
        }
    }

    /// The keys on which anything lies.
    pub(in crate::sim) fn keys(&self) -> impl Iterator<Item = &ClaimKey> {
        self.keys.keys()
    }

    /// Loses the numbers and nothing else.
    pub fn lose_counters(&mut self) {
        self.counters.clear();
    }

    /// Loses everything.
    pub fn lose_all(&mut self) -> BTreeMap<ClaimKey, Vec<Place>> {
        self.counters.clear();
        std::mem::take(&mut self.keys)
    }

    pub(in crate::sim) fn iter(&self) -> impl Iterator<Item = (&ClaimKey, &Place)> {
        self.keys.iter().flat_map(|(on, places)| places.iter().map(move |place| (on, place)))
    }
}
