//! From a run that breaks a rule to the few faults that matter.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;

use super::FaultId;
use super::workload::{Setup, run};
use crate::history::{Event, History, Rule, check};

/// What came of it.
#[derive(Debug, Clone)]
pub struct Shrunk {
    /// The faults without which the rule is not broken, as far as was tried.
    pub faults: Vec<FaultId>,
    /// How many runs it took.
    pub runs: usize,
    /// The history with those faults only.
    pub history: History,
}

fn faults_of(history: &History) -> Vec<FaultId> {
    let id = |event: &Event| match event {
        Event::Fault { id } => Some(*id),
        _ => None,
    };
    history.entries.iter().filter_map(|entry| id(&entry.event)).collect()
}

/// Leaves out more and more faults, as long as the seed still breaks the rule without them, in at most `most` runs.
///
/// # Errors
/// As [`run`].
pub fn shrink(seed: u64, setup: &Setup, rule: Rule, most: usize) -> io::Result<Shrunk> {
    let mut runs = 0;
    let mut attempt = |faults: &[FaultId]| -> io::Result<Option<History>> {
        runs += 1;
        let only = Some(Arc::new(faults.iter().copied().collect::<BTreeSet<_>>()));
        let history = run(seed, &Setup { only, ..setup.clone() })?.history;
        Ok(check(&history).iter().any(|violation| violation.rule == rule).then_some(history))
    };
    let mut best = run(seed, setup)?.history;
    let mut faults = faults_of(&best);
    faults.sort_unstable();
    faults.dedup();
    let mut tried = 0;
    // First whole kinds, clients and nodes; then halves, quarters, …
    let kind = |id: &FaultId| id.kind as usize;
    let client = |id: &FaultId| id.client.map_or(0, |client| client + 1);
    let node = |id: &FaultId| id.node;
    for group in [kind as fn(&FaultId) -> usize, client, node] {
        let groups: BTreeSet<usize> = faults.iter().map(group).collect();
        for left_out in groups {
            let rest: Vec<_> = faults.iter().copied().filter(|id| group(id) != left_out).collect();
            if tried >= most || rest.len() == faults.len() {
                continue;
            }
            tried += 1;
            if let Some(history) = attempt(&rest)? {
                let struck: BTreeSet<_> = faults_of(&history).into_iter().collect();
                (faults, best) = (rest.into_iter().filter(|id| struck.contains(id)).collect(), history);
            }
        }
    }
    let mut pieces = 2;
    while !faults.is_empty() && tried < most {
        let size = faults.len().div_ceil(pieces);
        let mut smaller = None;
        for piece in 0..pieces {
            let left_out = (piece * size).min(faults.len())..((piece + 1) * size).min(faults.len());
            if left_out.is_empty() || tried >= most {
                continue;
            }
            let rest: Vec<_> =
                faults.iter().enumerate().filter(|(i, _)| !left_out.contains(i)).map(|(_, id)| *id).collect();
            tried += 1;
            if let Some(history) = attempt(&rest)? {
                // What did not come about without the others does not matter either.
                let struck: BTreeSet<_> = faults_of(&history).into_iter().collect();
                smaller = Some((rest.into_iter().filter(|id| struck.contains(id)).collect(), history));
                break;
            }
        }
        match smaller {
            Some((rest, history)) => {
                (faults, best) = (rest, history);
                pieces = pieces.saturating_sub(1).max(2);
            }
            None if size <= 1 => break,
            None => pieces = (pieces * 2).min(faults.len().max(2)),
        }
    }
    Ok(Shrunk { faults, runs, history: best })
}
