//! Policies: what a guard is to do, as one serialisable type each, so that an attribute, a layer and a configuration file
//! say the same thing.
//!
//! Every field has a default, so a configuration names only what differs; a field that does not exist is an error. Times
//! are written with their unit: `interval = "5s"`.

mod duplicate;
mod idempotency;
mod limit;
mod lock;

use serde::{Deserialize, Serialize};

pub use self::duplicate::DuplicatePolicy;
pub use self::idempotency::{IdempotencyPolicy, InFlight, StoredStatuses};
pub use self::limit::LimitPolicy;
pub use self::lock::LockPolicy;

use crate::error::Error;
use crate::manager::check_name;

/// When a duplicate guard opens again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ReleaseWhen {
    /// As soon as the handler ends, however it ends: only overlapping duplicates are refused.
    #[default]
    OnCompletion,
    /// As soon as the handler fails: an error, a status of 400 or more, a panic, a drop. After a success the rest of the
    /// interval is kept, for the double click that comes just after.
    OnFailure,
    /// Not before the interval is over.
    Never,
}

/// What happens to a handler, and to what it holds, when its client goes away before it has its answer.
///
/// Of guards in each other, one that finishes has its way: those around it hold what they have until the handler is done,
/// whatever they say themselves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Disconnect {
    /// The handler runs on to its end, in a task of its own, and then gives back what it holds.
    Finish,
    /// The handler is dropped, and what it holds is given back.
    Release,
    /// The handler is dropped, and what it holds is kept until it runs out by itself.
    Hold,
}

/// For how long a guard holds while a response is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Streaming {
    /// Until its head is ready.
    #[default]
    UntilHead,
    /// Until its body has ended, or was dropped.
    UntilEnd,
}

/// Checks what all policies have: a name, and a status that is to be answered instead of the usual one.
fn check_common(name: Option<&str>, status: Option<u16>) -> Result<(), Error> {
    check_name(name)?;
    match status {
        Some(status) if !(400..=599).contains(&status) => {
            Err(Error::option("status", &status, "accepted is 400 to 599"))
        }
        _ => Ok(()),
    }
}

/// The setters that all policies have.
macro_rules! common_setters {
    ($unless_set:literal) => {
        /// How this guard is called in metrics and logs, 1 to 64 bytes without control characters. Unless set, it is
        #[doc = $unless_set]
        pub fn name(mut self, name: impl Into<String>) -> Self {
            self.name = Some(name.into());
            self
        }

        /// What to do when the engine fails; unless set, what the guards' settings, or else the manager, say.
        pub const fn strategy(mut self, strategy: crate::manager::Strategy) -> Self {
            self.strategy = Some(strategy);
            self
        }

        /// Whether the guard works at all. One that does not lets everybody through and asks nothing.
        pub const fn enabled(mut self, enabled: bool) -> Self {
            self.enabled = enabled;
            self
        }

        /// Shadow mode: everything is done and counted, and nobody is refused, nor kept waiting: who would have had to wait
        /// counts like one who would have been refused.
        pub const fn shadow(mut self, shadow: bool) -> Self {
            self.shadow = shadow;
            self
        }

        /// What happens when the client goes away.
        pub const fn disconnect(mut self, disconnect: super::Disconnect) -> Self {
            self.disconnect = disconnect;
            self
        }

        /// The status of a refusal by this guard, 400 to 599, instead of the usual one.
        pub const fn status(mut self, status: u16) -> Self {
            self.status = Some(status);
            self
        }

        /// Whether GET, HEAD and OPTIONS requests are guarded too. They are not, unless asked for.
        pub const fn safe_methods(mut self, guarded: bool) -> Self {
            self.safe_methods = guarded;
            self
        }
    };
}
pub(crate) use common_setters;
