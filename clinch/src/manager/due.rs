//! A queue by due time: what is to be done, earliest first.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use crate::sync::{Mutex, MutexGuard, Notify, PoisonError};

/// Where something stands in a [`DueQueue`].
pub(super) type Ticket = (Instant, u64);

#[derive(Debug)]
pub(super) struct DueQueue<T> {
    inner: Mutex<Inner<T>>,
    /// The first one has changed.
    changed: Notify,
}

#[derive(Debug)]
struct Inner<T> {
    items: BTreeMap<Ticket, T>,
    next_id: u64,
}

impl<T> Default for DueQueue<T> {
    fn default() -> Self {
        Self { inner: Mutex::new(Inner { items: BTreeMap::new(), next_id: 0 }), changed: Notify::new() }
    }
}

impl<T> DueQueue<T> {
    fn inner(&self) -> MutexGuard<'_, Inner<T>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts something in; `note` learns its ticket before anybody can take it out.
    pub(super) fn put(&self, at: Instant, item: T, note: impl FnOnce(Ticket)) {
        let mut inner = self.inner();
        inner.next_id += 1;
        let ticket = (at, inner.next_id);
        note(ticket);
        let is_first = inner.items.first_key_value().is_none_or(|(first, _)| ticket < *first);
        inner.items.insert(ticket, item);
        drop(inner);
        if is_first {
            self.changed.notify_one();
        }
    }

    pub(super) fn remove(&self, ticket: Ticket) -> Option<T> {
        self.inner().items.remove(&ticket)
    }

    /// The first one, if it is due.
    pub(super) fn pop_due(&self) -> Option<T> {
        self.pop_due_with(|_| Some(Duration::ZERO))
    }

    /// The first one, if it is due, or will be within what `early` says of it; not if that says nothing.
    pub(super) fn pop_due_with(&self, early: impl FnOnce(&T) -> Option<Duration>) -> Option<T> {
        let mut inner = self.inner();
        let first = inner.items.first_entry()?;
        let early = early(first.get())?;
        (first.key().0 <= Instant::now() + early).then(|| first.remove())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.inner().items.is_empty()
    }

    /// Waits until the first one is due.
    pub(super) async fn due(&self) {
        loop {
            let first = self.inner().items.first_key_value().map(|((at, _), _)| *at);
            match first {
                Some(at) if at <= Instant::now() => return,
                Some(at) => tokio::select! {
                    biased;
                    () = self.changed.notified() => {}
                    () = sleep_until(at) => {}
                },
                None => self.changed.notified().await,
            }
        }
    }
}
