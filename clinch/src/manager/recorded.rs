//! Places in spaces whose leases can be finished with a record: duplicate windows and idempotency keys.
//!
//! As for locks that nobody waits for, where the engine is in this process and nothing is known of the key, one step under the
//! lock of the key is all that is needed; whoever is denied is told why.

use std::cell::Cell;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use super::LockManager;
use super::carry_out::{Taking, warn_of_own_scope};
use super::guard::{Holding, LockGuard};
use super::held::Held;
use super::line::{Tried, local_denial};
use super::options::LockOptions;
use super::outcome::Outcome;
use super::plan::Plan;
use super::scope::Scope;
use super::tenure::Tenure;
use crate::error::{Denied, DeniedBy, Error};
use crate::key::Key;
use crate::lease::Claim;
use crate::store::AtOnce;
use crate::telemetry::Attempted;

impl LockManager {
    /// Takes the place in a duplicate window, or says in full why not. What needs no waiting is done now.
    pub(crate) fn attempt_duplicate(
        &self,
        guard: &str,
        key: Key,
        options: LockOptions,
    ) -> Result<Taking<'_>, Error> {
        self.take_recorded(Claim::duplicate, guard, key, options)
    }

    /// Takes an idempotency key, or says in full why not.
    #[cfg(feature = "http")]
    pub(crate) async fn attempt_idempotent(
        &self,
        guard: &str,
        key: Key,
        options: LockOptions,
    ) -> Result<Outcome, Error> {
        self.take_recorded(Claim::idempotent, guard, key, options)?.outcome().await
    }

    fn take_recorded(
        &self,
        claim: fn(Key, Duration) -> Claim,
        guard: &str,
        mut key: Key,
        mut options: LockOptions,
    ) -> Result<Taking<'_>, Error> {
        let core = &self.core;
        let scope = Scope::current(core);
        let engine = core.store.at_once().filter(|_| core.can.records && !core.breaker.is_open());
        // Who listens is told of each attempt, and who enters again has another way.
        let simple =
            options.is_simple_try() && !options.reentrant && !tracing::enabled!(tracing::Level::DEBUG);
        if let Some(engine) = engine.filter(|_| simple && !core.closing.is_closed()) {
            options.check(core.max_ttl)?;
            match self.take_recorded_at_once(
                engine,
                claim(key, options.ttl()),
                guard,
                &options,
                scope.as_ref(),
            ) {
                ControlFlow::Break(outcome) => return Ok(Taking::Ended(Ok(outcome))),
                ControlFlow::Continue(goes) => key = goes,
            }
        }
        let plan = Plan::recorded(claim, key, options, core.conditions(Some(guard)))?;
        Ok(self.carry_out_in(scope, plan))
    }

    /// The whole of such an attempt, if it can be done in one step; otherwise its key, and it goes the longer way.
    fn take_recorded_at_once(
        &self,
        engine: &dyn AtOnce,
        claim: Claim,
        guard: &str,
        options: &LockOptions,
        scope: Option<&Scope>,
    ) -> ControlFlow<Outcome, Key> {
        let core = &self.core;
        core.ensure_background();
        let meter = core.telemetry.meter(options.called().unwrap_or(guard));
        let renewal = options.renewal_interval();
        let on = claim.on().clone();
        let (denial, by_own_scope) = (Cell::new(None), Cell::new(false));
        let in_the_way = |held: &Arc<Held>| {
            core.background.heard.watch(held);
            denial.set(Some(local_denial(held, 0, held.on())));
            by_own_scope.set(scope.is_some_and(|scope| held.scope() == scope.id()));
        };
        let tried = core.lines.try_at_once(claim, in_the_way, |claim| {
            let guard = || (meter.clone(), renewal.is_some());
            let refused = |why| denial.set(Some(why));
            let scope = scope.map_or(0, Scope::id);
            core.ask_engine_at_once((engine, &self.life.handles), claim, options, scope, guard, refused)
        });
        match tried {
            Tried::Granted(held, handle) => {
                meter.attempted_at_once(Attempted::Acquired);
                let renewing = renewal.map(|(every, up_to)| core.renewals.start(&held, every, up_to));
                let tenure = Tenure::of_guard(held, handle, options.local_pass, meter);
                ControlFlow::Break(Outcome::Acquired(match scope {
                    None => LockGuard::new(Holding::new(tenure, renewing)),
                    Some(scope) => {
                        LockGuard::first_of(Holding::new(tenure, renewing), |holding| scope.took(holding))
                    }
                }))
            }
            Tried::Denied => {
                meter.attempted_at_once(Attempted::Duplicate);
                let (denial, by_own_scope) = (denial.take().unwrap_or_default(), by_own_scope.get());
                if by_own_scope {
                    warn_of_own_scope(&on);
                }
                ControlFlow::Break(Outcome::DeniedByLock(Denied {
                    key: on.key,
                    cause: if denial.done.is_some() { DeniedBy::Done } else { DeniedBy::Lock },
                    holder: denial.holder,
                    retry_after: denial.retry_after,
                    done: denial.done,
                    wait: options.waits_for(),
                    by_own_scope,
                }))
            }
            Tried::NotAtOnce(_) => ControlFlow::Continue(on.key),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::Record;
    use crate::manager::{Remains, Stay};

    const TTL: Duration = Duration::from_secs(60);

    async fn take(locks: &LockManager, options: LockOptions) -> Outcome {
        let key = Key::new("a").unwrap();
        locks.attempt_duplicate("test", key, options).unwrap().outcome().await.unwrap()
    }

    /// At once, unless the engine's calls are measured.
    async fn finish(guard: LockGuard, remains: Option<Remains>) -> bool {
        match guard.begin_finish(remains) {
            Ok(held) => held,
            Err(unfinished) => unfinished.finish().await.unwrap(),
        }
    }

    /// In one step, in a scope or in none: one guard is counted, whoever comes is told why it is denied, and nothing is left.
    #[tokio::test(start_paused = true)]
    async fn what_is_taken_at_once_is_counted_once_and_given_back_at_once() {
        let locks = LockManager::memory();
        let check = async |in_scope: bool| {
            let Outcome::Acquired(guard) = take(&locks, LockOptions::new(TTL)).await else { panic!("free") };
            assert_eq!(locks.core.guards(), 1);
            let Outcome::DeniedByLock(denied) = take(&locks, LockOptions::new(TTL)).await else {
                panic!("taken")
            };
            assert_eq!((denied.cause, denied.by_own_scope), (DeniedBy::Lock, in_scope));
            assert_eq!((denied.retry_after, denied.holder.is_some()), (Some(TTL), true));
            assert!(finish(guard, None).await);
            assert_eq!(locks.core.guards(), 0);
            assert!(locks.core.lines.is_empty());
        };
        check(false).await;
        locks.scope(check(true)).await;
    }

    /// The scope knows it: one that enters again shares it, and the last one out gives it back.
    #[tokio::test(start_paused = true)]
    async fn what_is_taken_at_once_can_be_entered_again() {
        let locks = LockManager::memory();
        let again = || LockOptions::new(TTL).reentrant();
        let in_scope = async {
            let Outcome::Acquired(first) = take(&locks, LockOptions::new(TTL)).await else { panic!("free") };
            let Outcome::Reentered(second) = take(&locks, again()).await else { panic!("of this scope") };
            assert_eq!(locks.core.guards(), 2);
            assert!(finish(first, None).await);
            assert!(second.is_valid());
            assert!(finish(second, None).await);
            assert_eq!(locks.core.guards(), 0);
            assert!(matches!(take(&locks, LockOptions::new(TTL)).await, Outcome::Acquired(_)));
        };
        locks.scope(in_scope).await;
    }

    /// What was left behind denies those who come, and says so.
    #[tokio::test(start_paused = true)]
    async fn a_record_denies_at_once() {
        let locks = LockManager::memory();
        let Outcome::Acquired(guard) = take(&locks, LockOptions::new(TTL)).await else { panic!("free") };
        let remains = Remains { record: Record::default(), stay: Stay::Rest };
        assert!(finish(guard, Some(remains)).await);
        let Outcome::DeniedByLock(denied) = take(&locks, LockOptions::new(TTL)).await else { panic!("done") };
        assert_eq!((denied.cause, denied.by_own_scope), (DeniedBy::Done, false));
        assert_eq!((denied.retry_after, denied.holder.is_some()), (Some(TTL), false));
    }
}
