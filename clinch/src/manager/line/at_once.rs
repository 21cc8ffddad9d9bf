//! Keys that nobody here knows anything of but the one who takes them: taken and given back in one step under the lock of the
//! key, the engine's own step included, which does not wait.

use std::sync::Arc;

use super::slot::Slot;
use super::{Lines, tidy};
use crate::lease::{Claim, Mode};
use crate::manager::held::{Held, Standing};

/// What came of a try at an engine that answers at once.
pub(in crate::manager) enum Tried {
    Granted(Arc<Held>),
    Denied,
    /// There is more to do than to take what the engine says.
    NotAtOnce(Claim),
}

impl Lines {
    /// A try comes for all of a key. If nothing is known of it, `ask` asks the engine; `found` is told of a lease of this process
    /// that denies it.
    pub(in crate::manager) fn try_at_once(
        &self,
        claim: Claim,
        found: impl FnOnce(&Arc<Held>),
        ask: impl FnOnce(Claim) -> Tried,
    ) -> Tried {
        let mut shard = self.shard(claim.on());
        if let Some(slot) = shard.get(claim.on()) {
            let mut leases = slot.leases.iter();
            return match leases.find(|held| held.standing() == Standing::Valid) {
                Some(held) => {
                    found(held);
                    Tried::Denied
                }
                None => Tried::NotAtOnce(claim),
            };
        }
        let tried = ask(claim);
        if let Tried::Granted(held) = &tried {
            shard.insert(held.on().clone(), Slot::of(held.clone()));
        }
        tried
    }

    /// Ends a lease on a single key of which nothing else is known here, if `end` does.
    pub(in crate::manager) fn end_at_once<T>(
        &self,
        held: &Arc<Held>,
        end: impl FnOnce() -> Option<T>,
    ) -> Option<T> {
        let [claim] = held.claims() else { return None };
        if claim.mode() != Mode::Exclusive {
            return None;
        }
        let mut shard = self.shard(claim.on());
        if !shard.get(claim.on())?.is_only(held) {
            return None;
        }
        let ended = end()?;
        shard.remove(claim.on());
        tidy(&mut shard);
        Some(ended)
    }
}
