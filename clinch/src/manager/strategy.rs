//! What happens when the engine fails.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::ask::{Doubtful, Reply};
use super::core::Core;
use super::held::Held;
use super::line::local_denial;
use super::options::Strategy;
use super::plan::Plan;
use super::tenure::Tenure;
use crate::store::{ErrorKind, StoreError};

/// The pause before the one more try, to which jitter is added.
const RETRY_PAUSE: Duration = Duration::from_millis(100);

/// Whether such a failure is the engine's, as opposed to a wish that no engine could fulfil.
const fn is_engine_failure(kind: ErrorKind) -> bool {
    // Nor are too many calls of this process.
    !matches!(
        kind,
        ErrorKind::WrongType
            | ErrorKind::Unsupported
            | ErrorKind::Config
            | ErrorKind::Closed
            | ErrorKind::Overloaded
    )
}

impl Core {
    /// Takes the lease, or does what the plan says for the case that the engine fails.
    pub(super) async fn acquire_by_strategy(self: &Arc<Self>, plan: &Plan) -> Reply {
        match self.acquire(plan).await {
            // Rare: not part of everybody's future.
            Reply::Failed(error, doubtful) => Box::pin(self.after_failure(plan, error, doubtful)).await,
            reply => reply,
        }
    }

    /// What the plan says for the case that the engine fails.
    pub(super) async fn after_failure(
        self: &Arc<Self>,
        plan: &Plan,
        error: StoreError,
        doubtful: Option<Doubtful>,
    ) -> Reply {
        match self.strategy(plan) {
            // A waiter has tried until its time was over.
            Strategy::RetryOnce if plan.is_try() && error.is_retryable() => {
                // Out of the way before it is asked again.
                drop(doubtful);
                self.complain("acquire", plan.claims[0].on(), &error);
                sleep(self.sources.jittered(RETRY_PAUSE)).await;
                Box::pin(self.acquire(plan)).await
            }
            Strategy::Proceed if is_engine_failure(error.kind()) => self.proceed(plan, &error, doubtful),
            _ => Reply::Failed(error, doubtful),
        }
    }

    /// Goes on without the engine, unless somebody in this process stands in the way.
    fn proceed(self: &Arc<Self>, plan: &Plan, error: &StoreError, doubtful: Option<Doubtful>) -> Reply {
        // It keeps its token: if it was granted after all, it is given back at the end and not before.
        let kept = doubtful.and_then(Doubtful::keep);
        let attempt = kept.unwrap_or_else(|| Arc::new(self.new_attempt(plan)));
        // A lease that would be renewed is wanted for longer than its TTL.
        let lasts =
            plan.options.renewal_interval().map_or(attempt.ttl(), |(_, up_to)| up_to.max(attempt.ttl()));
        let now = Instant::now();
        let until = now.checked_add(lasts).unwrap_or_else(|| now + super::LockOptions::MAX_WAIT);
        let held = Arc::new(Held::degraded(attempt, until, plan.scope));
        match self.lines.hold(&held) {
            Ok(()) => {
                self.unprotected(plan.claims[0].on(), error);
                Reply::Granted(Tenure::new(held, 0, self, false))
            }
            Err((claim, other)) => {
                if held.attempt().sent_at().is_some() {
                    self.lines.take_back(held.shared_attempt());
                }
                Reply::denied(local_denial(&other, claim, plan.claims[claim].on()), plan)
            }
        }
    }
}
