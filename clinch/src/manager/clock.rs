//! The clock that does not stop when the machine sleeps.
//!
//! tokio's clock (`CLOCK_MONOTONIC` on Linux) stands still while the machine is suspended, a lease in Redis does not.
//! So validity is also checked against `CLOCK_BOOTTIME` where there is one. Elsewhere a suspended machine is not
//! noticed, and `docs/guarantees.md` says so.

use std::time::Duration;

/// Time since boot, sleep included.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(super) fn boot_now() -> Option<Duration> {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Some(Duration::new(now.tv_sec.try_into().ok()?, now.tv_nsec.try_into().ok()?))
}

/// There is no such clock that we could read safely.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(super) fn boot_now() -> Option<Duration> {
    None
}
