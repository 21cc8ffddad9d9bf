//! Fingerprints: which submissions are the same.
//!
//! `rules` has one test for every rule that `Params` states. `sameness` compares fingerprints with a definition of its
//! own (`model`), on submissions that are written in many ways (`render`) and differ in little (`change`). `hostile`
//! sends what nobody means well by.

#![cfg(feature = "submit")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test stops at the first surprise"
)]

mod change;
mod hostile;
mod model;
mod render;
mod rules;
mod rules_body;
mod rules_exclude;
mod sameness;
