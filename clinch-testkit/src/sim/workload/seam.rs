//! What the workload asks a manager for, and what it reads off its answers, in one place.

use std::time::Duration;

use clinch::lease::Space;
use clinch::{Error, Key, Lease, LockGuard, LockManager, LockOptions, Outcome as Answer, Strategy};

use super::manager::{Ask, Kind, Renew, denial, failure, key_of};
use crate::history::{HeldClaim, Outcome, Role, Wanted};

/// The TTL of a permit that comes along with a lock: another than the lock's.
const PERMIT_TTL: Duration = Duration::from_millis(3_000);

/// How it is asked for.
pub(super) fn options(manager: &LockManager, ask: &Ask) -> LockOptions {
    let mut options = LockOptions::new(ask.ttl).wait(ask.wait).retry_interval(ask.retry);
    options = match ask.renew {
        Some(Renew { every, up_to: None }) => options.renew_every(every),
        Some(Renew { every, up_to: Some(up_to) }) => options.renew_every(every).renew_for(up_to),
        None => options,
    };
    if ask.proceed {
        options = options.strategy(Strategy::Proceed);
    }
    match &ask.kind {
        Kind::Plain | Kind::Several(_) | Kind::Permit(_) => options,
        Kind::Fenced => options.fenced(),
        Kind::Shared => options.shared(),
        Kind::Fair => options.fair_within(Duration::from_millis(700)),
        Kind::Limited(of) => match manager.limit(ask.key.as_str(), *of) {
            Ok(limit) => options.limited_by(&limit, PERMIT_TTL),
            Err(_) => options,
        },
    }
}

/// Asks.
pub(super) async fn attempt(manager: &LockManager, ask: &Ask) -> Result<Answer, Error> {
    let options = options(manager, ask);
    match &ask.kind {
        Kind::Permit(of) => manager.limit(ask.key.as_str(), *of)?.attempt(options).await,
        Kind::Several(others) => {
            let keys = std::iter::once(&ask.key).chain(others).map(String::as_str);
            manager.attempt_all(keys, options).await
        }
        _ => manager.attempt(ask.key.as_str(), options).await,
    }
}

/// The keys that are asked for, with their spaces, each with its role, TTL and number.
fn claims(ask: &Ask) -> Vec<(String, Role, Duration, u32)> {
    let lock = |key: &str, role| (key_of(Space::Lock, key), role, ask.ttl, 1);
    let permit = |ttl, of| (key_of(Space::Permit, &ask.key), Role::Permit, ttl, of);
    match &ask.kind {
        Kind::Plain | Kind::Fenced | Kind::Fair => vec![lock(&ask.key, Role::Exclusive)],
        Kind::Shared => vec![lock(&ask.key, Role::Shared)],
        Kind::Permit(of) => vec![permit(ask.ttl, *of)],
        Kind::Limited(of) => vec![lock(&ask.key, Role::Exclusive), permit(PERMIT_TTL, *of)],
        Kind::Several(others) => {
            std::iter::once(&ask.key).chain(others).map(|key| lock(key, Role::Exclusive)).collect()
        }
    }
}

/// What is wanted by that.
pub(super) fn wanted(ask: &Ask) -> Wanted {
    let claims = claims(ask).into_iter().map(|(key, role, _, of)| (key, role, of)).collect();
    Wanted { claims, wait: ask.wait, fair: ask.kind == Kind::Fair, bare: false }
}

/// What the lease then holds.
pub(super) fn held(ask: &Ask, lease: &Lease) -> Vec<HeldClaim> {
    let claim = |(key, role, ttl, _): (String, Role, Duration, u32)| {
        let fence = if role == Role::Exclusive { fence(lease, &key) } else { None };
        HeldClaim { key, role, ttl, fence }
    };
    claims(ask).into_iter().map(claim).collect()
}

fn fence(lease: &Lease, key: &str) -> Option<u64> {
    let key = Key::new(key.split_once(':')?.1).ok()?;
    lease.fence_of(&key).map(clinch::Fence::get)
}

/// The guard that came of an attempt, or what else did.
pub(super) fn guard(answer: Answer) -> Result<LockGuard, Outcome> {
    match answer {
        Answer::Acquired(guard) | Answer::Unprotected(guard) => Ok(guard),
        Answer::DeniedByLock(denied) | Answer::DeniedByLimit(denied) => Err(denial(&denied)),
        Answer::EngineFailed(error) => Err(failure(&error)),
        // No scope is opened here.
        _ => Err(Outcome::Abandoned),
    }
}
