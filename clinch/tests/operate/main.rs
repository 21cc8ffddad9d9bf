//! How an engine is, asked from outside: health, and a close look.

#![cfg(feature = "redis")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test stops at the first surprise"
)]

mod diagnosis;
mod eviction;
mod health;
