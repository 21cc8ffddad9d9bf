//! The core as guards and looks hold it, and how many guards there are.
//!
//! Every lock that is taken and given back changes both counts, so each thread has its own, and they are one: a guard is
//! a reference to a [`Handle`] of guards.

use std::ops::Deref;
use std::sync::{Arc, Weak};

use super::core::Core;
use crate::apart::of_this_thread;
use crate::sync::atomic::{AtomicUsize, Ordering, fence};

/// How many threads do not meet here.
const STRIPES: usize = 16;

/// Who holds the core.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A guard: as long as there is one, the background task goes on.
    Guard,
    /// A look, or a lease that is no guard's yet, or no more.
    Look,
}

/// One thread's hold on the core. Whoever holds it keeps that of the thread that made it, wherever it goes.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct Handle {
    core: Arc<Core>,
    kind: Kind,
}

impl Deref for Handle {
    type Target = Arc<Core>;

    fn deref(&self) -> &Arc<Core> {
        &self.core
    }
}

/// All handles of a core, which its managers keep.
#[derive(Debug)]
pub(super) struct Handles {
    guards: Box<[Arc<Handle>]>,
    looks: Box<[Arc<Handle>]>,
}

/// The same handles, as the core itself knows them: it must not keep itself alive.
#[derive(Debug)]
pub(super) struct Known {
    guards: Box<[Weak<Handle>]>,
    looks: Box<[Weak<Handle>]>,
}

impl Handles {
    pub(super) fn new(core: &Arc<Core>) -> Self {
        let all = |kind| (0..STRIPES).map(|_| Handle::new(core, kind)).collect();
        Self { guards: all(Kind::Guard), looks: all(Kind::Look) }
    }

    pub(super) fn known(&self) -> Known {
        let all = |handles: &[Arc<Handle>]| handles.iter().map(Arc::downgrade).collect();
        Known { guards: all(&self.guards), looks: all(&self.looks) }
    }

    /// This thread's for a guard.
    #[inline]
    pub(super) fn for_guard(&self) -> Arc<Handle> {
        self.guards[of_this_thread(STRIPES)].clone()
    }
}

impl Known {
    /// How many guards are alive, while there are managers. Zero only if there was a moment without any, as long as none is made
    /// meanwhile. Guards that end while this counts may be among them or not.
    pub(super) fn guards(&self) -> usize {
        // One reference is the managers'.
        let guards = self.guards.iter().map(|handle| handle.strong_count().saturating_sub(1)).sum();
        // What a guard has left to others before it ended is seen from here on.
        fence(Ordering::Acquire);
        guards
    }
}

impl Handle {
    fn new(core: &Arc<Core>, kind: Kind) -> Arc<Self> {
        if kind == Kind::Guard {
            core.holds.0.fetch_add(1, Ordering::Relaxed);
        }
        Arc::new(Self { core: core.clone(), kind })
    }

    /// This thread's. When all managers are gone, and all others that held it, there is none that could be shared.
    #[inline]
    pub(super) fn of(core: &Arc<Core>, kind: Kind) -> Arc<Self> {
        let of_kind = |known: &Known| {
            let handles = if kind == Kind::Guard { &known.guards } else { &known.looks };
            handles.get(of_this_thread(STRIPES))?.upgrade()
        };
        core.handles.get().and_then(of_kind).unwrap_or_else(|| Self::new(core, kind))
    }

    pub(super) fn is_of_guard(&self) -> bool {
        self.kind == Kind::Guard
    }
}

/// The managers are gone, and with them the last guard of this handle, if there was any.
impl Drop for Handle {
    fn drop(&mut self) {
        if self.kind == Kind::Guard && self.core.holds.0.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.core.background.finish();
        }
    }
}

/// How many handles of guards there are. Without any the background task ends.
#[derive(Debug, Default)]
pub(super) struct Holds(AtomicUsize);
