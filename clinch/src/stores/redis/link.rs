//! The data connection: one, multiplexed and pipelined, made anew with jitter when it fails; a bound on the calls in
//! flight and a time limit on each.

use std::fmt;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::Shared;
use rand::RngExt;
use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::{AsyncConnectionConfig, Client, Cmd, FromRedisValue, RedisError, RedisResult, Value};
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep, timeout};

use super::error::{broke, nonsense, not_connected, refused};
use super::scripts::Call;
use crate::store::{ErrorKind, StoreError};
use crate::stores::StoreOptions;

const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// A connection, and whether it is still good.
pub(super) struct Connection {
    redis: MultiplexedConnection,
    broken: AtomicBool,
    since: Instant,
    /// Microseconds after `since` at which the last answer came.
    last_answer: AtomicU64,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("broken", &self.is_broken()).finish_non_exhaustive()
    }
}

impl Connection {
    pub(super) fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Acquire)
    }

    fn micros(&self, at: Instant) -> u64 {
        at.saturating_duration_since(self.since).as_micros().try_into().unwrap_or(u64::MAX)
    }

    fn answered(&self) {
        self.last_answer.fetch_max(self.micros(Instant::now()), Ordering::AcqRel);
    }

    /// Whether nothing at all came back since then.
    fn silent_since(&self, at: Instant) -> bool {
        self.last_answer.load(Ordering::Acquire) < self.micros(at)
    }
}

type Connecting = Shared<Pin<Box<dyn Future<Output = Result<Arc<Connection>, StoreError>> + Send>>>;

#[derive(Default)]
struct State {
    current: Option<Arc<Connection>>,
    /// The connection that is being made, shared by all who wait for it.
    connecting: Option<Connecting>,
    /// Failures in a row, for the pause before the next try.
    failures: u32,
    closed: bool,
}

/// The way to one Redis server.
pub(super) struct Link {
    client: Client,
    options: StoreOptions,
    shown: String,
    places: Semaphore,
    state: Mutex<State>,
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("to", &self.shown).finish_non_exhaustive()
    }
}

impl Link {
    /// `shown` is the address as it may be printed.
    pub(super) fn new(client: Client, options: StoreOptions, shown: String) -> Self {
        let places = Semaphore::new(options.max_in_flight);
        Self { client, options, shown, places, state: Mutex::default() }
    }

    pub(super) const fn client(&self) -> &Client {
        &self.client
    }

    pub(super) const fn options(&self) -> &StoreOptions {
        &self.options
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn close(&self) {
        let mut state = self.state();
        state.closed = true;
        state.current = None;
        state.connecting = None;
    }

    /// The connection, made if there is none. All who need it wait for the same one.
    pub(super) async fn connection(&self) -> Result<Arc<Connection>, StoreError> {
        let connecting = {
            let mut state = self.state();
            if state.closed {
                return Err(StoreError::not_applied(ErrorKind::Closed, "the store was closed"));
            }
            match &state.current {
                Some(current) if !current.is_broken() => return Ok(current.clone()),
                _ => state.current = None,
            }
            let failures = state.failures;
            state.connecting.get_or_insert_with(|| self.connect(failures).shared()).clone()
        };
        let result = connecting.clone().await;
        let mut state = self.state();
        // The first of those who waited puts it away.
        if state.connecting.as_ref().is_some_and(|other| other.ptr_eq(&connecting)) {
            state.connecting = None;
            match &result {
                Ok(connection) => {
                    state.failures = 0;
                    state.current = Some(connection.clone());
                }
                Err(_) => state.failures = state.failures.saturating_add(1),
            }
        }
        result
    }

    /// Makes a connection, after a pause that grows with the failures before it.
    fn connect(
        &self,
        failures: u32,
    ) -> Pin<Box<dyn Future<Output = Result<Arc<Connection>, StoreError>> + Send>> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(None)
            .set_response_timeout(None)
            .set_pipeline_buffer_size(self.options.max_in_flight);
        let (client, shown, limit) = (self.client.clone(), self.shown.clone(), self.options.connect_timeout);
        let runtime = self.options.runtime.clone();
        let connect = async move {
            if failures > 0 {
                sleep(pause_after(failures)).await;
            }
            let making = async {
                let mut redis = client.get_multiplexed_async_connection_with_config(&config).await?;
                // A real round trip: it tells whether this is Redis, and whether we may talk to it.
                redis::cmd("PING").exec_async(&mut redis).await?;
                RedisResult::Ok(redis)
            };
            match timeout(limit, making).await {
                Ok(Ok(redis)) => {
                    let since = Instant::now();
                    let (broken, last_answer) = (AtomicBool::new(false), AtomicU64::new(0));
                    Ok(Arc::new(Connection { redis, broken, since, last_answer }))
                }
                Ok(Err(error)) => Err(not_connected(&shown, error)),
                Err(_) => {
                    let message = format!("no connection to Redis at {shown} within {limit:?}");
                    Err(StoreError::not_applied(ErrorKind::Unavailable, message))
                }
            }
        };
        match runtime {
            // The connection is driven by the runtime on which it is made.
            Some(runtime) => Box::pin(async move {
                runtime.spawn(connect).await.unwrap_or_else(|error| {
                    let message = format!("the manager's own runtime has ended: {error}");
                    Err(StoreError::not_applied(ErrorKind::Unavailable, message))
                })
            }),
            None => Box::pin(connect),
        }
    }

    /// Runs a script. `over` picks the connection where it matters; `sending` is told which one it is, just before the
    /// first byte goes out.
    pub(super) async fn run<T: FromRedisValue>(
        &self,
        call: &Call,
        over: Option<Arc<Connection>>,
        sending: impl FnOnce(&Arc<Connection>),
    ) -> Result<T, StoreError> {
        self.exchange(Request::Script(call), over, sending).await
    }

    /// Runs one command.
    pub(super) async fn command<T: FromRedisValue>(&self, command: &Cmd) -> Result<T, StoreError> {
        self.exchange(Request::Command(command), None, |_| {}).await
    }

    async fn exchange<T: FromRedisValue>(
        &self,
        request: Request<'_>,
        over: Option<Arc<Connection>>,
        sending: impl FnOnce(&Arc<Connection>),
    ) -> Result<T, StoreError> {
        let limit = self.options.call_timeout;
        let Ok(place) = timeout(limit, self.places.acquire()).await else {
            let message = format!(
                "all {} places for calls in flight stayed taken for {limit:?}; raise `max_in_flight` or send less",
                self.options.max_in_flight
            );
            return Err(StoreError::not_applied(ErrorKind::Overloaded, message));
        };
        let connection = match over {
            Some(connection) => connection,
            None => timeout(limit, self.connection()).await.unwrap_or_else(|_| {
                let message = format!("no connection to Redis at {} within {limit:?}", self.shown);
                Err(StoreError::not_applied(ErrorKind::Unavailable, message))
            })?,
        };
        sending(&connection);
        let sent_at = Instant::now();
        let answer = timeout(limit, request.send(connection.redis.clone())).await;
        drop(place);
        match answer {
            Ok(Ok(value)) => {
                connection.answered();
                T::from_redis_value(value).map_err(nonsense)
            }
            Ok(Err(error)) if is_refusal(&error) => {
                connection.answered();
                let error = refused(error);
                if error.kind() == ErrorKind::ReadOnly {
                    // What was the primary is one no longer: the name may lead to the new one.
                    self.drop_connection(&connection);
                }
                Err(error)
            }
            Ok(Err(error)) => {
                connection.broken.store(true, Ordering::Release);
                self.drop_connection(&connection);
                Err(broke(&self.shown, error))
            }
            Err(_) => {
                if connection.silent_since(sent_at) {
                    // Nothing came back for the whole limit: later calls go over a new connection. This one stays open
                    // for what must follow in its order.
                    self.drop_connection(&connection);
                }
                let message = format!("Redis at {} did not answer within {limit:?}", self.shown);
                Err(StoreError::unknown(ErrorKind::Timeout, message))
            }
        }
    }

    /// Later calls go over another connection.
    fn drop_connection(&self, connection: &Arc<Connection>) {
        let mut state = self.state();
        if state.current.as_ref().is_some_and(|current| Arc::ptr_eq(current, connection)) {
            state.current = None;
        }
    }
}

/// What is sent.
enum Request<'a> {
    Script(&'a Call),
    Command(&'a Cmd),
}

impl Request<'_> {
    async fn send(self, mut redis: MultiplexedConnection) -> RedisResult<Value> {
        match self {
            Self::Command(command) => redis.req_packed_command(command).await?.extract_error(),
            Self::Script(call) => {
                match redis.req_packed_command(&call.by_hash()).await.and_then(Value::extract_error) {
                    Err(error) if is_noscript(&error) => {
                        redis.req_packed_command(&call.by_source()).await?.extract_error()
                    }
                    answer => answer,
                }
            }
        }
    }
}

fn is_noscript(error: &RedisError) -> bool {
    error.kind() == redis::ErrorKind::Server(redis::ServerErrorKind::NoScript)
}

/// Whether the server answered, as opposed to the connection failing.
fn is_refusal(error: &RedisError) -> bool {
    matches!(error.kind(), redis::ErrorKind::Server(_) | redis::ErrorKind::Extension)
}

/// Doubles from 10 ms to 1 s, then a random half of it, so that a fleet does not come back all at once.
pub(super) fn pause_after(failures: u32) -> Duration {
    let pause = FIRST_PAUSE.saturating_mul(1 << failures.min(10)).min(LONGEST_PAUSE);
    pause.mul_f64(rand::rng().random_range(0.5..1.0))
}
