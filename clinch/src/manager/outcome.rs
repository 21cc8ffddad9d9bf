//! What comes of an attempt.

use super::guard::LockGuard;
use crate::error::{Denied, Error};

/// What came of an attempt, told apart.
#[derive(Debug)]
#[must_use = "an outcome may hold the lock"]
#[non_exhaustive]
pub enum Outcome {
    /// The lock is held; the guard is in it.
    Acquired(LockGuard),
    /// The same [scope](crate::LockManager::scope) holds the lock already, and this is another guard of it.
    Reentered(LockGuard),
    /// Somebody else has the lock. For a duplicate this means: drop it.
    DeniedByLock(Denied),
    /// All permits of a limit are taken: try again later.
    DeniedByLimit(Denied),
    /// The engine failed and the caller goes on unprotected, as [`Strategy::Proceed`](crate::Strategy::Proceed) asks: the
    /// guard [is degraded](crate::Lease::is_degraded).
    Unprotected(LockGuard),
    /// The engine failed and nothing is held: stop, and try again later.
    EngineFailed(Error),
}

impl Outcome {
    /// The guard, if there is one, degraded or not.
    pub fn guard(self) -> Option<LockGuard> {
        match self {
            Self::Acquired(guard) | Self::Reentered(guard) | Self::Unprotected(guard) => Some(guard),
            Self::DeniedByLock(_) | Self::DeniedByLimit(_) | Self::EngineFailed(_) => None,
        }
    }

    /// The guard, or nothing if the attempt was denied.
    pub(super) fn or_denied(self) -> Result<Option<LockGuard>, Error> {
        match self {
            Self::EngineFailed(error) => Err(error),
            outcome => Ok(outcome.guard()),
        }
    }

    /// The guard, or why there is none.
    pub(super) fn or_error(self) -> Result<LockGuard, Error> {
        match self {
            Self::Acquired(guard) | Self::Reentered(guard) | Self::Unprotected(guard) => Ok(guard),
            Self::DeniedByLock(denied) | Self::DeniedByLimit(denied) => Err(Error::denied(denied)),
            Self::EngineFailed(error) => Err(error),
        }
    }
}
