//! What callers get when there is no lease.

use std::time::Duration;

use crate::key::{Key, KeyError};
use crate::lease::{Holder, Record};
use crate::manager::Loss;
use crate::store::StoreError;

/// Why a call to the manager gave no lease, or could not do what was asked.
///
/// Its `Debug` reads like its `Display`, because that is what `main` and `unwrap` print.
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The text given as a key is not one. Nothing was sent.
    #[error("invalid key: {0}")]
    InvalidKey(KeyError),

    /// An option has a value that cannot work. Nothing was sent.
    #[error("invalid {field}: {value}; {accepted}")]
    InvalidOption {
        /// The option.
        field: &'static str,
        /// The value that was given.
        value: String,
        /// What it accepts.
        accepted: String,
    },

    /// The engine's address cannot be used. It is given without its password.
    #[error("invalid engine URL `{url}`: {reason}")]
    InvalidUrl {
        /// The address, its password hidden.
        url: String,
        /// What is wrong with it and what is accepted.
        reason: String,
    },

    /// The configuration cannot be used. Nothing was sent.
    #[cfg(feature = "config")]
    #[error("{0}")]
    Config(crate::config::ConfigError),

    /// Somebody else has the lock, or all permits of the limit are taken, and the time to wait for it is over.
    #[error("{denied}")]
    LockNotAcquired {
        /// The key.
        key: Key,
        /// Who has it, and when asking again makes sense.
        denied: Box<Denied>,
    },

    /// The engine failed. The lock is not held; what an attempt may have left behind is taken back in the background,
    /// and is gone after its TTL at the latest.
    #[error("engine failure at {operation}{}: {cause}", OnKey(key.as_ref()))]
    Engine {
        /// What was being done.
        operation: &'static str,
        /// The key, where there was one.
        key: Option<Key>,
        /// The failure. (Not a `source` in the sense of [`std::error::Error`]: its text is part of this error's.)
        cause: StoreError,
    },

    /// The lease ended while the block ran under it, and the block was dropped, as
    /// [`cancel_on_loss`](crate::WithLock::cancel_on_loss) asks.
    #[error("the lease on `{key}` was lost ({loss}); the block under it was dropped")]
    LeaseLost {
        /// The key.
        key: Key,
        /// Why.
        loss: Loss,
    },

    /// The scope in which a re-entrant lock was asked for has ended. Nothing was sent.
    #[error("the scope has ended in which `{key}` was asked for; open a new one with `LockManager::scope`")]
    ScopeEnded {
        /// The key.
        key: Key,
    },

    /// The scope holds part of what is asked for in a way that would make it wait for itself for ever. Nothing was sent.
    #[error("`{key}` would be waited for by its own holder: {reason}")]
    SelfDeadlock {
        /// The key.
        key: Key,
        /// What is held, what was asked for, and what to do.
        reason: &'static str,
    },

    /// The same was submitted before, and is still running, or was a moment ago.
    #[error(
        "duplicate submission on `{key}`: {message} ({}; {} ms left)",
        if *in_progress { "the first one is still running" } else { "the first one is done" },
        remaining.as_millis()
    )]
    DuplicateSubmit {
        /// The key of the guard.
        key: Key,
        /// What the guard's policy says to the user.
        message: String,
        /// How long it stands in the way at most: never less than 1 ms.
        remaining: Duration,
        /// Whether the first one is still running, as opposed to an interval that is kept after it.
        in_progress: bool,
    },

    /// A submission is larger or deeper than the guard looks at. Nothing was sent, and the handler was not called.
    #[error("{reason}")]
    TooLarge {
        /// What is too large, and what is accepted.
        reason: String,
    },

    /// A submission could not be read. Nothing was sent, and the handler was not called.
    #[error("{reason}")]
    Unreadable {
        /// Why.
        reason: &'static str,
    },

    /// A guard's key needs a parameter that the request does not have. Nothing was sent, and the handler was not called.
    #[error("the parameter `{name}` is missing, which the guard of this request needs")]
    MissingParameter {
        /// Its name.
        name: String,
    },

    /// A guard's key needs a parameter that the request has more than once. Nothing was sent, and the handler was not called.
    #[error("the parameter `{name}` is there more than once, and the guard of this request needs one")]
    RepeatedParameter {
        /// Its name.
        name: String,
    },

    /// An attribute, or a policy, needs something that it was not given. Nothing was sent.
    #[error("{what} is missing: {remedy}")]
    Missing {
        /// What.
        what: &'static str,
        /// How to give it.
        remedy: &'static str,
    },

    /// The manager was shut down and takes no new attempts.
    #[error("the lock manager was shut down{}; nothing was acquired", OnKey(key.as_ref()))]
    ShutDown {
        /// The key, where there was one.
        key: Option<Key>,
    },
}

impl std::fmt::Debug for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self}")
    }
}

impl Error {
    pub(crate) fn engine(operation: &'static str, key: Option<&Key>, cause: StoreError) -> Self {
        Self::Engine { operation, key: key.cloned(), cause }
    }

    pub(crate) fn denied(denied: Denied) -> Self {
        Self::LockNotAcquired { key: denied.key.clone(), denied: Box::new(denied) }
    }

    pub(crate) fn option(field: &'static str, value: &impl ToString, accepted: impl Into<String>) -> Self {
        Self::InvalidOption { field, value: value.to_string(), accepted: accepted.into() }
    }

    /// The key that the error is about, where there is one.
    pub fn key(&self) -> Option<&Key> {
        match self {
            Self::LockNotAcquired { key, .. }
            | Self::DuplicateSubmit { key, .. }
            | Self::LeaseLost { key, .. }
            | Self::ScopeEnded { key }
            | Self::SelfDeadlock { key, .. } => Some(key),
            Self::Engine { key, .. } | Self::ShutDown { key } => key.as_ref(),
            #[cfg(feature = "config")]
            Self::Config(_) => None,
            Self::InvalidKey(_)
            | Self::InvalidOption { .. }
            | Self::InvalidUrl { .. }
            | Self::TooLarge { .. }
            | Self::Unreadable { .. }
            | Self::MissingParameter { .. }
            | Self::RepeatedParameter { .. }
            | Self::Missing { .. } => None,
        }
    }

    /// Whether trying the same again, later, can help.
    pub const fn is_retryable(&self) -> bool {
        match self {
            Self::LockNotAcquired { .. } | Self::DuplicateSubmit { .. } | Self::LeaseLost { .. } => true,
            Self::Engine { cause, .. } => cause.is_retryable(),
            #[cfg(feature = "config")]
            Self::Config(_) => false,
            Self::InvalidKey(_)
            | Self::InvalidOption { .. }
            | Self::InvalidUrl { .. }
            | Self::ScopeEnded { .. }
            | Self::SelfDeadlock { .. }
            | Self::TooLarge { .. }
            | Self::Unreadable { .. }
            | Self::MissingParameter { .. }
            | Self::RepeatedParameter { .. }
            | Self::Missing { .. }
            | Self::ShutDown { .. } => false,
        }
    }
}

/// By hand: the key error's text is part of this error's, so it is not its source as well.
impl From<KeyError> for Error {
    fn from(error: KeyError) -> Self {
        Self::InvalidKey(error)
    }
}

#[cfg(feature = "config")]
impl From<crate::config::ConfigError> for Error {
    fn from(error: crate::config::ConfigError) -> Self {
        Self::Config(error)
    }
}

/// Formats ` on KEY`, or nothing.
struct OnKey<'a>(Option<&'a Key>);

impl std::fmt::Display for OnKey<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.map_or(Ok(()), |key| write!(f, " on `{key}`"))
    }
}

/// An attempt that was denied: by whom, and when asking again makes sense.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Denied {
    /// The key.
    pub key: Key,
    /// Why.
    pub cause: DeniedBy,
    /// Who has it, as far as the engine could tell.
    pub holder: Option<Holder>,
    /// The time until that holder's lease runs out unless it is renewed; at least 1 ms where it is known.
    pub retry_after: Option<Duration>,
    /// What was left by one whose work is done, if that is why ([`DeniedBy::Done`]).
    pub done: Option<Record>,
    /// How long the caller was willing to wait: its `wait`.
    pub wait: Duration,
    /// Whether the one who has it is of the same scope, such as the same request: waiting would not help, a
    /// [`reentrant`](crate::LockOptions::reentrant) lock would.
    pub by_own_scope: bool,
}

/// What an attempt failed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DeniedBy {
    /// The lock is held.
    Lock,
    /// All permits of the limit are taken.
    Limit,
    /// The lock was granted, but the answer came after its validity had ended; it was given back.
    TooLate,
    /// The lock was granted, and ended by force before the answer came; it was given back.
    Revoked,
    /// Nobody holds it, but its work is done, and that is kept for a while. Only for duplicate guards and idempotency keys.
    Done,
}

impl std::fmt::Display for Denied {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.cause == DeniedBy::Limit {
            write!(f, "no permit: all of `{}` are taken", self.key)?;
            if let Some(holder) = &self.holder {
                write!(f, "; the first to end is {holder}")?;
            }
        } else {
            write!(f, "lock not acquired: `{}` ", self.key)?;
        }
        match (self.cause, &self.holder) {
            (DeniedBy::Limit, _) => {}
            (DeniedBy::TooLate, _) => {
                return f.write_str(
                    "was granted only after its validity had ended, and was given back; use a longer TTL or a faster engine",
                );
            }
            (DeniedBy::Revoked, _) => {
                return f.write_str("was granted and ended by force before the answer came; try again");
            }
            (DeniedBy::Done, _) => {
                f.write_str("was carried out a moment ago")?;
                return match self.retry_after {
                    Some(left) => write!(f, ", which counts for {} ms more", left.as_millis()),
                    None => Ok(()),
                };
            }
            (DeniedBy::Lock, Some(holder)) => write!(f, "is held by {holder}")?,
            (DeniedBy::Lock, None) => f.write_str("is held")?,
        }
        if self.by_own_scope {
            f.write_str(", which is of the same scope; make it `reentrant` to enter it again")
        } else if self.wait.is_zero() {
            f.write_str("; it was tried once (set a `wait` to wait for it)")
        } else {
            write!(f, "; waited {} ms", self.wait.as_millis())
        }
    }
}
