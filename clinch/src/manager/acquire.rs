//! Taking leases: what is answered here, what is asked of the engine, and when it is asked again.

use std::future::poll_fn;
use std::sync::Arc;

use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use super::ask::Reply;
use super::core::Core;
use super::held::{Held, Standing};
use super::line::{Entry, HeadTurn, LineSeat, Ride, Rider, Role, local_denial};
use super::options::Strategy;
use super::plan::Plan;
use super::schedule::Schedule;
use super::tenure::Tenure;
use crate::error::DeniedBy;
use crate::lease::{Attempt, Mode};
use crate::store::{Denial, ErrorKind, StoreError};

const SHARED_CALL: &str = "another caller's call on it, which this one shares (is its future being polled?), was not answered in time";

/// What a waiter was told last, and when.
#[derive(Debug, Default)]
pub(super) struct Last(Option<(Reply, Instant)>);

impl Last {
    pub(super) fn is_none(&self) -> bool {
        self.0.is_none()
    }

    /// Keeps the reply. What may have been granted is out of the way before it is asked again.
    pub(super) fn set(&mut self, reply: Reply) {
        let reply = match reply {
            Reply::Failed(error, _) => Reply::Failed(error, None),
            reply => reply,
        };
        self.0 = Some((reply, Instant::now()));
    }

    /// As it stands now.
    pub(super) fn reply(self) -> Option<Reply> {
        let (reply, at) = self.0?;
        Some(match reply {
            Reply::Denied(denial, cause) => Reply::Denied(denial.aged(at.elapsed()), cause),
            reply => reply,
        })
    }
}

/// An attempt that was denied by readers and that the engine remembers for that: withdrawn when it is dropped.
#[derive(Debug)]
struct Remembered<'a> {
    core: &'a Core,
    attempt: Option<Arc<Attempt>>,
}

impl Drop for Remembered<'_> {
    fn drop(&mut self) {
        if let Some(attempt) = self.attempt.take() {
            self.core.lines.withdraw(attempt);
        }
    }
}

impl Core {
    /// The answer to a simple try, if it needs no waiting: this process holds the key itself, or the engine answers at once.
    pub(super) fn at_once(self: &Arc<Self>, plan: &Plan) -> Option<Reply> {
        let [claim] = &*plan.claims else { return None };
        let simple = plan.is_try() && plan.stands_in_line() && claim.mode() == Mode::Exclusive;
        if !simple || self.closing.is_closed() {
            return None;
        }
        self.ensure_background();
        let Some(engine) = self.store.at_once().filter(|_| !self.breaker.is_open()) else {
            let held_here = self.lines.held_here(claim.on(), |held| self.denied_by(held, plan));
            return held_here.or_else(|| self.still_closed(plan));
        };
        match self.lines.enter(claim, &plan.shape, || self.ride_limit()) {
            Entry::HeldHere(held) => Some(self.denied_by(&held, plan)),
            Entry::Ask(role) => self.ask_at_once(engine, role, plan),
            Entry::Releasing(_) | Entry::Ride(_) => None,
        }
    }

    /// Denied by what the engine said a moment ago. While it is not asked at all, everybody does as their strategy says.
    fn still_closed(&self, plan: &Plan) -> Option<Reply> {
        if self.breaker.is_open() {
            return None;
        }
        let denial = self.closed.denial(plan.claims[0].on(), || self.boot_now())?;
        Some(Reply::denied(denial, plan))
    }

    /// Denied by a lease of this process, of which it must be sure.
    fn denied_by(&self, held: &Arc<Held>, plan: &Plan) -> Reply {
        self.background.heard.watch(held);
        if plan.tersely {
            return Reply::Denied(Denial::default(), DeniedBy::Lock);
        }
        Reply::denied(local_denial(held, 0, plan.claims[0].on()), plan)
    }

    /// Takes the one place of a try.
    pub(super) async fn try_in_line(self: &Arc<Self>, plan: &Plan) -> Reply {
        if self.closing.is_closed() {
            return Reply::ShutDown;
        }
        self.ensure_background();
        self.try_once(plan).await
    }

    /// Takes the lease, waiting as long as the plan allows.
    pub(super) async fn acquire(self: &Arc<Self>, plan: &Plan) -> Reply {
        if self.closing.is_closed() {
            return Reply::ShutDown;
        }
        self.ensure_background();
        // A try must be cheap, and a future is moved a few times: whatever else can happen is not part of it.
        match (plan.stands_in_line(), plan.is_try()) {
            (true, true) => self.try_once(plan).await,
            (true, false) if plan.claims[0].mode() == Mode::Exclusive => {
                Box::pin(self.wait_in_line(plan)).await
            }
            (true, false) => Box::pin(self.try_then_wait(plan)).await,
            (false, _) => Box::pin(self.acquire_alone(plan)).await,
        }
    }

    /// Where several can be in, nobody stands in line before it is known that all places are taken.
    async fn try_then_wait(self: &Arc<Self>, plan: &Plan) -> Reply {
        match self.try_once(plan).await {
            Reply::Denied(_, DeniedBy::Lock | DeniedBy::Limit) => {}
            Reply::Failed(error, _) if self.is_worth_waiting(&error, plan) => {}
            reply => return reply,
        }
        self.wait_in_line(plan).await
    }

    /// Answers at once: from what this process knows, from a call that is asked after this moment, or by asking.
    async fn try_once(self: &Arc<Self>, plan: &Plan) -> Reply {
        let limit = self.ride_limit();
        let limit = if plan.is_try() { limit } else { limit.min(plan.deadline + self.call_timeout) };
        let claim = &plan.claims[0];
        if claim.mode() != Mode::Exclusive
            && let Err(error) = Box::pin(self.let_out(plan, limit)).await
        {
            return Reply::Failed(error, None);
        }
        loop {
            match self.lines.enter(claim, &plan.shape, || limit) {
                Entry::HeldHere(held) => return self.denied_by(&held, plan),
                Entry::Releasing(held) => {
                    if let Err(error) = Box::pin(self.over_by(limit, &held)).await {
                        return Reply::Failed(error, None);
                    }
                }
                // In boxes of their own: two small pieces of memory are had faster than one that is larger than a kilobyte.
                Entry::Ask(role) => return Box::pin(self.ask_once(limit, role, plan)).await,
                Entry::Ride(rider) => return Box::pin(self.ride(rider, plan)).await,
            }
        }
    }

    /// Waits for the leases of this process that are on their way out now, where others may share the key: nobody is to be
    /// denied by them. (Where nobody may, that is waited for anyway.)
    pub(super) async fn let_out(&self, plan: &Plan, limit: Instant) -> Result<(), StoreError> {
        for claim in plan.claims.iter().filter(|claim| claim.mode() != Mode::Exclusive) {
            for held in self.lines.releasing(claim.on()) {
                Box::pin(self.over_by(limit, &held)).await?;
            }
        }
        Ok(())
    }

    /// Waits for the answer to this process's own release, as long as the engine is asked at all.
    pub(super) async fn over_by(&self, limit: Instant, held: &Held) -> Result<(), StoreError> {
        tokio::select! {
            biased;
            () = held.over() => Ok(()),
            error = self.breaker.not_asked() => Err(error),
            () = sleep_until(limit) => Err(no_answer_to_release()),
        }
    }

    /// Why the engine is not asked now, if it is not: then its answer to a release is not worth waiting for either.
    pub(super) fn not_asked(&self) -> Option<StoreError> {
        self.breaker.admit().err()
    }

    /// Whether somebody who waits for this process's own release goes on without the engine instead.
    pub(super) fn goes_on_without(&self, held: &Held, plan: &Plan) -> Option<StoreError> {
        let waits_in_vain =
            self.strategy(plan) == Strategy::Proceed && held.standing() == Standing::Releasing;
        if waits_in_vain { self.not_asked() } else { None }
    }

    /// Until when one waits that comes now and shares a call: that may take the call's time and then one's own.
    pub(super) fn ride_limit(&self) -> Instant {
        self.ride_limit_from(Instant::now())
    }

    pub(super) fn ride_limit_from(&self, now: Instant) -> Instant {
        now + self.call_timeout * 2
    }

    /// Shares a call that is asked after this moment.
    async fn ride<'a>(self: &'a Arc<Self>, mut rider: Rider<'a>, plan: &'a Plan) -> Reply {
        let ride = poll_fn(|context| rider.poll(context)).await;
        match self.shared(ride, plan) {
            Some(reply) => reply,
            None => {
                let limit = rider.limit();
                let role = rider.role(&plan.claims[0], plan.shape.clone());
                Box::pin(self.ask_once(limit, role, plan)).await
            }
        }
    }

    /// What is replied to one who shares a call; nothing to one who is to ask itself.
    pub(super) fn shared(&self, ride: Ride, plan: &Plan) -> Option<Reply> {
        match ride {
            Ride::Answered(answer) => Some(Reply::shared(answer, plan)),
            // Not the engine's fault, as far as this one knows.
            Ride::Late => {
                Some(Reply::Failed(StoreError::not_applied(ErrorKind::Overloaded, SHARED_CALL), None))
            }
            Ride::Ask => None,
        }
    }

    /// Stands in line; asks only as its head.
    async fn wait_in_line(self: &Arc<Self>, plan: &Plan) -> Reply {
        let mut seat = self.lines.join(&plan.claims[0], &plan.shape, plan.scope, plan.poll_every());
        if seat.is_behind() && !self.closing.is_closed() {
            // Most who stand behind others are passed the lease before they ever are the head. Whoever closes calls.
            if timeout_at(plan.deadline, seat.called()).await.is_err() {
                return self.in_the_end(Last::default(), false, plan);
            }
            if let Some((held, pass)) = seat.take_passed()
                && let Some(reply) = self.was_passed(held, pass, &mut seat, plan)
            {
                return reply;
            }
        }
        Box::pin(self.lead(seat, plan)).await
    }

    /// The lease was passed on to one who stood in the line, unless it has run out since because this task was not run.
    fn was_passed(
        self: &Arc<Self>,
        held: Arc<Held>,
        pass: u32,
        seat: &mut LineSeat<'_>,
        plan: &Plan,
    ) -> Option<Reply> {
        if held.remaining_for(pass).is_zero() {
            // First, so that it is there to hear of what becomes of the lease.
            seat.rejoin();
            drop(Tenure::new(held, pass, self, plan.passes()));
            return None;
        }
        Some(Reply::Granted(Tenure::new(held, pass, self, plan.passes())))
    }

    /// Does as the head of a line, or as one who may be.
    async fn lead(self: &Arc<Self>, mut seat: LineSeat<'_>, plan: &Plan) -> Reply {
        let deadline = plan.deadline;
        // Whom nobody stands in the way of has the time of one call, however short the wait.
        let grace = deadline + self.call_timeout;
        let mut remembered = Remembered { core: self, attempt: None };
        let mut last = Last::default();
        loop {
            if self.closing.is_closed() {
                return Reply::ShutDown;
            }
            let turn = seat.turn();
            if let HeadTurn::Local(held) = &turn
                && let Some(error) = self.goes_on_without(held, plan)
            {
                return Reply::Failed(error, None);
            }
            let until = match &turn {
                HeadTurn::Local(held) if last.is_none() && held.standing() == Standing::Releasing => grace,
                _ => deadline,
            };
            // An idle head has one timer for this and for its next poll.
            let is_timed = matches!(turn, HeadTurn::Idle);
            let event = async {
                match turn {
                    HeadTurn::NotHead | HeadTurn::Busy => seat.called().await,
                    HeadTurn::Idle if !seat.called_or_due(until).await => return Event::Over,
                    HeadTurn::Idle => {}
                    HeadTurn::SteppedBack(until) => seat.called_or_woken(until).await,
                    HeadTurn::Local(held) => tokio::select! {
                        biased;
                        () = seat.called() => {}
                        () = self.out_of_the_way(&held, plan) => {}
                    },
                    HeadTurn::Ask(role) => return Event::Ask(role),
                    HeadTurn::Passed(held, pass) => return Event::Passed(held, pass),
                }
                Event::Again
            };
            let event = tokio::select! {
                biased;
                event = event => event,
                () = sleep_until(until), if !is_timed => Event::Over,
            };
            let mut role = match event {
                Event::Ask(role) => role,
                Event::Again => continue,
                Event::Over => return self.in_the_end(last, until == grace, plan),
                Event::Passed(held, pass) => match self.was_passed(held, pass, &mut seat, plan) {
                    Some(reply) => return reply,
                    None => continue,
                },
            };
            seat.schedule().asking();
            let (reply, asked) = if let Some(held) = self.inherited(&mut role, seat.schedule(), plan) {
                (self.inherit(role, &held, plan), None)
            } else if last.is_none() {
                self.ask_until((Instant::now() + self.call_timeout).min(grace), role, plan).await
            } else if self.answers_before(deadline) {
                self.ask(role, plan).await
            } else {
                match timeout_at(deadline, self.ask(role, plan)).await {
                    Ok(answer) => answer,
                    Err(_) => return self.in_the_end(last, false, plan),
                }
            };
            match &reply {
                // The latest one is what the engine remembers. One that can inherit is the line's.
                Reply::Denied(denial, _) if denial.is_by_readers() => {
                    remembered.attempt = asked.filter(|attempt| attempt.patience().inherits().is_none());
                }
                Reply::Granted(_) => {
                    remembered.attempt = None;
                    self.granted_by(seat.schedule(), plan);
                }
                _ => {}
            }
            if let Some(reply) = self.final_or_later(reply, plan, &mut seat, &mut last) {
                return reply;
            }
            if Instant::now() >= deadline {
                return self.in_the_end(last, false, plan);
            }
        }
    }

    /// Whether a call that is made now will have ended well before then, of itself: with what is asked again after a failure it
    /// takes no longer than two.
    fn answers_before(&self, deadline: Instant) -> bool {
        self.limited && Instant::now() + self.call_timeout * 3 < deadline
    }

    /// Something was granted to one that waited, by a call that was made on this schedule.
    pub(super) fn granted_by(&self, schedule: &Schedule, plan: &Plan) {
        if schedule.has_missed_wakeup() && self.store.capabilities().wakeups {
            tracing::debug!(key = %plan.claims[0].on(), "a poll found what a wake-up should have told");
            plan.seen.meter.wakeup_missed();
        }
    }

    /// Waits until the lease of this process no longer stands in the way, or until it should be looked at again.
    pub(super) async fn out_of_the_way(&self, held: &Arc<Held>, plan: &Plan) {
        let heard = &self.background.heard;
        let since = heard.since();
        heard.watch(held);
        // Who would go on without the engine looks now and then whether it must.
        let looks = async {
            match self.strategy(plan) {
                Strategy::Proceed => sleep(plan.poll_every()).await,
                _ => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = held.over() => {}
            () = heard.begun_after(since) => {}
            () = looks => {}
        }
    }

    /// Sorts a reply to the head: one to go home with, or one after which it asks again later.
    fn final_or_later(
        &self,
        reply: Reply,
        plan: &Plan,
        seat: &mut LineSeat<'_>,
        last: &mut Last,
    ) -> Option<Reply> {
        let pause = || self.sources.jittered(plan.poll_every());
        match &reply {
            // What is done does not become free by waiting for a moment.
            Reply::Denied(_, DeniedBy::Done) => return Some(reply),
            Reply::Denied(denial, _) => {
                let on = plan.claims[0].on();
                seat.schedule().denied(denial, pause(), || self.store.wakeups(on, None));
            }
            Reply::Failed(error, _) if self.is_worth_waiting(error, plan) => {
                self.complain("acquire", plan.claims[0].on(), error);
                seat.schedule().failed(pause());
            }
            Reply::Granted(_) | Reply::Failed(..) | Reply::ShutDown => return Some(reply),
        }
        last.set(reply);
        None
    }

    /// Whether a waiter asks again after such a failure. Who would go on without the engine does not wait for one that is
    /// not even asked.
    pub(super) fn is_worth_waiting(&self, error: &StoreError, plan: &Plan) -> bool {
        // At the end of its time it goes on with what it asked last, granted or not.
        let goes_on = self.breaker.is_open() || Instant::now() >= plan.deadline;
        let gives_up = self.strategy(plan) == Strategy::Proceed && goes_on;
        error.is_retryable() && !gives_up
    }

    /// The reply to a waiter whose time is over: what it was told last, or what is known to one that never came to ask.
    fn in_the_end(&self, last: Last, only_release: bool, plan: &Plan) -> Reply {
        match last.reply() {
            Some(reply) => reply,
            // The key may well be free: only the answer to this process's own release is missing.
            None if only_release => Reply::Failed(no_answer_to_release(), None),
            None => Reply::denied(self.lines.denial(&plan.claims[0]), plan),
        }
    }
}

/// What happened to one in line.
enum Event<'a> {
    /// Something changed: look again.
    Again,
    /// The time is up.
    Over,
    Ask(Role<'a>),
    Passed(Arc<Held>, u32),
}

pub(super) fn no_answer_to_release() -> StoreError {
    let message = "the release of this process's own lease on it was not answered in time";
    StoreError::not_applied(ErrorKind::Timeout, message)
}
