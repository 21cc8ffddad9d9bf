//! `distributed-lock-redis`. Its `acquire` with a time limit gives up at the first refusal where there is one server, so its
//! tries are repeated here.

use std::time::Duration;

use distributed_lock_core::traits::{DistributedLock, LockHandle, LockProvider};
use distributed_lock_redis::{RedisLockHandle, RedisLockProvider};

use super::{Contender, Kind, Locks, POLL, Pending, TTL, Taken, until};

const NOTE: &str = "distributed-lock-redis: does not wait on one server whatever its limit, so its tries are repeated every 50 ms \
     (default) or 5 ms (best)";

struct Provider {
    provider: RedisLockProvider,
    pause: Duration,
}

struct Guard(RedisLockHandle);

pub(super) fn contenders() -> [Contender; 2] {
    let (usual, best) = (Duration::from_millis(50), POLL);
    [
        Contender::new("distributed-lock-redis", Kind::Peer, move |url| Provider::connect(url, None, usual))
            .noted(NOTE),
        Contender::new("distributed-lock-redis, best", Kind::Peer, move |url| {
            Provider::connect(url, Some(TTL), best)
        })
        .noted(NOTE),
    ]
}

impl Provider {
    async fn connect(url: String, expiry: Option<Duration>, pause: Duration) -> Self {
        let mut builder = RedisLockProvider::builder().url(url);
        if let Some(expiry) = expiry {
            builder = builder.expiry(expiry).min_validity(expiry * 9 / 10);
        }
        Self { provider: builder.build().await.expect("the server runs"), pause }
    }

    async fn once(&self, key: &str) -> Option<Box<dyn Taken>> {
        let lock = self.provider.create_lock(key);
        let handle = lock.try_acquire().await.expect("the server answers")?;
        Some(Box::new(Guard(handle)))
    }
}

impl Locks for Provider {
    fn take<'a>(&'a self, key: &'a str, wait: Duration) -> Pending<'a, Option<Box<dyn Taken>>> {
        Box::pin(until(wait, self.pause, move || self.once(key)))
    }
}

impl Taken for Guard {
    fn give_back(self: Box<Self>) -> Pending<'static, ()> {
        Box::pin(async move {
            let _ = self.0.release().await;
        })
    }
}
