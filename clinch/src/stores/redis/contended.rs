//! Which keys were held by others when they were asked for last, as far as that is worth knowing: what is free is taken with a plain
//! command, what is not is asked for with a script, which also tells who holds it and how long.
//!
//! It is a guess. If it is wrong, the answer is the same and costs one more round trip, or a little of the server's time.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::lease::ClaimKey;

/// A power of two: two keys that are hot at once rarely share a place.
const PLACES: usize = 1_024;

#[derive(Debug)]
pub(super) struct Contended(Box<[AtomicBool]>);

impl Default for Contended {
    fn default() -> Self {
        Self((0..PLACES).map(|_| AtomicBool::new(false)).collect())
    }
}

impl Contended {
    fn place(&self, on: &ClaimKey) -> &AtomicBool {
        #[expect(clippy::cast_possible_truncation, reason = "only a few bits are wanted")]
        let place = on.hashed() as u16;
        &self.0[usize::from(place) & (PLACES - 1)]
    }

    /// Whether it was held by somebody else.
    pub(super) fn is(&self, on: &ClaimKey) -> bool {
        self.place(on).load(Ordering::Relaxed)
    }

    /// It was asked for, and held by somebody else or not.
    pub(super) fn set(&self, on: &ClaimKey, held: bool) {
        let place = self.place(on);
        if place.load(Ordering::Relaxed) != held {
            place.store(held, Ordering::Relaxed);
        }
    }
}
