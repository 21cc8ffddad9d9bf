//! Giving leases back: in place by [`Core::release`], or from a queue by the background task.
//!
//! A guard's `drop` only marks the lease and puts it into the queue: no I/O, no spawn, no panic. A job ends with its
//! lease at the latest.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::core::Core;
use super::due::DueQueue;
use super::held::Held;
use super::tally::Tally;
use crate::store::{Effect, Release, StoreError};
use crate::telemetry::Released;

const FIRST_PAUSE: Duration = Duration::from_millis(20);
/// The longest pause while nothing was answered: others wait for this.
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// Leases that wait to be given back.
#[derive(Debug, Default)]
pub(super) struct Releases {
    pub(super) queue: DueQueue<Releasing>,
    /// Leases whose release was not answered yet.
    pub(super) unanswered: Tally,
    /// Leases whose release was answered, while an acquire of theirs may still be on its way.
    pub(super) echoes: Tally,
}

/// A lease that is being given back.
#[derive(Debug)]
pub(super) struct Releasing {
    held: Arc<Held>,
    pause: Duration,
    answered: bool,
    /// An earlier call may have given it back without our knowing.
    doubtful: bool,
}

impl Releases {
    /// To be given back as soon as possible.
    pub(super) fn push(&self, held: Arc<Held>) {
        self.push_again(held, false);
    }

    /// The same, where an earlier call may have done so already.
    fn push_again(&self, held: Arc<Held>, doubtful: bool) {
        self.unanswered.add();
        let releasing = Releasing { held, pause: FIRST_PAUSE, answered: false, doubtful };
        self.queue.put(Instant::now(), releasing, |_| {});
    }

    /// Already answered once, but not conclusively.
    fn push_echo(&self, held: Arc<Held>) {
        self.echoes.add();
        let releasing = Releasing { held, pause: FIRST_PAUSE, answered: true, doubtful: true };
        self.queue.put(Instant::now() + FIRST_PAUSE, releasing, |_| {});
    }

    fn tally(&self, answered: bool) -> &Tally {
        if answered { &self.echoes } else { &self.unanswered }
    }
}

impl Core {
    /// Gives the lease back now. What fails, or is not conclusive, goes on in the background; so does all of it if the
    /// future is dropped.
    pub(super) async fn release(&self, held: &Arc<Held>) -> Result<Release, StoreError> {
        // Until it is known better, a call that is dropped may have been carried out.
        let mut later = Later { releases: &self.releases, held: Some(held), doubtful: true };
        let call = self.breaker.calling();
        let remains = held.remains();
        let completes = remains.is_some();
        let first = match &remains {
            Some((record, ttl)) => self.store.complete(held.attempt(), record, *ttl),
            None => self.store.release(held.attempt()),
        };
        let (answer, doubtful) = match first.await {
            Ok(answer) => (Ok(answer), false),
            // Rare: not part of everybody's future.
            Err(error) => Box::pin(self.once_more_after(error, call.began(), || self.tell(held))).await,
        };
        self.breaker.heard(call, &answer);
        let answer = answer.inspect_err(|error| {
            later.doubtful = doubtful;
            self.complain("release", held.on(), error);
        })?;
        later.held = None;
        self.released(held, answer, completes, doubtful);
        Ok(answer)
    }

    /// The same by an engine that answers without any waiting. What fails there goes the long way.
    pub(super) fn release_at_once(&self, held: &Arc<Held>) -> Option<Release> {
        let engine = self.store.at_once()?;
        let remains = held.remains();
        let answer = match &remains {
            Some((record, ttl)) => engine.complete_now(held.attempt(), record, *ttl),
            None => engine.release_now(held.attempt()),
        };
        let answer = answer.ok()?;
        self.released(held, answer, remains.is_some(), false);
        Some(answer)
    }

    /// The engine has answered that it was told.
    fn released(&self, held: &Arc<Held>, answer: Release, completes: bool, doubtful: bool) {
        held.tenure_ended(ended(held, answer, completes, doubtful));
        self.given_back(held, others_woken(answer));
        self.repeat_unless_conclusive(held, answer);
    }

    /// What was answered once, but not for good, is told the engine again.
    pub(super) fn repeat_unless_conclusive(&self, held: &Arc<Held>, answer: Release) {
        if !answer.conclusive {
            self.releases.push_echo(held.clone());
        }
    }

    /// Tells the engine that the lease is over, and what is left of it.
    async fn tell(&self, held: &Held) -> Result<Release, StoreError> {
        match held.remains() {
            Some((record, ttl)) => self.store.complete(held.attempt(), &record, ttl).await,
            None => self.store.release(held.attempt()).await,
        }
    }

    /// Makes one call to give back a lease from the queue, and puts it back into the queue if that was not the last.
    pub(super) async fn release_from_queue(&self, mut releasing: Releasing) {
        if releasing.held.stays() {
            releasing.held.tenure_ended(Released::Kept);
            return self.no_more(&releasing);
        }
        let unfinished = Unfinished { core: self, releasing: Some(&mut releasing) };
        let call = self.breaker.calling();
        let held = unfinished.held();
        let completes = held.remains().is_some();
        // What was answered once has left what it leaves; after that it is only taken back.
        let answer = if unfinished.is_answered() {
            self.store.release(held.attempt()).await
        } else {
            self.tell(held).await
        };
        self.breaker.heard(call, &answer);
        unfinished.finish();
        let held = releasing.held.clone();
        let last = match answer {
            Ok(release) => {
                if !releasing.answered {
                    held.tenure_ended(ended(&held, release, completes, releasing.doubtful));
                    self.given_back(&held, others_woken(release));
                }
                if !releasing.answered && !release.conclusive {
                    self.releases.echoes.add();
                    self.releases.unanswered.remove();
                    releasing.answered = true;
                    releasing.pause = FIRST_PAUSE;
                }
                release.conclusive
            }
            Err(error) => {
                self.complain("release", held.on(), &error);
                releasing.doubtful |= error.effect() == Effect::Unknown;
                !error.is_retryable() && error.effect() == Effect::NotApplied
            }
        };
        if last {
            self.no_more(&releasing);
        } else {
            self.later(releasing);
        }
    }

    /// Queues the next call, unless the lease is over.
    fn later(&self, mut releasing: Releasing) {
        let (now, until) = (Instant::now(), releasing.held.engine_until());
        if now >= until {
            return self.no_more(&releasing);
        }
        // The last one goes out when the lease should be over: it may have been granted late.
        let at = (now + self.sources.jittered(releasing.pause)).min(until);
        releasing.pause *= 2;
        if !releasing.answered {
            releasing.pause = releasing.pause.min(LONGEST_PAUSE);
        }
        self.releases.queue.put(at, releasing, |_| {});
    }

    fn no_more(&self, releasing: &Releasing) {
        // Unless it was answered before.
        releasing.held.tenure_ended(Released::Engine);
        self.given_back(&releasing.held, None);
        self.releases.tally(releasing.answered).remove();
    }

    fn given_back(&self, held: &Arc<Held>, woken: Option<usize>) {
        held.finish_release();
        self.lines.ended(held, woken);
    }
}

/// How many were woken because the key was given back. What was only withdrawn has freed nothing, whoever was told.
fn others_woken(answer: Release) -> Option<usize> {
    answer.woken.filter(|_| answer.held)
}

/// How the release of a lease ended, by its answer.
fn ended(held: &Held, answer: Release, completes: bool, doubtful: bool) -> Released {
    match answer.held {
        true if completes => Released::Completed,
        true => Released::GivenBack,
        // The answer to the call that gave it back may have been lost.
        false if doubtful => Released::Unknown,
        // By now: it may have run out on the way.
        false if held.has_run_out() => Released::Expired,
        false => Released::TakenOver,
    }
}

/// A call that did not come to its end, because its runtime ended or the store panicked: the lease goes back into the
/// queue.
struct Unfinished<'a> {
    core: &'a Core,
    releasing: Option<&'a mut Releasing>,
}

impl Unfinished<'_> {
    #[expect(
        clippy::expect_used,
        reason = "it is taken only by `finish` and `drop`, which are the end of it"
    )]
    fn held(&self) -> &Arc<Held> {
        &self.releasing.as_ref().expect("not finished yet").held
    }

    fn is_answered(&self) -> bool {
        self.releasing.as_ref().is_some_and(|releasing| releasing.answered)
    }

    fn finish(mut self) {
        self.releasing = None;
    }
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        if let Some(releasing) = self.releasing.take() {
            let again = Releasing { held: releasing.held.clone(), doubtful: true, ..*releasing };
            self.core.later(again);
        }
    }
}

/// Queues the lease when it is dropped.
struct Later<'a> {
    releases: &'a Releases,
    held: Option<&'a Arc<Held>>,
    doubtful: bool,
}

impl Drop for Later<'_> {
    fn drop(&mut self) {
        if let Some(held) = self.held {
            self.releases.push_again(held.clone(), self.doubtful);
        }
    }
}
