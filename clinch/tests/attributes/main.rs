//! Attributes on functions, on the memory engine.

#![cfg(feature = "macros")]

mod shapes;
