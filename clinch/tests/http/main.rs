//! Guards over real HTTP, on memory and on Redis.
#![cfg(feature = "axum")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, dead_code, reason = "tests")]

mod attack;
mod bench;
mod common;
mod disconnect;
mod handlers;
mod hardening;
mod hardening_nested;
mod hardening_shown;
mod hostile;
mod idempotency;
mod idempotency_bodies;
mod idempotency_endings;
mod idempotency_faults;
mod idempotency_flight;
mod keyed;
mod nested;
mod panics;
mod policies;
mod releases;
mod seeds;
mod stage;
mod streaming;
mod wire;
