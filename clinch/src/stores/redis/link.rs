//! The data connection: one, multiplexed and pipelined, made anew with jitter when it fails; a bound on the calls in
//! flight and a time limit on each.

use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::Shared;
use rand::RngExt;
use redis::{Cmd, FromRedisValue, Value};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};

use super::connection::{Calls, Connection, Target};
use super::error::{nonsense, refused};
use super::request::Request;
use super::scripts::Call;
use super::wire::Packed;
use crate::store::{ErrorKind, StoreError};
use crate::stores::StoreOptions;
use crate::stores::in_flight::{InFlight, Purpose};

const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// How many connections for one caller at a time are kept.
const KEPT: usize = 16;

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
    /// Connections for one caller at a time that nobody uses now.
    idle: Vec<Arc<Connection>>,
}

impl State {
    /// A try to connect has come to its end.
    fn made(&mut self, made: &Result<Arc<Connection>, StoreError>) {
        self.connecting = None;
        match made {
            Ok(connection) => {
                (self.failures, self.retry_at) = (0, None);
                self.current = Some(connection.clone()).filter(|_| !self.closed);
                // They may lead elsewhere.
                self.idle.clear();
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

fn read<T: FromRedisValue>(answer: Result<Value, StoreError>) -> Result<T, StoreError> {
    T::from_redis_value(answer?).map_err(nonsense)
}

/// The way to one Redis server at a time.
pub(super) struct Link {
    target: Target,
    options: StoreOptions,
    pub(super) shown: String,
    pub(super) calls: Calls,
    state: Arc<Mutex<State>>,
    /// Where the last connection that was made leads to.
    moved: Arc<watch::Sender<Arc<str>>>,
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
    pub(super) fn new(target: Target, options: StoreOptions, shown: String) -> Self {
        let in_flight = Arc::new(InFlight::new(options.max_in_flight));
        let calls = Calls { in_flight, limit: options.call_timeout };
        let moved = Arc::new(watch::Sender::new(Arc::from("")));
        Self { target, options, shown, calls, state: Arc::default(), moved, sits_out: None }
    }

    /// The same, to a server that grants nothing until every lease of up to `max_ttl` is over that it may have forgotten
    /// when it was started.
    pub(super) fn sitting_out(mut self, max_ttl: Duration) -> Self {
        self.sits_out = Some(max_ttl);
        self
    }

    /// Whether the server is one of several that vote.
    pub(super) const fn votes(&self) -> bool {
        self.sits_out.is_some()
    }

    pub(super) const fn target(&self) -> &Target {
        &self.target
    }

    /// Tells where connections lead to, from now on.
    pub(super) fn moved(&self) -> watch::Receiver<Arc<str>> {
        self.moved.subscribe()
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
        state.idle.clear();
    }

    /// A connection for one caller alone, made if none is kept.
    async fn own_connection(&self) -> Result<Arc<Connection>, StoreError> {
        let kept = {
            let mut state = self.state();
            if state.closed {
                return Err(StoreError::not_applied(ErrorKind::Closed, "the store was closed"));
            }
            state.idle.pop()
        };
        match kept {
            Some(connection) => Ok(connection),
            None => {
                // Whether there is a server is found out by one for all, with its pauses.
                self.connection().await?;
                self.connect(None, false).await
            }
        }
    }

    /// It was answered, and is free for the next caller.
    pub(super) fn keep(&self, connection: Arc<Connection>) {
        let mut state = self.state();
        let at = state.current.as_ref().map(|current| current.at().clone());
        let same = at.is_none_or(|at| at == *connection.at());
        if same && !state.closed && !connection.is_broken() && state.idle.len() < KEPT {
            state.idle.push(connection);
        }
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
            state.connecting.get_or_insert_with(|| self.connect(retry_at, true).shared()).clone()
        };
        let result = connecting.clone().await;
        // Usually the task has put it away; not if its runtime ended.
        let mut state = self.state();
        if state.connecting.as_ref().is_some_and(|other| other.ptr_eq(&connecting)) {
            state.connecting = None;
        }
        result
    }

    /// The connection, if it is there.
    pub(super) fn ready(&self) -> Option<Arc<Connection>> {
        self.state().current.clone().filter(|current| !current.is_broken())
    }

    /// The connection, or one for this caller `alone`, at the latest then.
    pub(super) async fn connection_by(
        &self,
        deadline: Instant,
        alone: bool,
    ) -> Result<Arc<Connection>, StoreError> {
        let made = timeout_at(deadline, async {
            if alone { self.own_connection().await } else { self.connection().await }
        });
        made.await.unwrap_or_else(|_| {
            let limit = self.options.call_timeout;
            let message = format!("no connection to Redis at {} within {limit:?}", self.shown);
            Err(StoreError::not_applied(ErrorKind::Unavailable, message))
        })
    }

    /// Makes a connection, not before `retry_at`, in a task of its own: it goes on when those who wait for it give up,
    /// and fails cleanly when its runtime ends. `for_all`: it is the one that all share.
    fn connect(
        &self,
        retry_at: Option<Instant>,
        for_all: bool,
    ) -> Pin<Box<dyn Future<Output = Result<Arc<Connection>, StoreError>> + Send>> {
        let roots = self.options.tls_root_certificates.clone();
        let (target, shown, limit) = (self.target.clone(), self.shown.clone(), self.options.connect_timeout);
        let (runtime, state, moved) = (self.options.runtime.clone(), self.state.clone(), self.moved.clone());
        let (sits_out, calls) = (self.sits_out, self.calls.clone());
        let connect = async move {
            if let Some(at) = retry_at {
                sleep_until(at).await;
            }
            let making = target.connect(roots.as_deref(), &calls, sits_out, &shown);
            let made = match timeout(limit, making).await {
                Ok(made) => made.map(Arc::new),
                Err(_) => {
                    let message = format!("no connection to Redis at {shown} within {limit:?}");
                    Err(StoreError::not_applied(ErrorKind::Unavailable, message))
                }
            };
            if !for_all {
                return made;
            }
            locked(&state).made(&made);
            if let Ok(connection) = &made {
                moved.send_if_modified(|at| {
                    let elsewhere = at != connection.at();
                    *at = connection.at().clone();
                    elsewhere
                });
            }
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
    pub(super) fn run<T: FromRedisValue>(
        &self,
        purpose: Purpose,
        call: &Call,
        over: Option<Arc<Connection>>,
        sending: impl FnOnce(&Arc<Connection>),
    ) -> impl Future<Output = Result<T, StoreError>> {
        let request = Request::Script(call);
        async move { read(self.exchange(purpose, request, over, None, sending).await) }
    }

    /// Runs a script that is ready to go by its hash; `call` makes it again where the server does not know it.
    pub(super) fn run_known<'a>(
        &'a self,
        purpose: Purpose,
        by_hash: Packed,
        call: &'a (dyn Fn() -> Call + Sync + 'a),
        over: Option<Arc<Connection>>,
        sending: impl FnOnce(&Arc<Connection>),
    ) -> impl Future<Output = Result<Value, StoreError>> {
        self.exchange(purpose, Request::HashOr(by_hash, call), over, None, sending)
    }

    /// The same within a time that is given, as one step of several. `asking`: the server is told that it is asked for a
    /// key that has not all come to it yet.
    pub(super) fn step<'a>(
        &'a self,
        purpose: Purpose,
        call: &'a Call,
        asking: bool,
        over: Option<Arc<Connection>>,
        by: Instant,
        sending: impl FnOnce(&Arc<Connection>),
    ) -> impl Future<Output = Result<Value, StoreError>> {
        let request = if asking { Request::Asking(call) } else { Request::Script(call) };
        self.exchange(purpose, request, over, Some(by), sending)
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
        let answers = self.exchange(purpose, request, None, None, |connection| {
            over = Some(connection.clone());
            sending(connection);
        });
        let answers: Vec<Value> = answers.map(read).await?;
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
    pub(super) fn command<T: FromRedisValue>(
        &self,
        command: &Cmd,
    ) -> impl Future<Output = Result<T, StoreError>> {
        let request = Request::Command(command);
        async move { read(self.exchange(Purpose::Other, request, None, None, |_| {}).await) }
    }

    /// The same, which must not wait behind what is new.
    pub(super) fn upkeep<T: FromRedisValue>(
        &self,
        command: &Cmd,
        by: Instant,
    ) -> impl Future<Output = Result<T, StoreError>> {
        let request = Request::Command(command);
        async move { read(self.exchange(Purpose::Upkeep, request, None, Some(by), |_| {}).await) }
    }

    /// Later calls go over another connection.
    pub(super) fn drop_connection(&self, connection: &Arc<Connection>) {
        let mut state = self.state();
        if state.current.as_ref().is_some_and(|current| Arc::ptr_eq(current, connection)) {
            state.current = None;
        }
        // They are not better than this one.
        state.idle.clear();
    }
}

/// Doubles from 10 ms to 1 s, then a random half of it, so that a fleet does not come back all at once.
pub(super) fn pause_after(failures: u32) -> Duration {
    let pause = FIRST_PAUSE.saturating_mul(1 << failures.min(10)).min(LONGEST_PAUSE);
    pause.mul_f64(rand::rng().random_range(0.5..1.0))
}
