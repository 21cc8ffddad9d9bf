//! The Redis engine, for Redis 6.2 and later and for Valkey: one server, the primary that Sentinels name, or a Cluster.
//!
//! It promises the port: every step is one script, which looks at everything before its first write or takes it back, so
//! it is atomic and idempotent by token. A plain lock is a plain string `P:lock:K` whose value is the token, so any
//! client that does `SET NX PX` and compare-and-delete excludes Clinch and is excluded by it. While readers share it, the
//! same key holds a marker, so that those clients are kept out too; the readers themselves, permits, fences and queues
//! have keys of their own, which `keys.rs` names and the scripts explain. Beside a lock stands a note on who comes next: a
//! writer that readers let go first, or the heir to whom a release hands the key over. What a finished lease leaves behind stands in its
//! own key, in the place of the token.
//!
//! What it cannot promise (a restart without persistence, a failover before replication, a server clock that jumps) is
//! written in `docs/guarantees.md`.

mod address;
mod claims;
mod cluster;
mod confirm;
mod connection;
mod contended;
mod diagnose;
mod ear;
mod error;
mod exchange;
mod keys;
mod link;
mod queued;
mod race;
mod released;
mod request;
mod rights;
mod scripts;
mod sentinel;
mod wake;
mod wire;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{join, join_all};
use redis::Value;
use tokio::time::Instant;

use self::address::{Replicas, Servers};
pub use self::cluster::RedisClusterStore;
use self::connection::{Connection, Target, is_replica};
use self::contended::Contended;
use self::keys::Names;
use self::link::Link;
use self::request::Request;
use self::rights::Of;
use self::scripts::Call;
use self::wake::{Source, Wake};
use self::wire::Packed;
use super::in_flight::Purpose;
use super::{StoreOptions, with_record, without_password};
use crate::lease::{Attempt, ClaimKey, Holder, Record, Token};
use crate::store::{
    About, Capabilities, Cursor, Diagnosis, Effect, ErrorKind, Page, Release, Renewal, Revocations, Store,
    StoreAnswers, StoreError, StoreFuture, Verdict, Wakeups,
};

/// How many keys a page of a listing looks at, roughly.
const PAGE: usize = 100;
/// How many leases one call renews: few enough that the server is not kept from others for long.
const BATCH: usize = 128;

/// A store on one Redis or Valkey server at a time: at a fixed place, or the primary that Sentinels name.
///
/// Usually made by [`LockManager::connect`](crate::LockManager::connect); made by hand, several managers can share its
/// connection.
pub struct RedisStore {
    link: Arc<Link>,
    wake: Arc<Wake>,
    names: Names,
    /// Who must confirm grants.
    replicas: Option<Replicas>,
    contended: Arc<Contended>,
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore").field("link", &self.link).finish_non_exhaustive()
    }
}

/// The schemes' entry.
pub(super) fn connect<'a>(url: &'a str, options: &'a StoreOptions) -> StoreFuture<'a, Arc<dyn Store>> {
    Box::pin(async move {
        if url.split(':').next().is_some_and(|scheme| scheme.ends_with("+cluster")) {
            return Ok(Arc::new(RedisClusterStore::connect(url, options).await?) as Arc<dyn Store>);
        }
        Ok(Arc::new(RedisStore::connect(url, options).await?) as Arc<dyn Store>)
    })
}

/// What can be told of an address without connecting.
#[cfg(feature = "config")]
pub(super) fn check(url: &str, options: &StoreOptions) -> Result<(), StoreError> {
    address::parse(url, options).map(|_| ())
}

impl RedisStore {
    /// Connects to the server that `url` names, or to the primary that its Sentinels name, and makes a round trip.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for an address that cannot be used (a Cluster's, for instance: that is a
    /// [`RedisClusterStore`]), [`ErrorKind::Unavailable`] if there is no connection
    /// within the connect limit, [`ErrorKind::Auth`], [`ErrorKind::ReadOnly`] for a replica, [`ErrorKind::Protocol`] if
    /// what listens there is not Redis.
    ///
    /// # Cancel safety
    /// Safe: nothing is left behind when the future is dropped.
    pub async fn connect(url: &str, options: &StoreOptions) -> Result<Self, StoreError> {
        options.check().map_err(|error| StoreError::not_applied(ErrorKind::Config, error.to_string()))?;
        let address = address::parse(url, options)?;
        confirm::check(address.replicas, options)?;
        let link = Arc::new(Link::new(target(address.servers)?, options.clone(), without_password(url)));
        link.connection().await?;
        // Both at once: the warning costs no round trip of its own.
        let (primary, ()) = join(refuse_replica(&link), diagnose::warn_of_eviction(&link)).await;
        primary?;
        Ok(Self::on(link, options, address.replicas))
    }

    /// One of several servers that know nothing of each other; it is connected to when it is first needed.
    pub(super) fn node(url: &str, options: &StoreOptions, max_ttl: Duration) -> Result<Self, StoreError> {
        let target = target(address::parse(url, options)?.servers)?;
        let link = Link::new(target, options.clone(), without_password(url));
        Ok(Self::on(Arc::new(link.sitting_out(max_ttl)), options, None))
    }

    fn on(link: Arc<Link>, options: &StoreOptions, replicas: Option<Replicas>) -> Self {
        let names = Names::new(&options.prefix);
        let contended = Arc::new(Contended::default());
        let wake = Arc::new(Wake::new(Source::One(link.clone()), names.clone(), contended.clone()));
        Self { link, wake, names, replicas, contended }
    }
}

/// Where a link to these servers leads.
fn target(servers: Servers) -> Result<Target, StoreError> {
    match servers {
        Servers::One(client) => Ok(Target::Fixed(client, Arc::from(""))),
        Servers::Watched(sentinels) => Ok(Target::Watched(sentinels)),
        Servers::Cluster { .. } => {
            let reason = "a Cluster is for `RedisClusterStore`";
            Err(StoreError::not_applied(ErrorKind::Config, reason))
        }
    }
}

impl Drop for RedisStore {
    fn drop(&mut self) {
        self.wake.close();
    }
}

/// What scripts can do, wherever the servers are. What replicas must confirm is granted to one that asks, not handed over.
fn capabilities(replicas: Option<Replicas>) -> Capabilities {
    Capabilities {
        heirs: replicas.is_none(),
        shared: true,
        permits: true,
        several: true,
        fences: true,
        fair: true,
        batches: true,
        records: true,
        wakeups: true,
        list: true,
        ..Capabilities::default()
    }
}

/// A replica takes no locks. A server that does not tell its role is taken as it is.
async fn refuse_replica(link: &Link) -> Result<(), StoreError> {
    let role: Result<Value, _> = link.command(&redis::cmd("ROLE")).await;
    if is_replica(role.ok().as_ref()) {
        return Err(StoreError::not_applied(
            ErrorKind::ReadOnly,
            "this is a read-only replica, which takes no locks; connect to its primary",
        ));
    }
    Ok(())
}

impl Store for RedisStore {
    fn engine(&self) -> &'static str {
        "redis"
    }

    fn capabilities(&self) -> Capabilities {
        capabilities(self.replicas)
    }

    fn call_limit(&self) -> Option<Duration> {
        // What replicas did not confirm is given back, which is a call more.
        Some(self.link.options().call_timeout).filter(|_| self.replicas.is_none())
    }

    fn acquire<'a>(&'a self, attempt: &'a Attempt) -> StoreFuture<'a, Verdict> {
        Box::pin(async move {
            if let Some(error) = claims::unsupported(attempt).or_else(|| confirm::being_taken_back(attempt)) {
                return Err(error);
            }
            let on = attempt.claims()[0].on();
            let call = || claims::acquire(&self.names, attempt, self.replicas);
            // Asked again, it may be its own token that is in the way, and what is noted of an heir only a script takes away. A ballot
            // would wait twice for a vote that is denied.
            let new = attempt.sent_at().is_none() && !attempt.route().is_known();
            let simple = new && self.replicas.is_none() && !self.link.votes();
            let plain = simple && self.contended.is_free(on, attempt.patience());
            let set = if plain { claims::set(&self.names, attempt) } else { None };
            let by_hash = || {
                let queued = queued::acquire(&self.names, attempt);
                queued.unwrap_or_else(|| Packed::one(&call().by_hash()))
            };
            let mut flight = Flight { attempt, over: None };
            let sending = |connection: &Arc<Connection>| {
                attempt.sending();
                if self.link.votes() {
                    // The rest of a ballot may be taken back while it is still being ended.
                    attempt.route().sending_over(connection);
                }
                flight.over = Some(connection.clone());
            };
            let answer = if self.replicas.is_some() {
                // Larger, and not part of everybody's future.
                Box::pin(self.link.run(Purpose::Grant, &call(), None, sending)).await
            } else {
                let request =
                    set.map_or_else(|| Request::HashOr(by_hash(), &call), |set| Request::SetOr(set, &call));
                self.link.exchange(Purpose::Grant, request, None, None, sending).await
            };
            flight.ends(answer.as_ref().err());
            let (answer, too_few) = confirm::read(answer?, self.replicas)?;
            let verdict = claims::verdict(attempt, answer)?;
            self.contended.answered(on, &verdict);
            match too_few {
                Some(too_few) if matches!(verdict, Verdict::Granted(_)) => {
                    Err(confirm::give_back(attempt, too_few, self.release(attempt)).await)
                }
                _ => Ok(verdict),
            }
        })
    }

    fn acquire_each<'a>(&'a self, attempts: &'a [Arc<Attempt>]) -> StoreAnswers<'a, Verdict> {
        if self.replicas.is_some() {
            // Each needs a connection of its own.
            return Box::pin(join_all(attempts.iter().map(|attempt| self.acquire(attempt))));
        }
        Box::pin(async move {
            let refused: Vec<_> = attempts.iter().map(|attempt| claims::unsupported(attempt)).collect();
            let served: Vec<_> =
                attempts.iter().zip(&refused).filter(|(_, refused)| refused.is_none()).collect();
            let served: Vec<&Arc<Attempt>> = served.into_iter().map(|(attempt, _)| attempt).collect();
            let mut verdicts = self.acquire_served(&served).await.into_iter();
            let missing =
                || Err(StoreError::unknown(ErrorKind::Protocol, "Redis did not answer every attempt"));
            let verdict = |refused: Option<StoreError>| match refused {
                Some(error) => Err(error),
                None => verdicts.next().unwrap_or_else(missing),
            };
            refused.into_iter().map(verdict).collect()
        })
    }

    fn renew<'a>(&'a self, lease: &'a Attempt) -> StoreFuture<'a, Renewal> {
        Box::pin(async move {
            let Some(call) = claims::renew(&self.names, lease) else {
                let missing = || Err(StoreError::unknown(ErrorKind::Protocol, "Redis did not answer"));
                return self.renew_some(&[lease]).await.pop().unwrap_or_else(missing);
            };
            let mut sent_at = Instant::now();
            let extended: bool =
                self.link.run(Purpose::Upkeep, &call, None, |_| sent_at = Instant::now()).await?;
            Ok(if extended { Renewal::Extended { sent_at } } else { Renewal::Lost })
        })
    }

    fn renew_each<'a>(&'a self, leases: &'a [Arc<Attempt>]) -> StoreAnswers<'a, Renewal> {
        Box::pin(async move {
            let leases: Vec<&Attempt> = leases.iter().map(AsRef::as_ref).collect();
            join_all(leases.chunks(BATCH).map(|some| self.renew_some(some))).await.concat()
        })
    }

    fn release<'a>(&'a self, lease: &'a Attempt) -> StoreFuture<'a, Release> {
        Box::pin(async move {
            let call = || claims::release(&self.names, lease);
            let by_hash = claims::release_known(&self.names, lease);
            let by_hash = by_hash.or_else(|| queued::release(&self.names, lease));
            let by_hash = by_hash.unwrap_or_else(|| Packed::one(&call().by_hash()));
            self.end(lease, by_hash, &call).await
        })
    }

    fn complete<'a>(
        &'a self,
        lease: &'a Attempt,
        record: &'a Record,
        ttl: Option<Duration>,
    ) -> StoreFuture<'a, Release> {
        Box::pin(async move {
            let claim = with_record(lease)?;
            let call = || claims::complete(&self.names, lease, claim, record, ttl);
            self.end(lease, Packed::one(&call().by_hash()), &call).await
        })
    }

    fn wakeups(&self, on: &ClaimKey, queued: Option<&Token>) -> Wakeups {
        self.wake.wakeups(on, queued)
    }

    fn is_listening(&self, on: &ClaimKey) -> bool {
        self.wake.is_listening(on)
    }

    fn revocations(&self) -> Revocations {
        self.wake.revocations()
    }

    fn inspect<'a>(&'a self, on: &'a ClaimKey) -> StoreFuture<'a, Vec<Holder>> {
        Box::pin(async move { self.holders(vec![on.clone()], true).await })
    }

    fn list(&self, cursor: Cursor) -> StoreFuture<'_, Page> {
        Box::pin(async move {
            let mut scan = redis::cmd("SCAN");
            scan.arg(cursor.position()).arg("MATCH").arg(self.names.pattern()).arg("COUNT").arg(PAGE);
            let (next, keys): (u64, Vec<Vec<u8>>) = self.link.command(&scan).await?;
            let ours =
                keys.iter().filter_map(|key| self.names.parse(std::str::from_utf8(key).ok()?)).collect();
            let holders = self.holders(ours, false).await?;
            Ok(Page { holders, next: Some(Cursor::new(next)).filter(|_| next != 0) })
        })
    }

    fn revoke<'a>(&'a self, on: &'a ClaimKey, token: &'a Token) -> StoreFuture<'a, bool> {
        Box::pin(async move {
            let call = claims::revoke(&self.names, on, token);
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

    fn about(&self) -> StoreFuture<'_, About> {
        Box::pin(diagnose::about(&self.link))
    }

    fn diagnose(&self) -> StoreFuture<'_, Diagnosis> {
        Box::pin(diagnose::diagnose(&self.link, &self.names, Of::One))
    }

    fn close(&self) {
        self.wake.close();
        self.link.close();
    }
}

/// Notes, just before an acquire goes out, when and over which connection it does.
fn going_out(attempt: &Attempt, connection: &Arc<Connection>) -> Arc<Connection> {
    attempt.sending();
    attempt.route().sending_over(connection);
    connection.clone()
}

/// An acquire that was sent. The connection is noted when it ends without an answer, also because its future is dropped: until
/// then nobody asks for it, since whoever takes an attempt back has ended its acquire first. So what is answered, as nearly
/// everything is, notes nothing.
struct Flight<'a> {
    attempt: &'a Attempt,
    over: Option<Arc<Connection>>,
}

impl Flight<'_> {
    /// Something came of it, or nothing in time.
    fn ends(&mut self, error: Option<&StoreError>) {
        if is_answer(error)
            && let Some(connection) = self.over.take()
        {
            // An earlier one may have gone the same way: it was answered before this one.
            self.attempt.route().answered_over(&connection);
        }
    }
}

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        if let Some(connection) = self.over.take() {
            self.attempt.route().sending_over(&connection);
        }
    }
}

/// Whether it was answered: an error that says "not applied" is an answer too.
fn is_answer(error: Option<&StoreError>) -> bool {
    error.is_none_or(|error| error.effect() == Effect::NotApplied)
}

/// Notes that it was answered, if it was.
fn came_back(attempt: &Attempt, over: &Arc<Connection>, error: Option<&StoreError>) {
    if is_answer(error) {
        attempt.route().answered_over(over);
    }
}

impl RedisStore {
    /// Acquires attempts that are all supported, in one exchange.
    async fn acquire_served(&self, attempts: &[&Arc<Attempt>]) -> Vec<Result<Verdict, StoreError>> {
        if attempts.is_empty() {
            return Vec::new();
        }
        let calls: Vec<Call> =
            attempts.iter().map(|attempt| claims::acquire(&self.names, attempt, None)).collect();
        let mut over = None;
        let answers = self.link.run_each(Purpose::Grant, &calls, |connection| {
            for attempt in attempts {
                over = Some(going_out(attempt, connection));
            }
        });
        // What becomes of the whole exchange becomes of each.
        let answers =
            answers.await.unwrap_or_else(|error| attempts.iter().map(|_| Err(error.clone())).collect());
        let verdict = |(attempt, answer): (&&Arc<Attempt>, Result<Value, StoreError>)| {
            if let Some(connection) = &over {
                came_back(attempt, connection, answer.as_ref().err());
            }
            claims::verdict(attempt, answer?)
        };
        attempts.iter().zip(answers).map(verdict).collect()
    }

    /// Carries out a release or a completion.
    async fn end(
        &self,
        lease: &Attempt,
        by_hash: Packed,
        call: &(dyn Fn() -> Call + Sync),
    ) -> Result<Release, StoreError> {
        // What was not answered is taken back over the connection it went: there it cannot be overtaken.
        let unanswered = lease.route().unanswered::<Connection>();
        let usable =
            |(connection, abandoned): &&(Arc<Connection>, bool)| !abandoned && !connection.is_broken();
        let over = unanswered.iter().rfind(usable).map(|(connection, _)| connection.clone());
        let conclusive = unanswered.is_empty() || (unanswered.len() == 1 && over.is_some());
        let answer = self.link.run_known(Purpose::Upkeep, by_hash, call, over.clone(), |_| {}).await;
        match (&answer, over) {
            (Ok(_), Some(connection)) => lease.route().answered_over(&connection),
            // No answer in time: the next one goes over another connection, which is not conclusive, and the one after
            // that over this one again, in case it has come back.
            (Err(_), Some(connection)) => lease.route().abandon(&connection),
            (Ok(_), None) => lease.route().revive(),
            (Err(_), None) => {}
        }
        let released = released::released(&self.names, lease, answer?)?;
        Ok(Release { held: released.held, conclusive, woken: Some(released.woken(&self.wake)) })
    }

    /// Renews leases of any kind in one call.
    async fn renew_some(&self, leases: &[&Attempt]) -> Vec<Result<Renewal, StoreError>> {
        let call = claims::renew_each(&self.names, leases.iter().copied());
        let mut sent_at = Instant::now();
        let answers: Result<Vec<Value>, _> =
            self.link.run(Purpose::Upkeep, &call, None, |_| sent_at = Instant::now()).await;
        let renewal = |answer| {
            let extended = claims::extended(answer)?;
            Ok(if extended { Renewal::Extended { sent_at } } else { Renewal::Lost })
        };
        let mut answers: Vec<_> = match answers {
            Ok(answers) => answers.into_iter().map(renewal).collect(),
            Err(error) => leases.iter().map(|_| Err(error.clone())).collect(),
        };
        let missing =
            || Err(StoreError::unknown(ErrorKind::Protocol, "Redis did not answer for every lease"));
        answers.resize_with(leases.len(), missing);
        answers
    }

    /// Who holds these, in one call. `strict`: one that is no lease is an error.
    async fn holders(&self, on: Vec<ClaimKey>, strict: bool) -> Result<Vec<Holder>, StoreError> {
        if on.is_empty() {
            return Ok(Vec::new());
        }
        let call = claims::inspect(&self.names, &on, strict);
        let found: Vec<Vec<Value>> = self.link.run(Purpose::Other, &call, None, |_| {}).await?;
        let mut holders = Vec::new();
        for (on, found) in on.iter().zip(found) {
            holders.extend(claims::holders(on, found)?);
        }
        Ok(holders)
    }
}
