//! What operations and calls tell, against what was done.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::super::index::{COARSE, Hold, Operation, Span, Tenure};
use super::super::{Answer, Call, Event, Outcome, Role, Stop, Tag, Wanted, Wish};
use super::{Checker, Rule, Violation, shown, violation};

impl Checker<'_> {
    /// Tries that were denied, with who was named as the holder.
    fn denied(&self) -> impl Iterator<Item = (u64, &Operation, Span, Option<&Tag>)> {
        self.operations().filter_map(|(op, operation)| match operation.outcome() {
            Some(Outcome::Denied { holder }) => Some((op, operation, operation.span()?, holder.as_ref())),
            _ => None,
        })
    }

    // (c)
    pub(super) fn overdue(&self) -> Vec<Violation> {
        let limit = self.history.header.call_limit;
        let mut found = Vec::new();
        for (op, operation) in self.operations() {
            let most = match &operation.wish {
                Wish::Lock(wanted) if wanted.wait.is_zero() => limit * 2,
                Wish::Lock(wanted) => wanted.wait + limit,
                Wish::Release { .. } => limit * 2,
                // The block takes its own time.
                Wish::Run(_) => self.index.end,
                Wish::Inspect | Wish::Revoke { .. } => limit,
            };
            match operation.span() {
                Some(span) => {
                    let stops = self.index.stops_of(operation.client).filter_map(|stop| stop.overlap(span));
                    let stopped: Duration = stops.map(|stop| stop.to - stop.from).sum();
                    if span.to - span.from > most + stopped + COARSE {
                        let (took, most) = ((span.to - span.from).as_millis(), most.as_millis());
                        let what = format!("#{op} {:?} took {took} ms of at most {most}", operation.wish);
                        found.push(violation(Rule::Overdue, span.to, what));
                    }
                }
                None => found.push(violation(Rule::Overdue, self.index.end, format!("#{op} never ended"))),
            }
        }
        found
    }

    // (d)
    pub(super) fn releases(&self) -> Vec<Violation> {
        let mut found = Vec::new();
        let sent: BTreeSet<u64> = self
            .events()
            .filter_map(|(_, event)| match event {
                Event::Port { op: Some(op), call: Call::Release, .. } => Some(*op),
                _ => None,
            })
            .collect();
        for (op, operation) in self.operations() {
            let (Wish::Release { token }, Some(span)) = (&operation.wish, operation.span()) else { continue };
            if operation.outcome() == Some(&Outcome::Released(true)) && !sent.contains(&op) {
                // It went to the next in line of its process; what that one believes is checked elsewhere.
                continue;
            }
            let giving = self.index.steps.iter().filter(|(at, step)| {
                step.call == Call::Release
                    && step.token == *token
                    && span.meets(Span { from: *at, to: *at })
                    && step.touched.iter().all(|touched| {
                        let mine = |p: &super::super::Placed| p.token == *token && p.role.is_held();
                        touched.before.iter().any(|p| mine(p) && p.expires > *at)
                            && !touched.after.iter().any(mine)
                    })
            });
            let nodes: BTreeSet<usize> = giving.map(|(_, step)| step.node).collect();
            let gave_back = nodes.len() >= self.history.header.majority();
            match operation.outcome() {
                Some(Outcome::Released(true)) if !gave_back => {
                    let what = format!("#{op} said that {token} was held, but gave nothing back");
                    found.push(violation(Rule::FalseRelease, span.to, what));
                }
                // Of a quorum, two releases at the same time may have shared it.
                Some(Outcome::Released(false))
                    if gave_back && self.quiet() && self.history.header.nodes == 1 =>
                {
                    let what = format!("#{op} said that {token} was not held, but gave it back");
                    found.push(violation(Rule::FalseRelease, span.to, what));
                }
                _ => {}
            }
        }
        found
    }

    /// When each operation sent its last acquire, and for which token.
    fn last_sent(&self) -> BTreeMap<u64, (Duration, &Tag)> {
        let sent = self.events().filter_map(|(at, event)| match event {
            Event::Sent { op: Some(op), call: Call::Acquire, token, .. } => Some((*op, (at, token))),
            _ => None,
        });
        sent.collect()
    }

    // (g)
    pub(super) fn own_denials(&self) -> Vec<Violation> {
        let asked: BTreeSet<(u64, &Tag)> = self
            .events()
            .filter_map(|(_, event)| match event {
                Event::Port { op: Some(op), call: Call::Acquire, token, .. } => Some((*op, token)),
                _ => None,
            })
            .collect();
        let last_sent = self.last_sent();
        let mut found = Vec::new();
        for (op, operation, span, holder) in self.denied() {
            let Some((holder, wanted)) = holder.zip(operation.wanted()) else { continue };
            if (wanted.bare || operation.is_try()) && asked.contains(&(op, holder)) {
                let what = format!("#{op} was denied by its own attempt {holder}");
                found.push(violation(Rule::OwnDenial, span.to, what));
            }
            // Only a manager knows what its process gave back; and of several holders one may be on its way out.
            let alone = wanted.claims.iter().all(|(_, role, _)| *role == Role::Exclusive);
            // And of a quorum, a node that was slow may still know it.
            if wanted.bare || !alone || !operation.is_try() || self.history.header.nodes > 1 {
                continue;
            }
            let given_back = self.index.holds.iter().any(|hold| {
                let before = hold.ended_by.is_some_and(|ended| ended < operation.begun_by);
                if hold.token != *holder || hold.client != operation.client || !before {
                    return false;
                }
                // A lease that was passed on serves another guard now.
                if self
                    .index
                    .holds
                    .iter()
                    .any(|next| next.token == hold.token && next.op != hold.op && next.span.meets(span))
                {
                    return false;
                }
                // One that was lost by its holder's own count is taken back without anybody waiting for it. That the engine
                // still has it then is its clock, which went back.
                let entries = &self.history.entries;
                let ended = hold.ended_by.and_then(|place| entries.get(place)).map(|entry| &entry.event);
                if matches!(ended, Some(Event::Ended { how: Stop::Lost, .. })) {
                    return false;
                }
                // What was granted, or renewed, only after it was given back came late over the network: nobody could
                // have waited for that.
                // Nor could it be known, when it was asked for, that a clock that went back made it longer.
                let asked = last_sent.get(&op).map_or(span.from, |(at, _)| *at);
                let known = |tenure: &&Tenure| {
                    let stretched = tenure.span.to.saturating_sub(tenure.stretched) < asked;
                    tenure.span.meets(span) && (tenure.stretched.is_zero() || !stretched)
                };
                let mut there = self.index.tenures_of(hold).filter(known).peekable();
                let came_late =
                    there.peek().is_none() || !there.all(|tenure| tenure.last_set <= hold.span.to);
                // On its way to the next in line, which was there before this one, as soon as it is renewed.
                let passing = self.renewed_after(hold) && self.stood_in_line(op, operation, span);
                !came_late && !passing
            });
            if given_back {
                let what =
                    format!("#{op} was denied by {holder}, which c{} had given back", operation.client);
                found.push(violation(Rule::OwnDenial, span.to, what));
            }
        }
        found
    }

    /// Whether the lease was renewed after its holder was done with it.
    fn renewed_after(&self, hold: &Hold) -> bool {
        self.events().any(|(at, event)| {
            let renewal = |call: Call, token: &Tag| call == Call::Renew && *token == hold.token;
            matches!(event, Event::Sent { call, token, .. } if renewal(*call, token)) && at >= hold.span.to
        })
    }

    // (i)
    pub(super) fn denials(&self) -> Vec<Violation> {
        let last_sent = self.last_sent();
        let revoked: BTreeSet<&Tag> = self
            .index
            .steps
            .iter()
            .filter(|(_, step)| step.call == Call::Revoke && step.changed())
            .map(|(_, step)| &step.token)
            .collect();
        let mut found = Vec::new();
        for (op, operation, span, holder) in self.denied() {
            let Some(wanted) = operation.wanted() else { continue };
            let last_sent = last_sent.get(&op).copied();
            if holder.is_none() && last_sent.is_some_and(|(_, token)| revoked.contains(token)) {
                // Granted, and ended by force before the answer came.
                continue;
            }
            let strict = wanted.bare || operation.is_try();
            if !strict && (!self.quiet() || self.stood_in_line(op, operation, span)) {
                continue;
            }
            // A bare client repeats what the engine told it last. (Of several nodes, some told it before it sent to others.)
            let repeats = wanted.bare && self.history.header.nodes == 1;
            let from = last_sent.filter(|_| repeats).map_or(span.from, |(at, _)| at);
            let call = Span { from, to: span.to };
            let here = |hold: &Hold| {
                let same = |(key, ..): &(String, Role, u32)| *key == hold.key;
                wanted.claims.iter().any(same)
                    && hold.client == operation.client
                    && (hold.span.meets(span) || self.forgotten_while_passed(hold, op, operation, span))
            };
            let here = !wanted.bare && self.index.holds.iter().any(here);
            if !here && !self.taken(wanted, call) {
                let what = format!("#{op} was denied on {}, which was free all the time", operation.key);
                found.push(violation(Rule::FalseDenial, span.to, what));
            }
        }
        found
    }

    /// Whether the lease is on its way to the next in line, and the engine forgot it meanwhile, which nobody can know yet.
    fn forgotten_while_passed(&self, hold: &Hold, op: u64, operation: &Operation, span: Span) -> bool {
        let is_named = || matches!(operation.outcome(), Some(Outcome::Denied { holder: Some(holder) }) if *holder == hold.token);
        hold.span.to <= span.from
            && is_named()
            && self.index.excuses_of(hold).any(|excuse| excuse.meets(span))
            && self.stood_in_line(op, operation, span)
    }

    /// Whether one of the claims could not be granted at some instant of the span.
    fn taken(&self, wanted: &Wanted, span: Span) -> bool {
        wanted.claims.iter().any(|(key, role, of)| {
            let there =
                || self.index.tenures.iter().filter(|tenure| tenure.key == *key && tenure.span.meets(span));
            match role {
                Role::Shared => {
                    there().any(|t| matches!(t.role, Role::Exclusive | Role::Heir | Role::Writer))
                }
                Role::Permit => {
                    let at = |at: Duration| {
                        let then = |t: &&Tenure| t.role.is_held() && t.span.from <= at && at <= t.span.to;
                        u32::try_from(there().filter(then).count()).is_ok_and(|held| held >= *of)
                    };
                    at(span.from) || there().any(|t| t.span.from > span.from && at(t.span.from))
                }
                _ => there().any(|t| {
                    t.role.is_held()
                        || matches!(t.role, Role::Heir | Role::Done)
                        || (wanted.fair && t.role == Role::Queued)
                }),
            }
        })
    }

    /// Whether others of this process wanted the same key meanwhile.
    fn stood_in_line(&self, op: u64, operation: &Operation, span: Span) -> bool {
        self.operations().any(|(other_op, other)| {
            other_op != op
                && other.client == operation.client
                && other.key == operation.key
                && other.wanted().is_some()
                && other.span().is_none_or(|other| other.meets(span))
        })
    }

    // (j)
    pub(super) fn port(&self) -> Vec<Violation> {
        let mut concluded: BTreeMap<&Tag, Duration> = BTreeMap::new();
        let mut acquires: BTreeMap<&Tag, Acquires> = BTreeMap::new();
        for (at, event) in self.events() {
            match event {
                Event::Port {
                    call: Call::Release | Call::Complete,
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
        for tenure in self.index.tenures.iter().filter(|tenure| tenure.role.is_held()) {
            if tenure.revived {
                continue;
            }
            if let Some(at) = concluded.get(&tenure.token).filter(|at| tenure.span.contains(**at)) {
                let what = format!("{} was still there after a release of it was conclusive", shown(tenure));
                found.push(violation(Rule::Leftover, *at, what));
            }
            if concluded.get(&tenure.token).is_some_and(|at| tenure.span.from > *at) {
                let what =
                    format!("{} was granted after a release of it was called conclusive", shown(tenure));
                found.push(violation(Rule::Port, tenure.span.from, what));
            }
            // What a client sends again by itself may be granted after its last copy was denied: nobody knows of it. And of
            // several nodes, some may grant what the others do not.
            let told = |acquires: &Acquires| !acquires.may_hold && acquires.sent <= acquires.asked;
            // What was handed over no acquire was told of.
            let asked = self.history.header.nodes == 1 && !tenure.handed_over;
            if asked && acquires.get(&tenure.token).is_some_and(told) {
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
    pub(super) fn panics(&self) -> Vec<Violation> {
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
    pub(super) fn is_try(&self) -> bool {
        matches!(&self.wish, Wish::Lock(wanted) if wanted.wait.is_zero())
    }
}
