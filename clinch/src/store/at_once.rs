//! Steps whose answers need no waiting.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::{Release, StoreError, Verdict};
use crate::lease::{Attempt, Record};
// The one thing of the manager's that the port names. An engine keeps the very piece of memory that is the manager's lease, by one
// pointer of 8 bytes, and safe Rust has such a pointer only to a type that is known here: one to a trait is 16 bytes in each place
// of a table, and a part of the lease by itself is a second allocation. Engines use no more of it than its attempt, and say whether
// they keep it.
pub use crate::manager::Held as Asking;

/// What has an attempt. It is shared, so that an engine can keep it instead of a copy: that is one pointer, whichever it is.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Asks {
    /// The attempt by itself.
    Attempt(Arc<Attempt>),
    /// What becomes the lease if it is granted; the attempt is a part of it.
    Lease(Arc<Asking>),
}

impl Deref for Asks {
    type Target = Attempt;

    fn deref(&self) -> &Attempt {
        match self {
            Self::Attempt(attempt) => attempt,
            Self::Lease(lease) => lease.attempt(),
        }
    }
}

/// An engine in this very process that takes its steps without any waiting; see [`Store::at_once`](super::Store::at_once).
///
/// Each step does exactly what the step of [`Store`](super::Store) does after which it is named. It must not block, nor call the manager
/// that asks: a lock of its own may be held meanwhile.
pub trait AtOnce {
    /// As [`Store::acquire`](super::Store::acquire), at this moment: the caller has just looked at the clock.
    ///
    /// # Errors
    /// The same.
    fn acquire_now(&self, attempt: Asks, now: Instant) -> Result<Verdict, StoreError>;

    /// As [`Store::release`](super::Store::release).
    ///
    /// # Errors
    /// The same.
    fn release_now(&self, lease: &Attempt) -> Result<Release, StoreError>;

    /// As [`Store::complete`](super::Store::complete).
    ///
    /// # Errors
    /// The same.
    fn complete_now(
        &self,
        lease: &Attempt,
        record: &Record,
        ttl: Option<Duration>,
    ) -> Result<Release, StoreError>;
}
