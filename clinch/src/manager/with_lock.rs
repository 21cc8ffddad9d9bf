//! A block that runs under a lock.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::guard::{Lease, LockGuard};
use crate::error::Error;
use crate::sync::atomic::{AtomicBool, Ordering};

/// A block that waits for its lock, or runs under it: what [`LockManager::with_lock`](crate::LockManager::with_lock) returns,
/// to be awaited.
#[must_use = "nothing happens until it is awaited"]
pub struct WithLock<F> {
    running: Pin<Box<F>>,
    cancel_on_loss: Arc<AtomicBool>,
}

impl<F> fmt::Debug for WithLock<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WithLock").finish_non_exhaustive()
    }
}

impl<F> WithLock<F> {
    /// Drops the block when the lease is lost, no later than its validity ends, even while a renewal hangs; the result is
    /// [`Error::LeaseLost`] then.
    ///
    /// A block that blocks its thread cannot be dropped: it must come to an `.await` now and then.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use clinch::{Error, LockManager};
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// # let locks = LockManager::memory();
    /// let work = locks.with_lock("order:42", Duration::from_secs(10), async |_| {
    ///     tokio::time::sleep(Duration::from_secs(60)).await; // longer than the lease
    /// });
    /// assert!(matches!(work.cancel_on_loss().await, Err(Error::LeaseLost { .. })));
    /// # }
    /// ```
    pub fn cancel_on_loss(self) -> Self {
        self.cancel_on_loss.store(true, Ordering::Release);
        self
    }
}

impl<T, F: Future<Output = Result<T, Error>>> Future for WithLock<F> {
    type Output = Result<T, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.running.as_mut().poll(context)
    }
}

/// Runs `block` under the guard that `locking` gives.
pub(super) fn with_lock<T, B, F>(
    locking: impl Future<Output = Result<LockGuard, Error>>,
    block: B,
) -> WithLock<impl Future<Output = Result<T, Error>>>
where
    B: FnOnce(Lease) -> F,
    F: Future<Output = T>,
{
    let cancel_on_loss = Arc::new(AtomicBool::new(false));
    let cancels = cancel_on_loss.clone();
    let running = Box::pin(async move {
        let guard = locking.await?;
        let lease = guard.lease();
        let value = if cancels.load(Ordering::Acquire) {
            // Biased: what the block returns at the very moment of the loss was not protected to its end.
            tokio::select! {
                biased;
                loss = lease.lost() => Err(Error::LeaseLost { key: lease.key().clone(), loss }),
                value = block(guard.lease()) => Ok(value),
            }
        } else {
            Ok(block(guard.lease()).await)
        };
        if !guard.is_valid() {
            // Nothing is protected any more: what may be left of it goes back in the background.
            drop(guard);
        } else if let Err(error) = guard.release().await {
            tracing::warn!(%error, "the block is done, but its lock could not be given back at once");
        }
        value
    });
    WithLock { running, cancel_on_loss }
}
