//! Real deployments of several servers: a primary with replicas under Sentinels, and a Cluster.
//!
//! Every server is a [`RedisServer`] of its own, so a test may stop, kill, restart and ask each of
//! them, and all are ended when the deployment is dropped. What takes time (an election, a slot map that must reach every
//! node) is waited for by looking, never by a fixed pause.
//!
//! # Partitions
//! Servers of a deployment tell each other and their clients under which addresses they are. So they are parted by rights and not by
//! wires: Sentinels and replicas have users of their own, and a server that takes a user's rights away is deaf to those
//! while clients reach it as before. That is exact, and is undone just as exactly.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "test support: a test without its servers has nothing better to do than to stop with a message"
)]

mod cluster;
mod sentinel;

use std::time::{Duration, Instant};

pub use cluster::RedisCluster;
pub use sentinel::SentinelDeployment;

use crate::server::RedisServer;

/// How long a deployment may take for anything: to come up, to fail over, to heal.
const PATIENCE: Duration = Duration::from_secs(60);

/// Pause between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// What the addresses of clients begin with.
fn scheme(server: &RedisServer) -> &'static str {
    if server.peer_port() == server.port() { "redis" } else { "rediss" }
}

/// Looks until there is something to see.
fn until<T>(what: &str, look: impl FnMut() -> Option<T>) -> T {
    until_or(what, look, String::new)
}

/// The same, with what may explain why there was nothing.
fn until_or<T>(what: &str, mut look: impl FnMut() -> Option<T>, why: impl FnOnce() -> String) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(seen) = look() {
            return seen;
        }
        if Instant::now() >= deadline {
            panic!("waited in vain for {what}\n{}", why());
        }
        std::thread::sleep(LOOK_EVERY);
    }
}
