//! Concurrency limits: at most so many holders of a name at a time, across all processes.

use std::fmt;
use std::num::NonZeroU32;
use std::ops::ControlFlow;

use super::LockManager;
use super::carry_out::{Taking, Wish};
use super::guard::{Lease, LockGuard};
use super::options::LockOptions;
use super::outcome::Outcome;
use super::plan::Plan;
use super::with_lock::{WithLock, with_lock};
use crate::error::Error;
use crate::key::{IntoKey, Key};
use crate::lease::{ClaimKey, Holder, Space};

/// At most `n` holders at a time, across all processes that use the same name. Made by
/// [`LockManager::limit`](crate::LockManager::limit).
///
/// A permit is a lease like a lock: it ends with its TTL if its holder dies, it can be renewed and waited for, and its guard
/// gives it back. The number counts for the caller's own permits: one with a lower number gets none until fewer than that
/// are held, one with a higher number can go on; so a limit can be raised and lowered while it is in use. Inside a process
/// waiters are served in their order; between processes, whoever is woken first.
///
/// ```
/// use std::time::Duration;
/// use clinch::LockManager;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), clinch::Error> {
/// let locks = LockManager::memory();
/// let exports = locks.limit("export", 2)?;
/// let one = exports.try_acquire(Duration::from_secs(60)).await?;
/// let two = exports.try_acquire(Duration::from_secs(60)).await?;
/// let three = exports.try_acquire(Duration::from_secs(60)).await?;
/// assert!(one.is_some() && two.is_some() && three.is_none());
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Limit {
    manager: LockManager,
    key: Key,
    of: NonZeroU32,
}

impl fmt::Debug for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limit").field("key", &self.key).field("of", &self.of).finish_non_exhaustive()
    }
}

impl Limit {
    pub(super) fn new(manager: LockManager, key: impl IntoKey, of: u32) -> Result<Self, Error> {
        let key = key.into_key()?;
        let of = NonZeroU32::new(of)
            .ok_or_else(|| Error::option("limit", &of, format!("accepted is 1 to {}", u32::MAX)))?;
        Ok(Self { manager, key, of })
    }

    /// Its name.
    pub const fn key(&self) -> &Key {
        &self.key
    }

    /// How many may be held at a time.
    pub const fn of(&self) -> NonZeroU32 {
        self.of
    }

    /// Takes a permit, or gives `None` if all are taken: at once, or after the options' `wait`.
    ///
    /// # Errors
    /// Bad input, [`Error::Engine`] if the engine failed, [`Error::ShutDown`].
    ///
    /// # Cancel safety
    /// Safe, as [`LockManager::try_lock`].
    pub fn try_acquire(
        &self,
        options: impl Into<LockOptions>,
    ) -> impl Future<Output = Result<Option<LockGuard>, Error>> {
        Wish::new(move || self.take(None, options.into()), Outcome::or_denied)
    }

    /// Takes a permit, waiting at most the options' `wait` for it.
    ///
    /// # Errors
    /// [`Error::LockNotAcquired`] if all are taken, with who has the one that ends first; else as
    /// [`try_acquire`](Self::try_acquire).
    ///
    /// # Cancel safety
    /// Safe, as [`LockManager::try_lock`].
    pub fn acquire(&self, options: impl Into<LockOptions>) -> impl Future<Output = Result<LockGuard, Error>> {
        Wish::new(move || self.take(None, options.into()), Outcome::or_error)
    }

    /// Takes a permit, or says in full why not.
    ///
    /// # Errors
    /// Bad input, [`Error::ShutDown`]. A failing engine is an outcome, not an error.
    ///
    /// # Cancel safety
    /// Safe, as [`LockManager::try_lock`].
    pub fn attempt(&self, options: impl Into<LockOptions>) -> impl Future<Output = Result<Outcome, Error>> {
        Wish::new(move || self.take(None, options.into()), Ok)
    }

    /// The same for the guard of this name.
    pub(crate) fn attempt_by(
        &self,
        guard: Option<&str>,
        options: LockOptions,
    ) -> impl Future<Output = Result<Outcome, Error>> {
        Wish::new(move || self.take(guard, options), Ok)
    }

    fn take<T>(
        &self,
        guard: Option<&str>,
        options: LockOptions,
    ) -> Result<ControlFlow<T, Taking<'_>>, Error> {
        let plan = Plan::permit(self, options, self.manager.core.conditions(guard))?;
        Ok(ControlFlow::Continue(self.manager.carry_out(plan)))
    }

    /// Runs `block` with a permit and gives it back on every way out, as [`LockManager::with_lock`] does with a lock.
    ///
    /// # Cancel safety
    /// Safe: dropping the future drops the block and then gives the permit back in the background.
    pub fn with_permit<T, B, F>(
        &self,
        options: impl Into<LockOptions>,
        block: B,
    ) -> WithLock<impl Future<Output = Result<T, Error>>>
    where
        B: FnOnce(Lease) -> F,
        F: Future<Output = T>,
    {
        let options = options.into();
        with_lock(self.acquire(options), block)
    }

    /// Who has the permits that are taken.
    ///
    /// # Errors
    /// [`Error::Engine`].
    ///
    /// # Cancel safety
    /// Safe: it changes nothing.
    pub async fn holders(&self) -> Result<Vec<Holder>, Error> {
        let on = ClaimKey { space: Space::Permit, key: self.key.clone() };
        self.manager.holders(&on).await
    }
}
