//! Places for calls in flight: a bounded number, of which a part is kept for those who already hold something.

use std::sync::Arc;
use std::time::Duration;

#[cfg(feature = "redis")]
use tokio::sync::SemaphorePermit;
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

    /// Takes a place, if one is free and nobody waits for it. It is taken until it is [given back](Self::give_back).
    #[cfg(feature = "redis")]
    pub(super) fn take_now(&self, purpose: Purpose) -> bool {
        if purpose == Purpose::Upkeep {
            return self.places.try_acquire().map(SemaphorePermit::forget).is_ok();
        }
        let Ok(other) = self.for_others.try_acquire() else { return false };
        let Ok(place) = self.places.try_acquire() else { return false };
        other.forget();
        place.forget();
        true
    }

    /// Gives back what was taken for this purpose.
    #[cfg(feature = "redis")]
    pub(super) fn give_back(&self, purpose: Purpose) {
        self.places.add_permits(1);
        if purpose != Purpose::Upkeep {
            self.for_others.add_permits(1);
        }
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
