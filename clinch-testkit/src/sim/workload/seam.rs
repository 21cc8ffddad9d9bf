//! What the workload asks a manager for, and what it reads off its answers, in one place: where the manager learns more,
//! only this changes, with what [`Ask`] draws.

use clinch::{Lease, LockGuard, LockOptions, Outcome as Answer};

use super::manager::{Ask, Renew, denial, failure, key_of};
use crate::history::{HeldClaim, Outcome, Role, Wanted};

/// What the history wants to know of a guard besides its token.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Facts {
    /// Its fence, the number of the local pass included.
    pub(super) fence: Option<u64>,
    /// The engine failed, and the caller goes on unprotected.
    pub(super) degraded: bool,
}

/// How it is asked for.
pub(super) fn options(ask: &Ask) -> LockOptions {
    let options = LockOptions::new(ask.ttl).wait(ask.wait).retry_interval(ask.retry);
    match ask.renew {
        Some(Renew { every, up_to: None }) => options.renew_every(every),
        Some(Renew { every, up_to: Some(up_to) }) => options.renew_every(every).renew_for(up_to),
        None => options,
    }
}

/// What is wanted by that.
pub(super) fn wanted(ask: &Ask) -> Wanted {
    let claims = vec![(key_of(&ask.key), Role::Exclusive, 1)];
    Wanted { claims, wait: ask.wait, fair: false, bare: false }
}

/// What a guard then holds.
pub(super) fn held(ask: &Ask, facts: Facts) -> Vec<HeldClaim> {
    vec![HeldClaim { key: key_of(&ask.key), role: Role::Exclusive, ttl: ask.ttl, fence: facts.fence }]
}

/// The guard that came of an attempt, or what else did.
pub(super) fn guard(answer: Answer) -> Result<LockGuard, Outcome> {
    match answer {
        Answer::Acquired(guard) => Ok(guard),
        Answer::DeniedByLock(denied) => Err(denial(&denied)),
        Answer::EngineFailed(error) => Err(failure(&error)),
        // There is no other outcome yet.
        _ => Err(Outcome::Abandoned),
    }
}

/// What a guard tells.
pub(super) const fn of_guard(_guard: &LockGuard) -> Facts {
    Facts { fence: None, degraded: false }
}

/// What the lease inside a block tells.
pub(super) const fn of_lease(_lease: &Lease) -> Facts {
    Facts { fence: None, degraded: false }
}
