//! Holders, as others see them.

use std::fmt;
use std::time::{Duration, SystemTime};

use super::{ClaimKey, Fence, Mode, Owner, Token};

/// Who holds a place on a key, as an engine told it at one moment.
///
/// It remembers exactly which holder it speaks of, so that
/// [`force_release`](crate::LockManager::force_release) can end that one and no successor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    on: ClaimKey,
    mode: Mode,
    token: Token,
    remaining: Option<Duration>,
    fence: Option<Fence>,
}

impl Holder {
    /// A holder on `on`, with what an engine has stored for it and the time it has left (`None`: it never expires,
    /// which only other clients' values do).
    pub const fn new(on: ClaimKey, mode: Mode, token: Token, remaining: Option<Duration>) -> Self {
        Self { on, mode, token, remaining, fence: None }
    }

    /// Adds the fence of its grant.
    #[must_use]
    pub const fn with_fence(mut self, fence: Option<Fence>) -> Self {
        self.fence = fence;
        self
    }

    /// The same holder, looked at later.
    pub(crate) fn aged(mut self, by: Duration) -> Self {
        self.remaining = self.remaining.map(|left| left.saturating_sub(by).max(Duration::from_millis(1)));
        self
    }

    /// What it holds.
    pub const fn on(&self) -> &ClaimKey {
        &self.on
    }

    /// How it holds it. (Of a permit, an engine may not know out of how many; the number is then how many are held.)
    pub const fn mode(&self) -> Mode {
        self.mode
    }

    /// Its token: for stores and for force-release; never log it.
    pub const fn token(&self) -> &Token {
        &self.token
    }

    /// Host, process, task and label, where the value is one that Clinch wrote; `None` for another client's plain
    /// value.
    pub fn owner(&self) -> Option<Owner> {
        self.token.owner()
    }

    /// Since when it has been asking for or holding the place, by its own wall clock, where it says so.
    pub fn since(&self) -> Option<SystemTime> {
        self.owner().and_then(|owner| owner.since)
    }

    /// The time it had left at that moment; `None` if its value has no expiry.
    pub const fn remaining(&self) -> Option<Duration> {
        self.remaining
    }

    /// The fence of its grant, where it asked for one.
    pub const fn fence(&self) -> Option<Fence> {
        self.fence
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.owner() {
            Some(owner) => owner.fmt(f)?,
            None => f.write_str("an unknown client")?,
        }
        match self.remaining {
            Some(left) => write!(f, ", {} ms left", left.as_millis()),
            None => f.write_str(", without expiry"),
        }
    }
}
