//! A lock that is held, and a look at it.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use super::core::{Core, Life};
use super::held::{Held, Loss, Telling};
use super::renew::Renewing;
use crate::error::Error;
use crate::key::Key;
use crate::lease::Token;

/// A look at a lease: what it is on, how long it is good for, when it is lost. It gives no right to release.
///
/// Clones look at the same lease. A look outlives the guard; then the lease is over and [`lost`](Self::lost) says so.
#[derive(Clone)]
pub struct Lease {
    held: Arc<Held>,
    core: Arc<Core>,
}

impl Lease {
    /// The key.
    pub fn key(&self) -> &Key {
        &self.held.on().key
    }

    /// The token under which the engine has it. Whoever knows it can release the lease: do not log it.
    pub fn token(&self) -> &Token {
        self.held.attempt().token()
    }

    /// How long the lease is still valid: from just before it was asked for, minus drift. Zero once it is lost or
    /// given back.
    pub fn remaining(&self) -> Duration {
        self.held.remaining()
    }

    /// Whether the lease is still valid, by the clock that does not stop when the machine sleeps.
    ///
    /// A true answer is already a little old. Where a late write would do harm, check a fence at the resource.
    pub fn is_valid(&self) -> bool {
        !self.remaining().is_zero()
    }

    /// Waits until the lease no longer protects, and says why: its validity ended, the engine gave it to somebody
    /// else, somebody ended it by force, or it was given back.
    ///
    /// Fires no later than the end of the validity, even while a renewal hangs, and up to 1 ms early, because timers
    /// are that coarse. It cannot fire while the runtime is blocked; check [`is_valid`](Self::is_valid) after work that
    /// blocks.
    ///
    /// # Cancel safety
    /// Safe: nothing is lost when the future is dropped; call it again.
    pub async fn lost(&self) -> Loss {
        self.core.ensure_background();
        let heard = &self.core.background.heard;
        loop {
            let since = heard.since();
            heard.watch(&self.held);
            tokio::select! {
                biased;
                loss = self.held.lost() => return loss,
                () = heard.begun_after(since) => {}
            }
        }
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease")
            .field("key", self.key())
            .field("remaining", &self.remaining())
            .finish_non_exhaustive()
    }
}

/// A lock that is held. It is given back by [`release`](Self::release), or in the background when it is dropped.
///
/// Everything that can be asked of a [`Lease`] can be asked of its guard.
#[must_use = "a lock is held only as long as its guard lives: bind it to a name such as `_guard` (`let _ =` gives it back at once)"]
pub struct LockGuard {
    lease: Lease,
    renewing: Option<Renewing>,
    /// Whether the right to release is still this guard's.
    armed: bool,
    life: Arc<Life>,
}

impl LockGuard {
    pub(super) fn new(held: Arc<Held>, renewing: Option<Renewing>, life: Arc<Life>) -> Self {
        let core = life.0.clone();
        core.guards.add();
        Self { lease: Lease { held, core }, renewing, armed: true, life }
    }

    /// A look at the lease, to be kept where the guard cannot go.
    pub fn lease(&self) -> Lease {
        self.lease.clone()
    }

    /// Gives the lock back and says whether this token still held it: `false` if it had expired at the engine (a little
    /// later than by the guard's own careful count), was taken over, or was ended by force; and if the first answer was lost and the second time there was nothing left to give back.
    ///
    /// # Errors
    /// [`Error::Engine`] if the engine could not be told. The release then goes on in the background until it is
    /// answered or the lease has run out.
    ///
    /// # Cancel safety
    /// Safe: if the future is dropped, the release goes on in the background.
    pub async fn release(mut self) -> Result<bool, Error> {
        self.renewing = None;
        self.armed = false;
        let held = &self.lease.held;
        self.lease.core.ensure_background();
        match held.begin_release() {
            // The engine said that it is gone: there is nothing to give back.
            Telling::Nothing => return Ok(false),
            Telling::TakeBack => {
                self.lease.core.releases.push(held.clone());
                return Ok(false);
            }
            Telling::Release => {}
        }
        match self.lease.core.release(held).await {
            Ok(release) => {
                if !release.held {
                    tracing::warn!(key = %held.on(), "a release came too late: the lease had expired or was taken over");
                }
                Ok(release.held)
            }
            Err(source) => Err(Error::engine("release", Some(&held.on().key), source)),
        }
    }
}

impl Deref for LockGuard {
    type Target = Lease;

    fn deref(&self) -> &Lease {
        &self.lease
    }
}

impl Drop for LockGuard {
    fn drop(&mut self) {
        // No I/O, no spawn, no panic: the background task does the rest.
        self.renewing = None;
        if self.armed && self.lease.held.begin_release() != Telling::Nothing {
            self.lease.core.releases.push(self.lease.held.clone());
        }
        self.life.0.guards.remove();
    }
}

impl fmt::Debug for LockGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockGuard")
            .field("key", self.key())
            .field("remaining", &self.remaining())
            .finish_non_exhaustive()
    }
}
