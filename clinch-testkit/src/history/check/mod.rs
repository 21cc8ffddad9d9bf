//! Whether a history can be.

mod beliefs;
mod calls;
mod engine;
mod fences;

use std::fmt;
use std::time::Duration;

use super::index::{COARSE, Index, Operation, Tenure};
use super::{Event, History};

/// What must hold. Each rule names what it rests on, so that a violation can be read off the history.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Rule {
    /// (a) No two callers believe at the same time that they hold a key, unless both share it.
    ///
    /// Excused is only a holder whose lease was taken away, by a loss of the engine's memory or by force, from that
    /// instant until the expiry that the lease had then: until then it cannot know better. Not later: a holder that
    /// believes longer was told something false after the loss. A process that is stopped believes nothing meanwhile,
    /// and one that goes on unprotected excludes only itself.
    Overlap,
    /// (b) Nothing stays behind: a lease is gone a TTL after its last holder, a release leaves nothing of its token, and
    /// after everything has run out the engine is empty, queues and waiting writers included; where no fault can happen,
    /// a clean shutdown leaves nothing even at once. An engine sets no expiry later than the TTL or the patience, asking
    /// again for what one has moves none, and a renewal brings nothing back.
    Leftover,
    /// (c) Every operation ends: a wait by its deadline and one call's limit, a try and a release by two calls' limits
    /// (a try may share somebody's call and then make its own; a release tries a second connection).
    Overdue,
    /// (d) `release()` says *held* only if this token held all its claims and this very release ended that; and, where
    /// no fault can happen, always then.
    FalseRelease,
    /// (e) No step changes what another token holds.
    Trespass,
    /// (f) Who believes to hold a key does hold it in the engine (with the excuse of (a)); no renewal shortens a lease;
    /// no guard is valid again after it was lost.
    FalseBelief,
    /// (g) A try is not denied by a lease that this very process gave back before, nor anyone by its own attempt.
    OwnDenial,
    /// (h) A token serves one guard, or several of one process, one after the other, while it is not given back; a try
    /// asks under one token only, and what is sent is what was asked for.
    Token,
    /// (i) A denial has a reason: while the call lasted, one of the claims was taken in the engine or held in this
    /// process. For waits of a manager this is only asked where no fault can happen, and of those who stood in no line:
    /// others may have failed, or been slow, in front of them.
    FalseDenial,
    /// (j) What the port says is true: nothing is granted after a release that was *conclusive*, nor by an acquire
    /// that was *not applied*.
    Port,
    /// (k) Nothing panics.
    Panic,
    /// (l) At the instant of every grant of a permit, no more are held and believed in than the number of that claim.
    Limit,
    /// (m) Turns are kept: a key is handed over to the first one in its queue and to nobody else, who queues overtakes
    /// nobody, readers do not overtake a writer that waits, and whoever is granted waits no longer.
    Turn,
    /// (n) Several claims are granted, extended and given back together or not at all.
    Partial,
    /// (o) Fences rise with every grant on a key, local passes included, and lie above the floor; a grant has one, and
    /// that is what its holder is told.
    Fence,
    /// (p) A resource that checks fences takes no write of a holder after one of its successors.
    Stale,
}

impl Rule {
    /// The letter of the rule.
    pub const fn letter(self) -> char {
        match self {
            Self::Overlap => 'a',
            Self::Leftover => 'b',
            Self::Overdue => 'c',
            Self::FalseRelease => 'd',
            Self::Trespass => 'e',
            Self::FalseBelief => 'f',
            Self::OwnDenial => 'g',
            Self::Token => 'h',
            Self::FalseDenial => 'i',
            Self::Port => 'j',
            Self::Panic => 'k',
            Self::Limit => 'l',
            Self::Turn => 'm',
            Self::Partial => 'n',
            Self::Fence => 'o',
            Self::Stale => 'p',
        }
    }
}

/// A rule that was broken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// Which rule.
    pub rule: Rule,
    /// When, on the history's clock.
    pub at: Duration,
    /// How.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "({}) {:?} at {} ms: {}", self.rule.letter(), self.rule, self.at.as_millis(), self.what)
    }
}

/// Every rule that the history breaks, by time.
pub fn check(history: &History) -> Vec<Violation> {
    let checker = Checker { history, index: Index::of(history) };
    let found = [
        checker.overlaps(),
        checker.leftovers(),
        checker.expiries(),
        checker.overdue(),
        checker.releases(),
        checker.trespasses(),
        checker.beliefs(),
        checker.validity(),
        checker.own_denials(),
        checker.tokens(),
        checker.denials(),
        checker.port(),
        checker.panics(),
        checker.limits(),
        checker.turns(),
        checker.partial(),
        checker.fences(),
        checker.told_fences(),
        checker.stale_writes(),
    ];
    let mut found: Vec<_> = found.into_iter().flatten().collect();
    found.sort_by_key(|violation| (violation.at, violation.rule));
    found
}

struct Checker<'a> {
    history: &'a History,
    index: Index<'a>,
}

impl Checker<'_> {
    fn quiet(&self) -> bool {
        self.history.header.quiet
    }

    fn events(&self) -> impl Iterator<Item = (Duration, &Event)> {
        self.history.entries.iter().map(|entry| (entry.at, &entry.event))
    }

    fn operations(&self) -> impl Iterator<Item = (u64, &Operation)> {
        self.index.operations.iter().map(|(op, operation)| (*op, operation))
    }
}

/// What an engine's clock may be off over this time.
fn allowance(ttl: Duration) -> Duration {
    ttl / 100 + COARSE
}

fn shown(tenure: &Tenure) -> String {
    format!("{} on {} since {} ms", tenure.token, tenure.key, tenure.span.from.as_millis())
}

const fn violation(rule: Rule, at: Duration, what: String) -> Violation {
    Violation { rule, at, what }
}
