//! A connection to one server, and how one is made: at a fixed place, or at the primary that Sentinels name at the time.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, RedisResult, Value};
use tokio::time::timeout;

use super::error::not_connected;
use super::lane::Lane;
use super::sentinel::Sentinels;
use crate::store::{ErrorKind, StoreError};
use crate::stores::in_flight::InFlight;
use crate::stores::quorum::Probation;

/// A connection, and whether it is still good.
pub(super) struct Connection {
    pub(super) redis: MultiplexedConnection,
    /// The way over it for calls that are sent together.
    pub(super) lane: Lane,
    /// The server that it leads to.
    client: Arc<Client>,
    at: Arc<str>,
    broken: AtomicBool,
    /// Until when the server behind it grants nothing. It is the same process as long as the connection lives.
    pub(super) probation: Option<Probation>,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("broken", &self.is_broken()).finish_non_exhaustive()
    }
}

impl Connection {
    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    /// Where it leads to.
    pub(super) const fn at(&self) -> &Arc<str> {
        &self.at
    }

    /// Nothing more goes over it.
    pub(super) fn breaks(&self) {
        self.broken.store(true, Ordering::Release);
    }

    pub(super) fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Acquire)
    }

    fn new(redis: MultiplexedConnection, client: Arc<Client>, at: Arc<str>, calls: &Calls) -> Self {
        let lane = Lane::new(redis.clone(), calls.in_flight.clone(), calls.limit);
        Self { redis, lane, client, at, broken: AtomicBool::new(false), probation: None }
    }
}

/// What is the same for the calls over all connections of a link.
#[derive(Debug, Clone)]
pub(super) struct Calls {
    pub(super) in_flight: Arc<InFlight>,
    /// The time limit of each.
    pub(super) limit: Duration,
}

/// Where a link leads to.
#[derive(Debug, Clone)]
pub(super) enum Target {
    /// One place. Where there are several, it has a name.
    Fixed(Arc<Client>, Arc<str>),
    /// Wherever the primary is that these name.
    Watched(Arc<Sentinels>),
}

impl Target {
    /// Makes a connection, and a real round trip over it.
    pub(super) async fn connect(
        &self,
        config: &AsyncConnectionConfig,
        calls: &Calls,
        shown: &str,
    ) -> Result<Connection, StoreError> {
        let failed = |error| not_connected(shown, error);
        let sentinels = match self {
            Self::Fixed(client, at) => {
                let mut redis =
                    client.get_multiplexed_async_connection_with_config(config).await.map_err(failed)?;
                // It tells whether this is Redis, and whether we may talk to it.
                redis::cmd("PING").exec_async(&mut redis).await.map_err(failed)?;
                return Ok(Connection::new(redis, client.clone(), at.clone(), calls));
            }
            Self::Watched(sentinels) => sentinels,
        };
        let found = sentinels.find().await?;
        let limit = sentinels.limit();
        let making = async {
            let mut redis = found.primary.get_multiplexed_async_connection_with_config(config).await?;
            redis::cmd("PING").exec_async(&mut redis).await?;
            let role: RedisResult<Vec<Value>> = redis::cmd("ROLE").query_async(&mut redis).await;
            Ok((redis, role))
        };
        let made = match timeout(limit, making).await {
            Ok(Ok((_, role))) if is_replica(role.as_ref().ok()) => {
                let message =
                    format!("{}, which the Sentinels of {shown} name, is no primary (yet)", found.at);
                Err(StoreError::not_applied(ErrorKind::ReadOnly, message))
            }
            Ok(Ok((redis, _))) => Ok(redis),
            Ok(Err(error)) => Err(not_connected(&format!("{} (named by {shown})", found.at), error)),
            Err(_) => {
                let message = format!("no connection to {}, which {shown} names, within {limit:?}", found.at);
                Err(StoreError::not_applied(ErrorKind::Unavailable, message))
            }
        };
        match made {
            Ok(redis) => Ok(Connection::new(redis, Arc::new(found.primary), found.at.into(), calls)),
            Err(error) => {
                sentinels.doubt(&found);
                Err(error)
            }
        }
    }
}

/// Whether a server says that it is a replica. One that does not tell its role is taken as it is.
pub(super) fn is_replica(role: Option<&Vec<Value>>) -> bool {
    matches!(role.and_then(|role| role.first()), Some(Value::BulkString(word)) if word == b"slave")
}

/// For how long the server behind a new connection still grants nothing.
pub(super) async fn probation(
    redis: &mut MultiplexedConnection,
    max_ttl: Duration,
) -> RedisResult<Probation> {
    let info: String = redis::cmd("INFO").arg("server").query_async(redis).await?;
    let uptime = info.lines().find_map(|line| line.strip_prefix("uptime_in_seconds:")?.trim().parse().ok());
    // One that does not tell may have been started this moment.
    Ok(Probation::after(Duration::from_secs(uptime.unwrap_or_default()), max_ttl))
}
