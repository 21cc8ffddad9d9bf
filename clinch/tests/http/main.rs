//! Guards over real HTTP, on memory and on Redis.
#![cfg(feature = "axum")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, dead_code, reason = "tests")]

mod common;
mod idempotency;
mod idempotency_bodies;
mod idempotency_endings;
mod idempotency_faults;
mod idempotency_flight;
mod keyed;
mod policies;
mod seeds;
mod stage;
