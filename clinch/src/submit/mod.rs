//! The duplicate guard, and the policies of all guards. Nothing here knows HTTP.
//!
//! ```text
//! Policy, Settings ─┐
//! Identity ─────────┤
//! Params ───────────┴→ Submission → key → Guards → LockManager → Admission
//! ```
//!
//! [`Guards`] let callers in as a policy says: a [`DuplicatePolicy`] for submissions, a [`LockPolicy`] or a [`LimitPolicy`] for
//! work. Whoever was let in has an [`Admission`]; how its end is told decides what becomes of the lease.

mod admission;
mod counts;
mod defaults;
pub(crate) mod duration;
mod entering;
mod fingerprint;
mod guards;
mod identity;
mod policy;
#[cfg_attr(not(feature = "macros"), expect(dead_code, reason = "attributes ask it"))]
pub(crate) mod request;
mod settings;
mod submission;

pub use self::admission::Admission;
#[cfg(feature = "http")]
pub(crate) use self::admission::Ending;
#[cfg(feature = "http")]
pub(crate) use self::counts::Event;
pub use self::counts::GuardCounts;
pub use self::defaults::Defaults;
#[cfg(feature = "http")]
pub(crate) use self::entering::Entered;
pub use self::fingerprint::{Fingerprint, FingerprintError, Limits, Params};
#[cfg(any(feature = "http", feature = "macros"))]
pub(crate) use self::guards::log_duplicate;
pub use self::guards::{AsGuards, Guards};
pub use self::identity::Identity;
pub use self::policy::{
    Disconnect, DuplicatePolicy, IdempotencyPolicy, InFlight, LimitPolicy, LockPolicy, ReleaseWhen,
    StoredStatuses, Streaming,
};
pub use self::settings::Settings;
pub use self::submission::Submission;
#[cfg(feature = "http")]
pub(crate) use self::submission::{Came, Comes, compose};

impl From<FingerprintError> for crate::Error {
    fn from(error: FingerprintError) -> Self {
        Self::TooLarge { reason: error.to_string() }
    }
}
