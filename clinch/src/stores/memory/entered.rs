//! What the store knows of one key: mostly one plain holder, of whom the attempt itself says all that is to be known.

use std::fmt;
use std::sync::Arc;

use tokio::time::Instant;

use super::shard::{Entry, Place};
use crate::key::hash::OfKey;
use crate::lease::{Attempt, ClaimKey, Holder, Token};
use crate::stamp::Stamp;
use crate::store::Asks;
use crate::stores::rules::entry::left;
use crate::stores::rules::steps;

pub(super) enum Entered {
    /// It holds its only key alone, until then, knows of no queue, and nobody is remembered who waits.
    Plain(Arc<dyn Asks>, Stamp),
    /// Anything. Boxed, because a table has many free places.
    Full(Box<(ClaimKey, Entry)>),
}

impl fmt::Debug for Entered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plain(attempt, until) => f.debug_tuple("Plain").field(asked(attempt)).field(until).finish(),
            Self::Full(full) => f.debug_tuple("Full").field(full).finish(),
        }
    }
}

fn asked(attempt: &Arc<dyn Asks>) -> &Attempt {
    (**attempt).borrow()
}

impl OfKey for Entered {
    fn on(&self) -> &ClaimKey {
        match self {
            Self::Plain(attempt, _) => asked(attempt).claims()[0].on(),
            Self::Full(full) => &full.0,
        }
    }
}

impl Entered {
    pub(super) fn new(on: &ClaimKey, entry: Entry) -> Self {
        Self::Full(Box::new((on.clone(), entry)))
    }

    /// The same as an entry, which it is from now on.
    pub(super) fn unfold(&mut self) -> &mut Entry {
        if let Self::Plain(attempt, until) = self {
            let attempt = asked(attempt);
            let claim = &attempt.claims()[0];
            let place =
                Place { expires: until.instant(), ..steps::place_alone(attempt, claim, until.instant()) };
            *self = Self::new(claim.on(), Entry::alone(place));
        }
        match self {
            Self::Full(full) => &mut full.1,
            #[expect(clippy::unreachable, reason = "it was made an entry above")]
            Self::Plain(..) => unreachable!(),
        }
    }

    /// The entry, if it is one.
    pub(super) fn entry(&self) -> Option<&Entry> {
        match self {
            Self::Plain(..) => None,
            Self::Full(full) => Some(&full.1),
        }
    }

    /// Whether this token's lease is all that there is.
    pub(super) fn is_only(&self, token: &Token, now: Instant) -> bool {
        match self {
            Self::Plain(attempt, until) => asked(attempt).token() == token && *until > Stamp::of(now),
            Self::Full(full) => full.1.is_only(token, now),
        }
    }

    /// Removes what has expired and says how much that was, and whether nothing is left.
    pub(super) fn tidy(&mut self, now: Instant) -> (usize, bool) {
        match self {
            Self::Plain(_, until) => {
                let over = *until <= Stamp::of(now);
                (usize::from(over), over)
            }
            Self::Full(full) => (full.1.tidy(now), full.1.is_empty()),
        }
    }

    /// How much of the store's bound it is.
    pub(super) fn size(&self) -> usize {
        self.entry().map_or(1, Entry::size)
    }

    /// Its holders that have not expired.
    pub(super) fn holders(&self, now: Instant) -> impl Iterator<Item = Holder> {
        let plain = match self {
            Self::Plain(attempt, until) if *until > Stamp::of(now) => {
                let attempt = asked(attempt);
                let claim = &attempt.claims()[0];
                let remaining = left(until.instant(), now);
                Some(Holder::new(claim.on().clone(), claim.mode(), attempt.token().clone(), Some(remaining)))
            }
            _ => None,
        };
        let places = self.entry().into_iter().flat_map(move |entry| entry.live(now));
        plain.into_iter().chain(places.map(move |place| place.holder(self.on(), now)))
    }
}
