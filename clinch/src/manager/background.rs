//! The one background task of a manager: releases from the queue, renewals, revocations.
//!
//! It is started by the first call that needs it and again if its runtime has ended meanwhile. It ends when the
//! manager and all its guards are gone and the queue is empty.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::runtime::Handle;
use tokio::sync::Notify;

use super::core::Core;
use super::held::{Held, Loss};
use crate::store::{Notice, Revocation, Revocations};

/// How many releases and renewals are under way at a time; the rest waits in its queue, earliest deadline first.
const CONCURRENCY: usize = 64;

type Job = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The switches of the background task.
#[derive(Debug, Default)]
pub(super) struct Background {
    running: AtomicBool,
    /// Somebody watches for losses, so revocations are listened to.
    listening: AtomicBool,
    /// The manager and its guards are gone.
    finishing: AtomicBool,
    changed: Notify,
    pub(super) heard: Heard,
}

/// Since when every revocation has been heard: a number that changes when hearing began anew, because of what may have
/// been missed before. 0: nothing is heard yet.
#[derive(Debug, Default)]
pub(super) struct Heard {
    since: AtomicU64,
    changed: Notify,
}

impl Heard {
    pub(super) fn since(&self) -> u64 {
        self.since.load(Ordering::Acquire)
    }

    fn start_anew(&self) {
        self.since.fetch_add(1, Ordering::AcqRel);
        self.changed.notify_waiters();
    }

    /// Waits until hearing has begun anew after `before`, or for the first time.
    pub(super) async fn begun_after(&self, before: u64) -> u64 {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            match self.since() {
                since if since != before && since != 0 => return since,
                _ => changed.await,
            }
        }
    }
}

impl Background {
    /// Listens to revocations from now on.
    pub(super) fn listen(&self) {
        if !self.listening.swap(true, Ordering::AcqRel) {
            self.changed.notify_one();
        }
    }

    pub(super) fn finish(&self) {
        self.finishing.store(true, Ordering::Release);
        self.changed.notify_one();
    }
}

/// Resets `running` when the task ends in any way, the end of its runtime included.
struct Running(Arc<Core>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.background.running.store(false, Ordering::Release);
    }
}

impl Core {
    /// Starts the background task unless it runs. To be called from async code: from `drop` nothing is spawned.
    pub(super) fn ensure_background(self: &Arc<Self>) {
        if self.background.running.load(Ordering::Acquire) {
            return;
        }
        let Some(runtime) = self.runtime.clone().or_else(|| Handle::try_current().ok()) else { return };
        if !self.background.running.swap(true, Ordering::AcqRel) {
            runtime.spawn(attend(Running(self.clone())));
        }
    }
}

async fn attend(running: Running) {
    let core = &running.0;
    let mut jobs: FuturesUnordered<Job> = FuturesUnordered::new();
    let mut revocations: Option<Revocations> = None;
    loop {
        while jobs.len() < CONCURRENCY {
            if let Some(job) = next_job(core) {
                jobs.push(job);
            } else {
                break;
            }
        }
        if core.background.finishing.load(Ordering::Acquire) && jobs.is_empty() {
            return;
        }
        if revocations.is_none() && core.background.listening.load(Ordering::Acquire) {
            revocations = Some(core.store.revocations());
        }
        let room = jobs.len() < CONCURRENCY;
        tokio::select! {
            biased;
            Some(()) = jobs.next(), if !jobs.is_empty() => {}
            () = core.renewals.due(), if room => {}
            () = core.releases.pushed(), if room => {}
            notice = next_notice(&mut revocations) => match notice {
                Notice::Listening => core.background.heard.start_anew(),
                Notice::Revoked(revocation) => core.revoked(&revocation),
            },
            () = core.background.changed.notified() => {}
        }
    }
}

/// Renewals first: a late release costs the others some time, a late renewal costs the holder its lease.
fn next_job(core: &Arc<Core>) -> Option<Job> {
    if let Some(renewed) = core.renewals.pop() {
        let core = core.clone();
        return Some(Box::pin(async move { core.renew(renewed).await }));
    }
    let job = Releasing { held: Some(core.releases.pop()?), core: core.clone() };
    Some(Box::pin(job.run()))
}

/// A lease from the queue on its way out. If the runtime ends meanwhile, it goes back into the queue, for the next
/// background task.
struct Releasing {
    held: Option<Arc<Held>>,
    core: Arc<Core>,
}

impl Releasing {
    async fn run(mut self) {
        if let Some(held) = &self.held {
            self.core.release_from_queue(held).await;
            self.held = None;
            self.core.releases.pending.remove();
        }
    }
}

impl Drop for Releasing {
    fn drop(&mut self) {
        if let Some(held) = self.held.take() {
            self.core.releases.put_back(held);
        }
    }
}

async fn next_notice(revocations: &mut Option<Revocations>) -> Notice {
    if let Some(stream) = revocations
        && let Some(notice) = stream.next().await
    {
        return notice;
    }
    // Not listening, or the store has closed: the loop has other things to wait for.
    *revocations = None;
    std::future::pending().await
}

impl Core {
    /// A lease was ended by force; if it is one of ours, its guard learns it.
    pub(super) fn revoked(&self, revocation: &Revocation) {
        if let Some(held) = self.lines.revoked(&revocation.on, &revocation.token) {
            tracing::warn!(key = %revocation.on, "lease revoked by force");
            held.end(Loss::Revoked);
            self.lines.ended(&held);
        }
    }
}

impl Core {
    /// Asks the engine whether the lease is still ours: a revocation may have gone unheard.
    pub(super) async fn check_still_held(&self, held: &Arc<Held>) {
        match self.store.inspect(held.on()).await {
            Ok(holders) if holders.iter().any(|holder| holder.token() == held.attempt().token()) => {}
            Ok(_) => {
                held.end(Loss::TakenOver);
                self.lines.ended(held);
            }
            // Its validity is not longer for that, and the next renewal asks again.
            Err(error) => {
                tracing::debug!(key = %held.on(), %error, "could not look whether the lease is still held");
            }
        }
    }
}
