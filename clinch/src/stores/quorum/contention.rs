//! Keeping out of each other's way.
//!
//! Several who want a key at the same instant divide its votes between them, give them back, hear of that, and would
//! meet again at once. So every split vote doubles the time over which those who were in it spread, each at random, until
//! one of them is alone for as long as an attempt takes; and every other outcome halves it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::lease::ClaimKey;

/// The time over which contenders spread at first.
const SPREAD_MS: u64 = 5;
/// How often it doubles: up to a third of a second.
const MOST: u32 = 6;
/// How many keys are remembered.
const KEYS: usize = 1024;

#[derive(Debug)]
pub(super) struct Contention {
    /// How often the votes on each key were split of late.
    splits: Mutex<HashMap<ClaimKey, u32>>,
    random: AtomicU64,
}

impl Contention {
    /// Pauses are drawn from a seed.
    pub(super) fn new(seed: u64) -> Self {
        Self { splits: Mutex::default(), random: AtomicU64::new(seed) }
    }

    fn splits(&self) -> MutexGuard<'_, HashMap<ClaimKey, u32>> {
        self.splits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The votes were split.
    pub(super) fn split(&self, on: &ClaimKey) {
        let mut splits = self.splits();
        if splits.len() >= KEYS && !splits.contains_key(on) {
            splits.clear();
        }
        let times = splits.entry(on.clone()).or_default();
        *times = (*times + 1).min(MOST);
    }

    /// Somebody has it.
    pub(super) fn decided(&self, on: &ClaimKey) {
        let mut splits = self.splits();
        match splits.get_mut(on) {
            Some(times) if *times > 1 => *times -= 1,
            Some(_) => drop(splits.remove(on)),
            None => {}
        }
    }

    /// A pause before asking again.
    pub(super) fn pause(&self, on: &ClaimKey) -> Duration {
        let times = self.splits().get(on).copied().unwrap_or_default();
        self.ms(0, SPREAD_MS << times)
    }

    /// A time from `least` to `most` milliseconds.
    pub(super) fn ms(&self, least: u64, most: u64) -> Duration {
        // A Weyl sequence and a good mix of its bits: all that spreading a few clients needs.
        let mut x = self.random.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        Duration::from_millis(least + (x ^ (x >> 31)) % (most - least + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::Key;

    #[test]
    fn every_split_doubles_the_spread_and_every_decision_halves_it() {
        let contention = Contention::new(1);
        let on = ClaimKey::lock(Key::new("k").unwrap());
        let longest =
            |on: &ClaimKey| (0..1000).map(|_| contention.pause(on)).max().unwrap_or_default().as_millis();
        assert_eq!(longest(&on), 5);
        (0..3).for_each(|_| contention.split(&on));
        assert_eq!(longest(&on), 40);
        (0..9).for_each(|_| contention.split(&on));
        assert_eq!(longest(&on), 320);
        assert_eq!(longest(&ClaimKey::lock(Key::new("another").unwrap())), 5);
        (0..5).for_each(|_| contention.decided(&on));
        assert_eq!(longest(&on), 10);
        contention.decided(&on);
        assert_eq!(longest(&on), 5);
    }
}
