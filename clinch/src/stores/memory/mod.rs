//! The memory engine: the embedded default, and the reference for what the words of the port mean.
//!
//! It promises the whole port inside one process: a sharded map on the process's own clock, leases that expire both
//! when they are looked at and by a timer, and a bound on how many may live at a time. A live lease is never evicted;
//! over the bound a new one is refused. Nothing survives the process.

mod shard;

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{Notify, broadcast};
use tokio::time::Instant;

use self::shard::{Place, Shard};
use super::StoreOptions;
use crate::lease::{Attempt, Claim, ClaimKey, Holder, Mode, Token};
use crate::store::{
    Capabilities, Cursor, Denial, ErrorKind, Notice, Page, Release, Renewal, Revocation, Revocations, Store,
    StoreError, StoreFuture, Verdict, Wakeups,
};

/// How many leases may live at a time unless set otherwise.
pub const DEFAULT_MAX_LEASES: usize = 1_000_000;

/// A power of two, so that picking a shard is a mask; enough that two cores rarely meet.
const SHARDS: usize = 64;
/// An expired lease leaves memory at the latest this long after its end.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);
/// How many holders a page of a listing has, roughly: a page ends with a shard.
const PAGE: usize = 100;
/// How many revocations a slow listener may fall behind before it misses some.
const REVOCATIONS: usize = 256;

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

#[derive(Debug)]
struct Shared {
    shards: Box<[Mutex<Shard>]>,
    hasher: RandomState,
    live: AtomicUsize,
    max_leases: usize,
    sweeping: AtomicBool,
    started: Instant,
    /// Milliseconds after `started` at which everything was swept last.
    last_sweep: AtomicU64,
    revoked: broadcast::Sender<Notice>,
}

/// `memory:`, the scheme's entry.
pub(super) fn connect<'a>(url: &'a str, _options: &'a StoreOptions) -> StoreFuture<'a, Arc<dyn Store>> {
    Box::pin(async move {
        match url {
            "memory:" | "memory://" => Ok(Arc::new(MemoryStore::new()) as Arc<dyn Store>),
            _ => Err(StoreError::not_applied(
                ErrorKind::Config,
                "the memory engine is written `memory:`, with nothing after it",
            )),
        }
    })
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl MemoryStore {
    /// An empty store with room for [`DEFAULT_MAX_LEASES`].
    pub fn new() -> Self {
        Self::bounded(DEFAULT_MAX_LEASES)
    }

    /// The same store, empty, with room for `max_leases`.
    #[must_use]
    pub fn with_max_leases(self, max_leases: usize) -> Self {
        Self::bounded(max_leases)
    }

    fn bounded(max_leases: usize) -> Self {
        let shards = (0..SHARDS).map(|_| Mutex::default()).collect();
        let (revoked, _) = broadcast::channel(REVOCATIONS);
        Self {
            shared: Arc::new(Shared {
                shards,
                hasher: RandomState::new(),
                live: AtomicUsize::new(0),
                max_leases,
                sweeping: AtomicBool::new(false),
                started: Instant::now(),
                last_sweep: AtomicU64::new(0),
                revoked,
            }),
        }
    }

    /// How many leases are in memory, those included that have expired but were not swept yet.
    pub fn len(&self) -> usize {
        self.shared.live.load(Ordering::Relaxed)
    }

    /// Whether no lease is in memory.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Forgets every lease, as a restart without persistence would. For tests of what callers do then.
    pub fn forget_everything(&self) {
        for shard in &self.shared.shards {
            let forgotten = locked(shard).clear();
            self.shared.live.fetch_sub(forgotten, Ordering::Relaxed);
        }
    }
}

fn locked(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    // No code that runs under the lock can panic half-way through a change.
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The shards of an attempt's claims, locked.
enum Locked<'a> {
    One(MutexGuard<'a, Shard>),
    Several { guards: Vec<MutexGuard<'a, Shard>>, of_claim: Vec<usize> },
}

impl Locked<'_> {
    fn of(&mut self, claim: usize) -> &mut Shard {
        match self {
            Self::One(guard) => guard,
            Self::Several { guards, of_claim } => &mut guards[of_claim[claim]],
        }
    }
}

impl Shared {
    fn index(&self, on: &ClaimKey) -> usize {
        #[expect(clippy::cast_possible_truncation, reason = "only the low bits are wanted")]
        let hash = self.hasher.hash_one(on) as usize;
        hash & (SHARDS - 1)
    }

    fn shard(&self, on: &ClaimKey) -> MutexGuard<'_, Shard> {
        locked(&self.shards[self.index(on)])
    }

    /// Locks the shards of all claims, each once, in rising order, so that two attempts cannot lock each other out.
    fn lock(&self, claims: &[Claim]) -> Locked<'_> {
        if let [claim] = claims {
            return Locked::One(self.shard(claim.on()));
        }
        let wanted: Vec<usize> = claims.iter().map(|claim| self.index(claim.on())).collect();
        let mut order = wanted.clone();
        order.sort_unstable();
        order.dedup();
        let guards = order.iter().map(|&index| locked(&self.shards[index])).collect();
        // Every wanted index is in `order`, which is sorted: the search always finds it.
        let of_claim = wanted.iter().map(|index| order.binary_search(index).unwrap_or_default()).collect();
        Locked::Several { guards, of_claim }
    }

    fn acquire(&self, attempt: &Attempt) -> Result<Verdict, StoreError> {
        let wrong = |claim: &&Claim| claim.mode() != Mode::Exclusive || claim.fence_floor().is_some();
        if let Some(claim) = attempt.claims().iter().find(wrong) {
            let message =
                format!("the memory store grants exclusive claims without fences only, not {claim:?}");
            return Err(StoreError::not_applied(ErrorKind::Unsupported, message));
        }
        attempt.sending();
        match self.grant(attempt) {
            // Room may be taken by leases that have expired but were not swept yet.
            Err(error) if error.kind() == ErrorKind::Full && self.sweep_if_due() => self.grant(attempt),
            answer => answer,
        }
    }

    /// Looks at all claims first and writes only then.
    fn grant(&self, attempt: &Attempt) -> Result<Verdict, StoreError> {
        let (claims, token, now) = (attempt.claims(), attempt.token(), Instant::now());
        let mut shards = self.lock(claims);
        let mut new = 0;
        for (i, claim) in claims.iter().enumerate() {
            let shard = shards.of(i);
            match shard.get(claim.on(), now) {
                Some(place) if place.token == *token => {}
                Some(place) => return Ok(Verdict::Denied(denial(i, claim.on(), place, now))),
                None => new += usize::from(!shard.contains(claim.on())),
            }
        }
        self.reserve(new)?;
        for (i, claim) in claims.iter().enumerate() {
            let shard = shards.of(i);
            if shard.get(claim.on(), now).is_none() {
                shard.put(
                    claim.on().clone(),
                    Place { token: token.clone(), expires: after(now, claim.ttl()) },
                );
            }
        }
        Ok(Verdict::granted())
    }

    /// Makes room for `new` leases, or fails.
    fn reserve(&self, new: usize) -> Result<(), StoreError> {
        let before = self.live.fetch_add(new, Ordering::Relaxed);
        if new == 0 || before + new <= self.max_leases {
            return Ok(());
        }
        self.live.fetch_sub(new, Ordering::Relaxed);
        let message = format!(
            "the memory store holds {before} leases and its bound is {}; release some, use shorter TTLs, or raise the bound",
            self.max_leases
        );
        Err(StoreError::not_applied(ErrorKind::Full, message))
    }

    fn renew(&self, lease: &Attempt) -> Renewal {
        let (claims, token, now) = (lease.claims(), lease.token(), Instant::now());
        let mut shards = self.lock(claims);
        let held = |(i, claim): (usize, &Claim)| {
            shards.of(i).get(claim.on(), now).is_some_and(|p| p.token == *token)
        };
        if !claims.iter().enumerate().all(held) {
            return Renewal::Lost;
        }
        for (i, claim) in claims.iter().enumerate() {
            shards.of(i).extend(claim.on(), after(now, claim.ttl()));
        }
        Renewal::Extended { sent_at: now }
    }

    fn release(&self, lease: &Attempt) -> bool {
        let mut shards = self.lock(lease.claims());
        let give_back = |(i, claim): (usize, &Claim)| self.give_back(shards.of(i), claim.on(), lease.token());
        // All of them, also where one was lost.
        let held = lease.claims().iter().enumerate().map(give_back).filter(|held| *held).count();
        held == lease.claims().len()
    }

    fn give_back(&self, shard: &mut Shard, on: &ClaimKey, token: &Token) -> bool {
        let held = shard.get(on, Instant::now()).is_some_and(|place| place.token == *token);
        if held {
            shard.remove(on);
            self.live.fetch_sub(1, Ordering::Relaxed);
            shard.wake(on);
        }
        held
    }

    /// Sweeps every shard, unless that was done a moment ago; says whether it did.
    fn sweep_if_due(&self) -> bool {
        let now = self.started.elapsed().as_millis().try_into().unwrap_or(u64::MAX);
        let interval = SWEEP_INTERVAL.as_millis().try_into().unwrap_or(u64::MAX);
        let last = self.last_sweep.load(Ordering::Relaxed);
        if now < last.saturating_add(interval) && last != 0 {
            return false;
        }
        self.last_sweep.store(now.max(1), Ordering::Relaxed);
        self.sweep();
        true
    }

    fn sweep(&self) {
        for shard in &self.shards {
            let swept = locked(shard).sweep(Instant::now());
            self.live.fetch_sub(swept, Ordering::Relaxed);
        }
    }

    /// Starts the timer that sweeps, if it does not run and there is a runtime to run on. It ends by itself when the
    /// store is empty or gone.
    fn ensure_sweeper(self: &Arc<Self>) {
        if self.sweeping.load(Ordering::Relaxed) {
            return;
        }
        let Ok(runtime) = Handle::try_current() else { return };
        if self.sweeping.swap(true, Ordering::AcqRel) {
            return;
        }
        // Reset when the task ends in any way, the end of its runtime included, so that the next acquire starts it.
        let running = Sweeping(Arc::downgrade(self));
        runtime.spawn(async move {
            loop {
                tokio::time::sleep(SWEEP_INTERVAL).await;
                let Some(shared) = running.0.upgrade() else { return };
                shared.sweep();
                if shared.live.load(Ordering::Relaxed) == 0 {
                    return;
                }
            }
        });
    }
}

struct Sweeping(Weak<Shared>);

impl Drop for Sweeping {
    fn drop(&mut self) {
        if let Some(shared) = self.0.upgrade() {
            shared.sweeping.store(false, Ordering::Release);
        }
    }
}

/// `now + ttl`, or thirty years where the sum is out of range.
fn after(now: Instant, ttl: Duration) -> Instant {
    now.checked_add(ttl).unwrap_or_else(|| now + Duration::from_secs(86_400 * 365 * 30))
}

fn denial(claim: usize, on: &ClaimKey, place: &Place, now: Instant) -> Denial {
    let holder = holder(on, place, now);
    Denial { claim, retry_after: holder.remaining(), holder: Some(holder) }
}

fn holder(on: &ClaimKey, place: &Place, now: Instant) -> Holder {
    let remaining = place.expires.saturating_duration_since(now).max(Duration::from_millis(1));
    Holder::new(on.clone(), Mode::Exclusive, place.token.clone(), Some(remaining))
}

impl Store for MemoryStore {
    fn capabilities(&self) -> Capabilities {
        Capabilities { several: true, wakeups: true, list: true, same_clock: true, ..Capabilities::default() }
    }

    fn acquire<'a>(&'a self, attempt: &'a Attempt) -> StoreFuture<'a, Verdict> {
        Box::pin(async move {
            self.shared.ensure_sweeper();
            self.shared.acquire(attempt)
        })
    }

    fn renew<'a>(&'a self, lease: &'a Attempt) -> StoreFuture<'a, Renewal> {
        Box::pin(async move { Ok(self.shared.renew(lease)) })
    }

    fn release<'a>(&'a self, lease: &'a Attempt) -> StoreFuture<'a, Release> {
        Box::pin(
            async move { Ok(Release { held: self.shared.release(lease), conclusive: true, woken: None }) },
        )
    }

    fn wakeups(&self, on: &ClaimKey, _queued: Option<&Token>) -> Wakeups {
        let signal = Arc::new(Notify::new());
        // Subscribed from here on: the first firing says so.
        signal.notify_one();
        self.shared.shard(on).subscribe(on, &signal);
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
            Ok(self.shared.shard(on).get(on, now).map(|place| holder(on, place, now)).into_iter().collect())
        })
    }

    fn list(&self, cursor: Cursor) -> StoreFuture<'_, Page> {
        Box::pin(async move {
            let now = Instant::now();
            let start = usize::try_from(cursor.position()).unwrap_or(SHARDS).min(SHARDS);
            let mut page = Page::default();
            for (index, shard) in self.shared.shards.iter().enumerate().skip(start) {
                page.holders.extend(locked(shard).live(now).map(|(on, place)| holder(on, place, now)));
                if page.holders.len() >= PAGE && index + 1 < SHARDS {
                    page.next = u64::try_from(index + 1).ok().map(Cursor::new);
                    break;
                }
            }
            page.holders.sort_unstable_by(|a, b| a.on().cmp(b.on()));
            Ok(page)
        })
    }

    fn revoke<'a>(&'a self, on: &'a ClaimKey, token: &'a Token) -> StoreFuture<'a, bool> {
        Box::pin(async move {
            let held = self.shared.give_back(&mut self.shared.shard(on), on, token);
            if held {
                // An error only says that nobody listens.
                let revocation = Revocation { on: on.clone(), token: token.clone() };
                let _ = self.shared.revoked.send(Notice::Revoked(revocation));
            }
            Ok(held)
        })
    }

    fn ping(&self) -> StoreFuture<'_, Duration> {
        Box::pin(async { Ok(Duration::ZERO) })
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
