//! What can go wrong between the manager and an engine.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

/// A step that a store could not finish: what happened, whether it took effect, and whether a retry can help.
#[derive(Debug, Clone)]
pub struct StoreError {
    kind: ErrorKind,
    effect: Effect,
    retryable: bool,
    message: String,
    source: Option<Arc<dyn Error + Send + Sync>>,
}

/// Whether a failed step took effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Effect {
    /// The engine did not carry it out and never will.
    NotApplied,
    /// It may have been carried out, or may still be. "Not held" proves nothing now.
    Unknown,
}

/// What kind of failure it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The engine cannot be reached, or the connection broke.
    Unavailable,
    /// No answer within the time limit.
    Timeout,
    /// Too many calls are in flight, and no place became free within the time limit.
    Overloaded,
    /// The engine is there but cannot serve now (loading, busy, no master).
    Busy,
    /// The engine refuses the credentials, or the user may not run the step.
    Auth,
    /// The engine takes no writes: a read-only replica.
    ReadOnly,
    /// The engine is out of memory, or a bound is reached; nothing was evicted to make room.
    Full,
    /// The engine refuses writes for the way it is set up or for the state of its disk or replicas.
    Refused,
    /// The key holds something that is not a lease; it was not touched.
    WrongType,
    /// The store cannot serve such a claim.
    Unsupported,
    /// The other side does not speak the engine's protocol, or gave an answer that makes no sense.
    Protocol,
    /// The address or an option is wrong.
    Config,
    /// The store was closed.
    Closed,
}

impl ErrorKind {
    /// A word for it, for metrics and messages.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Unavailable => "unavailable",
            Self::Timeout => "timeout",
            Self::Overloaded => "overloaded",
            Self::Busy => "busy",
            Self::Auth => "auth",
            Self::ReadOnly => "read_only",
            Self::Full => "full",
            Self::Refused => "refused",
            Self::WrongType => "wrong_type",
            Self::Unsupported => "unsupported",
            Self::Protocol => "protocol",
            Self::Config => "config",
            Self::Closed => "closed",
        }
    }

    /// Whether a failure of this kind usually passes by itself.
    const fn usually_passes(self) -> bool {
        matches!(
            self,
            Self::Unavailable
                | Self::Timeout
                | Self::Overloaded
                | Self::Busy
                | Self::ReadOnly
                | Self::Full
                | Self::Refused
        )
    }
}

impl StoreError {
    /// A step that was not carried out.
    pub fn not_applied(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            effect: Effect::NotApplied,
            retryable: kind.usually_passes(),
            message: message.into(),
            source: None,
        }
    }

    /// A step whose outcome is not known.
    pub fn unknown(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { effect: Effect::Unknown, ..Self::not_applied(kind, message) }
    }

    /// Adds the cause.
    #[must_use]
    pub fn with_source(mut self, source: impl Error + Send + Sync + 'static) -> Self {
        self.source = Some(Arc::new(source));
        self
    }

    /// What happened, without the effect and the advice that its `Display` adds.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// What kind of failure it was.
    pub const fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The engine's own error, where there is one.
    pub fn cause(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as &(dyn Error + 'static))
    }

    /// Whether it took effect.
    pub const fn effect(&self) -> Effect {
        self.effect
    }

    /// Whether trying again can help.
    pub const fn is_retryable(&self) -> bool {
        self.retryable
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        f.write_str(match self.effect {
            Effect::NotApplied => " (not applied",
            Effect::Unknown => " (outcome unknown",
        })?;
        f.write_str(if self.retryable { "; a retry can help)" } else { "; a retry will not help)" })
    }
}

impl Error for StoreError {
    /// What lies behind the [`cause`](Self::cause), whose own text is part of this error's.
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.cause().and_then(Error::source)
    }
}
