//! The manager: everything between a caller's wish and an engine's short steps, written once for all engines.
//!
//! It promises that a future which is dropped leaves nothing behind, that a guard which is dropped gives its lock back,
//! that nobody is told "held" by a lease which this very process is already giving back, and that the engine is asked
//! only what this process cannot answer itself. `ARCHITECTURE.md` explains how.

mod acquire;
mod background;
mod builder;
mod clock;
mod core;
mod due;
mod guard;
mod heard;
mod held;
mod line;
mod options;
mod outcome;
mod release;
mod renew;
mod schedule;
mod sources;
mod tally;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use self::acquire::{Plan, Reply};
use self::core::{Core, Life};
use crate::error::{Denied, Error};
use crate::key::IntoKey;
use crate::lease::{ClaimKey, Holder};
use crate::store::{Capabilities, Cursor, Page, Revocation};

pub use self::builder::Builder;
pub use self::guard::{Lease, LockGuard};
pub use self::held::Loss;
pub use self::options::LockOptions;
pub use self::outcome::Outcome;
pub use self::sources::Sources;

/// Takes locks. Clones are cheap and share everything: make one per process and engine.
///
/// ```
/// use std::time::Duration;
/// use clinch::LockManager;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), clinch::Error> {
/// let locks = LockManager::memory();
/// let first = locks.try_lock("order:42", Duration::from_secs(10)).await?;
/// let second = locks.try_lock("order:42", Duration::from_secs(10)).await?;
/// assert!(first.is_some() && second.is_none());
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct LockManager {
    core: Arc<Core>,
    life: Arc<Life>,
}

impl fmt::Debug for LockManager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let core = &self.core;
        f.debug_struct("LockManager")
            .field("store", &core.store)
            .field("guards", &core.guards.count())
            .finish()
    }
}

/// What was left when a manager was shut down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Shutdown {
    /// Attempts that were still waiting for the engine's answer; what they are granted is given back.
    pub unsettled: usize,
    /// Releases that were not answered by the deadline; their leases run out by themselves.
    pub unreleased: usize,
    /// Releases that were answered, while an earlier request of the same attempt may still arrive at the engine. They
    /// go on in the background until that is settled or the TTL is over.
    pub unconfirmed: usize,
    /// Guards that somebody still has.
    pub guards: usize,
}

impl Shutdown {
    /// Whether everything was given back, guards that are still alive included.
    pub const fn is_clean(&self) -> bool {
        self.unsettled == 0 && self.unreleased == 0 && self.guards == 0
    }
}

impl LockManager {
    fn new(core: Core) -> Self {
        let core = Arc::new(core);
        Self { life: Arc::new(Life(core.clone())), core }
    }

    /// A manager on a memory engine of its own: no set-up, one process.
    #[expect(clippy::missing_panics_doc, reason = "the defaults are valid, which a test checks")]
    pub fn memory() -> Self {
        #[expect(clippy::expect_used, reason = "the defaults are valid, which a test checks")]
        Builder::default().memory().build().expect("the defaults are valid")
    }

    /// A manager on the engine that `url` names, with the defaults of [`Builder`].
    ///
    /// Every `connect("memory:")` has an engine of its own: share the manager, or its clones, to exclude each other.
    ///
    /// # Errors
    /// As [`Builder::connect`].
    ///
    /// # Cancel safety
    /// Safe: nothing is left behind when the future is dropped.
    pub async fn connect(url: &str) -> Result<Self, Error> {
        Builder::default().connect(url).await
    }

    /// Sets a manager up.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Takes the lock, or gives `None` if somebody else has it: at once, or after the options' `wait`.
    ///
    /// The lock is held as long as the guard lives, so give it a name: `if locks.try_lock(…).await?.is_some() { … }`
    /// gives it back before the block runs; `if let Some(_guard) = locks.try_lock(…).await? { … }` does not.
    ///
    /// # Errors
    /// Bad input, [`Error::Engine`] if the engine failed, [`Error::ShutDown`].
    ///
    /// # Cancel safety
    /// Safe: a dropped call leaves nothing behind. What it may have been granted meanwhile is given to the next one who
    /// asks for the same, or back to the engine in the background. But do not keep a call without polling it: callers of
    /// the same process share one call per key, and wait for it.
    pub async fn try_lock(
        &self,
        key: impl IntoKey,
        options: impl Into<LockOptions>,
    ) -> Result<Option<LockGuard>, Error> {
        match self.attempt(key, options).await? {
            Outcome::Acquired(guard) => Ok(Some(guard)),
            Outcome::DeniedByLock(_) => Ok(None),
            Outcome::EngineFailed(error) => Err(error),
        }
    }

    /// Takes the lock, or says in full why not.
    ///
    /// # Errors
    /// Bad input, [`Error::ShutDown`]. A failing engine is an outcome, not an error.
    ///
    /// # Cancel safety
    /// Safe, as [`try_lock`](Self::try_lock).
    pub async fn attempt(
        &self,
        key: impl IntoKey,
        options: impl Into<LockOptions>,
    ) -> Result<Outcome, Error> {
        let key = key.into_key()?;
        let options = options.into().checked(self.core.max_ttl)?;
        let plan = Plan::new(ClaimKey::lock(key), options);
        // Until the guard is made, so that a shutdown never misses it.
        let _under_way = self.core.attempts.counted();
        let key = &plan.on.key;
        match self.core.acquire(&plan).await {
            Reply::Granted(granted) => {
                tracing::debug!(%key, "acquired");
                let held = granted.claim();
                let renewing = plan
                    .options
                    .renewal_interval()
                    .map(|(every, up_to)| self.core.renewals.start(&held, every, up_to));
                Ok(Outcome::Acquired(LockGuard::new(held, renewing, self.life.clone())))
            }
            Reply::Denied(denial, cause) => {
                tracing::debug!(%key, ?cause, "denied");
                Ok(Outcome::DeniedByLock(Denied {
                    key: key.clone(),
                    cause,
                    holder: denial.holder,
                    retry_after: denial.retry_after,
                    wait: plan.options.wait,
                }))
            }
            Reply::Failed(source) => {
                tracing::error!(%key, error = %source, "engine failure");
                Ok(Outcome::EngineFailed(Error::engine("acquire", Some(key), source)))
            }
            Reply::ShutDown => Err(Error::ShutDown { key: Some(key.clone()) }),
        }
    }

    /// Takes the lock, waiting at most the options' `wait` for it.
    ///
    /// # Errors
    /// [`Error::LockNotAcquired`] if somebody else has it, with who that is; else as [`try_lock`](Self::try_lock).
    ///
    /// # Cancel safety
    /// Safe, as [`try_lock`](Self::try_lock): a waiter that is dropped leaves the line.
    pub async fn lock(&self, key: impl IntoKey, options: impl Into<LockOptions>) -> Result<LockGuard, Error> {
        match self.attempt(key, options).await? {
            Outcome::Acquired(guard) => Ok(guard),
            Outcome::DeniedByLock(denied) => Err(Error::denied(denied)),
            Outcome::EngineFailed(error) => Err(error),
        }
    }

    /// Runs `block` under the lock and gives the lock back on every way out: value, error, panic, dropped future.
    ///
    /// (After a panic or a dropped future the lock is given back in the background, so the runtime must still live.)
    ///
    /// The block gets a [`Lease`] to look at. What it returns comes back untouched, an error of its own included: a
    /// release that fails is logged, never put in its place.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use clinch::LockManager;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), clinch::Error> {
    /// # let locks = LockManager::memory();
    /// let sum = locks.with_lock("order:42", Duration::from_secs(10), async |lease| {
    ///     assert!(lease.is_valid());
    ///     40 + 2
    /// }).await?;
    /// assert_eq!(sum, 42);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`lock`](Self::lock); the block has not run then.
    ///
    /// # Cancel safety
    /// Safe: dropping the future drops the block and then gives the lock back in the background.
    pub async fn with_lock<T, B, F>(
        &self,
        key: impl IntoKey,
        options: impl Into<LockOptions>,
        block: B,
    ) -> Result<T, Error>
    where
        B: FnOnce(Lease) -> F,
        F: Future<Output = T>,
    {
        let guard = self.lock(key, options).await?;
        let value = block(guard.lease()).await;
        if let Err(error) = guard.release().await {
            tracing::warn!(%error, "the block is done, but its lock could not be given back at once");
        }
        Ok(value)
    }

    /// Who holds the lock: empty if nobody does.
    ///
    /// # Errors
    /// Bad input, [`Error::Engine`].
    ///
    /// # Cancel safety
    /// Safe: it changes nothing.
    pub async fn inspect(&self, key: impl IntoKey) -> Result<Vec<Holder>, Error> {
        let on = ClaimKey::lock(key.into_key()?);
        self.core
            .once_more(|| self.core.store.inspect(&on))
            .await
            .map_err(|source| Error::engine("inspect", Some(&on.key), source))
    }

    /// Holders of all keys under this manager's prefix, a page at a time, beginning with [`Cursor::START`].
    ///
    /// # Errors
    /// [`Error::Engine`].
    ///
    /// # Cancel safety
    /// Safe: it changes nothing.
    pub async fn list(&self, cursor: Cursor) -> Result<Page, Error> {
        self.core
            .once_more(|| self.core.store.list(cursor))
            .await
            .map_err(|source| Error::engine("list", None, source))
    }

    /// Ends by force the lease of exactly the holder that was seen, by [`inspect`](Self::inspect) or in a denial.
    /// `false` if that one no longer has it; a successor is never touched. The holder's guard learns it: its
    /// [`lost`](Lease::lost) fires.
    ///
    /// # Errors
    /// [`Error::Engine`].
    ///
    /// # Cancel safety
    /// Not undone: once sent, it takes effect even if the future is dropped.
    pub async fn force_release(&self, holder: &Holder) -> Result<bool, Error> {
        let on = holder.on();
        // By its token it does no harm twice.
        let revoked = self.core.once_more(|| self.core.store.revoke(on, holder.token())).await;
        let revoked = revoked.map_err(|source| Error::engine("force_release", Some(&on.key), source))?;
        if revoked {
            self.core.revoked(&Revocation { on: on.clone(), token: holder.token().clone() });
        }
        Ok(revoked)
    }

    /// A real round trip to the engine; returns how long it took.
    ///
    /// # Errors
    /// [`Error::Engine`].
    ///
    /// # Cancel safety
    /// Safe: it changes nothing.
    pub async fn ping(&self) -> Result<Duration, Error> {
        self.core
            .once_more(|| self.core.store.ping())
            .await
            .map_err(|source| Error::engine("ping", None, source))
    }

    /// What the engine behind this manager can do.
    pub fn capabilities(&self) -> Capabilities {
        self.core.store.capabilities()
    }

    /// Refuses new attempts, ends waiting ones, and gives back what is still to be given back, for at most `limit`.
    ///
    /// Guards that somebody still has stay valid and can still be released; they are reported. A store that was given
    /// to the builder is left open, since others may use it; one that the manager made is closed. This and
    /// [`LockGuard::release`] are the sure ways to give a lock back: a guard dropped while its runtime ends may have to
    /// run out.
    ///
    /// # Cancel safety
    /// New attempts stay refused; the rest goes on in the background as long as the runtime lives.
    pub async fn shutdown(&self, limit: Duration) -> Shutdown {
        self.core.closing.close();
        self.core.ensure_background();
        let settled = async {
            self.core.attempts.zero().await;
            self.core.releases.unanswered.zero().await;
        };
        // Time out or not: what counts is what is left.
        let _ = timeout(limit, settled).await;
        let left = Shutdown {
            unsettled: self.core.attempts.count(),
            unreleased: self.core.releases.unanswered.count(),
            unconfirmed: self.core.releases.echoes.count(),
            guards: self.core.guards.count(),
        };
        if left.is_clean() {
            self.core.background.finish();
            if self.core.owns_store && left.unconfirmed == 0 {
                self.core.store.close();
            }
        }
        left
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: Duration = Duration::from_secs(60);

    #[test]
    fn the_defaults_are_valid() {
        let _ = LockManager::memory();
    }

    /// What the manager knows of a key is forgotten when there is nothing left to know.
    #[tokio::test(start_paused = true)]
    async fn local_state_does_not_outlive_its_reason() {
        let manager = LockManager::memory();
        let guard = manager.lock("a", TTL).await.unwrap();
        assert!(manager.try_lock("a", TTL).await.unwrap().is_none());
        assert!(timeout(TTL / 2, manager.lock("a", LockOptions::new(TTL).wait(TTL))).await.is_err());
        assert!(!manager.core.lines.is_empty());
        guard.release().await.unwrap();
        assert!(manager.core.lines.is_empty());

        drop(manager.lock("b", TTL).await.unwrap());
        assert!(manager.shutdown(TTL).await.is_clean());
        assert!(manager.core.lines.is_empty());
    }

    /// A guard that was revoked or has expired leaves nothing behind either.
    #[tokio::test(start_paused = true)]
    async fn a_lost_lease_leaves_no_local_state() {
        let manager = LockManager::memory();
        let guard = manager.lock("a", TTL).await.unwrap();
        let holder = manager.inspect("a").await.unwrap().remove(0);
        assert!(manager.force_release(&holder).await.unwrap());
        assert_eq!(guard.lost().await, Loss::Revoked);
        drop(guard);
        assert!(manager.core.lines.is_empty());

        let guard = manager.lock("a", TTL).await.unwrap();
        assert_eq!(guard.lost().await, Loss::Expired);
        drop(guard);
        assert!(manager.shutdown(TTL).await.is_clean());
        assert!(manager.core.lines.is_empty());
    }
}
