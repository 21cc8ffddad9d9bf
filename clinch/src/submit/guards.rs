//! The guards of a service: a manager, and what holds for all of them.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use super::admission::{Admission, Ending};
use super::counts::{Counts, Event, GuardCounts, Stripe};
use super::defaults::Defaults;
use super::identity::Hasher;
use super::policy::{Disconnect, DuplicatePolicy, IdempotencyPolicy, LimitPolicy, LockPolicy};
use super::settings::Settings;
use super::submission::Submission;
use crate::error::{Denied, Error};
use crate::key::{IntoKey, Key};
use crate::manager::{Lease, LockManager, LockOptions, Outcome, Strategy, check_name};
use crate::telemetry::{Meter, Stopwatch, Visit};

/// How many different intervals are remembered as already complained about.
const MOST_CLAMPS: usize = 256;

/// Intervals that were logged as out of their range, and where they were moved to. Of the whole process: guards may be made
/// for every call.
static CLAMPED: Mutex<BTreeSet<(Duration, Duration)>> = Mutex::new(BTreeSet::new());

/// The guards of the whole process, for attributes on functions that run outside of any request.
static INSTALLED: OnceLock<Guards> = OnceLock::new();

tokio::task_local! {
    /// The guards of the running task.
    static CURRENT: Guards;
}

/// The guards of a service: a manager, what holds for all guards, and what became of those who came. Clones are the same.
///
/// ```
/// use clinch::LockManager;
/// use clinch::submit::{DuplicatePolicy, Guards, Identity, Submission};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), clinch::Error> {
/// let guards = Guards::new(LockManager::memory());
/// let policy = DuplicatePolicy::new();
/// let submission = || Submission::of("create_order").user(Identity::user("42")).param("item", &7);
///
/// let first = guards.duplicate(&policy, &submission()?).await?;
/// let second = guards.duplicate(&policy, &submission()?).await;
/// assert!(matches!(second, Err(clinch::Error::DuplicateSubmit { in_progress: true, .. })));
/// first.finish(true).await;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Guards(Arc<Inner>);

#[derive(Clone)]
struct Inner {
    locks: LockManager,
    settings: Settings,
    defaults: Arc<Defaults>,
    hasher: Hasher,
    counts: Arc<Counts>,
}

impl fmt::Debug for Guards {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guards").field("locks", &self.0.locks).field("settings", &self.0.settings).finish()
    }
}

impl Guards {
    /// Guards on this manager, with the default settings.
    pub fn new(locks: LockManager) -> Self {
        Self(Arc::new(Inner {
            locks,
            settings: Settings::default(),
            defaults: Defaults::unset(),
            hasher: Hasher::default(),
            counts: Arc::default(),
        }))
    }

    /// With these settings.
    ///
    /// # Errors
    /// [`Error::InvalidOption`] if they cannot work.
    pub fn with_settings(mut self, settings: Settings) -> Result<Self, Error> {
        settings.check()?;
        settings.check_within(self.0.locks.max_ttl())?;
        Arc::make_mut(&mut self.0).settings = settings;
        Ok(self)
    }

    /// With these policies where a guard does not say otherwise itself: attributes begin with them, and so do
    /// [`duplicate_policy`](Self::duplicate_policy) and its siblings.
    #[must_use]
    pub fn with_defaults(mut self, defaults: Defaults) -> Self {
        Arc::make_mut(&mut self.0).defaults = Arc::new(defaults);
        self
    }

    /// Hashes users, parameters and other secrets with this secret before they enter a key, so that nobody who sees the keys
    /// can guess them. All instances of the service must have the same one: others would not recognise each other's duplicates.
    #[must_use]
    pub fn with_fleet_key(mut self, secret: &[u8]) -> Self {
        Arc::make_mut(&mut self.0).hasher = Hasher::keyed(secret);
        self
    }

    /// The manager.
    pub fn locks(&self) -> &LockManager {
        &self.0.locks
    }

    /// The default policy of duplicate guards, to be changed where a guard differs. (`DuplicatePolicy::new()` knows nothing
    /// of these guards: it has the library's own defaults.)
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use clinch::LockManager;
    /// # use clinch::submit::{Defaults, DuplicatePolicy, Guards};
    /// let mut defaults = Defaults::default();
    /// defaults.duplicate = DuplicatePolicy::new().interval(Duration::from_secs(20));
    /// let guards = Guards::new(LockManager::memory()).with_defaults(defaults);
    ///
    /// let policy = guards.duplicate_policy().key_prefix("order"); // 20 s, as configured
    /// # assert_eq!(policy, DuplicatePolicy::new().interval(Duration::from_secs(20)).key_prefix("order"));
    /// ```
    pub fn duplicate_policy(&self) -> DuplicatePolicy {
        self.0.defaults.duplicate.clone()
    }

    /// The default policy of locks, on the key that this template makes.
    pub fn lock_policy(&self, key: impl Into<String>) -> LockPolicy {
        LockPolicy { key: key.into(), ..self.0.defaults.lock.clone() }
    }

    /// The default policy of limits: at most `limit` at a time under the name that this template makes.
    pub fn limit_policy(&self, key: impl Into<String>, limit: u32) -> LimitPolicy {
        LimitPolicy { key: key.into(), limit, ..self.0.defaults.limit.clone() }
    }

    /// The default policy of guards of idempotency keys.
    pub fn idempotency_policy(&self) -> IdempotencyPolicy {
        self.0.defaults.idempotency.clone()
    }

    pub(crate) fn defaults(&self) -> &Arc<Defaults> {
        &self.0.defaults
    }

    /// What became of those who came.
    pub fn statistics(&self) -> GuardCounts {
        self.0.counts.snapshot()
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.0.settings
    }

    pub(crate) fn hasher(&self) -> &Hasher {
        &self.0.hasher
    }

    /// Where this thread counts.
    pub(crate) fn counts(&self) -> &Arc<Stripe> {
        self.0.counts.here()
    }

    pub(crate) fn count(&self, event: Event, meter: &Meter) {
        self.counts().count(event, meter);
    }

    /// Makes these the guards of attributes on functions that run outside of [`enter`](Self::enter), in the whole process.
    ///
    /// # Errors
    /// Gives itself back if there are some already.
    pub fn install(self) -> Result<(), Self> {
        INSTALLED.set(self)
    }

    /// Runs a future, inside which these are the guards of attributes. HTTP layers do it for every request.
    ///
    /// # Cancel safety
    /// As that of the future.
    pub async fn enter<F: Future>(&self, future: F) -> F::Output {
        CURRENT.scope(self.clone(), future).await
    }

    /// The guards of the running task, or of the process.
    pub fn current() -> Option<Self> {
        CURRENT.try_with(Self::clone).ok().or_else(|| INSTALLED.get().cloned())
    }

    /// The guards of the running task.
    #[cfg(feature = "http")]
    pub(crate) fn current_here() -> Option<Self> {
        CURRENT.try_with(Self::clone).ok()
    }

    /// Lets a submission in, unless the same was submitted before.
    ///
    /// # Errors
    /// [`Error::DuplicateSubmit`]; [`Error::Engine`] if the engine failed and the strategy is to stop; bad input.
    ///
    /// # Cancel safety
    /// Safe: a dropped call leaves nothing behind.
    pub async fn duplicate(
        &self,
        policy: &DuplicatePolicy,
        submission: &Submission,
    ) -> Result<Admission, Error> {
        let admitted = self.enter_duplicate(policy, submission, Stopwatch::start()).admitted().await;
        if let Err(error) = &admitted {
            log_duplicate(error, || None);
        }
        admitted
    }

    /// Takes the lock that the policy describes, on this key.
    ///
    /// # Errors
    /// As [`LockManager::lock`].
    ///
    /// # Cancel safety
    /// Safe: a dropped call leaves nothing behind.
    pub async fn lock(&self, policy: &LockPolicy, key: impl IntoKey) -> Result<Admission, Error> {
        self.enter_lock(policy, key.into_key().map_err(Error::from)).await
    }

    /// The same with what came of making the key. One that only looks on refuses nobody, for a bad key neither.
    pub(crate) async fn enter_lock(
        &self,
        policy: &LockPolicy,
        key: Result<Key, Error>,
    ) -> Result<Admission, Error> {
        if !self.is_on(policy.enabled) {
            return Ok(Admission::unguarded());
        }
        let visit = self.come(policy.guard(), Stopwatch::start());
        let outcome = match check_name(policy.name.as_deref()).and(key) {
            Ok(key) => {
                let options = policy.options(self.0.settings.strategy);
                let options = self.without_wait_in_shadow(options, policy.shadow);
                self.0.locks.attempt_by(policy.guard(), key, options).await
            }
            Err(error) => Err(error),
        };
        self.admit(outcome, Self::released(policy.disconnect), policy.shadow, visit, Error::denied)
    }

    /// Takes a permit of the limit that the policy describes, under this name.
    ///
    /// # Errors
    /// As [`Limit::acquire`](crate::Limit::acquire).
    ///
    /// # Cancel safety
    /// Safe: a dropped call leaves nothing behind.
    pub async fn limit(&self, policy: &LimitPolicy, key: impl IntoKey) -> Result<Admission, Error> {
        self.enter_limit(policy, key.into_key().map_err(Error::from)).await
    }

    /// The same with what came of making the name.
    pub(crate) async fn enter_limit(
        &self,
        policy: &LimitPolicy,
        key: Result<Key, Error>,
    ) -> Result<Admission, Error> {
        if !self.is_on(policy.enabled) {
            return Ok(Admission::unguarded());
        }
        let visit = self.come(policy.guard(), Stopwatch::start());
        let limit = check_name(policy.name.as_deref()).and(key);
        let outcome = match limit.and_then(|key| self.0.locks.limit(key, policy.limit)) {
            Ok(limit) => {
                let options = policy.options(self.0.settings.strategy);
                let options = self.without_wait_in_shadow(options, policy.shadow);
                limit.attempt_by(Some(policy.guard()), options).await
            }
            Err(error) => Err(error),
        };
        self.admit(outcome, Self::released(policy.disconnect), policy.shadow, visit, Error::denied)
    }

    /// Runs `block` unless the same was submitted before, and ends the guard as the policy says, by whether the block
    /// succeeded. The block's own error comes back untouched.
    ///
    /// # Errors
    /// The block's, and those of [`duplicate`](Self::duplicate).
    ///
    /// # Cancel safety
    /// Safe: dropping the future drops the block, which counts as a failure.
    pub async fn prevent_duplicate<T, E, F>(
        &self,
        policy: &DuplicatePolicy,
        submission: &Submission,
        block: impl FnOnce(Option<Lease>) -> F,
    ) -> Result<T, E>
    where
        E: From<Error>,
        F: Future<Output = Result<T, E>>,
    {
        let admission = self.duplicate(policy, submission).await?;
        let value = block(admission.lease()).await;
        admission.finish(value.is_ok()).await;
        value
    }

    const fn released(disconnect: Disconnect) -> Ending {
        Ending { kept_on_drop: matches!(disconnect, Disconnect::Hold), ..Ending::RELEASE }
    }

    /// Checks that the manager can do what a policy says, before anybody comes.
    #[cfg(feature = "http")]
    pub(crate) fn check_options(&self, mut options: LockOptions) -> Result<(), Error> {
        options.check(self.0.locks.max_ttl())
    }

    /// Whether a guard works.
    pub(crate) fn is_on(&self, enabled: bool) -> bool {
        enabled && self.0.settings.enabled
    }

    /// Somebody comes to a guard of this name that works.
    pub(crate) fn come(&self, guard: &str, since: Stopwatch) -> Visit {
        let visit = self.0.locks.meter(guard).visit(since);
        self.count(Event::Request, visit.meter());
        visit
    }

    pub(crate) fn with_strategy(&self, options: LockOptions, strategy: Option<Strategy>) -> LockOptions {
        match strategy.or(self.0.settings.strategy) {
            Some(strategy) => options.strategy(strategy),
            None => options,
        }
    }

    /// Makes an admission, or an error, of what came of an attempt, and counts it.
    pub(super) fn admit(
        &self,
        outcome: Result<Outcome, Error>,
        ending: Ending,
        shadow: bool,
        visit: Visit,
        refused: impl FnOnce(Denied) -> Error,
    ) -> Result<Admission, Error> {
        let outcome = match outcome {
            Ok(outcome) => outcome,
            // Whatever the reason: one that only looks on refuses nobody.
            Err(error) if self.looks_on(shadow, visit.meter(), &error) => {
                return Ok(Admission::looking_on(visit));
            }
            Err(error) => return Err(error),
        };
        let (event, error) = match outcome {
            Outcome::Acquired(guard) | Outcome::Reentered(guard) => {
                self.count(Event::Admitted, visit.meter());
                return Ok(Admission::new(guard, ending, self, visit));
            }
            Outcome::Unprotected(guard) => {
                self.count(Event::Unprotected, visit.meter());
                return Ok(Admission::new(guard, ending, self, visit));
            }
            Outcome::DeniedByLimit(denied) => (Event::DeniedByLimit, refused(denied)),
            Outcome::DeniedByLock(denied) => {
                let error = refused(denied);
                let duplicate = matches!(error, Error::DuplicateSubmit { .. });
                (if duplicate { Event::Duplicate } else { Event::DeniedByLock }, error)
            }
            Outcome::EngineFailed(error) => (Event::EngineFailure, error),
        };
        if self.looks_on(shadow, visit.meter(), &error) {
            return Ok(Admission::looking_on(visit));
        }
        self.count(event, visit.meter());
        Err(error)
    }

    /// Whether a guard only looks on.
    pub(crate) fn is_shadow(&self, shadow: bool) -> bool {
        shadow || self.0.settings.shadow
    }

    /// One that only looks on keeps nobody waiting.
    fn without_wait_in_shadow(&self, options: LockOptions, shadow: bool) -> LockOptions {
        if self.is_shadow(shadow) { options.wait(Duration::ZERO) } else { options }
    }

    /// Whether somebody who would be refused is let through all the same.
    pub(crate) fn looks_on(&self, shadow: bool, meter: &Meter, reason: &dyn fmt::Display) -> bool {
        let looks_on = self.is_shadow(shadow);
        if looks_on {
            self.count(Event::Shadowed, meter);
            tracing::info!(guard = meter.guard(), %reason, "shadow mode: this would have been refused");
        }
        looks_on
    }

    /// The interval within its range; the first time that it had to be moved is logged.
    pub(super) fn clamp(&self, guard: &str, interval: Duration) -> Duration {
        let Settings { min_interval, max_interval, .. } = self.0.settings;
        let clamped = interval.clamp(min_interval, max_interval);
        if clamped != interval {
            let mut logged = CLAMPED.lock().unwrap_or_else(PoisonError::into_inner);
            if logged.len() < MOST_CLAMPS && logged.insert((interval, clamped)) {
                tracing::warn!(
                    guard,
                    ?interval,
                    ?clamped,
                    "an interval is outside of its range (`Settings::intervals`), and was moved to its end"
                );
            }
        }
        clamped
    }
}

/// Logs the refusal of a duplicate.
pub(crate) fn log_duplicate<'a>(error: &Error, user_agent: impl FnOnce() -> Option<Cow<'a, str>>) {
    if let Error::DuplicateSubmit { key, remaining, in_progress, .. } = error {
        // What a client calls itself is looked for only where somebody listens.
        tracing::warn!(%key, ?remaining, in_progress, user_agent = user_agent().as_deref(), "duplicate submission");
    }
}

/// What attributes take as their manager: guards, or a manager with the default settings.
pub trait AsGuards {
    /// The guards.
    fn as_guards(&self) -> Guards;
}

impl AsGuards for Guards {
    fn as_guards(&self) -> Guards {
        self.clone()
    }
}

impl AsGuards for LockManager {
    fn as_guards(&self) -> Guards {
        Guards::new(self.clone())
    }
}

impl<T: AsGuards + ?Sized> AsGuards for &T {
    fn as_guards(&self) -> Guards {
        (**self).as_guards()
    }
}

impl<T: AsGuards + ?Sized> AsGuards for Arc<T> {
    fn as_guards(&self) -> Guards {
        (**self).as_guards()
    }
}
