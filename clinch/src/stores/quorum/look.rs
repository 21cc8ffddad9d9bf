//! Looking at the nodes, for people.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::join_all;
use futures_util::stream::FuturesUnordered;
use tokio::time::Instant;

use super::QuorumStore;
use super::ballot::Ballot;
use crate::lease::{ClaimKey, Holder, Token};
use crate::store::{About, Cursor, Diagnosis, ErrorKind, Page, Severity, Store, StoreError, StoreFuture};

/// How many keys of a page are looked at in one go.
const AT_ONCE: usize = 16;

/// A holder, and the first node that names it.
struct Named {
    holder: Holder,
    first: usize,
}

/// By token, the nodes that name those who may have more than half of them.
fn candidates(ballot: &Ballot<Vec<Holder>>, nodes: usize) -> Vec<Vec<(usize, &Holder)>> {
    let silent = nodes - ballot.answers().len();
    let mut found: BTreeMap<&Token, Vec<(usize, &Holder)>> = BTreeMap::new();
    for (number, holders) in ballot.answers() {
        for holder in holders {
            found.entry(holder.token()).or_default().push((*number, holder));
        }
    }
    found.into_values().filter(|by| by.len() + silent >= ballot.majority()).collect()
}

impl QuorumStore {
    /// Asks every node, until more than half of them have answered and that is `enough`, or all have been asked.
    async fn most<'a, T>(
        &'a self,
        ask: impl Fn(&'a dyn Store) -> StoreFuture<'a, T>,
        enough: impl Fn(&Ballot<T>) -> bool,
    ) -> Result<Ballot<T>, StoreError> {
        let mut ballot = Ballot::new(self.nodes.len());
        let mut calls: FuturesUnordered<_> = self
            .nodes
            .iter()
            .enumerate()
            .map(|(number, node)| {
                let answer = ask(&**node);
                async move { (number, answer.await) }
            })
            .collect();
        while ballot.answers().len() < ballot.majority() || !enough(&ballot) {
            let Some((number, answer)) = calls.next().await else { break };
            ballot.count(number, answer);
        }
        if ballot.answers().len() < ballot.majority() { Err(ballot.failure(&self.names)) } else { Ok(ballot) }
    }

    /// Who holds the key, as far as those who answered can tell: whoever more than half of the nodes may have. That is one at most,
    /// unless nodes are silent on whom it depends.
    async fn named(
        &self,
        on: &ClaimKey,
        enough: impl Fn(&Ballot<Vec<Holder>>) -> bool,
    ) -> Result<Vec<Named>, StoreError> {
        let ballot = self.most(|node| node.inspect(on), enough).await?;
        let named = candidates(&ballot, self.nodes.len()).into_iter().filter_map(|mut by| {
            let first = by.iter().map(|(number, _)| *number).min()?;
            // It is held for as long as more than half of the nodes have it.
            by.sort_by_key(|(_, holder)| std::cmp::Reverse(holder.remaining().unwrap_or(Duration::MAX)));
            let (_, holder) = by.get(ballot.majority() - 1).or(by.last())?;
            Some(Named { holder: (*holder).clone(), first })
        });
        Ok(named.collect())
    }

    pub(super) async fn holders(&self, on: &ClaimKey) -> Result<Vec<Holder>, StoreError> {
        // A vote that was not given back yet may be one of a majority, until the next node tells.
        let decided = |ballot: &Ballot<Vec<Holder>>| {
            candidates(ballot, self.nodes.len()).iter().all(|by| by.len() >= ballot.majority())
        };
        let named = self.named(on, decided).await?;
        Ok(named.into_iter().map(|named| named.holder).collect())
    }

    /// One node after the other: what a node names is looked up on all of them, and shown by the first that does. So one
    /// whose vote arrives at an earlier node after that was listed is missed, as one that comes meanwhile may be.
    pub(super) async fn page(&self, cursor: Cursor) -> Result<Page, StoreError> {
        let nodes = self.nodes.len() as u64;
        let (number, position) = (cursor.position() % nodes, cursor.position() / nodes);
        // Less than the number of nodes.
        let number = usize::try_from(number).unwrap_or_default();
        let next_node = Some(Cursor::new(number as u64 + 1)).filter(|_| number + 1 < self.nodes.len());
        let page = match self.nodes[number].list(Cursor::new(position)).await {
            Ok(page) => page,
            // The others know what more than half of them hold.
            Err(error) if error.is_retryable() => Page { holders: Vec::new(), next: None },
            Err(error) => return Err(error),
        };
        let mut holders = Vec::new();
        for some in page.holders.chunks(AT_ONCE) {
            let mut looks = Vec::with_capacity(some.len());
            for listed in some {
                looks.push(self.named(listed.on(), |_| false));
            }
            for (listed, named) in some.iter().zip(join_all(looks).await) {
                let here = |named: &Named| named.first == number && named.holder.token() == listed.token();
                holders.extend(named?.into_iter().filter(here).map(|named| named.holder));
            }
        }
        let next = match page.next {
            None => next_node,
            Some(next) => {
                let position =
                    next.position().checked_mul(nodes).and_then(|at| at.checked_add(number as u64));
                let too_far =
                    || StoreError::not_applied(ErrorKind::Protocol, "a listing that goes on too far");
                Some(Cursor::new(position.ok_or_else(too_far)?))
            }
        };
        Ok(Page { holders, next })
    }

    pub(super) async fn ping_most(&self) -> Result<Duration, StoreError> {
        let began = Instant::now();
        self.most(Store::ping, |_| true).await?;
        Ok(began.elapsed())
    }

    pub(super) async fn about_all(&self) -> Result<About, StoreError> {
        let began = Instant::now();
        let answers = join_all(self.nodes.iter().map(|node| node.about())).await;
        let mut ballot = Ballot::new(self.nodes.len());
        answers.into_iter().enumerate().for_each(|(number, answer)| ballot.count(number, answer));
        if ballot.answers().len() < ballot.majority() {
            return Err(ballot.failure(&self.names));
        }
        let mut latencies: Vec<_> = ballot.answers().iter().map(|(_, about)| about.latency).collect();
        latencies.sort_unstable();
        let mut about = About::new(latencies.get(ballot.majority() - 1).copied().unwrap_or(began.elapsed()));
        let first = ballot.answers().first().map(|(_, first)| first);
        about.server = first.and_then(|first| first.server.clone());
        about.version = first.and_then(|first| first.version.clone());
        let silent = ballot.errors().iter().map(|(number, error)| (*number, error.message().to_owned()));
        let ill =
            ballot.answers().iter().filter_map(|(number, about)| Some((*number, about.degraded.clone()?)));
        let ill: Vec<_> =
            silent.chain(ill).map(|(number, why)| format!("{}: {why}", self.names[number])).collect();
        if !ill.is_empty() {
            about.degraded = Some(format!(
                "{} of {} nodes do not serve ({})",
                ill.len(),
                self.nodes.len(),
                ill.join("; ")
            ));
        }
        Ok(about)
    }

    pub(super) async fn diagnose_all(&self) -> Result<Diagnosis, StoreError> {
        let answers = join_all(self.nodes.iter().map(|node| node.diagnose())).await;
        let mut all = Diagnosis::default();
        all.fact("nodes", self.names.join(", "));
        all.fact("max_ttl_ms", self.max_ttl.as_millis());
        let mut facts: Vec<(&'static str, Vec<String>)> = Vec::new();
        for (name, answer) in self.names.iter().zip(answers) {
            let diagnosis = match answer {
                Ok(diagnosis) => diagnosis,
                Err(error) => {
                    let problem = format!("{name} cannot be asked: {}", error.message());
                    let remedy = "bring it back: one more that fails may be one too many";
                    all.finding("node", Severity::Warning, problem, remedy);
                    continue;
                }
            };
            for fact in diagnosis.facts {
                let told = fact.value.or(fact.unknown).unwrap_or_default();
                match facts.iter_mut().find(|(name, _)| *name == fact.name) {
                    Some((_, values)) if values.contains(&told) => {}
                    Some((_, values)) => values.push(told),
                    None => facts.push((fact.name, vec![told])),
                }
            }
            for finding in diagnosis.findings {
                let problem = format!("{name}: {}", finding.problem);
                all.finding(finding.name, finding.severity, problem, finding.remedy);
            }
        }
        for (name, values) in facts {
            all.fact(name, values.join(" | "));
        }
        Ok(all)
    }
}
