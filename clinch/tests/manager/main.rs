//! The manager on real engines: what it promises, and what it survives.
//!
//! Every test starts its own server on a free port and stops it again. `/// Proves:` and `/// Fault:` name the
//! requirement and the row of the fault matrix; both are explained in `docs/`.

#![cfg(feature = "redis")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test stops at the first surprise"
)]
#![allow(
    clippy::mem_forget,
    clippy::large_futures,
    reason = "a process that dies drops nothing; and a test's stack is large enough"
)]

mod common;

mod bad_input;
mod bad_leases;
mod cancelling;
mod clock_faults;
mod connections;
mod drops;
mod fair;
mod faults;
mod fences;
mod hardening;
mod hardening_leases;
mod hardening_redis;
mod hardening_runtimes;
mod heirs;
mod limits;
mod locks;
mod passes;
mod renewal;
mod renewal_scale;
mod scopes;
mod server_faults;
mod several;
mod shared;
mod storms;
mod strategies;
mod waiting;
