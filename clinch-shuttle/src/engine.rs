//! The memory store behind a door: slow as an engine behind a network is, or with a bug that only some schedules show.

use std::sync::Arc;
use std::time::Duration;

use clinch::lease::{Attempt, ClaimKey, Record};
use clinch::store::{
    Capabilities, Cursor, Page, Release, Renewal, Revocations, Store, StoreFuture, Verdict, Wakeups,
};
use clinch::stores::memory::MemoryStore;
use clinch::{Holder, Token};
use tokio::sync::Notify;

use crate::pause;

/// How an engine behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Manner {
    /// As the memory store does.
    Prompt,
    /// A call takes a moment on its way and another one on its way back, in which its caller may be gone.
    Slow,
    /// Planted: looks whether the key is free, and takes it in a second step.
    ChecksThenActs,
    /// Planted: says that it listens for wake-ups before it does.
    ListensLate,
    /// Planted: answers a release before it was carried out.
    ReleasesLater,
}

/// A memory store that behaves in a certain manner.
#[derive(Debug)]
pub struct Engine {
    memory: MemoryStore,
    manner: Manner,
    released: Notify,
}

impl Engine {
    /// An empty one.
    pub fn new(manner: Manner) -> Arc<Self> {
        Arc::new(Self { memory: MemoryStore::new(), manner, released: Notify::new() })
    }

    /// The store itself.
    pub const fn memory(&self) -> &MemoryStore {
        &self.memory
    }

    /// Waits until nothing is held.
    pub async fn emptied(&self) {
        loop {
            let mut released = std::pin::pin!(self.released.notified());
            released.as_mut().enable();
            if self.memory.is_empty() {
                return;
            }
            released.await;
        }
    }

    async fn way(&self) {
        if self.manner == Manner::Slow {
            pause().await;
        }
    }
}

impl Store for Engine {
    fn capabilities(&self) -> Capabilities {
        self.memory.capabilities()
    }

    fn acquire<'a>(&'a self, attempt: &'a Attempt) -> StoreFuture<'a, Verdict> {
        Box::pin(async move {
            if self.manner == Manner::ChecksThenActs {
                let taken = self.memory.inspect(attempt.claims()[0].on()).await?;
                let verdict = self.memory.acquire(attempt).await?;
                return Ok(if taken.is_empty() { Verdict::granted() } else { verdict });
            }
            attempt.sending();
            self.way().await;
            let verdict = self.memory.acquire(attempt).await;
            self.way().await;
            verdict
        })
    }

    fn renew<'a>(&'a self, lease: &'a Attempt) -> StoreFuture<'a, Renewal> {
        Box::pin(async move {
            self.way().await;
            let renewal = self.memory.renew(lease).await;
            self.way().await;
            renewal
        })
    }

    fn release<'a>(&'a self, lease: &'a Attempt) -> StoreFuture<'a, Release> {
        Box::pin(async move {
            self.way().await;
            if self.manner == Manner::ReleasesLater {
                let (memory, token, claims) =
                    (self.memory.clone(), lease.token().clone(), lease.claims().to_vec());
                drop(shuttle::future::spawn(async move {
                    let lease = Attempt::new(token, claims);
                    if let Ok(lease) = lease {
                        let _ = memory.release(&lease).await;
                    }
                }));
                return Ok(Release { held: true, conclusive: true, woken: Some(0) });
            }
            let release = self.memory.release(lease).await;
            self.released.notify_waiters();
            self.way().await;
            release
        })
    }

    fn complete<'a>(
        &'a self,
        lease: &'a Attempt,
        record: &'a Record,
        ttl: Option<Duration>,
    ) -> StoreFuture<'a, Release> {
        self.memory.complete(lease, record, ttl)
    }

    fn wakeups(&self, on: &ClaimKey, queued: Option<&Token>) -> Wakeups {
        if self.manner == Manner::ListensLate {
            let signal = Arc::new(Notify::new());
            signal.notify_one();
            let (memory, on, relayed) = (self.memory.clone(), on.clone(), signal.clone());
            let relay = shuttle::future::spawn(clinch::attentive(async move {
                for _ in 0..10 {
                    pause().await;
                }
                let mut wakeups = memory.wakeups(&on, None);
                // The first one says that it listens from now on, which was said before.
                wakeups.next().await;
                loop {
                    wakeups.next().await;
                    relayed.notify_one();
                }
            }));
            return Wakeups::new(signal, relay);
        }
        self.memory.wakeups(on, queued)
    }

    fn revocations(&self) -> Revocations {
        self.memory.revocations()
    }

    fn inspect<'a>(&'a self, on: &'a ClaimKey) -> StoreFuture<'a, Vec<Holder>> {
        self.memory.inspect(on)
    }

    fn list(&self, cursor: Cursor) -> StoreFuture<'_, Page> {
        self.memory.list(cursor)
    }

    fn revoke<'a>(&'a self, on: &'a ClaimKey, token: &'a Token) -> StoreFuture<'a, bool> {
        self.memory.revoke(on, token)
    }

    fn ping(&self) -> StoreFuture<'_, Duration> {
        self.memory.ping()
    }
}
