//! What is measured, read back from a real recorder.

#![cfg(all(feature = "metrics", feature = "axum", feature = "redis"))]

mod common;
mod deploy;
mod everything;
mod faults;
mod load;
mod misses;
mod names;
