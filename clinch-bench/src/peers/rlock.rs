//! `rlock`: renews by default; with its best settings it does not, and polls more often.

use std::time::Duration;

use rlock::async_lock::{RLock, RLockGuard};
use rlock::{AcquireOptions, RenewalMode};

use super::{Contender, Kind, Locks, POLL, Pending, TTL, Taken};

struct Rlock {
    rlock: RLock,
    best: bool,
}

struct Guard(RLockGuard);

pub(super) fn contenders() -> [Contender; 2] {
    [
        Contender::new("rlock", Kind::Peer, |url| Rlock::connect(url, false)),
        Contender::new("rlock, best", Kind::Peer, |url| Rlock::connect(url, true)),
    ]
}

impl Rlock {
    async fn connect(url: String, best: bool) -> Self {
        Self { rlock: RLock::new(url).await.expect("the server runs"), best }
    }

    fn options(&self, wait: Duration) -> AcquireOptions {
        let mut options = AcquireOptions::builder().lock_timeout(Some(wait));
        if self.best {
            options = options.ttl(TTL).retry_interval(POLL).renewal_mode(RenewalMode::Disabled);
        }
        options.build().expect("valid options")
    }
}

impl Locks for Rlock {
    fn take<'a>(&'a self, key: &'a str, wait: Duration) -> Pending<'a, Option<Box<dyn Taken>>> {
        Box::pin(async move {
            let guard = if wait.is_zero() {
                let options = self.options(Duration::from_secs(1));
                self.rlock.try_acquire_mutex_with_options(key, options).await.ok()??
            } else {
                self.rlock.acquire_mutex_with_options(key, self.options(wait)).await.ok()?
            };
            Some(Box::new(Guard(guard)) as Box<dyn Taken>)
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
