//! The one background task of a manager: releases from the queue, renewals, revocations.
//!
//! It is started by the first call that needs it and again if its runtime has ended meanwhile. It ends when the
//! manager and all its guards are gone and the queue is empty. A job is one call to the store: a lease that must be
//! tried again waits in its queue, not in a job.

use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;

use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep_until};

use super::core::Core;
use super::heard::Heard;
use super::held::Loss;
use crate::store::{Notice, Revocation, Revocations};
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{self, Notify};
use crate::telemetry::LOOK_EVERY;

/// How many calls to renew are under way at a time. Each lease has at most one, so those of a sick node do not take the
/// places of the others until there are very many of them.
const RENEWALS: usize = 1024;
/// How many other jobs are under way at a time; the rest waits in its queue, earliest first.
const CONCURRENCY: usize = 64;

type Job = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The switches of the background task.
#[derive(Debug, Default)]
pub(super) struct Background {
    running: AtomicBool,
    /// The manager and its guards are gone.
    finishing: AtomicBool,
    changed: Notify,
    pub(super) heard: Heard,
}

impl Background {
    pub(super) fn finish(&self) {
        self.finishing.store(true, Ordering::Release);
        self.changed.notify_one();
    }
}

/// Resets `running` when the task ends in any way, the end of its runtime included.
struct Running(Arc<Core>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.background.heard.stop();
        self.0.background.running.store(false, Ordering::Release);
    }
}

impl Core {
    /// Starts the background task unless it runs. To be called from async code: from `drop` nothing is spawned.
    #[inline]
    pub(super) fn ensure_background(self: &Arc<Self>) {
        if !self.background.running.load(Ordering::Acquire) {
            self.start_background();
        }
    }

    #[cold]
    fn start_background(self: &Arc<Self>) {
        let Some(runtime) = self.runtime.clone().or_else(|| Handle::try_current().ok()) else { return };
        if !self.background.running.swap(true, Ordering::AcqRel) {
            sync::spawn(&runtime, attend(Running(self.clone())));
        }
    }

    /// Asks an engine that did not answer whether it does now.
    fn probe(self: &Arc<Self>) -> Job {
        self.breaker.probing();
        let core = self.clone();
        unpanicking(async move { core.breaker.probed(&core.store.ping().await) })
    }

    /// A lease was ended by force; if it is one of ours, its guard learns it.
    pub(super) fn revoked(&self, revocation: &Revocation) {
        if let Some(held) = self.lines.revoked(&revocation.on, &revocation.token) {
            held.end(Loss::Revoked);
            self.lines.ended(&held, None);
        }
    }
}

async fn attend(running: Running) {
    let core = &running.0;
    let mut renewals: FuturesUnordered<Job> = FuturesUnordered::new();
    let mut others: FuturesUnordered<Job> = FuturesUnordered::new();
    let mut probe: Option<Job> = None;
    let mut revocations = Some(core.store.revocations());
    let batches = core.store.capabilities().batches;
    let mut next_look = LOOK_EVERY.map(|every| Instant::now() + every);
    loop {
        // Before the queues are looked at: what is pushed before the end is announced is found.
        let finishing = core.background.finishing.load(Ordering::Acquire);
        while renewals.len() < RENEWALS {
            let batch = core.renewals.pop(batches);
            if batch.is_empty() {
                break;
            }
            for part in core.parts_of(batch) {
                let core = core.clone();
                renewals.push(unpanicking(async move { core.renew(part).await }));
            }
        }
        while others.len() < CONCURRENCY
            && let Some(job) = next_job(core)
        {
            others.push(job);
        }
        let nothing_left = core.releases.queue.is_empty() && core.renewals.passing.count() == 0;
        if finishing && others.is_empty() && nothing_left {
            return;
        }
        tokio::select! {
            biased;
            Some(()) = renewals.next(), if !renewals.is_empty() => {}
            Some(()) = others.next(), if !others.is_empty() => {}
            () = core.renewals.queue.due(), if renewals.len() < RENEWALS => {}
            () = core.releases.queue.due(), if others.len() < CONCURRENCY => {}
            () = core.passed.due() => core.tell_lines(),
            notice = next_notice(&mut revocations) => match notice {
                Notice::Listening => core.background.heard.begin(),
                Notice::Revoked(revocation) => core.revoked(&revocation),
            },
            () = core.background.heard.to_check.changed(), if others.len() < CONCURRENCY => {}
            () = core.breaker.probe_due(), if probe.is_none() => probe = Some(core.probe()),
            () = ended(&mut probe) => probe = None,
            () = core.background.changed.notified() => {}
            () = at(next_look) => {
                core.lines.note_expired();
                next_look = LOOK_EVERY.map(|every| Instant::now() + every);
            }
        }
    }
}

fn next_job(core: &Arc<Core>) -> Option<Job> {
    if let Some(held) = core.background.heard.next_to_check() {
        let core = core.clone();
        return Some(unpanicking(async move { core.check_still_held(&held).await }));
    }
    let releasing = core.releases.queue.pop_due()?;
    let core = core.clone();
    Some(unpanicking(async move { core.release_from_queue(releasing).await }))
}

/// A store that panics fails its step; it does not take the other leases with it.
fn unpanicking(job: impl Future<Output = ()> + Send + 'static) -> Job {
    // Nothing is used after a panic but what is behind locks that are never held over a call to the store.
    Box::pin(AssertUnwindSafe(job).catch_unwind().map(|end| {
        if end.is_err() {
            tracing::error!("the store panicked; its step counts as failed");
        }
    }))
}

/// Waits until then, for ever if there is no such moment.
async fn at(instant: Option<Instant>) {
    match instant {
        Some(instant) => sleep_until(instant).await,
        None => std::future::pending().await,
    }
}

/// Waits for the end of a job, for ever if there is none.
async fn ended(job: &mut Option<Job>) {
    match job {
        Some(job) => job.await,
        None => std::future::pending().await,
    }
}

async fn next_notice(revocations: &mut Option<Revocations>) -> Notice {
    if let Some(stream) = revocations
        && let Some(notice) = stream.next().await
    {
        return notice;
    }
    // The store has closed: the loop has other things to wait for.
    *revocations = None;
    std::future::pending().await
}
