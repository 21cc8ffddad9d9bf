//! The attempt that a lease was granted to.

use std::borrow::Borrow;
use std::ops::Deref;
use std::sync::Arc;

use super::Held;
use crate::lease::Attempt;

#[derive(Debug)]
pub(super) enum Asked {
    /// It was made before the lease, and others may have it.
    Shared(Arc<Attempt>),
    /// It is part of the lease: an engine in this process keeps that instead.
    Own(Attempt),
}

impl Deref for Asked {
    type Target = Attempt;

    fn deref(&self) -> &Attempt {
        match self {
            Self::Shared(attempt) => attempt,
            Self::Own(attempt) => attempt,
        }
    }
}

impl Asked {
    /// For those who want it by itself.
    pub(super) fn shared(&self) -> Arc<Attempt> {
        match self {
            Self::Shared(attempt) => attempt.clone(),
            Self::Own(attempt) => Arc::new(attempt.granted_again()),
        }
    }
}

impl Borrow<Attempt> for Held {
    fn borrow(&self) -> &Attempt {
        &self.asked
    }
}
