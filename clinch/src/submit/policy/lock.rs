//! A lock around a handler or a function.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Disconnect, Streaming, check_common, common_setters};
use crate::error::Error;
use crate::key::KeyTemplate;
use crate::manager::{LockOptions, Strategy};
use crate::submit::duration;

/// A lock around a handler or a function: on which key, for how long, and what happens if somebody else has it.
///
/// ```
/// use std::time::Duration;
/// use clinch::submit::LockPolicy;
///
/// let policy = LockPolicy::new("order:{id}").ttl(Duration::from_secs(15)).wait(Duration::from_secs(2));
/// # let _ = policy;
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[must_use]
pub struct LockPolicy {
    pub(crate) key: String,
    #[serde(with = "duration")]
    pub(crate) ttl: Duration,
    #[serde(with = "duration")]
    pub(crate) wait: Duration,
    #[serde(with = "duration")]
    pub(crate) retry_interval: Duration,
    pub(crate) renew: bool,
    pub(crate) reentrant: bool,
    pub(crate) shared: bool,
    pub(crate) fenced: bool,
    pub(crate) fair: bool,
    pub(crate) label: Option<String>,
    pub(crate) message: Option<String>,
    pub(crate) strategy: Option<Strategy>,
    pub(crate) enabled: bool,
    pub(crate) shadow: bool,
    pub(crate) disconnect: Disconnect,
    pub(crate) streaming: Streaming,
    pub(crate) safe_methods: bool,
    pub(crate) status: Option<u16>,
    pub(crate) name: Option<String>,
}

impl Default for LockPolicy {
    fn default() -> Self {
        Self {
            key: String::new(),
            ttl: Duration::from_secs(10),
            wait: Duration::ZERO,
            retry_interval: Duration::from_millis(50),
            renew: false,
            reentrant: false,
            shared: false,
            fenced: false,
            fair: false,
            label: None,
            message: None,
            strategy: None,
            enabled: true,
            shadow: false,
            disconnect: Disconnect::Release,
            streaming: Streaming::default(),
            safe_methods: false,
            status: None,
            name: None,
        }
    }
}

impl LockPolicy {
    /// A lock for 10 s on the key that this template makes, tried once.
    pub fn new(key: impl Into<String>) -> Self {
        Self { key: key.into(), ..Self::default() }
    }

    /// How long it is held at most, unless it is [renewed](Self::renew).
    pub const fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// How long to wait for it; not at all unless set.
    pub const fn wait(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    /// How often a waiter asks if nothing wakes it; 50 ms unless set.
    pub const fn retry_interval(mut self, interval: Duration) -> Self {
        self.retry_interval = interval;
        self
    }

    /// Renews it while the handler runs.
    pub const fn renew(mut self, renew: bool) -> Self {
        self.renew = renew;
        self
    }

    /// Enters again what the same request already holds.
    pub const fn reentrant(mut self, reentrant: bool) -> Self {
        self.reentrant = reentrant;
        self
    }

    /// Shares the key with others who do so too; see [`LockOptions::shared`].
    pub const fn shared(mut self, shared: bool) -> Self {
        self.shared = shared;
        self
    }

    /// Asks for a fence; see [`LockOptions::fenced`].
    pub const fn fenced(mut self, fenced: bool) -> Self {
        self.fenced = fenced;
        self
    }

    /// First come, first served, across processes; see [`LockOptions::fair`].
    pub const fn fair(mut self, fair: bool) -> Self {
        self.fair = fair;
        self
    }

    /// A word for people who look at who holds it.
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = Some(label.into());
        self
    }

    /// What a refused user is told, in whatever language.
    pub fn message(mut self, message: impl Into<String>) -> Self {
        self.message = Some(message.into());
        self
    }

    /// For how long it is held while a response is sent.
    pub const fn streaming(mut self, streaming: Streaming) -> Self {
        self.streaming = streaming;
        self
    }

    common_setters!("the template of its key.");

    /// Checks everything, and parses the template.
    pub(crate) fn check(&self) -> Result<KeyTemplate, Error> {
        self.check_options()?;
        Ok(KeyTemplate::new(&self.key)?)
    }

    /// Checks everything but what it is about.
    pub(crate) fn check_options(&self) -> Result<(), Error> {
        check_common(self.name.as_deref(), self.status)
    }

    /// The name under which it is counted.
    pub(crate) fn guard(&self) -> &str {
        self.name.as_deref().unwrap_or(&self.key)
    }

    pub(crate) fn options(&self, strategy: Option<Strategy>) -> LockOptions {
        let mut options = LockOptions::new(self.ttl).wait(self.wait).retry_interval(self.retry_interval);
        for (asked, with) in [
            (self.renew, LockOptions::renew as fn(LockOptions) -> LockOptions),
            (self.reentrant, LockOptions::reentrant),
            (self.shared, LockOptions::shared),
            (self.fenced, LockOptions::fenced),
            (self.fair, LockOptions::fair),
        ] {
            if asked {
                options = with(options);
            }
        }
        if let Some(label) = &self.label {
            options = options.label(label);
        }
        match self.strategy.or(strategy) {
            Some(strategy) => options.strategy(strategy),
            None => options,
        }
    }
}
