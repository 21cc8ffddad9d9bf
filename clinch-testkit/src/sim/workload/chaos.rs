//! What strikes by itself, about every second.

use std::sync::Arc;
use std::time::Duration;

use rand::RngExt;
use rand::rngs::StdRng;
use tokio::task::AbortHandle;
use tokio::time::sleep;

use super::ms;
use crate::history::FaultKind;
use crate::sim::{Chance, FaultId, Faults, Gate, Sim, World};

/// For ever.
const FAR: Duration = Duration::from_secs(86_400);

/// A process that can be stopped or killed.
pub(super) struct Victim {
    pub(super) client: usize,
    pub(super) gate: Gate,
    /// What dies with it; empty where it cannot be killed.
    pub(super) tasks: Vec<AbortHandle>,
}

pub(super) struct Chaos {
    pub(super) sim: Sim,
    pub(super) faults: Faults,
    /// How many of the victims have a manager; they come first.
    pub(super) managers: usize,
    pub(super) victims: Vec<Victim>,
}

/// Whether it strikes, without striking yet.
fn strikes(world: &World, kind: FaultKind, client: Option<usize>, chance: Chance) -> Option<FaultId> {
    world.state().fortune.strikes(kind, client, chance)
}

impl Chaos {
    pub(super) async fn reign(self, mut rng: StdRng) {
        if self.faults.is_none() {
            return;
        }
        loop {
            // Whether or not anything strikes, the same numbers are drawn.
            sleep(ms(&mut rng, 300, 1500)).await;
            for world in &self.sim.nodes {
                let client = rng.random_range(0..self.victims.len());
                self.strike_way(world, client);
                self.strike_node(world);
            }
            let (manager, bare) = (rng.random_range(0..u32::MAX), rng.random_range(0..u32::MAX));
            self.strike_process(manager as usize, bare as usize);
        }
    }

    /// Between a client and a node.
    fn strike_way(&self, world: &Arc<World>, client: usize) {
        let faults = &self.faults;
        if let Some(id) = strikes(world, FaultKind::Cut, Some(client), faults.chaos_cut) {
            world.cut(&id);
        }
        if let Some(id) = strikes(world, FaultKind::Partition, Some(client), faults.partition) {
            let time = world.ms_of(&id, 300..=4000);
            world.partition(&id, time);
        }
    }

    /// On a node.
    fn strike_node(&self, world: &Arc<World>) {
        let faults = &self.faults;
        for (kind, chance) in [
            (FaultKind::Stall, faults.stall),
            (FaultKind::Restart, faults.restart),
            (FaultKind::Amnesia, faults.amnesia),
            (FaultKind::LostCounter, faults.lost_counter),
            (FaultKind::Lag, faults.lag),
            (FaultKind::Failover, faults.failover),
            (FaultKind::ClockAhead, faults.clock_ahead),
            (FaultKind::ClockBack, faults.clock_back),
        ] {
            let Some(id) = strikes(world, kind, None, chance) else { continue };
            match kind {
                FaultKind::Stall => world.stall(&id, world.ms_of(&id, 100..=2000)),
                FaultKind::Restart | FaultKind::Amnesia => world.restart(&id),
                FaultKind::LostCounter => world.lose_counters(&id),
                FaultKind::Lag => world.lag(&id, world.ms_of(&id, 200..=3000)),
                FaultKind::Failover => world.fail_over(&id),
                kind => {
                    let by = i64::try_from(world.ms_of(&id, 200..=5000).as_millis()).unwrap_or_default();
                    world.set_clock(&id, if kind == FaultKind::ClockAhead { by } else { -by });
                }
            }
        }
    }

    /// In a process.
    fn strike_process(&self, manager: usize, bare: usize) {
        let (world, faults) = (&self.sim.nodes[0], &self.faults);
        let (managers, bares) = self.victims.split_at(self.managers.min(self.victims.len()));
        for (kind, some, which, chance) in [
            (FaultKind::Paused, managers, manager, faults.paused),
            (FaultKind::Stopped, bares, bare, faults.stopped),
            (FaultKind::Crashed, bares, bare, faults.crashed),
        ] {
            if some.is_empty() {
                continue;
            }
            let Victim { client, gate, tasks } = &some[which % some.len()];
            let Some(id) = strikes(world, kind, Some(*client), chance) else { continue };
            if kind == FaultKind::Crashed {
                world.stop(&id, gate, FAR);
                tasks.iter().for_each(AbortHandle::abort);
                self.sim.nodes.iter().for_each(|world| world.drop_connections(*client));
            } else {
                world.stop(&id, gate, world.ms_of(&id, 500..=9000));
            }
        }
    }
}
