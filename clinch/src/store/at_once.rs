//! Steps whose answers need no waiting.

use std::borrow::Borrow;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::{Release, StoreError, Verdict};
use crate::lease::{Attempt, Record};

/// What has an attempt: the attempt itself, or whatever it is a part of.
pub trait Asks: Borrow<Attempt> + Send + Sync {}

impl<T: Borrow<Attempt> + Send + Sync> Asks for T {}

/// An engine in this very process that takes its steps without any waiting; see [`Store::at_once`](super::Store::at_once).
///
/// Each step does exactly what the step of [`Store`](super::Store) does after which it is named. It must not block, nor call the manager
/// that asks: a lock of its own may be held meanwhile.
pub trait AtOnce {
    /// As [`Store::acquire`](super::Store::acquire), at this moment: the caller has just looked at the clock. What has the attempt
    /// is shared, so that the engine can keep it instead of a copy.
    ///
    /// # Errors
    /// The same.
    fn acquire_now(&self, attempt: Arc<dyn Asks>, now: Instant) -> Result<Verdict, StoreError>;

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
