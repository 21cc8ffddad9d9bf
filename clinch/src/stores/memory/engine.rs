//! The steps of the memory store: each takes the locks of its keys, looks at everything, and writes only then.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::broadcast;
use tokio::time::Instant;

use super::fences::Fences;
use super::records::{Kept, RecordRoom};
use super::room::Room;
use super::shard::{Entry, Shard};
use crate::apart::Apart;
use crate::key;
use crate::lease::{Attempt, Claim, ClaimKey, Fence, Record, Token};
use crate::stamp::Stamp;
use crate::store::{Asks, ErrorKind, Notice, Release, Renewal, Revocation, StoreError, Verdict};
use crate::stores::rules::Moment;
use crate::stores::rules::entry::{Call, Finish};
use crate::stores::rules::steps::{self, Table};
use crate::stores::with_record;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::{self, Mutex, MutexGuard, PoisonError};

/// A power of two, so that picking a shard is a mask. So many that two cores rarely meet; fewer where every lock is a step of a
/// schedule.
pub(super) const SHARDS: usize = if cfg!(shuttle) { 64 } else { 1024 };
/// An expired lease leaves memory at the latest this long after its end.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);
/// How many revocations a slow listener may fall behind before it misses some.
const REVOCATIONS: usize = 256;

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) shards: Box<[Apart<Mutex<Shard>>]>,
    pub(super) room: Room,
    pub(super) records: RecordRoom,
    sweeping: AtomicBool,
    started: Instant,
    /// Milliseconds after `started` at which everything was swept last.
    last_sweep: AtomicU64,
    pub(super) fences: Fences,
    pub(super) revoked: broadcast::Sender<Notice>,
}

pub(super) fn locked(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    // No code that runs under the lock can panic half-way through a change.
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The shards of an attempt's claims, locked.
enum Locked<'a> {
    One(MutexGuard<'a, Shard>),
    Several { guards: Vec<MutexGuard<'a, Shard>>, of_claim: Vec<usize> },
}

impl Locked<'_> {
    fn of(&self, claim: usize) -> &Shard {
        match self {
            Self::One(guard) => guard,
            Self::Several { guards, of_claim } => &guards[of_claim[claim]],
        }
    }

    fn of_mut(&mut self, claim: usize) -> &mut Shard {
        match self {
            Self::One(guard) => guard,
            Self::Several { guards, of_claim } => &mut guards[of_claim[claim]],
        }
    }
}

/// What an attempt's step works on.
struct Locks<'a> {
    shared: &'a Shared,
    claims: &'a [Claim],
    shards: Locked<'a>,
    /// How many streams of wake-ups were fired.
    woken: usize,
}

impl Table for Locks<'_> {
    type At = Instant;
    type Left = Kept;

    fn tidy(&mut self, claim: usize, now: Instant) {
        self.shared.tidy(self.shards.of_mut(claim), self.claims[claim].on(), now);
    }

    fn get(&self, claim: usize) -> Option<&Entry> {
        self.shards.of(claim).get(self.claims[claim].on())
    }

    fn entry(&mut self, claim: usize) -> &mut Entry {
        self.shards.of_mut(claim).entry(self.claims[claim].on())
    }

    fn with<T>(&mut self, claim: usize, work: impl FnOnce(&mut Entry) -> T) -> Option<T> {
        self.shards.of_mut(claim).with(self.claims[claim].on(), work)
    }

    fn reserve(&mut self, new: usize) -> Result<(), StoreError> {
        // It is the store's bound, so any of the shards will do.
        self.shared.room.take(&mut self.shards.of_mut(0).spare, new)
    }

    fn give_back(&mut self, gone: usize) {
        self.shared.room.give_back(&mut self.shards.of_mut(0).spare, gone);
    }

    fn fence(&mut self, floor: Fence) -> Fence {
        self.shared.fences.next(floor)
    }

    fn wake(&mut self, claim: usize, call: Call) {
        self.woken += self.shards.of(claim).wake(self.claims[claim].on(), &call);
    }
}

impl Shared {
    pub(super) fn new(max_leases: usize, max_record_bytes: usize) -> Self {
        let (revoked, _) = broadcast::channel(REVOCATIONS);
        Self {
            shards: (0..SHARDS).map(|_| Apart::default()).collect(),
            room: Room::new(max_leases, SHARDS),
            records: RecordRoom::new(max_record_bytes),
            sweeping: AtomicBool::new(false),
            started: Instant::now(),
            last_sweep: AtomicU64::new(0),
            fences: Fences::new(),
            revoked,
        }
    }

    pub(super) fn shard(&self, on: &ClaimKey) -> MutexGuard<'_, Shard> {
        locked(&self.shards[key::hash::shard(on, SHARDS)])
    }

    /// Locks the shards of all claims, each once, in rising order, so that two attempts cannot lock each other out.
    fn lock<'a>(&'a self, claims: &'a [Claim]) -> Locks<'a> {
        let shards = match claims {
            [claim] => Locked::One(self.shard(claim.on())),
            _ => self.lock_several(claims),
        };
        let mut locks = Locks { shared: self, claims, shards, woken: 0 };
        for (i, claim) in claims.iter().enumerate() {
            locks.shards.of_mut(i).unfold(claim.on());
        }
        locks
    }

    fn lock_several(&self, claims: &[Claim]) -> Locked<'_> {
        let wanted: Vec<usize> = claims.iter().map(|claim| key::hash::shard(claim.on(), SHARDS)).collect();
        let mut order = wanted.clone();
        order.sort_unstable();
        order.dedup();
        let guards = order.iter().map(|&index| locked(&self.shards[index])).collect();
        // Every wanted index is in `order`, which is sorted: the search always finds it.
        let of_claim = wanted.iter().map(|index| order.binary_search(index).unwrap_or_default()).collect();
        Locked::Several { guards, of_claim }
    }

    /// Removes what has expired on this key.
    fn tidy(&self, shard: &mut Shard, on: &ClaimKey, now: Instant) {
        if let Some(gone) = shard.with(on, |entry| entry.tidy(now)) {
            self.room.give_back(&mut shard.spare, gone);
        }
    }

    /// As [`acquire`](Self::acquire), of what can be kept as it is.
    pub(super) fn acquire_and_keep(&self, asks: Asks, now: Instant) -> Result<Verdict, StoreError> {
        let counts_from_now = match &asks {
            // Whoever makes one notes that it is sent at this moment.
            Asks::Lease(_) => true,
            Asks::Attempt(attempt) => attempt.sent_from(Stamp::of(now)),
        };
        let Some(claim) = steps::plain(&asks).filter(|_| counts_from_now) else {
            return self.acquire(&asks, now);
        };
        let mut shard = self.shard(claim.on());
        let room = |spare: &mut usize| self.room.take(spare, 1).is_ok();
        let entered = shard.enter_alone(asks, room);
        drop(shard);
        match entered {
            Ok(()) => Ok(Verdict::granted()),
            Err(asks) => self.acquire(&asks, now),
        }
    }

    pub(super) fn acquire(&self, attempt: &Attempt, now: Instant) -> Result<Verdict, StoreError> {
        steps::serves(attempt)?;
        attempt.sent_from(Stamp::of(now));
        match self.decide(attempt, now) {
            // Room may be taken by leases that have expired but were not swept yet, and be kept in other shards.
            Err(error) if error.kind() == ErrorKind::Full && (self.sweep_if_due() | self.gather_room()) => {
                self.decide(attempt, Instant::now())
            }
            answer => answer,
        }
    }

    /// Takes back the room that shards keep for themselves; says whether they may have had any.
    pub(super) fn gather_room(&self) -> bool {
        let keeps = self.room.is_kept();
        if keeps {
            self.shards.iter().for_each(|shard| self.room.gather(&mut locked(shard).spare));
        }
        keeps
    }

    /// How much is in memory: places, held or with a record, waiting writers, and those in queues.
    pub(super) fn len(&self) -> usize {
        self.room.taken(|| self.shards.iter().map(|shard| locked(shard).spare).sum())
    }

    /// `now` is from before the locks: what ended while they were waited for had not when this was asked.
    fn decide(&self, attempt: &Attempt, now: Instant) -> Result<Verdict, StoreError> {
        let mut locks = self.lock(attempt.claims());
        steps::acquire(&mut locks, attempt, now)
    }

    pub(super) fn renew(&self, lease: &Attempt) -> Renewal {
        let now = Instant::now();
        if let [claim] = lease.claims()
            && self.shard(claim.on()).extend_alone(claim.on(), lease, now)
        {
            return Renewal::Extended { sent_at: now };
        }
        let mut locks = self.lock(lease.claims());
        if steps::renew(&mut locks, lease, now) { Renewal::Extended { sent_at: now } } else { Renewal::Lost }
    }

    pub(super) fn release(&self, lease: &Attempt) -> Release {
        if let [claim] = lease.claims() {
            let mut shard = self.shard(claim.on());
            if shard.leave_alone(claim.on(), lease, Instant::now()) {
                self.room.give_back(&mut shard.spare, 1);
                return Release { held: true, conclusive: true, woken: Some(0) };
            }
        }
        let mut locks = self.lock(lease.claims());
        let held = steps::release(&mut locks, lease, Instant::now());
        Release { held, conclusive: true, woken: Some(locks.woken) }
    }

    pub(super) fn complete(
        &self,
        lease: &Attempt,
        record: &Record,
        ttl: Option<Duration>,
    ) -> Result<Release, StoreError> {
        let claim = with_record(lease)?;
        match self.finish(claim, lease.token(), record, ttl) {
            // Room may be taken by records that have expired but were not swept yet.
            Err(error) if error.kind() == ErrorKind::Full && self.sweep_if_due() => {
                self.finish(claim, lease.token(), record, ttl)
            }
            answer => answer,
        }
    }

    fn finish(
        &self,
        claim: &Claim,
        token: &Token,
        record: &Record,
        ttl: Option<Duration>,
    ) -> Result<Release, StoreError> {
        let now = Instant::now();
        let until = ttl.map(|ttl| now.after(ttl.max(Duration::from_millis(1))));
        let mut shard = self.shard(claim.on());
        self.tidy(&mut shard, claim.on(), now);
        let keep = || self.records.keep(record);
        let finish = shard.with(claim.on(), |entry| entry.finish(token, until, keep));
        let finish = finish.unwrap_or(Ok(Finish::Lost))?;
        let call = if finish == Finish::Now { Call::Everybody } else { Call::Nobody };
        let woken = shard.wake(claim.on(), &call);
        Ok(Release { held: finish != Finish::Lost, conclusive: true, woken: Some(woken) })
    }

    pub(super) fn revoke(&self, on: &ClaimKey, token: &Token) -> bool {
        let now = Instant::now();
        let mut shard = self.shard(on);
        self.tidy(&mut shard, on, now);
        let Some(leaving) = shard.with(on, |entry| entry.end(token, now)).flatten() else { return false };
        self.room.give_back(&mut shard.spare, leaving.gone);
        shard.wake(on, &leaving.call);
        // An error only says that nobody listens.
        let revocation = Revocation { on: on.clone(), token: token.clone() };
        let _ = self.revoked.send(Notice::Revoked(revocation));
        true
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
            let mut shard = locked(shard);
            let swept = shard.sweep(Instant::now());
            self.room.give_back(&mut shard.spare, swept);
        }
    }

    /// Starts the timer that sweeps, if it does not run and there is a runtime to run on. It ends by itself when the
    /// store is empty or gone.
    #[inline]
    pub(super) fn ensure_sweeper(self: &Arc<Self>) {
        if !self.sweeping.load(Ordering::Relaxed) {
            self.start_sweeper();
        }
    }

    #[cold]
    fn start_sweeper(self: &Arc<Self>) {
        let Ok(runtime) = Handle::try_current() else { return };
        if self.sweeping.swap(true, Ordering::AcqRel) {
            return;
        }
        // Reset when the task ends in any way, the end of its runtime included, so that the next acquire starts it.
        let running = Sweeping(Arc::downgrade(self));
        sync::spawn(&runtime, async move {
            loop {
                tokio::time::sleep(SWEEP_INTERVAL).await;
                let Some(shared) = running.0.upgrade() else { return };
                shared.sweep();
                if shared.len() == 0 {
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
