//! The circuit breaker in front of acquires: an engine that does not answer is not asked by every caller again.
//!
//! It opens when the engine failed several times in a row over a while (a connection that is cut fails many calls at once and
//! says nothing of the next), or left two calls without any answer for their whole time limit and answered nobody else
//! meanwhile. While it is open, acquires fail at once, and the background task pings the engine; the
//! first answer closes it. Renewals and releases tell it how they fared and never ask it: whoever holds something keeps
//! trying.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use crate::store::{ErrorKind, StoreError};
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::{Mutex, MutexGuard, Notify, PoisonError};
use crate::telemetry::BreakerGauge;

/// How many failures in a row open it, and over how long at least.
const FAILURES: u32 = 5;
const OVER: Duration = Duration::from_millis(200);
/// How many calls without any answer open it: one may be a lost packet.
const TIMEOUTS: u32 = 2;
/// Within this the first ping is answered by an engine that is well.
const FIRST_PING: Duration = Duration::from_millis(50);
/// The pause between two pings of an engine that does not answer.
const PROBE_EVERY: Duration = Duration::from_millis(250);

#[derive(Debug, Default)]
pub(super) struct Breaker {
    open: AtomicBool,
    /// Counts answers, so that a call that was not answered knows whether another was meanwhile.
    answers: AtomicU64,
    state: Mutex<State>,
    /// For the background task.
    to_probe: Notify,
    /// For those who wait for an answer.
    opened: Notify,
    gauge: BreakerGauge,
}

#[derive(Debug, Default)]
struct State {
    failing: Failing,
    open: Option<Open>,
}

/// What has failed since the last answer.
#[derive(Debug, Default)]
struct Failing {
    /// How many answers there were before.
    answers: u64,
    failures: u32,
    timeouts: u32,
    /// When the first of them was.
    since: Option<Instant>,
}

#[derive(Debug)]
struct Open {
    /// When the engine failed first.
    since: Instant,
    /// When it was opened.
    at: Instant,
    cause: StoreError,
    next_probe: Instant,
}

/// A call that is under way.
#[derive(Debug, Clone, Copy)]
pub(super) struct Call {
    answers_before: u64,
    began: Instant,
}

/// Whether such a failure says that the engine is ill, as opposed to refusing this one step.
const fn is_illness(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::Unavailable | ErrorKind::Timeout | ErrorKind::Busy)
}

impl Call {
    pub(super) const fn began(&self) -> Instant {
        self.began
    }
}

impl Breaker {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_open(&self) -> bool {
        self.open.load(Ordering::Acquire)
    }

    /// Asks to make a call.
    ///
    /// # Errors
    /// It is open; nothing was sent.
    pub(super) fn admit(&self) -> Result<Call, StoreError> {
        if self.is_open()
            && let Some(open) = &self.state().open
        {
            let message = format!(
                "not asked: the engine has not answered for {} ms (last: {})",
                open.since.elapsed().as_millis(),
                open.cause.message()
            );
            return Err(StoreError::not_applied(ErrorKind::Unavailable, message));
        }
        Ok(self.calling())
    }

    /// The call had an answer, whatever it was.
    pub(super) fn answered(&self) {
        self.answers.fetch_add(1, Ordering::AcqRel);
        if self.is_open() {
            self.close();
        }
    }

    /// The call failed.
    pub(super) fn failed(&self, call: Call, error: &StoreError) {
        if !is_illness(error.kind()) {
            if error.kind() != ErrorKind::Overloaded {
                self.answered();
            }
            return;
        }
        let answers = self.answers.load(Ordering::Acquire);
        let mut state = self.state();
        let failing = &mut state.failing;
        if failing.answers != answers {
            *failing = Failing { answers, ..Failing::default() };
        }
        if call.answers_before != answers {
            // Others were answered while this call was under way.
            return;
        }
        failing.failures = failing.failures.saturating_add(1);
        // A connection that is not made in time is no answer either.
        let waited = error.kind() == ErrorKind::Timeout || call.began.elapsed() >= OVER;
        failing.timeouts = failing.timeouts.saturating_add(u32::from(waited));
        let since = *failing.since.get_or_insert_with(Instant::now);
        let often = failing.failures >= FAILURES && since.elapsed() >= OVER;
        let ill = often || failing.timeouts >= TIMEOUTS;
        if ill && state.open.is_none() {
            // The first ping goes out at once: perhaps only a connection was ill.
            let now = Instant::now();
            state.open = Some(Open { since, at: now, cause: error.clone(), next_probe: now });
            self.open.store(true, Ordering::Release);
            self.gauge.set(true);
            drop(state);
            tracing::error!(%error, "the engine does not answer; acquires fail at once until it does");
            self.to_probe.notify_one();
            self.opened.notify_waiters();
        }
    }

    /// Notes how a step that is never held back fared.
    pub(super) fn heard<T>(&self, call: Call, answer: &Result<T, StoreError>) {
        match answer {
            Ok(_) => self.answered(),
            Err(error) => self.failed(call, error),
        }
    }

    /// A step that is never held back begins.
    pub(super) fn calling(&self) -> Call {
        Call { answers_before: self.answers.load(Ordering::Acquire), began: Instant::now() }
    }

    /// Waits until it has been open for as long as the first ping takes where only a connection was ill, and says why.
    pub(super) async fn not_asked(&self) -> StoreError {
        loop {
            let mut opened = std::pin::pin!(self.opened.notified());
            opened.as_mut().enable();
            let at = self.state().open.as_ref().map(|open| open.at);
            match at {
                None => opened.await,
                Some(at) if at.elapsed() < FIRST_PING => sleep_until(at + FIRST_PING).await,
                Some(_) => {
                    if let Err(error) = self.admit() {
                        return error;
                    }
                }
            }
        }
    }

    fn close(&self) {
        let mut state = self.state();
        state.failing = Failing::default();
        if state.open.take().is_some() {
            self.open.store(false, Ordering::Release);
            self.gauge.set(false);
            drop(state);
            tracing::info!("the engine answers again");
        }
    }

    /// Waits until the engine is to be pinged.
    pub(super) async fn probe_due(&self) {
        loop {
            let next = self.state().open.as_ref().map(|open| open.next_probe);
            match next {
                Some(at) => return sleep_until(at).await,
                None => self.to_probe.notified().await,
            }
        }
    }

    /// The engine is being pinged: when it comes to that again.
    pub(super) fn probing(&self) {
        if let Some(open) = &mut self.state().open {
            // A ping that hangs has its own time limit; the next one comes after it.
            open.next_probe = Instant::now() + PROBE_EVERY;
        }
    }

    /// The ping had an answer, or failed.
    pub(super) fn probed(&self, answer: &Result<Duration, StoreError>) {
        let answered = |kind| !is_illness(kind) && kind != ErrorKind::Overloaded;
        if answer.as_ref().map_or_else(|error| answered(error.kind()), |_| true) {
            self.answered();
        }
    }
}
