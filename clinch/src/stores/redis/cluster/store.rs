//! The port on a Cluster.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::future::join_all;
use redis::Value;
use tokio::time::Instant;

use super::several::{Groups, first_of, groups};
use super::slots::slot;
use super::{Cluster, Connection, Trip};
use crate::lease::{Attempt, ClaimKey, Holder, Record, Token};
use crate::store::{
    About, Capabilities, Cursor, Diagnosis, ErrorKind, Page, Release, Renewal, Revocations, Severity, Store,
    StoreAnswers, StoreError, StoreFuture, Verdict, Wakeups,
};
use crate::stores::in_flight::Purpose;
use crate::stores::redis::address::{self, Replicas, Servers};
use crate::stores::redis::confirm;
use crate::stores::redis::error::nonsense;
use crate::stores::redis::keys::Names;
use crate::stores::redis::race::first_answer;
use crate::stores::redis::rights::Of;
use crate::stores::redis::scripts::Call;
use crate::stores::redis::wake::{Source, Wake};
use crate::stores::redis::{PAGE, capabilities, diagnose};
use crate::stores::redis::{claims, released};
use crate::stores::{StoreOptions, with_record, without_password};

/// In a cursor the number of the server stands above its own position.
const SERVER_SHIFT: u32 = 56;

/// A store on a Redis or Valkey Cluster.
///
/// Usually made by [`LockManager::connect`](crate::LockManager::connect) with `redis+cluster://…`. What belongs to one key is
/// in one slot and served by one script; claims of one attempt that are in several slots are taken slot by slot in a fixed
/// order and rolled back on the first refusal. The bound on calls in flight is per server.
pub struct RedisClusterStore {
    pub(super) cluster: Arc<Cluster>,
    pub(super) names: Names,
    wake: Arc<Wake>,
    /// Wake-ups go over sharded channels.
    pub(super) sharded: bool,
    /// Who must confirm grants.
    pub(super) replicas: Option<Replicas>,
}

impl fmt::Debug for RedisClusterStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisClusterStore").field("cluster", &self.cluster).finish_non_exhaustive()
    }
}

impl RedisClusterStore {
    /// Connects to the first server that `url` names and answers, and learns the others from it.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for an address that cannot be used, [`ErrorKind::Unavailable`] if no server answers within the
    /// connect limit, [`ErrorKind::Auth`], [`ErrorKind::Protocol`] if what answers is no Cluster.
    ///
    /// # Cancel safety
    /// Safe: nothing is left behind when the future is dropped.
    pub async fn connect(url: &str, options: &StoreOptions) -> Result<Self, StoreError> {
        options.check().map_err(|error| StoreError::not_applied(ErrorKind::Config, error.to_string()))?;
        let address = address::parse(url, options)?;
        confirm::check(address.replicas, options)?;
        let Servers::Cluster { seeds, opener } = address.servers else {
            return Err(StoreError::not_applied(ErrorKind::Config, "this is no address of a Cluster"));
        };
        let cluster = Arc::new(Cluster::new(seeds, *opener, options.clone(), without_password(url)));
        cluster.refresh(Instant::now() + options.connect_timeout).await?;
        let nodes = cluster.primaries();
        let by = Instant::now() + options.connect_timeout;
        let (node, hello) = first_answer(nodes, by, |node| async move { diagnose::hello(&node.link).await })
            .await
            .map_err(|last| last.unwrap_or_else(|| cluster.no_map()))?;
        diagnose::warn_of_eviction(&node.link).await;
        let major =
            hello.version.as_deref().and_then(|version| version.split('.').next()?.parse::<u32>().ok());
        let sharded = major.is_some_and(|major| major >= 7);
        cluster.sharded.store(sharded, Ordering::Release);
        let names = Names::new(&options.prefix);
        let wake = Arc::new(Wake::new(Source::Cluster(cluster.clone()), names.clone(), Arc::default()));
        Ok(Self { cluster, names, wake, sharded, replicas: address.replicas })
    }

    /// As on servers before 7.0.
    #[cfg(test)]
    pub(super) fn unsharded(mut self) -> Self {
        self.sharded = false;
        self.cluster.sharded.store(false, Ordering::Release);
        self
    }

    /// Runs a script on the keys of one slot.
    pub(super) async fn run(
        &self,
        purpose: Purpose,
        slot: u16,
        call: Call,
        trip: &mut Trip<'_>,
    ) -> Result<Value, StoreError> {
        self.cluster.run(purpose, slot, &call.on_shards(self.sharded), trip).await
    }

    fn slot(&self, on: &ClaimKey) -> u16 {
        slot(&self.names.key(on))
    }

    fn groups(&self, of: &Attempt) -> Groups {
        groups(&self.names, of.claims().iter())
    }

    /// Its slot, if it is all in one.
    fn one_slot(&self, of: &Attempt) -> Option<u16> {
        let mut slots = of.claims().iter().map(|claim| self.slot(claim.on()));
        let first = slots.next()?;
        slots.all(|slot| slot == first).then_some(first)
    }

    async fn acquire_one(&self, attempt: &Attempt) -> Result<Verdict, StoreError> {
        if let Some(error) = confirm::being_taken_back(attempt) {
            return Err(error);
        }
        match self.one_slot(attempt) {
            Some(slot) => {
                let call = claims::acquire(&self.names, attempt, self.replicas);
                let answer = self.run(Purpose::Other, slot, call, &mut Trip::acquiring(attempt)).await?;
                let (answer, too_few) = confirm::read(answer, self.replicas)?;
                let verdict = claims::verdict(attempt, answer)?;
                match too_few {
                    Some(too_few) if matches!(verdict, Verdict::Granted(_)) => {
                        Err(confirm::give_back(attempt, too_few, self.release(attempt)).await)
                    }
                    _ => Ok(verdict),
                }
            }
            None => self.acquire_several(attempt, &self.groups(attempt)).await,
        }
    }

    async fn renew_one(&self, lease: &Attempt) -> Result<Renewal, StoreError> {
        let Some(slot) = self.one_slot(lease) else {
            return self.renew_several(lease, &self.groups(lease)).await;
        };
        let mut trip = Trip::default();
        let answer = self.run(Purpose::Upkeep, slot, self.renewal(lease), &mut trip).await?;
        self.renewed(lease, answer, trip.sent_at)
    }

    fn renewal(&self, lease: &Attempt) -> Call {
        let common = claims::renew(&self.names, lease);
        common.unwrap_or_else(|| claims::renew_each(&self.names, [lease].into_iter()))
    }

    fn renewed(
        &self,
        lease: &Attempt,
        answer: Value,
        sent_at: Option<Instant>,
    ) -> Result<Renewal, StoreError> {
        let extended = match claims::renew(&self.names, lease) {
            Some(_) => redis::from_redis_value(answer).map_err(nonsense)?,
            None => claims::extended(first_of(answer)?)?,
        };
        let sent_at = sent_at.unwrap_or_else(Instant::now);
        Ok(if extended { Renewal::Extended { sent_at } } else { Renewal::Lost })
    }

    /// Carries out a release or a completion. What was not answered is taken back over the connections it went: there it
    /// cannot be overtaken.
    async fn end(&self, lease: &Attempt, call: Option<Call>) -> Result<Release, StoreError> {
        let route = lease.route();
        let unanswered = route.unanswered::<Connection>();
        let usable =
            unanswered.iter().filter(|(connection, abandoned)| !abandoned && !connection.is_broken());
        let over: Vec<_> = usable.map(|(connection, _)| connection.clone()).collect();
        let (released, answered) = match (call, self.one_slot(lease)) {
            (Some(call), Some(slot)) => {
                let mut trip = Trip::over(&over);
                let answer = self.run(Purpose::Upkeep, slot, call, &mut trip).await;
                let released = answer.and_then(|answer| released::released(&self.names, lease, answer));
                (released, trip.answered)
            }
            _ => self.release_several(lease, &self.groups(lease), &over).await,
        };
        let was_answered =
            |leg: &Arc<Connection>| answered.iter().any(|connection| Arc::ptr_eq(connection, leg));
        match &released {
            Ok(_) => {
                over.iter().filter(|leg| was_answered(leg)).for_each(|leg| route.answered_over(leg));
                if over.is_empty() {
                    route.revive();
                }
            }
            // The next one goes over another connection, and the one after that over this one again.
            Err(_) => over.iter().for_each(|leg| route.abandon(leg)),
        }
        let conclusive = unanswered.iter().all(|(leg, _)| was_answered(leg));
        let released = released?;
        let (held, woken) = (released.held, released.woken(&self.wake));
        // Where channels are not sharded, each server knows of its own subscribers only.
        Ok(Release { held, conclusive, woken: self.sharded.then_some(woken) })
    }

    /// Tells of a force-release at the server where all listen for them. The script has told its own server, which tells the
    /// others over the Cluster's bus; but the bus drops what it is told while a link of it is made anew. Hearing it twice does nothing.
    async fn tell_of_revocation(&self, on: &ClaimKey, token: &Token) {
        let channel = self.names.revocations();
        let key = self.names.key(on);
        let Some(node) = self.cluster.owner(slot(&channel)) else { return };
        if self.cluster.owner(slot(&key)).is_some_and(|owner| owner.at == node.at) {
            return;
        }
        let mut publish = redis::cmd("PUBLISH");
        publish.arg(&channel).arg(format!("{key}\n{}", token.as_str()));
        let by = Instant::now() + self.cluster.options.call_timeout;
        if let Err(error) = node.link.upkeep::<Value>(&publish, by).await {
            tracing::debug!(key = %on, %error, "a force-release was told over the Cluster's bus only");
        }
    }

    async fn holders_of(&self, on: Vec<ClaimKey>, strict: bool) -> Result<Vec<Holder>, StoreError> {
        let call =
            |on: &ClaimKey| (self.slot(on), claims::inspect(&self.names, std::slice::from_ref(on), strict));
        let answers = self.run_each(Purpose::Other, on.iter().map(call).collect(), None).await;
        let mut holders = Vec::new();
        for (on, (answer, _)) in on.iter().zip(answers) {
            let found: Vec<Vec<Value>> = redis::from_redis_value(answer?).map_err(nonsense)?;
            for found in found {
                holders.extend(claims::holders(on, found)?);
            }
        }
        Ok(holders)
    }
}

impl Drop for RedisClusterStore {
    fn drop(&mut self) {
        self.wake.close();
    }
}

impl Store for RedisClusterStore {
    fn engine(&self) -> &'static str {
        "redis"
    }

    fn capabilities(&self) -> Capabilities {
        capabilities(self.replicas)
    }

    fn acquire<'a>(&'a self, attempt: &'a Attempt) -> StoreFuture<'a, Verdict> {
        Box::pin(async move {
            match claims::unsupported(attempt) {
                Some(error) => Err(error),
                None => self.acquire_one(attempt).await,
            }
        })
    }

    fn acquire_each<'a>(&'a self, attempts: &'a [Arc<Attempt>]) -> StoreAnswers<'a, Verdict> {
        if self.replicas.is_some() {
            // Each needs a connection of its own.
            return Box::pin(join_all(attempts.iter().map(|attempt| self.acquire(attempt))));
        }
        Box::pin(async move {
            let (mut together, mut places, mut calls) = (Vec::new(), Vec::new(), Vec::new());
            let mut apart = Vec::new();
            for (place, attempt) in attempts.iter().enumerate() {
                match self.one_slot(attempt).filter(|_| claims::unsupported(attempt).is_none()) {
                    Some(slot) => {
                        together.push(attempt.as_ref());
                        places.push(place);
                        calls.push((slot, claims::acquire(&self.names, attempt, None)));
                    }
                    None => apart.push(async move { (place, self.acquire(attempt).await) }),
                }
            }
            let (answers, apart) = futures_util::future::join(
                self.run_each(Purpose::Other, calls, Some(&together)),
                join_all(apart),
            )
            .await;
            let verdict = |((place, attempt), (answer, _)): ((usize, &Attempt), (Result<Value, _>, _))| {
                (place, answer.and_then(|answer| claims::verdict(attempt, answer)))
            };
            let mut all: Vec<_> =
                places.into_iter().zip(together).zip(answers).map(verdict).chain(apart).collect();
            all.sort_unstable_by_key(|(place, _)| *place);
            all.into_iter().map(|(_, verdict)| verdict).collect()
        })
    }

    fn renew<'a>(&'a self, lease: &'a Attempt) -> StoreFuture<'a, Renewal> {
        Box::pin(self.renew_one(lease))
    }

    fn renew_each<'a>(&'a self, leases: &'a [Arc<Attempt>]) -> StoreAnswers<'a, Renewal> {
        Box::pin(async move {
            let (mut places, mut calls, mut apart) = (Vec::new(), Vec::new(), Vec::new());
            for (place, lease) in leases.iter().enumerate() {
                match self.one_slot(lease) {
                    Some(slot) => {
                        places.push(place);
                        calls.push((slot, self.renewal(lease)));
                    }
                    None => apart.push(async move { (place, self.renew_one(lease).await) }),
                }
            }
            let (answers, apart) =
                futures_util::future::join(self.run_each(Purpose::Upkeep, calls, None), join_all(apart))
                    .await;
            let renewal = |(place, (answer, sent_at)): (usize, (Result<Value, StoreError>, _))| {
                (place, answer.and_then(|answer| self.renewed(&leases[place], answer, sent_at)))
            };
            let mut all: Vec<_> = places.into_iter().zip(answers).map(renewal).chain(apart).collect();
            all.sort_unstable_by_key(|(place, _)| *place);
            all.into_iter().map(|(_, renewal)| renewal).collect()
        })
    }

    fn part(&self, lease: &Attempt) -> usize {
        let topology = self.cluster.topology();
        let owner = self.one_slot(lease).and_then(|slot| topology.owner(slot));
        // Those in several slots are a part of their own.
        owner.map_or(usize::MAX, |owner| {
            topology.primaries().iter().position(|node| node.at == owner.at).unwrap_or(usize::MAX)
        })
    }

    fn release<'a>(&'a self, lease: &'a Attempt) -> StoreFuture<'a, Release> {
        Box::pin(async move { self.end(lease, Some(claims::release(&self.names, lease))).await })
    }

    fn complete<'a>(
        &'a self,
        lease: &'a Attempt,
        record: &'a Record,
        ttl: Option<Duration>,
    ) -> StoreFuture<'a, Release> {
        Box::pin(async move {
            let claim = with_record(lease)?;
            self.end(lease, Some(claims::complete(&self.names, lease, claim, record, ttl))).await
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
        Box::pin(self.holders_of(vec![on.clone()], true))
    }

    fn list(&self, cursor: Cursor) -> StoreFuture<'_, Page> {
        Box::pin(async move {
            let (number, position) =
                (cursor.position() >> SERVER_SHIFT, cursor.position() & ((1 << SERVER_SHIFT) - 1));
            let nodes = self.cluster.primaries();
            let number = usize::try_from(number).unwrap_or(usize::MAX);
            let Some(node) = nodes.get(number) else { return Ok(Page::default()) };
            let mut scan = redis::cmd("SCAN");
            scan.arg(position).arg("MATCH").arg(self.names.pattern()).arg("COUNT").arg(PAGE);
            let (next, keys): (u64, Vec<Vec<u8>>) = node.link.command(&scan).await?;
            let ours =
                keys.iter().filter_map(|key| self.names.parse(std::str::from_utf8(key).ok()?)).collect();
            let holders = self.holders_of(ours, false).await?;
            let next = match next {
                0 if number + 1 < nodes.len() => Some((number + 1, 0)),
                0 => None,
                next => Some((number, next)),
            };
            let cursor = |(number, position): (usize, u64)| {
                Cursor::new((u64::try_from(number).unwrap_or(0) << SERVER_SHIFT) | position)
            };
            Ok(Page { holders, next: next.map(cursor) })
        })
    }

    fn revoke<'a>(&'a self, on: &'a ClaimKey, token: &'a Token) -> StoreFuture<'a, bool> {
        Box::pin(async move {
            let call = claims::revoke(&self.names, on, token);
            let answer = self.run(Purpose::Upkeep, self.slot(on), call, &mut Trip::default()).await?;
            let revoked = redis::from_redis_value(answer).map_err(nonsense)?;
            if revoked {
                self.tell_of_revocation(on, token).await;
            }
            Ok(revoked)
        })
    }

    /// The first answer of any server: whoever asks wants to know whether it makes sense to ask for anything.
    fn ping(&self) -> StoreFuture<'_, Duration> {
        Box::pin(async move {
            self.cluster.check_open()?;
            let started = Instant::now();
            let by = started + self.cluster.options.call_timeout;
            let asked = first_answer(self.cluster.primaries(), by, |node| async move {
                node.link.command::<Value>(&redis::cmd("PING")).await
            });
            match asked.await {
                Ok(_) => Ok(started.elapsed()),
                Err(last) => {
                    self.cluster.refresh_soon();
                    Err(last.unwrap_or_else(|| self.cluster.no_map()))
                }
            }
        })
    }

    fn about(&self) -> StoreFuture<'_, About> {
        Box::pin(async move {
            self.cluster.check_open()?;
            let nodes = self.cluster.primaries();
            let all = join_all(nodes.iter().map(|node| diagnose::about(&node.link))).await;
            let (mut well, mut last) = (Vec::new(), None);
            for answer in all {
                match answer {
                    Ok(about) => well.push(about),
                    Err(error) => last = Some(error),
                }
            }
            let answering = well.len();
            let Some(mut about) = well.into_iter().max_by_key(|about| about.latency) else {
                self.cluster.refresh_soon();
                return Err(last.unwrap_or_else(|| self.cluster.no_map()));
            };
            let uncovered = self.cluster.topology().uncovered();
            if answering < nodes.len() {
                self.cluster.refresh_soon();
                about.degraded =
                    Some(format!("{answering} of {} primaries of the Cluster answer", nodes.len()));
            } else if uncovered > 0 {
                about.degraded = Some(format!("{uncovered} slots of the Cluster are served by nobody"));
            }
            Ok(about)
        })
    }

    fn diagnose(&self) -> StoreFuture<'_, Diagnosis> {
        Box::pin(async move {
            let by = Instant::now() + self.cluster.options.call_timeout;
            self.cluster.refresh(by).await?;
            let nodes = self.cluster.primaries();
            let Some(first) = nodes.first() else { return Err(self.cluster.no_map()) };
            let of = if self.sharded { Of::Shards } else { Of::Cluster };
            let mut diagnosis = diagnose::diagnose(&first.link, &self.names, of).await?;
            let (replicas, alone, uncovered) = {
                let topology = self.cluster.topology();
                (topology.replicas(), topology.alone(), topology.uncovered())
            };
            diagnosis.fact("cluster_primaries", nodes.len());
            diagnosis.fact("cluster_replicas", replicas);
            diagnosis.fact("cluster_slots_uncovered", uncovered);
            if uncovered > 0 {
                let problem =
                    format!("{uncovered} slots are served by nobody: the keys in them cannot be locked");
                diagnosis.finding("cluster", Severity::Error, problem, "see `redis-cli --cluster check`");
            }
            if alone > 0 {
                let problem = format!(
                    "{alone} primaries have no replica: when one fails, the keys in its slots cannot be locked"
                );
                diagnosis.finding("cluster", Severity::Warning, problem, "give every primary a replica");
            }
            for (node, answer) in
                nodes.iter().zip(join_all(nodes.iter().map(|node| diagnose::about(&node.link))).await)
            {
                if let Err(error) = answer {
                    let problem = format!("the primary at {} does not answer: {}", node.at, error.message());
                    diagnosis.finding("cluster", Severity::Error, problem, "see its log");
                }
            }
            Ok(diagnosis)
        })
    }

    fn close(&self) {
        self.wake.close();
        self.cluster.close();
    }
}
