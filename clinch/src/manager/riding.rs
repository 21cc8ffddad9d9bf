//! Tries that share somebody's call, and whom nobody tells why they were denied, if they are. In a storm that is nearly
//! all of them, so they come without a plan: it is made for the few that have more to do.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use super::LockManager;
use super::ask::Reply;
use super::carry_out::Waiting;
use super::line::{Answer, Ride, Rider};
use super::options::LockOptions;
use super::outcome::Outcome;
use super::plan::Plan;
use super::seen::Attempting;
use super::tally::Counted;
use crate::error::{Denied, DeniedBy, Error};
use crate::lease::Claims;

/// A try that shares somebody's call.
pub(super) struct Riding<'a> {
    manager: &'a LockManager,
    /// Until the guard is made, so that a shutdown never misses it.
    under_way: Option<Counted<'a>>,
    state: State<'a>,
}

#[expect(clippy::large_enum_variant, reason = "it is in a box, and nearly always a ride to its end")]
enum State<'a> {
    Rides(Rider<'a>, LockOptions, Attempting),
    /// There is more to do than to share a denial.
    Goes(Waiting<'a>),
    Over,
}

impl<'a> Riding<'a> {
    /// The options are those of a simple try, and were checked.
    pub(super) fn new(manager: &'a LockManager, rider: Rider<'a>, options: LockOptions) -> Self {
        let core = &manager.core;
        core.ensure_background();
        let attempting = Attempting::unheard(&core.telemetry, options.name.as_deref(), rider.claim());
        let state = State::Rides(rider, options, attempting);
        Self { manager, under_way: Some(core.attempts.counted()), state }
    }
}

// Nothing in it is pinned: what waits longer is in a box.
impl Unpin for Riding<'_> {}

impl Future for Riding<'_> {
    type Output = Result<Outcome, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if let State::Rides(rider, ..) = &mut self.state {
            let ride = ready!(rider.poll(context));
            let State::Rides(rider, options, attempting) = std::mem::replace(&mut self.state, State::Over)
            else {
                return Poll::Pending;
            };
            if matches!(ride, Ride::Answered(Answer::Denied(_))) {
                attempting.denied_by_lock();
                return Poll::Ready(Ok(denied(&rider)));
            }
            let manager = self.manager;
            let claims = Claims::One(rider.claim().clone());
            let mut plan = Plan::new(claims, options, manager.core.conditions(None))?;
            plan.tersely = true;
            let reply = manager.core.shared(ride, &plan);
            self.state = State::Goes(Box::pin(manager.go_on_after(plan, rider, reply, attempting)));
        }
        let State::Goes(going) = &mut self.state else { return Poll::Pending };
        let outcome = ready!(going.as_mut().poll(context));
        self.state = State::Over;
        self.under_way = None;
        Poll::Ready(outcome)
    }
}

/// As much as one is told who does not ask why.
fn denied(rider: &Rider<'_>) -> Outcome {
    Outcome::DeniedByLock(Denied {
        key: rider.claim().on().key.clone(),
        cause: DeniedBy::Lock,
        holder: None,
        retry_after: None,
        done: None,
        wait: std::time::Duration::ZERO,
        by_own_scope: false,
    })
}

impl LockManager {
    /// Goes on after a ride that ended with this reply, or by asking itself if there is none.
    async fn go_on_after(
        &self,
        plan: Plan,
        rider: Rider<'_>,
        reply: Option<Reply>,
        attempting: Attempting,
    ) -> Result<Outcome, Error> {
        let reply = match reply {
            Some(reply) => {
                drop(rider);
                reply
            }
            None => {
                let limit = rider.limit();
                let role = rider.role(&plan.claims[0], plan.shape.clone());
                self.core.ask_once(limit, role, &plan).await
            }
        };
        let reply = match reply {
            Reply::Failed(error, doubtful) => Box::pin(self.core.after_failure(&plan, error, doubtful)).await,
            reply => reply,
        };
        let result = self.outcome(&plan, reply, None);
        attempting.ended(&result);
        result
    }
}
