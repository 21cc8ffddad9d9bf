//! The state of one lease that this process was granted, shared by its guard, its observers and the background task.
//!
//! A lease goes `Held` → `Releasing` → `Ended`, or straight to `Ended`, and never back: once [`lost`](Held::lost) has
//! fired, no late answer makes it valid again. While it is held it may be passed from one local holder to the next; each
//! has the lease under the number of its pass, and what is asked under an earlier number is over.

mod asked;
mod at_once;
mod counted;
mod passing;
mod remains;
mod watch;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use once_cell::race::OnceBox;
use tokio::time::Instant;

use self::asked::Asked;
use self::counted::Counted;
pub(super) use self::passing::Passing;
use self::remains::Left;
pub(crate) use self::remains::Remains;
#[cfg(feature = "submit")]
pub(crate) use self::remains::Stay;
use super::clock;
use super::line::Flight;
use crate::lease::{Attempt, Claim, ClaimKey, Fence, Holder, Mode, Record};
use crate::stamp::Stamp;
use crate::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use crate::sync::{Mutex, MutexGuard, Notify, PoisonError};
use crate::telemetry::Released;

/// Why a lease no longer protects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Loss {
    /// Its validity ended: it was not renewed, or not in time.
    Expired,
    /// The engine said that it is no longer ours: it lost its memory, or somebody else has the key.
    TakenOver,
    /// Somebody ended it by force.
    Revoked,
    /// It was given back.
    Released,
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Expired => "its validity ended",
            Self::TakenOver => "the engine no longer has it",
            Self::Revoked => "it was ended by force",
            Self::Released => "it was given back",
        })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Held,
    Releasing,
    Ended(Loss),
}

/// What the engine must be told of the end of a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Telling {
    /// Nothing: it is gone, or somebody tells it already.
    Nothing,
    /// That it is given back.
    Release,
    /// The same, but nobody has to wait for that: the lease was lost before.
    TakeBack,
}

/// How a lease stands, for those who want its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// Nobody else can have the key.
    Valid,
    /// It is on its way out.
    Releasing,
    /// It tells nothing about the key any more.
    Over,
}

/// Until when a lease counts, by each clock that has a say.
#[derive(Debug, Clone, Copy)]
pub(super) struct Window {
    /// The end of its validity.
    pub(super) valid_until: Stamp,
    /// The same by the clock that does not stop when the machine sleeps.
    pub(super) boot_until: Option<Duration>,
    /// After this nothing of it can be left in the engine.
    pub(super) engine_until: Stamp,
    /// By how much its validity ends before its TTL, to allow for drift.
    pub(super) allowance: Duration,
}

/// An attempt that is a part of the lease that it becomes if it is granted; [`attempt`](Self::attempt) is what an engine may look at.
///
/// (In here: a lease that this process was granted, or that is to be taken back.)
#[derive(Debug)]
pub struct Held {
    asked: Asked,
    /// Since when it is known that no revocation was missed, as [`Heard`](super::heard::Heard) counts; 0: not known.
    heard_since: AtomicU32,
    /// Somebody is about to look it up.
    watched: AtomicBool,
    /// A renewal is under way.
    renewing: AtomicBool,
    /// It is what an engine in this process keeps of its key.
    kept: AtomicBool,
    kind: Kind,
    /// The scope of the one who has it; 0: none.
    scope: AtomicU64,
    since: Stamp,
    state: Mutex<State>,
    rare: OnceBox<Rare>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// It was handed out.
    Granted,
    /// The engine failed and the holder went on without it.
    Degraded,
    /// It was never handed out, and is only taken back.
    TakenBack,
}

/// What nearly no lease has: made by the first who needs it.
#[derive(Debug, Default)]
struct Rare {
    /// The fences of its claims as the engine gave them; empty if none was asked for.
    fences: Vec<Option<Fence>>,
    /// What its holder leaves behind; nothing if it is simply given back.
    left: Left,
    /// What those who look at it are told by.
    changed: Notify,
}

/// With its [`Window`] in as little room as it needs.
#[derive(Debug)]
struct State {
    phase: Phase,
    valid_until: Stamp,
    engine_until: Stamp,
    /// In microseconds, which is exact unless it is more than an hour.
    allowance: u32,
    /// How often it was passed on.
    pass: u32,
    /// While a guard has it that was granted it.
    counted: Option<Counted>,
    /// Its line will be told when it can be passed on no more.
    passing_noted: bool,
    /// Somebody has looked at it who wants to hear of changes; until then nobody need be told.
    watched: bool,
    /// The engine only keeps the key for it: it was not renewed since, and has less than its TTL.
    unconfirmed: bool,
}

impl Held {
    pub(super) fn granted(
        flight: &Flight,
        window: Window,
        since: Instant,
        fences: Vec<Option<Fence>>,
        scope: u64,
    ) -> Self {
        let scope = AtomicU64::new(scope);
        let attempt = flight.attempt.clone();
        let rare = OnceBox::new();
        if !fences.is_empty() {
            // Nobody else has set it.
            let _ = rare.set(Box::new(Rare { fences, ..Rare::default() }));
        }
        let since = Stamp::of(since);
        Self {
            rare,
            scope,
            ..Self::new(Asked::shared(attempt), &window, since, flight.heard_since, Kind::Granted, None)
        }
    }

    /// One that the engine only keeps for this holder yet, for much less than its TTL.
    pub(super) fn kept(flight: &Flight, window: Window, since: Instant, scope: u64) -> Self {
        let held = Self::granted(flight, window, since, Vec::new(), scope);
        held.state().unconfirmed = true;
        held
    }

    /// What somebody has who went on although the engine failed: it excludes inside this process until then, and the
    /// attempt, if it was sent, is taken back at the end.
    pub(super) fn degraded(attempt: Arc<Attempt>, until: Instant, scope: u64) -> Self {
        let until = Stamp::of(until);
        let window =
            Window { valid_until: until, boot_until: None, engine_until: until, allowance: Duration::ZERO };
        let scope = AtomicU64::new(scope);
        Self { scope, ..Self::new(Asked::shared(attempt), &window, Stamp::now(), None, Kind::Degraded, None) }
    }

    /// An attempt that was never handed out and must be taken back.
    pub(super) fn to_take_back(attempt: Arc<Attempt>) -> Self {
        let now = Stamp::now();
        // An acquire that is still on its way may be granted as late as now, and then lives for its TTL.
        let engine_until = now.after(attempt.longest_ttl());
        let window = Window { valid_until: now, boot_until: None, engine_until, allowance: Duration::ZERO };
        Self::new(Asked::shared(attempt), &window, now, None, Kind::TakenBack, None)
    }

    fn new(
        asked: Asked,
        window: &Window,
        since: Stamp,
        heard_since: Option<u64>,
        kind: Kind,
        counted: Option<Counted>,
    ) -> Self {
        asked.set_boot_until(window.boot_until);
        Self {
            asked,
            heard_since: AtomicU32::new(heard_number(heard_since)),
            watched: AtomicBool::new(false),
            renewing: AtomicBool::new(false),
            kept: AtomicBool::new(false),
            kind,
            scope: AtomicU64::new(0),
            since,
            state: Mutex::new(State {
                phase: if kind == Kind::TakenBack { Phase::Releasing } else { Phase::Held },
                valid_until: window.valid_until,
                engine_until: window.engine_until,
                allowance: window.allowance.as_micros().try_into().unwrap_or(u32::MAX),
                pass: 0,
                counted,
                passing_noted: false,
                watched: false,
                unconfirmed: false,
            }),
            rare: OnceBox::new(),
        }
    }

    /// The attempt.
    pub fn attempt(&self) -> &Attempt {
        &self.asked
    }

    pub(super) fn shared_attempt(&self) -> Arc<Attempt> {
        self.asked.by_itself()
    }

    pub(super) fn was_handed_out(&self) -> bool {
        self.kind != Kind::TakenBack
    }

    pub(super) fn is_degraded(&self) -> bool {
        self.kind == Kind::Degraded
    }

    pub(super) fn scope(&self) -> u64 {
        self.scope.load(Ordering::Acquire)
    }

    pub(super) fn claims(&self) -> &[Claim] {
        self.asked.claims()
    }

    /// How it holds this key.
    pub(super) fn mode_on(&self, on: &ClaimKey) -> Option<Mode> {
        self.claims().iter().find(|claim| claim.on() == on).map(Claim::mode)
    }

    /// The fence of the claim at this place, under the number of a pass.
    pub(super) fn fence(&self, claim: usize, pass: u32) -> Option<Fence> {
        let granted = self.fences().get(claim).copied().flatten()?;
        Some(Fence::new(granted.get().saturating_add(u64::from(pass))))
    }

    /// The highest fence that it may have given by now.
    pub(super) fn highest_fence(&self) -> Option<Fence> {
        let fences = self.fences().len();
        if fences == 0 {
            return None;
        }
        let pass = self.state().pass;
        (0..fences).filter_map(|claim| self.fence(claim, pass)).max()
    }

    /// Says what is left behind when it ends. If several guards of one holder have a say, what stays longer counts.
    pub(super) fn leave(&self, remains: Remains) {
        self.rare().left.add(remains, self.engine_until());
    }

    /// Whether something is to be left behind, be it over by now.
    pub(super) fn leaves_something(&self) -> bool {
        self.rare.get().is_some_and(|rare| rare.left.is_some())
    }

    /// What is to be left behind, as of now. One that was never granted leaves nothing.
    pub(super) fn remains(&self) -> Option<(Record, Option<Duration>)> {
        self.rare.get()?.left.now().filter(|_| !self.is_degraded())
    }

    /// Whether it stays in the engine until it runs out, because its holder wants it so and no record can stand in its place:
    /// the engine need not be told.
    pub(super) fn stays(&self) -> bool {
        self.rare.get().is_some_and(|rare| rare.left.is_the_rest())
            && !self.claims().iter().all(|claim| claim.on().space.keeps_records())
    }

    /// When it was granted, within a moment.
    pub(super) fn since(&self) -> Instant {
        self.since.instant()
    }

    /// Begins a renewal; `false` if one is under way.
    pub(super) fn begin_renewal(&self) -> bool {
        !self.renewing.swap(true, Ordering::AcqRel)
    }

    pub(super) fn end_renewal(&self) {
        self.renewing.store(false, Ordering::Release);
    }

    /// Whether everything since it was asked for, or looked up last, was heard.
    pub(super) fn is_heard_since(&self, since: Option<u64>) -> bool {
        since.is_some() && heard_number(since) == self.heard_since.load(Ordering::Acquire)
    }

    /// Whether somebody is already about to look it up; if not, the caller is.
    pub(super) fn is_watched(&self) -> bool {
        self.watched.swap(true, Ordering::AcqRel)
    }

    pub(super) fn looked_up(&self, since: Option<u64>) {
        self.heard_since.store(heard_number(since), Ordering::Release);
    }

    pub(super) fn unwatched(&self) {
        self.watched.store(false, Ordering::Release);
    }

    /// The key of its only claim, or of its first one.
    pub(super) fn on(&self) -> &ClaimKey {
        self.asked.claims()[0].on()
    }

    fn rare(&self) -> &Rare {
        self.rare.get_or_init(Box::default)
    }

    fn fences(&self) -> &[Option<Fence>] {
        self.rare.get().map_or(&[], |rare| &rare.fences)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// It has changed: tells those who look at it. Before they look they say so in the state, under its lock, and so are
    /// either told or see it themselves.
    fn changed(&self, state: MutexGuard<'_, State>) {
        let watched = state.watched;
        drop(state);
        if watched && let Some(rare) = self.rare.get() {
            rare.changed.notify_waiters();
        }
    }

    fn standing_in(&self, state: &State) -> Standing {
        match state.phase {
            Phase::Held if !self.left(state).is_zero() => Standing::Valid,
            Phase::Releasing if Stamp::now() < state.engine_until => Standing::Releasing,
            Phase::Held | Phase::Releasing | Phase::Ended(_) => Standing::Over,
        }
    }

    /// What is left of its validity in this state.
    fn left(&self, state: &State) -> Duration {
        if state.phase != Phase::Held {
            return Duration::ZERO;
        }
        let left = state.valid_until.since(Stamp::now());
        match self.asked.boot_until().map(|until| (until, clock::boot_now())) {
            Some((until, Some(now))) => left.min(until.saturating_sub(now)),
            _ => left,
        }
    }

    pub(super) fn engine_until(&self) -> Instant {
        self.state().engine_until.instant()
    }

    /// A renewal is going out: if it arrives, the engine has the lease until then at the latest, whatever is answered.
    pub(super) fn may_live_until(&self, engine_until: Stamp) {
        let mut state = self.state();
        state.engine_until = state.engine_until.max(engine_until);
    }

    /// Whether it is held, and must be confirmed to be held for long.
    pub(super) fn is_unconfirmed(&self) -> bool {
        let state = self.state();
        state.unconfirmed && !self.left(&state).is_zero()
    }

    /// What is left of its validity; zero if it is not held any more.
    pub(super) fn remaining(&self) -> Duration {
        self.left(&self.state())
    }

    /// The same for the one who has it under the number of a pass.
    pub(super) fn remaining_for(&self, pass: u32) -> Duration {
        let state = self.state();
        if state.pass == pass { self.left(&state) } else { Duration::ZERO }
    }

    /// As others see it who want this key.
    pub(super) fn holder(&self, on: &ClaimKey) -> Holder {
        let place = self.claims().iter().position(|claim| claim.on() == on).unwrap_or_default();
        let (claim, pass) = (&self.claims()[place], self.state().pass);
        // The whole is good as long as its shortest claim; this one may last longer. In the engine, whose time others wait
        // for, it lasts for all of its TTL.
        let longer = claim.ttl().saturating_sub(self.asked.ttl()) + self.state().allowance();
        let remaining = (self.remaining() + longer).max(Duration::from_millis(1));
        Holder::new(claim.on().clone(), claim.mode(), self.asked.token().clone(), Some(remaining))
            .with_fence(self.fence(place, pass))
    }

    /// Whether it is on its way out; without a look at any clock.
    pub(super) fn is_leaving(&self) -> bool {
        self.state().phase == Phase::Releasing
    }

    pub(super) fn standing(&self) -> Standing {
        self.standing_in(&self.state())
    }

    /// A renewal was granted; `false` if the lease had ended before the answer came.
    pub(super) fn extend(&self, window: Window) -> bool {
        let mut state = self.state();
        if state.phase != Phase::Held {
            return false;
        }
        if self.left(&state).is_zero() {
            self.end_locked(state, Loss::Expired);
            return false;
        }
        state.extend(&window);
        self.asked.set_boot_until(window.boot_until);
        // Observers re-arm their timers.
        self.changed(state);
        true
    }

    /// Marks the lease as ended, unless it is already on its way out.
    pub(super) fn end(&self, loss: Loss) {
        let state = self.state();
        if state.phase == Phase::Held {
            self.end_locked(state, loss);
        }
    }

    fn end_locked(&self, mut state: MutexGuard<'_, State>, loss: Loss) {
        state.phase = Phase::Ended(loss);
        let noted = if loss == Loss::Released { None } else { state.note_loss() };
        self.changed(state);
        self.tell_loss(noted, loss);
    }

    /// Marks the lease as on its way out, and says what the engine must be told. Whoever no longer has it, because it was
    /// passed on, gives nothing back.
    pub(super) fn begin_release(&self, pass: u32) -> Telling {
        let mut state = self.state();
        if state.pass != pass {
            return Telling::Nothing;
        }
        if self.is_degraded() {
            return self.begin_degraded_release(state);
        }
        // Otherwise the engine's answer says how it ended.
        let ended = match state.phase {
            Phase::Ended(Loss::TakenOver) => state.counted.take().zip(Some(Released::TakenOver)),
            Phase::Ended(Loss::Revoked) => state.counted.take().zip(Some(Released::Revoked)),
            _ => None,
        };
        let telling = match state.phase {
            // By our count it has expired, but our count is careful, and the engine's clock may be slow.
            Phase::Held | Phase::Ended(Loss::Expired) => Telling::Release,
            // The engine said that it is gone. A request that was not answered can still bring it back, of several claims the
            // others may be left, and of several engines some that did not agree.
            Phase::Ended(Loss::TakenOver | Loss::Revoked)
                if !self.asked.route().is_answered()
                    || self.asked.route().has_parts()
                    || self.claims().len() > 1 =>
            {
                Telling::TakeBack
            }
            Phase::Releasing | Phase::Ended(_) => Telling::Nothing,
        };
        if telling == Telling::Nothing {
            drop(state);
        } else {
            state.phase = Phase::Releasing;
            self.changed(state);
        }
        if let Some((counted, outcome)) = ended {
            self.tell_end(&counted.meter, outcome);
        }
        telling
    }

    /// An attempt that was never sent left nothing behind; another may have been granted after all, or still be.
    fn begin_degraded_release(&self, mut state: MutexGuard<'_, State>) -> Telling {
        if matches!(state.phase, Phase::Releasing | Phase::Ended(Loss::Released)) {
            return Telling::Nothing;
        }
        if self.asked.sent_at().is_none() {
            self.end_locked(state, Loss::Released);
            return Telling::Nothing;
        }
        state.phase = Phase::Releasing;
        let engine_until = Stamp::now().after(self.asked.longest_ttl());
        state.engine_until = state.engine_until.max(engine_until);
        self.changed(state);
        Telling::Release
    }

    pub(super) fn finish_release(&self) {
        let state = self.state();
        if state.phase == Phase::Releasing {
            self.end_locked(state, Loss::Released);
        }
    }
}

/// As it is kept. How often hearing began is nowhere near to be cut.
#[expect(clippy::cast_possible_truncation, reason = "said above")]
const fn heard_number(since: Option<u64>) -> u32 {
    match since {
        Some(since) => since as u32,
        None => 0,
    }
}

impl State {
    fn allowance(&self) -> Duration {
        Duration::from_micros(self.allowance.into())
    }

    /// It is good for as long as this now. In the engine it may live for as long as before.
    fn extend(&mut self, window: &Window) {
        self.valid_until = window.valid_until;
        self.engine_until = self.engine_until.max(window.engine_until);
        self.allowance = window.allowance.as_micros().try_into().unwrap_or(u32::MAX);
        self.unconfirmed = false;
    }
}
