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
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};

use super::error::{broke, nonsense, not_connected, refused};
use super::scripts::Call;
use crate::store::{ErrorKind, StoreError};
use crate::stores::StoreOptions;
use crate::stores::in_flight::{InFlight, Purpose};
use crate::stores::quorum::Probation;

const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// A connection, and whether it is still good.
pub(super) struct Connection {
    redis: MultiplexedConnection,
    broken: AtomicBool,
    since: Instant,
    /// Microseconds after `since` at which the last answer came.
    last_answer: AtomicU64,
    /// Until when the server behind it grants nothing. It is the same process as long as the connection lives.
    probation: Option<Probation>,
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
    /// No try before this.
    retry_at: Option<Instant>,
    closed: bool,
}

impl State {
    /// A try to connect has come to its end.
    fn made(&mut self, made: &Result<Arc<Connection>, StoreError>) {
        self.connecting = None;
        match made {
            Ok(connection) => {
                (self.failures, self.retry_at) = (0, None);
                self.current = Some(connection.clone()).filter(|_| !self.closed);
            }
            Err(_) => {
                self.failures = self.failures.saturating_add(1);
                self.retry_at = Some(Instant::now() + pause_after(self.failures));
            }
        }
    }
}

fn locked(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The way to one Redis server.
pub(super) struct Link {
    client: Client,
    options: StoreOptions,
    shown: String,
    in_flight: InFlight,
    state: Arc<Mutex<State>>,
    /// A server that was started anew grants nothing before leases of this TTL are over.
    sits_out: Option<Duration>,
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("to", &self.shown).finish_non_exhaustive()
    }
}

impl Link {
    /// `shown` is the address as it may be printed.
    pub(super) fn new(client: Client, options: StoreOptions, shown: String) -> Self {
        let in_flight = InFlight::new(options.max_in_flight);
        Self { client, options, shown, in_flight, state: Arc::default(), sits_out: None }
    }

    /// The same, to a server that grants nothing until every lease of up to `max_ttl` is over that it may have forgotten
    /// when it was started.
    pub(super) fn sitting_out(mut self, max_ttl: Duration) -> Self {
        self.sits_out = Some(max_ttl);
        self
    }

    pub(super) const fn client(&self) -> &Client {
        &self.client
    }

    pub(super) const fn options(&self) -> &StoreOptions {
        &self.options
    }

    fn state(&self) -> MutexGuard<'_, State> {
        locked(&self.state)
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
            let retry_at = state.retry_at;
            state.connecting.get_or_insert_with(|| self.connect(retry_at).shared()).clone()
        };
        let result = connecting.clone().await;
        // Usually the task has put it away; not if its runtime ended.
        let mut state = self.state();
        if state.connecting.as_ref().is_some_and(|other| other.ptr_eq(&connecting)) {
            state.connecting = None;
        }
        result
    }

    /// Makes a connection, not before `retry_at`, in a task of its own: it goes on when those who wait for it give up,
    /// and fails cleanly when its runtime ends.
    fn connect(
        &self,
        retry_at: Option<Instant>,
    ) -> Pin<Box<dyn Future<Output = Result<Arc<Connection>, StoreError>> + Send>> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(None)
            .set_response_timeout(None)
            .set_pipeline_buffer_size(self.options.max_in_flight);
        let (client, shown, limit) = (self.client.clone(), self.shown.clone(), self.options.connect_timeout);
        let (runtime, state, sits_out) = (self.options.runtime.clone(), self.state.clone(), self.sits_out);
        let connect = async move {
            if let Some(at) = retry_at {
                sleep_until(at).await;
            }
            let making = async {
                let mut redis = client.get_multiplexed_async_connection_with_config(&config).await?;
                // A real round trip: it tells whether this is Redis, and whether we may talk to it.
                redis::cmd("PING").exec_async(&mut redis).await?;
                let probation = match sits_out {
                    Some(max_ttl) => Some(probation(&mut redis, max_ttl).await?),
                    None => None,
                };
                RedisResult::Ok((redis, probation))
            };
            let made = match timeout(limit, making).await {
                Ok(Ok((redis, probation))) => {
                    let since = Instant::now();
                    let (broken, last_answer) = (AtomicBool::new(false), AtomicU64::new(0));
                    Ok(Arc::new(Connection { redis, broken, since, last_answer, probation }))
                }
                Ok(Err(error)) => Err(not_connected(&shown, error)),
                Err(_) => {
                    let message = format!("no connection to Redis at {shown} within {limit:?}");
                    Err(StoreError::not_applied(ErrorKind::Unavailable, message))
                }
            };
            locked(&state).made(&made);
            made
        };
        // The connection is driven by the runtime on which it is made.
        let task = runtime.or_else(|| Handle::try_current().ok()).map(|runtime| runtime.spawn(connect));
        Box::pin(async move {
            let ended = |reason: &str| {
                let message = format!("no connection to Redis: {reason}");
                Err(StoreError::not_applied(ErrorKind::Unavailable, message))
            };
            match task {
                Some(task) => {
                    task.await.unwrap_or_else(|_| ended("the runtime that was making it has ended"))
                }
                None => ended("there is no tokio runtime here"),
            }
        })
    }

    /// Runs a script. `over` picks the connection where it matters; `sending` is told which one it is, just before the
    /// first byte goes out.
    pub(super) async fn run<T: FromRedisValue>(
        &self,
        purpose: Purpose,
        call: &Call,
        over: Option<Arc<Connection>>,
        sending: impl FnOnce(&Arc<Connection>),
    ) -> Result<T, StoreError> {
        self.exchange(purpose, Request::Script(call), over, sending).await
    }

    /// Runs scripts that have nothing to do with each other in one exchange, which takes one place in flight. `sending` is
    /// told as by [`run`](Self::run), once for all.
    pub(super) async fn run_each(
        &self,
        purpose: Purpose,
        calls: &[Call],
        sending: impl FnOnce(&Arc<Connection>),
    ) -> Result<Vec<Result<Value, StoreError>>, StoreError> {
        let mut over = None;
        let request = Request::Scripts(calls);
        let answers: Vec<Value> = self
            .exchange(purpose, request, None, |connection| {
                over = Some(connection.clone());
                sending(connection);
            })
            .await?;
        let answers: Vec<_> =
            answers.into_iter().map(|answer| answer.extract_error().map_err(refused)).collect();
        let read_only = |answer: &Result<_, StoreError>| {
            answer.as_ref().is_err_and(|error| error.kind() == ErrorKind::ReadOnly)
        };
        if let Some(connection) = over.filter(|_| answers.iter().any(read_only)) {
            self.drop_connection(&connection);
        }
        Ok(answers)
    }

    /// Runs one command.
    pub(super) async fn command<T: FromRedisValue>(&self, command: &Cmd) -> Result<T, StoreError> {
        self.exchange(Purpose::Other, Request::Command(command), None, |_| {}).await
    }

    async fn exchange<T: FromRedisValue>(
        &self,
        purpose: Purpose,
        request: Request<'_>,
        over: Option<Arc<Connection>>,
        sending: impl FnOnce(&Arc<Connection>),
    ) -> Result<T, StoreError> {
        let limit = self.options.call_timeout;
        let Ok(place) = timeout(limit, self.in_flight.place(purpose)).await else {
            return Err(self.in_flight.overloaded(limit));
        };
        let deadline = Instant::now() + limit;
        let connection = match over {
            Some(connection) => connection,
            None => timeout_at(deadline, self.connection()).await.unwrap_or_else(|_| {
                let message = format!("no connection to Redis at {} within {limit:?}", self.shown);
                Err(StoreError::not_applied(ErrorKind::Unavailable, message))
            })?,
        };
        let probation = connection.probation.as_ref().filter(|_| purpose == Purpose::Grant);
        if let Some(refusal) = probation.and_then(Probation::refusal) {
            return Err(refusal);
        }
        sending(&connection);
        let sent_at = Instant::now();
        let answer = timeout_at(deadline, request.send(connection.redis.clone())).await;
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

/// For how long the server behind a new connection still grants nothing.
async fn probation(redis: &mut MultiplexedConnection, max_ttl: Duration) -> RedisResult<Probation> {
    let info: String = redis::cmd("INFO").arg("server").query_async(redis).await?;
    let uptime = info.lines().find_map(|line| line.strip_prefix("uptime_in_seconds:")?.trim().parse().ok());
    // One that does not tell may have been started this moment.
    Ok(Probation::after(Duration::from_secs(uptime.unwrap_or_default()), max_ttl))
}

/// What is sent.
enum Request<'a> {
    Script(&'a Call),
    /// All at once; each answer may be an error of its own.
    Scripts(&'a [Call]),
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
            Self::Scripts(calls) => {
                let mut answers = pipelined(&mut redis, calls.iter().map(Call::by_hash)).await?;
                let unknown: Vec<usize> = (0..answers.len()).filter(|i| lacks_script(&answers[*i])).collect();
                if !unknown.is_empty() {
                    let by_source = unknown.iter().filter_map(|i| calls.get(*i)).map(Call::by_source);
                    let again = pipelined(&mut redis, by_source).await?;
                    for (i, answer) in unknown.into_iter().zip(again) {
                        answers[i] = answer;
                    }
                }
                Ok(Value::Array(answers))
            }
        }
    }
}

async fn pipelined(
    redis: &mut MultiplexedConnection,
    commands: impl Iterator<Item = Cmd>,
) -> RedisResult<Vec<Value>> {
    let mut pipeline = redis::pipe();
    commands.for_each(|command| {
        pipeline.add_command(command);
    });
    redis.req_packed_commands(&pipeline, 0, pipeline.len()).await
}

fn lacks_script(answer: &Value) -> bool {
    matches!(answer, Value::ServerError(error) if error.kind() == Some(redis::ServerErrorKind::NoScript))
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
