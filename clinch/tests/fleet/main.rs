//! Redis as fleets run it: under Sentinels, as a Cluster, with replicas that must confirm. Everything here is real: real
//! servers, real elections, real resharding.

#![cfg(all(feature = "redis", feature = "conformance"))]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "a test stops at the first surprise"
)]

mod cluster;
mod common;

mod conformance_cluster;
mod conformance_sentinel;
mod replicas;
mod requests;
mod sentinel;
mod tls;
