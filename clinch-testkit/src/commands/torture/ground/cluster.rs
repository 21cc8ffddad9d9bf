//! Three primaries with a replica each. A shard's failover may forget what was not replicated yet; a slot that moves forgets
//! nothing.

use clinch_testkit::deployment::RedisCluster;
use clinch_testkit::server::RedisServer;
use rand::RngExt;

use super::{Cost, Ground, leases, pause};

const PRIMARIES: usize = 3;
const FAULTS: [&str; 5] =
    ["slot moved", "slot moved slowly", "primary killed", "primary stopped", "scripts forgotten"];

pub(super) struct Cluster {
    cluster: RedisCluster,
    /// Which were the primaries when they were looked at last.
    primaries: Vec<bool>,
}

impl Cluster {
    pub(super) fn start() -> Self {
        let cluster = RedisCluster::start_with(PRIMARIES, 1);
        let primaries = primaries(&cluster);
        Self { cluster, primaries }
    }

    /// The slot of one of the keys that are fought over, who has it, and another primary.
    fn slot(&self) -> (usize, usize, usize) {
        let key = format!("clinch:lock:k{}", rand::rng().random_range(0..super::super::KEYS));
        let slot = self.cluster.slot(&key);
        let from = self.cluster.owner(slot);
        // The owners of other slots, of which there are some far away.
        let others = (0..3).map(|i| self.cluster.owner((slot + 1 + i * 16384 / 3) % 16384));
        let to = others.into_iter().find(|owner| *owner != from);
        (slot, from, to.expect("three primaries have all slots between them"))
    }
}

fn primaries(cluster: &RedisCluster) -> Vec<bool> {
    let is_primary =
        |node: &RedisServer| node.info("replication").get("role").is_some_and(|role| role == "master");
    cluster.nodes().iter().map(is_primary).collect()
}

impl Ground for Cluster {
    fn url(&self, _: usize) -> String {
        self.cluster.url()
    }

    fn faults(&self) -> &'static [&'static str] {
        &FAULTS
    }

    fn strike(&mut self, fault: &str) -> Cost {
        let cluster = &self.cluster;
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
        let before = std::mem::replace(&mut self.primaries, primaries(cluster));
        if before == self.primaries { Cost::Nothing } else { Cost::Exclusion }
    }

    fn by_itself(&mut self) -> Cost {
        let before = std::mem::replace(&mut self.primaries, primaries(&self.cluster));
        if before == self.primaries { Cost::Nothing } else { Cost::Exclusion }
    }

    fn left(&self) -> Vec<String> {
        let mut left: Vec<_> = self.cluster.nodes().iter().flat_map(leases).collect();
        left.sort();
        // A replica has the same.
        left.dedup();
        left
    }
}
