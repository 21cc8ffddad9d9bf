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

    /// Takes up to so many places, as many as are free and nobody waits for, and says how many. They are taken until they are
    /// [given back](Self::give_back).
    #[cfg(feature = "redis")]
    pub(super) fn take_now(&self, purpose: Purpose, most: usize) -> usize {
        if purpose == Purpose::Upkeep {
            return take(&self.places, most);
        }
        let others = take(&self.for_others, most);
        let places = take(&self.places, others);
        give(&self.for_others, others - places);
        places
    }

    /// Gives back so many of those that were taken for this purpose.
    #[cfg(feature = "redis")]
    pub(super) fn give_back(&self, purpose: Purpose, count: usize) {
        give(&self.places, count);
        if purpose != Purpose::Upkeep {
            give(&self.for_others, count);
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

/// Takes permits, up to so many.
#[cfg(feature = "redis")]
fn take(permits: &Semaphore, most: usize) -> usize {
    loop {
        let count = most.min(permits.available_permits());
        let Ok(wanted @ 1..) = u32::try_from(count) else { return 0 };
        // Otherwise somebody else was faster.
        if let Ok(taken) = permits.try_acquire_many(wanted) {
            taken.forget();
            return count;
        }
    }
}

#[cfg(feature = "redis")]
fn give(permits: &Semaphore, count: usize) {
    if count > 0 {
        permits.add_permits(count);
    }
}
