//! Guards over real HTTP, on memory and on Redis.
#![cfg(feature = "axum")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, dead_code, reason = "tests")]

mod bench;
mod common;
mod disconnect;
mod nested;
mod panics;
mod releases;
mod seeds;
mod streaming;
mod wire;
