//! The circuit breaker in front of acquires: an engine that does not answer is not asked by every caller again.
//!
//! It opens when the engine failed several times in a row over a while (a connection that is cut fails many calls at once and
//! says nothing of the next), or did not answer one call within its whole time limit while it answered nobody else either. While it is open, acquires fail at once, and the background task pings the engine; the
//! first answer closes it. Renewals and releases tell it how they fared and never ask it: whoever holds something keeps
//! trying.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use crate::store::{ErrorKind, StoreError};

/// How many failures in a row open it, and over how long at least.
const FAILURES: u32 = 5;
const OVER: Duration = Duration::from_millis(200);
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
}

#[derive(Debug, Default)]
struct State {
    failures: u32,
    /// When the first of them was.
    failing_since: Option<Instant>,
    open: Option<Open>,
}

#[derive(Debug)]
struct Open {
    since: Instant,
    cause: StoreError,
    next_probe: Instant,
}

/// A call that is under way.
#[derive(Debug, Clone, Copy)]
pub(super) struct Call {
    answers_before: u64,
}

/// Whether such a failure says that the engine is ill, as opposed to refusing this one step.
const fn is_illness(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::Unavailable | ErrorKind::Timeout | ErrorKind::Busy)
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
        // Nobody counts exactly: zero failures is what nearly every call finds.
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
        let silent = self.answers.load(Ordering::Acquire) == call.answers_before;
        let mut state = self.state();
        if !silent {
            (state.failures, state.failing_since) = (0, None);
        }
        state.failures = state.failures.saturating_add(1);
        let since = *state.failing_since.get_or_insert_with(Instant::now);
        let often = state.failures >= FAILURES && since.elapsed() >= OVER;
        let ill = silent && (often || error.kind() == ErrorKind::Timeout);
        if ill && state.open.is_none() {
            let now = Instant::now();
            // The first ping goes out at once: perhaps only a connection was ill.
            state.open = Some(Open { since: now, cause: error.clone(), next_probe: now });
            self.open.store(true, Ordering::Release);
            drop(state);
            tracing::warn!(%error, "the engine does not answer; acquires fail at once until it does");
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
        Call { answers_before: self.answers.load(Ordering::Acquire) }
    }

    /// Waits until it is open, and says why.
    pub(super) async fn not_asked(&self) -> StoreError {
        loop {
            let mut opened = std::pin::pin!(self.opened.notified());
            opened.as_mut().enable();
            if let Err(error) = self.admit() {
                return error;
            }
            opened.await;
        }
    }

    fn close(&self) {
        let mut state = self.state();
        (state.failures, state.failing_since) = (0, None);
        if state.open.take().is_some() {
            self.open.store(false, Ordering::Release);
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
        if answer.as_ref().map_or_else(|error| !is_illness(error.kind()), |_| true) {
            self.answered();
        }
    }
}
