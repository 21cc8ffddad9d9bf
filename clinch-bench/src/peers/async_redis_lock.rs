//! `async-redis-lock`: a task for every lock that renews it.

use std::time::Duration;

use async_redis_lock::{Lock, Locker, Options};

use super::{Contender, Kind, Locks, POLL, Pending, TTL, Taken};

struct AsyncRedisLock {
    locker: Locker,
    options: Options,
}

struct Guard(Lock);

pub(super) fn contenders() -> [Contender; 2] {
    let best = || Options::new().retry(POLL).ttl(TTL);
    [
        Contender::new("async-redis-lock", Kind::Peer, |url| AsyncRedisLock::connect(url, Options::new())),
        Contender::new("async-redis-lock, best", Kind::Peer, move |url| AsyncRedisLock::connect(url, best())),
    ]
}

impl AsyncRedisLock {
    async fn connect(url: String, options: Options) -> Self {
        Self { locker: Locker::from_redis_url(&url).await.expect("the server runs"), options }
    }
}

impl Locks for AsyncRedisLock {
    fn take<'a>(&'a self, key: &'a str, wait: Duration) -> Pending<'a, Option<Box<dyn Taken>>> {
        let options = self.options.clone().timeout(Some(wait));
        Box::pin(async move {
            let lock = self.locker.acquire_with_options(&options, key).await.ok()?;
            Some(Box::new(Guard(lock)) as Box<dyn Taken>)
        })
    }
}

impl Taken for Guard {
    fn give_back(self: Box<Self>) -> Pending<'static, ()> {
        Box::pin(async move {
            let _ = self.0.release().await;
        })
    }
}
