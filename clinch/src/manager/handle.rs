//! The core as guards and looks hold it, and how many guards there are.
//!
//! Every lock that is taken and given back changes both counts, so each thread has its own: of the references to a [`Handle`], and
//! of the guards that were made with it.

use std::ops::Deref;
use std::sync::{Arc, Weak};

use super::core::Core;
use crate::apart::{Apart, of_this_thread};
use crate::sync::atomic::{AtomicUsize, Ordering};

/// How many threads do not meet here.
const STRIPES: usize = 16;

/// One thread's hold on the core. A guard keeps that of the thread that made it, wherever it goes.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct Handle {
    core: Arc<Core>,
    stripe: usize,
}

impl Deref for Handle {
    type Target = Arc<Core>;

    fn deref(&self) -> &Arc<Core> {
        &self.core
    }
}

/// All handles of a core, which its managers keep.
#[derive(Debug)]
pub(super) struct Handles(Box<[Arc<Handle>]>);

/// The same handles, as the core itself knows them: it must not keep itself alive.
pub(super) type Known = Box<[Weak<Handle>]>;

impl Handles {
    pub(super) fn new(core: &Arc<Core>) -> Self {
        let handle = |stripe| Arc::new(Handle { core: core.clone(), stripe });
        Self((0..STRIPES).map(handle).collect())
    }

    pub(super) fn known(&self) -> Known {
        self.0.iter().map(Arc::downgrade).collect()
    }
}

impl Handle {
    /// This thread's. When all managers are gone, and all guards of its kind, there is none that could be shared.
    #[inline]
    pub(super) fn of(core: &Arc<Core>) -> Arc<Self> {
        let stripe = of_this_thread(STRIPES);
        let known = core.handles.get().and_then(|handles| handles.get(stripe)?.upgrade());
        known.unwrap_or_else(|| Arc::new(Self { core: core.clone(), stripe }))
    }

    /// A guard is made that keeps this handle.
    pub(super) fn guard_made(&self) {
        self.core.guards.0[self.stripe].fetch_add(1, Ordering::SeqCst);
    }

    /// A guard that kept this handle is no more.
    pub(super) fn guard_gone(&self) {
        self.core.guards.0[self.stripe].fetch_sub(1, Ordering::SeqCst);
        self.core.finish_if_last();
    }
}

/// How many guards are alive.
#[derive(Debug)]
pub(super) struct Guards(Box<[Apart<AtomicUsize>]>);

impl Default for Guards {
    fn default() -> Self {
        Self((0..STRIPES).map(|_| Apart::default()).collect())
    }
}

impl Guards {
    /// Zero only if there was a moment without any, as long as none is made meanwhile. Guards that end while this counts may be
    /// among them or not.
    pub(super) fn count(&self) -> usize {
        self.0.iter().map(|guards| guards.load(Ordering::SeqCst)).sum()
    }
}
