//! What a store answers.

use std::time::Duration;

use tokio::time::Instant;

use crate::lease::{Fence, Holder, Mode, Record};

/// The answer to an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// All claims are this token's.
    Granted(Grant),
    /// At least one claim could not be granted; nothing was changed.
    Denied(Denial),
}

impl Verdict {
    /// Granted, without fences.
    pub const fn granted() -> Self {
        Self::Granted(Grant { fences: Vec::new() })
    }
}

/// What comes with a grant.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Grant {
    /// The fence of each claim, in the order of the claims; empty if no claim asked for one.
    pub fences: Vec<Option<Fence>>,
}

/// Why an attempt was denied.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Denial {
    /// Which claim failed, by its place in the attempt.
    pub claim: usize,
    /// Who holds it; one of them, if there are several. `None` only if it was gone again when the engine looked.
    pub holder: Option<Holder>,
    /// When asking again makes sense at the latest: the time until the first holder's lease runs out. Never less than
    /// 1 ms. `None` if it was gone again when the engine looked, or if that holder's value has no expiry.
    pub retry_after: Option<Duration>,
    /// Nobody holds it: its work is done, and this is what was left ([`Store::complete`](super::Store::complete)). It goes
    /// away after `retry_after`.
    pub done: Option<Record>,
}

impl Denial {
    /// Whether it was shared holders that stood in the way.
    pub(crate) fn is_by_readers(&self) -> bool {
        self.holder.as_ref().is_some_and(|holder| holder.mode() == Mode::Shared)
    }

    /// The same denial, looked at later.
    #[must_use]
    pub(crate) fn aged(mut self, by: Duration) -> Self {
        self.retry_after = self.retry_after.map(|left| left.saturating_sub(by).max(Duration::from_millis(1)));
        self.holder = self.holder.map(|holder| holder.aged(by));
        self
    }
}

/// The answer to a renewal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Renewal {
    /// Every claim has its full TTL again.
    Extended {
        /// The instant just before the step was sent: the new validity counts from here.
        sent_at: Instant,
    },
    /// At least one claim is no longer this token's; nothing was extended.
    Lost,
}

/// The answer to a release, or to a completion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Release {
    /// Whether this token still held all of its claims, so that this very step gave them back.
    pub held: bool,
    /// Whether every `acquire` of this token that was ever sent had been carried out, or never will be, before this
    /// release was. If not, one may still arrive and be granted: whoever does not know the outcome of an `acquire`
    /// repeats the release until its TTL is over.
    pub conclusive: bool,
    /// How many streams of wake-ups this release fired, the releaser's own included; `None` if the store cannot tell. Other
    /// processes may count as one each.
    pub woken: Option<usize>,
}

/// Where a listing goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct Cursor(u64);

impl Cursor {
    /// The beginning.
    pub const START: Self = Self(0);

    /// A store's own position.
    pub const fn new(position: u64) -> Self {
        Self(position)
    }

    /// The position.
    pub const fn position(self) -> u64 {
        self.0
    }
}

/// One page of a listing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Page {
    /// Holders; a page may be empty although more follow.
    pub holders: Vec<Holder>,
    /// Where the next page begins; `None` at the end.
    pub next: Option<Cursor>,
}
