//! What can befall a node as a whole.

use std::sync::Arc;
use std::time::Duration;

use rand::RngExt;
use tokio::time::Instant;

use super::engine::Replica;
use super::{FaultId, Gate, State, World};
use crate::history::{Event, FaultKind, Placed};

impl World {
    /// The connection of a client is cut.
    pub(super) fn cut(self: &Arc<Self>, id: &FaultId) {
        let connections = self.connections(id.client);
        self.fault(id);
        connections.iter().for_each(|connection| connection.cut(self, true));
    }

    /// A client is gone, and its connections with it. What is on its way arrives, or not.
    pub(super) fn drop_connections(&self, client: usize) {
        self.connections(Some(client)).iter().for_each(|connection| connection.cut(self, true));
    }

    /// The process behind the node ends, and another one begins: nothing of what is on its way arrives.
    fn ends(&self, id: &FaultId) {
        self.fault(id);
        for connection in self.connections(None) {
            connection.cut(self, false);
        }
        let down = self.ms_of(id, 10..=300);
        let mut state = self.state();
        state.down_until = Instant::now() + down;
        state.started = self.engine_now(&state);
    }

    /// It restarts, with its memory or without.
    pub(super) fn restart(&self, id: &FaultId) {
        self.ends(id);
        if id.kind != FaultKind::Amnesia {
            return;
        }
        let mut state = self.state();
        let now = self.engine_now(&state);
        for (on, places) in state.table.lose_all() {
            for place in places.iter().filter(|place| self.rules.is_live(place, now)) {
                let (node, place) = (self.node, self.placed(&state, place));
                self.recorder.record(Event::Forgot { node, key: on.to_string(), place });
            }
        }
        // It follows whoever is its primary, wherever that leads.
        if state.replica.is_some() {
            state.replica = Some(Replica::of(&state.table));
        }
    }

    pub(super) fn lose_counters(&self, id: &FaultId) {
        self.fault(id);
        self.state().table.lose_counters();
    }

    pub(super) fn stall(&self, id: &FaultId, time: Duration) {
        self.fault(id);
        let mut state = self.state();
        state.stalled_until = state.stalled_until.max(Instant::now() + time);
    }

    /// A client does not hear the node, nor is heard by it, for a while.
    pub(super) fn partition(&self, id: &FaultId, time: Duration) {
        let Some(client) = id.client else { return };
        self.fault(id);
        self.state().cut_off.insert(client, Instant::now() + time);
    }

    pub(super) fn stop(&self, id: &FaultId, gate: &Gate, time: Duration) {
        let Some(client) = id.client else { return };
        self.fault(id);
        let until = Instant::now() + time;
        gate.stop_until(until);
        let until = until - self.recorder.start();
        self.recorder.record(Event::Stopped { client, until });
    }

    /// The replica is far behind for a while.
    pub(super) fn lag(&self, id: &FaultId, time: Duration) {
        self.fault(id);
        self.state().lags_until = Instant::now() + time;
    }

    /// How long a change is on its way to the replica.
    pub(super) fn replication(&self, state: &mut State) -> Duration {
        let behind = state.lags_until.saturating_duration_since(Instant::now());
        behind + Duration::from_millis(state.fortune.of(None).random_range(1..=30))
    }

    /// The replica takes over: what has not reached it is lost.
    pub(super) fn fail_over(&self, id: &FaultId) {
        if self.state().replica.is_none() {
            return;
        }
        self.ends(id);
        self.rewind(|state| {
            if let Some(mut replica) = state.replica.take() {
                state.table = replica.take_over();
                state.replica = Some(Replica::of(&state.table));
                state.lags_until = Instant::now();
            }
        });
    }

    /// The clock is set, ahead or back.
    pub(super) fn set_clock(&self, id: &FaultId, by_ms: i64) {
        self.fault(id);
        self.rewind(|state| {
            state.set_by += by_ms * 1000;
            state.set_back_ms += u64::try_from(-by_ms).unwrap_or_default();
        });
    }

    /// Changes the memory otherwise than by a step, and writes down what is different.
    fn rewind(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.state();
        let on: Vec<_> = state.table.keys().cloned().collect();
        let before: Vec<_> = on.iter().map(|on| (on.clone(), self.places(&state, on))).collect();
        change(&mut state);
        let mut on: Vec<_> = state.table.keys().cloned().chain(on).collect();
        on.sort_unstable();
        on.dedup();
        for on in on {
            let was = before.iter().find(|(other, _)| *other == on).map(|(_, places)| places.clone());
            let (before, after) = (was.unwrap_or_default(), self.places(&state, &on));
            if before != after {
                let node = self.node;
                self.recorder.record(Event::Rewound { node, key: on.to_string(), before, after });
            }
        }
    }

    pub(super) fn places(&self, state: &State, on: &clinch::lease::ClaimKey) -> Vec<Placed> {
        state.table.on(on).iter().map(|place| self.placed(state, place)).collect()
    }
}
