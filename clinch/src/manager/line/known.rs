//! What a table of keys holds: mostly one lease of each, and nothing else.

use std::ops::Deref;
use std::sync::Arc;

use super::slot::Slot;
use crate::key::hash::{OfKey, Table};
use crate::lease::ClaimKey;
use crate::manager::held::Held;

/// What is known of keys. A key is in one of the two tables, so that a place for a lease, of which there are many free ones, is
/// one pointer.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// This lease, which has no other key, and nothing else.
    leases: Table<Arc<Held>>,
    slots: Table<Full>,
}

#[derive(Debug)]
struct Full(Box<(ClaimKey, Slot)>);

impl OfKey for Full {
    fn on(&self) -> &ClaimKey {
        &self.0.0
    }
}

impl Known {
    /// Runs `step` on what is known of the key, as a slot, and forgets it if nothing is left to know. Says which leases were found
    /// to be over.
    pub(super) fn with<T>(
        &mut self,
        on: &ClaimKey,
        step: impl FnOnce(&mut Slot) -> T,
    ) -> (T, Vec<Arc<Held>>) {
        if let Some(mut full) = self.slots.find(on) {
            let slot = &mut full.get_mut().0.1;
            let (value, forgotten) = stepped(slot, step);
            let (idle, small) = (slot.is_idle(), slot.is_only_lease());
            if idle || small {
                let slot = std::mem::take(slot);
                full.remove();
                self.slots.shrink();
                self.put(on, slot, idle);
            }
            return (value, forgotten);
        }
        // It needs no memory of its own unless there is more to know after the step.
        let Some(mut lease) = self.leases.find(on) else {
            let mut slot = Slot::default();
            let value = step(&mut slot);
            let idle = slot.is_idle();
            self.put(on, slot, idle);
            return (value, Vec::new());
        };
        let mut slot = Slot::of(lease.get().clone());
        let (value, forgotten) = stepped(&mut slot, step);
        let idle = slot.is_idle();
        match slot.into_only_lease() {
            Ok(held) => *lease.get_mut() = held,
            Err(slot) => {
                lease.remove();
                self.leases.shrink();
                self.put(on, slot, idle);
            }
        }
        (value, forgotten)
    }

    /// Notes as little as says all of the slot, of a key of which nothing is noted.
    fn put(&mut self, on: &ClaimKey, slot: Slot, idle: bool) {
        if idle {
            return;
        }
        match slot.into_only_lease() {
            Ok(held) => self.leases.insert(held),
            Err(slot) => self.slots.insert(Full(Box::new((on.clone(), slot)))),
        }
    }

    /// Notes a lease of which nothing else is to be known. Nothing is known of its key.
    pub(super) fn insert(&mut self, held: Arc<Held>) {
        self.leases.insert(held);
    }

    /// Whether anything is known of the key.
    pub(super) fn knows(&self, on: &ClaimKey) -> bool {
        self.leases.get(on).is_some() || self.slots.get(on).is_some()
    }

    /// Ends this lease if it is all that is known of the key and `end` does.
    pub(super) fn end<T>(
        &mut self,
        on: &ClaimKey,
        held: &Arc<Held>,
        end: impl FnOnce() -> Option<T>,
    ) -> Option<T> {
        let only = self.leases.find(on).filter(|only| Arc::ptr_eq(only.get(), held))?;
        let ended = end()?;
        only.remove();
        self.leases.shrink();
        Some(ended)
    }

    /// The leases on this key.
    pub(super) fn leases_on(&self, on: &ClaimKey) -> &[Arc<Held>] {
        match self.leases.get(on) {
            Some(held) => std::slice::from_ref(held),
            None => self.slots.get(on).map_or(&[], |full| &full.0.1.leases),
        }
    }

    /// All leases, once for each of their keys.
    pub(super) fn leases(&self) -> impl Iterator<Item = &Arc<Held>> {
        self.leases.iter().chain(self.slots().flat_map(|(_, slot)| slot.leases.iter()))
    }

    /// The slot of a key of which more is known than a lease.
    pub(super) fn slot(&self, on: &ClaimKey) -> Option<&Slot> {
        self.slots.get(on).map(|full| &full.0.1)
    }

    pub(super) fn slot_mut(&mut self, on: &ClaimKey) -> Option<&mut Slot> {
        self.slots.find(on).map(|full| &mut full.into_mut().0.1)
    }

    /// All of them.
    pub(super) fn slots(&self) -> impl Iterator<Item = (&ClaimKey, &Slot)> {
        self.slots.iter().map(|full| (&full.0.0, &full.0.1))
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.leases.is_empty() && self.slots.is_empty()
    }
}

/// The step, and which leases were found to be over.
fn stepped<T>(slot: &mut Slot, step: impl FnOnce(&mut Slot) -> T) -> (T, Vec<Arc<Held>>) {
    let value = step(slot);
    slot.tidy();
    (value, std::mem::take(&mut slot.forgotten))
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
