//! What callers believe, against each other and against the engine.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::super::index::{Hold, Operation, Span, Tenure};
use super::super::{Call, Event, Tag};
use super::{Checker, Rule, Violation, allowance, shown, violation};

impl Checker<'_> {
    // (a)
    pub(super) fn overlaps(&self) -> Vec<Violation> {
        let mut holds: Vec<&Hold> = self.index.holds.iter().collect();
        holds.sort_by(|a, b| (&a.key, a.span.from).cmp(&(&b.key, b.span.from)));
        let mut found = Vec::new();
        for (i, first) in holds.iter().enumerate() {
            let later = holds[i + 1..]
                .iter()
                .take_while(|next| next.key == first.key && next.span.from < first.span.to);
            for next in later.filter(|next| excludes(first, next)) {
                let Some(common) = first.span.overlap(next.span) else { continue };
                // At every instant, one of the two cannot know better.
                let excuses = self.index.excuses_of(first).chain(self.index.excuses_of(next));
                if common.gap(excuses).is_some() {
                    found.push(violation(Rule::Overlap, common.from, overlap(first, next, common)));
                }
            }
        }
        found
    }

    // (b)
    pub(super) fn leftovers(&self) -> Vec<Violation> {
        let header = &self.history.header;
        let mut last: BTreeMap<(&str, &Tag), Duration> = BTreeMap::new();
        for hold in &self.index.holds {
            let end = last.entry((hold.key.as_str(), &hold.token)).or_default();
            *end = (*end).max(hold.span.to + header.latest_landing);
        }
        // A caller that does not know since when it has its lease renews it before it believes in it.
        let mut renewed: BTreeMap<&Tag, Duration> = BTreeMap::new();
        // What can be handed over has its whole time from when it is asked for again.
        let mut asked: BTreeMap<&Tag, Duration> = BTreeMap::new();
        for (at, event) in self.events() {
            match event {
                Event::Sent { op: Some(_), call: Call::Renew, token, .. } => {
                    renewed.insert(token, at + header.latest_landing);
                }
                Event::Sent { op: Some(_), call: Call::Acquire, token, .. } => {
                    asked.insert(token, at + header.latest_landing);
                }
                _ => {}
            }
        }
        let mut found = Vec::new();
        for tenure in self.index.tenures.iter().filter(|tenure| tenure.role.is_held()) {
            let last = last.get(&(tenure.key.as_str(), &tenure.token)).copied().unwrap_or_default();
            let last = last.max(renewed.get(&tenure.token).copied().unwrap_or_default());
            let asked = asked.get(&tenure.token).filter(|_| tenure.inherits);
            let last = last.max(asked.copied().unwrap_or_default());
            let limit = last.max(tenure.span.from) + tenure.ttl + allowance(tenure.ttl) + tenure.stretched;
            if tenure.span.to > limit {
                let what = format!("{} was kept until {} ms", shown(tenure), tenure.span.to.as_millis());
                found.push(violation(Rule::Leftover, limit, what));
            }
        }
        for (at, event) in self.events() {
            match event {
                Event::End { left } => {
                    let what = |(key, token): &(String, Tag)| {
                        format!("{key} still knows {token} after everything ran out")
                    };
                    found.extend(left.iter().map(what).map(|what| violation(Rule::Leftover, at, what)));
                }
                Event::Shutdown { client, unreleased: 0, guards: 0 } if self.quiet() => {
                    let mine = |tenure: &&Tenure| {
                        tenure.client == *client && tenure.span.from <= at && tenure.span.to > at
                    };
                    let left = self.index.tenures.iter().filter(|tenure| tenure.role.is_held()).filter(mine);
                    // Of a quorum, one that was slow may hear of it later: nobody holds what most do not have.
                    let most = self.history.header.majority();
                    let count = |token: &Tag| left.clone().filter(|other| other.token == *token).count();
                    let left = left.clone().filter(|tenure| count(&tenure.token) >= most);
                    let what = |tenure| format!("c{client} shut down cleanly, but left {}", shown(tenure));
                    found.extend(left.map(what).map(|what| violation(Rule::Leftover, at, what)));
                }
                _ => {}
            }
        }
        found
    }

    // (f)
    pub(super) fn beliefs(&self) -> Vec<Violation> {
        let mut found = Vec::new();
        for hold in self.index.holds.iter().filter(|hold| !hold.degraded) {
            let really = self.index.held_for(hold, self.history.header.majority()).into_iter();
            if let Some(at) = hold.span.gap(really.chain(self.index.excuses_of(hold))) {
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
    pub(super) fn validity(&self) -> Vec<Violation> {
        let mut over = BTreeSet::new();
        let mut found = Vec::new();
        for (at, event) in self.events() {
            match event {
                Event::Ended { op, .. } => {
                    over.insert(*op);
                }
                Event::Probe { op, token, valid: true } if over.contains(op) => {
                    let what = format!("{token} was valid after it was over");
                    found.push(violation(Rule::FalseBelief, at, what));
                }
                _ => {}
            }
        }
        found
    }

    // (h)
    pub(super) fn tokens(&self) -> Vec<Violation> {
        let mut found = Vec::new();
        let mut guards: BTreeMap<&Tag, Guards> = BTreeMap::new();
        let mut asked: BTreeSet<&Tag> = BTreeSet::new();
        let mut sent: BTreeMap<u64, BTreeSet<&Tag>> = BTreeMap::new();
        for (at, event) in self.events() {
            match event {
                Event::Held { client, token, op, .. } => {
                    if let Some(before) = guards.get(token)
                        && let Some(why) = before.forbids(*client)
                    {
                        found.push(violation(Rule::Token, at, format!("{token} has a second guard {why}")));
                    }
                    let given_back = guards.get(token).is_some_and(|before| before.given_back);
                    guards.insert(token, Guards { client: *client, open: Some(*op), given_back });
                }
                Event::Ended { op, token, .. } => {
                    if let Some(guard) = guards.get_mut(token).filter(|guard| guard.open == Some(*op)) {
                        guard.open = None;
                    }
                }
                Event::Port { token, call, .. } => {
                    asked.insert(token);
                    if let (Call::Release | Call::Complete, Some(guard)) = (call, guards.get_mut(token)) {
                        guard.given_back = true;
                    }
                }
                Event::Sent { op: Some(op), call: Call::Acquire, token, .. } => {
                    let tokens = sent.entry(*op).or_default();
                    tokens.insert(token);
                    let is_try = self.index.operations.get(op).is_some_and(Operation::is_try);
                    if is_try && tokens.len() == 2 {
                        let what = format!("#{op} asks again under another token, {token}");
                        found.push(violation(Rule::Token, at, what));
                    }
                }
                _ => {}
            }
        }
        for tenure in &self.index.tenures {
            if !asked.contains(&tenure.token) {
                let what = format!("the engine granted {}, for which nobody asked", shown(tenure));
                found.push(violation(Rule::Token, tenure.span.from, what));
            }
        }
        found
    }
}

/// Whom a token serves.
struct Guards {
    client: usize,
    /// The guard that is there.
    open: Option<u64>,
    /// Whether a release or a completion of it was answered.
    given_back: bool,
}

impl Guards {
    /// Why it may not serve another guard of this process.
    fn forbids(&self, client: usize) -> Option<&'static str> {
        match self {
            _ if self.client != client => Some("in another process"),
            Self { open: Some(_), .. } => Some("beside the first"),
            Self { given_back: true, .. } => Some("after it was given back"),
            _ => None,
        }
    }
}

fn excludes(first: &Hold, next: &Hold) -> bool {
    let unprotected = (first.degraded || next.degraded) && first.client != next.client;
    !first.role.shares_with(next.role) && !unprotected
}

fn overlap(first: &Hold, next: &Hold, common: Span) -> String {
    format!(
        "{} is held by c{} ({}, {:?}) and c{} ({}, {:?}) until {} ms",
        first.key,
        first.client,
        first.token,
        first.role,
        next.client,
        next.token,
        next.role,
        common.to.as_millis()
    )
}
