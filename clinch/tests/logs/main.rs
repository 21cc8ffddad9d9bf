//! What is logged, at which level, and what never is.

#![cfg(all(feature = "axum", feature = "macros", feature = "redis"))]

mod common;
mod levels;
mod secrets;
