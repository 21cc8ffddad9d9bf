//! A bare wake-up: the release publishes, the waiter hears it and asks again.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use futures_util::StreamExt as _;
use redis::aio::{MultiplexedConnection, PubSub};
use redis::{Client, Script};
use tokio::sync::Mutex;

use crate::peers::{Locks, Pending, Taken, connection, set_nx};

static RELEASE: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "if redis.call('get', KEYS[1]) == ARGV[1] then redis.call('del', KEYS[1]) redis.call('publish', KEYS[1], '') \
         return 1 end return 0",
    )
});

/// One waiter at a time, which listens itself.
pub(crate) struct WakeUp {
    connection: MultiplexedConnection,
    listening: Arc<Mutex<Listening>>,
}

struct Listening {
    pubsub: PubSub,
    /// What it is subscribed to, once and for all.
    to: Option<String>,
}

struct Token {
    connection: MultiplexedConnection,
    key: String,
    token: String,
}

impl WakeUp {
    pub(crate) async fn connect(url: String) -> Self {
        let client = Client::open(url.as_str()).expect("the address is our own");
        let pubsub = client.get_async_pubsub().await.expect("the server runs");
        let listening = Arc::new(Mutex::new(Listening { pubsub, to: None }));
        Self { connection: connection(url).await, listening }
    }

    async fn once(&self, key: &str) -> Option<Box<dyn Taken>> {
        let connection = self.connection.clone();
        let token = set_nx(connection.clone(), key).await?;
        Some(Box::new(Token { connection, key: key.to_owned(), token }))
    }

    async fn waited(&self, key: &str) -> Box<dyn Taken> {
        if let Some(taken) = self.once(key).await {
            return taken;
        }
        let mut listening = self.listening.lock().await;
        let Listening { pubsub, to } = &mut *listening;
        if to.as_deref() != Some(key) {
            pubsub.subscribe(key).await.expect("SUBSCRIBE");
            *to = Some(key.to_owned());
        }
        loop {
            if let Some(taken) = self.once(key).await {
                return taken;
            }
            pubsub.on_message().next().await.expect("the server runs");
        }
    }
}

impl Locks for WakeUp {
    fn take<'a>(&'a self, key: &'a str, wait: Duration) -> Pending<'a, Option<Box<dyn Taken>>> {
        Box::pin(
            async move { if wait.is_zero() { self.once(key).await } else { Some(self.waited(key).await) } },
        )
    }
}

impl Taken for Token {
    fn give_back(self: Box<Self>) -> Pending<'static, ()> {
        Box::pin(async move {
            let Self { mut connection, key, token } = *self;
            let _: i64 = RELEASE.key(key).arg(token).invoke_async(&mut connection).await.expect("EVALSHA");
        })
    }
}
