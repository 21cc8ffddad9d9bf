//! Values in Redis that check fences.

use std::sync::LazyLock;
use std::time::Duration;

use redis::aio::ConnectionLike;
use redis::{ErrorKind, FromRedisValue, RedisError, Script, ToSingleRedisArg};

use super::Stale;
use crate::lease::Fence;

/// Far beyond any use, and far from where Redis' clock overflows.
const LONGEST_MS: u128 = 1 << 52;

static WRITE: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("write.lua")));

/// A value in Redis that takes writes only with a fence not lower than the highest it has seen.
///
/// It is a hash with the fields `value` and `fence`, so that whatever expires, evicts or deletes the one does so with the
/// other, and it is written by one script. Any connection of the `redis` crate (1.x) will do, a cluster's too; it need not
/// be the server that has the lock. It is read by everybody (`HGET key value`), and must be written by this alone: `HSET`
/// asks no fence.
///
/// ```
/// use std::time::Duration;
/// use clinch::{LockManager, LockOptions};
/// use clinch::fencing::redis::{FencedKey, WriteError};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = clinch_testkit::server::RedisServer::start();
/// # let url = server.url();
/// let mut connection = redis::Client::open(url.as_str())?.get_multiplexed_async_connection().await?;
/// let locks = LockManager::connect(&url).await?;
/// let balance = FencedKey::new("balance:7");
///
/// let guard = locks.lock("account:7", LockOptions::new(Duration::from_secs(10)).fenced()).await?;
/// let fence = guard.fence().ok_or("no fence")?;
/// balance.write(&mut connection, fence, 200).await?;
/// assert_eq!(balance.read(&mut connection).await?, Some((fence, 200)));
///
/// let earlier = clinch::Fence::new(fence.get() - 1);
/// let late = balance.write(&mut connection, earlier, 100).await;
/// assert!(matches!(late, Err(WriteError::Stale(_))));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FencedKey {
    key: String,
    ttl: Option<Duration>,
}

/// Why a value was not written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// Somebody with a higher fence was here before. Nothing was written.
    #[error(transparent)]
    Stale(#[from] Stale),
    /// Redis did not do it, or did not answer; then it may have been written. It may be sent again with the same fence.
    #[error(transparent)]
    Redis(#[from] RedisError),
}

impl FencedKey {
    /// The value under this key. The name is used as it is, without the prefix of a manager.
    pub fn new(key: impl Into<String>) -> Self {
        Self { key: key.into(), ttl: None }
    }

    /// Lets the value expire this long after each write that was taken (at least 1 ms), instead of never.
    ///
    /// With it goes the memory of its fence: after that a write of any holder is taken. So let it live much longer than a
    /// writer can be late.
    #[must_use]
    pub const fn expires_after(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// The key.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Writes, unless somebody with a higher fence has written before. Doing it again with the same fence and value changes
    /// nothing, except that an expiry counts from anew.
    ///
    /// # Errors
    /// [`WriteError::Stale`]: give up, the lock has gone to somebody else. [`WriteError::Redis`] also if the key holds
    /// something that was not written in this way.
    ///
    /// # Cancel safety
    /// Not undone: once sent, it takes effect even if the future is dropped.
    pub async fn write(
        &self,
        connection: &mut impl ConnectionLike,
        fence: Fence,
        value: impl ToSingleRedisArg,
    ) -> Result<(), WriteError> {
        let expiry = self.ttl.map(|ttl| ttl.as_millis().clamp(1, LONGEST_MS).to_string());
        let higher: Option<String> = WRITE
            .key(&self.key)
            .arg(fence.get())
            .arg(value)
            .arg(expiry.unwrap_or_default())
            .invoke_async(connection)
            .await?;
        match higher {
            Some(highest) => Err(Stale { offered: fence, highest: parse(&highest)? }.into()),
            None => Ok(()),
        }
    }

    /// The last value that was taken, with its fence; `None` if there is none.
    ///
    /// # Errors
    /// That of Redis, or of a key that holds something else.
    ///
    /// # Cancel safety
    /// Safe: it changes nothing.
    pub async fn read<T: FromRedisValue>(
        &self,
        connection: &mut impl ConnectionLike,
    ) -> Result<Option<(Fence, T)>, RedisError> {
        let (fence, value): (Option<String>, redis::Value) =
            redis::cmd("HMGET").arg(&self.key).arg("fence").arg("value").query_async(connection).await?;
        match fence {
            Some(fence) => Ok(Some((parse(&fence)?, T::from_redis_value(value)?))),
            None => Ok(None),
        }
    }
}

fn parse(fence: &str) -> Result<Fence, RedisError> {
    let number = fence.parse().map_err(|_| {
        let text = format!("`{fence}` is not a fence");
        RedisError::from((ErrorKind::UnexpectedReturnType, "the hash was not written with a fence", text))
    })?;
    Ok(Fence::new(number))
}
