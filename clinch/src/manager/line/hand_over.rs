//! Leases that go to the next in line, and who is called when they do not.

use std::sync::Arc;

use super::{Lines, PoisonError, Seat, Turn};
use crate::lease::Mode;
use crate::manager::held::{Held, Passing, Telling};

/// What becomes of a lease whose holder is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::manager) enum Handed {
    /// The next one has it.
    Over {
        /// It is to be renewed.
        renew: bool,
    },
    /// The next one gets it once it is renewed; until then it is nobody's, under this number.
    AfterRenewal(u32),
    /// Nobody here takes it.
    Back,
}

impl Lines {
    /// The holder under this number is done: hands the lease to the next in line, if that one wants just this.
    pub(in crate::manager) fn hand_over(&self, held: &Arc<Held>, pass: u32) -> Handed {
        let [claim] = held.claims() else { return Handed::Back };
        if claim.mode() != Mode::Exclusive {
            return Handed::Back;
        }
        // What is forgotten with the last of the line is dropped outside the lock: it ends a subscription.
        let (handed, _forgotten) = self.with_slot(claim.on(), |slot| {
            let Some(lane) = slot.known_lane(Mode::Exclusive) else { return (Handed::Back, None) };
            let fits =
                |head: &&Arc<Seat>| head.shape.takes_passes && head.shape.fits(held) && head.is_waiting();
            let Some(head) = lane.head().filter(fits) else { return (Handed::Back, None) };
            match held.pass_on(pass, head.scope) {
                Passing::Passed { number, renew } => {
                    // It leaves the line here, and need not look at it again.
                    if let Some((_, head)) = lane.line.pop_first() {
                        head.give(Turn::Passed(held.clone(), number));
                    }
                    let forgotten = lane.deserted();
                    // This process has the key, so nobody has handed it over.
                    slot.disinherit(Mode::Exclusive, &self.releases);
                    (Handed::Over { renew }, forgotten)
                }
                Passing::AfterRenewal(number) => (Handed::AfterRenewal(number), None),
                Passing::No => (Handed::Back, None),
            }
        });
        handed
    }

    /// The heads of the lines for its keys are to look after a lease that stands in their way.
    pub(in crate::manager) fn call_heads(&self, held: &Held) {
        for claim in held.claims() {
            if let Some(slot) = self.shard(claim.on()).slot(claim.on()) {
                slot.lanes.iter().for_each(|(_, lane)| lane.call_head());
            }
        }
    }

    /// Calls everybody who stands in a line: the manager closes.
    pub(in crate::manager) fn call_all(&self) {
        for shard in &self.shards {
            let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            let lanes = shard.slots().flat_map(|(_, slot)| &slot.lanes);
            lanes.flat_map(|(_, lane)| lane.line.values()).for_each(|seat| seat.called.notify_one());
        }
    }

    /// A lease was passed to somebody who did not take it: it goes to the next one, or back.
    pub(super) fn not_taken(&self, held: Arc<Held>, pass: u32) {
        let pass = match self.hand_over(&held, pass) {
            Handed::Over { .. } => return,
            Handed::AfterRenewal(number) => number,
            Handed::Back => pass,
        };
        if held.begin_release(pass) != Telling::Nothing {
            self.give_back(held);
        }
    }
}
