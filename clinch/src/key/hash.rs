//! A key is hashed once, when it is made: an attempt looks its key up a dozen times, here and in the memory engine.
//!
//! The number is a keyed hash with a key that is random in each process, so nobody outside can choose keys that collide.

use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, Hasher};
use std::sync::LazyLock;

use crate::lease::ClaimKey;
use crate::sync::RandomState;

static RANDOM: LazyLock<RandomState> = LazyLock::new(RandomState::default);

pub(super) fn of(text: &str) -> u64 {
    RANDOM.hash_one(text)
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
