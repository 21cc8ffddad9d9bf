//! One way in which a key is wanted: who asks, who waits.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::ride::{Batch, Boarded};
use super::{Answer, Flight, Seat, Shape};
use crate::lease::Attempt;
use crate::manager::schedule::Schedule;
use crate::store::Denial;

/// How long a line lets another one go first after it gave a lease back for which others wait. A turn ends with a wake-up,
/// so this is only for those who do not take it.
const STEP_BACK: Duration = Duration::from_millis(10);

/// The most others for whose turns a line waits.
const MOST_TURNS: u32 = 100;

/// A line that lets others go first.
#[derive(Debug, Clone, Copy)]
pub(super) struct SteppedBack {
    /// Until then, or until a wake-up tells that one of them had its turn.
    pub(super) until: Instant,
    /// However many wake-ups come: several that came at once are noticed as one.
    at_most: Instant,
    /// How many of them are still to have their turn. An engine wakes all who wait in an order of its own, so whoever let only one go
    /// first would share the key with that one, and the others would starve.
    turns: usize,
}

impl SteppedBack {
    /// One of the others had its turn; says whether all have.
    pub(super) fn had_turn(&mut self) -> bool {
        self.turns = self.turns.saturating_sub(1);
        self.until = (Instant::now() + STEP_BACK).min(self.at_most);
        self.turns == 0
    }
}

/// The most calls that a process makes at once for places on one key.
const MOST_AT_ONCE: usize = 63;

#[derive(Debug, Default)]
pub(super) struct Lane {
    /// How many have the role.
    pub(super) asking: usize,
    /// How many more than one may have it at a time: where several can be in, calls that are granted let more go out
    /// together, and one that is denied answers all.
    wider: usize,
    /// An attempt that was sent and whose caller is gone: the next one with the same shape asks on with it.
    pub(super) orphan: Option<(Flight, Shape)>,
    /// An attempt that was denied, by which the engine knows this line: its holder may hand the key over to it. Whoever is the head
    /// goes on with it, if it wants the same; it is given up when nobody is in the line any more.
    pub(super) heir: Option<(Flight, Shape)>,
    /// Tries that came after the call in flight was sent; nearly always one batch, and none in which nobody waits.
    pub(super) tries: Vec<Arc<Batch>>,
    /// Waiters by the number with which they came, first come first served.
    pub(super) line: BTreeMap<i64, Arc<Seat>>,
    next_number: i64,
    /// A local lease ended since the head asked last, or a place was granted and more may be free.
    pub(super) freed: bool,
    /// What the head knows, while no head has it.
    pub(super) schedule: Option<Schedule>,
    /// The line hears wake-ups.
    pub(super) subscribed: bool,
    /// Others go first.
    pub(super) stepped_back: Option<SteppedBack>,
    /// The wake-up of the line's own release is still to come, or was not noticed yet.
    pub(super) own_wakeup: bool,
    /// The engine's last denial, and when it came.
    pub(super) denial: Option<(Denial, Instant)>,
}

impl Lane {
    pub(super) fn is_idle(&self) -> bool {
        self.asking == 0 && self.is_deserted()
    }

    /// Whether the next one to come would have nothing of it.
    pub(super) const fn knows_nothing(&self) -> bool {
        self.schedule.is_none() && self.denial.is_none()
    }

    /// Whether nobody is there whom a role could be handed to, and nothing that would have to be taken back.
    pub(super) fn is_deserted(&self) -> bool {
        self.orphan.is_none() && self.heir.is_none() && self.tries.is_empty() && self.line.is_empty()
    }

    /// Whether nobody else may have the role now.
    pub(super) const fn is_busy(&self) -> bool {
        self.asking > self.wider
    }

    /// One more for each grant, so that every round trip twice as many are under way.
    pub(super) fn widen(&mut self) {
        self.wider = (self.wider + 1).min(MOST_AT_ONCE);
    }

    pub(super) const fn narrow(&mut self) {
        self.wider = 0;
    }

    pub(super) fn join(&mut self, seat: Arc<Seat>) -> i64 {
        self.next_number += 1;
        self.line.insert(self.next_number, seat);
        self.next_number
    }

    /// The same before all others.
    pub(super) fn join_first(&mut self, seat: Arc<Seat>) -> i64 {
        let Some((first, _)) = self.line.first_key_value() else { return self.join(seat) };
        let number = first - 1;
        self.line.insert(number, seat);
        number
    }

    /// One leaves that came under this number, if it is still there: whoever was passed the lease is not, and then another one
    /// may have the number.
    pub(super) fn leave(&mut self, number: i64, seat: &Arc<Seat>) {
        if self.line.get(&number).is_some_and(|other| Arc::ptr_eq(other, seat)) {
            self.line.remove(&number);
        }
    }

    /// The line may have become empty: then nobody goes on with what its heads knew. To be dropped outside the lock, because it
    /// ends a subscription.
    pub(super) fn deserted(&mut self) -> Option<Schedule> {
        if !self.line.is_empty() {
            return None;
        }
        self.subscribed = false;
        self.stepped_back = None;
        self.schedule.take()
    }

    /// A try comes that shares the answer to the next call.
    pub(super) fn ride(&mut self, shape: &Shape) -> Boarded {
        if !self.is_busy() {
            // The try counts as the head's poll.
            self.call_head();
        }
        // None of them has been sent.
        if let Some(boarded) = self.tries.last().and_then(|batch| batch.join(shape)) {
            return boarded;
        }
        let (batch, boarded) = Batch::begun(shape);
        self.tries.push(batch);
        boarded
    }

    /// The first of the line.
    pub(super) fn head(&self) -> Option<&Arc<Seat>> {
        self.line.first_key_value().map(|(_, seat)| seat)
    }

    pub(super) fn call_head(&self) {
        if let Some(head) = self.head() {
            head.called.notify_one();
        }
    }

    /// A lease of this process was given back for which so many others wait: the line lets them go first, because it would be
    /// faster every time.
    pub(super) fn step_back(&mut self, others: usize) {
        // One that the engine knows already is in nobody's way.
        if !self.line.is_empty() && self.heir.is_none() {
            let now = Instant::now();
            // More than anybody has; so that it cannot overflow.
            let at_most = now + STEP_BACK * u32::try_from(others).unwrap_or(u32::MAX).min(MOST_TURNS);
            self.stepped_back = Some(SteppedBack { until: now + STEP_BACK, at_most, turns: others });
            self.own_wakeup = self.subscribed;
        }
    }

    /// An attempt without a caller that the next one does not want, or that is hardly worth having.
    pub(super) fn unwanted_orphan(&mut self) -> Option<Arc<Attempt>> {
        let (orphan, shape) = self.orphan.take()?;
        let wanted = match self.head() {
            Some(heir) => heir.shape == shape,
            None => self.tries.first().is_some_and(|batch| batch.wants(&shape)),
        };
        if wanted && orphan.is_worth_adopting() {
            self.orphan = Some((orphan, shape));
            return None;
        }
        Some(orphan.attempt)
    }

    /// Calls the head, or gives the role to the first tries; says how many it gave it to.
    pub(super) fn call_next(&mut self) -> usize {
        if !self.line.is_empty() {
            self.call_head();
            return 0;
        }
        let mut given = 0;
        while !self.is_busy()
            && let Some(batch) = self.tries.first()
        {
            if batch.give_role() {
                self.asking += 1;
                given += 1;
            }
            if self.tries.first().is_some_and(|batch| batch.is_deserted()) {
                self.tries.remove(0);
            }
        }
        given
    }

    pub(super) fn answer_tries(&mut self, answer: &Answer) {
        self.tries.drain(..).for_each(|batch| batch.answer(answer.clone()));
    }
}
