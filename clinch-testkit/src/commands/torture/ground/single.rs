//! One server that writes everything to its disk before it answers, so that nothing is lost when it is killed.

use clinch_testkit::proxy::FaultProxy;
use clinch_testkit::server::RedisServer;
use tokio::runtime::Handle;

use super::{Cost, Ground, leases, one_of, pause, strike_wire};

const FAULTS: [&str; 7] = [
    "connections reset",
    "connections refused",
    "black hole",
    "server stopped",
    "server killed",
    "scripts forgotten",
    "connections killed",
];

pub(super) struct Single {
    server: RedisServer,
    /// One for each client, so that one can be cut off alone.
    proxies: Vec<FaultProxy>,
    runtime: Handle,
}

impl Single {
    pub(super) fn start(clients: usize, runtime: &Handle) -> Self {
        let server = RedisServer::builder().appendonly(true).arg("appendfsync", "always").start();
        let proxy = |_| runtime.block_on(FaultProxy::start(server.addr()));
        Self { proxies: (0..clients).map(proxy).collect(), server, runtime: runtime.clone() }
    }
}

impl Ground for Single {
    fn url(&self, client: usize) -> String {
        self.proxies[client].url()
    }

    fn faults(&self) -> &'static [&'static str] {
        &FAULTS
    }

    fn strike(&mut self, fault: &str) -> Cost {
        match fault {
            "server stopped" => {
                self.server.stop();
                pause(100, 2500);
                self.server.cont();
            }
            "server killed" => {
                self.server.kill();
                pause(0, 500);
                self.server.restart();
            }
            "scripts forgotten" => drop(self.server.command(&["SCRIPT", "FLUSH"])),
            "connections killed" => {
                for kind in ["normal", "pubsub"] {
                    drop(self.server.command(&["CLIENT", "KILL", "TYPE", kind]));
                }
            }
            wire => strike_wire(wire, one_of(&self.proxies), &self.runtime),
        }
        if fault == "scripts forgotten" { Cost::Nothing } else { Cost::Answer }
    }

    fn left(&self) -> Vec<String> {
        leases(&self.server)
    }
}
