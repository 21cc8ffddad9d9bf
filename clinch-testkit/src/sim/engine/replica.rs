//! A replica: the engine's memory as it was a moment ago.

use std::collections::VecDeque;

use clinch::lease::ClaimKey;
use tokio::time::Instant;

use super::{Place, Table};

/// A change on its way to the replica.
#[derive(Debug)]
struct Change {
    arrives: Instant,
    on: ClaimKey,
    places: Vec<Place>,
    number: u64,
}

/// A memory that follows another one, in order and late.
#[derive(Debug)]
pub(in crate::sim) struct Replica {
    table: Table,
    changes: VecDeque<Change>,
    last_arrival: Instant,
}

impl Replica {
    /// In step with `table`.
    pub(in crate::sim) fn of(table: &Table) -> Self {
        Self { table: table.clone(), changes: VecDeque::new(), last_arrival: Instant::now() }
    }

    /// What is on a key now gets here at `arrives`, and not before what changed earlier.
    pub(in crate::sim) fn follow(&mut self, table: &Table, on: &ClaimKey, arrives: Instant) {
        self.last_arrival = self.last_arrival.max(arrives);
        let (arrives, on, places) = (self.last_arrival, on.clone(), table.on(on).to_vec());
        let number = table.last_fence(&on);
        self.changes.push_back(Change { arrives, on, places, number });
        self.catch_up();
    }

    fn catch_up(&mut self) {
        let arrived = |change: &&Change| change.arrives <= Instant::now();
        for _ in 0..self.changes.iter().take_while(arrived).count() {
            if let Some(change) = self.changes.pop_front() {
                self.table.set(&change.on, change.places, change.number);
            }
        }
    }

    /// What has arrived by now; the rest is lost.
    pub(in crate::sim) fn take_over(&mut self) -> Table {
        self.catch_up();
        self.changes.clear();
        self.table.clone()
    }
}
