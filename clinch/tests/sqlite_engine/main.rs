//! What the SQLite store does with its file, its thread and its machine: files that are no good, processes that die at any
//! moment, clocks, locks that others hold, and what is left in the file. The promises that every engine makes are in the
//! conformance suite; each test here has a file of its own.

#![cfg(all(feature = "sqlite", target_os = "linux"))]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test stops at the first surprise"
)]

mod common;
mod kid;

mod busy;
mod clock;
mod diagnosis;
mod disk;
mod files;
mod growth;
mod hearing;
mod processes;
mod threads;
