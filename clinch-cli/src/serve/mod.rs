//! `clinch serve`: health, metrics, the console and the playground, over HTTP.
//!
//! It listens on this machine only, unless told otherwise, and then not without a configured token. It ends on TERM and
//! INT: no new connection, what runs is finished within a limit, what is held is given back.
//!
//! - [`connections`]: bounds on connections and what they may take; the end.
//! - [`protect`], [`access`]: what every request goes through, and who may do what.
//! - [`health`], [`console`], [`playground`]: what is served.

mod access;
mod connections;
mod console;
mod health;
mod playground;
mod problem;
mod protect;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::middleware::{from_fn, from_fn_with_state};
use clinch::{Error, LockManager};
use http::StatusCode;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;

use self::access::{Access, check_names};
pub(crate) use self::access::{AccessToken, Origin};
use self::connections::{Connections, Phase, Phases};
use self::console::{Console, Sampler};
use self::health::Health;
use self::problem::Problem;
use crate::engine::Engine;
use crate::exit::Exit;
use crate::message::{print, say};
use crate::runtime::on_all_threads;

/// How long releases that the engine has not answered are tried at the end.
const LAST_RELEASES: Duration = Duration::from_secs(2);

/// What to serve, checked.
#[derive(Debug)]
pub(crate) struct Serve {
    pub(crate) engine: Engine,
    pub(crate) listen: SocketAddr,
    /// Made at the start if there is none.
    pub(crate) token: Option<AccessToken>,
    /// Names under which we are reached, besides our own.
    pub(crate) hosts: Vec<String>,
    /// Origins whose pages may act, besides our own.
    pub(crate) origins: Vec<Origin>,
    /// Unless set: only on an engine that nobody else uses.
    pub(crate) playground: Option<bool>,
    pub(crate) limits: Limits,
}

/// How much is taken from clients.
#[derive(Debug, Clone)]
pub(crate) struct Limits {
    /// How many connections at a time.
    pub(crate) connections: u32,
    /// How many of them may watch.
    pub(crate) watchers: usize,
    /// The largest body of a request.
    pub(crate) body_bytes: usize,
    /// How long a client may take for the head of a request, and how long a connection may be idle.
    pub(crate) head_time: Duration,
    /// How long a request may take.
    pub(crate) request_time: Duration,
    /// How long a client may take none of its answer.
    pub(crate) stall_time: Duration,
    /// How long what runs may go on at the end.
    pub(crate) drain_time: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 512,
            watchers: 32,
            body_bytes: 64 * 1024,
            head_time: Duration::from_secs(10),
            request_time: Duration::from_secs(30),
            stall_time: Duration::from_secs(20),
            drain_time: Duration::from_secs(10),
        }
    }
}

impl Serve {
    pub(crate) fn carry_out(&self) -> Exit {
        on_all_threads(serve(self))
    }
}

/// Serves until a signal ends it.
async fn serve(job: &Serve) -> Exit {
    let mut signals = match Signals::catch() {
        Ok(signals) => signals,
        Err(error) => return refused_by_system(&format!("cannot catch signals: {error}")),
    };
    if !job.listen.ip().is_loopback() && job.token.is_none() {
        say(&format!(
            "will not listen on {}, which others can reach, without a token of your own: set CLINCH_SERVE_TOKEN, or \
             listen on 127.0.0.1",
            job.listen
        ));
        return Exit::USAGE;
    }
    // Before the engine is asked for anything: that may take long, and this may be in vain.
    let listener = match TcpListener::bind(job.listen).await {
        Ok(listener) => listener,
        Err(error) => return refused_by_system(&cannot_listen(job.listen, &error)),
    };
    let connecting = job.engine.connect();
    let locks = tokio::select! {
        biased;
        () = signals.next() => return Exit::OK,
        locks = connecting => locks,
    };
    let locks = match locks {
        Ok(locks) => locks,
        Err(error) => return refused(&error),
    };
    let exit = serve_on(listener, job, locks.clone(), &mut signals).await;
    locks.shutdown(LAST_RELEASES).await;
    exit
}

async fn serve_on(listener: TcpListener, job: &Serve, locks: LockManager, signals: &mut Signals) -> Exit {
    let address = match listener.local_addr() {
        Ok(address) => address,
        Err(error) => return refused_by_system(&cannot_listen(job.listen, &error)),
    };
    let token = job.token.clone().unwrap_or_else(AccessToken::random);
    let (phase, phases) = Phases::new();
    let sampler = Arc::new(Sampler::new(locks.clone()));
    let app = match app(job, address, &token, locks, &sampler, &phases) {
        Ok(app) => app,
        Err(error) => return refused(&error),
    };
    print(&greeting(address, &job.engine.url, &token));

    let connections = Connections::new(&job.limits, phases.clone());
    let sampling = tokio::spawn(async move { sampler.run(phases).await });
    tokio::select! {
        biased;
        () = signals.next() => {}
        () = connections.accept(listener, app) => {}
    }
    drain(&phase, &connections, job.limits.drain_time, signals).await;
    // It has heard of the end; an error would mean that it is gone already.
    let _ = sampling.await;
    Exit::OK
}

/// Lets what runs come to its end, unless that takes too long or another signal comes.
async fn drain(phase: &watch::Sender<Phase>, connections: &Connections, limit: Duration, signals: &mut Signals) {
    phase.send_replace(Phase::Draining);
    tokio::select! {
        biased;
        () = signals.next() => {}
        _ = timeout(limit, connections.drained()) => {}
    }
    phase.send_replace(Phase::Over);
    connections.ended().await;
}

fn app(
    job: &Serve,
    address: SocketAddr,
    token: &AccessToken,
    locks: LockManager,
    sampler: &Arc<Sampler>,
    phases: &Phases,
) -> Result<Router, Error> {
    let access = Arc::new(Access::new(address, &job.hosts, job.origins.clone(), token.clone()));
    let engine = without_password(&job.engine.url);
    let has_playground = job.playground.unwrap_or(job.engine.url.starts_with("memory:"));
    let console = Console {
        locks: locks.clone(),
        sampler: sampler.clone(),
        watchers: Arc::new(Semaphore::new(job.limits.watchers)),
        phases: phases.clone(),
        engine: engine.clone(),
        playground: has_playground,
    };
    let health = Health { locks: locks.clone(), engine, access: access.clone() };
    let mut named = console.routes(&access);
    if has_playground {
        let demo = playground::routes(locks, job.limits.body_bytes, address, &access, phases.clone())?;
        named = named.merge(demo);
    }
    let named = named.fallback(not_found).layer(from_fn_with_state(access, check_names));
    let limits = Arc::new(job.limits.clone());
    Ok(health
        .routes()
        .merge(named)
        .layer(from_fn_with_state(limits, protect::keep_limits))
        .layer(from_fn(protect::add_headers)))
}

async fn not_found() -> Problem {
    Problem::new(StatusCode::NOT_FOUND, "not-found", "there is nothing here; the console is at /")
}

/// The one line that says where we are.
fn greeting(address: SocketAddr, store: &str, token: &AccessToken) -> String {
    let engine = without_password(store);
    let token = match token.to_print() {
        Some(token) => format!("token {token}"),
        None => "with the configured token".to_owned(),
    };
    format!("clinch: console on http://{address}/ · engine {engine} · {token}\n")
}

/// What is shown of an engine's address.
fn without_password(url: &str) -> String {
    let url = url.split(['?', '#']).next().unwrap_or(url);
    match (url.split_once("://"), url.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, host))) => format!("{scheme}://{host}"),
        _ => url.to_owned(),
    }
}

fn cannot_listen(address: SocketAddr, error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            format!("cannot listen on {address}: another program does already; give another --listen, or end that one")
        }
        io::ErrorKind::PermissionDenied => {
            format!("cannot listen on {address}: not permitted; ports below 1024 are for root")
        }
        io::ErrorKind::AddrNotAvailable => format!("cannot listen on {address}: this machine has no such address"),
        _ => format!("cannot listen on {address}: {error}"),
    }
}

fn refused_by_system(problem: &str) -> Exit {
    say(problem);
    Exit::OS
}

fn refused(error: &Error) -> Exit {
    say(&error.to_string());
    Exit::refused(error)
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
