//! Three primaries with a replica each. A shard's failover may forget what was not replicated yet; a slot that moves forgets
//! nothing.

use clinch_testkit::deployment::RedisCluster;
use rand::RngExt;

use super::{Cost, Ground, leases, pause};

const PRIMARIES: usize = 3;
const FAULTS: [&str; 5] =
    ["slot moved", "slot moved slowly", "primary killed", "primary stopped", "scripts forgotten"];

pub(super) struct Cluster(RedisCluster);

impl Cluster {
    pub(super) fn start() -> Self {
        Self(RedisCluster::start_with(PRIMARIES, 1))
    }

    /// The slot of one of the keys that are fought over, who has it, and another primary.
    fn slot(&self) -> (usize, usize, usize) {
        let key = format!("clinch:lock:k{}", rand::rng().random_range(0..super::super::KEYS));
        let slot = self.0.slot(&key);
        let from = self.0.owner(slot);
        // The owners of other slots, of which there are some far away.
        let others = (0..3).map(|i| self.0.owner((slot + 1 + i * 16384 / 3) % 16384));
        let to = others.into_iter().find(|owner| *owner != from);
        (slot, from, to.expect("three primaries have all slots between them"))
    }
}

impl Ground for Cluster {
    fn url(&self, _: usize) -> String {
        self.0.url()
    }

    fn faults(&self) -> &'static [&'static str] {
        &FAULTS
    }

    fn strike(&mut self, fault: &str) -> Cost {
        let cluster = &self.0;
        let (slot, from, to) = self.slot();
        match fault {
            "slot moved" => cluster.move_slot(slot, to),
            "slot moved slowly" => {
                let from = cluster.begin_move(slot, to);
                pause(50, 1000);
                cluster.move_keys(slot, from, to);
                pause(50, 500);
                // What was written meanwhile.
                cluster.move_keys(slot, from, to);
                cluster.end_move(slot, from, to);
            }
            "primary killed" => {
                cluster.nodes()[from].kill();
                cluster.wait_for_other_than(from, slot);
                cluster.nodes()[from].restart();
            }
            "primary stopped" => {
                cluster.nodes()[from].stop();
                cluster.wait_for_other_than(from, slot);
                cluster.nodes()[from].cont();
            }
            "scripts forgotten" => drop(cluster.nodes()[from].command(&["SCRIPT", "FLUSH"])),
            _ => panic!("`{fault}` is nothing that can be done here"),
        }
        cluster.wait_until_healthy();
        if matches!(fault, "primary killed" | "primary stopped") { Cost::Exclusion } else { Cost::Nothing }
    }

    fn left(&self) -> Vec<String> {
        let mut left: Vec<_> = self.0.nodes().iter().flat_map(leases).collect();
        left.sort();
        // A replica has the same.
        left.dedup();
        left
    }
}
