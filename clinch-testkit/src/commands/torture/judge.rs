//! Whether what the clients wrote down, and what the resource saw, can be.

use std::collections::BTreeMap;
use std::time::Duration;

use super::LIMIT;
use super::record::{Life, Refuted, Role, Tenure};
use super::register::Write;
use crate::commands::kid::nanos;

/// The time limit of a call, as a manager has it unless told otherwise.
const CALL: Duration = Duration::from_secs(1);
/// What a busy machine may add to anything.
const SLACK: Duration = Duration::from_secs(3);

/// A process, from its start to its end.
pub(super) struct Process {
    pub(super) life: Life,
    /// The times in which it was stopped.
    pub(super) stopped: Vec<(u64, u64)>,
    pub(super) killed: Option<u64>,
}

/// A time in which the deployment may have lost what it had granted, as it is documented to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Loss {
    pub(super) from: u64,
    pub(super) until: u64,
    pub(super) cost: Cost,
}

/// What a fault may cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cost {
    Nothing,
    /// An answer: a release of which that is lost finds nothing to give back the second time, and says so.
    Answer,
    /// A lease, which nobody else has because of that.
    Lease,
    /// A lease, which somebody else may have then.
    Exclusion,
}

impl Cost {
    const fn explains(self, rule: &str) -> bool {
        match self {
            Self::Nothing | Self::Answer => false,
            Self::Lease => matches!(rule.as_bytes(), b"lost"),
            Self::Exclusion => true,
        }
    }
}

/// A time, from and until.
type Between = (u64, u64);

/// Something that must not be.
#[derive(Debug, Clone)]
pub(super) struct Violation {
    pub(super) at: u64,
    pub(super) rule: &'static str,
    pub(super) what: String,
}

/// What came of it all.
#[derive(Debug, Default)]
pub(super) struct Verdict {
    pub(super) operations: u64,
    pub(super) outcomes: BTreeMap<String, u64>,
    pub(super) grants: u64,
    pub(super) hand_overs: u64,
    /// Writes that the resource took, and those that it refused because of their fence.
    pub(super) taken: u64,
    pub(super) refused: u64,
    pub(super) violations: Vec<Violation>,
    /// Overlaps that a documented loss of the deployment explains.
    pub(super) excused: Vec<Violation>,
}

/// Judges a whole run.
pub(super) fn judge(processes: &[Process], writes: &[Write], losses: &[Loss]) -> Verdict {
    let mut verdict = Verdict::default();
    let mut by_key: BTreeMap<&str, Vec<&Tenure>> = BTreeMap::new();
    for process in processes {
        for operation in process.life.operations.values() {
            verdict.operations += 1;
            *verdict.outcomes.entry(operation.outcome.clone()).or_default() += 1;
        }
        verdict.violations.extend(hung(process));
        for Refuted { granted, asked, answered } in process.life.refuted.iter().copied() {
            let what = "a release said that the lease was gone, within its validity".to_owned();
            let found = Violation { at: answered, rule: "lost", what };
            let unheard =
                |loss: &Loss| loss.cost == Cost::Answer && loss.from <= answered && asked <= loss.until;
            if losses.iter().any(unheard) {
                verdict.excused.push(found);
            } else {
                verdict.sort_out(found, losses, (granted, answered));
            }
        }
        for tenure in &process.life.tenures {
            by_key.entry(&tenure.key).or_default().push(tenure);
        }
    }
    for tenures in by_key.values_mut() {
        tenures.sort_by_key(|tenure| tenure.from);
        verdict.grants += tenures.len() as u64;
        verdict.hand_overs +=
            tenures.windows(2).filter(|pair| pair[0].process != pair[1].process).count() as u64;
        overlaps(tenures, losses, &mut verdict);
        fences(tenures, losses, &mut verdict);
    }
    stale(writes, &mut verdict);
    verdict.violations.sort_by_key(|violation| violation.at);
    verdict
}

impl Verdict {
    /// A violation, unless the deployment lost something in between.
    fn sort_out(&mut self, found: Violation, losses: &[Loss], (from, until): Between) {
        let explains =
            |loss: &Loss| loss.cost.explains(found.rule) && loss.from <= until && from <= loss.until;
        let explained = losses.iter().any(explains);
        if explained { &mut self.excused } else { &mut self.violations }.push(found);
    }
}

/// Nobody holds a key at the same time as another, unless both share it; of permits there are never more than the limit.
fn overlaps(tenures: &[&Tenure], losses: &[Loss], verdict: &mut Verdict) {
    let mut present: Vec<&Tenure> = Vec::new();
    for tenure in tenures.iter().copied().filter(|tenure| tenure.from < tenure.until) {
        present.retain(|other| other.until > tenure.from);
        let permits = present.iter().filter(|other| other.role == Role::Permit).count();
        // One that was lost makes all that come after it too many.
        let first_permit = present.iter().map(|other| other.said_before(tenure.from)).min();
        for other in &present {
            let together = match (tenure.role, other.role) {
                (Role::Shared, Role::Shared) => true,
                (Role::Permit, Role::Permit) => permits < LIMIT as usize,
                _ => false,
            };
            if !together {
                let shared = other.until.min(tenure.until) - tenure.from;
                let what = format!(
                    "`{}`: process {} got it while process {} had it, {:?} together",
                    tenure.key,
                    tenure.process,
                    other.process,
                    Duration::from_nanos(shared),
                );
                let found = Violation { at: tenure.from, rule: "overlap", what };
                let said = other.said_before(tenure.from);
                let since = if other.role == Role::Permit { first_permit.unwrap_or(said) } else { said };
                verdict.sort_out(found, losses, (since, tenure.from));
            }
        }
        present.push(tenure);
    }
}

/// Fences rise in the order of grants. Two that overlapped are reported as that.
fn fences(tenures: &[&Tenure], losses: &[Loss], verdict: &mut Verdict) {
    let fenced = tenures.iter().filter(|tenure| tenure.fence > 0);
    let mut highest: Option<&Tenure> = None;
    for tenure in fenced {
        if let Some(before) = highest.filter(|before| before.fence >= tenure.fence) {
            if before.until <= tenure.from {
                let what = format!("`{}`: {} after {}", tenure.key, tenure.fence, before.fence);
                let found = Violation { at: tenure.from, rule: "fence", what };
                verdict.sort_out(found, losses, (before.from, tenure.from));
            }
        } else {
            highest = Some(tenure);
        }
    }
}

/// A resource that checks fences never takes a write of a holder after one of its successor.
fn stale(writes: &[Write], verdict: &mut Verdict) {
    let mut highest: BTreeMap<&str, u64> = BTreeMap::new();
    for write in writes {
        if !write.taken {
            verdict.refused += 1;
            continue;
        }
        verdict.taken += 1;
        let highest = highest.entry(&write.key).or_default();
        if write.fence < *highest {
            let what = format!("`{}`: {} was taken after {highest}", write.key, write.fence);
            verdict.violations.push(Violation { at: write.at, rule: "stale write", what });
        }
        *highest = write.fence.max(*highest);
    }
}

/// Every operation ends by its deadline, not counting the time for which its process was stopped.
fn hung(process: &Process) -> Vec<Violation> {
    let limit = nanos(2 * CALL + SLACK);
    let last = process.life.operations.values().filter_map(|operation| operation.done).max().unwrap_or(0);
    let mut found = Vec::new();
    for operation in process.life.operations.values() {
        let ended = operation.done.or(process.killed).unwrap_or(last.max(operation.began));
        let stopped: u64 = process
            .stopped
            .iter()
            .map(|(from, until)| ended.min(*until).saturating_sub(operation.began.max(*from)))
            .sum();
        let took = (ended - operation.began).saturating_sub(stopped);
        if took > operation.wait + limit || (operation.done.is_none() && process.killed.is_none()) {
            let what = format!(
                "an operation that may wait for {:?} took {:?} ({})",
                Duration::from_nanos(operation.wait),
                Duration::from_nanos(took),
                if operation.done.is_some() { operation.outcome.as_str() } else { "never ended" },
            );
            found.push(Violation { at: operation.began, rule: "hung", what });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::record::{Belief, Writer};
    use super::*;

    /// A process that wrote this down.
    fn process(number: usize, write: impl FnOnce(&Writer)) -> Process {
        let file = tempfile::NamedTempFile::new().unwrap();
        write(&Writer::append_to(file.path()));
        Process { life: Life::read(file.path(), number, None), stopped: Vec::new(), killed: None }
    }

    fn held(number: usize, spans: &[(u64, u64, Role, u64)]) -> Process {
        process(number, |writer| {
            for (op, (from, until, role, fence)) in (0..).zip(spans) {
                writer.held(op, *from, Belief { said: *from, until: *until }, "k", *role, *fence);
                writer.ended(op, *until, true);
            }
        })
    }

    fn rules(verdict: &Verdict) -> Vec<&'static str> {
        verdict.violations.iter().map(|violation| violation.rule).collect()
    }

    #[test]
    fn two_at_once_are_found_unless_they_share() {
        use Role::{Exclusive, Permit, Shared};
        for (one, other, found) in [
            ((10, 30, Exclusive, 1), (20, 40, Exclusive, 2), true),
            ((10, 20, Exclusive, 1), (20, 40, Exclusive, 2), false),
            ((10, 30, Shared, 0), (20, 40, Shared, 0), false),
            ((10, 30, Shared, 0), (20, 40, Exclusive, 1), true),
            ((10, 30, Permit, 0), (20, 40, Permit, 0), false),
        ] {
            let verdict = judge(&[held(0, &[one]), held(1, &[other])], &[], &[]);
            assert_eq!(rules(&verdict) == ["overlap"], found, "{one:?}, {other:?}");
        }
        let many: Vec<_> =
            (0..=LIMIT).map(|i| held(i as usize, &[(10 + u64::from(i), 90, Permit, 0)])).collect();
        assert!(!rules(&judge(&many, &[], &[])).is_empty());
        assert!(rules(&judge(&many[1..], &[], &[])).is_empty());
    }

    #[test]
    fn a_loss_excuses_only_what_was_granted_before_it() {
        let both = || [held(0, &[(10, 50, Role::Exclusive, 1)]), held(1, &[(30, 60, Role::Exclusive, 2)])];
        let loss = |from, until, cost| Loss { from, until, cost };
        let excused = judge(&both(), &[], &[loss(20, 25, Cost::Exclusion)]);
        assert_eq!((rules(&excused).len(), excused.excused.len()), (0, 1));
        for loss in [loss(1, 9, Cost::Exclusion), loss(31, 70, Cost::Exclusion), loss(20, 25, Cost::Lease)] {
            assert_eq!(rules(&judge(&both(), &[], &[loss])), ["overlap"]);
        }
        // One that looks again believes what it was told before the loss, and one that got it from its neighbour too.
        let looks = |said| {
            process(0, |writer| {
                writer.held(0, 12, Belief { said: 10, until: 50 }, "k", Role::Exclusive, 1);
                writer.still(0, 28, Belief { said, until: 50 });
                writer.still(0, 40, Belief { said: 40, until: 50 });
                writer.ended(0, 50, true);
            })
        };
        let [_, other] = both();
        let loss = [loss(20, 25, Cost::Exclusion)];
        assert!(rules(&judge(&[looks(10), other], &[], &loss)).is_empty());
        let [_, other] = both();
        assert_eq!(rules(&judge(&[looks(26), other], &[], &loss)), ["overlap"]);
    }

    #[test]
    fn a_lost_answer_excuses_only_the_release_that_it_answered() {
        let refuted = || process(0, |writer| writer.refuted(0, 40, 10, 30));
        let loss = |from, until, cost| [Loss { from, until, cost }];
        assert_eq!(rules(&judge(&[refuted()], &[], &[])), ["lost"]);
        for (loss, is_found) in [
            (loss(35, 36, Cost::Answer), false),
            (loss(20, 29, Cost::Answer), true),
            (loss(41, 49, Cost::Answer), true),
            (loss(20, 29, Cost::Lease), false),
            (loss(1, 9, Cost::Lease), true),
        ] {
            assert_eq!(!rules(&judge(&[refuted()], &[], &loss)).is_empty(), is_found, "{loss:?}");
        }
    }

    #[test]
    fn fences_and_writes_that_go_back_are_found() {
        let falling = held(0, &[(10, 20, Role::Exclusive, 5), (30, 40, Role::Exclusive, 4)]);
        assert_eq!(rules(&judge(&[falling], &[], &[])), ["fence"]);
        let write = |at, fence, taken| Write { at, key: "k".to_owned(), fence, taken };
        let verdict = judge(&[], &[write(1, 5, true), write(2, 4, false), write(3, 5, true)], &[]);
        assert_eq!((rules(&verdict).len(), verdict.taken, verdict.refused), (0, 2, 1));
        assert_eq!(rules(&judge(&[], &[write(1, 5, true), write(2, 4, true)], &[])), ["stale write"]);
    }

    #[test]
    fn what_takes_too_long_is_found_unless_its_process_was_stopped() {
        let (wait, second) = (nanos(Duration::from_secs(2)), nanos(Duration::from_secs(1)));
        let waits = |took| {
            process(0, |writer| {
                writer.begin(1, 0, wait);
                writer.done(1, took, "denied");
            })
        };
        assert!(rules(&judge(&[waits(3 * second)], &[], &[])).is_empty());
        assert_eq!(rules(&judge(&[waits(30 * second)], &[], &[])), ["hung"]);
        let stopped = Process { stopped: vec![(second, 28 * second)], ..waits(30 * second) };
        assert!(rules(&judge(&[stopped], &[], &[])).is_empty());
        let never = || process(0, |writer| writer.begin(1, 0, wait));
        assert_eq!(rules(&judge(&[never()], &[], &[])), ["hung"]);
        assert!(rules(&judge(&[Process { killed: Some(second), ..never() }], &[], &[])).is_empty());
    }
}
