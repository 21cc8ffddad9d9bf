//! A connection to one server, and how one is made: at a fixed place, or at the primary that Sentinels name at the time.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use redis::{Client, FromRedisValue as _, RedisResult, Value};
use tokio::time::timeout;

use super::error::not_connected;
use super::sentinel::Sentinels;
use super::wire::{Line, Wire, ask, dial};
use crate::store::{ErrorKind, StoreError};
use crate::stores::in_flight::InFlight;
use crate::stores::quorum::Probation;

/// A connection, and whether it is still good.
pub(super) struct Connection {
    pub(super) wire: Wire,
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

    fn new(line: Line, client: Arc<Client>, at: Arc<str>, calls: &Calls) -> Self {
        let wire = Wire::over(line, calls.in_flight.clone(), calls.limit);
        Self { wire, client, at, broken: AtomicBool::new(false), probation: None }
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
    /// Makes a connection, and a real round trip over it. `roots`: the certificates that a server's must come from.
    /// `sits_out`: a server that was started anew grants nothing before leases of this TTL are over.
    pub(super) async fn connect(
        &self,
        roots: Option<&[u8]>,
        calls: &Calls,
        sits_out: Option<Duration>,
        shown: &str,
    ) -> Result<Connection, StoreError> {
        let sentinels = match self {
            Self::Fixed(client, at) => {
                let made = async {
                    let mut line = dial(client, roots).await?;
                    let probation = probation(&mut line, sits_out).await?;
                    Ok((line, probation))
                };
                let (line, probation) = made.await.map_err(|error| not_connected(shown, error))?;
                let connection = Connection::new(line, client.clone(), at.clone(), calls);
                return Ok(Connection { probation, ..connection });
            }
            Self::Watched(sentinels) => sentinels,
        };
        let found = sentinels.find().await?;
        let limit = sentinels.limit();
        let making = async {
            let mut line = dial(&found.primary, roots).await?;
            let role = ask(&mut line, &[redis::cmd("ROLE")]).await?.pop();
            let probation = probation(&mut line, sits_out).await?;
            Ok((line, role, probation))
        };
        let made = match timeout(limit, making).await {
            Ok(Ok((_, role, _))) if is_replica(role.as_ref()) => {
                let message =
                    format!("{}, which the Sentinels of {shown} name, is no primary (yet)", found.at);
                Err(StoreError::not_applied(ErrorKind::ReadOnly, message))
            }
            Ok(Ok((line, _, probation))) => Ok((line, probation)),
            Ok(Err(error)) => Err(not_connected(&format!("{} (named by {shown})", found.at), error)),
            Err(_) => {
                let message = format!("no connection to {}, which {shown} names, within {limit:?}", found.at);
                Err(StoreError::not_applied(ErrorKind::Unavailable, message))
            }
        };
        match made {
            Ok((line, probation)) => {
                let connection = Connection::new(line, Arc::new(found.primary), found.at.into(), calls);
                Ok(Connection { probation, ..connection })
            }
            Err(error) => {
                sentinels.doubt(&found);
                Err(error)
            }
        }
    }
}

/// Whether a server says that it is a replica. One that does not tell its role is taken as it is.
pub(super) fn is_replica(role: Option<&Value>) -> bool {
    let Some(Value::Array(role)) = role else { return false };
    matches!(role.first(), Some(Value::BulkString(word)) if word == b"slave")
}

/// For how long the server behind a new connection still grants nothing, if it sits out at all.
async fn probation(line: &mut Line, sits_out: Option<Duration>) -> RedisResult<Option<Probation>> {
    let Some(max_ttl) = sits_out else { return Ok(None) };
    let info = ask(line, &[redis::cmd("INFO").arg("server").clone()]).await?.pop().unwrap_or(Value::Nil);
    let info = String::from_redis_value(info.extract_error()?)?;
    let uptime = info.lines().find_map(|line| line.strip_prefix("uptime_in_seconds:")?.trim().parse().ok());
    // One that does not tell may have been started this moment.
    Ok(Some(Probation::after(Duration::from_secs(uptime.unwrap_or_default()), max_ttl)))
}
