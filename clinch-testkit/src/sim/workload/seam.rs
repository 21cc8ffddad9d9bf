//! What is read off a guard for the history, in one place: where the manager learns to tell more, only this changes.

use clinch::{Lease, LockGuard};

/// What the history wants to know of a guard besides its token.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Facts {
    /// Its fence, the number of the local pass included.
    pub(super) fence: Option<u64>,
    /// The engine failed, and the caller goes on unprotected.
    pub(super) degraded: bool,
}

/// What a guard tells.
pub(super) const fn of_guard(_guard: &LockGuard) -> Facts {
    Facts { fence: None, degraded: false }
}

/// What the lease inside a block tells.
pub(super) const fn of_lease(_lease: &Lease) -> Facts {
    Facts { fence: None, degraded: false }
}
