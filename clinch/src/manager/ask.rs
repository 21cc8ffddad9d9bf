//! Asking the engine: one attempt, with its retries, and what becomes of its answer.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout_at};

use super::breaker::Call;
use super::core::Core;
use super::handle::Handles;
use super::held::Held;
use super::line::{Answer, Flight, Role, Tried, Unkept, local_denial};
use super::options::{LockOptions, Strategy};
use super::plan::Plan;
use super::schedule::Schedule;
use super::tenure::Tenure;
use crate::error::DeniedBy;
use crate::lease::{Attempt, Claim, Mode};
use crate::stamp::Stamp;
use crate::store::{Asks, AtOnce, Denial, Effect, ErrorKind, Grant, StoreError, Verdict};
use crate::telemetry::Meter;

/// How often a call goes out again after the connection failed under it.
const RECONNECTS: u32 = 2;
const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_millis(100);

/// For how long an heir holds the lease before it confirms it: whoever is done by then need not.
const CONFIRMS_AFTER: Duration = Duration::from_millis(5);
/// Which part of the time for which a key is kept must be left for one who takes that for its grant.
const LEAST_LEFT: u32 = 4;

/// What came of an attempt.
#[derive(Debug)]
pub(super) enum Reply {
    Granted(Tenure),
    Denied(Denial, DeniedBy),
    Failed(StoreError, Option<Doubtful>),
    ShutDown,
}

/// An attempt that may have been granted although the engine failed: taken back when it is dropped.
#[derive(Debug)]
pub(super) struct Doubtful {
    attempt: Option<Arc<Attempt>>,
    core: Arc<Core>,
}

impl Doubtful {
    pub(super) const fn new(attempt: Arc<Attempt>, core: Arc<Core>) -> Self {
        Self { attempt: Some(attempt), core }
    }

    /// Somebody goes on with it.
    pub(super) fn keep(mut self) -> Option<Arc<Attempt>> {
        self.attempt.take()
    }
}

impl Drop for Doubtful {
    fn drop(&mut self) {
        if let Some(attempt) = self.attempt.take() {
            self.core.lines.take_back(attempt);
        }
    }
}

impl Reply {
    /// Denied, because of a claim of the plan.
    pub(super) fn denied(denial: Denial, plan: &Plan) -> Self {
        let limit = plan.claims.get(denial.claim).is_some_and(|c| matches!(c.mode(), Mode::Permit { .. }));
        let cause = match denial.done {
            Some(_) => DeniedBy::Done,
            None if limit => DeniedBy::Limit,
            None => DeniedBy::Lock,
        };
        Self::Denied(denial, cause)
    }

    pub(super) fn shared(answer: Answer, plan: &Plan) -> Self {
        match answer {
            Answer::Denied(denial) => Self::denied(Arc::unwrap_or_clone(denial), plan),
            Answer::Failed(error) => Self::Failed(error, None),
        }
    }
}

impl Core {
    /// As [`ask`](Self::ask), at most until `limit`: then the role is dropped, which takes back what may be granted.
    pub(super) async fn ask_until(
        self: &Arc<Self>,
        limit: Instant,
        role: Role<'_>,
        plan: &Plan,
    ) -> (Reply, Option<Arc<Attempt>>) {
        let call = self.breaker.calling();
        if self.strategy(plan) == Strategy::Proceed {
            // Who goes on with an attempt that was not answered must have it in hand.
            return self.ask_within(Some(limit), role, plan).await;
        }
        let answer = timeout_at(limit, self.ask(role, plan)).await;
        answer.unwrap_or_else(|_| (Reply::Failed(self.no_answer_to(call), None), None))
    }

    /// A call had no answer within its limit, and was dropped.
    pub(super) fn no_answer_to(&self, call: Call) -> StoreError {
        let error = self.no_answer();
        self.not_answered(call, &error);
        error
    }

    /// What is said of a call that had no answer within its limit.
    pub(super) fn no_answer(&self) -> StoreError {
        let message = format!("no answer in time (limit of a call: {:?})", self.call_timeout);
        StoreError::unknown(ErrorKind::Timeout, message)
    }

    /// Tells the breaker. A call that came late had less than the time of one, which says nothing of the engine.
    fn not_answered(&self, call: Call, error: &StoreError) {
        if error.kind() != ErrorKind::Timeout || call.began().elapsed() >= self.call_timeout {
            self.breaker.failed(call, error);
        }
    }

    /// Asks the engine for the one place of the plan, and says with which attempt.
    pub(super) fn ask<'a>(
        self: &'a Arc<Self>,
        role: Role<'a>,
        plan: &'a Plan,
    ) -> impl Future<Output = (Reply, Option<Arc<Attempt>>)> {
        self.ask_within(None, role, plan)
    }

    /// The same with a limit at which it counts as not answered.
    async fn ask_within(
        self: &Arc<Self>,
        limit: Option<Instant>,
        mut role: Role<'_>,
        plan: &Plan,
    ) -> (Reply, Option<Arc<Attempt>>) {
        if self.closing.is_closed() {
            return (Reply::ShutDown, None);
        }
        let began = Instant::now();
        let flight = role.begin(|| self.new_flight(plan));
        if flight.attempt.route().is_known() && flight.attempt.sent_at().is_none() {
            // Denied before, and asked for anew, perhaps by another one.
            flight.boot_at = self.boot_now();
            if !plan.is_try() {
                flight.attempt.route().set_patience(plan.patience(self.can));
            }
        }
        flight.asked_at = Some(began);
        let verdict = self.exchange(flight, limit).await;
        let flight = flight.clone();
        let attempt = flight.attempt.clone();
        (self.settled(role, flight, verdict, began, plan), Some(attempt))
    }

    /// For a try, [`ask_until`](Self::ask_until) in as little room as possible: what nearly always happens is one call and its
    /// answer. Not an `async fn`, which has room for its arguments twice.
    #[expect(clippy::manual_async_fn, reason = "as said above")]
    pub(super) fn ask_once<'a>(
        self: &'a Arc<Self>,
        limit: Instant,
        mut role: Role<'a>,
        plan: &'a Plan,
    ) -> impl Future<Output = Reply> {
        async move {
            if self.strategy(plan) == Strategy::Proceed || self.breaker.is_open() || self.closing.is_closed()
            {
                return Box::pin(self.ask_until(limit, role, plan)).await.0;
            }
            let call = self.breaker.calling();
            let flight = role.begin(|| self.new_flight(plan));
            let asking = self.store.acquire(&flight.attempt);
            let answer = if self.limited {
                Ok(asking.await)
            } else {
                // Larger, and only for engines that do not end their calls themselves.
                Box::pin(timeout_at(limit, asking)).await
            };
            let verdict = match answer {
                Ok(Ok(verdict)) => {
                    self.breaker.answered();
                    Ok(verdict)
                }
                Ok(Err(error)) => {
                    match Box::pin(timeout_at(limit, self.exchange_again(flight, call, None, error))).await {
                        Ok(verdict) => verdict,
                        Err(_) => return Reply::Failed(self.no_answer_to(call), None),
                    }
                }
                Err(_) => return Reply::Failed(self.no_answer_to(call), None),
            };
            let flight = flight.clone();
            self.settled(role, flight, verdict, call.began(), plan)
        }
    }

    /// What came of a call that began then.
    fn settled(
        self: &Arc<Self>,
        mut role: Role<'_>,
        flight: Flight,
        verdict: Result<Verdict, StoreError>,
        began: Instant,
        plan: &Plan,
    ) -> Reply {
        match verdict {
            Ok(Verdict::Granted(grant)) => {
                let sent_at = flight.attempt.sent_at().unwrap_or(began);
                let held = self.lease_of(&flight, sent_at, Instant::now(), grant, plan);
                match self.unusable(&held, false) {
                    Some(reply) => {
                        role.take_back();
                        reply
                    }
                    None => self.kept(role, held, plan),
                }
            }
            Ok(Verdict::Denied(denial)) => {
                role.denied(&denial);
                self.closed.denied(plan.claims[0].on(), &denial, began, flight.boot_at);
                Reply::denied(denial, plan)
            }
            Err(error) => {
                let keeps = self.strategy(plan) == Strategy::Proceed;
                role.failed(&error, keeps);
                let doubtful =
                    (keeps && flight.doubtful).then(|| Doubtful::new(flight.attempt, self.clone()));
                Reply::Failed(error, doubtful)
            }
        }
    }

    /// Asks an engine that answers without any waiting; no reply where there is more to do than to take what it says.
    pub(super) fn ask_at_once(
        self: &Arc<Self>,
        engine: &dyn AtOnce,
        mut role: Role<'_>,
        plan: &Plan,
    ) -> Option<Reply> {
        let flight = role.begin(|| self.new_flight(plan));
        match engine.acquire_now(Asks::Attempt(flight.attempt.clone()), Instant::now()) {
            Ok(Verdict::Granted(grant)) => {
                // There was no time in which it could have run out.
                let now = flight.attempt.sent_at().unwrap_or_else(Instant::now);
                let held = self.lease_of(flight, now, now, grant, plan);
                Some(self.kept(role, held, plan))
            }
            Ok(Verdict::Denied(denial)) => {
                role.denied(&denial);
                Some(Reply::denied(denial, plan))
            }
            Err(error) => {
                // Asked once more, it says the same, and then it is seen to.
                role.failed(&error, false);
                None
            }
        }
    }

    /// Asks such an engine for what nobody else here is concerned with; to be called under the lock of the key, which a shutdown
    /// takes as well: it sees this guard, or this one sees it. `scope`: the one in which it is taken, 0 for none; `denied` is told
    /// why the engine refuses it.
    pub(super) fn ask_engine_at_once(
        self: &Arc<Self>,
        (engine, handles): (&dyn AtOnce, &Handles),
        claim: Claim,
        options: &LockOptions,
        scope: u64,
        guard: impl FnOnce() -> (Meter, bool),
        denied: impl FnOnce(Denial),
    ) -> Tried {
        if self.closing.is_closed() {
            return Tried::NotAtOnce(claim);
        }
        let heard_since = self.background.heard.since();
        let at = Instant::now();
        let now = Stamp::of(at);
        let token = self.new_token_at(now, options.word());
        // There is no time in which it could run out.
        let window = self.window_from(options.ttl(), now, None, now.after(self.call_timeout));
        let (meter, renews) = guard();
        let attempt = Attempt::one(token, claim).sent(now);
        let held = Arc::new(Held::granted_at_once(attempt, &window, now, heard_since, scope, &meter, renews));
        match engine.acquire_now(Asks::Lease(held.clone()), at) {
            Ok(Verdict::Granted(_)) => Tried::Granted(held, handles.for_guard()),
            Ok(Verdict::Denied(why)) => {
                denied(why);
                Tried::Denied
            }
            // Asked once more, it says the same, and then it is seen to.
            Err(_) => Tried::NotAtOnce(held.claims()[0].clone()),
        }
    }

    /// The lease of the head of a line to which the key was handed over, if the news of that have come in time: then the engine
    /// need not be asked.
    pub(super) fn inherited(
        &self,
        role: &mut Role<'_>,
        schedule: &mut Schedule,
        plan: &Plan,
    ) -> Option<Arc<Held>> {
        let news = schedule.kept()?;
        let flight = role.begin(|| self.new_flight(plan));
        let (since, confirm) =
            (news.since_for(flight.attempt.token())?, flight.attempt.patience().inherits()?);
        self.lease_by_news(flight, since, confirm, plan.scope)
    }

    /// What becomes of such a lease.
    pub(super) fn inherit(self: &Arc<Self>, mut role: Role<'_>, held: &Arc<Held>, plan: &Plan) -> Reply {
        if let Some(reply) = self.unusable(held, false) {
            role.take_back();
            return reply;
        }
        let reply = self.kept(role, held.clone(), plan);
        if matches!(reply, Reply::Granted(_)) {
            self.renewals.confirm(held, held.since(), CONFIRMS_AFTER);
        }
        reply
    }

    /// The lease of an attempt for which the key is kept since after that instant, if enough is left of the time for which it is.
    pub(super) fn lease_by_news(
        &self,
        flight: &Flight,
        since: Instant,
        confirm: Duration,
        scope: u64,
    ) -> Option<Arc<Held>> {
        // The boot clock was looked at before it asked last. News of an earlier time are old; a store may count in whole
        // microseconds.
        let is_old = |asked_at| since + Duration::from_micros(1) < asked_at;
        if !flight.is_settled() || flight.asked_at.is_none_or(is_old) {
            return None;
        }
        let kept_for = confirm.min(flight.attempt.ttl());
        let now = Instant::now();
        // The engine began to count by now at the latest.
        let window = self.window_of(kept_for, since, flight.boot_at, now);
        if window.valid_until.since(Stamp::of(now)) < kept_for / LEAST_LEFT {
            return None;
        }
        flight.attempt.sent_from(Stamp::of(since));
        Some(Arc::new(Held::kept(flight, window, now, scope)))
    }

    /// What was granted, noted as a lease of this process.
    fn kept(self: &Arc<Self>, role: Role<'_>, held: Arc<Held>, plan: &Plan) -> Reply {
        match role.granted(&held) {
            Ok(()) => Reply::Granted(Tenure::new(held, 0, self, plan.passes())),
            Err(Unkept::Revoked) => Reply::Denied(Denial::default(), DeniedBy::Revoked),
            Err(Unkept::InTheWay(other)) => Reply::denied(local_denial(&other, 0, plan.claims[0].on()), plan),
        }
    }

    pub(super) fn strategy(&self, plan: &Plan) -> Strategy {
        plan.options.strategy.unwrap_or(self.default_strategy)
    }

    /// Asks the engine; again with the same token where the connection failed or the engine was busy for a moment.
    pub(super) async fn exchange(
        &self,
        flight: &mut Flight,
        limit: Option<Instant>,
    ) -> Result<Verdict, StoreError> {
        let call = self.breaker.admit()?;
        match self.ask_engine(flight, limit).await {
            Ok(verdict) => {
                self.breaker.answered();
                Ok(verdict)
            }
            // Rare: not part of everybody's future.
            Err(error) => Box::pin(self.exchange_again(flight, call, limit, error)).await,
        }
    }

    async fn ask_engine(&self, flight: &Flight, limit: Option<Instant>) -> Result<Verdict, StoreError> {
        let asking = self.store.acquire(&flight.attempt);
        match limit {
            Some(limit) => timeout_at(limit, asking).await.unwrap_or_else(|_| Err(self.no_answer())),
            None => asking.await,
        }
    }

    /// Goes on after the first call of an exchange failed.
    async fn exchange_again(
        &self,
        flight: &mut Flight,
        mut call: Call,
        limit: Option<Instant>,
        mut error: StoreError,
    ) -> Result<Verdict, StoreError> {
        let began = call.began();
        let mut asked = 0;
        let mut pause = FIRST_PAUSE;
        loop {
            self.not_answered(call, &error);
            flight.doubtful |= error.effect() == Effect::Unknown;
            asked += 1;
            let in_time = began.elapsed() + pause < self.call_timeout
                && limit.is_none_or(|limit| Instant::now() + pause < limit);
            let again = match error.kind() {
                ErrorKind::Unavailable => asked <= RECONNECTS,
                ErrorKind::Busy | ErrorKind::ReadOnly => true,
                _ => false,
            };
            // A store that could not give back what it had will not grant it either.
            let again = again && !flight.attempt.route().is_taking_back();
            if !(again && in_time) {
                return Err(error);
            }
            sleep(self.sources.jittered(pause)).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
            match self.breaker.admit() {
                Ok(admitted) => call = admitted,
                Err(_) => return Err(error),
            }
            match self.ask_engine(flight, limit).await {
                Ok(verdict) => {
                    self.breaker.answered();
                    return Ok(verdict);
                }
                Err(failed) => error = failed,
            }
        }
    }

    pub(super) fn new_flight(&self, plan: &Plan) -> Flight {
        Flight {
            attempt: Arc::new(self.new_attempt(plan)),
            boot_at: self.boot_now(),
            asked_at: None,
            doubtful: false,
            heard_since: self.background.heard.since(),
        }
    }

    pub(super) fn new_attempt(&self, plan: &Plan) -> Attempt {
        let token = self.new_token(plan.options.word());
        let claims = plan.claims_above(self.fence_floor());
        Attempt::of(token, claims).with_patience(plan.patience(self.can))
    }

    /// The lease that was granted to what was sent then.
    pub(super) fn lease_of(
        &self,
        flight: &Flight,
        sent_at: Instant,
        since: Instant,
        grant: Grant,
        plan: &Plan,
    ) -> Arc<Held> {
        let window = self.window(&flight.attempt, sent_at, flight.boot_at);
        let held = Held::granted(flight, window, since, grant.fences, plan.scope);
        self.saw_fence(held.highest_fence());
        Arc::new(held)
    }

    /// Why a lease cannot be handed out although it was granted.
    pub(super) fn unusable(&self, held: &Held, revoked: bool) -> Option<Reply> {
        if self.closing.is_closed() {
            return Some(Reply::ShutDown);
        }
        let cause = if revoked {
            // It was ended by force before its answer came; asked for more than once, it may be granted anew.
            DeniedBy::Revoked
        } else if held.remaining().is_zero() {
            DeniedBy::TooLate
        } else {
            return None;
        };
        Some(Reply::Denied(Denial::default(), cause))
    }
}
