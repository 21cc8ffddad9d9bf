//! The least one can write by hand with the `redis` crate: one multiplexed connection, `SET NX PX`, compare-and-delete by
//! EVALSHA, a poll every 5 ms. No renewal, no loss, no release on drop, no line.

use std::sync::LazyLock;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Script};

use super::{Locks, POLL, Pending, TTL, Taken, until};

static COMPARE_AND_DELETE: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0",
    )
});

/// A connection as everybody here has it who is written by hand.
pub(crate) async fn connection(url: String) -> MultiplexedConnection {
    let client = Client::open(url).expect("the address is our own");
    // A limit as by default, but one that a loaded machine keeps.
    let config = AsyncConnectionConfig::new().set_response_timeout(Some(Duration::from_secs(30)));
    client.get_multiplexed_async_connection_with_config(&config).await.expect("the server runs")
}

pub(crate) struct Reference {
    connection: MultiplexedConnection,
}

struct Token {
    connection: MultiplexedConnection,
    key: String,
    token: String,
}

impl Reference {
    pub(crate) async fn connect(url: String) -> Self {
        Self { connection: connection(url).await }
    }

    async fn once(&self, key: &str) -> Option<Box<dyn Taken>> {
        let connection = self.connection.clone();
        let token = set_nx(connection.clone(), key).await?;
        Some(Box::new(Token { connection, key: key.to_owned(), token }))
    }
}

/// A token that nobody can guess.
pub(crate) fn new_token() -> String {
    format!("{:032x}", rand::random::<u128>())
}

/// `SET NX PX`: the token under which the key was taken.
pub(crate) async fn set_nx(mut connection: MultiplexedConnection, key: &str) -> Option<String> {
    let token = new_token();
    let mut set = redis::cmd("SET");
    set.arg(key).arg(&token).arg("NX").arg("PX").arg(TTL.as_millis() as u64);
    let granted: Option<String> = set.query_async(&mut connection).await.expect("SET");
    granted.map(|_| token)
}

impl Locks for Reference {
    fn take<'a>(&'a self, key: &'a str, wait: Duration) -> Pending<'a, Option<Box<dyn Taken>>> {
        if wait.is_zero() {
            return Box::pin(self.once(key));
        }
        Box::pin(until(wait, POLL, move || self.once(key)))
    }
}

impl Taken for Token {
    fn give_back(self: Box<Self>) -> Pending<'static, ()> {
        Box::pin(async move {
            let Self { mut connection, key, token } = *self;
            let deleted: i64 =
                COMPARE_AND_DELETE.key(key).arg(token).invoke_async(&mut connection).await.expect("EVALSHA");
            debug_assert_eq!(deleted, 1);
        })
    }
}
