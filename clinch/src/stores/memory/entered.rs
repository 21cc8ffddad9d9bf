//! What the store knows of one key: mostly one plain holder, of whom the attempt itself says all that is to be known.

use std::borrow::Borrow;

use tokio::time::Instant;

use super::shard::{Entry, Place};
use crate::key::hash::OfKey;
use crate::lease::{Attempt, Claim, ClaimKey, Holder};
use crate::stamp::Stamp;
use crate::stores::rules::entry::left;
use crate::stores::rules::steps;

/// What has the attempt of a plain holder: it holds its only key alone, for as long as the attempt counts, knows of no queue,
/// and nobody is remembered who waits.
pub(super) trait Plain: Borrow<Attempt> {
    fn claim(&self) -> &Claim {
        &self.borrow().claims()[0]
    }

    fn is_over(&self, now: Instant) -> bool {
        self.borrow().counts_until() <= Stamp::of(now)
    }

    /// Whether it is this lease, and not over.
    fn is(&self, lease: &Attempt, now: Instant) -> bool {
        let attempt = self.borrow();
        (std::ptr::eq(attempt, lease) || attempt.token() == lease.token()) && !self.is_over(now)
    }

    /// The same as an entry.
    fn unfolded(&self) -> Full {
        let (attempt, until) = (self.borrow(), self.borrow().counts_until().instant());
        let place = Place { expires: until, ..steps::place_alone(attempt, self.claim(), until) };
        Full::new(self.claim().on(), Entry::alone(place))
    }

    /// Its holder, if it has not expired.
    fn holder(&self, now: Instant) -> Option<Holder> {
        let (attempt, claim) = (self.borrow(), self.claim());
        let remaining = left(attempt.counts_until().instant(), now);
        let holder =
            || Holder::new(claim.on().clone(), claim.mode(), attempt.token().clone(), Some(remaining));
        (!self.is_over(now)).then(holder)
    }
}

impl<T: Borrow<Attempt>> Plain for T {}

/// Anything. Boxed, because a table has many free places.
#[derive(Debug)]
pub(super) struct Full(Box<(ClaimKey, Entry)>);

impl OfKey for Full {
    fn on(&self) -> &ClaimKey {
        &self.0.0
    }
}

impl Full {
    pub(super) fn new(on: &ClaimKey, entry: Entry) -> Self {
        Self(Box::new((on.clone(), entry)))
    }

    pub(super) fn entry(&self) -> &Entry {
        &self.0.1
    }

    pub(super) fn entry_mut(&mut self) -> &mut Entry {
        &mut self.0.1
    }

    /// Its holders that have not expired.
    pub(super) fn holders(&self, now: Instant) -> impl Iterator<Item = Holder> {
        self.entry().live(now).map(move |place| place.holder(self.on(), now))
    }
}
