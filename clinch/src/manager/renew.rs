//! Keeping leases alive, earliest deadline first.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use super::core::Core;
use super::held::{Held, Loss};
use crate::store::Renewal;

/// The shortest pause after a renewal that failed.
const SHORTEST_PAUSE: Duration = Duration::from_millis(10);

/// Leases to be renewed, by when.
#[derive(Debug, Default)]
pub(super) struct Renewals {
    queue: Mutex<Queue>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Queue {
    due: BTreeMap<(Instant, u64), Renewed>,
    next_id: u64,
}

/// A lease that is renewed.
#[derive(Debug, Clone)]
pub(super) struct Renewed {
    pub(super) held: Arc<Held>,
    every: Duration,
    /// No renewal goes out after this.
    until: Option<Instant>,
    /// What the guard's [`Renewing`] knows it by: where in the queue it is now, or that it is gone.
    place: Arc<Mutex<Place>>,
}

#[derive(Debug, Clone, Copy)]
enum Place {
    Queued((Instant, u64)),
    UnderWay,
    Stopped,
}

/// A guard's hold on the renewal of its lease: it stops when this is dropped.
#[derive(Debug)]
pub(super) struct Renewing {
    renewals: Arc<Renewals>,
    place: Arc<Mutex<Place>>,
}

impl Drop for Renewing {
    fn drop(&mut self) {
        let mut queue = self.renewals.queue();
        let mut place = self.place.lock().unwrap_or_else(PoisonError::into_inner);
        if let Place::Queued(at) = *place {
            queue.due.remove(&at);
        }
        *place = Place::Stopped;
    }
}

impl Renewals {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Renews the lease every `every`, for at most `up_to` from now.
    pub(super) fn start(self: &Arc<Self>, held: &Arc<Held>, every: Duration, up_to: Duration) -> Renewing {
        let now = Instant::now();
        let place = Arc::new(Mutex::new(Place::UnderWay));
        let renewed =
            Renewed { held: held.clone(), every, until: now.checked_add(up_to), place: place.clone() };
        self.put(renewed, now + every);
        Renewing { renewals: self.clone(), place }
    }

    /// Queues the lease for `at`, unless its guard is gone or its cap is reached.
    fn put(&self, renewed: Renewed, at: Instant) {
        if renewed.until.is_some_and(|until| at > until) {
            return;
        }
        let mut queue = self.queue();
        let mut place = renewed.place.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(*place, Place::Stopped) {
            return;
        }
        queue.next_id += 1;
        let at = (at, queue.next_id);
        *place = Place::Queued(at);
        drop(place);
        let first = queue.due.first_key_value().is_none_or(|(first, _)| at < *first);
        queue.due.insert(at, renewed);
        if first {
            self.changed.notify_one();
        }
    }

    /// The next lease that is due, earliest first.
    pub(super) fn pop(&self) -> Option<Renewed> {
        let mut queue = self.queue();
        let first = queue.due.first_entry().filter(|first| first.key().0 <= Instant::now())?;
        let renewed = first.remove();
        *renewed.place.lock().unwrap_or_else(PoisonError::into_inner) = Place::UnderWay;
        Some(renewed)
    }

    /// Waits until a lease is due.
    pub(super) async fn due(&self) {
        loop {
            let first = self.queue().due.first_key_value().map(|((at, _), _)| *at);
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

impl Core {
    /// Sends one renewal and queues the next.
    pub(super) async fn renew(&self, renewed: Renewed) {
        let held = &renewed.held;
        if held.remaining().is_zero() {
            return;
        }
        // Before the call and so before the send: the boot clock's count is a little on the careful side.
        let boot_at = self.sources.boot_now();
        held.may_live_until(self.window(held.attempt(), Instant::now() + self.call_timeout, None).engine_until);
        match self.store.renew(held.attempt()).await {
            Ok(Renewal::Extended { sent_at }) => {
                if held.extend(self.window(held.attempt(), sent_at, boot_at)) {
                    let next = sent_at + renewed.every;
                    self.renewals.put(renewed, next);
                }
            }
            Ok(Renewal::Lost) => {
                tracing::warn!(key = %held.on(), "lease lost: the engine no longer has it under this token");
                held.end(Loss::TakenOver);
                self.lines.ended(held);
            }
            Err(error) => {
                // The old deadline counts; there is time for some more tries until then.
                tracing::warn!(key = %held.on(), %error, "a renewal failed");
                let pause = (held.remaining() / 4).clamp(SHORTEST_PAUSE, renewed.every.max(SHORTEST_PAUSE));
                let next = Instant::now() + pause;
                self.renewals.put(renewed, next);
            }
        }
    }
}
