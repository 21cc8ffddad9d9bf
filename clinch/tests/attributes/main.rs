//! Attributes on functions, on the memory engine. What they refuse at compile time is in `attribute_errors.rs`.

#![cfg(feature = "macros")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test stops at the first surprise"
)]

mod common;

mod attack;
mod duplicates;
mod found;
mod locks;
mod shapes;
