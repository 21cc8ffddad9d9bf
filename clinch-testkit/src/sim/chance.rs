//! What chance decides: every decision has a name, and each client a chance of its own.
//!
//! A fault that did not strike, because it was left out on purpose, changes nothing for whom it does not concern: the
//! others meet the same delays and the same faults as before. So a run can be repeated with only some of its faults
//! ([`Only`]), and a failing one be [shrunk](super::shrink) to those that matter.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::Chance;
use crate::history::FaultKind;

/// The name of one fault in a run: of this kind, on this node, to this client, and the how-manieth decision about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FaultId {
    /// Its kind.
    pub kind: FaultKind,
    /// The node.
    pub node: usize,
    /// Whose calls it strikes; `None` for everybody's.
    pub client: Option<usize>,
    /// Which decision.
    pub nth: u64,
}

impl fmt::Display for FaultId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, node, client, nth } = self;
        match client {
            Some(client) => write!(f, "{kind:?}/n{node}/c{client}/{nth}"),
            None => write!(f, "{kind:?}/n{node}/all/{nth}"),
        }
    }
}

impl FromStr for FaultId {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("{text:?} names no fault; accepted is what a shrunk run prints: `Late/n0/c3/17`");
        let mut fields = text.split('/');
        let mut field = || fields.next().ok_or_else(wrong);
        let kind = field()?;
        let kind = FaultKind::ALL.into_iter().find(|known| format!("{known:?}") == kind).ok_or_else(wrong)?;
        let node = field()?.strip_prefix('n').and_then(|node| node.parse().ok()).ok_or_else(wrong)?;
        let client = match field()? {
            "all" => None,
            client => Some(client.strip_prefix('c').and_then(|c| c.parse().ok()).ok_or_else(wrong)?),
        };
        let nth = field()?.parse().map_err(|_| wrong())?;
        Ok(Self { kind, node, client, nth })
    }
}

/// Which faults may strike: all, or only these.
pub type Only = Option<Arc<BTreeSet<FaultId>>>;

/// The chance that rules over one node.
#[derive(Debug)]
pub(super) struct Fortune {
    seed: u64,
    node: usize,
    only: Only,
    /// How many decisions there were about each.
    decided: BTreeMap<(FaultKind, Option<usize>), u64>,
    /// What comes to each client, and to the node itself.
    rngs: BTreeMap<Option<usize>, StdRng>,
}

impl Fortune {
    pub(super) fn new(seed: u64, node: usize, only: Only) -> Self {
        Self { seed, node, only, decided: BTreeMap::new(), rngs: BTreeMap::new() }
    }

    /// Numbers for what happens to a client that is no fault.
    pub(super) fn of(&mut self, client: Option<usize>) -> &mut StdRng {
        let name = client.map_or(u64::MAX, |client| client as u64);
        let seed = mix(self.seed, self.node as u64, name, 0);
        self.rngs.entry(client).or_insert_with(|| StdRng::seed_from_u64(seed))
    }

    /// Whether this fault strikes now. What it needs of numbers comes from [`of_fault`](Self::of_fault).
    pub(super) fn strikes(
        &mut self,
        kind: FaultKind,
        client: Option<usize>,
        chance: Chance,
    ) -> Option<FaultId> {
        let decided = self.decided.entry((kind, client)).or_default();
        *decided += 1;
        let id = FaultId { kind, node: self.node, client, nth: *decided };
        let strikes = chance.strikes(self.of_fault(id).random_range(0..1000));
        let allowed = self.only.as_ref().is_none_or(|only| only.contains(&id));
        (strikes && allowed).then_some(id)
    }

    /// Numbers that belong to one fault.
    pub(super) fn of_fault(&self, id: FaultId) -> StdRng {
        let client = id.client.map_or(u64::MAX, |client| client as u64);
        StdRng::seed_from_u64(mix(self.seed, id.node as u64 ^ ((id.kind as u64) << 32), client, id.nth))
    }
}

/// One number of several.
fn mix(a: u64, b: u64, c: u64, d: u64) -> u64 {
    [b, c, d].into_iter().fold(a, |mixed, next| {
        let mut x = mixed.wrapping_add(0x9e37_79b9_7f4a_7c15).wrapping_mul(0xbf58_476d_1ce4_e5b9) ^ next;
        x = (x ^ (x >> 29)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 32)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_is_read_as_it_is_written() {
        for client in [None, Some(4)] {
            let id = FaultId { kind: FaultKind::Late, node: 2, client, nth: 17 };
            assert_eq!(id.to_string().parse(), Ok(id));
        }
        assert!("Late/n0".parse::<FaultId>().is_err());
    }

    #[test]
    fn leaving_one_out_changes_no_other() {
        let all = |only: Only| {
            let mut fortune = Fortune::new(7, 0, only);
            let one = |fortune: &mut Fortune, client| {
                fortune.strikes(FaultKind::Late, Some(client), Chance::per_mille(300))
            };
            (0..200).filter_map(|i| one(&mut fortune, i % 3)).collect::<Vec<_>>()
        };
        let struck = all(None);
        assert!(struck.len() > 20);
        let some: BTreeSet<_> = struck.iter().copied().step_by(3).collect();
        assert_eq!(all(Some(Arc::new(some.clone()))), struck.into_iter().step_by(3).collect::<Vec<_>>());
    }
}
