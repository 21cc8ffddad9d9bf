//! A concurrency limit around a handler or a function.

use std::num::NonZeroU32;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Disconnect, Streaming, check_common, common_setters};
use crate::error::Error;
use crate::key::KeyTemplate;
use crate::manager::{LockOptions, Strategy};
use crate::submit::duration;

/// A concurrency limit around a handler or a function: at most so many at a time, in the whole fleet.
///
/// ```
/// use clinch::submit::LimitPolicy;
///
/// let policy = LimitPolicy::new("export", 8).renew(true);
/// # let _ = policy;
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[must_use]
pub struct LimitPolicy {
    pub(crate) key: String,
    /// How many. None is an error that is told when the policy is used.
    pub(crate) limit: u32,
    #[serde(with = "duration")]
    pub(crate) ttl: Duration,
    #[serde(with = "duration")]
    pub(crate) wait: Duration,
    #[serde(with = "duration")]
    pub(crate) retry_interval: Duration,
    pub(crate) renew: bool,
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

impl Default for LimitPolicy {
    fn default() -> Self {
        Self {
            key: String::new(),
            limit: 1,
            ttl: Duration::from_secs(60),
            wait: Duration::ZERO,
            retry_interval: Duration::from_millis(50),
            renew: false,
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

impl LimitPolicy {
    /// At most `limit` at a time under the name that this template makes; a permit ends after 60 s, and is tried for once.
    pub fn new(key: impl Into<String>, limit: u32) -> Self {
        Self { key: key.into(), limit, ..Self::default() }
    }

    /// How long a permit is held at most, unless it is [renewed](Self::renew).
    pub const fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// How long to wait for one; not at all unless set.
    pub const fn wait(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    /// How often a waiter asks if nothing wakes it; 50 ms unless set.
    pub const fn retry_interval(mut self, interval: Duration) -> Self {
        self.retry_interval = interval;
        self
    }

    /// Renews the permit while the handler runs.
    pub const fn renew(mut self, renew: bool) -> Self {
        self.renew = renew;
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

    /// For how long the permit is held while a response is sent.
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
        check_common(self.name.as_deref(), self.status)?;
        if NonZeroU32::new(self.limit).is_none() {
            return Err(Error::option("limit", &self.limit, format!("accepted is 1 to {}", u32::MAX)));
        }
        Ok(())
    }

    /// The name under which it is counted.
    pub(crate) fn guard(&self) -> &str {
        self.name.as_deref().unwrap_or(&self.key)
    }

    pub(crate) fn options(&self, strategy: Option<Strategy>) -> LockOptions {
        let mut options = LockOptions::new(self.ttl).wait(self.wait).retry_interval(self.retry_interval);
        if self.renew {
            options = options.renew();
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
