//! From a plan to its outcome: by entering again, as the strategy says, and with a guard at the end.

use std::ops::ControlFlow;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::time::Instant;
use tracing::{Instrument, Span};

use super::LockManager;
use super::ask::Reply;
use super::guard::{Holding, LockGuard};
use super::line::{Behind, Boarded, Rider, Tried};
use super::options::LockOptions;
use super::outcome::Outcome;
use super::plan::Plan;
use super::riding::Riding;
use super::scope::Scope;
use super::seen::Attempting;
use super::tenure::Tenure;
use crate::error::{Denied, DeniedBy, Error};
use crate::key::Key;
use crate::lease::{Claim, ClaimKey, Claims, Holder, Mode};
use crate::telemetry::Attempted;

pub(crate) type Waiting<'a> = Pin<Box<dyn Future<Output = Result<Outcome, Error>> + Send + 'a>>;

/// A wish on its way.
#[expect(
    clippy::large_enum_variant,
    reason = "it is taken apart where it comes back, and a box would be for every try"
)]
pub(crate) enum Taking<'a> {
    Ended(Result<Outcome, Error>),
    Waits(Waiting<'a>),
}

impl<'a> Taking<'a> {
    /// What comes of it.
    #[cfg(feature = "submit")]
    pub(crate) async fn outcome(self) -> Result<Outcome, Error> {
        match self {
            Self::Ended(result) => result,
            Self::Waits(waiting) => waiting.await,
        }
    }

    fn waits(future: impl Future<Output = Result<Outcome, Error>> + Send + 'a, span: Span) -> Self {
        Self::Waits(if span.is_disabled() { Box::pin(future) } else { Box::pin(future.instrument(span)) })
    }
}

/// The future of a wish. It begins when it is first polled, and what needs no waiting is done then. `told` says what of the
/// outcome is told, unless that is known at the beginning.
///
/// By hand, because an `async fn` has room for the wish twice and for its outcome three times, and a future is moved.
pub(super) struct Wish<'a, B, T> {
    state: State<'a, B>,
    told: fn(Outcome) -> Result<T, Error>,
}

enum State<'a, B> {
    New(B),
    Waits(Waiting<'a>),
    Over,
}

impl<'a, B, T> Wish<'a, B, T>
where
    B: FnOnce() -> Result<ControlFlow<T, Taking<'a>>, Error>,
{
    pub(super) const fn new(begin: B, told: fn(Outcome) -> Result<T, Error>) -> Self {
        Self { state: State::New(begin), told }
    }
}

// Nothing in it is pinned: what it begins with is moved out, and what waits is in a box.
impl<B, T> Unpin for Wish<'_, B, T> {}

impl<'a, B, T> Future for Wish<'a, B, T>
where
    B: FnOnce() -> Result<ControlFlow<T, Taking<'a>>, Error>,
{
    type Output = Result<T, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let told = self.told;
        let mut waiting = match std::mem::replace(&mut self.state, State::Over) {
            State::New(begin) => match begin()? {
                ControlFlow::Break(told) => return Poll::Ready(Ok(told)),
                ControlFlow::Continue(Taking::Ended(result)) => return Poll::Ready(result.and_then(told)),
                ControlFlow::Continue(Taking::Waits(waiting)) => waiting,
            },
            State::Waits(waiting) => waiting,
            State::Over => return Poll::Pending,
        };
        match waiting.as_mut().poll(context) {
            Poll::Ready(result) => Poll::Ready(result.and_then(told)),
            Poll::Pending => {
                self.state = State::Waits(waiting);
                Poll::Pending
            }
        }
    }
}

/// How a try has begun. Small, because it is moved: what an outcome tells besides the guard is left out here.
pub(super) enum Begun<'a> {
    /// It is over.
    Told(Option<LockGuard>),
    /// Somebody asks already, and it shares the next answer. It was checked.
    Rides(Box<Riding<'a>>),
    Waits(Waiting<'a>),
}

/// What a simple try finds at its first look.
enum First {
    Told(Option<LockGuard>),
    Rides(ClaimKey, Boarded),
    Goes(Claim),
}

impl LockManager {
    #[inline]
    pub(super) fn plan(&self, key: Key, options: LockOptions, guard: Option<&str>) -> Result<Plan, Error> {
        Plan::lock(key, options, self.core.conditions(guard))
    }

    /// Takes a lock on this key.
    pub(super) fn take_lock<T>(
        &self,
        key: Key,
        options: LockOptions,
        guard: Option<&str>,
    ) -> Result<ControlFlow<T, Taking<'_>>, Error> {
        let plan = self.plan(key, options, guard)?;
        Ok(ControlFlow::Continue(self.carry_out(plan)))
    }

    /// The same for one who does not ask why it was denied, if it was. Where this process itself holds the key, and where the
    /// engine answers at once, nothing need be planned.
    pub(super) fn try_to_take(&self, key: Key, options: &mut LockOptions) -> Result<Begun<'_>, Error> {
        let scope = Scope::current(&self.core);
        // Who is in a scope may enter again, and who listens is told of each attempt.
        let simple = scope.is_none() && options.is_simple_try() && !tracing::enabled!(tracing::Level::DEBUG);
        let mut plan = if simple && !self.core.closing.is_closed() {
            options.check(self.core.max_ttl)?;
            match self.look_first(key, options) {
                First::Told(taken) => return Ok(Begun::Told(taken)),
                First::Rides(on, boarded) => {
                    let core = &self.core;
                    let now = Instant::now();
                    let limit = core.ride_limit_from(now);
                    let rider = Rider::new(&core.lines, on, Mode::Exclusive, boarded, limit);
                    let riding = Box::new(Riding::new(core, rider, options, now));
                    return Ok(Begun::Rides(riding));
                }
                First::Goes(claim) => {
                    Plan::new(Claims::One(claim), options.take(), self.core.conditions(None))?
                }
            }
        } else {
            self.plan(key, options.take(), None)?
        };
        plan.tersely = true;
        match self.carry_out_in(scope, plan) {
            Taking::Ended(result) => result.and_then(Outcome::or_denied).map(Begun::Told),
            Taking::Waits(waiting) => Ok(Begun::Waits(waiting)),
        }
    }

    /// The whole of a simple try, if it can be done in one step.
    fn look_first(&self, key: Key, options: &LockOptions) -> First {
        let core = &self.core;
        let meter = || core.telemetry.meter(options.called().unwrap_or("lock"));
        let found = |held: &_| core.background.heard.watch(held);
        let denied = || {
            meter().attempted_at_once(Attempted::DeniedByLock);
            First::Told(None)
        };
        let Some(engine) = core.store.at_once().filter(|_| !core.breaker.is_open()) else {
            let on = ClaimKey::lock(key);
            return match core.lines.enter_behind(&on, found, || options.shape()) {
                Some(Behind::HeldHere) => denied(),
                Some(Behind::Ride(boarded)) => First::Rides(on, boarded),
                None => First::Goes(options.lock_on(on.key)),
            };
        };
        core.ensure_background();
        let claim = options.lock_on(key);
        let renewal = options.renewal_interval();
        let tried = core.lines.try_at_once(claim, found, |claim| {
            let guard = || (meter(), renewal.is_some());
            core.ask_engine_at_once((engine, &self.life.handles), claim, options, 0, guard, |_| {})
        });
        let (held, handle) = match tried {
            Tried::Granted(held, handle) => (held, handle),
            Tried::Denied => return denied(),
            Tried::NotAtOnce(claim) => return First::Goes(claim),
        };
        let meter = meter();
        meter.attempted_at_once(Attempted::Acquired);
        let renewing = renewal.map(|(every, up_to)| core.renewals.start(&held, every, up_to));
        let tenure = Tenure::of_guard(held, handle, options.local_pass, meter);
        First::Told(Some(LockGuard::new(Holding::new(tenure, renewing))))
    }

    /// Takes what is planned, and lets it be seen. What needs no waiting is done now; the rest is a future of its own, so that
    /// nobody carries it around who does not need it.
    pub(super) fn carry_out(&self, plan: Plan) -> Taking<'_> {
        self.carry_out_in(Scope::current(&self.core), plan)
    }

    pub(super) fn carry_out_in(&self, scope: Option<Scope>, mut plan: Plan) -> Taking<'_> {
        let attempting = plan.seen.attempting(&plan.claims);
        plan.scope = scope.as_ref().map_or(0, Scope::id);
        if let Some(result) = plan.seen.span.in_scope(|| self.at_once(&plan, scope.as_ref())) {
            attempting.ended(&result);
            return Taking::Ended(result);
        }
        let span = plan.seen.span.clone();
        if plan.is_try() && plan.stands_in_line() && (scope.is_none() || !plan.options.reentrant) {
            // Much smaller than all that can happen to others.
            return Taking::waits(self.try_simply(plan, scope, attempting), span);
        }
        let taking = async move {
            let _waiting = (!plan.is_try()).then(|| plan.seen.meter.waiting());
            let result = self.take(&plan, scope).await;
            attempting.ended(&result);
            result
        };
        Taking::waits(taking, span)
    }

    /// Takes one place for one that neither waits nor enters again. Not an `async fn`, which has room for its arguments twice.
    #[expect(clippy::manual_async_fn, reason = "as said above")]
    fn try_simply(
        &self,
        plan: Plan,
        scope: Option<Scope>,
        attempting: Attempting,
    ) -> impl Future<Output = Result<Outcome, Error>> {
        async move {
            // Until the guard is made, so that a shutdown never misses it.
            let _under_way = self.core.attempts.counted();
            let reply = match self.core.try_in_line(&plan).await {
                Reply::Failed(error, doubtful) => {
                    Box::pin(self.core.after_failure(&plan, error, doubtful)).await
                }
                reply => reply,
            };
            let result = self.outcome(&plan, reply, scope.as_ref());
            attempting.ended(&result);
            result
        }
    }

    /// The outcome of what needs no waiting: of entering again, and of a try that is answered at once.
    fn at_once(&self, plan: &Plan, scope: Option<&Scope>) -> Option<Result<Outcome, Error>> {
        // Until the guard is made, so that a shutdown never misses it.
        let _under_way = self.core.attempts.counted();
        if let Some(scope) = scope {
            match scope.cover(plan) {
                Ok(None) => {}
                Ok(Some(holding)) => return Some(Ok(self.again(plan, holding))),
                Err(error) => return Some(Err(error)),
            }
        }
        let reply = self.core.at_once(plan)?;
        // Another task of the scope may be about to have it: then that is entered.
        let enters = scope.is_some() && plan.options.reentrant && matches!(reply, Reply::Denied(..));
        (!enters).then(|| self.outcome(plan, reply, scope))
    }

    /// Takes what is planned: by entering again, or as the strategy says.
    async fn take(&self, plan: &Plan, scope: Option<Scope>) -> Result<Outcome, Error> {
        // Until the guard is made, so that a shutdown never misses it.
        let _under_way = self.core.attempts.counted();
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
        let longer = plan.options.ttl().saturating_sub(ttl);
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
        Outcome::Reentered(LockGuard::one_of(holding, renewing))
    }

    /// Makes a guard of what was granted.
    fn guard(&self, plan: &Plan, mut tenure: Tenure, scope: Option<&Scope>) -> LockGuard {
        let interval = plan.options.renewal_interval().filter(|_| !tenure.held().is_degraded());
        tenure.begin(&plan.seen.meter, interval.is_some());
        let renewing = interval.map(|(every, up_to)| self.core.renewals.start(tenure.held(), every, up_to));
        let holding = Holding::new(tenure, renewing);
        let Some(scope) = scope else { return LockGuard::new(holding) };
        let holding = Arc::new(holding);
        scope.took(&holding);
        LockGuard::one_of(holding, None)
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
                    warn_of_own_scope(on);
                }
                let guard = plan.seen.meter.guard();
                tracing::debug!(key = %on, guard, ?cause, waited_ms = plan.seen.waited_ms(), "denied");
                let denied = Denied {
                    key: on.key.clone(),
                    cause,
                    holder: denial.holder,
                    retry_after: denial.retry_after,
                    done: denial.done,
                    wait: plan.options.waits_for(),
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

/// Somebody stands in its own way.
pub(super) fn warn_of_own_scope(on: &ClaimKey) {
    tracing::warn!(
        key = %on,
        "denied by a lock of the same scope: it stands in its own way unless it is `reentrant`"
    );
}
