//! Keys that nobody here knows anything of but the one who takes them: taken and given back in one step under the lock of the
//! key, the engine's own step included, which does not wait.

use std::sync::Arc;

use super::Lines;
use crate::lease::{Claim, Mode};
use crate::manager::handle::Handle;
use crate::manager::held::{Held, Standing};

/// What came of a try at an engine that answers at once.
pub(in crate::manager) enum Tried {
    /// With the hold on the core of the guard that has it, which is counted.
    Granted(Arc<Held>, Arc<Handle>),
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
        if shard.knows(claim.on()) {
            let mut leases = shard.leases_on(claim.on()).iter();
            return match leases.find(|held| held.standing() == Standing::Valid) {
                Some(held) => {
                    found(held);
                    Tried::Denied
                }
                None => Tried::NotAtOnce(claim),
            };
        }
        let tried = ask(claim);
        if let Tried::Granted(held, _) = &tried {
            shard.insert(held.clone());
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
        self.shard(claim.on()).end(claim.on(), held, end)
    }
}
