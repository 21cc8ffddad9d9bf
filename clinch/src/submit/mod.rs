//! The duplicate guard, and the policies of all guards.

mod fingerprint;

pub use fingerprint::{Fingerprint, FingerprintError, Limits, Params};
