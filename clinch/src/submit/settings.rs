//! What holds for all guards of a service.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Limits, duration};
use crate::error::Error;
use crate::manager::{LockOptions, Strategy};

/// What holds for all guards of a service, unless a policy says otherwise. Every field has a default.
///
/// ```
/// use std::time::Duration;
/// use clinch::submit::Settings;
///
/// let settings = Settings::new().intervals(Duration::from_secs(1), Duration::from_secs(600));
/// # let _ = settings;
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[must_use]
pub struct Settings {
    pub(crate) enabled: bool,
    pub(crate) shadow: bool,
    pub(crate) strategy: Option<Strategy>,
    #[serde(with = "duration")]
    pub(crate) min_interval: Duration,
    #[serde(with = "duration")]
    pub(crate) max_interval: Duration,
    #[serde(with = "duration")]
    pub(crate) release_within: Duration,
    pub(crate) limits: Limits,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            enabled: true,
            shadow: false,
            strategy: None,
            min_interval: Duration::from_secs(1),
            max_interval: Duration::from_secs(300),
            release_within: Duration::from_secs(1),
            limits: Limits::default(),
        }
    }
}

impl Settings {
    /// The defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether the guards work at all. If not, everybody is let through and the engine is not asked.
    pub const fn enabled(mut self, enabled: bool) -> Self {
        self.enabled = enabled;
        self
    }

    /// Shadow mode for all guards: everything is done and counted, and nobody is refused.
    pub const fn shadow(mut self, shadow: bool) -> Self {
        self.shadow = shadow;
        self
    }

    /// What to do when the engine fails, where a policy does not say. Unless set, what the manager says.
    pub const fn strategy(mut self, strategy: Strategy) -> Self {
        self.strategy = Some(strategy);
        self
    }

    /// The range within which intervals of duplicate guards are kept: 1 s to 5 min unless set. One outside of it is moved to
    /// its end, and that is logged once.
    pub const fn intervals(mut self, min: Duration, max: Duration) -> Self {
        self.min_interval = min;
        self.max_interval = max;
        self
    }

    /// How long a caller waits for the answer to its release before it goes on; the release then goes on in the background.
    /// 1 s unless set.
    pub const fn release_within(mut self, limit: Duration) -> Self {
        self.release_within = limit;
        self
    }

    /// How large and how deep a submission is looked at.
    pub const fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Checks that every interval in the range can be had.
    pub(crate) fn check_within(&self, max_ttl: Duration) -> Result<(), Error> {
        for (field, interval) in [("min_interval", self.min_interval), ("max_interval", self.max_interval)] {
            if !(LockOptions::MIN_TTL..=max_ttl).contains(&interval) {
                let accepted = format!(
                    "accepted is {:?} to {max_ttl:?} (the manager's `max_ttl`)",
                    LockOptions::MIN_TTL
                );
                return Err(Error::option(field, &format!("{interval:?}"), accepted));
            }
        }
        Ok(())
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.min_interval.is_zero() {
            return Err(Error::option("min_interval", &"0s", "accepted is a time above 0, such as 1s"));
        }
        if self.min_interval > self.max_interval {
            let accepted = format!("accepted is at least the `min_interval` of {:?}", self.min_interval);
            return Err(Error::option("max_interval", &format!("{:?}", self.max_interval), accepted));
        }
        Ok(())
    }
}
