//! What a table of keys holds: mostly one lease of each, and nothing else.

use std::ops::Deref;
use std::sync::Arc;

use super::slot::Slot;
use crate::key::hash::OfKey;
use crate::lease::ClaimKey;
use crate::manager::held::Held;

/// What is known of one key.
#[derive(Debug)]
pub(super) enum Known {
    /// This lease, which has no other key, and nothing else.
    Lease(Arc<Held>),
    More(Box<(ClaimKey, Slot)>),
}

impl OfKey for Known {
    fn on(&self) -> &ClaimKey {
        match self {
            Self::Lease(held) => held.on(),
            Self::More(more) => &more.0,
        }
    }
}

impl Known {
    /// As little as says all of the slot.
    pub(super) fn of(on: &ClaimKey, slot: Slot) -> Self {
        match slot.into_only_lease() {
            Ok(held) => Self::Lease(held),
            Err(slot) => Self::More(Box::new((on.clone(), slot))),
        }
    }

    /// Runs `step` on it as a slot. Says which leases were found to be over, and whether nothing is left to know.
    pub(super) fn with<T>(
        &mut self,
        on: &ClaimKey,
        step: impl FnOnce(&mut Slot) -> T,
    ) -> (T, Vec<Arc<Held>>, bool) {
        let mut made;
        let small = matches!(self, Self::Lease(_));
        let slot = match self {
            // It needs no memory of its own unless there is more to know after the step.
            Self::Lease(held) => {
                made = Slot::of(held.clone());
                &mut made
            }
            Self::More(more) => &mut more.1,
        };
        let value = step(slot);
        slot.tidy();
        let forgotten = std::mem::take(&mut slot.forgotten);
        let idle = slot.is_idle();
        if !idle && (small || slot.is_only_lease()) {
            let slot = std::mem::take(slot);
            *self = Self::of(on, slot);
        }
        (value, forgotten, idle)
    }

    pub(super) fn leases(&self) -> &[Arc<Held>] {
        match self {
            Self::Lease(held) => std::slice::from_ref(held),
            Self::More(more) => &more.1.leases,
        }
    }

    pub(super) fn slot(&self) -> Option<&Slot> {
        match self {
            Self::Lease(_) => None,
            Self::More(more) => Some(&more.1),
        }
    }

    pub(super) fn slot_mut(&mut self) -> Option<&mut Slot> {
        match self {
            Self::Lease(_) => None,
            Self::More(more) => Some(&mut more.1),
        }
    }
}

/// None, one or several, of which one needs no memory of its own.
#[derive(Debug)]
pub(super) enum Few<T> {
    One(T),
    /// Or none, or one of several that were there.
    Any(Vec<T>),
}

impl<T> Default for Few<T> {
    fn default() -> Self {
        Self::Any(Vec::new())
    }
}

impl<T> Deref for Few<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        match self {
            Self::One(one) => std::slice::from_ref(one),
            Self::Any(any) => any,
        }
    }
}

impl<T> Few<T> {
    pub(super) fn push(&mut self, new: T) {
        *self = match std::mem::take(self) {
            Self::Any(any) if any.is_empty() => Self::One(new),
            Self::Any(mut any) => {
                any.push(new);
                Self::Any(any)
            }
            Self::One(one) => Self::Any(vec![one, new]),
        };
    }

    pub(super) fn retain(&mut self, mut keep: impl FnMut(&T) -> bool) {
        match self {
            Self::One(one) if keep(one) => {}
            Self::One(_) => *self = Self::default(),
            Self::Any(any) => any.retain(keep),
        }
    }

    /// The only one.
    pub(super) fn into_only(self) -> Result<T, Self> {
        match self {
            Self::One(one) => Ok(one),
            Self::Any(mut any) if any.len() == 1 => any.pop().ok_or_else(Self::default),
            any @ Self::Any(_) => Err(any),
        }
    }
}
