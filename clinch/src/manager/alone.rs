//! Attempts that join no line: those with several claims, and those that stand in the engine's own queue.
//!
//! Such an attempt keeps its token while it waits, so that the engine knows it again. It leaves nothing behind when it is
//! dropped: what may have been granted is taken back, what the engine remembers is withdrawn.
//!
//! One in the engine's queue that is told by push that the key is kept for it takes that for its grant: it has the lease for as
//! long as the key is kept, counted from before it asked last, and confirms in the background if it holds it for longer than a
//! moment. So a hand-over takes no round trip of its own.

use std::sync::Arc;

use tokio::time::{Instant, sleep_until, timeout_at};

use super::acquire::{Last, no_answer_to_release};
use super::ask::{Doubtful, Reply};
use super::core::Core;
use super::held::{Held, Standing};
use super::line::{Flight, local_denial};
use super::options::Strategy;
use super::plan::Plan;
use super::schedule::Schedule;
use super::tenure::Tenure;
use crate::error::DeniedBy;
use crate::lease::{ClaimKey, Mode, Token};
use crate::store::{Denial, Grant, News, Renewal, StoreError, Verdict};

/// Which part of the time for which the key is kept passes until it is confirmed: whoever is done by then need not.
const CONFIRMS_AFTER: u32 = 16;

impl Core {
    /// Takes the lease without a place in a line, waiting as long as the plan allows.
    pub(super) async fn acquire_alone(self: &Arc<Self>, plan: &Plan) -> Reply {
        let (deadline, tries) = (plan.deadline, plan.is_try());
        let grace = deadline + self.call_timeout * if tries { 2 } else { 1 };
        let mut alone = Alone::new(self, plan);
        let mut listening = Listening::default();
        let mut last = Last::default();
        // Whoever waits in the engine's queue must be known there from the beginning.
        if plan.options.kept_for().is_none_or(|_| tries)
            && let Err(error) = self.let_out(plan, grace).await
        {
            return Reply::Failed(error, None);
        }
        if plan.options.kept_for().is_some() && !tries {
            let on = plan.claims[0].on();
            if self.store.is_listening(on) {
                listening.to(on).listen(self.store.wakeups(on, Some(alone.token())));
            }
        }
        loop {
            if self.closing.is_closed() {
                return Reply::ShutDown;
            }
            if let Some((claim, held, standing)) = alone.in_the_way() {
                let denial = || Reply::denied(local_denial(&held, claim, plan.claims[claim].on()), plan);
                let leaving = standing == Standing::Releasing;
                let in_vain =
                    if tries && leaving { self.not_asked() } else { self.goes_on_without(&held, plan) };
                if let Some(error) = in_vain {
                    return Reply::Failed(error, None);
                }
                if tries && !leaving {
                    self.background.heard.watch(&held);
                    return denial();
                }
                let until = if leaving && last.is_none() { grace } else { deadline };
                tokio::select! {
                    biased;
                    () = self.out_of_the_way(&held, plan) => continue,
                    () = self.closing.closed() => return Reply::ShutDown,
                    () = sleep_until(until) => {}
                }
                return match last.reply() {
                    Some(reply) => reply,
                    None if leaving => Reply::Failed(no_answer_to_release(), None),
                    None => denial(),
                };
            }
            let kept = listening.schedule.kept().and_then(|news| alone.take_turn(news));
            let reply = if let Some(reply) = kept {
                reply
            } else if last.is_none() {
                alone.ask_until((Instant::now() + self.call_timeout).min(grace)).await
            } else {
                match timeout_at(deadline, alone.ask()).await {
                    Ok(reply) => reply,
                    Err(_) => {
                        alone.interrupted();
                        return last.reply().unwrap_or(Reply::ShutDown);
                    }
                }
            };
            let pause = || self.sources.jittered(plan.poll_every());
            match &reply {
                Reply::Denied(denial, cause) if !tries && *cause != DeniedBy::Done => {
                    let on = plan.claims.get(denial.claim).unwrap_or(&plan.claims[0]).on();
                    let queued = plan.options.kept_for().and(alone.flight.as_ref());
                    let queued = queued.map(|flight| flight.attempt.token());
                    listening.to(on).denied(denial, pause(), || self.store.wakeups(on, queued));
                }
                Reply::Failed(error, _) if !tries && self.is_worth_waiting(error, plan) => {
                    self.complain("acquire", plan.claims[0].on(), error);
                    listening.schedule.failed(pause());
                }
                Reply::Granted(_) => {
                    self.granted_by(&listening.schedule, plan);
                    return reply;
                }
                _ => return reply,
            }
            last.set(reply);
            if Instant::now() >= deadline {
                return last.reply().unwrap_or(Reply::ShutDown);
            }
            tokio::select! {
                biased;
                () = listening.schedule.due_by(deadline) => {}
                () = self.closing.closed() => return Reply::ShutDown,
            }
            if !listening.schedule.is_due() {
                return last.reply().unwrap_or(Reply::ShutDown);
            }
            listening.schedule.asking();
        }
    }
}

/// When to ask again, by the key that stood in the way last.
#[derive(Debug, Default)]
struct Listening {
    on: Option<ClaimKey>,
    schedule: Schedule,
}

impl Listening {
    fn to(&mut self, on: &ClaimKey) -> &mut Schedule {
        if self.on.as_ref() != Some(on) {
            *self = Self { on: Some(on.clone()), schedule: Schedule::default() };
        }
        &mut self.schedule
    }
}

/// One such attempt.
pub(super) struct Alone<'a> {
    core: &'a Arc<Core>,
    plan: &'a Plan,
    pub(super) flight: Option<Flight>,
    /// A call is in flight, or it stands in the queue: what is ended by force meanwhile may be its lease.
    calling: bool,
    /// The engine remembers it although it was denied.
    remembered: bool,
}

impl<'a> Alone<'a> {
    pub(super) const fn new(core: &'a Arc<Core>, plan: &'a Plan) -> Self {
        Self { core, plan, flight: None, calling: false, remembered: false }
    }

    /// The token with which it asks.
    fn token(&mut self) -> &Token {
        let (core, plan) = (self.core, self.plan);
        self.flight.get_or_insert_with(|| core.new_flight(plan)).attempt.token()
    }

    /// What stands in its way in this process. Whoever waits in the engine's queue must be known there from the beginning.
    fn in_the_way(&self) -> Option<(usize, Arc<Held>, Standing)> {
        if self.plan.options.kept_for().is_some() && !self.plan.is_try() {
            return None;
        }
        let (claim, held, standing) = self.core.lines.in_the_way(&self.plan.claims)?;
        // A writer that waits for readers must be known to the engine too, or new ones would never let it in.
        let on = self.plan.claims[claim].on();
        let readers = standing == Standing::Valid && held.mode_on(on) == Some(Mode::Shared);
        (self.plan.is_try() || !readers).then_some((claim, held, standing))
    }

    /// Asks the engine, at most until `limit`.
    async fn ask_until(&mut self, limit: Instant) -> Reply {
        let core = self.core;
        let call = core.breaker.calling();
        let answer = timeout_at(limit, self.ask()).await;
        answer.unwrap_or_else(|_| {
            self.interrupted();
            self.failed(core.no_answer_to(call))
        })
    }

    /// The call was dropped before its answer came.
    fn interrupted(&mut self) {
        self.called();
        if let Some(flight) = &mut self.flight {
            flight.doubtful = true;
        }
    }

    async fn ask(&mut self) -> Reply {
        let core = self.core;
        let began = Instant::now();
        let mut flight = self.begin();
        flight.asked_at = Some(began);
        let verdict = core.exchange(&mut flight, None).await;
        self.flight = Some(flight);
        let waits = self.plan.options.kept_for().is_some() && !self.plan.is_try();
        let queued = waits && matches!(verdict, Ok(Verdict::Denied(_)));
        let revoked = !queued && self.called();
        match verdict {
            Ok(Verdict::Granted(grant)) => self.granted(grant, began, revoked).await,
            Ok(Verdict::Denied(denial)) => self.denied(denial),
            Err(error) => self.failed(error),
        }
    }

    /// The attempt, to be sent now: the one that was denied before, or a new one.
    pub(super) fn begin(&mut self) -> Flight {
        let core = self.core;
        let flight = self.flight.get_or_insert_with(|| core.new_flight(self.plan));
        if flight.attempt.sent_at().is_none() {
            flight.boot_at = core.sources.boot_now();
            flight.heard_since = core.background.heard.since();
        }
        let flight = flight.clone();
        if !std::mem::replace(&mut self.calling, true) {
            core.lines.calling(&self.plan.claims);
        }
        flight
    }

    /// The call is over; says whether its lease was ended by force meanwhile.
    pub(super) fn called(&mut self) -> bool {
        let Some(flight) = &self.flight else { return false };
        std::mem::take(&mut self.calling) && self.core.lines.called(&self.plan.claims, flight.attempt.token())
    }

    pub(super) async fn granted(&mut self, grant: Grant, began: Instant, revoked: bool) -> Reply {
        let (core, plan) = (self.core, self.plan);
        let Some(mine) = &mut self.flight else { return Reply::ShutDown };
        let mut sent_at = mine.attempt.sent_at().unwrap_or(began);
        let mut flight = mine.clone();
        if sent_at < began {
            // An earlier call may have been the one that was granted. A renewal tells from when on it counts for sure.
            mine.doubtful = true;
            flight.boot_at = core.sources.boot_now();
            match core.store.renew(&flight.attempt).await {
                Ok(Renewal::Extended { sent_at: renewed_at }) => sent_at = renewed_at,
                Ok(Renewal::Lost) => return self.denied(Denial::default()),
                Err(error) => return self.failed(error),
            }
        }
        let held = core.lease_of(&flight, sent_at, Instant::now(), grant, plan);
        self.hand_out(held, revoked)
    }

    fn hand_out(&mut self, held: Arc<Held>, revoked: bool) -> Reply {
        let (core, plan) = (self.core, self.plan);
        if let Some(reply) = core.unusable(&held, revoked) {
            self.take_back();
            return reply;
        }
        if let Err((claim, other)) = core.lines.hold(&held) {
            // Its holder went on without the engine meanwhile.
            self.take_back();
            return Reply::denied(local_denial(&other, claim, plan.claims[claim].on()), plan);
        }
        self.flight = None;
        Reply::Granted(Tenure::new(held, 0, core, false))
    }

    /// Takes the news that the key is kept for it for its grant, if enough is left of the time for which it is.
    fn take_turn(&mut self, news: News) -> Option<Reply> {
        let (core, plan) = (self.core, self.plan);
        let flight = self.flight.as_ref()?;
        let (since, confirm) = (news.since_for(flight.attempt.token())?, plan.options.kept_for()?);
        let held = core.lease_by_news(flight, since, confirm, plan.scope)?;
        flight.attempt.route().take_turn();
        let revoked = self.called();
        let reply = self.hand_out(held.clone(), revoked);
        if matches!(reply, Reply::Granted(_)) {
            core.renewals.confirm(&held, held.since(), confirm.min(held.attempt().ttl()) / CONFIRMS_AFTER);
        }
        Some(reply)
    }

    pub(super) fn denied(&mut self, denial: Denial) -> Reply {
        let waits = !self.plan.is_try();
        self.remembered |= waits && (self.plan.options.kept_for().is_some() || denial.is_by_readers());
        if let Some(flight) = &self.flight {
            if flight.is_settled() {
                flight.attempt.unsent();
            } else if self.plan.options.kept_for().is_none() {
                // An earlier acquire may still arrive, once the holder has gone. Nobody has to wait for that.
                self.core.lines.withdraw(flight.attempt.clone());
                self.flight = None;
            }
        }
        Reply::denied(denial, self.plan)
    }

    pub(super) fn failed(&mut self, error: StoreError) -> Reply {
        let doubtful = self.flight.as_ref().is_some_and(|flight| flight.doubtful);
        if !doubtful {
            return Reply::Failed(error, None);
        }
        let last = self.plan.is_try() || !self.core.is_worth_waiting(&error, self.plan);
        if last && self.core.strategy(self.plan) == Strategy::Proceed {
            let flight = self.flight.take();
            let doubtful = flight.map(|flight| Doubtful::new(flight.attempt, self.core.clone()));
            return Reply::Failed(error, doubtful);
        }
        if self.plan.options.kept_for().is_none() {
            self.take_back();
        }
        Reply::Failed(error, None)
    }

    fn take_back(&mut self) {
        if let Some(flight) = self.flight.take() {
            self.core.lines.take_back(flight.attempt);
        }
    }
}

impl Drop for Alone<'_> {
    fn drop(&mut self) {
        let calling = self.calling;
        self.called();
        let Some(flight) = self.flight.take() else { return };
        if flight.attempt.sent_at().is_some() && (calling || !flight.is_settled()) {
            self.core.lines.take_back(flight.attempt);
        } else if self.remembered {
            self.core.lines.withdraw(flight.attempt);
        }
    }
}
