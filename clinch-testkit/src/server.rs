//! Real servers.
//!
//! [`RedisServer`] runs the real `redis-server` (or Valkey) in a folder of its own, and ends it whatever
//! becomes of the test. A test may stop, continue, kill and restart it, and look into it with
//! [`RedisServer::command`], a small client that shares no code with the library under test.
//!
//! ```no_run
//! use clinch_testkit::server::RedisServer;
//!
//! let server = RedisServer::start();
//! server.set("key", "value");
//! assert_eq!(server.get("key").as_deref(), Some("value"));
//! ```
//!
//! Everything here is synchronous, so that it serves tests with and without a runtime. In asynchronous code a
//! call blocks its thread for about as long as Redis takes to answer; it never needs the runtime to go on.
//!
//! # How a server ends
//!
//! - The value is dropped, also by a panic: SIGKILL to this very child, and a wait for its end.
//! - The test process is killed with SIGKILL: the kernel kills the server too, if `setpriv` of util-linux is
//!   on `PATH` (it sets the parent-death signal, for which Rust would need `unsafe`). Without `setpriv` the
//!   server stays behind. The temporary folder stays behind in both cases.
//!
//! The server is `redis-server` on `PATH`, or the program that [`SERVER_ENV`] names.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "test support: a test without its server has nothing better to do than to stop with a message"
)]

mod binary;
mod builder;
mod client;
mod clock;
mod peek;
pub(crate) mod ports;
pub(crate) mod process;
mod tls;
pub(crate) mod url;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tempfile::TempDir;

pub use binary::{Flavor, SERVER_ENV, Version};
pub use builder::Builder;
pub use client::Reply;
pub use clock::move_wall_clock;

use client::Connection;
use process::Process;

/// How long a server may take until it answers, or to end after `SHUTDOWN`.
const LIFECYCLE_TIMEOUT: Duration = Duration::from_secs(20);

/// Pause between two looks at a server that is starting or ending.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// A running `redis-server`, ended when this value is dropped.
///
/// All methods take `&self`, so that a test may share the server between threads and tasks. Methods panic
/// when the server cannot be reached; [`RedisServer::try_command`] is for tests that expect this.
#[derive(Debug)]
pub struct RedisServer {
    version: Version,
    port: u16,
    /// Where other servers of its deployment find it.
    peer_port: u16,
    tls: Option<TlsEnd>,
    unix_socket: bool,
    /// Whether it watches others instead of keeping data.
    sentinel: bool,
    password: Option<String>,
    /// `None` after [`RedisServer::kill`] or [`RedisServer::shutdown_nosave`].
    process: Mutex<Option<Process>>,
    /// The connection of [`RedisServer::command`]: one and the same, so that a test can allow for it in
    /// counts.
    control: Mutex<Option<Connection>>,
    folder: TempDir,
}

/// Where a server listens for TLS, and what its clients must trust.
#[derive(Debug)]
struct TlsEnd {
    port: u16,
    ca_pem: String,
}

impl RedisServer {
    /// Starts a server without persistence, password or TLS.
    ///
    /// # Panics
    ///
    /// If there is no server program, or it does not answer in time. The message carries the server's log.
    #[must_use]
    pub fn start() -> Self {
        Self::builder().start()
    }

    /// A server with options.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Whether the server program was built with TLS, found by asking it once.
    #[must_use]
    pub fn supports_tls() -> bool {
        binary::supports_tls()
    }

    /// What the server program says it is.
    #[must_use]
    pub fn version(&self) -> Version {
        self.version
    }

    /// The port for plain connections on 127.0.0.1. It stays the same over [`RedisServer::restart`].
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The address for plain connections.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// `redis://127.0.0.1:port/`, with the password if there is one.
    #[must_use]
    pub fn url(&self) -> String {
        self.url_with(0, None, self.password.as_deref())
    }

    /// `redis://user:password@127.0.0.1:port/db`; user and password are left out when they are `None`.
    #[must_use]
    pub fn url_with(&self, db: u32, user: Option<&str>, password: Option<&str>) -> String {
        url::tcp("redis", "127.0.0.1", self.port, db, user, password)
    }

    /// `redis+unix:///folder/redis.sock`, with the password if there is one.
    ///
    /// # Panics
    ///
    /// If the server was built without [`Builder::unix_socket`].
    #[must_use]
    pub fn unix_url(&self) -> String {
        assert!(self.unix_socket, "this server has no Unix socket: build it with `.unix_socket(true)`");
        url::unix(&self.folder.path().join(builder::SOCKET_FILE), self.password.as_deref())
    }

    /// The port under which other servers of its deployment know it, and name it to clients: the one for TLS if they speak TLS with
    /// each other ([`Builder::tls_between`]).
    #[must_use]
    pub fn peer_port(&self) -> u16 {
        self.peer_port
    }

    /// `127.0.0.1:port` with that port.
    #[must_use]
    pub fn peer_addr(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.peer_port).into()
    }

    /// `rediss://localhost:port/`, with the password if there is one.
    ///
    /// # Panics
    ///
    /// If the server was built without [`Builder::tls`].
    #[must_use]
    pub fn tls_url(&self) -> String {
        url::tcp("rediss", "localhost", self.tls_end().port, 0, None, self.password.as_deref())
    }

    /// The certificate of the authority that signed the server's certificate, as PEM.
    ///
    /// # Panics
    ///
    /// If the server was built without [`Builder::tls`].
    #[must_use]
    pub fn ca_pem(&self) -> &str {
        &self.tls_end().ca_pem
    }

    fn tls_end(&self) -> &TlsEnd {
        self.tls.as_ref().expect("this server has no TLS: build it with `.tls(true)`")
    }

    /// The server's folder: configuration, log, append-only file, Unix socket.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// All that the server has logged, over restarts.
    #[must_use]
    pub fn log(&self) -> String {
        process::read_log(&self.log_file(), 0)
    }

    /// Whether the process exists; a stopped one does.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.process().as_mut().is_some_and(|process| !process.has_ended())
    }

    /// The server's process id.
    ///
    /// # Panics
    ///
    /// If the server was killed or shut down.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.with_process(|process| process.id())
    }

    /// SIGSTOP: the server keeps its connections, and accepts new ones (the kernel does), but answers
    /// nothing. Returns when the process has stopped.
    ///
    /// # Panics
    ///
    /// If the server is not running.
    pub fn stop(&self) {
        self.with_process(Process::stop);
    }

    /// SIGCONT: a stopped server goes on, with everything that was sent to it meanwhile.
    ///
    /// # Panics
    ///
    /// If the server is not running.
    pub fn cont(&self) {
        self.with_process(Process::cont);
    }

    /// SIGKILL, and a wait for the end of the process. The folder stays, so [`RedisServer::restart`] finds
    /// what was persisted. Does nothing if the server has ended already.
    pub fn kill(&self) {
        *self.control() = None;
        *self.process() = None; // the drop kills and waits
    }

    /// `SHUTDOWN NOSAVE`, and a wait for the end of the process.
    ///
    /// # Panics
    ///
    /// If the server is not running, refuses, or takes too long.
    pub fn shutdown_nosave(&self) {
        // The server closes the connection instead of answering, so any reply is a refusal.
        if let Ok(reply) = self.try_command(&["SHUTDOWN", "NOSAVE"]) {
            panic!("SHUTDOWN NOSAVE was refused: {reply:?}");
        }
        let deadline = Instant::now() + LIFECYCLE_TIMEOUT;
        while self.is_running() {
            assert!(Instant::now() < deadline, "the server did not end after SHUTDOWN\n{}", self.log());
            std::thread::sleep(POLL_INTERVAL);
        }
        self.kill();
    }

    /// Starts the server again with the same port, folder and configuration file, after killing it if it
    /// still runs.
    ///
    /// The configuration file is not written anew: what a `CONFIG REWRITE` changed stays changed.
    ///
    /// # Panics
    ///
    /// If the server does not come back, for instance because another process took its port.
    pub fn restart(&self) {
        self.kill();
        let (config, log, password) = (self.config_file(), self.log_file(), self.password.as_deref());
        let started = process::start(&config, &log, self.addr(), password, self.sentinel);
        match started {
            Ok((process, control)) => {
                *self.process() = Some(process);
                *self.control() = Some(control);
            }
            Err(error) => panic!("cannot restart the server on port {}: {error}", self.port),
        }
    }

    /// Waits until this replica is in step with its primary (`master_link_status:up`).
    ///
    /// Only after that does `WAIT` at the primary say something about the replica's data: before, a primary
    /// without any earlier replica counts one that has not loaded anything yet.
    ///
    /// # Panics
    ///
    /// If it takes more than 20 seconds.
    pub fn wait_for_primary(&self) {
        let deadline = Instant::now() + LIFECYCLE_TIMEOUT;
        while self.info("replication").get("master_link_status").map(String::as_str) != Some("up") {
            assert!(Instant::now() < deadline, "the replica did not reach its primary:\n{}", self.log());
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    fn config_file(&self) -> PathBuf {
        self.folder.path().join(builder::CONFIG_FILE)
    }

    fn log_file(&self) -> PathBuf {
        self.folder.path().join(builder::LOG_FILE)
    }

    fn with_process<T>(&self, act: impl FnOnce(&mut Process) -> T) -> T {
        act(self.process().as_mut().expect("the server was killed or shut down"))
    }

    fn process(&self) -> MutexGuard<'_, Option<Process>> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn control(&self) -> MutexGuard<'_, Option<Connection>> {
        self.control.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
