//! Options of a server, and its configuration file.

use std::fmt::Write as _;
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::Mutex;

use super::process::StartError;
use super::tls::{self, Identity};
use super::{RedisServer, TlsEnd, binary, clock, ports, process};

pub(super) const CONFIG_FILE: &str = "redis.conf";
pub(super) const LOG_FILE: &str = "server.log";
pub(super) const SOCKET_FILE: &str = "redis.sock";
const CERTIFICATE_FILE: &str = "server.crt";
const KEY_FILE: &str = "server.key";
const CA_FILE: &str = "ca.crt";

/// How many ports are tried before a start is given up.
const PORT_ATTEMPTS: usize = 20;

/// Options of a [`RedisServer`]; made by [`RedisServer::builder`].
#[derive(Clone, Debug, Default)]
#[must_use = "nothing runs before `start`"]
pub struct Builder {
    password: Option<String>,
    acl_users: Vec<(String, String)>,
    unix_socket: bool,
    tls: bool,
    tls_between: bool,
    appendonly: bool,
    movable_clock: bool,
    sentinel: bool,
    /// Port and password of the primary.
    primary: Option<(u16, Option<String>)>,
    args: Vec<(String, String)>,
}

impl Builder {
    /// `requirepass`: the password of the default user.
    pub fn password(mut self, password: &str) -> Self {
        self.password = Some(password.to_owned());
        self
    }

    /// Another user, with rules as in `redis.conf`: `acl_user("app", "on >secret ~app:* &* +@all")`.
    pub fn acl_user(mut self, name: &str, rules: &str) -> Self {
        self.acl_users.push((name.to_owned(), rules.to_owned()));
        self
    }

    /// Whether to listen on a Unix socket too; its address is [`RedisServer::unix_url`].
    pub fn unix_socket(mut self, unix_socket: bool) -> Self {
        self.unix_socket = unix_socket;
        self
    }

    /// Whether to listen for TLS too, on a port of its own and with a certificate for `localhost` and
    /// 127.0.0.1; see [`RedisServer::tls_url`] and [`RedisServer::ca_pem`]. Clients need no certificate.
    pub fn tls(mut self, tls: bool) -> Self {
        self.tls = tls;
        self
    }

    /// Whether servers of a deployment speak TLS with each other as well: replicas with their primary, Sentinels with those that they
    /// watch, the servers of a Cluster. All are then known by their ports for TLS. Includes [`Builder::tls`].
    pub fn tls_between(mut self, tls: bool) -> Self {
        (self.tls, self.tls_between) = (self.tls || tls, tls);
        self
    }

    /// Whether to keep an append-only file, which [`RedisServer::restart`] loads. Without it nothing is
    /// persisted.
    pub fn appendonly(mut self, appendonly: bool) -> Self {
        self.appendonly = appendonly;
        self
    }

    /// Whether a test may move the server's wall clock while it runs: [`RedisServer::move_clock`]. Needs a C compiler.
    pub fn movable_clock(mut self, movable: bool) -> Self {
        self.movable_clock = movable;
        self
    }

    /// Makes the server a replica of another; [`Builder::start`] returns when the two are in step.
    ///
    /// For a link through a proxy, use `.arg("replicaof", "127.0.0.1 <port of the proxy>")` and
    /// [`RedisServer::wait_for_primary`].
    pub fn replica_of(mut self, primary: &RedisServer) -> Self {
        self.primary = Some((primary.peer_port(), primary.password.clone()));
        self
    }

    /// Makes it a Sentinel, which watches others and keeps no data. What it watches is said by `sentinel …` lines.
    pub(crate) fn sentinel(mut self) -> Self {
        self.sentinel = true;
        self
    }

    /// A line of `redis.conf`. The value is written as it is, except that an empty one becomes `""`; it comes
    /// after the lines of this testkit, so it overrides them. A server refuses to start with an option it
    /// does not know.
    pub fn arg(mut self, name: &str, value: &str) -> Self {
        self.args.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Starts the server, and returns when it answers.
    ///
    /// # Panics
    ///
    /// If there is no server program, it cannot do what the options ask for, or does not answer in time. The
    /// message carries the server's log.
    #[must_use]
    pub fn start(self) -> RedisServer {
        let version = binary::version();
        assert!(
            !self.tls || binary::supports_tls(),
            "{version} was built without TLS: ask `RedisServer::supports_tls`"
        );
        let folder =
            tempfile::Builder::new().prefix("clinch-").tempdir().expect("cannot make a temporary folder");
        let ca_pem = self.tls.then(|| write_identity(folder.path()));
        if self.movable_clock {
            clock::prepare(folder.path());
        }

        let (config, log) = (folder.path().join(CONFIG_FILE), folder.path().join(LOG_FILE));

        for _ in 0..PORT_ATTEMPTS {
            let port = ports::free_port();
            let tls_port = self.tls.then(ports::free_port);
            std::fs::write(&config, self.config(folder.path(), port, tls_port))
                .expect("cannot write redis.conf");
            let addr = (Ipv4Addr::LOCALHOST, port).into();
            let started = process::start(&config, &log, addr, self.password.as_deref(), self.sentinel);
            let (process, control) = match started {
                Ok(started) => started,
                Err(StartError::PortTaken(_)) => continue,
                Err(error @ StartError::Failed(_)) => panic!("{version}: {error}"),
            };
            let server = RedisServer {
                version,
                port,
                tls: tls_port.zip(ca_pem).map(|(port, ca_pem)| TlsEnd { port, ca_pem }),
                peer_port: tls_port.filter(|_| self.tls_between).unwrap_or(port),
                unix_socket: self.unix_socket,
                sentinel: self.sentinel,
                password: self.password,
                process: Mutex::new(Some(process)),
                control: Mutex::new(Some(control)),
                folder,
            };
            if self.primary.is_some() {
                server.wait_for_primary();
            }
            return server;
        }
        panic!("{version}: none of {PORT_ATTEMPTS} ports could be bound");
    }

    /// The text of `redis.conf`.
    fn config(&self, folder: &Path, port: u16, tls_port: Option<u16>) -> String {
        let mut lines = Lines::default();
        lines.add("bind", "127.0.0.1");
        lines.add("port", port);
        lines.add("dir", quoted_path(folder));
        if !self.sentinel {
            lines.add("save", "\"\"");
            lines.add("appendonly", if self.appendonly { "yes" } else { "no" });
            // A full synchronisation would otherwise wait five seconds for more replicas to come.
            lines.add("repl-diskless-sync-delay", 0);
            if binary::version().has_redis(7, 0) {
                // Earlier servers do not know these, and allow both.
                lines.add("enable-debug-command", "yes");
                lines.add("enable-protected-configs", "yes");
            }
        }
        if let Some(password) = &self.password {
            lines.add("requirepass", quoted(password));
        }
        for (name, rules) in &self.acl_users {
            lines.add("user", format_args!("{name} {rules}"));
        }
        if self.unix_socket {
            lines.add("unixsocket", quoted_path(&folder.join(SOCKET_FILE)));
        }
        if let Some(tls_port) = tls_port {
            lines.add("tls-port", tls_port);
            lines.add("tls-cert-file", quoted_path(&folder.join(CERTIFICATE_FILE)));
            lines.add("tls-key-file", quoted_path(&folder.join(KEY_FILE)));
            lines.add("tls-ca-cert-file", quoted_path(&folder.join(CA_FILE)));
            lines.add("tls-auth-clients", "no");
            if self.tls_between {
                lines.add("tls-replication", "yes");
                lines.add("tls-cluster", "yes");
            }
        }
        if let Some((port, password)) = &self.primary {
            lines.add("replicaof", format_args!("127.0.0.1 {port}"));
            if let Some(password) = password {
                lines.add("masterauth", quoted(password));
            }
        }
        for (name, value) in &self.args {
            lines.add(name, if value.is_empty() { "\"\"" } else { value });
        }
        lines.0
    }
}

/// The lines of a configuration file.
#[derive(Default)]
struct Lines(String);

impl Lines {
    fn add(&mut self, name: &str, value: impl std::fmt::Display) {
        let _ = writeln!(self.0, "{name} {value}"); // writing to a String cannot fail
    }
}

/// A word that may have spaces and quotes in it, as `redis.conf` takes it.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

fn quoted_path(path: &Path) -> String {
    quoted(&path.display().to_string())
}

/// Writes the certificates, and returns the authority's.
fn write_identity(folder: &Path) -> String {
    let Identity { ca, certificate, key } = tls::identity().expect("cannot make certificates");
    for (file, pem) in [(CERTIFICATE_FILE, &certificate), (KEY_FILE, &key), (CA_FILE, &ca)] {
        std::fs::write(folder.join(file), pem).expect("cannot write a certificate");
    }
    ca
}
