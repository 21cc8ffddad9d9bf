//! What a store knows of its file, and how keys are named in it.

use std::path::PathBuf;

use super::address::{Address, File};
use super::clock::Clock;
use crate::key::Key;
use crate::lease::{ClaimKey, Space};

#[derive(Debug)]
pub(super) struct Site {
    /// From the root, so that it stays the same when the process changes its directory.
    pub(super) path: PathBuf,
    /// What becomes of it if it is not there.
    pub(super) file: File,
    pub(super) prefix: String,
    pub(super) clock: Clock,
    /// By which other stores on the file know this one.
    pub(super) store: i64,
}

/// How a key is called in the file.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Name {
    pub(super) hash: i64,
    pub(super) key: String,
}

impl Site {
    pub(super) fn new(Address { path, file }: Address, prefix: String) -> Self {
        let (clock, store) = (Clock::of_this_machine(), rand::random::<i64>());
        Self { path, file, prefix, clock, store }
    }

    pub(super) fn name(&self, on: &ClaimKey) -> Name {
        self.named(on.to_string())
    }

    /// Under which those are found who want to hear of revocations. No key is empty.
    pub(super) fn revocations(&self) -> Name {
        self.named(String::new())
    }

    fn named(&self, key: String) -> Name {
        Name { hash: hash(&self.prefix, &key), key }
    }
}

/// The key that was stored under this name.
pub(super) fn parse(name: &str) -> Option<ClaimKey> {
    let (word, key) = name.split_once(':')?;
    let spaces = [Space::Lock, Space::Duplicate, Space::Permit, Space::Idempotency];
    let space = spaces.into_iter().find(|space| space.word() == word)?;
    Some(ClaimKey { space, key: Key::new(key).ok()? })
}

/// FNV-1a, without its sign bit. It is part of the file's format: every version of every process must come to the same.
fn hash(prefix: &str, key: &str) -> i64 {
    let bytes = prefix.bytes().chain([0xff]).chain(key.bytes());
    let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325, mix);
    (hash >> 1).cast_signed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        for space in [Space::Lock, Space::Duplicate, Space::Permit, Space::Idempotency] {
            let on = ClaimKey { space, key: Key::new("order:42:日本").unwrap() };
            assert_eq!(parse(&on.to_string()), Some(on));
        }
        for other in ["", "lock", "lock:", "other:key"] {
            assert_eq!(parse(other), None);
        }
    }

    /// Files outlive the program: these numbers never change.
    #[test]
    fn hashes_are_those_of_the_file_format() {
        assert_eq!(hash("clinch", "lock:order:42"), 6_219_911_636_631_393_861);
        assert_ne!(hash("a", "b:c"), hash("a:b", "c"));
        assert!(hash("", "") >= 0);
    }
}
