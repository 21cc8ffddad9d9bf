//! The Redis engine, for Redis 6.2 and later and for Valkey: one server.
//!
//! It promises the port on one server: every step is one script, which looks at everything before its first write, so
//! it is atomic and idempotent by token. A plain lock is a plain string `P:lock:K` whose value is the token, so any
//! client that does `SET NX PX` and compare-and-delete excludes Clinch and is excluded by it.
//!
//! What it cannot promise (a restart without persistence, a failover before replication, a server clock that jumps) is
//! written in `docs/guarantees.md`.

mod error;
mod keys;
mod link;
mod scripts;
mod wake;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redis::{Client, ConnectionAddr, IntoConnectionInfo, Value};
use tokio::time::Instant;

use self::error::nonsense;
use self::keys::Names;
use self::link::{Connection, Link, Purpose};
use self::wake::Wake;
use super::{StoreOptions, without_password};
use crate::lease::{Attempt, Claim, ClaimKey, Holder, Mode, Token};
use crate::store::{
    Capabilities, Cursor, Denial, ErrorKind, Page, Release, Renewal, Revocations, Store, StoreError,
    StoreFuture, Verdict, Wakeups,
};

/// How many keys a page of a listing looks at, roughly.
const PAGE: usize = 100;

/// A store on one Redis or Valkey server.
///
/// Usually made by [`LockManager::connect`](crate::LockManager::connect); made by hand, several managers can share its
/// connection.
pub struct RedisStore {
    link: Arc<Link>,
    wake: Arc<Wake>,
    names: Names,
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore").field("link", &self.link).finish_non_exhaustive()
    }
}

/// The schemes' entry.
pub(super) fn connect<'a>(url: &'a str, options: &'a StoreOptions) -> StoreFuture<'a, Arc<dyn Store>> {
    Box::pin(async move { Ok(Arc::new(RedisStore::connect(url, options).await?) as Arc<dyn Store>) })
}

impl RedisStore {
    /// Connects to the server that `url` names and makes a round trip.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for an address that cannot be used, [`ErrorKind::Unavailable`] if there is no connection
    /// within the connect limit, [`ErrorKind::Auth`], [`ErrorKind::ReadOnly`] for a replica, [`ErrorKind::Protocol`] if
    /// what listens there is not Redis.
    ///
    /// # Cancel safety
    /// Safe: nothing is left behind when the future is dropped.
    pub async fn connect(url: &str, options: &StoreOptions) -> Result<Self, StoreError> {
        options.check().map_err(|error| StoreError::not_applied(ErrorKind::Config, error.to_string()))?;
        let link = Arc::new(Link::new(client(url, options)?, options.clone(), without_password(url)));
        link.connection().await?;
        refuse_replica(&link).await?;
        let names = Names::new(&options.prefix);
        let wake = Arc::new(Wake::new(link.clone(), names.clone()));
        Ok(Self { link, wake, names })
    }

    fn holder(&self, on: ClaimKey, value: &[u8], pttl: i64) -> Holder {
        // Another client's value may be any bytes; it is only shown, and compared where it is text.
        let token = Token::from_text(String::from_utf8_lossy(value).into_owned());
        Holder::new(on, Mode::Exclusive, token, time_left(pttl))
    }
}

impl Drop for RedisStore {
    fn drop(&mut self) {
        self.wake.close();
    }
}

/// `PTTL`'s answer: never less than 1 ms; `None` for a key without expiry.
fn time_left(pttl: i64) -> Option<Duration> {
    match pttl {
        -1 => None,
        pttl => Some(Duration::from_millis(u64::try_from(pttl).unwrap_or_default().max(1))),
    }
}

fn client(url: &str, options: &StoreOptions) -> Result<Client, StoreError> {
    let config = |reason: String| StoreError::not_applied(ErrorKind::Config, reason);
    let (address, query) = url.split_once('?').unwrap_or((url, ""));
    let accepted: &[&str] = if address.starts_with("redis+unix:") { &["db", "user", "pass"] } else { &[] };
    let names = query.split('&').filter(|pair| !pair.is_empty()).filter_map(|pair| pair.split('=').next());
    if let Some(name) = names.into_iter().find(|name| !accepted.contains(name)) {
        // A name may be part of a password with an unescaped `?`.
        let shown = if name.chars().all(|c| c.is_ascii_lowercase() || c == '_') && !query.contains('@') {
            name
        } else {
            "…"
        };
        let reason = format!(
            "the parameter `{shown}` is not accepted; write the database as a path (`redis://host/2`), and escape a `?` in a \
             password as %3F"
        );
        return Err(config(reason));
    }
    if url.contains('#') {
        return Err(config("a `#` part is not accepted; certificates are always verified".to_owned()));
    }
    let info = url.into_connection_info().map_err(|error| {
        let text = error.to_string();
        let reason = text.split(" - ").next().unwrap_or_default();
        config(format!(
            "{reason}; accepted is `redis://[user:password@]host[:port][/database]`, `rediss://…` and \
             `redis+unix:///path/to/socket[?db=…&user=…&pass=…]`"
        ))
    })?;
    let settings = info.redis_settings().clone().set_lib_name("clinch", env!("CARGO_PKG_VERSION"));
    let info = info.set_redis_settings(settings);
    let opened = if matches!(info.addr(), ConnectionAddr::TcpTls { .. }) {
        tls_client(info, options)
    } else {
        Client::open(info)
    };
    opened.map_err(|error| config(format!("cannot be used: {error}")))
}

#[cfg(feature = "redis-tls")]
fn tls_client(info: redis::ConnectionInfo, options: &StoreOptions) -> redis::RedisResult<Client> {
    // Without a provider that the program chose, rustls would panic if two were compiled in.
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // An error only says that somebody else was faster.
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
    match &options.tls_root_certificates {
        None => Client::open(info),
        Some(pem) => {
            let certificates = redis::TlsCertificates { client_tls: None, root_cert: Some(pem.clone()) };
            Client::build_with_tls(info, certificates)
        }
    }
}

#[cfg(not(feature = "redis-tls"))]
fn tls_client(info: redis::ConnectionInfo, _options: &StoreOptions) -> redis::RedisResult<Client> {
    Client::open(info)
}

/// A replica takes no locks. A server that does not tell its role is taken as it is.
async fn refuse_replica(link: &Link) -> Result<(), StoreError> {
    let role: Result<Vec<Value>, _> = link.command(&redis::cmd("ROLE")).await;
    match role.ok().and_then(|role| role.into_iter().next()) {
        Some(Value::BulkString(word)) if word == b"slave" => Err(StoreError::not_applied(
            ErrorKind::ReadOnly,
            "this is a read-only replica, which takes no locks; connect to its primary",
        )),
        _ => Ok(()),
    }
}

fn millis(ttl: Duration) -> u64 {
    ttl.as_millis().try_into().unwrap_or(u64::MAX)
}

fn unsupported(claims: &[Claim]) -> Option<StoreError> {
    let wrong = |claim: &&Claim| claim.mode() != Mode::Exclusive || claim.fence_floor().is_some();
    let claim = claims.iter().find(wrong)?;
    let message = format!("the Redis store grants exclusive claims without fences only, not {claim:?}");
    Some(StoreError::not_applied(ErrorKind::Unsupported, message))
}

impl Store for RedisStore {
    fn capabilities(&self) -> Capabilities {
        Capabilities { several: true, wakeups: true, list: true, ..Capabilities::default() }
    }

    fn acquire<'a>(&'a self, attempt: &'a Attempt) -> StoreFuture<'a, Verdict> {
        Box::pin(async move {
            if let Some(error) = unsupported(attempt.claims()) {
                return Err(error);
            }
            let mut call = scripts::ACQUIRE.call().arg(attempt.token().as_str());
            for claim in attempt.claims() {
                call = call.key(self.names.key(claim.on())).arg(millis(claim.ttl()));
            }
            let mut over = None;
            let answer = self.link.run(Purpose::Other, &call, None, |connection| {
                attempt.sending();
                attempt.route().sending_over(connection);
                over = Some(connection.clone());
            });
            let answer: Result<Value, _> = answer.await;
            // An error that says "not applied" is an answer too.
            let answered =
                answer.as_ref().map_or_else(|e| e.effect() == crate::store::Effect::NotApplied, |_| true);
            if let Some(connection) = over.filter(|_| answered) {
                attempt.route().answered_over(&connection);
            }
            match answer? {
                Value::Int(0) => Ok(Verdict::granted()),
                denied => {
                    let (place, value, pttl): (usize, Vec<u8>, i64) =
                        redis::from_redis_value(denied).map_err(nonsense)?;
                    let claim = place.saturating_sub(1);
                    let on = attempt.claims().get(claim).map(|claim| claim.on().clone());
                    let holder = on.map(|on| self.holder(on, &value, pttl));
                    Ok(Verdict::Denied(Denial { claim, holder, retry_after: time_left(pttl) }))
                }
            }
        })
    }

    fn renew<'a>(&'a self, lease: &'a Attempt) -> StoreFuture<'a, Renewal> {
        Box::pin(async move {
            let mut call = scripts::RENEW.call().arg(lease.token().as_str());
            for claim in lease.claims() {
                call = call.key(self.names.key(claim.on())).arg(millis(claim.ttl()));
            }
            let mut sent_at = Instant::now();
            let extended: bool =
                self.link.run(Purpose::Upkeep, &call, None, |_| sent_at = Instant::now()).await?;
            Ok(if extended { Renewal::Extended { sent_at } } else { Renewal::Lost })
        })
    }

    fn release<'a>(&'a self, lease: &'a Attempt) -> StoreFuture<'a, Release> {
        Box::pin(async move {
            let mut call = scripts::RELEASE.call().arg(lease.token().as_str());
            for claim in lease.claims() {
                call = call.key(self.names.key(claim.on())).arg(self.names.channel(claim.on()));
            }
            // What was not answered is taken back over the connection it went: there it cannot be overtaken.
            let unanswered = lease.route().unanswered::<Connection>();
            let usable =
                |(connection, abandoned): &&(Arc<Connection>, bool)| !abandoned && !connection.is_broken();
            let over = unanswered.iter().rfind(usable).map(|(connection, _)| connection.clone());
            let conclusive = unanswered.is_empty() || (unanswered.len() == 1 && over.is_some());
            let answer = self.link.run(Purpose::Upkeep, &call, over.clone(), |_| {}).await;
            match (&answer, over) {
                (Ok(_), Some(connection)) => lease.route().answered_over(&connection),
                // No answer in time: the next release goes over another one, which is not conclusive, and the one
                // after that over this one again, in case it has come back.
                (Err(_), Some(connection)) => lease.route().abandon(&connection),
                (Ok(_), None) => lease.route().revive(),
                (Err(_), None) => {}
            }
            answer.map(|held| Release { held, conclusive, woken: None })
        })
    }

    fn wakeups(&self, on: &ClaimKey, _queued: Option<&Token>) -> Wakeups {
        self.wake.wakeups(on)
    }

    fn revocations(&self) -> Revocations {
        self.wake.revocations()
    }

    fn inspect<'a>(&'a self, on: &'a ClaimKey) -> StoreFuture<'a, Vec<Holder>> {
        Box::pin(async move { self.holders(vec![on.clone()]).await })
    }

    fn list(&self, cursor: Cursor) -> StoreFuture<'_, Page> {
        Box::pin(async move {
            let mut scan = redis::cmd("SCAN");
            scan.arg(cursor.position()).arg("MATCH").arg(self.names.pattern()).arg("COUNT").arg(PAGE);
            scan.arg("TYPE").arg("string");
            let (next, keys): (u64, Vec<Vec<u8>>) = self.link.command(&scan).await?;
            let ours =
                keys.iter().filter_map(|key| self.names.parse(std::str::from_utf8(key).ok()?)).collect();
            let holders = self.holders(ours).await?;
            Ok(Page { holders, next: Some(Cursor::new(next)).filter(|_| next != 0) })
        })
    }

    fn revoke<'a>(&'a self, on: &'a ClaimKey, token: &'a Token) -> StoreFuture<'a, bool> {
        Box::pin(async move {
            let call = scripts::REVOKE.call().key(self.names.key(on)).arg(token.as_str());
            let call = call.arg(self.names.channel(on)).arg(self.names.revocations());
            self.link.run(Purpose::Upkeep, &call, None, |_| {}).await
        })
    }

    fn ping(&self) -> StoreFuture<'_, Duration> {
        Box::pin(async move {
            let started = Instant::now();
            let _: Value = self.link.command(&redis::cmd("PING")).await?;
            Ok(started.elapsed())
        })
    }

    fn close(&self) {
        self.wake.close();
        self.link.close();
    }
}

impl RedisStore {
    /// Who holds these, in one call.
    async fn holders(&self, on: Vec<ClaimKey>) -> Result<Vec<Holder>, StoreError> {
        if on.is_empty() {
            return Ok(Vec::new());
        }
        let call = on.iter().fold(scripts::INSPECT.call(), |call, on| call.key(self.names.key(on)));
        let found: Vec<Vec<Value>> = self.link.run(Purpose::Other, &call, None, |_| {}).await?;
        let mut holders = Vec::new();
        for (on, found) in on.into_iter().zip(found) {
            if !found.is_empty() {
                let (value, pttl): (Vec<u8>, i64) =
                    redis::from_redis_value(Value::Array(found)).map_err(nonsense)?;
                holders.push(self.holder(on, &value, pttl));
            }
        }
        Ok(holders)
    }
}
