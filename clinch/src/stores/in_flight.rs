//! Places for calls in flight: a bounded number, of which a part is kept for those who already hold something.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::store::{ErrorKind, StoreError};

/// What a call is for. Renewals and releases always find a place; whoever wants something new waits his turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Renewing and releasing.
    Upkeep,
    /// Asking for something new.
    #[cfg(feature = "redis")]
    Grant,
    /// Everything else.
    Other,
}

#[derive(Debug)]
pub(super) struct InFlight {
    places: Arc<Semaphore>,
    /// How many of them may be taken by what is not upkeep of a lease.
    for_others: Arc<Semaphore>,
    most: usize,
}

/// A place, until it is dropped.
#[derive(Debug)]
pub(super) struct Place {
    _place: Option<OwnedSemaphorePermit>,
    _other: Option<OwnedSemaphorePermit>,
}

impl InFlight {
    /// `most` places, an eighth of them for upkeep only.
    pub(super) fn new(most: usize) -> Self {
        let kept = if most < 2 { 0 } else { (most / 8).max(1) };
        Self {
            places: Arc::new(Semaphore::new(most)),
            for_others: Arc::new(Semaphore::new(most - kept)),
            most,
        }
    }

    /// A place, if one is free and nobody waits for it.
    #[cfg(feature = "redis")]
    pub(super) fn place_now(&self, purpose: Purpose) -> Option<Place> {
        let other = match purpose {
            Purpose::Upkeep => None,
            _ => Some(self.for_others.clone().try_acquire_owned().ok()?),
        };
        Some(Place { _place: Some(self.places.clone().try_acquire_owned().ok()?), _other: other })
    }

    /// Up to `most` places, as far as they are free and nobody waits for them, and how many.
    #[cfg(feature = "redis")]
    pub(super) fn places_now(&self, purpose: Purpose, most: usize) -> Option<(Place, usize)> {
        let (upkeep, free) = (purpose == Purpose::Upkeep, self.places.available_permits());
        let others = if upkeep { most } else { self.for_others.available_permits() };
        let count = most.min(free).min(others);
        let of =
            |places: &Arc<Semaphore>| places.clone().try_acquire_many_owned(u32::try_from(count).ok()?).ok();
        if count == 0 {
            return None;
        }
        let other = if upkeep { None } else { Some(of(&self.for_others)?) };
        Some((Place { _place: Some(of(&self.places)?), _other: other }, count))
    }

    /// How many places there are.
    #[cfg(feature = "redis")]
    pub(super) const fn most(&self) -> usize {
        self.most
    }

    /// Waits for a place. Whoever wants something new first needs one of the places that he may take at all.
    pub(super) async fn place(&self, purpose: Purpose) -> Place {
        let other = match purpose {
            // The semaphores are never closed.
            Purpose::Upkeep => None,
            _ => self.for_others.clone().acquire_owned().await.ok(),
        };
        Place { _place: self.places.clone().acquire_owned().await.ok(), _other: other }
    }

    /// What a call is told that found no place within the limit.
    pub(super) fn overloaded(&self, limit: Duration) -> StoreError {
        let message = format!(
            "all {} places for calls in flight stayed taken for {limit:?}; raise `max_in_flight` or send less",
            self.most
        );
        StoreError::not_applied(ErrorKind::Overloaded, message)
    }
}
