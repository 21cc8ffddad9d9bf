//! Several keys: all or none of them, or each for itself in one exchange.

use std::ops::ControlFlow::Continue;

use super::LockManager;
use super::ask::Reply;
use super::carry_out::Wish;
use super::guard::LockGuard;
use super::options::LockOptions;
use super::outcome::Outcome;
use super::plan::Plan;
use super::scope::Scope;
use crate::error::Error;
use crate::key::IntoKey;

impl LockManager {
    /// Takes the locks on all of these keys, or none of them, in one step of the engine; at most 64 keys. `None` if somebody
    /// else has one of them.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use clinch::LockManager;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), clinch::Error> {
    /// # let locks = LockManager::memory();
    /// let ttl = Duration::from_secs(10);
    /// let both = locks.try_lock_all(["account:1", "account:2"], ttl).await?;
    /// assert!(both.is_some());
    /// // The order does not matter: nobody ever has one of them and waits for the other.
    /// assert!(locks.try_lock_all(["account:2", "account:1"], ttl).await?.is_none());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`try_lock`](Self::try_lock); the same key twice is bad input.
    ///
    /// # Cancel safety
    /// Safe: a dropped call leaves nothing behind.
    pub async fn try_lock_all(
        &self,
        keys: impl IntoIterator<Item = impl IntoKey>,
        options: impl Into<LockOptions>,
    ) -> Result<Option<LockGuard>, Error> {
        self.attempt_all(keys, options).await?.or_denied()
    }

    /// Takes the locks on all of these keys, or none of them, waiting at most the options' `wait`; see
    /// [`try_lock_all`](Self::try_lock_all).
    ///
    /// Whoever waits for several keys holds none of them meanwhile, so there is no deadlock, but those who want fewer keys
    /// may be faster.
    ///
    /// # Errors
    /// As [`lock`](Self::lock); the same key twice is bad input.
    ///
    /// # Cancel safety
    /// Safe: a dropped call leaves nothing behind.
    pub async fn lock_all(
        &self,
        keys: impl IntoIterator<Item = impl IntoKey>,
        options: impl Into<LockOptions>,
    ) -> Result<LockGuard, Error> {
        self.attempt_all(keys, options).await?.or_error()
    }

    /// Takes the locks on all of these keys, or says in full why not; see [`try_lock_all`](Self::try_lock_all).
    ///
    /// # Errors
    /// As [`attempt`](Self::attempt); the same key twice is bad input.
    ///
    /// # Cancel safety
    /// Safe: a dropped call leaves nothing behind.
    pub fn attempt_all(
        &self,
        keys: impl IntoIterator<Item = impl IntoKey>,
        options: impl Into<LockOptions>,
    ) -> impl Future<Output = Result<Outcome, Error>> {
        let begin = || {
            let keys: Result<Vec<_>, _> = keys.into_iter().map(IntoKey::into_key).collect();
            let plan = Plan::lock_all(keys?, options.into(), self.core.conditions(None))?;
            Ok(Continue(self.carry_out(plan)))
        };
        Wish::new(begin, Ok)
    }

    /// Tries the locks on many keys that have nothing to do with each other, each with its own options and its own outcome,
    /// in one exchange with the engine. The outcomes come in the order of the keys.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use clinch::{LockManager, LockOptions, Outcome};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), clinch::Error> {
    /// # let locks = LockManager::memory();
    /// let _held = locks.lock("order:2", Duration::from_secs(10)).await?;
    /// let outcomes = locks.attempt_each([
    ///     ("order:1", LockOptions::new(Duration::from_secs(10))),
    ///     ("order:2", LockOptions::new(Duration::from_secs(60))),
    /// ]).await?;
    /// assert!(matches!(outcomes[..], [Outcome::Acquired(_), Outcome::DeniedByLock(_)]));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Bad input, of whichever key: nothing was sent then. A group is tried once, so a `wait`, a fair queue and re-entry are
    /// bad input too, and so is the same key twice.
    ///
    /// # Cancel safety
    /// Safe: a dropped call leaves nothing behind.
    pub async fn attempt_each<K: IntoKey, O: Into<LockOptions>>(
        &self,
        group: impl IntoIterator<Item = (K, O)>,
    ) -> Result<Vec<Outcome>, Error> {
        let mut plans: Vec<Plan> = Vec::new();
        for (key, options) in group {
            let options = options.into();
            let wait = Some(format!("{:?}", options.waits_for())).filter(|_| !options.is_try());
            let yes = |asked: bool| asked.then(|| true.to_string());
            for (field, asked) in [
                ("wait", wait),
                ("fair", yes(options.kept_for().is_some())),
                ("reentrant", yes(options.reentrant)),
            ] {
                if let Some(value) = asked {
                    let accepted = "accepted are locks that are tried once, each for itself";
                    return Err(Error::option(field, &value, accepted));
                }
            }
            let plan = self.plan(key.into_key()?, options, None)?;
            if plans.iter().any(|earlier| earlier.claims[0].on() == plan.claims[0].on()) {
                return Err(Error::option(
                    "group",
                    plan.key(),
                    "the same key twice in one group; accepted are different ones",
                ));
            }
            plans.push(plan);
        }
        // Until the guards are made, so that a shutdown never misses one.
        let _under_way = self.core.attempts.counted();
        let scope = Scope::current(&self.core);
        if let Some(scope) = &scope {
            for plan in &mut plans {
                // Nothing here enters again; but what would wait for itself for ever is told.
                scope.cover(plan)?;
                plan.scope = scope.id();
            }
        }
        let attempting: Vec<_> = plans.iter().map(|plan| plan.seen.attempting(&plan.claims)).collect();
        let replies = self.core.acquire_each(&plans).await;
        let mut outcomes = Vec::with_capacity(plans.len());
        for ((plan, attempting), reply) in plans.iter().zip(attempting).zip(replies) {
            let reply = match reply {
                Reply::Failed(error, doubtful) => self.core.after_failure(plan, error, doubtful).await,
                reply => reply,
            };
            let outcome = self.outcome(plan, reply, scope.as_ref());
            attempting.ended(&outcome);
            outcomes.push(outcome?);
        }
        Ok(outcomes)
    }
}
