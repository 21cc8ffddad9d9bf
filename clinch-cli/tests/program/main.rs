//! The program, from outside: what it does, says and ends with.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "clippy does not see that these are tests"
)]

mod bench;
mod common;
mod config;
mod doctor;
mod file;
mod look;
mod places;
mod release;
mod run;
mod screen;
mod usage;
