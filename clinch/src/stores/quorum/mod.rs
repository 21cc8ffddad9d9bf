//! The quorum: one lock over several Redis servers that know nothing of each other. Opt in.
//!
//! A lease is held by whoever has it on more than half of the servers. All of them are asked at the same time, under the
//! same token; the answer is there as soon as it is certain, and slower ones are not waited for. An attempt that does not
//! get more than half gives back what it got, and says who is in the way and for how long. Validity runs from before the
//! first byte to any of them. So a minority of the servers can be down, or lose its memory, and no two holders are valid at
//! the same time.
//!
//! # What this rests on
//! - The servers are **independent**: no replicas of each other, not behind one address, not on one machine. The same list
//!   in the configuration of every client, and the same `max_ttl`.
//! - **Clocks** of servers and clients run at the same speed, give or take 1 %, and those of servers are not set ahead
//!   while leases are held. (They need not agree on what time it is.)
//! - **A server that was restarted sits out** ([`Probation`]): it grants nothing until every lease is over that it can have
//!   forgotten. No setting of persistence makes it quicker. That is why this mode has a longest TTL of its own (`max_ttl`, 60 s unless
//!   set), and why **a new deployment grants nothing for its first minute**: the error says so, and for how long.
//! - **Nothing else makes a server forget**: no eviction (`maxmemory-policy noeviction`), no `FLUSHALL`.
//! - Connections lead straight to the servers, or through something that closes them when the server goes away.
//!
//! # What there is not
//! No fences: numbers that several servers count do not rise together. So a holder that is stopped past its validity and
//! writes without checking cannot be kept out here; where that would be a disaster, one Redis and a fence are the better
//! choice. No shared locks, permits, queues, several keys at once or stored records either: [`Capabilities`] says so.
//!
//! # Anything that is a store
//! [`QuorumStore::new`] takes nodes of any kind, as long as each is a [`Store`] that sits out. So what is simulated is what
//! runs.

mod address;
mod ballot;
mod contention;
mod events;
mod look;
mod probation;
mod rest;
mod steps;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

pub use self::probation::Probation;

use self::address::Address;
use self::ballot::Ballot;
use self::contention::Contention;
use self::events::Heard;
use self::rest::Rests;
use self::steps::Marks;
use super::StoreOptions;
use super::redis::RedisStore;
use crate::lease::{Attempt, ClaimKey, Holder, Token};
use crate::store::{
    About, Capabilities, Cursor, Diagnosis, ErrorKind, Page, Release, Renewal, Revocations, Store,
    StoreAnswers, StoreError, StoreFuture, Verdict, Wakeups,
};

#[cfg(feature = "config")]
pub(super) use self::address::with_database;

/// A store over several nodes, of which more than half must grant.
pub struct QuorumStore {
    nodes: Vec<Arc<dyn Store>>,
    /// As they are shown.
    names: Vec<String>,
    max_ttl: Duration,
    marks: Marks,
    rests: Rests,
    heard: Heard,
    contention: Arc<Contention>,
}

impl fmt::Debug for QuorumStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { names, max_ttl, .. } = self;
        f.debug_struct("QuorumStore").field("nodes", names).field("max_ttl", max_ttl).finish_non_exhaustive()
    }
}

/// The schemes' entry.
pub(super) fn connect<'a>(url: &'a str, options: &'a StoreOptions) -> StoreFuture<'a, Arc<dyn Store>> {
    Box::pin(async move { Ok(Arc::new(QuorumStore::connect(url, options).await?) as Arc<dyn Store>) })
}

/// What can be told of an address without connecting.
#[cfg(feature = "config")]
pub(super) fn check(url: &str, options: &StoreOptions) -> Result<(), StoreError> {
    servers(&Address::parse(url)?, options).map(|_| ())
}

fn servers(address: &Address, options: &StoreOptions) -> Result<Vec<Arc<dyn Store>>, StoreError> {
    let server = |(url, _): &(String, String)| {
        Ok(Arc::new(RedisStore::node(url, options, address.max_ttl)?) as Arc<dyn Store>)
    };
    address.nodes.iter().map(server).collect()
}

impl QuorumStore {
    /// Connects to the servers that `url` names; more than half of them must answer.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for an address that cannot be used; what kept the servers from answering, if too few did.
    ///
    /// # Cancel safety
    /// Safe: nothing is left behind when the future is dropped.
    pub async fn connect(url: &str, options: &StoreOptions) -> Result<Self, StoreError> {
        options.check().map_err(|error| StoreError::not_applied(ErrorKind::Config, error.to_string()))?;
        let address = Address::parse(url)?;
        let servers = servers(&address, options)?;
        let names = address.nodes.into_iter().map(|(_, name)| name);
        let store = Self::new(names.zip(servers).collect(), address.max_ttl, rand::random())?;
        store.ping_most().await?;
        Ok(store)
    }

    /// A store over these nodes, each with the name by which it is shown.
    ///
    /// Every client of them has the same nodes and the same `max_ttl`; a node that may have forgotten anything grants
    /// nothing until its [`Probation`] is over. From `seed` come the pauses by which contenders keep out of each other's way:
    /// another one in every process.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if there are fewer than three.
    pub fn new(
        nodes: Vec<(String, Arc<dyn Store>)>,
        max_ttl: Duration,
        seed: u64,
    ) -> Result<Self, StoreError> {
        if nodes.len() < 3 {
            let why = "a quorum needs three nodes or more: with fewer, none can fail";
            return Err(StoreError::not_applied(ErrorKind::Config, why));
        }
        let (names, nodes) = nodes.into_iter().unzip();
        let (marks, rests) = (Marks::default(), Rests::default());
        let contention = Arc::new(Contention::new(seed));
        Ok(Self { nodes, names, max_ttl, marks, rests, heard: Heard::new(), contention })
    }

    fn all_can(&self, can: fn(Capabilities) -> bool) -> bool {
        self.nodes.iter().all(|node| can(node.capabilities()))
    }
}

impl Drop for QuorumStore {
    fn drop(&mut self) {
        self.heard.close();
        self.rests.close();
    }
}

impl Store for QuorumStore {
    fn engine(&self) -> &'static str {
        "redis_quorum"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            split_votes: true,
            batches: self.all_can(|can| can.batches),
            wakeups: self.all_can(|can| can.wakeups),
            list: self.all_can(|can| can.list),
            ..Capabilities::default()
        }
    }

    fn acquire<'a>(&'a self, attempt: &'a Attempt) -> StoreFuture<'a, Verdict> {
        Box::pin(self.acquire_by_majority(attempt))
    }

    fn renew<'a>(&'a self, lease: &'a Attempt) -> StoreFuture<'a, Renewal> {
        Box::pin(async move {
            let nothing = || Err(Ballot::<Renewal>::new(self.nodes.len()).failure(&self.names));
            self.renew_by_majority(&[lease]).await.pop().unwrap_or_else(nothing)
        })
    }

    fn renew_each<'a>(&'a self, leases: &'a [Arc<Attempt>]) -> StoreAnswers<'a, Renewal> {
        Box::pin(async move {
            let leases: Vec<&Attempt> = leases.iter().map(AsRef::as_ref).collect();
            self.renew_by_majority(&leases).await
        })
    }

    fn release<'a>(&'a self, lease: &'a Attempt) -> StoreFuture<'a, Release> {
        Box::pin(self.release_everywhere(lease))
    }

    fn wakeups(&self, on: &ClaimKey, queued: Option<&Token>) -> Wakeups {
        self.merged_wakeups(on, queued)
    }

    fn revocations(&self) -> Revocations {
        self.merged_revocations()
    }

    fn inspect<'a>(&'a self, on: &'a ClaimKey) -> StoreFuture<'a, Vec<Holder>> {
        Box::pin(self.holders(on))
    }

    fn list(&self, cursor: Cursor) -> StoreFuture<'_, Page> {
        Box::pin(self.page(cursor))
    }

    fn revoke<'a>(&'a self, on: &'a ClaimKey, token: &'a Token) -> StoreFuture<'a, bool> {
        Box::pin(self.revoke_everywhere(on, token))
    }

    fn ping(&self) -> StoreFuture<'_, Duration> {
        Box::pin(self.ping_most())
    }

    fn about(&self) -> StoreFuture<'_, About> {
        Box::pin(self.about_all())
    }

    fn diagnose(&self) -> StoreFuture<'_, Diagnosis> {
        Box::pin(self.diagnose_all())
    }

    fn close(&self) {
        self.heard.close();
        self.rests.close();
        self.nodes.iter().for_each(|node| node.close());
    }
}
