//! The kinds of refusals, and what each of them says wherever it is met.

/// Why a request was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RefusalKind {
    /// The same was submitted before.
    Duplicate,
    /// Somebody else has the lock.
    Locked,
    /// All permits of the limit are taken.
    Limited,
    /// The engine fails, or the service is shutting down, so nobody can tell.
    Engine,
    /// The submission is too large to be looked at.
    TooLarge,
    /// The request needs an idempotency key and has none.
    IdempotencyKeyMissing,
    /// The header is there, but is not as the draft has it.
    IdempotencyKeyMalformed,
    /// The key came with another request before.
    IdempotencyKeyReused,
    /// The first request with this key is still running.
    IdempotencyInFlight,
    /// The first request with this key was carried out, but its response could not be stored.
    ResponseNotStored,
    /// The request lacks something that the guard needs, or cannot be read.
    BadRequest,
    /// The guard is set up wrongly.
    Internal,
}

impl RefusalKind {
    /// Whether somebody else was in the way.
    pub(in crate::http) const fn is_denial(self) -> bool {
        matches!(self, Self::Duplicate | Self::Locked | Self::Limited | Self::IdempotencyInFlight)
    }

    /// A name for the kind that never changes, as the `type` of the problem: `urn:clinch:problem:duplicate-submit`.
    pub const fn problem_type(self) -> &'static str {
        match self {
            Self::Duplicate => "urn:clinch:problem:duplicate-submit",
            Self::Locked => "urn:clinch:problem:locked",
            Self::Limited => "urn:clinch:problem:limit-reached",
            Self::Engine => "urn:clinch:problem:unavailable",
            Self::TooLarge => "urn:clinch:problem:too-large",
            Self::IdempotencyKeyMissing => "urn:clinch:problem:idempotency-key-missing",
            Self::IdempotencyKeyMalformed => "urn:clinch:problem:idempotency-key-malformed",
            Self::IdempotencyKeyReused => "urn:clinch:problem:idempotency-key-reused",
            Self::IdempotencyInFlight => "urn:clinch:problem:idempotency-in-flight",
            Self::ResponseNotStored => "urn:clinch:problem:response-not-stored",
            Self::BadRequest => "urn:clinch:problem:bad-request",
            Self::Internal => "urn:clinch:problem:internal-error",
        }
    }

    pub(super) const fn title(self) -> &'static str {
        match self {
            Self::Duplicate => "Duplicate submission",
            Self::Locked => "Locked by somebody else",
            Self::Limited => "Limit reached",
            Self::Engine => "Cannot be checked right now",
            Self::TooLarge => "Too large",
            Self::IdempotencyKeyMissing => "Idempotency-Key is missing",
            Self::IdempotencyKeyMalformed => "Idempotency-Key is malformed",
            Self::IdempotencyKeyReused => "Idempotency-Key was used for another request",
            Self::IdempotencyInFlight => "The first request is still running",
            Self::ResponseNotStored => "The first response was not stored",
            Self::BadRequest => "Bad request",
            Self::Internal => "Internal error",
        }
    }

    pub(super) const fn detail(self) -> &'static str {
        match self {
            Self::Duplicate => "the same was submitted before",
            Self::Locked => "somebody else is working on this; try again later",
            Self::Limited => "as many as are allowed are working on this; try again later",
            Self::Engine => {
                "the service cannot check right now whether this may be carried out; try again later"
            }
            Self::TooLarge => "the submission is too large",
            Self::IdempotencyKeyMissing => "this request needs an Idempotency-Key header",
            Self::IdempotencyKeyMalformed => "the Idempotency-Key header is not a quoted string",
            Self::IdempotencyKeyReused => {
                "this Idempotency-Key came with a different request before; use a new key for a new request"
            }
            Self::IdempotencyInFlight => {
                "the first request with this Idempotency-Key is still running; try again later"
            }
            Self::ResponseNotStored => {
                "the request with this Idempotency-Key was carried out, but its response could not be stored"
            }
            Self::BadRequest => {
                "the request lacks a value that it needs, or one of its values cannot be used"
            }
            Self::Internal => "internal error",
        }
    }
}
