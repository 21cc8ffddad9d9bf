//! `rdlock`: woken by keyspace events over a new connection for every wait. Its locks have no token: whoever gives one back
//! deletes it, whosever it is.

use std::time::Duration;

use rdlock::RdLockConnectionManager;
use rdlock::lock::BasicLock;

use super::{Contender, Kind, Locks, Pending, TTL, Taken};

const NOTE: &str = "rdlock: no token, so a late release deletes the next one's lock; a new connection for every wait; the server \
     publishes keyspace events for it; nothing to set, so its default is its best";

struct RdLock(RdLockConnectionManager);

struct Guard(BasicLock);

pub(super) fn contender() -> Contender {
    Contender::new("rdlock", Kind::Peer, RdLock::connect).noted(NOTE).with_keyspace_events()
}

impl RdLock {
    async fn connect(url: String) -> Self {
        Self(RdLockConnectionManager::new(url).await.expect("the server publishes keyspace events"))
    }
}

impl Locks for RdLock {
    fn take<'a>(&'a self, key: &'a str, wait: Duration) -> Pending<'a, Option<Box<dyn Taken>>> {
        let mut lock = self.0.new_basic_lock(key, TTL.as_secs());
        Box::pin(async move {
            if wait.is_zero() {
                lock.try_lock().await.ok()?;
            } else if lock.try_lock().await.is_err() {
                lock.lock_timeout(wait).await.ok()?;
            }
            Some(Box::new(Guard(lock)) as Box<dyn Taken>)
        })
    }
}

impl Taken for Guard {
    fn give_back(mut self: Box<Self>) -> Pending<'static, ()> {
        Box::pin(async move {
            let _ = self.0.release().await;
        })
    }
}
