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
    /// Somebody else has the lock. For a duplicate this means: drop it.
    DeniedByLock(Denied),
    /// The engine failed and nothing is held: stop, and try again later.
    EngineFailed(Error),
}

impl Outcome {
    /// The guard, if there is one.
    pub fn guard(self) -> Option<LockGuard> {
        match self {
            Self::Acquired(guard) => Some(guard),
            Self::DeniedByLock(_) | Self::EngineFailed(_) => None,
        }
    }
}
