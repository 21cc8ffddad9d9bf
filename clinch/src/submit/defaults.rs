//! What guards do where they do not say so themselves.

use std::sync::{Arc, LazyLock};

use super::policy::{DuplicatePolicy, IdempotencyPolicy, LimitPolicy, LockPolicy};

/// The policies from which guards begin: an attribute changes only what it states, and
/// [`Guards::duplicate_policy`](super::Guards::duplicate_policy) and its siblings give them to layers and plain calls.
///
/// What a lock or a limit is about (its key, its number) is always said where the guard stands, never here.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Defaults {
    /// Of duplicate guards.
    pub duplicate: DuplicatePolicy,
    /// Of locks.
    pub lock: LockPolicy,
    /// Of limits.
    pub limit: LimitPolicy,
    /// Of guards of idempotency keys.
    pub idempotency: IdempotencyPolicy,
}

impl Defaults {
    /// Those that nobody set. Always the same one, so that what attributes make of it is made once.
    pub(crate) fn unset() -> Arc<Self> {
        static UNSET: LazyLock<Arc<Defaults>> = LazyLock::new(Arc::default);
        UNSET.clone()
    }
}
