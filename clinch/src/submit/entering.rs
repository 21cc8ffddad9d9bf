//! The way of a submission through a duplicate guard.

use std::fmt;
#[cfg(feature = "http")]
use std::pin::Pin;
use std::time::Duration;

use tokio::time::Instant;

use super::admission::{Admission, Ending};
use super::guards::Guards;
use super::policy::{Disconnect, DuplicatePolicy};
use super::submission::Submission;
use crate::error::{Denied, DeniedBy, Error};
use crate::manager::{LockOptions, Outcome, Stay, Taking, Waiting};
use crate::telemetry::{Stopwatch, Visit};

/// Somebody who came to a guard. What needs no waiting was done at once, and is no part of anybody's future.
pub(crate) enum Entered<'a> {
    Over(Result<Admission, Error>),
    /// A submission to which the engine's answer is to come.
    Waits(Entering<'a>, Waiting<'a>),
    /// At another kind of guard.
    #[cfg(feature = "http")]
    Other(Pin<Box<dyn Future<Output = Result<Admission, Error>> + Send + 'a>>),
}

/// What is to be made of the engine's answer.
pub(crate) struct Entering<'a> {
    guards: &'a Guards,
    policy: &'a DuplicatePolicy,
    interval: Duration,
    visit: Visit,
}

impl Guards {
    /// Lets a submission of somebody who came then in; whoever calls it logs a refusal.
    pub(crate) fn enter_duplicate<'a>(
        &'a self,
        policy: &'a DuplicatePolicy,
        submission: &Submission,
        since: Stopwatch,
    ) -> Entered<'a> {
        if !self.is_on(policy.enabled) {
            return Entered::Over(Ok(Admission::unguarded()));
        }
        let guard = policy.guard(submission);
        let visit = self.come(guard, since);
        let interval = self.clamp(guard, policy.interval);
        let entering = Entering { guards: self, policy, interval, visit };
        match entering.attempt(guard, submission) {
            Ok(Taking::Waits(waiting)) => Entered::Waits(entering, waiting),
            Ok(Taking::Ended(outcome)) => Entered::Over(entering.with(outcome)),
            Err(error) => Entered::Over(entering.with(Err(error))),
        }
    }
}

impl fmt::Debug for Entered<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if matches!(self, Self::Over(_)) { "Entered(over)" } else { "Entered(waits)" })
    }
}

impl Entered<'_> {
    /// What came of it.
    pub(crate) async fn admitted(self) -> Result<Admission, Error> {
        match self {
            Self::Over(admitted) => admitted,
            Self::Waits(entering, waiting) => {
                let outcome = waiting.await;
                entering.with(outcome)
            }
            #[cfg(feature = "http")]
            Self::Other(admitted) => admitted.await,
        }
    }
}

impl<'a> Entering<'a> {
    /// Takes the place of the submission.
    fn attempt(&self, guard: &str, submission: &Submission) -> Result<Taking<'a>, Error> {
        let Self { guards, policy, interval, .. } = *self;
        policy.check()?;
        let key = submission.key(policy, guards.hasher(), guards.settings().limits)?;
        let mut options = guards.with_strategy(LockOptions::new(interval), policy.strategy);
        if policy.renew {
            options = options.renew();
        }
        if submission.comes_again(&key) {
            // A request is no duplicate of itself; two calls of a function are, and two requests inside of another.
            options = options.reentrant();
        }
        guards.locks().attempt_duplicate(guard, key, options)
    }

    /// What becomes of it by this outcome.
    fn with(self, outcome: Result<Outcome, Error>) -> Result<Admission, Error> {
        let Self { guards, policy, interval, visit } = self;
        let kept = match outcome {
            // The lease was made for the interval of another guard.
            Ok(Outcome::Reentered(_)) => Stay::Until(Instant::now() + interval),
            _ => Stay::Rest,
        };
        let ending = Ending {
            release: policy.release,
            // It is within the policy's own interval, which may be longer than the longest one.
            min_hold: policy.min_hold.min(interval),
            kept,
            kept_on_drop: policy.disconnect == Disconnect::Hold,
        };
        let refused = |denied: Denied| match denied.cause {
            DeniedBy::Lock | DeniedBy::Done => Error::DuplicateSubmit {
                message: policy.message.clone(),
                remaining: denied.retry_after.unwrap_or(Duration::from_millis(1)),
                in_progress: denied.cause == DeniedBy::Lock,
                key: denied.key,
            },
            _ => Error::denied(denied),
        };
        guards.admit(outcome, ending, policy.shadow, visit, refused)
    }
}
