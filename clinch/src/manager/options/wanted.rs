//! How a lock is wanted, as the manager asks for it.

use std::time::Duration;

use super::{Limited, LockOptions};
use crate::key::Key;
use crate::lease::{Claim, Fence};
use crate::manager::line::Shape;
use crate::manager::time::Time;

impl LockOptions {
    /// All of it; what is left here asks for no more than a lock.
    pub(in crate::manager) const fn take(&mut self) -> Self {
        let rest = Self::for_time(self.ttl);
        std::mem::replace(self, rest)
    }

    /// For how long it is wanted.
    pub(in crate::manager) const fn ttl(&self) -> Duration {
        self.ttl.get()
    }

    /// For how long it is waited for.
    pub(in crate::manager) const fn waits_for(&self) -> Duration {
        self.wait.get()
    }

    /// Whether it is tried once.
    pub(in crate::manager) fn is_try(&self) -> bool {
        self.wait == Time::ZERO
    }

    /// The pause between two polls.
    pub(in crate::manager) const fn polls_every(&self) -> Duration {
        self.retry_interval.get()
    }

    /// For how long its turn in the engine's queue is kept for it, if it is to stand in that.
    pub(in crate::manager) fn kept_for(&self) -> Option<Duration> {
        self.fair.map(Time::get)
    }

    /// The word for people.
    pub(in crate::manager) fn word(&self) -> Option<&str> {
        self.rest.as_ref()?.label.as_deref()
    }

    /// How it is called in metrics and logs.
    pub(in crate::manager) fn called(&self) -> Option<&str> {
        self.rest.as_ref()?.name.as_deref()
    }

    /// The permits that are wanted with it.
    pub(in crate::manager) fn limits(&self) -> &[Limited] {
        self.rest.as_ref().map_or(&[], |rest| &rest.limits)
    }

    /// Whether it is a try of what every engine can do, and that only a holder of the key itself stands in the way of.
    pub(in crate::manager) fn is_simple_try(&self) -> bool {
        self.is_try() && !self.shared && !self.fenced && self.fair.is_none() && self.limits().is_empty()
    }

    /// What such a lock must have in common with another one for the one to go on with the other's attempt.
    pub(in crate::manager) fn shape(&self) -> Shape {
        let label = self.word().map(str::to_owned);
        Shape { ttl: self.ttl(), label, fenced: self.fenced, takes_passes: self.local_pass }
    }

    /// The claim of such a lock on a key. A fenced one has no floor yet.
    pub(in crate::manager) fn lock_on(&self, key: Key) -> Claim {
        let lock = if self.shared { Claim::shared } else { Claim::exclusive };
        let claim = lock(key, self.ttl());
        if self.fenced { claim.fenced(Fence::new(0)) } else { claim }
    }

    pub(super) fn shortest_ttl(&self) -> Duration {
        self.limits().iter().map(|limited| limited.ttl).fold(self.ttl(), Duration::min)
    }

    /// The time from one renewal to the next, and for how long, if the lease is renewed.
    pub(in crate::manager) fn renewal_interval(&self) -> Option<(Duration, Duration)> {
        self.renewal.map(|renewal| {
            (renewal.every.map_or_else(|| self.shortest_ttl() / 3, Time::get), renewal.up_to.get())
        })
    }
}
