//! The memory engine: the embedded default, and the reference for what the words of the port mean.
//!
//! It promises the whole port inside one process: a sharded map on the process's own clock, leases that expire both
//! when they are looked at and by a timer, and a bound on how many may live at a time, and on how much memory the records
//! of finished ones take. Nothing that lives is ever evicted; over a bound what is new is refused. Nothing survives the
//! process.

mod engine;
mod entered;
mod fences;
mod records;
mod room;
mod shard;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use self::engine::{SHARDS, Shared, locked};
use super::StoreOptions;
use super::rules::Moment;
use crate::lease::{Attempt, ClaimKey, Holder, Record, Token};
use crate::store::{
    Asks, AtOnce, Capabilities, Cursor, ErrorKind, Page, Release, Renewal, Revocations, Store, StoreError,
    StoreFuture, Verdict, Wakeups,
};

/// How many leases may live at a time unless set otherwise.
pub const DEFAULT_MAX_LEASES: usize = 1_000_000;

/// How many bytes the records of finished leases may take together unless set otherwise: 256 MiB.
pub const DEFAULT_MAX_RECORD_BYTES: usize = 256 << 20;

/// How many holders a page of a listing has, roughly: a page ends with a shard.
const PAGE: usize = 100;
/// The memory store. Clones share their leases.
///
/// ```
/// use std::sync::Arc;
/// use clinch::{LockManager, stores::memory::MemoryStore};
///
/// let store = MemoryStore::new().with_max_leases(10_000);
/// let manager = LockManager::builder().store(Arc::new(store)).build()?;
/// # let _ = manager;
/// # Ok::<(), clinch::Error>(())
/// ```
#[derive(Clone)]
pub struct MemoryStore {
    shared: Arc<Shared>,
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore").field("leases", &self.len()).finish_non_exhaustive()
    }
}

/// `memory:`, the scheme's entry.
pub(super) fn connect<'a>(url: &'a str, options: &'a StoreOptions) -> StoreFuture<'a, Arc<dyn Store>> {
    Box::pin(async move {
        check(url, options)?;
        Ok(Arc::new(MemoryStore::new()) as Arc<dyn Store>)
    })
}

/// What can be told of an address without connecting.
pub(super) fn check(url: &str, _options: &StoreOptions) -> Result<(), StoreError> {
    match url {
        "memory:" | "memory://" => Ok(()),
        _ => Err(StoreError::not_applied(
            ErrorKind::Config,
            "the memory engine is written `memory:`, with nothing after it",
        )),
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl MemoryStore {
    /// An empty store with room for [`DEFAULT_MAX_LEASES`] and [`DEFAULT_MAX_RECORD_BYTES`].
    pub fn new() -> Self {
        Self::bounded(DEFAULT_MAX_LEASES, DEFAULT_MAX_RECORD_BYTES)
    }

    /// The same store, empty, with room for `max_leases`. A record that has not expired counts as one.
    #[must_use]
    pub fn with_max_leases(self, max_leases: usize) -> Self {
        Self::bounded(max_leases, self.shared.records.max())
    }

    /// The same store, empty, with room for records of `max_record_bytes` together. Over it, a completion is
    /// [`ErrorKind::Full`], and the lease stays as it was.
    #[must_use]
    pub fn with_max_record_bytes(self, max_record_bytes: usize) -> Self {
        Self::bounded(self.shared.room.max(), max_record_bytes)
    }

    fn bounded(max_leases: usize, max_record_bytes: usize) -> Self {
        Self { shared: Arc::new(Shared::new(max_leases, max_record_bytes)) }
    }

    /// How much is in memory: leases and records, those included that have expired but were not swept yet, waiting
    /// writers, and attempts in queues.
    pub fn len(&self) -> usize {
        self.shared.len()
    }

    /// How many bytes the records in memory have, those included that have expired but were not swept yet.
    pub fn record_bytes(&self) -> usize {
        self.shared.records.taken()
    }

    /// Whether nothing is in memory.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Forgets every lease and record, everybody who waits, and the fences given, as a restart without persistence would. For
    /// tests of what callers do then.
    pub fn forget_everything(&self) {
        for shard in &self.shared.shards {
            let mut shard = locked(shard);
            let forgotten = shard.clear();
            self.shared.room.give_back(&mut shard.spare, forgotten);
        }
        self.shared.fences.forget();
    }
}

impl Moment for Instant {
    /// Where the sum is out of range, thirty years later.
    fn after(self, time: Duration) -> Self {
        self.checked_add(time).unwrap_or_else(|| self + Duration::from_secs(86_400 * 365 * 30))
    }

    fn since(self, earlier: Self) -> Duration {
        self.saturating_duration_since(earlier)
    }

    fn at(instant: Instant, _now: Self) -> Self {
        instant
    }
}

impl Store for MemoryStore {
    fn engine(&self) -> &'static str {
        "memory"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            shared: true,
            permits: true,
            several: true,
            fences: true,
            fair: true,
            heirs: false,
            // A call for each is as quick.
            batches: false,
            records: true,
            wakeups: true,
            list: true,
            split_votes: false,
            same_clock: true,
        }
    }

    fn acquire<'a>(&'a self, attempt: &'a Attempt) -> StoreFuture<'a, Verdict> {
        Box::pin(async move {
            self.shared.ensure_sweeper();
            self.shared.acquire(attempt, Instant::now())
        })
    }

    fn renew<'a>(&'a self, lease: &'a Attempt) -> StoreFuture<'a, Renewal> {
        Box::pin(async move { Ok(self.shared.renew(lease)) })
    }

    fn release<'a>(&'a self, lease: &'a Attempt) -> StoreFuture<'a, Release> {
        Box::pin(async move { Ok(self.shared.release(lease)) })
    }

    fn complete<'a>(
        &'a self,
        lease: &'a Attempt,
        record: &'a Record,
        ttl: Option<Duration>,
    ) -> StoreFuture<'a, Release> {
        Box::pin(async move { self.shared.complete(lease, record, ttl) })
    }

    fn at_once(&self) -> Option<&dyn AtOnce> {
        Some(self)
    }

    fn wakeups(&self, on: &ClaimKey, queued: Option<&Token>) -> Wakeups {
        let signal = Arc::new(Notify::new());
        // Subscribed from here on: the first firing says so.
        signal.notify_one();
        self.shared.shard(on).subscribe(on, &signal, queued);
        let subscription =
            Subscription { shared: Arc::downgrade(&self.shared), on: on.clone(), signal: signal.clone() };
        Wakeups::new(signal, subscription)
    }

    fn revocations(&self) -> Revocations {
        Revocations::new(self.shared.revoked.subscribe(), true)
    }

    fn inspect<'a>(&'a self, on: &'a ClaimKey) -> StoreFuture<'a, Vec<Holder>> {
        Box::pin(async move {
            let now = Instant::now();
            let holders = self.shared.shard(on).holders_on(on, now);
            Ok(holders)
        })
    }

    fn list(&self, cursor: Cursor) -> StoreFuture<'_, Page> {
        Box::pin(async move {
            let now = Instant::now();
            let start = usize::try_from(cursor.position()).unwrap_or(SHARDS).min(SHARDS);
            let mut page = Page::default();
            for (index, shard) in self.shared.shards.iter().enumerate().skip(start) {
                page.holders.extend(locked(shard).holders(now));
                if page.holders.len() >= PAGE && index + 1 < SHARDS {
                    page.next = u64::try_from(index + 1).ok().map(Cursor::new);
                    break;
                }
            }
            page.holders.sort_by(|a, b| a.on().cmp(b.on()));
            Ok(page)
        })
    }

    fn revoke<'a>(&'a self, on: &'a ClaimKey, token: &'a Token) -> StoreFuture<'a, bool> {
        Box::pin(async move { Ok(self.shared.revoke(on, token)) })
    }

    fn ping(&self) -> StoreFuture<'_, Duration> {
        Box::pin(async { Ok(Duration::ZERO) })
    }
}

impl AtOnce for MemoryStore {
    fn acquire_now(&self, attempt: Asks, now: Instant) -> Result<Verdict, StoreError> {
        self.shared.ensure_sweeper();
        self.shared.acquire_and_keep(attempt, now)
    }

    fn release_now(&self, lease: &Attempt) -> Result<Release, StoreError> {
        Ok(self.shared.release(lease))
    }

    fn complete_now(
        &self,
        lease: &Attempt,
        record: &Record,
        ttl: Option<Duration>,
    ) -> Result<Release, StoreError> {
        self.shared.complete(lease, record, ttl)
    }
}

/// Ends a subscription to wake-ups when it is dropped.
struct Subscription {
    shared: Weak<Shared>,
    on: ClaimKey,
    signal: Arc<Notify>,
}

impl Drop for Subscription {
    fn drop(&mut self) {
        if let Some(shared) = self.shared.upgrade() {
            shared.shard(&self.on).unsubscribe(&self.on, &self.signal);
        }
    }
}
