//! A count of what is under way, and a way to wait until nothing is.

use crate::sync::Notify;
use crate::sync::atomic::{AtomicUsize, Ordering};

#[derive(Debug, Default)]
pub(super) struct Tally {
    count: AtomicUsize,
    zero: Notify,
}

impl Tally {
    pub(super) fn add(&self) {
        self.count.fetch_add(1, Ordering::SeqCst);
    }

    /// Says whether it was the last one.
    pub(super) fn remove(&self) -> bool {
        let last = self.count.fetch_sub(1, Ordering::SeqCst) == 1;
        if last {
            self.zero.notify_waiters();
        }
        last
    }

    pub(super) fn count(&self) -> usize {
        self.count.load(Ordering::SeqCst)
    }

    /// Counts until what is returned is dropped.
    pub(super) fn counted(&self) -> Counted<'_> {
        self.add();
        Counted(self)
    }

    /// Waits until the count is zero.
    pub(super) async fn zero(&self) {
        loop {
            let mut zero = std::pin::pin!(self.zero.notified());
            zero.as_mut().enable();
            if self.count() == 0 {
                return;
            }
            zero.await;
        }
    }
}

/// See [`Tally::counted`].
pub(super) struct Counted<'a>(&'a Tally);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.remove();
    }
}
