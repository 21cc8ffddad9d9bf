//! Exactly one caller wins.
//!
//! Clinch gives out *leases*: granted atomically, expiring by themselves, given back only by the one who holds them.
//! On them stand locks, concurrency limits, guards against duplicate submissions and idempotency keys, which work inside one
//! process (the embedded memory engine, no set-up), on one machine (a SQLite file) and across machines (on Redis or Valkey, by
//! changing one URL).
//!
//! ```
//! use std::time::Duration;
//! use clinch::{LockManager, LockOptions};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), clinch::Error> {
//! let locks = LockManager::connect("memory:").await?; // or "redis://127.0.0.1:6379"
//! let options = LockOptions::new(Duration::from_secs(10)).wait(Duration::from_secs(2));
//! let guard = locks.lock("order:42", options).await?;
//! assert!(guard.is_valid());
//! // … the work that only one may do at a time …
//! guard.release().await?;
//! # Ok(())
//! # }
//! ```
//!
//! # The map
//! - [`LockManager`] takes locks; [`LockOptions`] say how; [`LockGuard`] is a lock that is held, [`Lease`] a look at it.
//! - [`Key`] and [`KeyTemplate`] name what is locked.
//! - [`lease`] is the model (claims, attempts, tokens, holders), [`store`] the port that engines implement,
//!   [`stores`] the engines.
//! - `submit` (feature `submit`) has the policies of guards and the duplicate guard as plain calls; `http` (features `http`,
//!   `axum`) puts them before web services as tower layers; the attributes `lock`, `limit` and `prevent_duplicate` (feature
//!   `macros`) put them around functions and handlers.
//! - [`telemetry`] names what is measured (feature `metrics`).
//! - [`fencing`] checks at the resource that a writer is not late.
//! - `config` (a feature of the same name) reads all of this from a file and the environment.
//! - `conformance` (a feature of the same name) is the suite that every store passes.
//!
//! # What is promised
//! A guard computes its own validity: from just before the request was sent, by a clock that only goes forward, minus
//! an allowance for drift. Inside that window exclusion holds as far as the engine keeps its data; after it,
//! [`Lease::is_valid`] is false and [`Lease::lost`] has fired. What each engine can and cannot promise is written in
//! `docs/guarantees.md`.

// What `submit` keeps for the attributes and the layers is unused without them.
#![cfg_attr(not(all(feature = "macros", feature = "axum")), allow(dead_code))]

/// The examples of the README, as tests.
#[cfg(all(doctest, feature = "axum", feature = "config"))]
#[doc = include_str!("../../README.md")]
struct ReadmeExamples;

/// The examples of the guides, as tests.
#[cfg(all(doctest, feature = "axum"))]
#[doc = include_str!("../../docs/choosing.md")]
struct ChoosingExamples;

/// The same.
#[cfg(all(doctest, feature = "axum"))]
#[doc = include_str!("../../docs/migrating.md")]
struct MigratingExamples;

mod apart;
#[cfg(feature = "macros")]
#[doc(hidden)]
pub mod attribute;
#[cfg(feature = "config")]
pub mod config;
#[cfg(feature = "conformance")]
pub mod conformance;
mod error;
pub mod fencing;
/// What fuzz targets need and nobody else.
#[cfg(all(fuzzing, feature = "http"))]
#[doc(hidden)]
pub mod fuzzing {
    /// The key that a request carries.
    ///
    /// # Errors
    /// What is wrong with the header.
    pub fn idempotency_key(
        headers: &::http::HeaderMap,
        lenient: bool,
    ) -> Result<Option<String>, &'static str> {
        crate::http::idempotency_key(headers, lenient)
    }
}
mod hex;
#[cfg(feature = "http")]
pub mod http;
pub mod key;
pub mod lease;
mod manager;
mod stamp;
pub mod store;
pub mod stores;
#[cfg(feature = "submit")]
pub mod submit;
mod sync;
pub mod telemetry;

#[cfg(feature = "macros")]
pub use clinch_macros::{limit, lock, prevent_duplicate};
pub use error::{Denied, DeniedBy, Error};
pub use key::{IntoKey, Key, KeyError, KeyTemplate, TemplateError};
pub use lease::{Fence, Holder, Owner, Record, Token};
pub use manager::{
    Builder, Health, Lease, Limit, LockGuard, LockManager, LockOptions, Loss, Outcome, Scope, Shutdown,
    SingleFlightError, Sources, Strategy, WithLock,
};
#[cfg(shuttle)]
#[doc(hidden)]
pub use sync::{attentive, forget_calls};
