//! A Redis Cluster.

use crate::server::RedisServer;

/// A Redis Cluster.
#[derive(Debug)]
pub struct RedisCluster {
    nodes: Vec<RedisServer>,
}
