//! A group of keys that have nothing to do with each other, each with its own answer, in one exchange with the engine.

use std::sync::Arc;

use tokio::time::{Instant, timeout_at};

use super::alone::Alone;
use super::ask::Reply;
use super::core::Core;
use super::held::Standing;
use super::line::local_denial;
use super::plan::Plan;
use crate::store::{Effect, Verdict};

impl Core {
    /// Tries each of these plans; the replies come in their order.
    pub(super) async fn acquire_each(self: &Arc<Self>, plans: &[Plan]) -> Vec<Reply> {
        if self.closing.is_closed() {
            return plans.iter().map(|_| Reply::ShutDown).collect();
        }
        self.ensure_background();
        let limit = Instant::now() + self.call_timeout;
        let mut replies = Vec::with_capacity(plans.len());
        for plan in plans {
            replies.push(self.known_answer(plan, limit).await);
        }
        let call = match self.breaker.admit() {
            Ok(call) => call,
            Err(error) => {
                let failed =
                    |known: Option<Reply>| known.unwrap_or_else(|| Reply::Failed(error.clone(), None));
                return replies.into_iter().map(failed).collect();
            }
        };
        let began = Instant::now();
        let mut asked: Vec<(usize, Alone<'_>)> = Vec::new();
        let mut attempts = Vec::new();
        for (place, plan) in plans.iter().enumerate().filter(|(place, _)| replies[*place].is_none()) {
            let mut alone = Alone::new(self, plan);
            attempts.push(alone.begin().attempt);
            asked.push((place, alone));
        }
        if attempts.is_empty() {
            return replies.into_iter().flatten().collect();
        }
        // The store has its own time limit; this is for one that has not.
        let answers = timeout_at(began + self.call_timeout * 2, self.store.acquire_each(&attempts)).await;
        let answers = answers.unwrap_or_else(|_| attempts.iter().map(|_| Err(self.no_answer())).collect());
        let mut told = false;
        for ((place, mut alone), answer) in asked.into_iter().zip(answers) {
            let revoked = alone.called();
            replies[place] = Some(match answer {
                Ok(verdict) => {
                    self.breaker.answered();
                    match verdict {
                        Verdict::Granted(grant) => alone.granted(grant, began, revoked).await,
                        Verdict::Denied(denial) => alone.denied(denial),
                    }
                }
                Err(error) => {
                    // One exchange that failed is one failure, of however many attempts.
                    if !std::mem::replace(&mut told, true) {
                        self.breaker.failed(call, &error);
                    }
                    if let Some(flight) = &mut alone.flight {
                        flight.doubtful |= error.effect() == Effect::Unknown;
                    }
                    alone.failed(error)
                }
            });
        }
        replies.into_iter().flatten().collect()
    }

    /// The answer that this process has itself, once what it is giving back is out of the way.
    async fn known_answer(&self, plan: &Plan, limit: Instant) -> Option<Reply> {
        if let Err(error) = self.let_out(plan, limit).await {
            return Some(Reply::Failed(error, None));
        }
        loop {
            match self.lines.in_the_way(&plan.claims)? {
                (claim, held, Standing::Valid) => {
                    self.background.heard.watch(&held);
                    let denial = local_denial(&held, claim, plan.claims[claim].on());
                    return Some(Reply::denied(denial, plan));
                }
                (_, held, _) => {
                    if let Err(error) = self.over_by(limit, &held).await {
                        return Some(Reply::Failed(error, None));
                    }
                }
            }
        }
    }
}
