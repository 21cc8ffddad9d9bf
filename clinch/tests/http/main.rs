//! Guards over real HTTP, on memory and on Redis.
#![cfg(feature = "axum")]
#![expect(missing_docs, clippy::unwrap_used, clippy::panic, reason = "tests")]

mod common;
mod seeds;
