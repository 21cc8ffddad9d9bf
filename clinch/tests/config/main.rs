//! The configuration: where values come from, what is refused and how that is said, what is shown, and what it does.

#![cfg(all(feature = "config", feature = "macros", feature = "axum", feature = "redis"))]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test stops at the first surprise"
)]

mod effects;
mod errors;
mod example;
mod files;
mod shown;
mod sources;
