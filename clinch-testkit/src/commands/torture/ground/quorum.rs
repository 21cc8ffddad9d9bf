//! Three servers that know nothing of each other and keep nothing on disk. Never more than one of them is out: that is what
//! a quorum of three promises to bear, and nothing may be lost by it.

use std::time::Duration;

use clinch_testkit::proxy::FaultProxy;
use clinch_testkit::server::RedisServer;
use rand::RngExt;
use tokio::runtime::Handle;

use super::{Cost, Ground, leases, pause, strike_wire};

const NODES: usize = 3;
/// The longest TTL, for which a restarted server sits out. Servers tell their age in whole seconds.
const MAX_TTL: Duration = Duration::from_secs(2);
const FAULTS: [&str; 7] = [
    "connections reset",
    "connections refused",
    "black hole",
    "node stopped",
    "node killed",
    "scripts forgotten",
    "connections killed",
];

pub(super) struct Quorum {
    nodes: Vec<(RedisServer, FaultProxy)>,
    runtime: Handle,
}

impl Quorum {
    pub(super) fn start(runtime: &Handle) -> Self {
        let node = |_| {
            let server = RedisServer::start();
            let proxy = runtime.block_on(FaultProxy::start(server.addr()));
            (server, proxy)
        };
        let started = Self { nodes: (0..NODES).map(node).collect(), runtime: runtime.clone() };
        Self::sit_out();
        started
    }

    /// Waits until a server that was started has a vote again.
    fn sit_out() {
        std::thread::sleep(MAX_TTL + Duration::from_millis(1500));
    }
}

impl Ground for Quorum {
    fn url(&self, _: usize) -> String {
        let nodes: Vec<_> = self.nodes.iter().map(|(_, proxy)| proxy.addr().to_string()).collect();
        format!("redis+quorum://{}?max_ttl={}s", nodes.join(","), MAX_TTL.as_secs())
    }

    fn faults(&self) -> &'static [&'static str] {
        &FAULTS
    }

    fn strike(&mut self, fault: &str) -> Cost {
        let (server, proxy) = &self.nodes[rand::rng().random_range(0..NODES)];
        match fault {
            "node stopped" => {
                server.stop();
                pause(100, 2500);
                server.cont();
            }
            "node killed" => {
                server.kill();
                pause(0, 500);
                server.restart();
                Self::sit_out();
                // Its votes are gone, and with them the majority of leases that had just enough. Nobody else gets one.
                return Cost::Lease;
            }
            "scripts forgotten" => drop(server.command(&["SCRIPT", "FLUSH"])),
            "connections killed" => {
                for kind in ["normal", "pubsub"] {
                    drop(server.command(&["CLIENT", "KILL", "TYPE", kind]));
                }
            }
            wire => strike_wire(wire, proxy, &self.runtime),
        }
        if fault == "scripts forgotten" { Cost::Nothing } else { Cost::Answer }
    }

    fn left(&self) -> Vec<String> {
        self.nodes.iter().flat_map(|(server, _)| leases(server)).collect()
    }
}
