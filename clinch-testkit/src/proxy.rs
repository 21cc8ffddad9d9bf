//! Fault proxy: a TCP proxy in front of a Redis server that understands what passes through it.
//!
//! [`FaultProxy`] reads the commands that clients send and the replies that come back. So it can count them,
//! and a [`Rule`] can strike at exactly one of them: "the second `EVALSHA` reaches the server, but its reply
//! is lost". There is no chance in it; the same test sees the same faults every time.
//!
//! ```no_run
//! use clinch_testkit::proxy::{Action, FaultProxy, Rule};
//! use clinch_testkit::server::RedisServer;
//!
//! # async fn example() {
//! let server = RedisServer::start();
//! let proxy = FaultProxy::start(server.addr()).await;
//! proxy.add(Rule::new(Action::CutAfterRequest).named("EVALSHA").nth(2));
//! // … let the library under test work through `proxy.url()` …
//! proxy.wait_for(|command| command.name == "EVALSHA").await;
//! assert_eq!(proxy.rules_left(), 0, "the fault did not happen");
//! # }
//! ```
//!
//! # What it keeps to
//!
//! - A command is *counted* when the proxy takes it up, whether or not it then reaches the server. Commands
//!   of one connection are taken up one after the other: what follows a delayed or held command waits,
//!   unread.
//! - Replies belong to commands by order, as in the protocol. Out-of-band messages (RESP3 push, published
//!   messages) are passed on and belong to none; rules do not touch them.
//! - Bytes that a client sent before it closed its connection are still delivered, as a network would: a
//!   command that was held or stalled reaches the server after the client has long gone.
//! - What one side does not take is not read from the other; one whole command or reply is the most that is
//!   stored (at most 64 MiB), and at most 1024 commands wait for their replies.
//! - After `PSYNC`, `SYNC` or `MONITOR` the bytes are passed on unread, so a replica can be put behind the
//!   proxy. [`FaultProxy::stall`], [`FaultProxy::cut_all`] and [`FaultProxy::refuse`] work there, rules do
//!   not.
//! - TLS and `CLIENT REPLY OFF|SKIP` are not supported.
//!
//! The proxy runs in the runtime of the test, so a test that blocks its only thread blocks the proxy too
//! (asking [`RedisServer`](crate::server::RedisServer) directly is fine). Do not pause tokio's clock around
//! it: its sockets are real, and a paused clock jumps over their waits.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "test support: a wait that takes too long stops the test with a message"
)]

mod connection;
mod frame;
mod rule;
mod state;

use std::io;
use std::net::{Shutdown, SocketAddr};
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::Mutex;
use tokio::task::JoinHandle;

pub use rule::{Action, Command, Rule};

use crate::server::{ports, url};
use state::Shared;

/// How long a test may wait for something to happen in the proxy.
const WAIT_TIMEOUT: Duration = Duration::from_millis(if cfg!(test) { 50 } else { 10_000 });

/// Connections that the kernel may keep until they are accepted.
const BACKLOG: u32 = 1024;

/// A programmable TCP proxy; its connections and tasks end when this value is dropped.
#[derive(Debug)]
pub struct FaultProxy {
    addr: SocketAddr,
    shared: Arc<Shared>,
    door: Mutex<Door>,
}

/// Whether new connections are accepted.
#[derive(Debug)]
enum Door {
    Open {
        listener: Arc<TcpListener>,
        accepting: JoinHandle<()>,
    },
    /// The same socket, still bound but not listening: connections are refused, and nobody else can take the
    /// port. Always `Some`, but for the moment in which the door is opened.
    Closed(Option<TcpSocket>),
}

impl Door {
    fn open(listener: TcpListener, shared: &Arc<Shared>) -> Self {
        let listener = Arc::new(listener);
        let accepting = tokio::spawn(accept(Arc::clone(&listener), Arc::clone(shared)));
        Self::Open { listener, accepting }
    }
}

impl FaultProxy {
    /// Starts a proxy on a free port of 127.0.0.1, in front of `upstream`.
    ///
    /// The proxy connects to `upstream` once for each connection that it accepts. If it cannot, it closes the
    /// accepted one, so a client sees a server that hangs up, not one that refuses.
    pub async fn start(upstream: SocketAddr) -> Self {
        let listener = ports::listen();
        listener.set_nonblocking(true).expect("a listener can be non-blocking");
        let addr = listener.local_addr().expect("a listener has an address");
        let listener = TcpListener::from_std(listener).expect("a runtime with I/O");
        let shared = Arc::new(Shared::new(upstream));
        let door = Door::open(listener, &shared);
        Self { addr, shared, door: Mutex::new(door) }
    }

    /// Where the proxy listens.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// `redis://127.0.0.1:port/`
    #[must_use]
    pub fn url(&self) -> String {
        self.url_with(0, None, None)
    }

    /// `redis://user:password@127.0.0.1:port/db`; user and password are left out when they are `None`.
    #[must_use]
    pub fn url_with(&self, db: u32, user: Option<&str>, password: Option<&str>) -> String {
        url::tcp("redis", "127.0.0.1", self.addr.port(), db, user, password)
    }

    /// Lets *later* connections go to another server. Follow it with [`FaultProxy::cut_all`] to move
    /// everyone.
    pub fn set_upstream(&self, upstream: SocketAddr) {
        self.shared.update(|state| state.upstream = upstream);
    }
}

/// Counting. Everything here is since the start or the last [`FaultProxy::reset_counts`], except connections.
impl FaultProxy {
    /// The number of commands.
    #[must_use]
    pub fn commands(&self) -> u64 {
        self.shared.look(|state| state.counts.values().sum())
    }

    /// The number of commands of this name, in any case.
    #[must_use]
    pub fn commands_named(&self, name: &str) -> u64 {
        self.shared.look(|state| state.counts.get(&name.to_ascii_uppercase()).copied().unwrap_or(0))
    }

    /// The number of commands that are not setup (see [`Command::is_setup`]): those that leases cost.
    #[must_use]
    pub fn lease_commands(&self) -> u64 {
        self.shared.look(|state| {
            let lease = state.counts.iter().filter(|(name, _)| !rule::is_setup(name));
            lease.map(|(_, count)| count).sum()
        })
    }

    /// The last 10,000 commands in the order in which they were taken up, with long ones cut short: eight
    /// arguments at most, and 128 bytes of each.
    #[must_use]
    pub fn log(&self) -> Vec<Command> {
        self.shared.look(|state| state.log.iter().cloned().collect())
    }

    /// Sets the counts to zero and empties the log. Rules go on counting.
    pub fn reset_counts(&self) {
        self.shared.update(|state| {
            state.counts.clear();
            state.log.clear();
        });
    }

    /// How many connections were ever accepted.
    #[must_use]
    pub fn connections_opened(&self) -> usize {
        self.shared.look(|state| state.opened)
    }

    /// How many connections exist now. One whose client has gone is counted until the server has seen that
    /// too.
    #[must_use]
    pub fn connections_open(&self) -> usize {
        self.shared.look(|state| state.connections.len())
    }

    /// What the proxy could not read, and cut the connection for. Empty, unless a client or server breaks the
    /// protocol.
    #[must_use]
    pub fn protocol_errors(&self) -> Vec<String> {
        self.shared.look(|state| state.protocol_errors.clone())
    }
}

/// Faults.
impl FaultProxy {
    /// Adds a rule, which counts commands from now on.
    pub fn add(&self, rule: Rule) {
        self.shared.update(|state| state.rules.push(rule));
    }

    /// How many rules have not done all they were to do. A test should end with zero, or its fault did not
    /// happen.
    #[must_use]
    pub fn rules_left(&self) -> usize {
        self.shared.look(|state| state.rules.len())
    }

    /// Removes all rules. What is held stays held.
    pub fn clear_rules(&self) {
        self.shared.update(|state| state.rules.clear());
    }

    /// How many commands and replies are held now.
    #[must_use]
    pub fn held(&self) -> usize {
        self.shared.look(|state| state.held)
    }

    /// Lets go on what [`Action::HoldRequest`] and [`Action::HoldReply`] hold now. What they hold later is
    /// held anew.
    pub fn release_held(&self) {
        self.shared.release_held();
    }

    /// Black hole: connections stay open and new ones are accepted, but no more bytes are passed on in either
    /// direction. Each connection still takes up, and counts, the one command that it was reading; the rest
    /// stays in the sockets. Rules act after [`FaultProxy::resume`].
    pub fn stall(&self) {
        self.shared.update(|state| state.stalled = true);
    }

    /// Ends [`FaultProxy::stall`]: all that was sent meanwhile is delivered, as after a healed partition.
    pub fn resume(&self) {
        self.shared.update(|state| state.stalled = false);
    }

    /// Closes all connections, on both sides, and returns when they are closed. Whether commands on their way
    /// to the server are executed is not known, as when a network dies. New connections are accepted.
    pub async fn cut_all(&self) {
        let connections = self.shared.update(|state| std::mem::take(&mut state.connections));
        connections.values().for_each(JoinHandle::abort);
        for connection in connections.into_values() {
            let _ = connection.await; // an error says that it was aborted
        }
    }

    /// With `true`, refuses new connections (the client's `connect` fails) and leaves those that exist alone;
    /// with `false`, accepts again on the same port. In force when it returns.
    ///
    /// # Panics
    ///
    /// If the system does not let a socket stop listening; Linux does.
    pub async fn refuse(&self, refuse: bool) {
        let mut door = self.door.lock().await;
        match (&mut *door, refuse) {
            (Door::Open { listener, accepting }, true) => {
                let socket = stop_listening(listener).expect("cannot stop listening");
                accepting.abort();
                let _ = accepting.await; // an error says that it was aborted
                *door = Door::Closed(Some(TcpSocket::from_std_stream(socket)));
            }
            (Door::Closed(socket), false) => {
                let socket = socket.take().expect("nobody else opens the door");
                let listener = socket.listen(BACKLOG).expect("a bound socket can listen");
                *door = Door::open(listener, &self.shared);
            }
            (Door::Open { .. }, false) | (Door::Closed(_), true) => {}
        }
    }
}

/// Events to wait for. Each panics after ten seconds, with what the proxy has seen.
impl FaultProxy {
    /// Waits until `n` commands were counted since the start or the last [`FaultProxy::reset_counts`].
    pub async fn wait_for_commands(&self, n: u64) {
        let enough = |state: &state::State| (state.counts.values().sum::<u64>() >= n).then_some(());
        self.shared.wait(&format!("{n} commands"), enough).await;
    }

    /// Waits for a command like this, and returns it. One that is in the [log](FaultProxy::log) counts, so an
    /// event cannot be missed; the predicate sees commands as they are there.
    pub async fn wait_for(&self, matches: impl Fn(&Command) -> bool) -> Command {
        let mut seen = 0; // ordinal of the last command that was looked at
        let find = |state: &state::State| {
            let found =
                state.log.iter().filter(|command| command.ordinal > seen).find(|command| matches(command));
            seen = state.log.back().map_or(seen, |last| last.ordinal);
            found.cloned()
        };
        self.shared.wait("a command that matches", find).await
    }

    /// Waits until a command or reply is held. For [`Action::HoldReply`] the server has executed the command
    /// by then.
    pub async fn wait_until_held(&self) {
        self.shared.wait("a held command or reply", |state| (state.held > 0).then_some(())).await;
    }

    /// Waits until exactly `n` connections exist.
    pub async fn wait_for_connections(&self, n: usize) {
        let what = format!("{n} open connections");
        self.shared.wait(&what, |state| (state.connections.len() == n).then_some(())).await;
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        if let Door::Open { listener, accepting } = self.door.get_mut() {
            let _ = stop_listening(listener);
            accepting.abort();
        }
        self.shared.close();
    }
}

/// Makes the listener's socket refuse connections, and returns it, still bound.
///
/// Closing it would not do: a child process that another thread is just starting has copies of all
/// descriptors until it runs its program, and would keep the socket listening.
fn stop_listening(listener: &TcpListener) -> io::Result<std::net::TcpStream> {
    // Not a stream, but the only type in `std` that has `shutdown`.
    let socket = std::net::TcpStream::from(listener.as_fd().try_clone_to_owned()?);
    socket.shutdown(Shutdown::Both)?;
    Ok(socket)
}

/// Accepts connections until it is aborted.
async fn accept(listener: Arc<TcpListener>, shared: Arc<Shared>) {
    loop {
        match listener.accept().await {
            Ok((client, _)) => start_connection(client, &shared),
            // Out of file descriptors, for instance: the connection stays in the kernel's queue.
            Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
}

fn start_connection(client: TcpStream, shared: &Arc<Shared>) {
    let shared = Arc::clone(shared);
    // Spawned under the lock: the connection can end, and remove itself, only after it was entered.
    Arc::clone(&shared).update(|state| {
        if state.closed {
            return;
        }
        let index = state.opened;
        state.opened += 1;
        let task = tokio::spawn(connection::run(index, client, state.upstream, shared));
        state.connections.insert(index, task);
    });
}
