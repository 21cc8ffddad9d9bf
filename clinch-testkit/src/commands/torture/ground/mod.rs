//! The deployments on which clients are tortured: how they are reached, what can be done to them, and what is left in them.

mod cluster;
mod quorum;
mod sentinel;
mod single;

use std::time::Duration;

use clinch_testkit::proxy::FaultProxy;
use clinch_testkit::server::RedisServer;
use rand::RngExt;
use tokio::runtime::Handle;

use super::judge::Cost;

/// Which deployment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Deployment {
    /// One server that writes everything to its disk.
    Single,
    /// A primary with two replicas under three Sentinels.
    Sentinel,
    /// Three primaries with a replica each.
    Cluster,
    /// Three servers that know nothing of each other.
    Quorum,
}

impl Deployment {
    /// Starts it, for so many clients.
    pub(super) fn start(self, clients: usize, runtime: &Handle) -> Box<dyn Ground> {
        match self {
            Self::Single => Box::new(single::Single::start(clients, runtime)),
            Self::Sentinel => Box::new(sentinel::Sentinel::start()),
            Self::Cluster => Box::new(cluster::Cluster::start()),
            Self::Quorum => Box::new(quorum::Quorum::start(runtime)),
        }
    }

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Single => "single",
            Self::Sentinel => "sentinel",
            Self::Cluster => "cluster",
            Self::Quorum => "quorum",
        }
    }
}

/// A deployment that runs, and is ended when it is dropped.
pub(super) trait Ground: Send {
    /// Where this client finds it.
    fn url(&self, client: usize) -> String;

    /// What can be done to it.
    fn faults(&self) -> &'static [&'static str];

    /// Does it, and ends it again. Answers what that may have cost, by what is documented of the deployment.
    fn strike(&mut self, fault: &str) -> Cost;

    /// Whether it did something of that kind by itself since it was asked last, as Sentinels do whose primary is slow for a
    /// while: what that may have cost.
    fn by_itself(&mut self) -> Cost {
        Cost::Nothing
    }

    /// What is left in it that should not be; asked when everything has run out.
    fn left(&self) -> Vec<String>;
}

fn pause(from: u64, to: u64) {
    std::thread::sleep(Duration::from_millis(rand::rng().random_range(from..to)));
}

fn one_of<T>(all: &[T]) -> &T {
    &all[rand::rng().random_range(0..all.len())]
}

/// What can be done to the way to a server, on which a proxy stands.
fn strike_wire(fault: &str, proxy: &FaultProxy, runtime: &Handle) {
    match fault {
        "connections reset" => runtime.block_on(proxy.cut_all()),
        "connections refused" => {
            runtime.block_on(async {
                proxy.refuse(true).await;
                proxy.cut_all().await;
            });
            pause(100, 1500);
            runtime.block_on(proxy.refuse(false));
        }
        "black hole" => {
            proxy.stall();
            pause(100, 2500);
            proxy.resume();
        }
        _ => panic!("`{fault}` is nothing that can be done to a wire"),
    }
}

/// The keys of leases and of what waits for them. Counters of fences outlive their leases, as they should.
fn leases(server: &RedisServer) -> Vec<String> {
    server.keys("*").into_iter().filter(|key| !key.starts_with("clinch:fence:")).collect()
}
