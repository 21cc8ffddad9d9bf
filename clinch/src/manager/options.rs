//! How a lock is wanted.

use std::time::Duration;

use crate::error::Error;

/// The shortest pause between two polls.
const MIN_RETRY: Duration = Duration::from_millis(1);

/// How a lock is wanted. The TTL is required: there is no way to take a lock that never expires.
///
/// A plain [`Duration`] is a TTL with the defaults, so `try_lock("order:42", Duration::from_secs(10))` works.
///
/// ```
/// use std::time::Duration;
/// use clinch::LockOptions;
///
/// let options = LockOptions::new(Duration::from_secs(10))
///     .wait(Duration::from_secs(2))
///     .renew()
///     .label("nightly");
/// # let _ = options;
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub struct LockOptions {
    pub(super) ttl: Duration,
    pub(super) wait: Duration,
    pub(super) retry_interval: Duration,
    pub(super) renewal: Option<Renewal>,
    pub(super) label: Option<String>,
}

/// How a lease is renewed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Renewal {
    /// `None`: a third of the TTL.
    pub(super) every: Option<Duration>,
    /// No renewal goes out later than this after the grant.
    pub(super) up_to: Duration,
}

impl Renewal {
    const DEFAULT: Self = Self { every: None, up_to: Duration::from_secs(86_400) };
}

impl LockOptions {
    /// The shortest TTL. A lease shorter than this is over before its answer has arrived.
    pub const MIN_TTL: Duration = Duration::from_millis(10);
    /// The longest TTL, unless the manager allows [another](crate::Builder::max_ttl).
    pub const MAX_TTL: Duration = Duration::from_secs(86_400);
    /// The longest wait: far beyond any use, and far from where instants overflow.
    pub const MAX_WAIT: Duration = Duration::from_secs(366 * 86_400);
    /// The longest label in bytes.
    pub const MAX_LABEL_BYTES: usize = 64;

    /// A lock for `ttl`: tried once (`wait` 0), polled every 50 ms if it is waited for, not renewed.
    ///
    /// Engines count in whole milliseconds; a fraction is cut off. Accepted are 10 ms up to the manager's
    /// [`max_ttl`](crate::Builder::max_ttl), which is 24 h unless set otherwise.
    pub const fn new(ttl: Duration) -> Self {
        Self {
            ttl,
            wait: Duration::ZERO,
            retry_interval: Duration::from_millis(50),
            renewal: None,
            label: None,
        }
    }

    /// Waits at most this long for the lock. Zero, the default, tries once.
    pub const fn wait(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    /// The least pause between two polls, to which jitter is added; 50 ms unless set. A waiter is usually woken by
    /// push; the poll is what finds a wake-up that was lost.
    pub const fn retry_interval(mut self, interval: Duration) -> Self {
        self.retry_interval = interval;
        self
    }

    /// Renews the lease while the guard lives, every third of its TTL, for at most 24 h.
    ///
    /// A renewed lock does not run out under work that takes longer than expected; it still runs out if the process
    /// dies or loses the engine.
    pub const fn renew(mut self) -> Self {
        if self.renewal.is_none() {
            self.renewal = Some(Renewal::DEFAULT);
        }
        self
    }

    /// As [`renew`](Self::renew), every `interval`: at most half the TTL, so that one that fails can be tried again.
    pub const fn renew_every(self, interval: Duration) -> Self {
        let mut this = self.renew();
        if let Some(renewal) = &mut this.renewal {
            renewal.every = Some(interval);
        }
        this
    }

    /// As [`renew`](Self::renew), for at most `total` after the grant: then the lease is left to run out.
    pub const fn renew_for(self, total: Duration) -> Self {
        let mut this = self.renew();
        if let Some(renewal) = &mut this.renewal {
            renewal.up_to = total;
        }
        this
    }

    /// A word for people who look at who holds the lock; at most 64 bytes, no control characters.
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = Some(label.into());
        self
    }

    /// Checks everything that can be wrong, and cuts the TTL to whole milliseconds.
    pub(super) fn checked(mut self, max_ttl: Duration) -> Result<Self, Error> {
        if self.ttl < Self::MIN_TTL || self.ttl > max_ttl {
            let accepted =
                format!("accepted is {:?} to {max_ttl:?} (the manager's `max_ttl`)", Self::MIN_TTL);
            return Err(Error::option("ttl", &format!("{:?}", self.ttl), accepted));
        }
        self.ttl = Duration::from_millis(self.ttl.as_millis().try_into().unwrap_or(u64::MAX));
        if self.wait > Self::MAX_WAIT {
            return Err(Error::option("wait", &format!("{:?}", self.wait), "accepted is 0 to 366 days"));
        }
        if !self.wait.is_zero() && !(MIN_RETRY..=Self::MAX_WAIT).contains(&self.retry_interval) {
            let accepted = "with a `wait`, accepted is 1 ms to 366 days; a waiter never spins";
            return Err(Error::option("retry_interval", &format!("{:?}", self.retry_interval), accepted));
        }
        if let Some(every) = self.renewal.and_then(|renewal| renewal.every)
            && !(MIN_RETRY..=self.ttl / 2).contains(&every)
        {
            let accepted = format!("accepted is 1 ms to half the TTL of {:?}", self.ttl);
            return Err(Error::option("renew_every", &format!("{every:?}"), accepted));
        }
        if let Some(label) = &self.label
            && (label.len() > Self::MAX_LABEL_BYTES || label.contains(char::is_control))
        {
            let accepted =
                format!("accepted is at most {} bytes without control characters", Self::MAX_LABEL_BYTES);
            return Err(Error::option("label", &format!("{label:?}"), accepted));
        }
        Ok(self)
    }

    /// The time from one renewal to the next, and for how long, if the lease is renewed.
    pub(super) fn renewal_interval(&self) -> Option<(Duration, Duration)> {
        self.renewal.map(|renewal| (renewal.every.unwrap_or(self.ttl / 3), renewal.up_to))
    }
}

/// A TTL with the defaults.
impl From<Duration> for LockOptions {
    fn from(ttl: Duration) -> Self {
        Self::new(ttl)
    }
}
