//! Tries that share somebody's call.
//!
//! Those that come while a call is in flight gather in a *batch*, which has one answer and one timer for all of them: a
//! storm of tries on one key costs each of them a place in a vector and one more poll.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use tokio::runtime::{self, Handle};
use tokio::time::{Instant, Sleep, sleep_until};

use super::{Answer, Lines, Role, Shape};
use crate::lease::{Claim, ClaimKey, Mode};
use crate::sync::{Mutex, MutexGuard, PoisonError};

/// How long a try waits for the head of a line to ask, before it asks itself.
const HEAD_PATIENCE: Duration = Duration::from_millis(20);

/// Places are taken once, so that a batch whose turn does not come would grow for ever with those who come and go.
const MOST_IN_BATCH: usize = 4_096;

/// Tries that get the same answer, unless one of them is to ask.
#[derive(Debug)]
pub(super) struct Batch(Mutex<Riders>);

#[derive(Debug, Default)]
struct Riders {
    places: Vec<Place>,
    /// How many of them wait.
    waiting: usize,
    /// Nobody before this place does.
    first: usize,
    answer: Option<Answer>,
    /// How often they have waited for [`HEAD_PATIENCE`].
    ticks: u32,
    /// One for each runtime in which one of them is polled: nearly always one.
    timers: Vec<Timer>,
}

/// Calls all of them once: when they have waited for [`HEAD_PATIENCE`], or when the time of one is over.
#[derive(Debug)]
struct Timer {
    of: runtime::Id,
    due: Instant,
    /// Without, it is just being made.
    sleep: Option<Pin<Box<Sleep>>>,
}

#[derive(Debug)]
struct Place {
    shape: Shape,
    state: State,
}

#[derive(Debug)]
enum State {
    Waits(Option<Waker>),
    /// The role is this one's.
    Asks,
    /// It was answered, has taken the role, or is gone.
    Over,
}

impl Batch {
    fn riders(&self) -> MutexGuard<'_, Riders> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One with its first place taken.
    pub(super) fn begun(shape: &Shape) -> (Arc<Self>, Boarded) {
        let mut riders = Riders::default();
        let (place, ticks) = riders.take_place(shape);
        let batch = Arc::new(Self(Mutex::new(riders)));
        (batch.clone(), Boarded { batch, place, ticks })
    }

    /// Takes a place, if there is one.
    pub(super) fn join(self: &Arc<Self>, shape: &Shape) -> Option<Boarded> {
        let mut riders = self.riders();
        if riders.places.len() >= MOST_IN_BATCH {
            return None;
        }
        let (place, ticks) = riders.take_place(shape);
        Some(Boarded { batch: self.clone(), place, ticks })
    }

    pub(super) fn is_deserted(&self) -> bool {
        self.riders().waiting == 0
    }

    /// Whether the first of them wants just this.
    pub(super) fn wants(&self, shape: &Shape) -> bool {
        let mut riders = self.riders();
        let first = riders.first_waiting();
        riders.places.get(first).is_some_and(|place| place.shape == *shape)
    }

    /// Gives the role to the first who waits; says whether there was one.
    pub(super) fn give_role(&self) -> bool {
        let waker = {
            let mut riders = self.riders();
            let first = riders.first_waiting();
            let Some(place) = riders.places.get_mut(first) else { return false };
            let State::Waits(waker) = std::mem::replace(&mut place.state, State::Asks) else { return false };
            riders.waiting -= 1;
            waker
        };
        if let Some(waker) = waker {
            waker.wake();
        }
        true
    }

    /// Answers all who wait.
    pub(super) fn answer(&self, answer: Answer) {
        let (wakers, timers) = {
            let mut riders = self.riders();
            riders.answer = Some(answer);
            (riders.wakers(), std::mem::take(&mut riders.timers))
        };
        drop(timers);
        wakers.into_iter().for_each(Waker::wake);
    }
}

impl Riders {
    /// Its number, and how often those who are there have waited.
    fn take_place(&mut self, shape: &Shape) -> (usize, u32) {
        self.waiting += 1;
        self.places.push(Place { shape: shape.clone(), state: State::Waits(None) });
        (self.places.len() - 1, self.ticks)
    }

    /// The place of the first who waits, or the number of places.
    fn first_waiting(&mut self) -> usize {
        let waits = |place: &Place| matches!(place.state, State::Waits(_));
        while self.places.get(self.first).is_some_and(|place| !waits(place)) {
            self.first += 1;
        }
        self.first
    }

    /// Whom to wake, to be done outside the lock.
    fn wakers(&mut self) -> Vec<Waker> {
        let mut wakers = Vec::with_capacity(self.waiting);
        wakers.extend(self.places.iter_mut().filter_map(|place| match &mut place.state {
            State::Waits(waker) => waker.take(),
            State::Asks | State::Over => None,
        }));
        wakers
    }
}

/// The timer calls all of them, because nobody may be polling the one that set it.
impl Wake for Batch {
    fn wake(self: Arc<Self>) {
        let (wakers, timers) = {
            let mut riders = self.riders();
            riders.ticks = riders.ticks.wrapping_add(1);
            (riders.wakers(), std::mem::take(&mut riders.timers))
        };
        drop(timers);
        wakers.into_iter().for_each(Waker::wake);
    }
}

/// A place that was taken, for a [`Rider`], which gives it up.
#[derive(Debug)]
pub(in crate::manager) struct Boarded {
    batch: Arc<Batch>,
    place: usize,
    ticks: u32,
}

/// A try that waits for an answer. It gives up its place when it is dropped.
pub(in crate::manager) struct Rider<'a> {
    lines: &'a Lines,
    on: ClaimKey,
    mode: Mode,
    batch: Arc<Batch>,
    place: usize,
    ticks: u32,
    /// Until when it waits.
    limit: Instant,
    over: bool,
}

/// What came to a [`Rider`].
pub(in crate::manager) enum Ride {
    Answered(Answer),
    /// It is to [ask](Rider::role) itself.
    Ask,
    /// Its time is over.
    Late,
}

impl<'a> Rider<'a> {
    pub(in crate::manager) fn new(
        lines: &'a Lines,
        on: ClaimKey,
        mode: Mode,
        boarded: Boarded,
        limit: Instant,
    ) -> Self {
        let Boarded { batch, place, ticks } = boarded;
        Self { lines, on, mode, batch, place, ticks, limit, over: false }
    }

    pub(in crate::manager) const fn on(&self) -> &ClaimKey {
        &self.on
    }

    pub(in crate::manager) const fn limit(&self) -> Instant {
        self.limit
    }

    /// Waits for the answer, for the role, or for the end of its time.
    pub(in crate::manager) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Ride> {
        loop {
            // Others' code, when it is dropped: not under the lock.
            let mut _before = None;
            let mut riders = self.batch.riders();
            let Riders { places, waiting, answer, ticks, timers, .. } = &mut *riders;
            let Some(place) = places.get_mut(self.place) else { return Poll::Pending };
            match (&mut place.state, answer) {
                (State::Asks, _) => return Poll::Ready(Ride::Ask),
                (State::Over, _) => return Poll::Pending,
                (State::Waits(_), Some(answer)) => {
                    place.state = State::Over;
                    *waiting -= 1;
                    self.over = true;
                    return Poll::Ready(Ride::Answered(answer.clone()));
                }
                (State::Waits(Some(waker)), None) if waker.will_wake(context.waker()) => {}
                (State::Waits(waker), None) => _before = waker.replace(context.waker().clone()),
            }
            if std::mem::replace(&mut self.ticks, *ticks) == *ticks {
                let Ok(runtime) = Handle::try_current() else { return Poll::Pending };
                let of = runtime.id();
                let there = timers.iter_mut().find(|timer| timer.of == of);
                if there.as_ref().is_some_and(|timer| timer.due <= self.limit) {
                    return Poll::Pending;
                }
                let due = self.limit.min(Instant::now() + HEAD_PATIENCE);
                match there {
                    Some(timer) => timer.due = due,
                    None => timers.push(Timer { of, due, sleep: None }),
                }
                drop(riders);
                self.set_timer(of, due);
                return Poll::Pending;
            }
            drop(riders);
            if Instant::now() >= self.limit {
                return Poll::Ready(Ride::Late);
            }
            // The head was called and has not begun to ask: nobody may be polling it.
            self.overtake();
        }
    }

    /// Makes the timer for all who are polled in this runtime. Outside the lock, which its waker takes.
    fn set_timer(&self, of: runtime::Id, due: Instant) {
        let mut sleep = Box::pin(sleep_until(due));
        let waker = Waker::from(self.batch.clone());
        let fired = sleep.as_mut().poll(&mut Context::from_waker(&waker)).is_ready();
        if fired {
            return waker.wake();
        }
        let mut riders = self.batch.riders();
        // If it is not wanted any more, all have been called meanwhile, or another is due earlier.
        if let Some(wanted) = riders.timers.iter_mut().find(|timer| timer.of == of && timer.due == due) {
            let before = wanted.sleep.replace(sleep);
            drop(riders);
            drop(before);
        }
    }

    /// Takes the role, if nobody has it and nothing local stands in the way.
    fn overtake(&self) {
        let (on, mode) = (&self.on, self.mode);
        self.lines.with_slot(on, |slot| {
            let blocked = slot.local(on, mode).is_some();
            let lane = slot.lane(mode);
            if blocked || lane.is_busy() {
                return;
            }
            let mut riders = self.batch.riders();
            if riders.answer.is_some() {
                return;
            }
            let Some(place) = riders.places.get_mut(self.place) else { return };
            if !matches!(place.state, State::Waits(_)) {
                return;
            }
            if let Some((orphan, _)) = lane.orphan.take_if(|(_, shape)| *shape != place.shape) {
                // It was left for the head, and is not what this one wants: out of the way first.
                drop(riders);
                slot.take_back(orphan.attempt, &self.lines.releases);
                return;
            }
            place.state = State::Asks;
            riders.waiting -= 1;
            drop(riders);
            lane.tries.retain(|batch| !batch.is_deserted());
            slot.begin_asking(mode);
        });
    }

    /// The role that was given to it, to ask for what it wanted.
    pub(in crate::manager) fn role(mut self, claim: &'a Claim, shape: Shape) -> Role<'a> {
        self.over = true;
        Role::new(self.lines, claim, shape)
    }
}

impl Drop for Rider<'_> {
    fn drop(&mut self) {
        if self.over {
            // Whoever was answered, or took the role, is no longer among the tries.
            return;
        }
        let (on, mode) = (&self.on, self.mode);
        // What is dropped with it is dropped outside the locks: a waker and a timer are others' code.
        let _dropped = self.lines.with_slot(on, |slot| {
            let mut riders = self.batch.riders();
            let place = riders.places.get_mut(self.place)?;
            match std::mem::replace(&mut place.state, State::Over) {
                State::Waits(waker) => {
                    riders.waiting -= 1;
                    let timers =
                        if riders.waiting == 0 { std::mem::take(&mut riders.timers) } else { Vec::new() };
                    drop(riders);
                    slot.lane(mode).tries.retain(|batch| !batch.is_deserted());
                    Some((waker, timers))
                }
                State::Asks => {
                    drop(riders);
                    // The role was given and not taken.
                    slot.end_asking(mode);
                    slot.hand_on(on, &self.lines.releases);
                    None
                }
                State::Over => None,
            }
        });
    }
}
