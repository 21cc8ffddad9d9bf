//! From a plan to its outcome: by entering again, as the strategy says, and with a guard at the end.

use std::sync::Arc;

use tracing::Instrument;

use super::LockManager;
use super::ask::Reply;
use super::guard::{Holding, LockGuard};
use super::options::LockOptions;
use super::outcome::Outcome;
use super::plan::Plan;
use super::scope::Scope;
use super::tenure::Tenure;
use crate::error::{Denied, DeniedBy, Error};
use crate::key::Key;
use crate::lease::{ClaimKey, Holder, Mode};

impl LockManager {
    pub(super) fn plan(
        &self,
        keys: Vec<Key>,
        options: LockOptions,
        guard: Option<&str>,
    ) -> Result<Plan, Error> {
        Plan::lock(keys, options, self.core.conditions(guard))
    }

    /// Takes what is planned, and lets it be seen.
    pub(super) async fn carry_out(&self, mut plan: Plan) -> Result<Outcome, Error> {
        let attempting = plan.seen.attempting(&plan.claims);
        let _waiting = (!plan.is_try()).then(|| plan.seen.meter.waiting());
        let span = plan.seen.span.clone();
        let result = match span.in_scope(|| self.denied_here(&plan)) {
            Some(result) => result,
            None => self.take(&mut plan).instrument(span).await,
        };
        attempting.ended(&result);
        result
    }

    /// The outcome of a try on what this process itself holds. It is known at once, and often wanted: by all who come while
    /// the first one works.
    fn denied_here(&self, plan: &Plan) -> Option<Result<Outcome, Error>> {
        // In a scope that may hold it itself, there is more to say.
        if Scope::current(&self.core).is_some() {
            return None;
        }
        self.core.denied_here(plan).map(|reply| self.outcome(plan, reply, None))
    }

    /// Takes what is planned: by entering again, or as the strategy says.
    async fn take(&self, plan: &mut Plan) -> Result<Outcome, Error> {
        // Until the guard is made, so that a shutdown never misses it.
        let _under_way = self.core.attempts.counted();
        let scope = Scope::current(&self.core);
        if let Some(scope) = &scope {
            plan.scope = scope.id();
            if let Some(holding) = scope.cover(plan)? {
                return Ok(self.again(plan, holding));
            }
        }
        let reenters = scope.as_ref().filter(|_| plan.options.reentrant);
        let reply = match reenters {
            None => self.core.acquire_by_strategy(plan).await,
            // Larger, and not part of everybody's future.
            Some(scope) => match Box::pin(self.take_or_enter(plan, scope)).await? {
                Ok(reply) => reply,
                Err(holding) => return Ok(self.again(plan, holding)),
            },
        };
        self.outcome(plan, reply, scope.as_ref())
    }

    /// Takes what is planned, unless another task of the scope has it first: then that is entered.
    async fn take_or_enter(&self, plan: &Plan, scope: &Scope) -> Result<Result<Reply, Arc<Holding>>, Error> {
        let reply = tokio::select! {
            biased;
            reply = self.core.acquire_by_strategy(plan) => reply,
            holding = scope.covered(plan) => return Ok(Err(holding?)),
        };
        if matches!(reply, Reply::Denied(..))
            && let Some(held) = self.core.lines.of_scope(&plan.claims, scope.id())
        {
            // Another task of the scope was granted it a moment ago, and will have its guard in another.
            tokio::select! {
                biased;
                holding = scope.covered(plan) => return Ok(Err(holding?)),
                () = held.over() => {}
                // Not for ever, should nobody poll that other task.
                () = tokio::time::sleep(self.core.call_timeout) => {}
            }
        }
        Ok(Ok(reply))
    }

    /// Enters again. A guard that asks for longer than the lease was made for, or renews where the first one does not, has the
    /// lease renewed meanwhile: entering itself is no call.
    fn again(&self, plan: &Plan, holding: Arc<Holding>) -> Outcome {
        let held = holding.held();
        let ttl = held.attempt().ttl();
        let every = ttl / 3;
        let longer = plan.options.ttl.saturating_sub(ttl);
        let up_to = match plan.options.renewal_interval() {
            Some((_, up_to)) => Some(up_to),
            None => (!longer.is_zero()).then(|| longer + every),
        };
        let renewing = up_to.filter(|_| !holding.renews() && !held.is_degraded()).map(|up_to| {
            self.core.ensure_background();
            if held.remaining() < 2 * every {
                self.core.renewals.once(held);
            }
            self.core.renewals.start(held, every, up_to)
        });
        Outcome::Reentered(LockGuard::again(holding, renewing))
    }

    /// Makes a guard of what was granted.
    fn guard(&self, plan: &Plan, mut tenure: Tenure, scope: Option<&Scope>) -> LockGuard {
        let interval = plan.options.renewal_interval().filter(|_| !tenure.held().is_degraded());
        tenure.begin(&plan.seen.meter, interval.is_some());
        let renewing = interval.map(|(every, up_to)| self.core.renewals.start(tenure.held(), every, up_to));
        let holding = Arc::new(Holding::new(tenure, renewing, self.life.clone()));
        if let Some(scope) = scope {
            scope.took(&holding);
        }
        LockGuard::new(holding)
    }

    pub(super) fn outcome(&self, plan: &Plan, reply: Reply, scope: Option<&Scope>) -> Result<Outcome, Error> {
        let key = plan.key();
        match reply {
            Reply::Granted(tenure) => {
                let degraded = tenure.held().is_degraded();
                let (on, guard) = (plan.claims[0].on(), plan.seen.meter.guard());
                tracing::debug!(key = %on, guard, degraded, waited_ms = plan.seen.waited_ms(), "acquired");
                let guard = self.guard(plan, tenure, scope);
                Ok(if degraded { Outcome::Unprotected(guard) } else { Outcome::Acquired(guard) })
            }
            Reply::Denied(denial, cause) => {
                let claim = plan.claims.get(denial.claim).unwrap_or(&plan.claims[0]);
                let (on, exclusive) = (claim.on(), claim.mode() == Mode::Exclusive);
                let by_own_scope = exclusive
                    && scope
                        .is_some_and(|scope| self.core.lines.of_scope(&plan.claims, scope.id()).is_some());
                if by_own_scope {
                    tracing::warn!(
                        key = %on,
                        "denied by a lock of the same scope: it stands in its own way unless it is `reentrant`"
                    );
                }
                let guard = plan.seen.meter.guard();
                tracing::debug!(key = %on, guard, ?cause, waited_ms = plan.seen.waited_ms(), "denied");
                let denied = Denied {
                    key: on.key.clone(),
                    cause,
                    holder: denial.holder,
                    retry_after: denial.retry_after,
                    done: denial.done,
                    wait: plan.options.wait,
                    by_own_scope,
                };
                Ok(match cause {
                    DeniedBy::Limit => Outcome::DeniedByLimit(denied),
                    _ => Outcome::DeniedByLock(denied),
                })
            }
            Reply::Failed(source, _) => {
                self.core.complain("acquire", plan.claims[0].on(), &source);
                Ok(Outcome::EngineFailed(Error::engine("acquire", Some(key), source)))
            }
            Reply::ShutDown => Err(Error::ShutDown { key: Some(key.clone()) }),
        }
    }

    /// Who holds this key in its space: of a [limit](crate::Limit) all who have a permit, of a duplicate window the request
    /// that is being handled. Empty if nobody does.
    ///
    /// # Errors
    /// [`Error::Engine`].
    ///
    /// # Cancel safety
    /// Safe: it changes nothing.
    pub async fn holders(&self, on: &ClaimKey) -> Result<Vec<Holder>, Error> {
        self.core
            .once_more(|| self.core.store.inspect(on))
            .await
            .map_err(|source| Error::engine("inspect", Some(&on.key), source))
    }
}
