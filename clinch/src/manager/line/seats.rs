//! The places that futures have in a line, each given up when its future is dropped.

use std::sync::Arc;

use tokio::time::Instant;

use super::{Answer, Flight, HeadTurn, Lines, Seat, Shape, Turn, local_denial};
use crate::lease::ClaimKey;
use crate::manager::held::Held;
use crate::manager::schedule::Schedule;
use crate::store::{Denial, ErrorKind, StoreError};

/// A try that waits for an answer.
pub(in crate::manager) struct Rider<'a> {
    lines: &'a Lines,
    on: &'a ClaimKey,
    seat: Arc<Seat>,
}

/// What came to a [`Rider`].
pub(in crate::manager) enum Ride<'a> {
    Answered(Answer),
    Ask(Role<'a>),
}

impl<'a> Rider<'a> {
    pub(super) fn new(lines: &'a Lines, on: &'a ClaimKey, seat: Arc<Seat>) -> Self {
        Self { lines, on, seat }
    }

    /// Waits for the answer, or for the role.
    pub(in crate::manager) async fn next(&self) -> Ride<'a> {
        loop {
            {
                let mut turn = self.seat.turn();
                match std::mem::replace(&mut *turn, Turn::Gone) {
                    Turn::Answer(answer) => return Ride::Answered(answer),
                    Turn::Ask => return Ride::Ask(Role::new(self.lines, self.on, self.seat.shape.clone())),
                    waiting => *turn = waiting,
                }
            }
            self.seat.called.notified().await;
        }
    }

    /// Takes the role, if nobody has it and nothing local stands in the way.
    pub(in crate::manager) fn overtake(&self) -> Option<Role<'a>> {
        self.lines.with_slot(self.on, |slot| {
            if slot.asking || slot.local().is_some() || !matches!(*self.seat.turn(), Turn::Waiting) {
                return None;
            }
            if let Some((orphan, _)) = slot.orphan.take_if(|(_, shape)| *shape != self.seat.shape) {
                // It was left for the head, and is not what this one wants: out of the way first.
                slot.take_back(orphan.attempt, &self.lines.releases);
                return None;
            }
            slot.asking = true;
            slot.tries.retain(|seat| !Arc::ptr_eq(seat, &self.seat));
            Some(Role::new(self.lines, self.on, self.seat.shape.clone()))
        })
    }
}

impl Drop for Rider<'_> {
    fn drop(&mut self) {
        self.lines.with_slot(self.on, |slot| {
            let turn = std::mem::replace(&mut *self.seat.turn(), Turn::Gone);
            if matches!(turn, Turn::Ask) {
                // The role was given and not taken.
                slot.asking = false;
                slot.hand_on(&self.lines.releases);
            } else if slot.tries.back().is_some_and(|last| Arc::ptr_eq(last, &self.seat)) {
                slot.tries.pop_back();
            }
        });
    }
}

/// A waiter's place in the line.
pub(in crate::manager) struct LineSeat<'a> {
    lines: &'a Lines,
    on: &'a ClaimKey,
    seat: Arc<Seat>,
    number: u64,
    /// The head's knowledge of when to ask; passed from head to head.
    schedule: Option<Schedule>,
}

impl<'a> LineSeat<'a> {
    pub(super) fn new(lines: &'a Lines, on: &'a ClaimKey, seat: Arc<Seat>, number: u64) -> Self {
        Self { lines, on, seat, number, schedule: None }
    }

    /// Looks whether this is the head, and what the head is to do.
    pub(in crate::manager) fn turn(&mut self) -> HeadTurn<'a> {
        self.lines.with_slot(self.on, |slot| {
            if !slot.head().is_some_and(|head| Arc::ptr_eq(head, &self.seat)) {
                return HeadTurn::NotHead;
            }
            let schedule = self.schedule.get_or_insert_with(|| slot.schedule.take().unwrap_or_default());
            if let Some((held, _)) = slot.local() {
                return HeadTurn::Local(held);
            }
            if slot.asking {
                return HeadTurn::Busy;
            }
            if schedule.is_due() || slot.freed || slot.orphan.is_some() || !slot.tries.is_empty() {
                slot.asking = true;
                return HeadTurn::Ask(Role::new(self.lines, self.on, self.seat.shape.clone()));
            }
            HeadTurn::Idle
        })
    }

    /// The head's knowledge; only the head has any.
    pub(in crate::manager) fn schedule(&mut self) -> &mut Schedule {
        self.schedule.get_or_insert_default()
    }

    /// Waits until something changed for this seat.
    pub(in crate::manager) async fn called(&self) {
        self.seat.called.notified().await;
    }

    /// Waits until it is called, a wake-up comes, or the time to ask again has come.
    pub(in crate::manager) async fn called_or_due(&mut self) {
        let schedule = self.schedule.get_or_insert_default();
        tokio::select! {
            biased;
            () = self.seat.called.notified() => {}
            () = schedule.due() => {}
        }
    }
}

impl Drop for LineSeat<'_> {
    fn drop(&mut self) {
        // What is forgotten with the last of the line is dropped outside the lock: it ends a subscription.
        let _forgotten = self.lines.with_slot(self.on, |slot| {
            slot.line.remove(&self.number);
            if self.schedule.is_some() {
                slot.schedule = self.schedule.take();
            }
            let forgotten = if slot.line.is_empty() { slot.schedule.take() } else { None };
            slot.hand_on(&self.lines.releases);
            forgotten
        });
    }
}

/// The right to ask the engine about a key, with those who share the answer. Handed on when it is dropped.
pub(in crate::manager) struct Role<'a> {
    lines: &'a Lines,
    on: &'a ClaimKey,
    shape: Shape,
    riders: Vec<Arc<Seat>>,
    flight: Option<Flight>,
}

impl<'a> Role<'a> {
    pub(super) const fn new(lines: &'a Lines, on: &'a ClaimKey, shape: Shape) -> Self {
        Self { lines, on, shape, riders: Vec::new(), flight: None }
    }

    /// The call is about to be sent: everybody who came until now shares its answer. Goes on with an attempt whose
    /// caller is gone, if there is one, or with a new one.
    pub(in crate::manager) fn begin(&mut self, new: impl FnOnce() -> Flight) -> &mut Flight {
        let orphan = self.lines.with_slot(self.on, |slot| {
            self.riders.extend(slot.tries.drain(..).filter(|seat| !seat.is_gone()));
            slot.freed = false;
            slot.orphan.take()
        });
        let adopted = orphan.map(|(flight, shape)| {
            debug_assert_eq!(shape, self.shape, "an orphan is only left for one of its own shape");
            flight
        });
        self.flight.insert(adopted.unwrap_or_else(new))
    }

    /// The call was granted.
    pub(in crate::manager) fn granted(mut self, held: &Arc<Held>) {
        self.flight = None;
        self.lines.with_slot(self.on, |slot| {
            slot.held = Some(held.clone());
            slot.denial = None;
        });
        self.answer_riders(&Answer::Denied(local_denial(held)));
    }

    /// The call was denied.
    pub(in crate::manager) fn denied(mut self, denial: &Denial) {
        self.lines.with_slot(self.on, |slot| slot.denial = Some((denial.clone(), Instant::now())));
        let settled = |flight: &Flight| !flight.doubtful && flight.attempt.route().is_answered();
        if let Some(flight) = self.flight.take().filter(|flight| !settled(flight)) {
            // An earlier acquire may still arrive, once the holder has gone. Nobody has to wait for that.
            self.lines.releases.push(Arc::new(Held::to_take_back(flight.attempt)));
        }
        self.answer_riders(&Answer::Denied(denial.clone()));
    }

    /// Whether the news came that the lease of the attempt in flight was ended by force.
    pub(in crate::manager) fn is_revoked(&self) -> bool {
        let token = self.flight.as_ref().map(|flight| flight.attempt.token());
        self.lines.with_slot(self.on, |slot| slot.revoked.iter().any(|revoked| Some(revoked) == token))
    }

    /// The call failed, or its answer came too late to be used: whatever was granted must be taken back.
    pub(in crate::manager) fn take_back(&mut self) {
        if let Some(flight) = self.flight.take() {
            self.lines.with_slot(self.on, |slot| slot.take_back(flight.attempt, &self.lines.releases));
        }
    }

    /// The call failed.
    pub(in crate::manager) fn failed(mut self, error: &StoreError) {
        match &self.flight {
            Some(flight) if flight.doubtful => self.take_back(),
            _ => self.flight = None,
        }
        // A leader's time-out is its own: the others have come later and may still be answered in time, by whoever asks
        // next.
        if error.kind() != ErrorKind::Timeout {
            self.answer_riders(&Answer::Failed(error.clone()));
        }
    }

    fn answer_riders(&mut self, answer: &Answer) {
        for seat in self.riders.drain(..) {
            seat.give(Turn::Answer(answer.clone()));
        }
    }
}

impl Drop for Role<'_> {
    fn drop(&mut self) {
        self.lines.with_slot(self.on, |slot| {
            // Riders that were not answered will be by whoever asks next.
            for seat in self.riders.drain(..).rev() {
                slot.tries.push_front(seat);
            }
            if let Some(flight) = self.flight.take()
                && flight.attempt.sent_at().is_some()
            {
                slot.orphan = Some((Flight { doubtful: true, ..flight }, self.shape.clone()));
            } else {
                slot.revoked.clear();
            }
            slot.asking = false;
            slot.hand_on(&self.lines.releases);
        });
    }
}
