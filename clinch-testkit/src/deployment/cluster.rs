//! A Redis Cluster.

use std::ops::RangeInclusive;

use super::{scheme, until};
use crate::server::{Builder, RedisServer, Reply};

const SLOTS: usize = 16384;

/// Primaries that share all slots evenly, and their replicas.
#[derive(Debug)]
pub struct RedisCluster {
    nodes: Vec<RedisServer>,
    primaries: usize,
}

impl RedisCluster {
    /// Three primaries without replicas.
    #[must_use]
    pub fn start() -> Self {
        Self::start_with(3, 0)
    }

    /// So many primaries, each with so many replicas. [`nodes`](Self::nodes) has the primaries first, and then one replica of
    /// each of them in their order, and so on.
    ///
    /// # Panics
    ///
    /// If it does not come up in time.
    #[must_use]
    pub fn start_with(primaries: usize, replicas: usize) -> Self {
        Self::start_from(&RedisServer::builder(), primaries, replicas)
    }

    /// The same, of servers with these options.
    ///
    /// # Panics
    ///
    /// If it does not come up in time.
    #[must_use]
    pub fn start_from(like: &Builder, primaries: usize, replicas: usize) -> Self {
        let node = |_| {
            let builder = like.clone().arg("cluster-enabled", "yes").arg("cluster-node-timeout", "3000");
            builder.arg("repl-ping-replica-period", "1").start()
        };
        let nodes: Vec<_> = (0..primaries * (replicas + 1)).map(node).collect();
        let cluster = Self { nodes, primaries };
        for (number, node) in cluster.nodes.iter().enumerate() {
            cluster.ask(number, &["CLUSTER", "SET-CONFIG-EPOCH", &(number + 1).to_string()]);
            if number < primaries {
                let slots: Vec<_> = cluster.first_slots(number).map(|slot| slot.to_string()).collect();
                let slots = slots.iter().map(String::as_str);
                cluster.ask(number, &["CLUSTER", "ADDSLOTS"].into_iter().chain(slots).collect::<Vec<_>>());
            }
            if number > 0 {
                cluster.ask(0, &["CLUSTER", "MEET", "127.0.0.1", &node.peer_port().to_string()]);
            }
        }
        until("all servers of the Cluster to know each other", || cluster.agree(false).then_some(()));
        for replica in primaries..cluster.nodes.len() {
            let of = cluster.id(replica % primaries);
            until("a replica to know its primary", || {
                (!cluster.nodes[replica].command(&["CLUSTER", "REPLICATE", &of]).is_error()).then_some(())
            });
        }
        cluster.wait_until_healthy();
        cluster
    }

    /// The slots that a primary begins with.
    fn first_slots(&self, primary: usize) -> RangeInclusive<usize> {
        let share = |number: usize| number * SLOTS / self.primaries;
        share(primary)..=share(primary + 1) - 1
    }

    /// `redis+cluster://…`, with all primaries; `rediss+cluster://…` if they speak TLS with each other.
    #[must_use]
    pub fn url(&self) -> String {
        let primaries = self.nodes[..self.primaries].iter();
        let hosts: Vec<_> = primaries.map(|node| node.peer_addr().to_string()).collect();
        format!("{}+cluster://{}", scheme(&self.nodes[0]), hosts.join(","))
    }

    /// The servers.
    #[must_use]
    pub fn nodes(&self) -> &[RedisServer] {
        &self.nodes
    }

    /// The slot of a key, as the servers count it.
    #[must_use]
    pub fn slot(&self, key: &str) -> usize {
        let slot = self.ask(self.running(), &["CLUSTER", "KEYSLOT", key]).int().expect("a slot is a number");
        usize::try_from(slot).expect("a slot is not negative")
    }

    /// Which of the [nodes](Self::nodes) serves a slot, as most of those that run see it.
    ///
    /// # Panics
    ///
    /// If nobody does in time.
    #[must_use]
    pub fn owner(&self, slot: usize) -> usize {
        until("somebody who serves the slot", || {
            let votes: Vec<_> = self.alive().filter_map(|node| self.owner_by(node, slot)).collect();
            let alive = self.alive().count();
            (0..self.nodes.len()).find(|node| votes.iter().filter(|vote| *vote == node).count() * 2 > alive)
        })
    }

    /// The server of a key.
    #[must_use]
    pub fn server_of(&self, key: &str) -> &RedisServer {
        &self.nodes[self.owner(self.slot(key))]
    }

    fn owner_by(&self, node: usize, slot: usize) -> Option<usize> {
        let Ok(Reply::Array(rows)) = self.nodes[node].try_command(&["CLUSTER", "SLOTS"]) else { return None };
        rows.iter().find_map(|row| {
            let Reply::Array(row) = row else { return None };
            let number = |at: usize| usize::try_from(row.get(at)?.int()?).ok();
            if !(number(0)?..=number(1)?).contains(&slot) {
                return None;
            }
            let Reply::Array(primary) = row.get(2)? else { return None };
            let port = primary.get(1)?.int()?;
            self.nodes.iter().position(|node| i64::from(node.port()) == port)
        })
    }

    /// `CLUSTER MYID`
    #[must_use]
    pub fn id(&self, node: usize) -> String {
        self.ask(node, &["CLUSTER", "MYID"]).text().expect("an id is text")
    }

    /// Those whose process runs.
    fn alive(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.nodes.len()).filter(|node| self.nodes[*node].is_running())
    }

    fn running(&self) -> usize {
        self.alive().next().expect("a server of the Cluster that runs")
    }

    fn ask(&self, node: usize, command: &[&str]) -> Reply {
        let reply = self.nodes[node].command(command);
        assert!(!reply.is_error(), "{command:?}: {reply:?}");
        reply
    }

    /// Whether all that run agree on who serves what, and, if `healthy`, that all is well and in step.
    fn agree(&self, healthy: bool) -> bool {
        let ports = self.nodes.iter().map(|node| node.port().to_string()).collect::<Vec<_>>();
        let mut maps = Vec::new();
        for node in self.alive() {
            let node = &self.nodes[node];
            let Some(nodes) = node.try_command(&["CLUSTER", "NODES"]).ok().and_then(|nodes| nodes.text())
            else {
                return false;
            };
            let info =
                node.try_command(&["CLUSTER", "INFO"]).ok().and_then(|info| info.text()).unwrap_or_default();
            let handshake = nodes.contains("handshake") || nodes.contains("fail?");
            let known = ports.iter().all(|port| nodes.contains(&format!(":{port}@")));
            if handshake || !known || !info.contains("cluster_state:ok") {
                return false;
            }
            if healthy && nodes.contains("slave") {
                let replication =
                    node.try_command(&["INFO", "replication"]).ok().and_then(|info| info.text());
                let replication = replication.unwrap_or_default();
                if replication.contains("role:slave") && !replication.contains("master_link_status:up") {
                    return false;
                }
            }
            maps.push(format!("{:?}", node.try_command(&["CLUSTER", "SLOTS"]).ok().map(sorted)));
        }
        maps.windows(2).all(|pair| pair[0] == pair[1])
    }

    /// Waits until all servers that run agree on who serves what, every slot is served, and replicas are in step.
    ///
    /// # Panics
    ///
    /// If it takes too long.
    pub fn wait_until_healthy(&self) {
        let replicas = self.nodes.len() - self.primaries;
        until("a healthy Cluster", || {
            let all_run = self.alive().count() == self.nodes.len();
            let seen = self.nodes[self.running()].try_command(&["CLUSTER", "NODES"]).ok()?.text()?;
            let placed = !all_run || seen.matches("slave").count() == replicas;
            (placed && self.agree(true)).then_some(())
        });
    }

    /// Waits until a slot is served by another than that one. Returns by which.
    ///
    /// # Panics
    ///
    /// If it takes too long.
    pub fn wait_for_other_than(&self, before: usize, slot: usize) -> usize {
        until("another owner of the slot", || Some(self.owner(slot)).filter(|now| *now != before))
    }

    /// Begins to move a slot: who asks for a key that is not there any more is sent on with `ASK`.
    pub fn begin_move(&self, slot: usize, to: usize) -> usize {
        let from = self.owner(slot);
        let text = slot.to_string();
        self.ask(to, &["CLUSTER", "SETSLOT", &text, "IMPORTING", &self.id(from)]);
        self.ask(from, &["CLUSTER", "SETSLOT", &text, "MIGRATING", &self.id(to)]);
        from
    }

    /// Moves the keys of a slot that is being moved.
    pub fn move_keys(&self, slot: usize, from: usize, to: usize) {
        let port = self.nodes[to].peer_port().to_string();
        loop {
            let keys = self.ask(from, &["CLUSTER", "GETKEYSINSLOT", &slot.to_string(), "100"]);
            let Reply::Array(keys) = keys else { panic!("keys are a list") };
            if keys.is_empty() {
                return;
            }
            for key in keys.iter().filter_map(Reply::text) {
                self.ask(from, &["MIGRATE", "127.0.0.1", &port, &key, "0", "5000"]);
            }
        }
    }

    /// Ends the move of a slot.
    pub fn end_move(&self, slot: usize, from: usize, to: usize) {
        let (text, id) = (slot.to_string(), self.id(to));
        self.ask(to, &["CLUSTER", "SETSLOT", &text, "NODE", &id]);
        self.ask(from, &["CLUSTER", "SETSLOT", &text, "NODE", &id]);
        until("all to know of the move", || {
            self.alive().all(|node| self.owner_by(node, slot) == Some(to)).then_some(())
        });
    }

    /// Moves a slot with its keys, from whoever has it.
    pub fn move_slot(&self, slot: usize, to: usize) {
        let from = self.begin_move(slot, to);
        if from != to {
            self.move_keys(slot, from, to);
            self.end_move(slot, from, to);
        }
    }
}

/// Servers tell ranges in no order.
fn sorted(reply: Reply) -> Vec<String> {
    let Reply::Array(rows) = reply else { return Vec::new() };
    let mut rows: Vec<_> = rows
        .iter()
        .map(|row| {
            // Without the replicas, whose order differs too.
            let Reply::Array(row) = row else { return String::new() };
            format!("{:?}", &row[..row.len().min(3)])
        })
        .collect();
    rows.sort();
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_comes_up_moves_slots_and_fails_over() {
        let cluster = RedisCluster::start_with(3, 1);
        let slot = cluster.slot("k");
        let from = cluster.owner(slot);
        cluster.nodes()[from].set("k", "v");
        let to = (from + 1) % 3;
        cluster.move_slot(slot, to);
        assert_eq!(cluster.owner(slot), to);
        assert_eq!(cluster.server_of("k").get("k").as_deref(), Some("v"));
        cluster.nodes()[to].kill();
        assert_eq!(cluster.wait_for_other_than(to, slot), to + 3, "its replica");
        cluster.nodes()[to].restart();
        cluster.wait_until_healthy();
    }
}
