//! `rslock`: three tries with up to 200 ms between them, or as many as one sets. Its waits are numbers of tries.

use std::time::Duration;

use rslock::{Lock, LockManager};

use super::{Contender, Kind, Locks, POLL, Pending, TTL, Taken, until};

struct RsLock {
    /// As it is set.
    waiting: LockManager,
    /// One try.
    trying: LockManager,
}

struct Guard(Lock);

pub(super) fn contenders() -> [Contender; 2] {
    [
        Contender::new("rslock", Kind::Peer, |url| RsLock::connect(url, None)),
        Contender::new("rslock, best", Kind::Peer, |url| RsLock::connect(url, Some(POLL))),
    ]
}

impl RsLock {
    async fn connect(url: String, pause: Option<Duration>) -> Self {
        let mut waiting = LockManager::new(vec![url]);
        let mut trying = waiting.clone();
        trying.set_retry(1, POLL);
        match pause {
            Some(pause) => waiting.set_retry(u32::MAX, pause),
            None => trying = waiting.clone(),
        }
        Self { waiting, trying }
    }
}

impl Locks for RsLock {
    fn take<'a>(&'a self, key: &'a str, wait: Duration) -> Pending<'a, Option<Box<dyn Taken>>> {
        Box::pin(async move {
            let lock = if wait.is_zero() {
                self.trying.lock(key, TTL).await.ok()?
            } else {
                until(wait, Duration::ZERO, || async { self.waiting.lock(key, TTL).await.ok() }).await?
            };
            Some(Box::new(Guard(lock)) as Box<dyn Taken>)
        })
    }
}

impl Taken for Guard {
    fn give_back(self: Box<Self>) -> Pending<'static, ()> {
        Box::pin(self.0.release())
    }
}
