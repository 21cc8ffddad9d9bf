//! Keeping leases alive, earliest deadline first, many in one call where the engine can.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout};

use super::core::Core;
use super::due::{DueQueue, Ticket};
use super::held::{Held, Loss};
use super::tally::Tally;
use crate::store::{ErrorKind, Renewal, StoreError};
use crate::sync::{Mutex, MutexGuard, PoisonError};
use crate::telemetry;

/// The shortest pause after a renewal that failed.
const SHORTEST_PAUSE: Duration = Duration::from_millis(10);
/// How many leases are renewed in one call.
const BATCH: usize = 128;
/// What is due within this part of its interval goes along with what is due now.
const GOES_ALONG: u32 = 8;

/// Leases to be renewed.
#[derive(Debug, Default)]
pub(super) struct Renewals {
    pub(super) queue: DueQueue<Renewed>,
    /// Leases that nobody has until they are renewed.
    pub(super) passing: Tally,
}

/// A lease that is renewed.
#[derive(Debug, Clone)]
pub(super) struct Renewed {
    held: Arc<Held>,
    then: Then,
    /// It was in a call that was not answered in time: the next one is for it alone, in case another was the reason.
    alone: bool,
}

/// What comes after a renewal.
#[derive(Debug, Clone)]
enum Then {
    /// The next one.
    Again {
        every: Duration,
        /// No renewal goes out after this.
        until: Option<Instant>,
        /// What the guard's [`Renewing`] knows it by: where in the queue it is now, or that it is gone.
        place: Arc<Mutex<Place>>,
    },
    /// Nothing.
    Nothing,
    /// Nothing, but it must succeed: the lease has much less than its TTL until then. It was queued for so long.
    Confirmed { after: Duration },
    /// The lease, which nobody has meanwhile, goes to the next in line. This is the number under which nobody has it.
    PassOn(u32),
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

/// A guard's hold on the renewal of its lease: it stops when this is dropped. Boxed, because most guards have none.
#[derive(Debug)]
pub(super) struct Renewing(Box<(Arc<Renewals>, Arc<Mutex<Place>>)>);

impl Drop for Renewing {
    fn drop(&mut self) {
        let (renewals, place) = &*self.0;
        let place = std::mem::replace(&mut *locked(place), Place::Stopped);
        if let Place::Queued(ticket) = place {
            // It may have been taken out meanwhile; then it finds that it was stopped.
            renewals.queue.remove(ticket);
        }
    }
}

impl Renewals {
    /// Renews the lease every `every`, for at most `up_to` from now.
    pub(super) fn start(self: &Arc<Self>, held: &Arc<Held>, every: Duration, up_to: Duration) -> Renewing {
        let now = Instant::now();
        let place = Arc::new(Mutex::new(Place::UnderWay));
        let then = Then::Again { every, until: now.checked_add(up_to), place: place.clone() };
        self.put(Renewed { held: held.clone(), then, alone: false }, now + every);
        Renewing(Box::new((self.clone(), place)))
    }

    /// Renews the lease once, now, without anybody waiting for it.
    pub(super) fn once(&self, held: &Arc<Held>) {
        self.put(Renewed { held: held.clone(), then: Then::Nothing, alone: false }, Instant::now());
    }

    /// Confirms a lease for which the engine only keeps the key yet, if it is still held after that time.
    pub(super) fn confirm(&self, held: &Arc<Held>, now: Instant, after: Duration) {
        self.put(Renewed { held: held.clone(), then: Then::Confirmed { after }, alone: false }, now + after);
    }

    /// Renews the lease now and then passes it on, from under this number.
    pub(super) fn to_pass_on(&self, held: &Arc<Held>, number: u32) {
        self.passing.add();
        self.put(Renewed { held: held.clone(), then: Then::PassOn(number), alone: false }, Instant::now());
    }

    /// Queues the lease for `at`, unless its guard is gone or its cap is reached.
    fn put(&self, renewed: Renewed, at: Instant) {
        let place = match &renewed.then {
            Then::Again { until, place, .. } => {
                if until.is_some_and(|until| at > until) || renewed.is_stopped() {
                    return;
                }
                Some(place.clone())
            }
            Then::Nothing | Then::Confirmed { .. } | Then::PassOn(_) => None,
        };
        self.queue.put(at, renewed, |ticket| {
            if let Some(place) = place {
                let mut place = locked(&place);
                if matches!(*place, Place::Queued(_) | Place::UnderWay) {
                    *place = Place::Queued(ticket);
                }
            }
        });
    }

    /// The leases that are due, earliest first, and with them those that are due soon: as many as go into one call.
    pub(super) fn pop(&self, batches: bool) -> Vec<Renewed> {
        let mut batch = Vec::new();
        let most = if batches { BATCH } else { 1 };
        // Those that are over by now have taken others along too, so that a look at the queue is worth it.
        let mut is_first = true;
        while batch.len() < most {
            let along = |renewed: &Renewed| match renewed.then {
                _ if is_first || renewed.alone && batch.is_empty() => Some(Duration::ZERO),
                _ if renewed.alone => None,
                Then::Again { every: interval, .. } | Then::Confirmed { after: interval } => {
                    Some(interval / GOES_ALONG)
                }
                Then::Nothing | Then::PassOn(_) => Some(Duration::ZERO),
            };
            let Some(renewed) = self.queue.pop_due_with(along) else { break };
            is_first = false;
            if renewed.begin() {
                let alone = renewed.alone;
                batch.push(renewed);
                if alone {
                    break;
                }
            }
        }
        batch
    }
}

impl Renewed {
    fn is_stopped(&self) -> bool {
        match &self.then {
            Then::Again { place, .. } => matches!(*locked(place), Place::Stopped),
            Then::Nothing | Then::Confirmed { .. } | Then::PassOn(_) => false,
        }
    }

    /// It was taken out of the queue; `false` if there is nothing to renew any more.
    fn begin(&self) -> bool {
        let place = match &self.then {
            Then::Again { place, .. } => place,
            // Most are given back long before.
            Then::Confirmed { .. } => return self.held.is_unconfirmed(),
            Then::Nothing | Then::PassOn(_) => return true,
        };
        let mut place = locked(place);
        if matches!(*place, Place::Stopped) {
            return false;
        }
        *place = Place::UnderWay;
        true
    }
}

impl Core {
    /// The leases by the part of the engine that serves them, each in their order.
    pub(super) fn parts_of(&self, batch: Vec<Renewed>) -> Vec<Vec<Renewed>> {
        if batch.len() < 2 {
            return vec![batch];
        }
        let mut parts = BTreeMap::<usize, Vec<Renewed>>::new();
        for renewed in batch {
            parts.entry(self.store.part(renewed.held.attempt())).or_default().push(renewed);
        }
        parts.into_values().collect()
    }

    /// Sends one call for these leases and queues what comes next for each.
    pub(super) async fn renew(self: &Arc<Self>, batch: Vec<Renewed>) {
        // Before the call and so before the send: the boot clock's count is a little on the careful side.
        let boot_at = self.boot_now();
        let (mut leases, mut jobs) = (Vec::with_capacity(batch.len()), Vec::with_capacity(batch.len()));
        for renewed in batch {
            let held = renewed.held.clone();
            if held.remaining().is_zero() {
                if let Then::PassOn(number) = renewed.then {
                    self.pass_on_or_give_back(held, number);
                }
                continue;
            }
            let begun = held.begin_renewal();
            let job = Next { core: self, held: held.clone(), begun, renewed: Some(renewed) };
            // One at a time for each lease: what finds one under way comes again soon.
            if job.begun {
                let latest = self.window(held.attempt(), Instant::now() + self.call_timeout, None);
                held.may_live_until(latest.engine_until);
                leases.push(held.shared_attempt());
                jobs.push(job);
            }
        }
        let call = self.breaker.calling();
        let answers = match leases.as_slice() {
            [] => return,
            [lease] => vec![self.store.renew(lease).await],
            leases => match timeout(self.call_timeout, self.store.renew_each(leases)).await {
                Ok(answers) => answers,
                Err(_) => {
                    let error = self.no_answer_to(call);
                    self.complain("renew_each", &format_args!("{} leases", leases.len()), &error);
                    jobs.iter().for_each(|job| job.held.renewal_ended(telemetry::Renewed::Failed));
                    // One slow key or node delays no other.
                    jobs.iter_mut()
                        .filter_map(|job| job.renewed.as_mut())
                        .for_each(|renewed| renewed.alone = true);
                    return;
                }
            },
        };
        if let Some(answer) = answers.first() {
            self.breaker.heard(call, answer);
        }
        for (job, answer) in jobs.into_iter().zip(answers) {
            self.renewed(job, answer, boot_at);
        }
    }

    fn renewed(
        self: &Arc<Self>,
        mut job: Next<'_>,
        answer: Result<Renewal, StoreError>,
        boot_at: Option<Duration>,
    ) {
        let held = &job.held;
        match answer {
            Ok(Renewal::Extended { sent_at }) => {
                let Some(mut renewed) = job.renewed.take() else { return };
                renewed.alone = false;
                let extended = held.extend(self.window(held.attempt(), sent_at, boot_at));
                held.renewal_ended(if extended {
                    telemetry::Renewed::Extended
                } else {
                    telemetry::Renewed::Late
                });
                match renewed.then {
                    Then::Again { every, .. } if extended => self.renewals.put(renewed, sent_at + every),
                    Then::PassOn(number) => {
                        drop(job);
                        self.pass_on_or_give_back(renewed.held, number);
                    }
                    Then::Again { .. } | Then::Nothing | Then::Confirmed { .. } => {}
                }
            }
            Ok(Renewal::Lost) => {
                held.renewal_ended(telemetry::Renewed::Lost);
                held.end(Loss::TakenOver);
                self.lines.ended(held, None);
                if let Some(Renewed { then: Then::PassOn(number), .. }) = job.renewed.take() {
                    self.pass_on_or_give_back(job.held.clone(), number);
                }
            }
            // The old deadline counts; there is time for some more tries until then.
            Err(error) => {
                held.renewal_ended(telemetry::Renewed::Failed);
                self.complain("renew", held.on(), &error);
                if let Some(renewed) = &mut job.renewed {
                    renewed.alone = error.kind() == ErrorKind::Timeout;
                }
            }
        }
    }
}

/// A renewal that was not answered, because it failed, its runtime ended or the store panicked: it is tried again soon.
struct Next<'a> {
    core: &'a Arc<Core>,
    held: Arc<Held>,
    /// Whether this is the renewal that is under way.
    begun: bool,
    renewed: Option<Renewed>,
}

impl Drop for Next<'_> {
    fn drop(&mut self) {
        if self.begun {
            self.held.end_renewal();
        }
        let Some(renewed) = self.renewed.take() else { return };
        let pause = match &renewed.then {
            Then::Again { every, .. } if self.begun => {
                (renewed.held.remaining() / 4).clamp(SHORTEST_PAUSE, (*every).max(SHORTEST_PAUSE))
            }
            Then::Confirmed { .. } => (renewed.held.remaining() / 8).max(SHORTEST_PAUSE),
            // Somebody waits for it.
            Then::Again { .. } | Then::PassOn(_) => SHORTEST_PAUSE,
            // The next holder, or the one after, asks for another.
            Then::Nothing => return,
        };
        self.core.renewals.put(renewed, Instant::now() + pause);
    }
}
