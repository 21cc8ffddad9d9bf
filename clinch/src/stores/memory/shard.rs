//! One shard of the memory store: its leases and who wants to be woken. Plain data under the shard's lock.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::lease::{ClaimKey, Token};

/// A place that is taken.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) token: Token,
    pub(super) expires: Instant,
}

#[derive(Debug, Default)]
pub(super) struct Shard {
    places: HashMap<ClaimKey, Place>,
    waiters: HashMap<ClaimKey, Vec<Arc<Notify>>>,
}

impl Shard {
    /// The place on this key, if it is taken and has not expired.
    pub(super) fn get(&self, on: &ClaimKey, now: Instant) -> Option<&Place> {
        self.places.get(on).filter(|place| place.expires > now)
    }

    /// Whether memory is used for this key, expired or not.
    pub(super) fn contains(&self, on: &ClaimKey) -> bool {
        self.places.contains_key(on)
    }

    pub(super) fn put(&mut self, on: ClaimKey, place: Place) {
        self.places.insert(on, place);
    }

    /// Moves the expiry forward, never back.
    pub(super) fn extend(&mut self, on: &ClaimKey, expires: Instant) {
        if let Some(place) = self.places.get_mut(on) {
            place.expires = place.expires.max(expires);
        }
    }

    pub(super) fn remove(&mut self, on: &ClaimKey) {
        self.places.remove(on);
    }

    /// Removes what has expired and says how much that was.
    pub(super) fn sweep(&mut self, now: Instant) -> usize {
        let before = self.places.len();
        self.places.retain(|_, place| place.expires > now);
        // What a burst needed is given back once the shard is nearly empty.
        if self.places.capacity() > 64 && self.places.len() * 8 < self.places.capacity() {
            self.places.shrink_to(self.places.len() * 2);
        }
        before - self.places.len()
    }

    /// Removes everything and says how much that was.
    pub(super) fn clear(&mut self) -> usize {
        let forgotten = self.places.len();
        self.places.clear();
        forgotten
    }

    pub(super) fn live(&self, now: Instant) -> impl Iterator<Item = (&ClaimKey, &Place)> {
        self.places.iter().filter(move |(_, place)| place.expires > now)
    }

    pub(super) fn subscribe(&mut self, on: &ClaimKey, signal: &Arc<Notify>) {
        self.waiters.entry(on.clone()).or_default().push(signal.clone());
    }

    pub(super) fn unsubscribe(&mut self, on: &ClaimKey, signal: &Arc<Notify>) {
        if let Some(signals) = self.waiters.get_mut(on) {
            signals.retain(|other| !Arc::ptr_eq(other, signal));
            if signals.is_empty() {
                self.waiters.remove(on);
            }
        }
    }

    pub(super) fn wake(&self, on: &ClaimKey) {
        for signal in self.waiters.get(on).into_iter().flatten() {
            signal.notify_one();
        }
    }
}
