//! The attempt that a lease was granted to.

use std::borrow::Borrow;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use super::Held;
use crate::lease::Attempt;
use crate::sync::atomic::{AtomicU64, Ordering};

#[derive(Debug)]
pub(super) enum Asked {
    /// It was made before the lease, and others may have it.
    Shared {
        attempt: Arc<Attempt>,
        /// In nanoseconds; 0: the clock that does not stop when the machine sleeps has no say. Where the attempt is a part of the
        /// lease, it never has: its engine sleeps as well.
        boot_until: AtomicU64,
    },
    /// It is part of the lease: an engine in this process keeps that instead.
    Own(Attempt),
}

impl Deref for Asked {
    type Target = Attempt;

    fn deref(&self) -> &Attempt {
        match self {
            Self::Shared { attempt, .. } => attempt,
            Self::Own(attempt) => attempt,
        }
    }
}

impl Asked {
    pub(super) const fn shared(attempt: Arc<Attempt>) -> Self {
        Self::Shared { attempt, boot_until: AtomicU64::new(0) }
    }

    /// For those who want it by itself.
    pub(super) fn by_itself(&self) -> Arc<Attempt> {
        match self {
            Self::Shared { attempt, .. } => attempt.clone(),
            Self::Own(attempt) => Arc::new(attempt.granted_again()),
        }
    }

    /// To be called under the lock of the lease's state, or before anybody else has it.
    pub(super) fn set_boot_until(&self, until: Option<Duration>) {
        if let Self::Shared { boot_until, .. } = self {
            // The clock counts from the start of the machine, so nothing is cut.
            let until = until.map_or(0, |until| until.as_nanos().try_into().unwrap_or(u64::MAX).max(1));
            boot_until.store(until, Ordering::Release);
        }
    }

    pub(super) fn boot_until(&self) -> Option<Duration> {
        match self {
            Self::Shared { boot_until, .. } => {
                Some(boot_until.load(Ordering::Acquire)).filter(|until| *until > 0).map(Duration::from_nanos)
            }
            Self::Own(_) => None,
        }
    }
}

impl Borrow<Attempt> for Held {
    fn borrow(&self) -> &Attempt {
        &self.asked
    }
}
