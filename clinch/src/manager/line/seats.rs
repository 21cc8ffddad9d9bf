//! The places that futures have in a line, each given up when its future is dropped.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::ride::Batch;
use super::{Answer, Flight, HeadTurn, Lines, Seat, Shape, Slot, Turn, local_denial};
use crate::lease::{Claim, Mode};
use crate::manager::held::{Held, Standing};
use crate::manager::schedule::Schedule;
use crate::store::{Denial, ErrorKind, StoreError};

/// A waiter's place in the line.
pub(in crate::manager) struct LineSeat<'a> {
    lines: &'a Lines,
    claim: &'a Claim,
    seat: Arc<Seat>,
    number: i64,
    /// Others stood before it when it came.
    behind: bool,
    /// It was passed the lease, and is not in the line any more.
    passed: bool,
    poll_every: Duration,
    /// The head's knowledge of when to ask; passed from head to head.
    schedule: Option<Schedule>,
}

impl<'a> LineSeat<'a> {
    pub(super) fn new(
        lines: &'a Lines,
        claim: &'a Claim,
        (seat, number): (Arc<Seat>, i64),
        behind: bool,
        poll_every: Duration,
    ) -> Self {
        Self { lines, claim, seat, number, behind, passed: false, poll_every, schedule: None }
    }

    /// Whether others stood before it when it came.
    pub(in crate::manager) const fn is_behind(&self) -> bool {
        self.behind
    }

    /// The lease, if it was passed to this one, which has left the line with that.
    pub(in crate::manager) fn take_passed(&mut self) -> Option<(Arc<Held>, u32)> {
        let mut turn = self.seat.turn();
        match std::mem::replace(&mut *turn, Turn::Waiting) {
            Turn::Passed(held, pass) => {
                self.passed = true;
                Some((held, pass))
            }
            other => {
                *turn = other;
                None
            }
        }
    }

    /// What it was passed is of no use: it is the head again.
    pub(in crate::manager) fn rejoin(&mut self) {
        let (on, mode) = (self.claim.on(), self.claim.mode());
        self.passed = false;
        self.number = self.lines.with_slot(on, |slot| slot.lane(mode).join_first(self.seat.clone()));
    }

    /// Looks whether this is the head, and what the head is to do.
    pub(in crate::manager) fn turn(&mut self) -> HeadTurn<'a> {
        let (on, mode) = (self.claim.on(), self.claim.mode());
        if let Some((held, pass)) = self.take_passed() {
            return HeadTurn::Passed(held, pass);
        }
        self.lines.with_slot(on, |slot| {
            if !slot.lane(mode).head().is_some_and(|head| Arc::ptr_eq(head, &self.seat)) {
                return HeadTurn::NotHead;
            }
            let local = slot.local(on, mode);
            let lane = slot.lane(mode);
            if let Some(mut schedule) = lane.schedule.take() {
                schedule.poll_within(self.poll_every);
                self.schedule = Some(schedule);
            }
            let schedule = self.schedule.get_or_insert_default();
            lane.subscribed = schedule.is_subscribed();
            // A writer that waits for readers must be known to the engine too, or new ones would never let it in.
            let readers = |held: &Held| held.mode_on(on) == Some(Mode::Shared);
            if let Some((held, standing)) = local
                && !(standing == Standing::Valid && readers(&held))
            {
                return HeadTurn::Local(held);
            }
            if lane.is_busy() {
                return HeadTurn::Busy;
            }
            if lane.heir.is_some() {
                // The engine knows this line, and the others too: what it is told may be that the key is its own.
                lane.stepped_back = None;
            }
            if let Some(mut back) = lane.stepped_back {
                if lane.own_wakeup && schedule.is_woken() {
                    lane.own_wakeup = false;
                    schedule.ignore_wakeup();
                }
                if schedule.is_woken() && !back.had_turn() {
                    schedule.ignore_wakeup();
                }
                if Instant::now() < back.until && !schedule.is_woken() && lane.tries.is_empty() {
                    lane.stepped_back = Some(back);
                    return HeadTurn::SteppedBack(back.until);
                }
                lane.stepped_back = None;
                // The wake-ups that were not for this line told of a free key all the same, and none may come after them.
                lane.freed = true;
            }
            let other = |(_, shape): &mut (Flight, Shape)| *shape != self.seat.shape;
            if let Some((left, _)) = lane.orphan.take_if(other).or_else(|| lane.heir.take_if(other)) {
                // It is not what this one wants: out of the way first.
                slot.take_back(left.attempt, &self.lines.releases);
                return HeadTurn::Busy;
            }
            if schedule.is_due() || lane.freed || lane.orphan.is_some() || !lane.tries.is_empty() {
                slot.begin_asking(mode);
                return HeadTurn::Ask(Role::new(self.lines, self.claim, self.seat.shape.clone()));
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

    /// Waits until it is called, a wake-up comes, or the time to ask again has come; says that none of these has if it is `until`
    /// first.
    pub(in crate::manager) async fn called_or_due(&mut self, until: Instant) -> bool {
        let schedule = self.schedule.get_or_insert_default();
        tokio::select! {
            biased;
            () = self.seat.called.notified() => true,
            () = schedule.due_by(until) => schedule.is_due(),
        }
    }

    /// Waits until it is called, a wake-up comes, or others have had their time.
    pub(in crate::manager) async fn called_or_woken(&mut self, until: Instant) {
        let schedule = self.schedule.get_or_insert_default();
        tokio::select! {
            biased;
            () = self.seat.called.notified() => {}
            () = schedule.woken() => {}
            () = sleep_until(until) => {}
        }
    }

    /// Leaves the line, and says what it was given and has not taken.
    fn leave(&mut self) -> Option<(Arc<Held>, u32)> {
        let (on, mode) = (self.claim.on(), self.claim.mode());
        if self.passed && self.schedule.is_none() {
            // There is nothing in the line that is its own.
            return None;
        }
        // What is forgotten with the last of the line is dropped outside the lock: it ends a subscription.
        let (passed, _forgotten) = self.lines.with_slot(on, |slot| {
            let turn = std::mem::replace(&mut *self.seat.turn(), Turn::Gone);
            let lane = slot.lane(mode);
            lane.leave(self.number, &self.seat);
            if self.schedule.is_some() {
                lane.schedule = self.schedule.take();
            }
            let forgotten = lane.deserted();
            slot.disinherit(mode, &self.lines.releases);
            if !self.passed {
                slot.hand_on(on, &self.lines.releases);
            }
            match turn {
                Turn::Passed(held, pass) => (Some((held, pass)), forgotten),
                _ => (None, forgotten),
            }
        });
        passed
    }
}

impl Drop for LineSeat<'_> {
    fn drop(&mut self) {
        if let Some((held, pass)) = self.leave() {
            self.lines.not_taken(held, pass);
        }
    }
}

/// The right to ask the engine about a key, with those who share the answer. Handed on when it is dropped.
pub(in crate::manager) struct Role<'a> {
    lines: &'a Lines,
    claim: &'a Claim,
    shape: Shape,
    riders: Vec<Arc<Batch>>,
    flight: Option<Flight>,
    /// Whoever came until now is among the riders, and there is nothing to go on with.
    begun: bool,
    /// It was given up.
    over: bool,
}

/// Why a lease that was granted is not kept. It is taken back then.
pub(in crate::manager) enum Unkept {
    /// It was ended by force before its answer came; asked for more than once, it may be granted anew.
    Revoked,
    /// A lease of this process stands in the way all the same: its holder went on without the engine meanwhile.
    InTheWay(Arc<Held>),
}

impl<'a> Role<'a> {
    pub(super) const fn new(lines: &'a Lines, claim: &'a Claim, shape: Shape) -> Self {
        Self { lines, claim, shape, riders: Vec::new(), flight: None, begun: false, over: false }
    }

    /// For one who is alone.
    pub(super) const fn begun(lines: &'a Lines, claim: &'a Claim, shape: Shape) -> Self {
        let mut role = Self::new(lines, claim, shape);
        role.begun = true;
        role
    }

    const fn mode(&self) -> Mode {
        self.claim.mode()
    }

    /// The call is about to be sent: everybody who came until now shares its answer. Goes on with an attempt whose
    /// caller is gone, if there is one, or with a new one.
    pub(in crate::manager) fn begin(&mut self, new: impl FnOnce() -> Flight) -> &mut Flight {
        if std::mem::replace(&mut self.begun, true) {
            return self.flight.get_or_insert_with(new);
        }
        let adopted = self.lines.with_slot(self.claim.on(), |slot| {
            let lane = slot.lane(self.claim.mode());
            self.riders = std::mem::take(&mut lane.tries);
            lane.freed = false;
            match lane.orphan.take() {
                // Whose turn it is may not have been polled for a while, and another one, who asked in its place, be gone
                // again: that one wanted something else.
                Some((flight, shape)) if shape != self.shape => {
                    slot.take_back(flight.attempt, &self.lines.releases);
                    None
                }
                Some((flight, _)) => Some(flight),
                None => {
                    let heir = lane.heir.take_if(|(_, shape)| *shape == self.shape);
                    heir.map(|(flight, _)| flight)
                }
            }
        });
        self.flight.insert(adopted.unwrap_or_else(new))
    }

    /// The call was granted.
    ///
    /// # Errors
    /// Why it is not kept.
    pub(in crate::manager) fn granted(mut self, held: &Arc<Held>) -> Result<(), Unkept> {
        let (on, mode) = (self.claim.on(), self.mode());
        let lines = self.lines;
        let (kept, riders) = lines.with_slot(on, |slot| {
            let kept = slot.keep(held, on, mode);
            let flight = self.flight.take();
            if let (Err(_), Some(flight)) = (&kept, flight) {
                slot.take_back(flight.attempt, &lines.releases);
            }
            let denied = mode == Mode::Exclusive && !matches!(kept, Err(Unkept::Revoked));
            let riders = if denied { std::mem::take(&mut self.riders) } else { Vec::new() };
            self.give_up(slot);
            (kept, riders)
        });
        if !riders.is_empty() {
            let holder = if let Err(Unkept::InTheWay(other)) = &kept { other } else { held };
            let answer = Answer::Denied(Arc::new(local_denial(holder, 0, on)));
            riders.into_iter().for_each(|batch| batch.answer(answer.clone()));
        }
        kept
    }

    /// The call was denied.
    pub(in crate::manager) fn denied(mut self, denial: &Denial) {
        let (on, mode) = (self.claim.on(), self.mode());
        let flight = self.flight.take();
        let (settled, unsettled) =
            if flight.as_ref().is_some_and(Flight::is_settled) { (flight, None) } else { (None, flight) };
        self.lines.with_slot(on, |slot| {
            // Nobody else has to know it who is not there.
            if let Some(lane) = slot.known_lane(mode) {
                lane.denial = Some((denial.clone(), Instant::now()));
                lane.narrow();
            }
            if let Some(flight) = settled.filter(Flight::inherits) {
                slot.stand_by(flight, self.shape.clone(), &self.lines.releases);
            }
        });
        if let Some(flight) = unsettled {
            // An earlier acquire may still arrive, once the holder has gone. Nobody has to wait for that.
            self.lines.withdraw(flight.attempt);
        }
        self.answer_riders(|| Answer::Denied(Arc::new(denial.clone())));
    }

    /// The call failed, or its answer came too late to be used: whatever was granted must be taken back.
    pub(in crate::manager) fn take_back(&mut self) {
        if let Some(flight) = self.flight.take() {
            self.lines
                .with_slot(self.claim.on(), |slot| slot.take_back(flight.attempt, &self.lines.releases));
        }
    }

    /// The call failed. What may have been granted is taken back, unless the caller goes on with it.
    pub(in crate::manager) fn failed(mut self, error: &StoreError, keeps: bool) {
        match self.flight.take() {
            Some(flight) if flight.doubtful && !keeps => {
                self.flight = Some(flight);
                self.take_back();
            }
            // It was not carried out, but an earlier one may be known to the engine.
            Some(flight) if !flight.doubtful && flight.attempt.route().is_known() => {
                let (lines, shape) = (self.lines, self.shape.clone());
                lines.with_slot(self.claim.on(), |slot| slot.stand_by(flight, shape, &lines.releases));
            }
            _ => {}
        }
        // A leader's time-out is its own: the others have come later and may still be answered in time, by whoever asks
        // next.
        if error.kind() != ErrorKind::Timeout {
            self.answer_riders(|| Answer::Failed(error.clone()));
        }
    }

    fn answer_riders(&mut self, answer: impl FnOnce() -> Answer) {
        if !self.riders.is_empty() {
            let answer = answer();
            self.riders.drain(..).for_each(|batch| batch.answer(answer.clone()));
        }
    }

    /// Leaves what is to be left in the slot of its key, once.
    fn give_up(&mut self, slot: &mut Slot) {
        if std::mem::replace(&mut self.over, true) {
            return;
        }
        let (on, mode) = (self.claim.on(), self.mode());
        // Riders that were not answered will be by whoever asks next.
        self.riders.retain(|batch| !batch.is_deserted());
        if !self.riders.is_empty() {
            let tries = &mut slot.lane(mode).tries;
            tries.splice(..0, self.riders.drain(..));
        }
        let flight = self.flight.take();
        let (sent, unsent) = if flight.as_ref().is_some_and(|flight| flight.attempt.sent_at().is_some()) {
            (flight, None)
        } else {
            (None, flight)
        };
        if let Some(flight) = unsent.filter(|flight| flight.attempt.route().is_known()) {
            slot.stand_by(flight, self.shape.clone(), &self.lines.releases);
        }
        match sent {
            Some(flight) if mode == Mode::Exclusive => {
                let lane = slot.lane(mode);
                lane.orphan = Some((Flight { doubtful: true, ..flight }, self.shape.clone()));
                // What is revoked meanwhile may be the orphan's.
                lane.asking = lane.asking.saturating_sub(1);
                slot.calls = slot.calls.saturating_sub(1);
            }
            // Where several can be in, nobody has to wait for it, nor goes on with it.
            Some(flight) => {
                slot.end_asking(mode);
                slot.take_back(flight.attempt, &self.lines.releases);
            }
            None => slot.end_asking(mode),
        }
        slot.hand_on(on, &self.lines.releases);
    }
}

impl Drop for Role<'_> {
    fn drop(&mut self) {
        if !self.over {
            let lines = self.lines;
            lines.with_slot(self.claim.on(), |slot| self.give_up(slot));
        }
    }
}
