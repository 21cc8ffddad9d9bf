//! An admission: somebody was let in, and what becomes of the lease when they are done.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::time::sleep;

use super::counts::{Event, Stripe};
use super::guards::Guards;
use super::policy::ReleaseWhen;
use crate::lease::Record;
use crate::manager::{Lease, LockGuard, Remains, Stay};
use crate::telemetry::Visit;

/// Somebody was let in by a guard. Say with [`finish`](Self::finish) how it went; dropped, it counts as a failure.
#[derive(Debug)]
#[must_use = "dropped at once, it protects nothing"]
pub struct Admission {
    guard: Option<LockGuard>,
    ending: Ending,
    /// How long the end may take, and where it is counted if it takes longer. None where nobody was asked.
    at_end: Option<(Duration, Arc<Stripe>)>,
    /// None where the guard is not enabled.
    visit: Option<Visit>,
}

/// What becomes of the lease at the end.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ending {
    pub(crate) release: ReleaseWhen,
    pub(crate) min_hold: Duration,
    /// For how long it stays if it is kept.
    pub(crate) kept: Stay,
    /// Whether it is kept when its holder is dropped.
    pub(crate) kept_on_drop: bool,
}

impl Ending {
    /// Given back at once, however it went.
    pub(crate) const RELEASE: Self = Self {
        release: ReleaseWhen::OnCompletion,
        min_hold: Duration::ZERO,
        kept: Stay::Rest,
        kept_on_drop: false,
    };
}

/// The answer to the end of an admission, which is still to come.
pub(crate) type Unanswered = Pin<Box<dyn Future<Output = ()> + Send>>;

impl Admission {
    pub(crate) fn new(guard: LockGuard, ending: Ending, guards: &Guards, mut visit: Visit) -> Self {
        visit.admitted();
        let at_end = Some((guards.settings().release_within, guards.counts().clone()));
        Self { guard: Some(guard), ending, at_end, visit: Some(visit) }
    }

    /// Let in without a lease, by a guard that is not enabled.
    pub(crate) const fn unguarded() -> Self {
        Self { guard: None, ending: Ending::RELEASE, at_end: None, visit: None }
    }

    /// Let in without a lease, by a guard that only looks on.
    pub(crate) fn looking_on(mut visit: Visit) -> Self {
        visit.admitted();
        Self { guard: None, ending: Ending::RELEASE, at_end: None, visit: Some(visit) }
    }

    /// A look at the lease: its fence, whether it is degraded, when it is lost. None if the guard is not enabled, or is in
    /// shadow mode and would have refused.
    pub fn lease(&self) -> Option<Lease> {
        self.guard.as_ref().map(LockGuard::lease)
    }

    /// What stays in the engine.
    fn remains(&self, success: bool) -> Option<Remains> {
        let Ending { release, min_hold, kept: stay, .. } = self.ending;
        let kept = match release {
            ReleaseWhen::OnCompletion => false,
            ReleaseWhen::OnFailure => success,
            ReleaseWhen::Never => true,
        };
        let stay = match &self.guard {
            _ if kept => stay,
            Some(guard) if !min_hold.is_zero() => Stay::Until(guard.since() + min_hold),
            _ => return None,
        };
        Some(Remains { record: Record::default(), stay })
    }

    /// Ends it, by success or by failure, as the policy says. Waits for the engine's answer, but not longer than the
    /// settings allow; what is not answered by then goes on in the background.
    ///
    /// # Cancel safety
    /// Safe: if the future is dropped, it goes on in the background.
    pub async fn finish(self, success: bool) {
        if let Some(answer) = self.begin_finish(success) {
            answer.await;
        }
    }

    /// Begins to end it. What is to be waited for then, if anything: an engine in this process answers at once.
    pub(crate) fn begin_finish(self, success: bool) -> Option<Unanswered> {
        let remains = self.remains(success);
        self.end(remains)
    }

    /// Ends it, and leaves this behind.
    #[cfg(feature = "http")]
    pub(crate) async fn leave(self, remains: Option<Remains>) {
        if let Some(answer) = self.end(remains) {
            answer.await;
        }
    }

    /// Ends it, within the limit that the settings have for that. What has to wait is in a box, and no part of the futures of
    /// those that need not.
    fn end(mut self, remains: Option<Remains>) -> Option<Unanswered> {
        self.visit.as_mut()?.done();
        let unfinished = self.guard.take()?.begin_finish(remains).err()?;
        // Where nothing is protected any more, what may be left of it goes back in the background.
        let (limit, counts) = self.at_end.take().filter(|_| unfinished.is_valid())?;
        Some(Box::pin(async move {
            match within(limit, pin!(unfinished.finish())).await {
                Ok(Ok(_)) => return,
                Ok(Err(error)) => {
                    tracing::warn!(%error, "the work is done, but its lease could not be given back at once");
                }
                Err(TimeOver) => {
                    tracing::warn!("the work is done, but the engine did not answer its release in time");
                }
            }
            if let Some(visit) = &self.visit {
                counts.count(Event::LateRelease, visit.meter());
            }
        }))
    }

    /// As [`finish`](Self::finish), in the background.
    pub(crate) fn finish_later(mut self, success: bool) {
        let remains = self.remains(success);
        if let Some(visit) = &mut self.visit {
            visit.done();
        }
        if let Some(guard) = self.guard.take() {
            guard.finish_later(remains);
        }
    }

    /// Ends it as a failure, in the background.
    pub(crate) fn fail(mut self) {
        self.ending.kept_on_drop = false;
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        // A panic is the end of the work, not of the one who waits for it.
        let remains = if self.ending.kept_on_drop && !std::thread::panicking() {
            Some(Remains { record: Record::default(), stay: self.ending.kept })
        } else {
            self.remains(false)
        };
        if let Some(guard) = self.guard.take() {
            guard.finish_later(remains);
        }
    }
}

struct TimeOver;

/// Waits for a future for so long at most. The timer is not made before it is needed: an engine in this process answers at once.
async fn within<F: Future>(limit: Duration, mut future: Pin<&mut F>) -> Result<F::Output, TimeOver> {
    let mut timer = pin!(None);
    poll_fn(|context| {
        if let Poll::Ready(output) = future.as_mut().poll(context) {
            return Poll::Ready(Ok(output));
        }
        if timer.is_none() {
            timer.set(Some(sleep(limit)));
        }
        let timer = timer.as_mut().as_pin_mut().map_or(Poll::Pending, |timer| timer.poll(context));
        timer.map(|()| Err(TimeOver))
    })
    .await
}
