//! What is seen of an attempt from outside: its span, and what came of it.

use tokio::time::Instant;
use tracing::Span;
use tracing::field::Empty;

use super::outcome::Outcome;
use crate::error::{DeniedBy, Error};
use crate::lease::{Claim, Space};
use crate::telemetry::{Attempted, Meter, Telemetry};

/// How a wish is seen.
#[derive(Debug)]
pub(super) struct Seen {
    /// Of nothing, where nobody listens.
    pub(super) span: Span,
    pub(super) meter: Meter,
    pub(super) began: Instant,
}

impl Seen {
    /// Under the name of its guard, if it has one, or else as what it is.
    pub(super) fn new(telemetry: &Telemetry, name: Option<&str>, claims: &[Claim], began: Instant) -> Self {
        let on = claims[0].on();
        let guard = name.unwrap_or(match on.space {
            _ if claims.len() > 1 => "several",
            Space::Lock => "lock",
            Space::Permit => "limit",
            Space::Duplicate => "duplicate",
            Space::Idempotency => "idempotency",
        });
        let span = tracing::debug_span!("attempt", key = %on, guard, outcome = Empty, waited_ms = Empty);
        Self { span, meter: telemetry.meter(guard), began }
    }

    pub(super) fn waited_ms(&self) -> f64 {
        self.began.elapsed().as_secs_f64() * 1e3
    }

    /// The attempt begins.
    pub(super) fn attempting(&self, claims: &[Claim]) -> Attempting {
        Attempting {
            span: self.span.clone(),
            meter: self.meter.clone(),
            began: self.began,
            space: claims[0].on().space,
            outcome: Attempted::Cancelled,
        }
    }
}

/// An attempt that is under way. If it is dropped before it has ended, its caller is gone.
#[derive(Debug)]
pub(super) struct Attempting {
    span: Span,
    meter: Meter,
    began: Instant,
    space: Space,
    outcome: Attempted,
}

impl Attempting {
    /// A try of a lock that nobody listens to began then.
    pub(super) fn unheard(telemetry: &Telemetry, name: Option<&str>, began: Instant) -> Self {
        let meter = telemetry.meter(name.unwrap_or("lock"));
        Self { span: Span::none(), meter, began, space: Space::Lock, outcome: Attempted::Cancelled }
    }

    pub(super) const fn denied_by_lock(&mut self) {
        self.outcome = Attempted::DeniedByLock;
    }

    pub(super) fn ended(mut self, result: &Result<Outcome, Error>) {
        self.outcome = match result {
            Ok(outcome) => self.word(outcome),
            Err(Error::ShutDown { .. }) => Attempted::ShutDown,
            Err(_) => Attempted::Invalid,
        };
    }

    const fn word(&self, outcome: &Outcome) -> Attempted {
        match outcome {
            Outcome::Acquired(_) => Attempted::Acquired,
            Outcome::Reentered(_) => Attempted::Reentered,
            Outcome::Unprotected(_) => Attempted::Unprotected,
            Outcome::EngineFailed(_) => Attempted::EngineFailed,
            Outcome::DeniedByLimit(_) => Attempted::DeniedByLimit,
            Outcome::DeniedByLock(denied) => match denied.cause {
                DeniedBy::TooLate => Attempted::TooLate,
                DeniedBy::Revoked => Attempted::Revoked,
                _ if self.space.keeps_records() => Attempted::Duplicate,
                _ => Attempted::DeniedByLock,
            },
        }
    }
}

impl Drop for Attempting {
    fn drop(&mut self) {
        self.meter.attempted(self.outcome, self.began);
        if !self.span.is_disabled() {
            self.span.record("outcome", self.outcome.word());
            self.span.record("waited_ms", self.began.elapsed().as_secs_f64() * 1e3);
        }
    }
}
