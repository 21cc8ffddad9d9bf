//! Keeping leases alive, earliest deadline first.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::core::Core;
use super::due::{DueQueue, Ticket};
use super::held::{Held, Loss};
use crate::store::Renewal;

/// The shortest pause after a renewal that failed.
const SHORTEST_PAUSE: Duration = Duration::from_millis(10);

/// Leases to be renewed.
#[derive(Debug, Default)]
pub(super) struct Renewals {
    pub(super) queue: DueQueue<Renewed>,
}

/// A lease that is renewed.
#[derive(Debug, Clone)]
pub(super) struct Renewed {
    held: Arc<Held>,
    every: Duration,
    /// No renewal goes out after this.
    until: Option<Instant>,
    /// What the guard's [`Renewing`] knows it by: where in the queue it is now, or that it is gone.
    place: Arc<Mutex<Place>>,
}

#[derive(Debug, Clone, Copy)]
enum Place {
    Queued(Ticket),
    UnderWay,
    Stopped,
}

fn locked(place: &Mutex<Place>) -> MutexGuard<'_, Place> {
    place.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A guard's hold on the renewal of its lease: it stops when this is dropped.
#[derive(Debug)]
pub(super) struct Renewing {
    renewals: Arc<Renewals>,
    place: Arc<Mutex<Place>>,
}

impl Drop for Renewing {
    fn drop(&mut self) {
        let place = std::mem::replace(&mut *locked(&self.place), Place::Stopped);
        if let Place::Queued(ticket) = place {
            // It may have been taken out meanwhile; then it finds that it was stopped.
            self.renewals.queue.remove(ticket);
        }
    }
}

impl Renewals {
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
        if renewed.until.is_some_and(|until| at > until) || renewed.is_stopped() {
            return;
        }
        let place = renewed.place.clone();
        self.queue.put(at, renewed, |ticket| {
            let mut place = locked(&place);
            if matches!(*place, Place::UnderWay) {
                *place = Place::Queued(ticket);
            }
        });
    }

    /// The next lease that is due, earliest first.
    pub(super) fn pop(&self) -> Option<Renewed> {
        loop {
            let renewed = self.queue.pop_due()?;
            let mut place = locked(&renewed.place);
            if !matches!(*place, Place::Stopped) {
                *place = Place::UnderWay;
                drop(place);
                return Some(renewed);
            }
        }
    }
}

impl Renewed {
    fn is_stopped(&self) -> bool {
        matches!(*locked(&self.place), Place::Stopped)
    }
}

impl Core {
    /// Sends one renewal and queues the next.
    pub(super) async fn renew(&self, renewed: Renewed) {
        let held = renewed.held.clone();
        if held.remaining().is_zero() {
            return;
        }
        // Before the call and so before the send: the boot clock's count is a little on the careful side.
        let boot_at = self.sources.boot_now();
        held.may_live_until(
            self.window(held.attempt(), Instant::now() + self.call_timeout, None).engine_until,
        );
        let mut next = Next { core: self, renewed: Some(renewed) };
        match self.store.renew(held.attempt()).await {
            Ok(Renewal::Extended { sent_at }) => {
                let renewed = next.renewed.take();
                if let Some(renewed) =
                    renewed.filter(|_| held.extend(self.window(held.attempt(), sent_at, boot_at)))
                {
                    let at = sent_at + renewed.every;
                    self.renewals.put(renewed, at);
                }
            }
            Ok(Renewal::Lost) => {
                next.renewed = None;
                tracing::warn!(key = %held.on(), "lease lost: the engine no longer has it under this token");
                held.end(Loss::TakenOver);
                self.lines.ended(&held);
            }
            // The old deadline counts; there is time for some more tries until then.
            Err(error) => tracing::warn!(key = %held.on(), %error, "a renewal failed"),
        }
    }
}

/// A renewal that was not answered, because it failed, its runtime ended or the store panicked: it is tried again soon.
struct Next<'a> {
    core: &'a Core,
    renewed: Option<Renewed>,
}

impl Drop for Next<'_> {
    fn drop(&mut self) {
        if let Some(renewed) = self.renewed.take() {
            let pause =
                (renewed.held.remaining() / 4).clamp(SHORTEST_PAUSE, renewed.every.max(SHORTEST_PAUSE));
            let at = Instant::now() + pause;
            self.core.renewals.put(renewed, at);
        }
    }
}
