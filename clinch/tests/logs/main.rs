//! What is logged, at which level, and what never is.

#![cfg(all(feature = "axum", feature = "macros", feature = "redis"))]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::large_futures,
    reason = "a test stops at the first surprise, and its stack is large enough"
)]

mod common;
mod levels;
mod secrets;
