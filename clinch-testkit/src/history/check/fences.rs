//! Fences: as they are given, as they are told, and as a resource sees them.

use std::collections::{BTreeMap, BTreeSet};

use clinch::lease::Fence;

use super::super::{Answer, Call, Event, Tag};
use super::{Checker, Rule, Violation, violation};

/// The most passes of a lease inside a process.
const MOST_PASSES: u64 = 64;

impl Checker<'_> {
    // (o): as the engine gives them.
    pub(super) fn fences(&self) -> Vec<Violation> {
        let mut found = Vec::new();
        let mut highest: BTreeMap<&str, u64> = BTreeMap::new();
        for (at, step) in &self.index.steps {
            for touched in &step.touched {
                for after in &touched.after {
                    let Some(fence) = after.fence.filter(|_| !touched.before.contains(after)) else {
                        continue;
                    };
                    let same = |before: &&super::super::Placed| {
                        before.token == after.token && before.role == after.role
                    };
                    let before = touched.before.iter().find(same).filter(|before| before.expires > *at);
                    if before.is_some_and(|before| before.fence == Some(fence)) {
                        continue;
                    }
                    let (key, token) = (&touched.key, &after.token);
                    let mut wrong = |what: &str| {
                        let what = format!("the fence {fence} of {token} on {key} {what}");
                        found.push(violation(Rule::Fence, *at, what));
                    };
                    if before.is_some() {
                        wrong("is its second for one grant");
                    }
                    if !fence.is_multiple_of(Fence::STEP) {
                        wrong("lies between two steps");
                    }
                    if touched.floor.is_some_and(|floor| fence <= floor && *token == step.token) {
                        wrong("is not above its floor");
                    }
                    let highest = highest.entry(key.as_str()).or_default();
                    if fence <= *highest {
                        wrong("is not above the one before");
                    }
                    *highest = fence.max(*highest);
                }
            }
        }
        found
    }

    /// Every fence that the engine gave, by key and token, in the order of the grants.
    fn given(&self) -> Vec<(&str, &Tag, u64)> {
        let mut given = Vec::new();
        let mut known = BTreeSet::new();
        for (_, step) in &self.index.steps {
            for touched in &step.touched {
                for after in &touched.after {
                    if let Some(fence) = after.fence
                        && known.insert((touched.key.as_str(), &after.token, fence))
                    {
                        given.push((touched.key.as_str(), &after.token, fence));
                    }
                }
            }
        }
        given
    }

    // (o): as callers are told.
    pub(super) fn told_fences(&self) -> Vec<Violation> {
        let given: BTreeSet<_> = self.given().into_iter().map(|(_, token, fence)| (token, fence)).collect();
        let mut last: BTreeMap<(&str, &Tag), u64> = BTreeMap::new();
        let mut found = Vec::new();
        for (at, event) in self.events() {
            match event {
                Event::Port { call: Call::Acquire, token, answer: Answer::Granted(fences), .. } => {
                    for fence in fences.iter().flatten().filter(|fence| !given.contains(&(token, **fence))) {
                        let what = format!("{token} was told the fence {fence}, which it was not given");
                        found.push(violation(Rule::Fence, at, what));
                    }
                }
                Event::Held { token, claims, .. } => {
                    for claim in claims {
                        let Some(fence) = claim.fence else { continue };
                        let pass = fence % Fence::STEP;
                        if pass > MOST_PASSES || !given.contains(&(token, fence - pass)) {
                            let what =
                                format!("a guard of {token} has the fence {fence}, which is none of its own");
                            found.push(violation(Rule::Fence, at, what));
                        }
                        let last = last.entry((claim.key.as_str(), token)).or_default();
                        if fence <= *last {
                            let what = format!("{token} was passed on with the fence {fence} after {last}");
                            found.push(violation(Rule::Fence, at, what));
                        }
                        *last = fence.max(*last);
                    }
                }
                _ => {}
            }
        }
        found
    }

    // (p)
    pub(super) fn stale_writes(&self) -> Vec<Violation> {
        let order: BTreeMap<_, _> =
            self.given().into_iter().enumerate().map(|(i, given)| (given, i)).collect();
        let mut newest: BTreeMap<&str, (usize, u64)> = BTreeMap::new();
        let mut found = Vec::new();
        for (at, event) in self.events() {
            let Event::Write { key, token, fence, taken: true, .. } = event else { continue };
            let pass = fence % Fence::STEP;
            let Some(grant) = order.get(&(key.as_str(), token, fence - pass)) else { continue };
            let newest = newest.entry(key.as_str()).or_default();
            if (*grant, pass) < *newest {
                let what = format!("{key} took a write of {token} after one of its successors");
                found.push(violation(Rule::Stale, at, what));
            }
            *newest = (*grant, pass).max(*newest);
        }
        found
    }
}
