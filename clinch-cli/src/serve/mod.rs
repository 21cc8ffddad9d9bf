//! `clinch serve`: health, metrics, the console and the playground, over HTTP.
//!
//! It listens on this machine only, unless told otherwise, and then not without a configured token. It ends on TERM and
//! INT: no new connection, what runs is finished within a limit, what is held is given back.
//!
//! - [`connections`]: bounds on connections and what they may take; the end.
//! - [`protect`], [`access`]: what every request goes through, and who may do what.
//! - [`health`], [`metrics`], [`console`], [`playground`]: what is served.

mod access;
mod connections;
mod console;
mod health;
mod metrics;
mod playground;
mod problem;
mod protect;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware::{from_fn, from_fn_with_state};
use clinch::LockManager;
use clinch::config::LogLevel;
use http::StatusCode;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{Semaphore, watch};
use tokio::time::{sleep, timeout};
use tracing::Level;

use self::access::{Access, AccessToken, Origin, check_names};
use self::connections::{Connections, Phase, Phases};
use self::console::{Console, Releases, Sampler};
use self::health::Health;
use self::metrics::{Pulses, Recorder};
use self::problem::Problem;
use crate::engine::Engine;
use crate::exit::Exit;
use crate::failure::{Failure, exit_of};
use crate::message::print;
use crate::runtime::on_all_threads;

/// How long releases that the engine has not answered are tried at the end.
const LAST_RELEASES: Duration = Duration::from_secs(2);

/// How long a guard that is still there has until it is looked for again.
const LAST_LOOK: Duration = Duration::from_millis(5);

/// How many may watch at a time, if there are twice as many connections.
const WATCHERS: usize = 32;

/// How long a client may take for the head of a request, and how long a connection may be idle.
const HEAD_TIME: Duration = Duration::from_secs(10);

/// How long a client may take none of its answer.
const STALL_TIME: Duration = Duration::from_secs(20);

/// What to serve, checked.
#[derive(Debug)]
pub(crate) struct Serve {
    pub(crate) engine: Engine,
    /// Made at the start if there is none.
    token: Option<AccessToken>,
    /// Origins whose pages may act, besides our own.
    origins: Vec<Origin>,
    pub(crate) has_playground: bool,
    limits: Limits,
}

/// How much is taken from clients.
#[derive(Debug, Clone)]
struct Limits {
    /// How many connections at a time.
    connections: usize,
    /// How many of them may watch.
    watchers: usize,
    /// The largest body of a request.
    body_bytes: usize,
    /// How long a client may take for the head of a request, and how long a connection may be idle.
    head_time: Duration,
    /// How long a request may take.
    request_time: Duration,
    /// How long a client may take none of its answer.
    stall_time: Duration,
    /// How long what runs may go on at the end.
    drain_time: Duration,
}

impl Serve {
    /// What this configuration says.
    pub(crate) fn new(engine: Engine) -> Result<Self, Failure> {
        let config = &engine.config.serve;
        let token = config.token.as_ref().map(|token| AccessToken::configured(token.expose())).transpose()?;
        let origins =
            config.allowed_origins.iter().map(|origin| origin.parse()).collect::<Result<_, String>>()?;
        // Its keys are such as a real service may use: nobody is disturbed who did not ask for it.
        let has_playground = config.playground.unwrap_or(engine.config.store.scheme() == "memory");
        let limits = Limits {
            connections: config.max_connections,
            watchers: WATCHERS.min(config.max_connections.div_ceil(2)),
            body_bytes: config.max_request_bytes,
            head_time: HEAD_TIME,
            request_time: config.request_timeout,
            stall_time: STALL_TIME,
            drain_time: config.drain_timeout,
        };
        Ok(Self { token, origins, has_playground, limits, engine })
    }

    pub(crate) fn carry_out(&self) -> Exit {
        log(self.engine.config.serve.log);
        on_all_threads(async { exit_of(self.serve().await) })
    }

    /// Serves until a signal ends it.
    async fn serve(&self) -> Result<Exit, Failure> {
        let mut signals = Signals::catch()
            .map_err(|error| Failure::new(Exit::OS, format!("cannot catch signals: {error}")))?;
        let listen = self.engine.config.serve.listen;
        // Before the engine is asked for anything: that may take long, and this may be in vain.
        let cannot_listen = |error| Failure::new(Exit::OS, cannot_listen(listen, &error));
        let listener = TcpListener::bind(listen).await.map_err(cannot_listen)?;
        let address = listener.local_addr().map_err(cannot_listen)?;
        let releases = Releases::new(&self.engine)?;
        let recorder = metrics::install()
            .ok_or_else(|| Failure::new(Exit::OS, "cannot start: something else records metrics already"))?;
        let locks = tokio::select! {
            biased;
            () = signals.next() => return Ok(Exit::OK),
            locks = self.connect() => locks?,
        };
        let served = self.serve_on(listener, address, locks.clone(), releases, recorder, &mut signals).await;
        give_back(&locks).await;
        served.map(|()| Exit::OK)
    }

    /// The playground takes locks, and so it makes a file for them; the console only looks.
    async fn connect(&self) -> Result<LockManager, Failure> {
        if self.has_playground { self.engine.connect_anyway().await } else { self.engine.look().await }
    }

    async fn serve_on(
        &self,
        listener: TcpListener,
        address: SocketAddr,
        locks: LockManager,
        releases: Releases,
        recorder: Arc<Recorder>,
        signals: &mut Signals,
    ) -> Result<(), Failure> {
        let token = self.token.clone().unwrap_or_else(AccessToken::random);
        let hosts = &self.engine.config.serve.allowed_hosts;
        let access = Arc::new(Access::new(address, hosts, self.origins.clone(), token.clone()));
        let (phase, phases) = Phases::new();
        let sampler = Arc::new(Sampler::new(locks.clone()));
        let pulses = Arc::new(Pulses::new(recorder.clone()));
        let console = Console {
            locks: locks.clone(),
            sampler: sampler.clone(),
            pulses: pulses.clone(),
            releases,
            watchers: Arc::new(Semaphore::new(self.limits.watchers)),
            phases: phases.clone(),
            engine: self.engine.shown(),
            playground: self.has_playground,
        };
        let mut named = console.routes(&access).merge(metrics::routes(recorder, &access));
        if self.has_playground {
            let bytes = self.limits.body_bytes;
            named = named.merge(playground::routes(locks.clone(), bytes, address, &access, phases.clone())?);
        }
        let app = self.app(named, Health { locks, engine: self.engine.shown(), access });
        print(&greeting(address, &self.engine, &token));

        let connections = Connections::new(&self.limits, phases.clone());
        let watching = tokio::spawn(async move {
            tokio::join!(sampler.run(phases.clone()), pulses.run(phases));
        });
        tokio::select! {
            biased;
            () = signals.next() => {}
            () = connections.accept(listener, app) => {}
        }
        drain(&phase, &connections, self.limits.drain_time, signals).await;
        // It has heard of the end; an error would mean that it is gone already.
        let _ = watching.await;
        Ok(())
    }

    /// Everything, behind what every request goes through.
    fn app(&self, named: Router, health: Health) -> Router {
        let access = health.access.clone();
        let named = named.fallback(not_found).layer(from_fn_with_state(access, check_names));
        let limits = Arc::new(self.limits.clone());
        health
            .routes()
            .merge(named)
            .layer(DefaultBodyLimit::max(self.limits.body_bytes))
            .layer(from_fn_with_state(limits, protect::keep_limits))
            .layer(from_fn(protect::add_headers))
    }
}

/// Lets what runs come to its end, unless that takes too long or another signal comes.
async fn drain(
    phase: &watch::Sender<Phase>,
    connections: &Connections,
    limit: Duration,
    signals: &mut Signals,
) {
    phase.send_replace(Phase::Draining);
    tokio::select! {
        biased;
        () = signals.next() => {}
        _ = timeout(limit, connections.drained()) => {}
    }
    phase.send_replace(Phase::Over);
    connections.ended().await;
}

/// Gives back what is held. A handler that went on without its client ends by itself once it hears that it is over, and nobody
/// else waits for its guard.
async fn give_back(locks: &LockManager) {
    let all = async {
        while locks.shutdown(LAST_RELEASES).await.guards > 0 {
            sleep(LAST_LOOK).await;
        }
    };
    let _ = timeout(LAST_RELEASES, all).await;
}

async fn not_found() -> Problem {
    Problem::new(StatusCode::NOT_FOUND, "not-found", "there is nothing here; the console is at /")
}

/// The one line that says where we are.
fn greeting(address: SocketAddr, engine: &Engine, token: &AccessToken) -> String {
    let engine = engine.shown();
    let token = match token.to_print() {
        Some(token) => format!("token {token}"),
        None => "with the configured token".to_owned(),
    };
    format!("clinch: console on http://{address}/ · engine {engine} · {token}\n")
}

fn cannot_listen(address: SocketAddr, error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            format!(
                "cannot listen on {address}: another program does already; give another --listen, or end that one"
            )
        }
        io::ErrorKind::PermissionDenied => {
            format!("cannot listen on {address}: not permitted; ports below 1024 are for root")
        }
        io::ErrorKind::AddrNotAvailable => {
            format!("cannot listen on {address}: this machine has no such address")
        }
        _ => format!("cannot listen on {address}: {error}"),
    }
}

/// Says on stderr what the library logs from this level on.
fn log(level: LogLevel) {
    let level = match level {
        LogLevel::Off => return,
        LogLevel::Warn => Level::WARN,
        LogLevel::Info => Level::INFO,
        LogLevel::Debug => Level::DEBUG,
        LogLevel::Trace => Level::TRACE,
        _ => Level::ERROR,
    };
    let logging = tracing_subscriber::fmt().with_max_level(level).with_writer(io::stderr).with_ansi(false);
    // An error means that somebody listens already.
    let _ = logging.try_init();
}

/// What ends the server.
#[derive(Debug)]
struct Signals {
    term: Signal,
    int: Signal,
}

impl Signals {
    fn catch() -> io::Result<Self> {
        Ok(Self { term: signal(SignalKind::terminate())?, int: signal(SignalKind::interrupt())? })
    }

    /// Waits for the next one. Cancel safe.
    async fn next(&mut self) {
        tokio::select! {
            _ = self.term.recv() => {}
            _ = self.int.recv() => {}
        }
    }
}
