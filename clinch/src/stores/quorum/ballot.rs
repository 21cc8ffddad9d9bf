//! Counting: what follows from the answers of some of the nodes.

use std::time::Duration;

use tokio::time::Instant;

use crate::lease::{Holder, Token};
use crate::store::{Denial, Effect, ErrorKind, Renewal, StoreError};

/// How many of `nodes` are more than half.
pub(super) const fn majority(nodes: usize) -> usize {
    nodes / 2 + 1
}

/// The answers to one step, as they come in.
#[derive(Debug)]
pub(super) struct Ballot<T> {
    nodes: usize,
    /// Who answered, and what.
    answers: Vec<(usize, T)>,
    errors: Vec<(usize, StoreError)>,
}

impl<T> Ballot<T> {
    pub(super) const fn new(nodes: usize) -> Self {
        Self { nodes, answers: Vec::new(), errors: Vec::new() }
    }

    pub(super) fn count(&mut self, node: usize, answer: Result<T, StoreError>) {
        match answer {
            Ok(answer) => self.answers.push((node, answer)),
            Err(error) => self.errors.push((node, error)),
        }
    }

    pub(super) const fn majority(&self) -> usize {
        majority(self.nodes)
    }

    /// How many have not answered yet.
    pub(super) const fn open(&self) -> usize {
        self.nodes - self.answers.len() - self.errors.len()
    }

    pub(super) fn answers(&self) -> &[(usize, T)] {
        &self.answers
    }

    pub(super) fn errors(&self) -> &[(usize, StoreError)] {
        &self.errors
    }

    /// How many gave such an answer.
    pub(super) fn with(&self, such: impl Fn(&T) -> bool) -> usize {
        self.answers.iter().filter(|(_, answer)| such(answer)).count()
    }

    /// What more than half of the nodes say, yes or no; `None` as long as the others could make it so or not.
    pub(super) fn says(&self, yes: impl Fn(&T) -> bool) -> Option<bool> {
        let ayes = self.with(&yes);
        let noes = self.answers.len() - ayes;
        if ayes >= self.majority() {
            Some(true)
        } else if self.nodes - noes < self.majority() {
            Some(false)
        } else {
            None
        }
    }

    /// That too few answered, and why. It is *not applied* only if that holds for every node.
    pub(super) fn failure(&self, names: &[String]) -> StoreError {
        let why: Vec<_> = self
            .errors
            .iter()
            .map(|(node, error)| format!("{}: {}", names[*node], error.message()))
            .collect();
        let message = format!(
            "{} of {} nodes answered, and {} are needed ({})",
            self.answers.len(),
            self.nodes,
            self.majority(),
            why.join("; ")
        );
        let not_applied = |error: &StoreError| error.effect() == Effect::NotApplied;
        let nowhere =
            self.answers.is_empty() && self.open() == 0 && self.errors.iter().all(|(_, e)| not_applied(e));
        // What a retry does not help against comes first, if there is such a thing.
        let worst = self.errors.iter().map(|(_, e)| e).min_by_key(|error| error.is_retryable());
        let kind = worst.map_or(ErrorKind::Unavailable, StoreError::kind);
        if nowhere { StoreError::not_applied(kind, message) } else { StoreError::unknown(kind, message) }
    }
}

/// What a node says to an acquire.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Vote {
    Granted,
    Denied(Denial),
}

/// What follows from the votes.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Decision {
    Granted,
    Denied,
    /// Too few nodes answered for either.
    Failed,
}

impl Ballot<Vote> {
    /// What follows from the votes so far, if anything does.
    pub(super) fn decision(&self) -> Option<Decision> {
        let granted = self.with(|vote| *vote == Vote::Granted);
        let answered = self.answers().len();
        if granted >= self.majority() {
            return Some(Decision::Granted);
        }
        if granted + self.open() >= self.majority() {
            return None;
        }
        if answered >= self.majority() && granted < answered {
            Some(Decision::Denied)
        } else if answered + self.open() < self.majority() || self.open() == 0 {
            Some(Decision::Failed)
        } else {
            None
        }
    }

    fn denials(&self) -> impl Iterator<Item = &Denial> {
        self.answers().iter().filter_map(|(_, vote)| vote.denial())
    }

    /// The holder whom most of them name, and how many do.
    fn holder(&self) -> (Option<&Holder>, usize) {
        let names = |token: &Token| self.denials().filter(|denial| named(denial) == Some(token)).count();
        let mut found = (None, 0);
        for denial in self.denials() {
            let times = named(denial).map_or(0, names);
            if times > found.1 {
                found = (denial.holder.as_ref(), times);
            }
        }
        found
    }

    /// Whether nobody has it, as far as those tell that can be asked: the votes are divided between several.
    pub(super) fn is_split(&self) -> bool {
        self.holder().1 + self.open() < self.majority()
    }

    /// The denial for all: the holder whom most of them name, and when enough of them will be free.
    pub(super) fn denial(&self) -> Denial {
        let denials = || self.denials();
        let holder = self.holder().0.cloned();
        let granted = self.with(|vote| *vote == Vote::Granted);
        let mut ends: Vec<Duration> = denials().map(|d| d.retry_after.unwrap_or(Duration::MAX)).collect();
        ends.sort_unstable();
        let missing = self.majority().saturating_sub(granted + 1);
        let retry_after = ends.get(missing).or(ends.last()).copied().filter(|end| *end < Duration::MAX);
        let done = denials().find_map(|denial| denial.done.clone());
        Denial { claim: 0, holder, retry_after, done }
    }
}

fn named(denial: &Denial) -> Option<&Token> {
    denial.holder.as_ref().map(Holder::token)
}

impl Vote {
    const fn denial(&self) -> Option<&Denial> {
        match self {
            Self::Granted => None,
            Self::Denied(denial) => Some(denial),
        }
    }
}

impl Ballot<Renewal> {
    /// What more than half of the nodes say. Only what they extended counts, from the earliest of their sends.
    pub(super) fn renewal(&self) -> Option<Renewal> {
        match self.says(|renewal| sent(renewal).is_some())? {
            true => {
                let sent_at = self.answers().iter().filter_map(|(_, renewal)| sent(renewal)).min()?;
                Some(Renewal::Extended { sent_at })
            }
            false => Some(Renewal::Lost),
        }
    }
}

const fn sent(renewal: &Renewal) -> Option<Instant> {
    match renewal {
        Renewal::Extended { sent_at } => Some(*sent_at),
        Renewal::Lost => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused() -> StoreError {
        StoreError::not_applied(ErrorKind::Unavailable, "refused")
    }

    fn ballot(votes: &str) -> Ballot<Vote> {
        let mut ballot = Ballot::new(votes.len());
        for (node, vote) in votes.chars().enumerate() {
            match vote {
                '+' => ballot.count(node, Ok(Vote::Granted)),
                '-' => ballot.count(node, Ok(Vote::Denied(Denial::default()))),
                'x' => ballot.count(node, Err(refused())),
                _ => {}
            }
        }
        ballot
    }

    #[test]
    fn more_than_half_decide_and_nobody_waits_for_the_rest() {
        for (votes, decision) in [
            ("++.", Some(Decision::Granted)),
            ("--.", Some(Decision::Denied)),
            ("+-.", None),
            ("+-x", Some(Decision::Denied)),
            ("+-+", Some(Decision::Granted)),
            ("xx.", Some(Decision::Failed)),
            ("+x.", None),
            ("-x.", None),
            ("+xx", Some(Decision::Failed)),
            ("x.+.-", None),
            ("++-xx", Some(Decision::Denied)),
            ("++xx.", None),
            ("++xxx", Some(Decision::Failed)),
            ("---..", Some(Decision::Denied)),
            ("++", Some(Decision::Granted)),
            ("+-", Some(Decision::Denied)),
        ] {
            assert_eq!(ballot(votes).decision(), decision, "{votes}");
        }
    }

    #[test]
    fn a_failure_is_not_applied_only_if_nothing_was() {
        let names: Vec<String> = (0..3).map(|node| format!("node{node}")).collect();
        assert_eq!(ballot("xxx").failure(&names).effect(), Effect::NotApplied);
        assert_eq!(ballot("+xx").failure(&names).effect(), Effect::Unknown);
        assert_eq!(ballot(".xx").failure(&names).effect(), Effect::Unknown);
        let text = ballot("+xx").failure(&names).to_string();
        assert!(text.starts_with("1 of 3 nodes answered, and 2 are needed (node1: refused;"), "{text}");
    }

    #[test]
    fn a_denial_tells_when_enough_nodes_are_free() {
        let mut ballot = Ballot::new(5);
        ballot.count(0, Ok(Vote::Granted));
        for (node, seconds) in [(1, 40), (2, 10), (3, 20), (4, 30)] {
            let retry_after = Some(Duration::from_secs(seconds));
            ballot.count(node, Ok(Vote::Denied(Denial { retry_after, ..Denial::default() })));
        }
        // Two more are needed.
        assert_eq!(ballot.denial().retry_after, Some(Duration::from_secs(20)));
    }

    #[test]
    fn only_what_more_than_half_extended_counts_and_from_the_earliest_send() {
        let early = Instant::now();
        let late = early + Duration::from_secs(1);
        let mut ballot = Ballot::new(3);
        ballot.count(0, Ok(Renewal::Extended { sent_at: late }));
        assert_eq!(ballot.renewal(), None);
        ballot.count(1, Ok(Renewal::Lost));
        assert_eq!(ballot.renewal(), None);
        ballot.count(2, Ok(Renewal::Extended { sent_at: early }));
        assert_eq!(ballot.renewal(), Some(Renewal::Extended { sent_at: early }));
    }
}
