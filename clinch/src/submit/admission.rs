//! An admission: somebody was let in, and what becomes of the lease when they are done.

use std::time::Duration;

use super::counts::Event;
use super::guards::Guards;
use super::policy::ReleaseWhen;
use crate::lease::Record;
use crate::manager::{Lease, LockGuard, Remains, Stay};

/// Somebody was let in by a guard. Say with [`finish`](Self::finish) how it went; dropped, it counts as a failure.
#[derive(Debug)]
#[must_use = "dropped at once, it protects nothing"]
pub struct Admission {
    guard: Option<LockGuard>,
    ending: Ending,
    /// None where nobody was asked.
    guards: Option<Guards>,
}

/// What becomes of the lease at the end.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ending {
    pub(crate) release: ReleaseWhen,
    pub(crate) min_hold: Duration,
    /// Whether it is kept when its holder is dropped.
    pub(crate) kept_on_drop: bool,
}

impl Ending {
    /// Given back at once, however it went.
    pub(crate) const RELEASE: Self =
        Self { release: ReleaseWhen::OnCompletion, min_hold: Duration::ZERO, kept_on_drop: false };
}

impl Admission {
    pub(crate) const fn new(guard: LockGuard, ending: Ending, guards: Guards) -> Self {
        Self { guard: Some(guard), ending, guards: Some(guards) }
    }

    /// Let in without a lease: by a guard that is not enabled, or only looks on.
    pub(crate) const fn unguarded() -> Self {
        Self { guard: None, ending: Ending::RELEASE, guards: None }
    }

    /// A look at the lease: its fence, whether it is degraded, when it is lost. None if the guard is not enabled, or is in
    /// shadow mode and would have refused.
    pub fn lease(&self) -> Option<Lease> {
        self.guard.as_ref().map(LockGuard::lease)
    }

    /// What stays in the engine.
    fn remains(&self, success: bool) -> Option<Remains> {
        let Ending { release, min_hold, .. } = self.ending;
        let kept = match release {
            ReleaseWhen::OnCompletion => false,
            ReleaseWhen::OnFailure => success,
            ReleaseWhen::Never => true,
        };
        let stay = match &self.guard {
            _ if kept => Stay::Rest,
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
    pub async fn finish(mut self, success: bool) {
        let remains = self.remains(success);
        if let (Some(guard), Some(guards)) = (self.guard.take(), self.guards.take()) {
            guards.end(guard, remains).await;
        }
    }

    /// As [`finish`](Self::finish), in the background.
    pub(crate) fn finish_later(mut self, success: bool) {
        let remains = self.remains(success);
        if let Some(guard) = self.guard.take() {
            guard.finish_later(remains);
        }
    }

    /// Ends it as a failure, in the background.
    pub(crate) fn fail(mut self) {
        self.ending.kept_on_drop = false;
    }

    /// The guard itself, whose end is then the caller's business.
    pub(crate) fn into_guard(mut self) -> Option<LockGuard> {
        self.guard.take()
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        // A panic is the end of the work, not of the one who waits for it.
        let remains = if self.ending.kept_on_drop && !std::thread::panicking() {
            Some(Remains { record: Record::default(), stay: Stay::Rest })
        } else {
            self.remains(false)
        };
        if let Some(guard) = self.guard.take() {
            guard.finish_later(remains);
        }
    }
}

impl Guards {
    /// Ends a lease, within the limit that the settings have for it.
    pub(crate) async fn end(&self, guard: LockGuard, remains: Option<Remains>) {
        if !guard.is_valid() {
            // Nothing is protected any more: what may be left of it goes back in the background.
            return guard.finish_later(remains);
        }
        match tokio::time::timeout(self.settings().release_within, guard.finish(remains)).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => {
                self.counts().count(Event::LateRelease);
                tracing::warn!(%error, "the work is done, but its lease could not be given back at once");
            }
            Err(_) => {
                self.counts().count(Event::LateRelease);
                tracing::warn!("the work is done, but the engine did not answer its release in time");
            }
        }
    }
}
