//! Tries that share somebody's call, and whom nobody tells why they were denied, if they are. In a storm that is nearly
//! all of them, so they come without a plan: it is made for the few that have more to do.

use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::time::Instant;

use super::LockManager;
use super::ask::Reply;
use super::carry_out::Waiting;
use super::core::Core;
use super::line::{Answer, Ride, Rider};
use super::options::LockOptions;
use super::outcome::Outcome;
use super::plan::Plan;
use super::seen::Attempting;
use super::tally::Counted;
use crate::error::Error;
use crate::lease::Claims;

/// A simple try that shares somebody's call. Its options stay where they are: hardly any needs them again.
pub(super) struct Riding<'a> {
    rider: Rider<'a>,
    attempting: Attempting,
    /// Until the guard is made, so that a shutdown never misses it.
    under_way: Counted<'a>,
}

/// What came of sharing.
pub(super) enum Rode {
    Denied,
    /// There is more to do than to share a denial.
    Goes(Ride),
}

impl<'a> Riding<'a> {
    pub(super) fn new(core: &'a Arc<Core>, rider: Rider<'a>, options: &LockOptions, now: Instant) -> Self {
        core.ensure_background();
        let attempting = Attempting::unheard(&core.telemetry, options.called(), now);
        Self { rider, attempting, under_way: core.attempts.counted() }
    }

    /// Waits for the answer.
    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Rode> {
        self.rider.poll(context).map(|ride| {
            if matches!(ride, Ride::Answered(Answer::Denied(_))) {
                self.attempting.denied_by_lock();
                return Rode::Denied;
            }
            Rode::Goes(ride)
        })
    }

    /// Goes on after the ride with a plan that is made of the options.
    pub(super) fn go_on(
        self,
        manager: &'a LockManager,
        options: LockOptions,
        ride: Ride,
    ) -> Result<Waiting<'a>, Error> {
        let Self { rider, attempting, under_way } = self;
        let claims = Claims::One(options.lock_on(rider.on().key.clone()));
        let mut plan = Plan::new(claims, options, manager.core.conditions(None))?;
        plan.tersely = true;
        let reply = manager.core.shared(ride, &plan);
        Ok(Box::pin(async move {
            let _under_way = under_way;
            manager.go_on_after(plan, rider, reply, attempting).await
        }))
    }
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
