//! A process that is stopped: nothing leaves it, and it takes nothing in.

use std::sync::Arc;
use std::time::Duration;

use clinch::lease::{Attempt, ClaimKey, Holder, Record, Token};
use clinch::store::{Cursor, Page, Release, Renewal, Store, StoreFuture, Verdict};

use super::Gate;

/// A store whose calls do not go on while the gate of its process is closed.
#[derive(Debug)]
pub(super) struct Gated {
    inner: Arc<dyn Store>,
    gate: Gate,
}

impl Gated {
    pub(super) fn new(inner: Arc<dyn Store>, gate: Gate) -> Self {
        Self { inner, gate }
    }

    fn behind<'a, T: 'a>(&self, call: StoreFuture<'a, T>) -> StoreFuture<'a, T> {
        Box::pin(self.gate.behind(call))
    }
}

impl Store for Gated {
    crate::passes_on!(inner: capabilities, wakeups, revocations, close);

    fn acquire<'a>(&'a self, attempt: &'a Attempt) -> StoreFuture<'a, Verdict> {
        self.behind(self.inner.acquire(attempt))
    }

    fn renew<'a>(&'a self, lease: &'a Attempt) -> StoreFuture<'a, Renewal> {
        self.behind(self.inner.renew(lease))
    }

    fn release<'a>(&'a self, lease: &'a Attempt) -> StoreFuture<'a, Release> {
        self.behind(self.inner.release(lease))
    }

    fn complete<'a>(
        &'a self,
        lease: &'a Attempt,
        record: &'a Record,
        ttl: Option<Duration>,
    ) -> StoreFuture<'a, Release> {
        self.behind(self.inner.complete(lease, record, ttl))
    }

    fn inspect<'a>(&'a self, on: &'a ClaimKey) -> StoreFuture<'a, Vec<Holder>> {
        self.behind(self.inner.inspect(on))
    }

    fn list(&self, cursor: Cursor) -> StoreFuture<'_, Page> {
        self.behind(self.inner.list(cursor))
    }

    fn revoke<'a>(&'a self, on: &'a ClaimKey, token: &'a Token) -> StoreFuture<'a, bool> {
        self.behind(self.inner.revoke(on, token))
    }

    fn ping(&self) -> StoreFuture<'_, Duration> {
        self.behind(self.inner.ping())
    }
}
