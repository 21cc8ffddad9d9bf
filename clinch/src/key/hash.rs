//! A key is hashed once, when it is made: an attempt looks its key up a dozen times, here and in the memory engine.
//!
//! The number is a keyed hash with a key that is random in each process, so nobody outside can choose keys that collide: a
//! short key's is strongly universal (two different keys share any bits of it as often as chance would have it, whatever they
//! are), a long one's is std's SipHash.

use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, Hasher};
use std::sync::LazyLock;

use hashbrown::hash_table::{HashTable, OccupiedEntry};

use super::text::Words;
use crate::lease::ClaimKey;
use crate::sync::RandomState;

/// A table that is larger than this and nearly empty is shrunk. There are a thousand of them.
const LARGE: usize = 64;

static RANDOM: LazyLock<Random> = LazyLock::new(Random::new);

struct Random {
    long: RandomState,
    /// For the number of bytes of a short text, and for its words.
    factors: [u128; 4],
    start: u128,
    last: u64,
}

impl Random {
    fn new() -> Self {
        let long = RandomState::default();
        let half = |number: u64| u128::from(long.hash_one(number));
        let whole = |number: u64| half(2 * number) << 64 | half(2 * number + 1);
        Self {
            factors: [whole(0), whole(1), whole(2), whole(3)],
            start: whole(4),
            last: long.hash_one(10_u64) | 1,
            long,
        }
    }
}

pub(super) fn of_long(text: &str) -> u64 {
    // Of the bytes alone: nothing else is hashed with this.
    let mut hasher = RANDOM.long.build_hasher();
    hasher.write(text.as_bytes());
    hasher.finish()
}

/// Multilinear (Lemire and Kaser, *Strongly universal string hashing is fast*): the upper half of a sum of products modulo
/// 2^128. A sum is all too regular for one who could learn some of its values, hence the steps after it, which can be
/// undone and so take nothing away.
pub(super) fn of_short(len: u8, words: &Words) -> u64 {
    let random = &*RANDOM;
    let [by_len, by_words @ ..] = &random.factors;
    let times = |factor: &u128, number: u64| factor.wrapping_mul(u128::from(number));
    let sum = by_words
        .iter()
        .zip(words)
        .fold(random.start.wrapping_add(times(by_len, len.into())), |sum, (factor, word)| {
            sum.wrapping_add(times(factor, *word))
        });
    let upper = (sum >> 64) as u64;
    let mixed = (upper ^ upper >> 32).wrapping_mul(random.last);
    mixed ^ mixed >> 29
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
    #[inline]
    pub(crate) fn get(&self, on: &ClaimKey) -> Option<&T> {
        // Most tables of a shard are, and this is all that need be looked at of them.
        if self.0.is_empty() {
            return None;
        }
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

#[cfg(test)]
mod tests {
    use super::super::Key;
    use std::collections::HashSet;

    /// Of keys that differ in as little as their last character or their length, no more share bits than chance has it.
    #[test]
    fn keys_that_are_nearly_the_same_are_spread() {
        let texts: Vec<_> = (0..4_096)
            .flat_map(|number| {
                [format!("{number}"), format!("order:{number}"), format!("customer:eu-west:{number:05}")]
            })
            .chain((1..=40).map(|len| "a".repeat(len)))
            .collect();
        let hashes: Vec<_> = texts.iter().map(|text| Key::new(text).unwrap().hashed()).collect();
        assert_eq!(hashes.iter().collect::<HashSet<_>>().len(), texts.len());
        for from in [0, 24, 57] {
            let mut shared = [0_u32; 128];
            hashes.iter().for_each(|hash| shared[(hash >> from & 127) as usize] += 1);
            // 96 are to be expected, with a standard deviation of 10.
            assert!(shared.iter().all(|count| (20..200).contains(count)), "{from}: {shared:?}");
        }
    }
}
