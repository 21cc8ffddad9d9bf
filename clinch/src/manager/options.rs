//! How a lock is wanted.

mod check;
mod wanted;

use std::borrow::Cow;
use std::num::NonZeroU32;
use std::time::Duration;

#[cfg(feature = "submit")]
pub(crate) use self::check::check_name;
use super::limit::Limit;
use super::time::Time;
use crate::key::Key;

/// How a lock is wanted. The TTL is required: there is no way to take a lock that never expires.
///
/// A plain [`Duration`] is a TTL with the defaults, so `try_lock("order:42", Duration::from_secs(10))` works.
///
/// ```
/// use std::time::Duration;
/// use clinch::LockOptions;
///
/// let options = LockOptions::new(Duration::from_secs(10))
///     .wait(Duration::from_secs(2))
///     .renew()
///     .label("nightly");
/// # let _ = options;
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub struct LockOptions {
    // Small, because they are moved with every try, and most tries are over before anything else is.
    ttl: Time,
    wait: Time,
    retry_interval: Time,
    renewal: Option<Renewal>,
    /// For how long its turn in the engine's queue is kept for it.
    fair: Option<Time>,
    /// What few locks have.
    rest: Option<Box<Rest>>,
    pub(super) shared: bool,
    pub(super) fenced: bool,
    pub(super) reentrant: bool,
    pub(super) local_pass: bool,
    pub(super) strategy: Option<Strategy>,
}

/// What needs memory of its own anyway.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Rest {
    label: Option<String>,
    name: Option<Cow<'static, str>>,
    limits: Vec<Limited>,
}

/// A permit that is wanted along with a lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Limited {
    pub(super) key: Key,
    pub(super) of: NonZeroU32,
    pub(super) ttl: Duration,
}

/// What to do when the engine fails.
///
/// ```
/// # use std::time::Duration;
/// # use clinch::{Error, LockManager, LockOptions, Outcome, Strategy};
/// # async fn send_mail(locks: &LockManager) -> Result<(), Error> {
/// let options = LockOptions::new(Duration::from_secs(10)).strategy(Strategy::Proceed);
/// match locks.attempt("mail:42", options).await? {
///     Outcome::Acquired(_guard) => { /* nobody else sends it */ }
///     Outcome::Unprotected(guard) => {
///         // Better twice than not at all; but it is known.
///         assert!(guard.is_degraded());
///     }
///     _ => { /* somebody else sends it */ }
/// }
/// # Ok(())
/// # }
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Error> { send_mail(&LockManager::memory()).await }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
#[cfg_attr(
    feature = "submit",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case")
)]
#[non_exhaustive]
pub enum Strategy {
    /// Stop: the caller is told, and can try again later.
    #[default]
    FailFast,
    /// Go on without protection from other processes. The guard says so
    /// ([`is_degraded`](super::Lease::is_degraded)); inside this process it still excludes.
    ///
    /// A waiter goes on when its `wait` is over, or as soon as the engine has failed so often that it is not even asked any
    /// more. What this process itself causes (too many calls in flight) is no failure of the engine. A manager must have
    /// been connected once: [`connect`](crate::Builder::connect) fails while the engine is down.
    Proceed,
    /// Try once more after a moment, then stop. (One that waits tries until its `wait` is over anyway.)
    RetryOnce,
}

/// How a lease is renewed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Renewal {
    /// `None`: a third of the TTL.
    every: Option<Time>,
    /// No renewal goes out later than this after the grant.
    up_to: Time,
}

impl Renewal {
    const DEFAULT: Self = Self { every: None, up_to: Time::of(Duration::from_secs(86_400)) };
}

impl LockOptions {
    /// The shortest TTL: 10 ms. A lease shorter than this is over before its answer has arrived.
    pub const MIN_TTL: Duration = Duration::from_millis(10);
    /// The longest TTL: 24 h, unless the manager allows [another](crate::Builder::max_ttl).
    pub const MAX_TTL: Duration = Duration::from_secs(86_400);
    /// The longest wait: 366 days, far beyond any use, and far from where instants overflow.
    pub const MAX_WAIT: Duration = Duration::from_secs(366 * 86_400);
    /// The longest label: 64 bytes.
    pub const MAX_LABEL_BYTES: usize = 64;
    /// The longest name: 64 bytes.
    pub const MAX_NAME_BYTES: usize = 64;
    /// For how long a [fair](Self::fair) lock is kept for whose turn it is: 1 s.
    pub const CONFIRM: Duration = Duration::from_secs(1);

    /// A lock for `ttl`: tried once (`wait` 0), polled every 50 ms if it is waited for, not renewed.
    ///
    /// Engines count in whole milliseconds; a fraction is cut off. Accepted are 10 ms up to the manager's
    /// [`max_ttl`](crate::Builder::max_ttl), which is 24 h unless set otherwise.
    #[inline]
    pub const fn new(ttl: Duration) -> Self {
        Self::for_time(Time::of(ttl))
    }

    const fn for_time(ttl: Time) -> Self {
        Self {
            ttl,
            wait: Time::ZERO,
            retry_interval: Time::of(Duration::from_millis(50)),
            renewal: None,
            fair: None,
            rest: None,
            shared: false,
            fenced: false,
            reentrant: false,
            local_pass: true,
            strategy: None,
        }
    }

    /// Shares the key with others who ask for it in this way (readers), and excludes those who do not (writers).
    ///
    /// New readers are held back while a writer waits, so that it gets its turn. A writer that gave up no longer counts; one
    /// that died counts for a second, or for three of its retry intervals if that is longer. Inside a [scope] that holds a
    /// key shared, asking for it exclusively is an error: the two would wait for each other for ever.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use clinch::{LockManager, LockOptions};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), clinch::Error> {
    /// let locks = LockManager::memory();
    /// let reading = LockOptions::new(Duration::from_secs(10)).shared();
    /// let first = locks.lock("catalogue", reading.clone()).await?;
    /// let second = locks.lock("catalogue", reading).await?;
    /// assert!(locks.try_lock("catalogue", Duration::from_secs(10)).await?.is_none());
    /// # drop((first, second));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// [scope]: crate::LockManager::scope
    pub const fn shared(mut self) -> Self {
        self.shared = true;
        self
    }

    /// Asks for a [fence](crate::lease::Fence): a number that rises with every holder of the key, for the resource to reject
    /// those who come late. See [`fencing`](crate::fencing). Not with [`shared`](Self::shared), and not for permits.
    pub const fn fenced(mut self) -> Self {
        self.fenced = true;
        self
    }

    /// First come, first served, among all processes that ask for the key in this way, in the order in which the engine
    /// heard of them. Without it, order is kept inside a process, and processes take turns.
    ///
    /// Not with [`shared`](Self::shared), with limits, or on several keys. Locks that do not ask in this way do not know of
    /// the queue, and may be faster when a holder's lease runs out by itself.
    ///
    /// When its turn comes, the lock is kept for a waiter for one second; one that has died by then is passed over. Fair
    /// locks are never passed on inside the process past those who wait elsewhere.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use clinch::{LockManager, LockOptions};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), clinch::Error> {
    /// # let locks = LockManager::memory();
    /// let in_turn = LockOptions::new(Duration::from_secs(10)).wait(Duration::from_secs(60)).fair();
    /// let guard = locks.lock("printer", in_turn).await?;
    /// # drop(guard);
    /// # Ok(())
    /// # }
    /// ```
    pub const fn fair(self) -> Self {
        self.fair_within(Self::CONFIRM)
    }

    /// As [`fair`](Self::fair), with another time for which the lock is kept for whose turn it is; 10 ms to 1 min.
    ///
    /// Where the engine tells whose turn it is, the guard is handed out with what is left of that time, and has its TTL when that is
    /// confirmed in the background, a moment later. So it should be longer than the longest pause you expect of this process.
    pub const fn fair_within(mut self, confirm: Duration) -> Self {
        self.fair = Some(Time::of(confirm));
        self
    }

    /// Succeeds at once where the same [scope](crate::LockManager::scope) already holds what is asked for, without a call.
    /// Outside of a scope it changes nothing. A lock without it on a key that its own scope holds is denied like any other.
    ///
    /// Where it has a longer TTL than the lease that it enters, or renews and that one does not, the lease is renewed for it
    /// in the background.
    pub const fn reentrant(mut self) -> Self {
        self.reentrant = true;
        self
    }

    /// Does not hand the lease to the next waiter of this process, nor take it from one: every holder gets a lease of its
    /// own from the engine.
    ///
    /// Otherwise the next one in line that asked for the same gets the very lease, without a call, a bounded number of
    /// times, so that other processes get their turn:
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use clinch::{LockManager, LockOptions};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), clinch::Error> {
    /// # let locks = LockManager::memory();
    /// let options = LockOptions::new(Duration::from_secs(10)).wait(Duration::from_secs(1));
    /// let first = locks.lock("order:42", options.clone()).await?;
    /// let token = first.token().clone();
    /// let next = locks.lock("order:42", options);
    /// let (next, ()) = tokio::join!(next, async { drop(first) });
    /// assert_eq!(next?.token(), &token); // the same lease; the engine was not asked
    /// # Ok(())
    /// # }
    /// ```
    pub const fn no_local_pass(mut self) -> Self {
        self.local_pass = false;
        self
    }

    /// What to do when the engine fails; the manager's [default](crate::Builder::strategy) unless set.
    pub const fn strategy(mut self, strategy: Strategy) -> Self {
        self.strategy = Some(strategy);
        self
    }

    /// Takes a permit of `limit` along with the lock, both or neither, in one step of the engine; the permit is good for
    /// `permit_ttl` and given back with the lock. The outcome tells which of the two was refused. The guard is valid for the
    /// shorter of the two TTLs. May be called again for more limits. A limit goes by its name: it is taken from the engine
    /// of the manager that is asked, whichever manager made it.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use clinch::{LockManager, LockOptions, Outcome};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), clinch::Error> {
    /// # let locks = LockManager::memory();
    /// let exports = locks.limit("export", 1)?;
    /// let options = LockOptions::new(Duration::from_secs(10)).limited_by(&exports, Duration::from_secs(60));
    /// let first = locks.attempt("order:42", options.clone()).await?;
    /// assert!(matches!(first, Outcome::Acquired(_)));
    /// // The same order: drop it. Another order: try again later.
    /// assert!(matches!(locks.attempt("order:42", options.clone()).await?, Outcome::DeniedByLock(_)));
    /// assert!(matches!(locks.attempt("order:43", options).await?, Outcome::DeniedByLimit(_)));
    /// # Ok(())
    /// # }
    /// ```
    pub fn limited_by(mut self, limit: &Limit, permit_ttl: Duration) -> Self {
        let limited = Limited { key: limit.key().clone(), of: limit.of(), ttl: permit_ttl };
        self.rest.get_or_insert_default().limits.push(limited);
        self
    }

    /// Waits at most this long for the lock. Zero, the default, tries once.
    ///
    /// A waiter may be handed the lease while it waits, so keep polling it: do not await something long in another branch of
    /// a `select!` loop around it; spawn one or the other.
    #[inline]
    pub const fn wait(mut self, wait: Duration) -> Self {
        self.wait = Time::of(wait);
        self
    }

    /// The least pause between two polls, to which jitter is added; 50 ms unless set. A waiter is usually woken by
    /// push; the poll is what finds a wake-up that was lost.
    pub const fn retry_interval(mut self, interval: Duration) -> Self {
        self.retry_interval = Time::of(interval);
        self
    }

    /// Renews the lease while the guard lives, every third of its TTL, for at most 24 h.
    ///
    /// A renewed lock does not run out under work that takes longer than expected; it still runs out if the process
    /// dies or loses the engine. Renewals of many leases share calls: thousands of them cost the engine little.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use clinch::{LockManager, LockOptions};
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), clinch::Error> {
    /// # let locks = LockManager::memory();
    /// let guard = locks.lock("report", LockOptions::new(Duration::from_secs(10)).renew()).await?;
    /// tokio::time::sleep(Duration::from_secs(3600)).await; // far longer than the TTL
    /// assert!(guard.is_valid());
    /// # Ok(())
    /// # }
    /// ```
    pub const fn renew(mut self) -> Self {
        if self.renewal.is_none() {
            self.renewal = Some(Renewal::DEFAULT);
        }
        self
    }

    /// As [`renew`](Self::renew), every `interval`: at most half the TTL, so that one that fails can be tried again.
    pub const fn renew_every(self, interval: Duration) -> Self {
        let mut this = self.renew();
        if let Some(renewal) = &mut this.renewal {
            renewal.every = Some(Time::of(interval));
        }
        this
    }

    /// As [`renew`](Self::renew), for at most `total` after the grant: then the lease is left to run out.
    pub const fn renew_for(self, total: Duration) -> Self {
        let mut this = self.renew();
        if let Some(renewal) = &mut this.renewal {
            renewal.up_to = Time::of(total);
        }
        this
    }

    /// A word for people who look at who holds the lock; at most 64 bytes, no control characters.
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.rest.get_or_insert_default().label = Some(label.into());
        self
    }

    /// How this lock is called in metrics and logs, along with all others of the name; 1 to 64 bytes, no control characters.
    /// Unless set, it is what it is: `lock`, `limit`, or `several` for several keys.
    ///
    /// Let it be one of a few words that stand in the program: never a key, a user or anything else that has ever new values.
    pub fn named(mut self, name: impl Into<Cow<'static, str>>) -> Self {
        self.rest.get_or_insert_default().name = Some(name.into());
        self
    }
}

/// A TTL with the defaults.
impl From<Duration> for LockOptions {
    #[inline]
    fn from(ttl: Duration) -> Self {
        Self::new(ttl)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_as_small_as_a_line_of_the_cache() {
        assert_eq!(size_of::<LockOptions>(), 64);
    }
}
