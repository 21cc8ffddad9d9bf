//! Giving leases back: in place by [`Core::release`], or from a queue by the background task.
//!
//! A guard's `drop` only marks the lease and puts it into the queue: no I/O, no spawn, no panic. A job ends with its
//! lease at the latest, which bounds the queue by what can be held.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

use super::core::Core;
use super::held::Held;
use super::tally::Tally;
use crate::store::{Effect, ErrorKind, Release, StoreError};

const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// Leases that wait to be given back.
#[derive(Debug, Default)]
pub(super) struct Releases {
    queue: Mutex<VecDeque<Arc<Held>>>,
    /// Queued and under way.
    pub(super) pending: Tally,
    pushed: Notify,
}

impl Releases {
    pub(super) fn push(&self, held: Arc<Held>) {
        self.pending.add();
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).push_back(held);
        self.pushed.notify_one();
    }

    pub(super) fn pop(&self) -> Option<Arc<Held>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }

    /// Puts back what was popped and could not be finished.
    pub(super) fn put_back(&self, held: Arc<Held>) {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).push_front(held);
        self.pushed.notify_one();
    }

    /// Waits until something was pushed.
    pub(super) async fn pushed(&self) {
        self.pushed.notified().await;
    }
}

impl Core {
    /// Gives the lease back now. What fails, or is not conclusive, goes on in the background; so does all of it if the
    /// future is dropped.
    pub(super) async fn release(&self, held: &Arc<Held>) -> Result<Release, StoreError> {
        let mut later = Later { releases: &self.releases, held: Some(held) };
        let answer = match self.store.release(held.attempt()).await {
            // A connection that died while it was idle: once more, on a new one.
            Err(error) if error.kind() == ErrorKind::Unavailable => self.store.release(held.attempt()).await,
            answer => answer,
        }?;
        self.answered(held);
        if answer.conclusive {
            later.held = None;
        }
        Ok(answer)
    }

    /// Gives back a lease from the queue: again and again, until it is answered or the lease has run out.
    pub(super) async fn release_from_queue(&self, held: &Arc<Held>) {
        let mut pause = FIRST_PAUSE;
        loop {
            match self.store.release(held.attempt()).await {
                Ok(release) => {
                    self.answered(held);
                    if release.conclusive {
                        tracing::debug!(key = %held.on(), held = release.held, "released in the background");
                        return;
                    }
                }
                Err(error) => {
                    tracing::warn!(key = %held.on(), %error, "a release in the background failed");
                    if !error.is_retryable() && error.effect() == Effect::NotApplied {
                        break;
                    }
                }
            }
            let now = Instant::now();
            if now >= held.engine_until() {
                break;
            }
            // The last one goes out when the lease should be over: it may have been granted late.
            sleep(self.sources.jittered(pause).min(held.engine_until() - now)).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
        self.answered(held);
    }

    fn answered(&self, held: &Arc<Held>) {
        held.finish_release();
        self.lines.ended(held);
    }
}

/// Queues the lease when it is dropped.
struct Later<'a> {
    releases: &'a Releases,
    held: Option<&'a Arc<Held>>,
}

impl Drop for Later<'_> {
    fn drop(&mut self) {
        if let Some(held) = self.held {
            self.releases.push(held.clone());
        }
    }
}
