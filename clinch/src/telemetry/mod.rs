//! What can be seen of a manager and its guards from outside: metrics, by the [`metrics`](https://docs.rs/metrics) facade.
//!
//! Everything that is measured is said here, in one small interface that the manager and the guards talk to. With the
//! feature `metrics` it speaks to whatever recorder the program has installed; without it, it is nothing: no code, no state,
//! no clock is read.
//!
//! No label ever has a key, a token or a user in it. Guards go by their names ([`LockOptions::named`], `name` in policies
//! and attributes), or else by what stands in the program text: the template of their key, their route, their function. At most
//! 256 names are told apart in a process; all others are called `other`.
//!
//! [`LockOptions::named`]: crate::LockOptions::named

#[cfg(feature = "metrics")]
mod measured;
#[cfg(feature = "metrics")]
mod meter;
#[cfg(feature = "metrics")]
mod names;
#[cfg(not(feature = "metrics"))]
mod off;
#[cfg(feature = "metrics")]
mod resolved;
mod words;

#[cfg(feature = "metrics")]
pub(crate) use self::measured::measured;
#[cfg(feature = "metrics")]
pub(crate) use self::meter::{BreakerGauge, Hold, LOOK_EVERY, MEASURES, Measured, Meter, Telemetry};
#[cfg(all(feature = "metrics", feature = "submit"))]
pub(crate) use self::meter::{Stopwatch, Visit};
#[cfg(feature = "metrics")]
pub use self::names::{
    ATTEMPTS, BREAKER_OPEN, DUPLICATES, ENGINE_CALL_SECONDS, ENGINE_CALLS, ENGINE_CALLS_IN_FLIGHT,
    ENGINE_FAILURES, GUARD_OVERHEAD_SECONDS, GUARDED_REQUEST_SECONDS, GUARDS_HELD, GUARDS_LEAKED,
    HOLD_SECONDS, LATE_RELEASES, LEASES_LOST, METRICS, Metric, MetricKind, RATIO_BUCKETS, RELEASES, RENEWALS,
    REPLAYS, REQUESTS, SECONDS_BUCKETS, SHADOWED, VALIDITY_LEFT_RATIO, WAIT_SECONDS, WAITERS, WAKEUPS_MISSED,
    describe,
};
#[cfg(not(feature = "metrics"))]
pub(crate) use self::off::{BreakerGauge, Hold, LOOK_EVERY, MEASURES, Measured, Meter, Telemetry, measured};
#[cfg(all(not(feature = "metrics"), feature = "submit"))]
pub(crate) use self::off::{Stopwatch, Visit};
pub(crate) use self::words::{Attempted, Lost, Released, Renewed};
