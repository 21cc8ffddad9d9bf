//! What is measured, read back from a real recorder.

#![cfg(all(feature = "metrics", feature = "axum", feature = "redis"))]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::large_futures,
    reason = "a test stops at the first surprise, and its stack is large enough"
)]

mod common;
mod deploy;
mod everything;
mod faults;
mod load;
mod misses;
mod names;
