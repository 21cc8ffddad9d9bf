//! Grants that replicas must confirm: the acquire and a `WAIT` go out together, over a connection that nobody else uses
//! meanwhile. Elsewhere `WAIT` would answer for nothing, and on the shared connection it would keep everybody waiting.
//!
//! It makes the window in which a failover forgets a lock narrower and does not close it: the replica that is promoted need not
//! be the one that confirmed, and what was confirmed is not on any disk.

use redis::Value;

use super::address::Replicas;
use super::error::nonsense;
use crate::lease::Attempt;
use crate::store::{ErrorKind, Release, StoreError};
use crate::stores::StoreOptions;

/// Whether replicas can be waited for within the limit of a call.
pub(super) fn check(replicas: Option<Replicas>, options: &StoreOptions) -> Result<(), StoreError> {
    match replicas {
        Some(replicas) if replicas.within >= options.call_timeout => {
            let reason = format!(
                "`replicas_timeout` is {:?}, but a call may take {:?} in all; accepted is less than that",
                replicas.within, options.call_timeout
            );
            Err(StoreError::not_applied(ErrorKind::Config, reason))
        }
        _ => Ok(()),
    }
}

/// The answer to the acquire alone, and what is to be told if it was a grant: that too few confirmed it.
pub(super) fn read(
    answer: Value,
    replicas: Option<Replicas>,
) -> Result<(Value, Option<StoreError>), StoreError> {
    let Some(replicas) = replicas else { return Ok((answer, None)) };
    let (answer, confirmed): (Value, Value) = redis::from_redis_value(answer).map_err(nonsense)?;
    // A `WAIT` that fails confirms nothing: a user who may not, or a primary that is demoted meanwhile, which ends all of them.
    let (confirmed, why) = match confirmed {
        Value::ServerError(error) => (0, format!(" ({error})")),
        confirmed => (redis::from_redis_value::<u32>(confirmed).map_err(nonsense)?, String::new()),
    };
    let too_few = (confirmed < replicas.least).then(|| {
        let message = format!(
            "too few replicas confirmed it: {confirmed} of {} within {:?}{why}; it was given back",
            replicas.least, replicas.within
        );
        StoreError::not_applied(ErrorKind::Refused, message)
    });
    Ok((answer, too_few))
}

/// What a store says that is asked for what it is giving back: the release might arrive after the grant.
pub(super) fn being_taken_back(attempt: &Attempt) -> Option<StoreError> {
    let why = "what this attempt had is still being taken back";
    attempt.route().is_taking_back().then(|| StoreError::unknown(ErrorKind::Busy, why))
}

/// Gives back what too few confirmed, by `release`, and says what is told of it: something else if that fails too.
pub(super) async fn give_back(
    attempt: &Attempt,
    too_few: StoreError,
    release: impl Future<Output = Result<Release, StoreError>>,
) -> StoreError {
    attempt.route().taking_back();
    match release.await {
        Ok(_) => {
            attempt.route().took_back();
            too_few
        }
        Err(error) => {
            let message = format!("{}, or so it should be: {}", too_few.message(), error.message());
            StoreError::unknown(error.kind(), message)
        }
    }
}
