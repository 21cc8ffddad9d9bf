//! What makes a submission a duplicate, and for how long.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Disconnect, ReleaseWhen, Streaming, check_common, common_setters};
use crate::error::Error;
use crate::manager::Strategy;
use crate::submit::{Submission, duration};

/// What makes a submission a duplicate, for how long, and what happens then.
///
/// ```
/// use std::time::Duration;
/// use clinch::submit::{DuplicatePolicy, ReleaseWhen};
///
/// let policy = DuplicatePolicy::new()
///     .interval(Duration::from_secs(10))
///     .message("please do not submit twice")
///     .exclude_params(["timestamp"])
///     .release(ReleaseWhen::OnFailure);
/// # let written = serde_json::json!({
/// #     "interval": "10s", "message": "please do not submit twice", "exclude_params": ["timestamp"], "release": "on_failure",
/// # });
/// # assert_eq!(serde_json::from_value::<DuplicatePolicy>(written).unwrap(), policy);
/// ```
///
/// The same in a configuration file:
///
/// ```toml
/// interval = "10s"
/// message = "please do not submit twice"
/// exclude_params = ["timestamp"]
/// release = "on_failure"
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[must_use]
pub struct DuplicatePolicy {
    #[serde(with = "duration")]
    pub(crate) interval: Duration,
    pub(crate) message: String,
    pub(crate) include_params: bool,
    pub(crate) include_user: bool,
    pub(crate) exclude_params: Vec<String>,
    pub(crate) key_prefix: String,
    pub(crate) release: ReleaseWhen,
    #[serde(with = "duration")]
    pub(crate) min_hold: Duration,
    pub(crate) renew: bool,
    pub(crate) strategy: Option<Strategy>,
    pub(crate) enabled: bool,
    pub(crate) shadow: bool,
    pub(crate) disconnect: Disconnect,
    pub(crate) streaming: Streaming,
    pub(crate) safe_methods: bool,
    pub(crate) status: Option<u16>,
    pub(crate) name: Option<String>,
}

impl Default for DuplicatePolicy {
    fn default() -> Self {
        Self {
            interval: Duration::from_secs(5),
            message: "this was already submitted; please wait a moment before you submit it again".to_owned(),
            include_params: true,
            include_user: true,
            exclude_params: Vec::new(),
            key_prefix: String::new(),
            release: ReleaseWhen::default(),
            min_hold: Duration::ZERO,
            renew: false,
            strategy: None,
            enabled: true,
            shadow: false,
            disconnect: Disconnect::Finish,
            streaming: Streaming::default(),
            safe_methods: false,
            status: None,
            name: None,
        }
    }
}

impl DuplicatePolicy {
    /// What it is called where it has no name and nobody knows the route.
    pub(crate) const KIND: &str = "duplicate";

    /// Within 5 s, by the same user, with the same parameters; open again when the handler ends.
    pub fn new() -> Self {
        Self::default()
    }

    /// For how long a submission stands in the way of its duplicates at most. Kept within the range that the guards'
    /// [settings](crate::submit::Settings) allow, 1 s to 5 min unless they say otherwise.
    ///
    /// A handler that takes longer stands in nobody's way after it, unless the guard [renews](Self::renew).
    pub const fn interval(mut self, interval: Duration) -> Self {
        self.interval = interval;
        self
    }

    /// What a refused user is told, in whatever language.
    pub fn message(mut self, message: impl Into<String>) -> Self {
        self.message = message.into();
        self
    }

    /// Whether submissions with different parameters are different ones. They are, unless told otherwise.
    pub const fn include_params(mut self, include: bool) -> Self {
        self.include_params = include;
        self
    }

    /// Whether submissions of different users are different ones. They are, unless told otherwise; with neither users nor
    /// parameters it is one gate for everybody.
    pub const fn include_user(mut self, include: bool) -> Self {
        self.include_user = include;
        self
    }

    /// Parameters that do not count: names, or dotted paths into JSON (`items.timestamp`).
    pub fn exclude_params<N: Into<String>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
        self.exclude_params = names.into_iter().map(Into::into).collect();
        self
    }

    /// A word before all keys of this guard, for people who look at them, and to keep two guards on one route apart.
    pub fn key_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.key_prefix = prefix.into();
        self
    }

    /// When it opens again.
    pub const fn release(mut self, release: ReleaseWhen) -> Self {
        self.release = release;
        self
    }

    /// For how long it stays closed at least, however quickly the handler ends; at most the interval.
    pub const fn min_hold(mut self, min_hold: Duration) -> Self {
        self.min_hold = min_hold;
        self
    }

    /// Keeps it closed while the handler runs, however long that takes.
    pub const fn renew(mut self, renew: bool) -> Self {
        self.renew = renew;
        self
    }

    /// For how long it holds while a response is sent.
    pub const fn streaming(mut self, streaming: Streaming) -> Self {
        self.streaming = streaming;
        self
    }

    common_setters!("what it guards: verb and route (`POST /orders/{id}`), or the path of the function.");

    /// The name under which it is counted.
    pub(crate) fn guard<'a>(&'a self, submission: &'a Submission) -> &'a str {
        self.name.as_deref().or_else(|| submission.method()).unwrap_or(Self::KIND)
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        check_common(self.name.as_deref(), self.status)?;
        if self.interval.is_zero() {
            return Err(Error::option("interval", &"0s", "accepted is a time above 0, such as 5s"));
        }
        if self.min_hold > self.interval {
            let accepted = format!("accepted is at most the interval of {:?}", self.interval);
            return Err(Error::option("min_hold", &format!("{:?}", self.min_hold), accepted));
        }
        Ok(())
    }
}
