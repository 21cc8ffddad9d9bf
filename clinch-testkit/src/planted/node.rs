//! Broken quorums: honest nodes and an honest count, and a wrong word between the two.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use clinch::lease::{Attempt, Token};
use clinch::store::{Release, Renewal, Store, StoreError, StoreFuture, Verdict};
use tokio::time::Instant;

/// What is broken; [`all`](super::all) says it in words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NodeBug {
    SilenceGrants,
    MinorityGrants,
    MinorityRenews,
    TokenPerNode,
    ReleaseSkips,
}

/// The way to one node, with one bug.
#[derive(Debug)]
pub(super) struct PlantedNode {
    inner: Arc<dyn Store>,
    number: usize,
    bug: NodeBug,
    /// What goes out in the place of the attempts with these tokens.
    instead: Mutex<BTreeMap<Token, Arc<Attempt>>>,
}

impl PlantedNode {
    pub(super) fn new(inner: Arc<dyn Store>, number: usize, bug: NodeBug) -> Self {
        Self { inner, number, bug, instead: Mutex::default() }
    }

    /// The same attempt under a token of this node.
    fn own(&self, attempt: &Attempt) -> Arc<Attempt> {
        let mut instead = self.instead.lock().unwrap_or_else(PoisonError::into_inner);
        let own = instead.entry(attempt.token().clone()).or_insert_with(|| {
            let text: String = attempt.token().as_str().chars().skip(1).collect();
            let token = Token::from_text(format!("{}{text}", self.number));
            Arc::new(Attempt::one(token, attempt.claims()[0].clone()))
        });
        own.clone()
    }

    async fn broken_acquire(&self, attempt: &Attempt) -> Result<Verdict, StoreError> {
        match self.bug {
            NodeBug::TokenPerNode => {
                let own = self.own(attempt);
                self.inner.acquire(&own).await
            }
            NodeBug::SilenceGrants => Ok(self.inner.acquire(attempt).await.unwrap_or(Verdict::granted())),
            NodeBug::MinorityGrants if self.number > 0 => {
                self.inner.acquire(attempt).await.map(|_| Verdict::granted())
            }
            _ => self.inner.acquire(attempt).await,
        }
    }

    async fn broken_renew(&self, lease: &Attempt) -> Result<Renewal, StoreError> {
        let sent_at = Instant::now();
        match self.bug {
            NodeBug::TokenPerNode => {
                let own = self.own(lease);
                self.inner.renew(&own).await
            }
            NodeBug::MinorityRenews if self.number > 0 => {
                self.inner.renew(lease).await.map(|_| Renewal::Extended { sent_at })
            }
            _ => self.inner.renew(lease).await,
        }
    }

    async fn broken_release(&self, lease: &Attempt) -> Result<Release, StoreError> {
        match self.bug {
            NodeBug::TokenPerNode => {
                let own = self.own(lease);
                self.inner.release(&own).await
            }
            NodeBug::ReleaseSkips if self.number > 1 => {
                Ok(Release { held: true, conclusive: true, woken: None })
            }
            _ => self.inner.release(lease).await,
        }
    }
}

impl Store for PlantedNode {
    crate::passes_on!(inner: capabilities, wakeups, revocations, inspect, list, revoke, ping, close);

    fn acquire<'a>(&'a self, attempt: &'a Attempt) -> StoreFuture<'a, Verdict> {
        Box::pin(self.broken_acquire(attempt))
    }

    fn renew<'a>(&'a self, lease: &'a Attempt) -> StoreFuture<'a, Renewal> {
        Box::pin(self.broken_renew(lease))
    }

    fn release<'a>(&'a self, lease: &'a Attempt) -> StoreFuture<'a, Release> {
        Box::pin(self.broken_release(lease))
    }
}
