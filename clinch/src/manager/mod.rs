//! The manager: everything between a caller's wish and an engine's short steps, written once for all engines.
//!
//! It promises that a future which is dropped leaves nothing behind, that a guard which is dropped gives its lock back,
//! that nobody is told "held" by a lease which this very process is already giving back, and that the engine is asked
//! only what this process cannot answer itself. `ARCHITECTURE.md` explains how.

mod acquire;
mod alone;
mod ask;
mod background;
mod breaker;
mod builder;
mod carry_out;
mod clock;
mod closed;
mod complaints;
mod core;
mod diagnose;
mod due;
mod each;
mod guard;
mod handle;
mod health;
mod heard;
mod held;
mod limit;
mod line;
mod options;
mod outcome;
mod plan;
#[cfg(feature = "submit")]
mod recorded;
mod release;
mod renew;
mod riding;
mod schedule;
mod scope;
mod seen;
mod several;
mod single_flight;
mod sources;
mod strategy;
mod tally;
mod tenure;
mod time;
mod trying;
mod wall;
mod with_lock;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use self::carry_out::Wish;
use self::core::{Core, Life};
use self::trying::Trying;
use self::with_lock::with_lock;
use crate::error::Error;
use crate::key::IntoKey;
#[cfg(feature = "submit")]
use crate::key::Key;
use crate::lease::{ClaimKey, Holder};
use crate::store::{Capabilities, Cursor, Page, Revocation};
#[cfg(feature = "submit")]
use crate::telemetry::Meter;

pub use self::builder::Builder;
#[cfg(feature = "submit")]
pub(crate) use self::carry_out::{Taking, Waiting};
pub use self::guard::{Lease, LockGuard};
pub use self::health::Health;
pub use self::held::{Held, Loss};
#[cfg(feature = "submit")]
pub(crate) use self::held::{Remains, Stay};
pub use self::limit::Limit;
#[cfg(feature = "submit")]
pub(crate) use self::options::check_name;
pub use self::options::{LockOptions, Strategy};
pub use self::outcome::Outcome;
pub use self::scope::Scope;
#[cfg(feature = "http")]
pub(crate) use self::scope::{Opened, ToBeOpened};
pub use self::single_flight::SingleFlightError;
pub use self::sources::Sources;
pub use self::with_lock::WithLock;

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
        f.debug_struct("LockManager").field("store", &core.store).field("guards", &core.guards()).finish()
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
        Self { life: Arc::new(Life::new(&core)), core }
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
    /// the same process share one call per key, and a waiter may be handed the lease while nobody polls it.
    pub fn try_lock(
        &self,
        key: impl IntoKey,
        options: impl Into<LockOptions>,
    ) -> impl Future<Output = Result<Option<LockGuard>, Error>> {
        Trying::new(self, key, options.into())
    }

    /// Takes the lock, or says in full why not.
    ///
    /// # Errors
    /// Bad input, [`Error::ShutDown`]. A failing engine is an outcome, not an error.
    ///
    /// # Cancel safety
    /// Safe, as [`try_lock`](Self::try_lock).
    pub fn attempt(
        &self,
        key: impl IntoKey,
        options: impl Into<LockOptions>,
    ) -> impl Future<Output = Result<Outcome, Error>> {
        Wish::new(|| self.take_lock(key.into_key()?, options.into(), None), Ok)
    }

    /// The same for the guard of this name.
    #[cfg(feature = "submit")]
    pub(crate) fn attempt_by(
        &self,
        guard: &str,
        key: Key,
        options: LockOptions,
    ) -> impl Future<Output = Result<Outcome, Error>> {
        Wish::new(move || self.take_lock(key, options, Some(guard)), Ok)
    }

    /// Takes the lock, waiting at most the options' `wait` for it.
    ///
    /// # Errors
    /// [`Error::LockNotAcquired`] if somebody else has it, with who that is; else as [`try_lock`](Self::try_lock).
    ///
    /// # Cancel safety
    /// Safe, as [`try_lock`](Self::try_lock): a waiter that is dropped leaves the line.
    pub fn lock(
        &self,
        key: impl IntoKey,
        options: impl Into<LockOptions>,
    ) -> impl Future<Output = Result<LockGuard, Error>> {
        Wish::new(|| self.take_lock(key.into_key()?, options.into(), None), Outcome::or_error)
    }

    /// Runs `block` under the lock and gives the lock back on every way out: value, error, panic, dropped future.
    ///
    /// (After a panic or a dropped future the lock is given back in the background, so the runtime must still live.)
    ///
    /// The block gets a [`Lease`] to look at. What it returns comes back untouched, an error of its own included: a
    /// release that fails is logged, never put in its place. With [`cancel_on_loss`](WithLock::cancel_on_loss) the block is
    /// dropped when the lease is lost.
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
    /// What it returns is to be awaited. It fails as [`lock`](Self::lock) does; the block has not run then.
    ///
    /// # Cancel safety
    /// Safe: dropping the future drops the block and then gives the lock back in the background.
    pub fn with_lock<T, B, F>(
        &self,
        key: impl IntoKey,
        options: impl Into<LockOptions>,
        block: B,
    ) -> WithLock<impl Future<Output = Result<T, Error>>>
    where
        B: FnOnce(Lease) -> F,
        F: Future<Output = T>,
    {
        with_lock(self.lock(key, options), block)
    }

    /// The meter of the guards of this name.
    #[cfg(feature = "submit")]
    pub(crate) fn meter(&self, guard: &str) -> Meter {
        self.core.telemetry.meter(guard)
    }

    /// The longest TTL that is accepted.
    #[cfg(feature = "submit")]
    pub(crate) fn max_ttl(&self) -> Duration {
        self.core.max_ttl
    }

    /// A limit of `n` holders at a time, across all processes that use the same name; see [`Limit`].
    ///
    /// # Errors
    /// [`Error::InvalidKey`], and [`Error::InvalidOption`] for a limit of 0.
    pub fn limit(&self, key: impl IntoKey, n: u32) -> Result<Limit, Error> {
        Limit::new(self.clone(), key, n)
    }

    /// Runs a future in a scope of its own: inside it, [`reentrant`](LockOptions::reentrant) locks on what the scope already
    /// holds succeed at once, and the last guard out gives the lock back.
    ///
    /// The scope travels with the task, not with the thread. Tasks that the future spawns are not in it, unless they are
    /// given it: [`current_scope`](Self::current_scope) and [`Scope::enter`]. A scope inside a scope is another one.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use clinch::{LockManager, LockOptions, Outcome};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), clinch::Error> {
    /// # let locks = LockManager::memory();
    /// let again = LockOptions::new(Duration::from_secs(10)).reentrant();
    /// locks.scope(async {
    ///     let outer = locks.lock("order:42", again.clone()).await?;
    ///     let inner = locks.attempt("order:42", again.clone()).await?;
    ///     assert!(matches!(inner, Outcome::Reentered(_)));
    ///     drop(outer); // `inner` still has it
    ///     Ok(())
    /// }).await
    /// # }
    /// ```
    ///
    /// # Cancel safety
    /// As that of the future. When it is done or dropped, the scope has ended.
    pub async fn scope<F: Future>(&self, future: F) -> F::Output {
        Scope::new(&self.core).run(future).await
    }

    /// The scope of this manager that the running task is in, to be given to other tasks.
    pub fn current_scope(&self) -> Option<Scope> {
        Scope::current(&self.core)
    }

    /// Who holds the lock: empty if nobody does.
    ///
    /// # Errors
    /// Bad input, [`Error::Engine`].
    ///
    /// # Cancel safety
    /// Safe: it changes nothing.
    pub async fn inspect(&self, key: impl IntoKey) -> Result<Vec<Holder>, Error> {
        self.holders(&ClaimKey::lock(key.into_key()?)).await
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

    /// How many wait in this process, by what they wait for. Those in an engine's queue
    /// ([`fair`](LockOptions::fair)) and those who want several keys at once are not among them.
    pub fn waiting(&self) -> Vec<(ClaimKey, usize)> {
        self.core.lines.waiting()
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
        self.core.lines.call_all();
        self.core.ensure_background();
        let settled = async {
            self.core.attempts.zero().await;
            self.core.renewals.passing.zero().await;
            self.core.releases.unanswered.zero().await;
        };
        // Time out or not: what counts is what is left.
        let _ = timeout(limit, settled).await;
        // In this order: what goes from one to the next meanwhile is seen in the later one.
        let unsettled = self.core.attempts.count();
        let guards = self.core.guards();
        let passing = self.core.renewals.passing.count();
        let unreleased = passing + self.core.releases.unanswered.count();
        let unconfirmed = self.core.releases.echoes.count();
        let left = Shutdown { unsettled, unreleased, unconfirmed, guards };
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

    /// What there is a million of. With the two counts before it, a lease is 216 bytes: what glibc gives for one that is asked for
    /// one byte more is sixteen more.
    #[cfg(all(not(feature = "metrics"), not(shuttle), target_pointer_width = "64"))]
    #[test]
    fn a_lease_and_its_guard_are_small() {
        assert_eq!((size_of::<LockGuard>(), size_of::<Lease>()), (24, 24));
        assert!(size_of::<Held>() <= 200, "{}", size_of::<Held>());
    }

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

    /// Who waits is counted as long as it waits.
    #[tokio::test(start_paused = true)]
    async fn those_who_wait_are_counted() {
        let manager = LockManager::memory();
        let guard = manager.lock("a", TTL).await.unwrap();
        assert!(manager.waiting().is_empty());
        let options = LockOptions::new(TTL).wait(TTL);
        let waiters: Vec<_> = (0..3)
            .map(|_| {
                let (manager, options) = (manager.clone(), options.clone());
                tokio::spawn(async move { manager.lock("a", options).await })
            })
            .collect();
        tokio::time::sleep(TTL / 4).await;
        let waiting = manager.waiting();
        assert!(matches!(&waiting[..], [(on, 3)] if on.to_string() == "lock:a"), "{waiting:?}");
        drop(guard);
        for waiter in waiters {
            drop(waiter.await.unwrap().unwrap());
        }
        assert!(manager.waiting().is_empty());
    }

    /// A key that is wanted in ever other ways costs no more for that: what nobody wants any more is forgotten.
    #[tokio::test(start_paused = true)]
    async fn ways_in_which_nobody_wants_a_key_are_forgotten() {
        let manager = LockManager::memory();
        let held = manager.limit("export", 1).unwrap().acquire(TTL).await.unwrap();
        for of in 2..50 {
            drop(manager.limit("export", of).unwrap().try_acquire(TTL).await.unwrap());
        }
        assert!(manager.core.lines.most_lanes() <= 2);
        drop(held);
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
