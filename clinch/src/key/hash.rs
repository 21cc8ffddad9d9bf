//! A key is hashed once, when it is made: an attempt looks its key up a dozen times, here and in the memory engine.
//!
//! The number is a keyed hash with a key that is random in each process, so nobody outside can choose keys that collide.

use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, Hasher};
use std::sync::LazyLock;

use hashbrown::hash_table::{HashTable, OccupiedEntry};

use crate::lease::ClaimKey;
use crate::sync::RandomState;

/// A table that is larger than this and nearly empty is shrunk.
const LARGE: usize = 256;

static RANDOM: LazyLock<RandomState> = LazyLock::new(RandomState::default);

pub(super) fn of(text: &str) -> u64 {
    // Of the bytes alone: nothing else is hashed with this.
    let mut hasher = RANDOM.build_hasher();
    hasher.write(text.as_bytes());
    hasher.finish()
}

/// What is known of keys, by key. A thing says itself which key it is of, so the table holds nothing else: a place that is free,
/// of which a table has many, is as small as the thing.
#[derive(Debug)]
pub(crate) struct Table<T>(HashTable<T>);

/// Of one key.
pub(crate) trait OfKey {
    fn on(&self) -> &ClaimKey;
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self(HashTable::new())
    }
}

impl<T: OfKey> Table<T> {
    pub(crate) fn get(&self, on: &ClaimKey) -> Option<&T> {
        self.0.find(on.hashed(), |thing| thing.on() == on)
    }

    /// Where it is, to be looked at and removed.
    pub(crate) fn find(&mut self, on: &ClaimKey) -> Option<OccupiedEntry<'_, T>> {
        self.0.find_entry(on.hashed(), |thing| thing.on() == on).ok()
    }

    /// Puts it there. Nothing else of its key is in the table.
    pub(crate) fn insert(&mut self, thing: T) {
        self.0.insert_unique(thing.on().hashed(), thing, |thing| thing.on().hashed());
    }

    /// What is there of this key, or what is put there now.
    pub(crate) fn find_or_insert(&mut self, on: &ClaimKey, new: impl FnOnce() -> T) -> &mut T {
        let entry = self.0.entry(on.hashed(), |thing| thing.on() == on, |thing| thing.on().hashed());
        entry.or_insert_with(new).into_mut()
    }

    /// What a burst needed is given back once the table is nearly empty.
    pub(crate) fn shrink(&mut self) {
        if self.0.capacity() > LARGE && self.0.len() * 8 < self.0.capacity() {
            self.0.shrink_to(self.0.len() * 2, |thing| thing.on().hashed());
        }
    }

    pub(crate) fn retain(&mut self, keep: impl FnMut(&mut T) -> bool) {
        self.0.retain(keep);
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter()
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// A map by keys, which carry their hashes.
pub(crate) type ByKey<V> = HashMap<ClaimKey, V, BuildHasherDefault<Carried>>;

/// The hash that a [`ClaimKey`] says it has.
#[derive(Debug, Default)]
pub(crate) struct Carried(u64);

impl Hasher for Carried {
    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }

    /// For nothing that is put into these maps.
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.0 = self.0.rotate_left(8) ^ u64::from(*byte));
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// Which of so many maps a key is in: a power of two. Maps themselves go by the lowest bits and by the highest.
pub(crate) fn shard(on: &ClaimKey, shards: usize) -> usize {
    #[expect(clippy::cast_possible_truncation, reason = "only a few bits are wanted")]
    let middle = (on.hashed() >> 24) as u16;
    usize::from(middle) & (shards - 1)
}
