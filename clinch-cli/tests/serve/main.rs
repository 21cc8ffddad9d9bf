//! `clinch serve` over HTTP, on the memory engine and on a real Redis.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "clippy does not see that these are tests"
)]

mod access;
mod browser;
mod common;
mod console;
mod ending;
mod health;
mod limits;
mod playground;
mod prometheus;
