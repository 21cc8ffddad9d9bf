//! The duplicate guard, and the policies of all guards.

mod duration;
mod identity;
mod policy;

pub use self::identity::Identity;
pub use self::policy::{
    Disconnect, DuplicatePolicy, IdempotencyPolicy, InFlight, LimitPolicy, LockPolicy, ReleaseWhen,
    StoredStatuses, Streaming,
};
