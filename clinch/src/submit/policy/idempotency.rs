//! Requests that are carried out once and answered again from their stored result.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Disconnect, common_setters};
use crate::error::Error;
use crate::manager::Strategy;
use crate::submit::duration;

/// What happens to a request whose first one is still running.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum InFlight {
    /// It is refused: 409.
    #[default]
    Refuse,
    /// It waits for the first one's result, and is answered with that; refused if that takes too long.
    Wait(#[serde(with = "duration")] Duration),
}

/// Which responses are stored and answered again. All others leave the key free for another try; so does, whatever its status,
/// the refusal of a guard inside of this one, because nothing was carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum StoredStatuses {
    /// 2xx only.
    Success,
    /// 2xx and 4xx: a bad request stays one.
    #[default]
    SuccessAndClientError,
    /// Every one, 5xx and redirects included.
    All,
}

impl StoredStatuses {
    /// Whether a response of this status is stored.
    pub const fn includes(self, status: u16) -> bool {
        match self {
            Self::Success => status >= 200 && status < 300,
            Self::SuccessAndClientError => (status >= 200 && status < 300) || (status >= 400 && status < 500),
            Self::All => true,
        }
    }
}

/// How requests with an `Idempotency-Key` are carried out once and answered again.
///
/// A key belongs to whom the service's identity chain finds, by what only that one can show: a verified user, the
/// `Authorization` header, a session cookie that the chain knows by name, or else the client's address. Parameters such as
/// `userId` take no part, because anybody can write them; they are compared with the first request's like all others.
///
/// Where none of these is known, all clients are one, and a key of one of them is a key of all: a session cookie with a name
/// of its own must be named to the chain, and a server must tell the addresses of its clients.
///
/// ```
/// use std::time::Duration;
/// use clinch::submit::{IdempotencyPolicy, InFlight};
///
/// let policy = IdempotencyPolicy::new().required(true).in_flight(InFlight::Wait(Duration::from_secs(10)));
/// # let _ = policy;
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[must_use]
pub struct IdempotencyPolicy {
    pub(crate) required: bool,
    pub(crate) lenient: bool,
    pub(crate) in_flight: InFlight,
    pub(crate) stored: StoredStatuses,
    #[serde(with = "duration")]
    pub(crate) retention: Duration,
    #[serde(with = "duration")]
    pub(crate) lease: Duration,
    pub(crate) max_response_bytes: usize,
    /// Lower-case names; none: all but those that are never replayed.
    pub(crate) replay_headers: Option<Vec<String>>,
    pub(crate) exclude_params: Vec<String>,
    pub(crate) key_prefix: String,
    pub(crate) message: Option<String>,
    pub(crate) strategy: Option<Strategy>,
    pub(crate) enabled: bool,
    pub(crate) shadow: bool,
    pub(crate) disconnect: Disconnect,
    pub(crate) safe_methods: bool,
    pub(crate) status: Option<u16>,
    pub(crate) name: Option<String>,
}

impl Default for IdempotencyPolicy {
    fn default() -> Self {
        Self {
            required: false,
            lenient: false,
            in_flight: InFlight::default(),
            stored: StoredStatuses::default(),
            retention: Duration::from_secs(86_400),
            lease: Duration::from_secs(30),
            max_response_bytes: 256 * 1024,
            replay_headers: None,
            exclude_params: Vec::new(),
            key_prefix: String::new(),
            message: None,
            strategy: None,
            enabled: true,
            shadow: false,
            disconnect: Disconnect::Finish,
            safe_methods: false,
            status: None,
            name: None,
        }
    }
}

impl IdempotencyPolicy {
    /// Optional and strict, stored for a day, refused while the first one runs.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether a request without the header is an error (400).
    pub const fn required(mut self, required: bool) -> Self {
        self.required = required;
        self
    }

    /// Whether a key without quotation marks is accepted too (`Idempotency-Key: 8e03978e`), which the draft does not allow
    /// and many clients send.
    pub const fn lenient(mut self, lenient: bool) -> Self {
        self.lenient = lenient;
        self
    }

    /// What happens while the first one is running.
    pub const fn in_flight(mut self, in_flight: InFlight) -> Self {
        self.in_flight = in_flight;
        self
    }

    /// Which responses are stored.
    pub const fn stored(mut self, stored: StoredStatuses) -> Self {
        self.stored = stored;
        self
    }

    /// For how long a result is stored.
    pub const fn retention(mut self, retention: Duration) -> Self {
        self.retention = retention;
        self
    }

    /// The TTL of the lease under which the first one runs. It is renewed while that runs, so this is how long the key stays
    /// closed after its process died.
    pub const fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// How large a body is stored at most. A larger one is sent, but not stored: a repetition is then told so, and not
    /// carried out again.
    pub const fn max_response_bytes(mut self, bytes: usize) -> Self {
        self.max_response_bytes = bytes;
        self
    }

    /// Which response headers are stored, instead of all. `Set-Cookie`, `Date` and the headers of the connection never are.
    pub fn replay_headers<N: AsRef<str>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
        self.replay_headers =
            Some(names.into_iter().map(|name| name.as_ref().to_ascii_lowercase()).collect());
        self
    }

    /// Parameters that may differ between a request and its repetition; see
    /// [`DuplicatePolicy::exclude_params`](super::DuplicatePolicy::exclude_params).
    pub fn exclude_params<N: Into<String>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
        self.exclude_params = names.into_iter().map(Into::into).collect();
        self
    }

    /// A word before all keys of this guard: the same header value under another word is another key.
    pub fn key_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.key_prefix = prefix.into();
        self
    }

    /// What a refused user is told, in whatever language.
    pub fn message(mut self, message: impl Into<String>) -> Self {
        self.message = Some(message.into());
        self
    }

    common_setters!("what it guards: verb and route (`POST /orders/{id}`).");

    pub(crate) fn check(&self) -> Result<(), Error> {
        super::check_common(self.name.as_deref(), self.status)?;
        if self.retention.is_zero() {
            return Err(Error::option("retention", &"0s", "accepted is a time above 0, such as 24h"));
        }
        Ok(())
    }
}
