//! `redis-lock` runs a future under the lock and has no guard: here its future is polled up to where it has the lock, and
//! then to its end.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{Either, select};
use redis_for_redis_lock::Client;
use redis_for_redis_lock::aio::MultiplexedConnection;
use redis_lock::{LockAcrossOptions, lock_across};
use tokio::sync::{Mutex, oneshot};

use super::{Contender, Kind, Locks, POLL, Pending, TTL, Taken};

const NOTE: &str = "redis-lock: its default TTL is 10 ms, after which others hold the lock too; one connection behind a mutex";

struct RedisLock {
    connection: Arc<Mutex<MultiplexedConnection>>,
    best: bool,
}

struct Guard {
    running: Pending<'static, bool>,
    done: oneshot::Sender<()>,
}

pub(super) fn contenders() -> [Contender; 2] {
    [
        Contender::new("redis-lock", Kind::Peer, |url| RedisLock::connect(url, false)).noted(NOTE),
        Contender::new("redis-lock, best", Kind::Peer, |url| RedisLock::connect(url, true)).noted(NOTE),
    ]
}

impl RedisLock {
    async fn connect(url: String, best: bool) -> Self {
        let client = Client::open(url).expect("the address is our own");
        let connection = client.get_multiplexed_async_connection().await.expect("the server runs");
        Self { connection: Arc::new(Mutex::new(connection)), best }
    }

    fn options(&self, wait: Duration) -> LockAcrossOptions {
        let mut options = LockAcrossOptions::default();
        if self.best {
            (options.ttl, options.retry) = (TTL, POLL);
        }
        // It asks as long as this has not passed, so the shortest that asks once.
        options.duration = wait.max(Duration::from_millis(1));
        options
    }
}

impl Locks for RedisLock {
    fn take<'a>(&'a self, key: &'a str, wait: Duration) -> Pending<'a, Option<Box<dyn Taken>>> {
        let (connection, key, options) = (self.connection.clone(), key.to_owned(), self.options(wait));
        Box::pin(async move {
            let (entered, has_entered) = oneshot::channel();
            let (done, is_done) = oneshot::channel();
            let held = async move {
                let _ = entered.send(());
                let _ = is_done.await;
            };
            let running: Pending<'static, bool> =
                Box::pin(async move { lock_across(&[connection], &key, held, options).await.is_ok() });
            match select(running, has_entered).await {
                Either::Left(_) => None,
                Either::Right((_, running)) => Some(Box::new(Guard { running, done }) as Box<dyn Taken>),
            }
        })
    }
}

impl Taken for Guard {
    fn give_back(self: Box<Self>) -> Pending<'static, ()> {
        Box::pin(async move {
            let Self { running, done } = *self;
            let _ = done.send(());
            // Not released is what happens to those whose TTL is over.
            running.await;
        })
    }
}
