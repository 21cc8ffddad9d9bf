//! Whether a history can be.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use super::index::{Hold, Index, Operation, Span, Tenure};
use super::{Answer, Call, Event, History, Outcome, Tag, Wish};

/// Timers are this coarse, and a deadline may meet a few of them.
const COARSE: Duration = Duration::from_millis(5);

/// What must hold. Each rule names what it rests on, so that a violation can be read off the history.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Rule {
    /// (a) No two callers believe at the same time that they hold a key.
    ///
    /// Excused is only a holder whose lease was taken away, by a loss of the engine's memory or by force, from that
    /// instant until the expiry that the lease had then: until then it cannot know better. Not later: a holder that
    /// believes longer was told something false after the loss.
    Overlap,
    /// (b) Nothing stays behind: a lease is gone a TTL after its last holder, and after everything has run out the
    /// engine is empty; where no fault can happen, a clean shutdown leaves nothing even at once. An engine sets no
    /// expiry later than the TTL, and asking again for what one has moves none.
    Leftover,
    /// (c) Every operation ends: a wait by its deadline and one call's limit, a try and a release by two calls' limits
    /// (a try may share somebody's call and then make its own; a release tries a second connection).
    Overdue,
    /// (d) `release()` says *held* only if this token held the key and this very release ended that; and, where no
    /// fault can happen, always then.
    FalseRelease,
    /// (e) No step changes what another token holds.
    Trespass,
    /// (f) Who believes to hold a key does hold it in the engine (with the excuse of (a)); no renewal shortens a lease;
    /// no guard is valid again after it was lost.
    FalseBelief,
    /// (g) A try is not denied by a lease that this very process gave back before, nor by its own attempt.
    OwnDenial,
    /// (h) No two guards share a token, a try asks under one token only, and what is sent is what was asked for.
    Token,
    /// (i) A denial has a reason: while the call lasted, the key was taken in the engine or held in this process. For
    /// waits this is only asked where no fault can happen, and of those who stood in no line: others may have failed,
    /// or been slow, in front of them.
    FalseDenial,
    /// (j) What the port says is true: nothing is granted after a release that was *conclusive*, nor by an acquire
    /// that was *not applied*.
    Port,
    /// (k) Nothing panics.
    Panic,
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
    let checker = Checker { history, index: Index::of(history), found: Vec::new() };
    checker.run()
}

struct Checker<'a> {
    history: &'a History,
    index: Index<'a>,
    found: Vec<Violation>,
}

impl Checker<'_> {
    fn run(mut self) -> Vec<Violation> {
        let found = [
            self.overlaps(),
            self.leftovers(),
            self.expiries(),
            self.overdue(),
            self.releases(),
            self.trespasses(),
            self.beliefs(),
            self.validity(),
            self.own_denials(),
            self.tokens(),
            self.denials(),
            self.port(),
            self.panics(),
        ];
        self.found = found.into_iter().flatten().collect();
        self.found.sort_by_key(|violation| (violation.at, violation.rule));
        self.found
    }

    fn quiet(&self) -> bool {
        self.history.header.quiet
    }

    fn events(&self) -> impl Iterator<Item = (Duration, &Event)> {
        self.history.entries.iter().map(|entry| (entry.at, &entry.event))
    }

    fn operations(&self) -> impl Iterator<Item = (u64, &Operation)> {
        self.index.operations.iter().map(|(op, operation)| (*op, operation))
    }

    /// Tries that were denied, with who was named as the holder.
    fn denied(&self) -> impl Iterator<Item = (u64, &Operation, Span, Option<&Tag>)> {
        self.operations().filter_map(|(op, operation)| match operation.outcome() {
            Some(Outcome::Denied { holder }) => Some((op, operation, operation.span()?, holder.as_ref())),
            _ => None,
        })
    }

    // (a)
    fn overlaps(&self) -> Vec<Violation> {
        let holds = &self.index.holds;
        let pairs = holds
            .iter()
            .enumerate()
            .flat_map(|(i, first)| holds[i + 1..].iter().map(move |next| (first, next)));
        let excused =
            |hold: &Hold, common: Span| common.gap(self.index.excuses_of(&hold.key, &hold.token)).is_none();
        let broken = pairs.filter(|(first, next)| first.key == next.key).filter_map(|(first, next)| {
            let common = first.span.overlap(next.span)?;
            (!excused(first, common) && !excused(next, common)).then_some((first, next, common))
        });
        broken
            .map(|(first, next, common)| violation(Rule::Overlap, common.from, overlap(first, next, common)))
            .collect()
    }

    // (b)
    fn leftovers(&self) -> Vec<Violation> {
        let header = &self.history.header;
        let mut found = Vec::new();
        for tenure in &self.index.tenures {
            let believed =
                self.index.holds.iter().filter(|hold| hold.token == tenure.token && hold.key == tenure.key);
            let last = believed.map(|hold| hold.span.to + header.latest_landing).max().unwrap_or_default();
            let limit = last.max(tenure.span.from) + tenure.ttl + allowance(tenure.ttl);
            if tenure.span.to > limit {
                let what = format!("{} was kept until {} ms", shown(tenure), tenure.span.to.as_millis());
                found.push(violation(Rule::Leftover, limit, what));
            }
        }
        for (at, event) in self.events() {
            match event {
                Event::End { left } => {
                    let what = |(key, token): &(String, Tag)| {
                        format!("{key} is still held by {token} after everything ran out")
                    };
                    found.extend(left.iter().map(what).map(|what| violation(Rule::Leftover, at, what)));
                }
                Event::Shutdown { client, unreleased: 0, guards: 0 } if self.quiet() => {
                    let mine = |tenure: &&Tenure| {
                        tenure.client == *client && tenure.span.from <= at && tenure.span.to > at
                    };
                    let left = self.index.tenures.iter().filter(mine);
                    let what = |tenure| format!("c{client} shut down cleanly, but left {}", shown(tenure));
                    found.extend(left.map(what).map(|what| violation(Rule::Leftover, at, what)));
                }
                _ => {}
            }
        }
        found
    }

    // (b), (f): what the engine set.
    fn expiries(&self) -> Vec<Violation> {
        let mut found = Vec::new();
        for (at, step) in &self.index.steps {
            let Some(after) = step.after.as_ref().filter(|after| after.token == step.token) else { continue };
            let before =
                step.before.as_ref().filter(|before| before.token == step.token && before.expires > *at);
            let (call, token, key) = (step.call, &step.token, &step.key);
            match before {
                Some(before) if call == Call::Acquire && before.expires != after.expires => {
                    let what = format!("asking again moved the expiry of {token} on {key}");
                    found.push(violation(Rule::Leftover, *at, what));
                }
                Some(before) if before.expires > after.expires => {
                    let what = format!("{call:?} shortened the lease of {token} on {key}");
                    found.push(violation(Rule::FalseBelief, *at, what));
                }
                Some(before) if before.expires == after.expires => {}
                _ if after.expires > *at + step.ttl + allowance(step.ttl) => {
                    let (expires, ttl) = (after.expires.as_millis(), step.ttl.as_millis());
                    let what =
                        format!("{call:?} of {token} on {key} for {ttl} ms set its expiry to {expires} ms");
                    found.push(violation(Rule::Leftover, *at, what));
                }
                _ => {}
            }
        }
        found
    }

    // (c)
    fn overdue(&self) -> Vec<Violation> {
        let limit = self.history.header.call_limit;
        let mut found = Vec::new();
        for (op, operation) in self.operations() {
            let most = match &operation.wish {
                Wish::Lock { wait, .. } if wait.is_zero() => limit * 2,
                Wish::Lock { wait, .. } => *wait + limit,
                Wish::Release { .. } => limit * 2,
                // The block takes its own time.
                Wish::Run { .. } => self.index.end,
                Wish::Inspect | Wish::Revoke { .. } => limit,
            };
            match operation.span() {
                Some(span) if span.to - span.from > most + COARSE => {
                    let took = (span.to - span.from).as_millis();
                    let what =
                        format!("#{op} {:?} took {took} ms of at most {}", operation.wish, most.as_millis());
                    found.push(violation(Rule::Overdue, span.to, what));
                }
                Some(_) => {}
                None => found.push(violation(Rule::Overdue, self.index.end, format!("#{op} never ended"))),
            }
        }
        found
    }

    // (d)
    fn releases(&self) -> Vec<Violation> {
        let mut found = Vec::new();
        for (op, operation) in self.operations() {
            let (Wish::Release { token }, Some(span)) = (&operation.wish, operation.span()) else { continue };
            let gave_back = self.index.steps.iter().any(|(at, step)| {
                step.call == Call::Release
                    && step.token == *token
                    && span.meets(Span { from: *at, to: *at })
                    && step
                        .before
                        .as_ref()
                        .is_some_and(|before| before.token == *token && before.expires > *at)
                    && step.after.is_none()
            });
            match operation.outcome() {
                Some(Outcome::Released(true)) if !gave_back => {
                    let what = format!("#{op} said that {token} was held, but gave nothing back");
                    found.push(violation(Rule::FalseRelease, span.to, what));
                }
                Some(Outcome::Released(false)) if gave_back && self.quiet() => {
                    let what = format!("#{op} said that {token} was not held, but gave it back");
                    found.push(violation(Rule::FalseRelease, span.to, what));
                }
                _ => {}
            }
        }
        found
    }

    // (e)
    fn trespasses(&self) -> Vec<Violation> {
        let others = self.index.steps.iter().filter_map(|(at, step)| {
            let before = step.before.as_ref()?;
            let other = before.token != step.token && before.expires > *at && step.after != step.before;
            other.then(|| {
                let what = format!(
                    "{:?} of {} changed what {} had on {}",
                    step.call, step.token, before.token, step.key
                );
                violation(Rule::Trespass, *at, what)
            })
        });
        others.collect()
    }

    // (f)
    fn beliefs(&self) -> Vec<Violation> {
        let mut found = Vec::new();
        for hold in &self.index.holds {
            let really = self.index.tenures_of(&hold.key, &hold.token).map(|tenure| tenure.span);
            let entitled = really.chain(self.index.excuses_of(&hold.key, &hold.token));
            if let Some(at) = hold.span.gap(entitled) {
                let what = format!(
                    "c{} believed until {} ms that it holds {} by {}, but the engine had nothing of it",
                    hold.client,
                    hold.span.to.as_millis(),
                    hold.key,
                    hold.token
                );
                found.push(violation(Rule::FalseBelief, at, what));
            }
        }
        found
    }

    // (f)
    fn validity(&self) -> Vec<Violation> {
        let mut over = BTreeSet::new();
        let mut found = Vec::new();
        for (at, event) in self.events() {
            match event {
                Event::Ended { token, .. } => {
                    over.insert(token);
                }
                Event::Probe { token, valid: true } if over.contains(token) => {
                    found.push(violation(
                        Rule::FalseBelief,
                        at,
                        format!("{token} was valid after it was over"),
                    ));
                }
                _ => {}
            }
        }
        found
    }

    // (g)
    fn own_denials(&self) -> Vec<Violation> {
        let asked: BTreeSet<(u64, &Tag)> = self
            .events()
            .filter_map(|(_, event)| match event {
                Event::Port { op: Some(op), call: Call::Acquire, token, .. } => Some((*op, token)),
                _ => None,
            })
            .collect();
        let mut found = Vec::new();
        for (op, operation, span, holder) in self.denied() {
            let Some(holder) = holder.filter(|_| operation.is_try()) else { continue };
            if asked.contains(&(op, holder)) {
                found.push(violation(
                    Rule::OwnDenial,
                    span.to,
                    format!("#{op} was denied by its own attempt {holder}"),
                ));
            }
            let given_back = self.index.holds.iter().any(|hold| {
                let before = hold.ended_by.is_some_and(|ended| ended < operation.begun_by);
                if hold.token != *holder || hold.client != operation.client || !before {
                    return false;
                }
                // What was granted, or renewed, only after it was given back came late over the network: nobody could
                // have waited for that.
                let mut there =
                    self.index.tenures_of(&hold.key, &hold.token).filter(|tenure| tenure.span.meets(span));
                there.all(|tenure| tenure.last_set <= hold.span.to)
            });
            if given_back {
                let what =
                    format!("#{op} was denied by {holder}, which c{} had given back", operation.client);
                found.push(violation(Rule::OwnDenial, span.to, what));
            }
        }
        found
    }

    // (h)
    fn tokens(&self) -> Vec<Violation> {
        let mut found = Vec::new();
        let mut guards = BTreeSet::new();
        let mut asked: BTreeSet<&Tag> = BTreeSet::new();
        let mut sent: BTreeMap<u64, BTreeSet<&Tag>> = BTreeMap::new();
        for (at, event) in self.events() {
            match event {
                Event::Held { token, .. } if !guards.insert(token) => {
                    found.push(violation(Rule::Token, at, format!("{token} was given to a second guard")));
                }
                Event::Port { token, .. } => {
                    asked.insert(token);
                }
                Event::Sent { op: Some(op), call: Call::Acquire, token, .. } => {
                    let tokens = sent.entry(*op).or_default();
                    tokens.insert(token);
                    let is_try = self.index.operations.get(op).is_some_and(Operation::is_try);
                    if is_try && tokens.len() == 2 {
                        found.push(violation(
                            Rule::Token,
                            at,
                            format!("#{op} asks again under another token, {token}"),
                        ));
                    }
                }
                _ => {}
            }
        }
        for tenure in &self.index.tenures {
            if !asked.contains(&tenure.token) {
                let what = format!("the engine granted {}, for which no manager asked", shown(tenure));
                found.push(violation(Rule::Token, tenure.span.from, what));
            }
        }
        found
    }

    // (i)
    fn denials(&self) -> Vec<Violation> {
        let mut found = Vec::new();
        for (op, operation, span, _) in self.denied() {
            if !operation.is_try() && (!self.quiet() || self.stood_in_line(op, operation, span)) {
                continue;
            }
            let taken = self
                .index
                .tenures
                .iter()
                .any(|tenure| tenure.key == operation.key && tenure.span.meets(span));
            let here = |hold: &Hold| {
                hold.key == operation.key && hold.client == operation.client && hold.span.meets(span)
            };
            if !taken && !self.index.holds.iter().any(here) {
                let what = format!("#{op} was denied on {}, which was free all the time", operation.key);
                found.push(violation(Rule::FalseDenial, span.to, what));
            }
        }
        found
    }

    /// Whether others of this process wanted the same key meanwhile.
    fn stood_in_line(&self, op: u64, operation: &Operation, span: Span) -> bool {
        self.operations().any(|(other_op, other)| {
            other_op != op
                && other.client == operation.client
                && other.key == operation.key
                && matches!(other.wish, Wish::Lock { .. } | Wish::Run { .. })
                && other.span().is_none_or(|other| other.meets(span))
        })
    }

    // (j)
    fn port(&self) -> Vec<Violation> {
        let mut concluded: BTreeMap<&Tag, Duration> = BTreeMap::new();
        let mut acquires: BTreeMap<&Tag, Acquires> = BTreeMap::new();
        for (at, event) in self.events() {
            match event {
                Event::Port {
                    call: Call::Release,
                    token,
                    answer: Answer::Release { conclusive: true, .. },
                    ..
                } => {
                    concluded.entry(token).or_insert(at);
                }
                Event::Port { call: Call::Acquire, token, answer, .. } => {
                    let acquires = acquires.entry(token).or_default();
                    // One that never went out cannot be granted.
                    acquires.asked += usize::from(std::mem::take(&mut acquires.went_out));
                    acquires.may_hold |= !matches!(answer, Answer::NotApplied | Answer::No);
                }
                Event::Sent { call: Call::Acquire, token, .. } => {
                    let acquires = acquires.entry(token).or_default();
                    acquires.sent += 1;
                    acquires.went_out = true;
                }
                _ => {}
            }
        }
        let mut found = Vec::new();
        for tenure in &self.index.tenures {
            if concluded.get(&tenure.token).is_some_and(|at| tenure.span.from > *at) {
                let what =
                    format!("{} was granted after a release of it was called conclusive", shown(tenure));
                found.push(violation(Rule::Port, tenure.span.from, what));
            }
            // What a client sends again by itself may be granted after its last copy was denied: nobody knows of it.
            if acquires
                .get(&tenure.token)
                .is_some_and(|acquires| !acquires.may_hold && acquires.sent <= acquires.asked)
            {
                let what = format!(
                    "{} was granted, but its manager was told that nothing was applied",
                    shown(tenure)
                );
                found.push(violation(Rule::Port, tenure.span.from, what));
            }
        }
        found
    }

    // (k)
    fn panics(&self) -> Vec<Violation> {
        let panics = self.events().filter_map(|(at, event)| match event {
            Event::Panicked { client } => {
                Some(violation(Rule::Panic, at, format!("a task of c{client} panicked")))
            }
            _ => None,
        });
        panics.collect()
    }
}

/// What became of the acquires of one token.
#[derive(Default)]
struct Acquires {
    /// How often the manager asked and it was sent.
    asked: usize,
    /// Whether it was sent since the manager was answered last.
    went_out: bool,
    /// How often it was sent.
    sent: usize,
    /// Whether one may have been applied, by what the manager was told.
    may_hold: bool,
}

impl Operation {
    /// Whether it asks once and does not wait.
    fn is_try(&self) -> bool {
        matches!(&self.wish, Wish::Lock { wait, .. } if wait.is_zero())
    }
}

/// What an engine's clock may be off over this time.
fn allowance(ttl: Duration) -> Duration {
    ttl / 100 + COARSE
}

fn shown(tenure: &Tenure) -> String {
    format!("{} on {} since {} ms", tenure.token, tenure.key, tenure.span.from.as_millis())
}

fn overlap(first: &Hold, next: &Hold, common: Span) -> String {
    format!(
        "{} is held by c{} ({}) and c{} ({}) until {} ms",
        first.key,
        first.client,
        first.token,
        next.client,
        next.token,
        common.to.as_millis()
    )
}

const fn violation(rule: Rule, at: Duration, what: String) -> Violation {
    Violation { rule, at, what }
}
