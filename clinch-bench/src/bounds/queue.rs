//! A queue in the engine with direct hand-over: the release makes the next one the holder, and tells it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use futures_util::StreamExt as _;
use redis::aio::MultiplexedConnection;
use redis::{Client, Script};
use tokio::sync::oneshot;

use crate::peers::{Locks, Pending, TTL, Taken, connection};

/// Takes the key, or stands in the queue.
static ACQUIRE: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "if redis.call('set', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return 1 end \
         redis.call('rpush', KEYS[2], ARGV[1]) return 0",
    )
});

/// Gives the key to the next one and tells it, or deletes it. A name is the user's channel, a blank and a number.
static RELEASE: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "if redis.call('get', KEYS[1]) ~= ARGV[1] then return 0 end \
         local next = redis.call('lpop', KEYS[2]) \
         if not next then redis.call('del', KEYS[1]) return 1 end \
         redis.call('set', KEYS[1], next, 'PX', ARGV[2]) \
         local blank = string.find(next, ' ', 1, true) \
         redis.call('publish', string.sub(next, 1, blank - 1), string.sub(next, blank + 1)) return 1",
    )
});

type Waiting = Arc<Mutex<HashMap<u64, oneshot::Sender<()>>>>;

pub(crate) struct Queue {
    connection: MultiplexedConnection,
    channel: String,
    next: AtomicU64,
    waiting: Waiting,
}

struct Turn {
    connection: MultiplexedConnection,
    key: String,
    name: String,
}

impl Queue {
    pub(crate) async fn connect(url: String) -> Self {
        let client = Client::open(url.as_str()).expect("the address is our own");
        let mut pubsub = client.get_async_pubsub().await.expect("the server runs");
        let channel = format!("queue-{:016x}", rand::random::<u64>());
        pubsub.subscribe(&channel).await.expect("SUBSCRIBE");
        let waiting = Waiting::default();
        let called = waiting.clone();
        tokio::spawn(async move {
            let mut messages = pubsub.into_on_message();
            while let Some(message) = messages.next().await {
                let number: u64 = message.get_payload().expect("a number");
                let one = called.lock().expect("nobody panics").remove(&number);
                one.map(|one| one.send(()));
            }
        });
        Self { connection: connection(url).await, channel, next: AtomicU64::new(0), waiting }
    }
}

impl Locks for Queue {
    fn take<'a>(&'a self, key: &'a str, _: Duration) -> Pending<'a, Option<Box<dyn Taken>>> {
        Box::pin(async move {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            let name = format!("{} {number}", self.channel);
            let (call, called) = oneshot::channel();
            self.waiting.lock().expect("nobody panics").insert(number, call);
            let mut connection = self.connection.clone();
            let mut acquire = ACQUIRE.key(key);
            acquire.key(format!("{key}:queue")).arg(&name).arg(TTL.as_millis() as u64);
            let granted: bool = acquire.invoke_async(&mut connection).await.expect("EVALSHA");
            if granted {
                self.waiting.lock().expect("nobody panics").remove(&number);
            } else {
                called.await.expect("the server runs");
            }
            Some(Box::new(Turn { connection, key: key.to_owned(), name }) as Box<dyn Taken>)
        })
    }
}

impl Taken for Turn {
    fn give_back(self: Box<Self>) -> Pending<'static, ()> {
        Box::pin(async move {
            let Self { mut connection, key, name } = *self;
            let mut release = RELEASE.key(&key);
            release.key(format!("{key}:queue")).arg(name).arg(TTL.as_millis() as u64);
            let _: i64 = release.invoke_async(&mut connection).await.expect("EVALSHA");
        })
    }
}
