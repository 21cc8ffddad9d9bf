//! Requests with an `Idempotency-Key` are carried out once, and their repetitions are answered from the stored result.
//!
//! As the IETF draft has it: 400 if the header is missing where it is required, or malformed; 422 if the same key comes with
//! another payload; 409 while the first one is running (or wait, and answer with its result); the stored response otherwise,
//! with `Idempotency-Replayed: true`. Keys of one user are nothing to another.
//!
//! Put it behind the authentication of the service: a stored response is answered without asking anything behind this layer.
//! A response that is stored is read to its end, or to the limit of what is stored, before the first client gets any of it. So
//! do not put it before streams that trickle, such as server-sent events.
//!
//! What it cannot promise: if the process dies, or the engine loses its memory, is full or cannot be reached for longer than
//! the TTL of the lease, between the beginning of the handler and the storing of its result, a repetition after that TTL is
//! carried out again.

mod rest;
mod service;
mod stored;

use std::sync::Arc;

use tower_layer::Layer;

pub use self::rest::Rest;
pub use self::service::IdempotencyService;
use super::web::Web;
use crate::error::Error;
use crate::manager::LockOptions;
use crate::submit::{IdempotencyPolicy, InFlight};

/// Carries out requests with an `Idempotency-Key` once. Made by [`Web::idempotency`].
#[derive(Debug, Clone)]
pub struct IdempotencyLayer {
    web: Web,
    policy: Arc<IdempotencyPolicy>,
}

impl IdempotencyLayer {
    pub(super) fn new(web: Web, policy: IdempotencyPolicy) -> Result<Self, Error> {
        policy.check()?;
        if let InFlight::Wait(wait) = policy.in_flight
            && wait > LockOptions::MAX_WAIT
        {
            return Err(Error::option(
                "in_flight",
                &format!("{wait:?}"),
                "accepted is a wait of at most 366 days",
            ));
        }
        let longest = web.guards().locks().max_ttl();
        if !(LockOptions::MIN_TTL..=longest).contains(&policy.lease) {
            let accepted =
                format!("accepted is {:?} to {longest:?} (the manager's `max_ttl`)", LockOptions::MIN_TTL);
            return Err(Error::option("lease", &format!("{:?}", policy.lease), accepted));
        }
        Ok(Self { web, policy: policy.into() })
    }
}

impl<S> Layer<S> for IdempotencyLayer {
    type Service = IdempotencyService<S>;

    fn layer(&self, inner: S) -> IdempotencyService<S> {
        IdempotencyService::new(inner, self.web.clone(), self.policy.clone())
    }
}
