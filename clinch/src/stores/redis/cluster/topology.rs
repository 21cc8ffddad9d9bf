//! Who serves which slot, as far as is known.

use std::collections::BTreeMap;
use std::sync::Arc;

use redis::Value;

use super::slots::SLOTS;
use crate::store::StoreError;
use crate::stores::redis::address::{Place, shown_place};
use crate::stores::redis::error::nonsense;
use crate::stores::redis::link::Link;

/// A slot that nobody serves, as far as is known.
const NOBODY: u16 = u16::MAX;

/// A server of the Cluster.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) place: Place,
    /// The same in words, which its connections know.
    pub(super) at: Arc<str>,
    pub(super) link: Arc<Link>,
}

/// A range of slots and who serves it, as a server tells it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) first: u16,
    pub(super) last: u16,
    pub(super) primary: Place,
    pub(super) replicas: usize,
}

/// The map of slots.
#[derive(Debug)]
pub(super) struct Topology {
    /// For each slot the number of its node.
    slots: Vec<u16>,
    nodes: Vec<Arc<Node>>,
    /// How many replicas each of the nodes has.
    replicas: Vec<usize>,
    /// Servers that were asked or named and serve no slot as far as is known.
    others: BTreeMap<Arc<str>, Arc<Node>>,
}

impl Default for Topology {
    fn default() -> Self {
        let slots = vec![NOBODY; usize::from(SLOTS)];
        Self { slots, nodes: Vec::new(), replicas: Vec::new(), others: BTreeMap::new() }
    }
}

impl Topology {
    pub(super) fn owner(&self, slot: u16) -> Option<&Arc<Node>> {
        self.nodes.get(usize::from(*self.slots.get(usize::from(slot))?))
    }

    /// Those that serve slots, in the order of their addresses.
    pub(super) fn primaries(&self) -> &[Arc<Node>] {
        &self.nodes
    }

    pub(super) fn replicas(&self) -> usize {
        self.replicas.iter().sum()
    }

    /// Primaries without a replica.
    pub(super) fn alone(&self) -> usize {
        self.replicas.iter().filter(|replicas| **replicas == 0).count()
    }

    pub(super) fn uncovered(&self) -> usize {
        self.slots.iter().filter(|owner| **owner == NOBODY).count()
    }

    /// A server that is known, or that is made known now.
    pub(super) fn node(
        &mut self,
        place: &Place,
        make: impl FnOnce(&Place) -> Result<Arc<Node>, StoreError>,
    ) -> Result<Arc<Node>, StoreError> {
        let at = shown_place(place);
        let known = self.nodes.iter().find(|node| *node.at == *at).or_else(|| self.others.get(at.as_str()));
        if let Some(node) = known {
            return Ok(node.clone());
        }
        let node = make(place)?;
        self.others.insert(node.at.clone(), node.clone());
        Ok(node)
    }

    /// A server said who serves this slot. Tells whether that is news.
    pub(super) fn moved(&mut self, slot: u16, to: &Arc<Node>) -> bool {
        if self.owner(slot).is_some_and(|owner| owner.at == to.at) {
            return false;
        }
        let number = match self.nodes.iter().position(|node| node.at == to.at) {
            Some(number) => number,
            None => {
                self.others.remove(&to.at);
                self.nodes.push(to.clone());
                self.replicas.push(0);
                self.nodes.len() - 1
            }
        };
        if let (Some(owner), Ok(number)) = (self.slots.get_mut(usize::from(slot)), u16::try_from(number)) {
            *owner = number;
        }
        true
    }

    /// Takes over what a server told of all. Servers that are not part of it are let go. Tells whether that is news.
    pub(super) fn learn(
        &mut self,
        ranges: &[Range],
        make: impl Fn(&Place) -> Result<Arc<Node>, StoreError>,
    ) -> Result<bool, StoreError> {
        let mut learnt = Self::default();
        let mut places: Vec<(&Place, usize)> =
            ranges.iter().map(|range| (&range.primary, range.replicas)).collect();
        places.sort_unstable_by_key(|(place, _)| shown_place(place));
        places.dedup_by(|one, other| one.0 == other.0);
        for (place, replicas) in places {
            learnt.nodes.push(self.node(place, &make)?);
            learnt.replicas.push(replicas);
        }
        for range in ranges {
            let number = learnt.nodes.iter().position(|node| node.place == range.primary);
            let number = number.and_then(|number| u16::try_from(number).ok()).unwrap_or(NOBODY);
            let slots = learnt.slots.get_mut(usize::from(range.first)..=usize::from(range.last));
            slots.into_iter().flatten().for_each(|owner| *owner = number);
        }
        let is_news = (0..SLOTS).any(|slot| {
            let at = |topology: &Self| topology.owner(slot).map(|node| node.at.clone());
            at(self) != at(&learnt)
        });
        *self = learnt;
        Ok(is_news)
    }
}

/// Reads what `CLUSTER SLOTS` answers. A server that does not know its own name is where it was asked.
pub(super) fn ranges(answer: Value, asked: &Place) -> Result<Vec<Range>, StoreError> {
    let rows: Vec<Vec<Value>> = redis::from_redis_value(answer).map_err(nonsense)?;
    let range = |row: Vec<Value>| {
        let mut row = row.into_iter();
        let mut number =
            || redis::from_redis_value::<u16>(row.next().unwrap_or(Value::Nil)).map_err(nonsense);
        let (first, last) = (number()?, number()?);
        let primary: Vec<Value> =
            redis::from_redis_value(row.next().unwrap_or(Value::Nil)).map_err(nonsense)?;
        let mut primary = primary.into_iter();
        let host: Option<String> =
            redis::from_redis_value(primary.next().unwrap_or(Value::Nil)).map_err(nonsense)?;
        let port = redis::from_redis_value(primary.next().unwrap_or(Value::Nil)).map_err(nonsense)?;
        let host = host.filter(|host| !host.is_empty() && host != "?").unwrap_or_else(|| asked.0.clone());
        Ok(Range { first, last, primary: (host, port), replicas: row.len() })
    };
    rows.into_iter()
        .map(range)
        .filter(|range| !matches!(range, Ok(range) if range.last >= SLOTS || range.first > range.last))
        .collect()
}
