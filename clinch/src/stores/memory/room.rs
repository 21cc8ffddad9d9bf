//! The bound on how much a store may hold, and who has how much of it.

use crate::store::{ErrorKind, StoreError};
use crate::sync::atomic::{AtomicUsize, Ordering};

/// How much a shard keeps of what is given back to it: the more shards there are, the less, so that all of it stays a small part.
const SPARE: usize = 4;

/// So much room, for all shards together. A shard that made room for something keeps it for the next, so that a lease that is
/// taken and given back touches nothing that other threads write. What shards keep counts as taken: the bound is never passed.
/// Where there is little room they keep none, and what they have can be [gathered](Self::gather), so nothing is refused that has
/// room.
#[derive(Debug)]
pub(super) struct Room {
    taken: AtomicUsize,
    max: usize,
    /// As long as no more is taken than this, shards may keep some.
    plenty: usize,
}

impl Room {
    pub(super) const fn new(max: usize, shards: usize) -> Self {
        // All that shards can keep is a small part of it.
        let plenty = if max / 64 >= shards * SPARE { max - max / 8 } else { 0 };
        Self { taken: AtomicUsize::new(0), max, plenty }
    }

    pub(super) const fn max(&self) -> usize {
        self.max
    }

    /// Whether shards may keep some.
    pub(super) const fn is_kept(&self) -> bool {
        self.plenty > 0
    }

    /// How much is in use, where `spare` says how much of it is not. That is asked afterwards: what a shard takes from its own
    /// meanwhile is then seen as in use.
    pub(super) fn taken(&self, spare: impl FnOnce() -> usize) -> usize {
        let taken = self.taken.load(Ordering::Relaxed);
        taken.saturating_sub(if self.is_kept() { spare() } else { 0 })
    }

    /// Makes room for so much in a shard that has so much to spare, or fails.
    #[inline]
    pub(super) fn take(&self, spare: &mut usize, new: usize) -> Result<(), StoreError> {
        match spare.checked_sub(new) {
            Some(left) => *spare = left,
            None => {
                self.take_more(new - *spare)?;
                *spare = 0;
            }
        }
        Ok(())
    }

    fn take_more(&self, new: usize) -> Result<(), StoreError> {
        let fits = |taken: usize| taken.checked_add(new).filter(|taken| *taken <= self.max);
        match self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits) {
            Ok(_) => Ok(()),
            Err(taken) => {
                let message = format!(
                    "the memory store holds {taken} leases and its bound is {}; release some, use shorter TTLs, or raise the bound",
                    self.max
                );
                Err(StoreError::not_applied(ErrorKind::Full, message))
            }
        }
    }

    /// So much of a shard is not in use any more.
    #[inline]
    pub(super) fn give_back(&self, spare: &mut usize, gone: usize) {
        *spare += gone;
        if *spare > SPARE || self.taken.load(Ordering::Relaxed) > self.plenty {
            self.gather(spare);
        }
    }

    /// Takes back what a shard keeps.
    pub(super) fn gather(&self, spare: &mut usize) {
        if *spare > 0 {
            self.taken.fetch_sub(std::mem::take(spare), Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shard_keeps_a_little_where_there_is_plenty() {
        let (room, mut spare) = (Room::new(64 * SPARE * 2, 2), 0);
        room.take(&mut spare, 1).unwrap();
        room.give_back(&mut spare, 1);
        assert_eq!((spare, room.taken(|| spare), room.taken(|| 0)), (1, 0, 1));
        room.take(&mut spare, SPARE + 1).unwrap();
        room.give_back(&mut spare, SPARE + 1);
        assert_eq!((spare, room.taken(|| 0)), (0, 0));
    }

    #[test]
    fn what_a_shard_keeps_counts_and_is_gathered() {
        let max = 64 * SPARE;
        let (room, mut one, mut other) = (Room::new(max, 1), 0, 0);
        room.take(&mut one, SPARE).unwrap();
        room.give_back(&mut one, SPARE);
        assert_eq!(room.take(&mut other, max).unwrap_err().kind(), ErrorKind::Full);
        room.gather(&mut one);
        room.take(&mut other, max).unwrap();
        assert!(room.take(&mut one, 1).is_err());
        // With little left, what is given back is there for all at once.
        room.give_back(&mut other, 1);
        assert_eq!(other, 0);
        room.take(&mut one, 1).unwrap();
    }

    #[test]
    fn a_small_bound_is_kept_to_without_any_gathering() {
        let (room, mut one, mut other) = (Room::new(3, 64), 0, 0);
        assert!(!room.is_kept());
        room.take(&mut one, 3).unwrap();
        assert!(room.take(&mut other, 1).is_err());
        room.give_back(&mut one, 1);
        assert_eq!(one, 0);
        room.take(&mut other, 1).unwrap();
        assert_eq!(room.taken(|| 0), 3);
    }
}
