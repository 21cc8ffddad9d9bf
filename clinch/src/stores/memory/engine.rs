//! The steps of the memory store: each takes the locks of its keys, looks at everything, and writes only then.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::broadcast;
use tokio::time::Instant;

use super::after;
use super::entry::{Call, Entry, Finish, Footing, Leaving, Place, Standing, left};
use super::fences::Fences;
use super::queue::Queued;
use super::records::Room;
use super::shard::Shard;
use crate::lease::{Attempt, Claim, ClaimKey, Fence, Mode, Patience, Record, Space, Token};
use crate::store::{Denial, ErrorKind, Grant, Notice, Release, Renewal, Revocation, StoreError, Verdict};
use crate::stores::with_record;

/// A power of two, so that picking a shard is a mask; enough that two cores rarely meet.
pub(super) const SHARDS: usize = 64;
/// An expired lease leaves memory at the latest this long after its end.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);
/// How many revocations a slow listener may fall behind before it misses some.
const REVOCATIONS: usize = 256;

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) shards: Box<[Mutex<Shard>]>,
    hasher: RandomState,
    /// How much is in memory: places, held or with a record, waiting writers, and those in queues. It changes under the lock of the shard whose
    /// content it counts.
    pub(super) live: AtomicUsize,
    pub(super) max_leases: usize,
    pub(super) records: Room,
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
    fn of(&mut self, claim: usize) -> &mut Shard {
        match self {
            Self::One(guard) => guard,
            Self::Several { guards, of_claim } => &mut guards[of_claim[claim]],
        }
    }
}

/// Whether it would have come again.
const fn waits(attempt: &Attempt) -> bool {
    !matches!(attempt.patience(), Patience::Try)
}

impl Shared {
    pub(super) fn new(max_leases: usize, max_record_bytes: usize) -> Self {
        let (revoked, _) = broadcast::channel(REVOCATIONS);
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            hasher: RandomState::new(),
            live: AtomicUsize::new(0),
            max_leases,
            records: Room::new(max_record_bytes),
            sweeping: AtomicBool::new(false),
            started: Instant::now(),
            last_sweep: AtomicU64::new(0),
            fences: Fences::new(),
            revoked,
        }
    }

    fn index(&self, on: &ClaimKey) -> usize {
        #[expect(clippy::cast_possible_truncation, reason = "only the low bits are wanted")]
        let hash = self.hasher.hash_one(on) as usize;
        hash & (SHARDS - 1)
    }

    pub(super) fn shard(&self, on: &ClaimKey) -> MutexGuard<'_, Shard> {
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

    /// Removes what has expired on this key.
    fn tidy(&self, shard: &mut Shard, on: &ClaimKey, now: Instant) {
        if let Some(gone) = shard.with(on, |entry| entry.tidy(now)) {
            self.live.fetch_sub(gone, Ordering::Relaxed);
        }
    }

    pub(super) fn acquire(&self, attempt: &Attempt) -> Result<Verdict, StoreError> {
        serves(attempt)?;
        attempt.sending();
        match self.decide(attempt) {
            // Room may be taken by leases that have expired but were not swept yet.
            Err(error) if error.kind() == ErrorKind::Full && self.sweep_if_due() => self.decide(attempt),
            answer => answer,
        }
    }

    /// Looks at all claims first and writes only then.
    fn decide(&self, attempt: &Attempt) -> Result<Verdict, StoreError> {
        let (claims, token, now) = (attempt.claims(), attempt.token(), Instant::now());
        let in_queue = queued(attempt);
        let mut shards = self.lock(claims);
        let (mut needed, mut freed) = (0, 0);
        for (i, claim) in claims.iter().enumerate() {
            let shard = shards.of(i);
            self.tidy(shard, claim.on(), now);
            let Some(entry) = shard.get(claim.on()) else {
                needed += 1;
                continue;
            };
            let standing = entry.standing(claim, token);
            let turn =
                matches!(standing, Standing::Held(_)) || entry.first().is_none_or(|first| first == token);
            match standing {
                Standing::Free | Standing::Held(_) if turn || in_queue.is_none() => {
                    needed += usize::from(matches!(standing, Standing::Free));
                    freed += entry.freed_by_grant(claim.mode(), token, waits(attempt));
                }
                _ => {
                    let denial = denial(i, claim, standing, now);
                    if claim.mode() == Mode::Exclusive && denial.is_by_readers() {
                        self.note(shard.entry(claim.on()), attempt, now);
                    }
                    return match in_queue {
                        Some(queued) => self.queue_up(shard, claim, queued, now),
                        None => Ok(Verdict::Denied(denial)),
                    };
                }
            }
        }
        self.reserve(needed.saturating_sub(freed))?;
        self.live.fetch_sub(freed.saturating_sub(needed), Ordering::Relaxed);
        let mut grant = Grant::default();
        let fenced = claims.iter().any(|claim| claim.fence_floor().is_some());
        for (i, claim) in claims.iter().enumerate() {
            let fence = self.put(shards.of(i), attempt, claim, now);
            if fenced {
                grant.fences.push(fence.filter(|_| claim.fence_floor().is_some()));
            }
        }
        Ok(Verdict::Granted(grant))
    }

    /// Gives the claim its place, unless it has it, and says with which fence.
    fn put(&self, shard: &mut Shard, attempt: &Attempt, claim: &Claim, now: Instant) -> Option<Fence> {
        let entry = shard.entry(claim.on());
        let given = match entry.standing(claim, attempt.token()) {
            Standing::Held(place) => place.fence,
            _ => None,
        };
        let fair = matches!(attempt.patience(), Patience::Queue { .. });
        let place = Place {
            token: attempt.token().clone(),
            mode: claim.mode(),
            expires: after(now, claim.ttl()),
            fence: given.or_else(|| claim.fence_floor().map(|floor| self.fences.next(floor))),
            footing: if fair { Footing::Fair } else { Footing::Plain },
            done: None,
        };
        entry.grant(place, waits(attempt))
    }

    /// Remembers a writer that readers kept out and that will come again.
    fn note(&self, entry: &mut Entry, attempt: &Attempt, now: Instant) {
        let (until, again_within) = match attempt.patience() {
            Patience::Wait { until, again_within } => (until, again_within),
            Patience::Queue { until, confirm } => (until, confirm),
            Patience::Try => return,
        };
        // Without room it is not remembered; but then there is no room for new readers either.
        if until > now && (entry.is_noted() || self.reserve(1).is_ok()) {
            entry.note(attempt.token().clone(), until.min(after(now, again_within)));
        }
    }

    /// Denies an attempt whose turn it is not. It enters the queue if it has time left, and a free key goes to the first
    /// in the queue.
    fn queue_up(
        &self,
        shard: &mut Shard,
        claim: &Claim,
        queued: Queued,
        now: Instant,
    ) -> Result<Verdict, StoreError> {
        let (token, confirm) = (queued.token.clone(), queued.confirm);
        let entry = shard.entry(claim.on());
        let enters = queued.until > now;
        // Room first: an attempt that fails has changed nothing.
        self.reserve(usize::from(enters && !entry.is_queued(&token)))?;
        let heir = entry.hand_over(now);
        if enters {
            entry.enqueue(queued);
        }
        // Each one before it has its turn, if only for as long as a place is kept.
        let turns = u32::try_from(entry.before(&token)).unwrap_or(u32::MAX);
        let mut denial = denial(0, claim, entry.standing(claim, &token), now);
        denial.retry_after =
            denial.retry_after.map(|after| after.saturating_add(confirm.saturating_mul(turns)));
        if let Some(heir) = heir {
            shard.wake(claim.on(), &Call::Heir(heir));
        }
        Ok(Verdict::Denied(denial))
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

    pub(super) fn renew(&self, lease: &Attempt) -> Renewal {
        let (claims, token, now) = (lease.claims(), lease.token(), Instant::now());
        let mut shards = self.lock(claims);
        for (i, claim) in claims.iter().enumerate() {
            let shard = shards.of(i);
            self.tidy(shard, claim.on(), now);
            if !shard.get(claim.on()).is_some_and(|entry| entry.holds(claim.mode(), token)) {
                return Renewal::Lost;
            }
        }
        for (i, claim) in claims.iter().enumerate() {
            shards.of(i).entry(claim.on()).extend(claim.mode(), token, after(now, claim.ttl()));
        }
        Renewal::Extended { sent_at: now }
    }

    pub(super) fn release(&self, lease: &Attempt) -> Release {
        let (now, token) = (Instant::now(), lease.token());
        let mut shards = self.lock(lease.claims());
        let (mut held, mut woken) = (0, 0);
        // All of them, also where one was lost.
        for (i, claim) in lease.claims().iter().enumerate() {
            let shard = shards.of(i);
            self.tidy(shard, claim.on(), now);
            let Some(leaving) = shard.with(claim.on(), |entry| entry.leave(token, now)) else { continue };
            held += usize::from(leaving.held);
            woken += self.left(shard, claim.on(), &leaving);
        }
        Release { held: held == lease.claims().len(), conclusive: true, woken: Some(woken) }
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
        let until = ttl.map(|ttl| after(now, ttl.max(Duration::from_millis(1))));
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
        self.left(&shard, on, &leaving);
        // An error only says that nobody listens.
        let revocation = Revocation { on: on.clone(), token: token.clone() };
        let _ = self.revoked.send(Notice::Revoked(revocation));
        true
    }

    /// Counts what was given back, and wakes those it is for; how many.
    fn left(&self, shard: &Shard, on: &ClaimKey, leaving: &Leaving) -> usize {
        self.live.fetch_sub(leaving.gone, Ordering::Relaxed);
        shard.wake(on, &leaving.call)
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
            self.live.fetch_sub(swept, Ordering::Relaxed);
        }
    }

    /// Starts the timer that sweeps, if it does not run and there is a runtime to run on. It ends by itself when the
    /// store is empty or gone.
    pub(super) fn ensure_sweeper(self: &Arc<Self>) {
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

fn denial(claim: usize, of: &Claim, standing: Standing<'_>, now: Instant) -> Denial {
    let Standing::Taken { by, until } = standing else { return Denial { claim, ..Denial::default() } };
    let done = by.and_then(|place| place.done.as_deref()).map(|kept| kept.record().clone());
    let holder = by.filter(|_| done.is_none()).map(|place| place.holder(of.on(), now));
    Denial { claim, holder, retry_after: Some(left(until, now)), done }
}

/// What it says of itself to the queue; `None` if it knows of none.
fn queued(attempt: &Attempt) -> Option<Queued> {
    let Patience::Queue { until, confirm } = attempt.patience() else { return None };
    Some(Queued { token: attempt.token().clone(), until, confirm })
}

/// Refuses what makes no sense on any store.
fn serves(attempt: &Attempt) -> Result<(), StoreError> {
    let refused = |message| Err(StoreError::not_applied(ErrorKind::Unsupported, message));
    let fenced = |claim: &&Claim| claim.mode() != Mode::Exclusive && claim.fence_floor().is_some();
    if let Some(claim) = attempt.claims().iter().find(fenced) {
        return refused(format!("fences come with exclusive claims only, not with {claim:?}"));
    }
    let queues = |claim: &Claim| claim.mode() == Mode::Exclusive && claim.on().space == Space::Lock;
    match attempt.claims() {
        [claim] if queues(claim) => Ok(()),
        _ if queued(attempt).is_some() => refused("queues are for one exclusive claim on a lock".to_owned()),
        _ => Ok(()),
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
