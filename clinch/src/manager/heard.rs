//! Whether every revocation is heard, and what to do about those that may not have been.
//!
//! A process that denies a key because it holds it itself must know that it still does. It hears of force-releases by
//! push; a lease that was asked for before hearing began, or that lived through a gap, is looked up once when it
//! matters.

use std::sync::Arc;

use super::core::Core;
use super::held::{Held, Loss};
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Mutex, Notify, PoisonError};

/// Since when every revocation has been heard.
#[derive(Debug, Default)]
pub(super) struct Heard {
    /// Counts how often hearing began; odd while it goes on, even while it does not. 0: it never began.
    since: AtomicU64,
    began: Notify,
    pub(super) to_check: ToCheck,
}

/// Leases that are to be looked up.
#[derive(Debug, Default)]
pub(super) struct ToCheck {
    leases: Mutex<Vec<Arc<Held>>>,
    changed: Notify,
}

impl ToCheck {
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }
}

impl Heard {
    /// A number that is the same as long as nothing can have been missed; `None` if nothing is heard now.
    pub(super) fn since(&self) -> Option<u64> {
        Some(self.since.load(Ordering::Acquire)).filter(|since| since % 2 == 1)
    }

    /// From here on everything is heard; what was before may have been missed.
    pub(super) fn begin(&self) {
        let next = |since: u64| Some(since + 1 + since % 2);
        // The closure never says `None`.
        let _ = self.since.fetch_update(Ordering::AcqRel, Ordering::Acquire, next);
        self.began.notify_waiters();
        self.to_check.changed.notify_one();
    }

    /// From here on nothing is heard.
    pub(super) fn stop(&self) {
        let next = |since: u64| Some(since + since % 2);
        let _ = self.since.fetch_update(Ordering::AcqRel, Ordering::Acquire, next);
    }

    /// Waits until hearing has begun anew after `before`.
    pub(super) async fn begun_after(&self, before: Option<u64>) {
        loop {
            let mut began = std::pin::pin!(self.began.notified());
            began.as_mut().enable();
            if self.since().is_some_and(|since| Some(since) != before) {
                return;
            }
            began.await;
        }
    }

    /// Has the lease looked up, unless it is sure that nothing was missed since it was asked for. While nothing is
    /// heard it would prove nothing: then it is to be called again once hearing has begun.
    pub(super) fn watch(&self, held: &Arc<Held>) {
        let since = self.since();
        if since.is_none() || held.is_heard_since(since) || held.is_watched() {
            return;
        }
        self.to_check.leases.lock().unwrap_or_else(PoisonError::into_inner).push(held.clone());
        self.to_check.changed.notify_one();
    }

    /// The next lease to look up.
    pub(super) fn next_to_check(&self) -> Option<Arc<Held>> {
        self.to_check.leases.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }
}

impl Core {
    /// Asks the engine whether the lease is still ours: a revocation may have gone unheard.
    pub(super) async fn check_still_held(&self, held: &Arc<Held>) {
        let since = self.background.heard.since();
        // In any case, also if the runtime ends meanwhile: whoever needs it again asks again.
        let _watched = Watched(held);
        // The engine knows nothing of one that went on without it.
        if held.remaining().is_zero() || held.is_degraded() {
            return;
        }
        for claim in held.claims() {
            let on = claim.on();
            match self.once_more(|| self.store.inspect(on)).await {
                Ok(holders) if holders.iter().any(|holder| holder.token() == held.attempt().token()) => {}
                Ok(_) => {
                    held.end(Loss::TakenOver);
                    self.lines.ended(held, None);
                    break;
                }
                // Its validity is not longer for that, and the next renewal asks again.
                Err(error) => {
                    tracing::debug!(key = %on, %error, "could not look whether the lease is still held");
                }
            }
        }
        held.looked_up(since);
    }
}

/// A lease that is being looked up.
struct Watched<'a>(&'a Held);

impl Drop for Watched<'_> {
    fn drop(&mut self) {
        self.0.unwatched();
    }
}
