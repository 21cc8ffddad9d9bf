//! What the Redis store keeps in Redis, and how: the names and types of its keys, their expiries, and what happens when
//! others, a lack of memory or a restart meddle with them. The promises that every engine makes are in the conformance
//! suite; each test here has a server of its own.

#![cfg(feature = "redis")]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test stops at the first surprise"
)]

mod common;

mod batches;
mod extremes;
mod fences;
mod heirs;
mod late;
mod permits;
mod queues;
mod readers;
mod records;
mod together;
