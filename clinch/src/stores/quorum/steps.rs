//! The steps: all nodes at once, and the answer as soon as it is certain.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use tokio::time::{Instant, timeout, timeout_at};

use super::QuorumStore;
use super::ballot::{Ballot, Decision, Vote, majority};
use super::rest::What;
use crate::lease::{Attempt, ClaimKey, Mode, Patience, Token};
use crate::store::{Effect, ErrorKind, Release, Renewal, Store, StoreError, Verdict};

/// The least and the most time that slower nodes have, when most have answered: to decide between those who do not agree,
/// to give votes back, so that the next attempt does not meet them, or to say whether anything was applied.
const A_MOMENT: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(250));
/// The shortest time after which a denial says that asking again makes sense.
const LEAST: Duration = Duration::from_millis(1);

/// Calls to nodes, each with its node's number.
type Calls<T> = FuturesUnordered<BoxFuture<'static, (usize, Result<T, StoreError>)>>;

/// The note on a part of an attempt that it was asked for on its node and not answered. (That it is being taken back there is
/// known by its [route](Attempt::route) itself.)
#[derive(Debug, Default, Clone)]
pub(super) struct Marks {
    asked: Arc<Mark>,
}

/// Not empty, so that each has an address of its own.
#[derive(Debug, Default)]
struct Mark {
    _place: u8,
}

impl Marks {
    fn is_asked(&self, part: &Attempt) -> bool {
        part.route().unanswered::<Mark>().iter().any(|(found, _)| Arc::ptr_eq(found, &self.asked))
    }

    /// Nothing of it is left on its node, and nothing will come.
    fn settle(&self, part: &Attempt) {
        part.route().answered_over(&self.asked);
        part.route().took_back();
        part.unsent();
    }
}

/// Asks one node for its vote.
async fn vote(node: &dyn Store, part: &Attempt, marks: &Marks) -> Result<Vote, StoreError> {
    let asked_before = marks.is_asked(part);
    part.route().sending_over(&marks.asked);
    let answer = node.acquire(part).await;
    // That this call was not applied says nothing of an earlier one, which may have been granted unheard.
    let nothing_there = |error: &StoreError| error.effect() == Effect::NotApplied && !asked_before;
    if answer.as_ref().err().is_none_or(nothing_there) {
        part.route().answered_over(&marks.asked);
    }
    match answer? {
        Verdict::Granted(_) => Ok(Vote::Granted),
        Verdict::Denied(denial) => Ok(Vote::Denied(denial)),
    }
}

/// Gives back what one node granted.
async fn take_back(node: &dyn Store, part: &Attempt, marks: &Marks) -> Result<Release, StoreError> {
    let release = node.release(part).await?;
    if release.conclusive {
        marks.settle(part);
    }
    Ok(release)
}

/// Renews what one node granted. A vote that is being taken back is lost, though it may still be there: the release may arrive
/// any time.
async fn renew_votes(node: &dyn Store, parts: Vec<Arc<Attempt>>) -> Vec<Result<Renewal, StoreError>> {
    let ours: Vec<bool> = parts.iter().map(|part| !part.route().is_taking_back()).collect();
    let asked: Vec<_> =
        parts.into_iter().zip(&ours).filter(|(_, ours)| **ours).map(|(part, _)| part).collect();
    let answers = match asked.as_slice() {
        [] => Vec::new(),
        [part] => vec![node.renew(part).await],
        parts => node.renew_each(parts).await,
    };
    let mut answers = answers.into_iter();
    let unheard = || Err(StoreError::unknown(ErrorKind::Protocol, "the node did not answer every renewal"));
    let answer = |ours| if ours { answers.next().unwrap_or_else(unheard) } else { Ok(Renewal::Lost) };
    ours.into_iter().map(answer).collect()
}

impl QuorumStore {
    /// What this mode cannot serve.
    fn unsupported(&self, attempt: &Attempt) -> Option<StoreError> {
        let why = match attempt.claims() {
            [claim] if claim.mode() != Mode::Exclusive || claim.fence_floor().is_some() => {
                "a quorum grants exclusive claims without fences, and nothing else"
            }
            [claim] if claim.ttl() > self.max_ttl => {
                let message = format!(
                    "a TTL of {:?} is longer than what a restarted node sits out here, {:?}; ask for less, or give every \
                     client of these nodes a larger `max_ttl`",
                    claim.ttl(),
                    self.max_ttl
                );
                return Some(StoreError::not_applied(ErrorKind::Unsupported, message));
            }
            [_] if matches!(attempt.patience(), Patience::Queue { .. }) => "a quorum keeps no queue",
            [_] => return None,
            _ => "a quorum takes one key at a time",
        };
        Some(StoreError::not_applied(ErrorKind::Unsupported, why))
    }

    /// Asks every node by `call`, for its own part of the attempt.
    fn ask<T, F>(
        &self,
        parts: &[Arc<Attempt>],
        call: impl Fn(Arc<dyn Store>, Arc<Attempt>, Marks) -> F,
    ) -> Calls<T>
    where
        T: 'static,
        F: Future<Output = Result<T, StoreError>> + Send + 'static,
    {
        let calls = Calls::new();
        for (number, (node, part)) in self.nodes.iter().zip(parts).enumerate() {
            let answer = call(node.clone(), part.clone(), self.marks.clone());
            calls.push(Box::pin(async move { (number, answer.await) }));
        }
        calls
    }

    pub(super) async fn acquire_by_majority(&self, attempt: &Attempt) -> Result<Verdict, StoreError> {
        if let Some(error) = self.unsupported(attempt) {
            return Err(error);
        }
        self.rests.end(attempt.token(), A_MOMENT.1).await;
        let parts = attempt.parts(self.nodes.len());
        if parts.iter().filter(|part| !part.route().is_taking_back()).count() < majority(parts.len()) {
            let why = "too many votes of this attempt are still being taken back for it to be granted";
            return Err(StoreError::unknown(ErrorKind::Busy, why));
        }
        let mut ballot = Ballot::new(self.nodes.len());
        let began = Instant::now();
        // Before the first byte goes out to any of them.
        attempt.sending();
        let mut calls = self.ask(parts, |node, part, marks| async move {
            if part.route().is_taking_back() {
                let why = "what this attempt had there is still being taken back";
                return Err(StoreError::unknown(ErrorKind::Busy, why));
            }
            vote(&*node, &part, &marks).await
        });
        let a_moment = || began.elapsed().clamp(A_MOMENT.0, A_MOMENT.1);
        let mut patience = None;
        let decision = loop {
            if let Some(decision) = ballot.decision() {
                break decision;
            }
            // Most have answered and do not agree. Whoever waits for the others keeps votes from everybody else.
            if patience.is_none() && ballot.answers().len() >= ballot.majority() {
                patience = Some(Instant::now() + a_moment());
            }
            let answer = match patience {
                Some(until) => timeout_at(until, calls.next()).await,
                None => Ok(calls.next().await),
            };
            match answer {
                Ok(Some((node, answer))) => ballot.count(node, answer),
                Ok(None) => break Decision::Failed,
                Err(_) => break Decision::Denied,
            }
        };
        let on = attempt.claims()[0].on();
        match decision {
            Decision::Granted => {
                self.contention.decided(on);
                self.go_on(attempt.token(), What::Answers, calls);
                Ok(Verdict::granted())
            }
            Decision::Denied => {
                // What they may still grant is known by its route, and taken back by whoever asked.
                drop(calls);
                self.roll_back(attempt, &ballot, a_moment()).await;
                let mut denial = ballot.denial();
                if ballot.is_split() {
                    // Nobody has it. Those who had votes give them back now.
                    self.contention.split(on);
                    denial.retry_after = Some(self.contention.pause(on).max(LEAST));
                } else {
                    self.contention.decided(on);
                }
                Ok(Verdict::Denied(denial))
            }
            // What some granted serves the next try, or is taken back by whoever asked.
            Decision::Failed => {
                // The others may say as quickly that nothing was applied there either.
                let rest = async {
                    while let Some((node, answer)) = calls.next().await {
                        ballot.count(node, answer);
                    }
                };
                let _ = timeout(a_moment(), rest).await;
                Err(ballot.failure(&self.names))
            }
        }
    }

    /// Gives back the votes of an attempt that was denied, whether or not anybody waits for that. One whose giving back is not
    /// answered is known by its route.
    async fn roll_back(&self, attempt: &Attempt, ballot: &Ballot<Vote>, limit: Duration) {
        let parts = attempt.parts(self.nodes.len());
        let calls = Calls::new();
        for (number, _) in ballot.answers().iter().filter(|(_, vote)| *vote == Vote::Granted) {
            let (node, part, marks) =
                (self.nodes[*number].clone(), parts[*number].clone(), self.marks.clone());
            part.route().taking_back();
            let number = *number;
            calls.push(Box::pin(async move { (number, take_back(&*node, &part, &marks).await) }));
        }
        if !calls.is_empty() {
            self.go_on(attempt.token(), What::GivingBack, calls);
            self.rests.wait(attempt.token(), limit).await;
        }
    }

    /// Lets the slower nodes finish without anybody waiting for them.
    fn go_on<T: 'static>(&self, token: &Token, what: What, mut calls: Calls<T>) {
        if !calls.is_empty() {
            self.rests.leave(token, what, async move { while calls.next().await.is_some() {} });
        }
    }

    pub(super) async fn renew_by_majority(&self, leases: &[&Attempt]) -> Vec<Result<Renewal, StoreError>> {
        let renewed = |(number, node): (usize, &Arc<dyn Store>)| {
            let part = |lease: &&Attempt| lease.parts(self.nodes.len())[number].clone();
            let parts: Vec<_> = leases.iter().map(part).collect();
            let node = node.clone();
            async move { (number, renew_votes(&*node, parts).await) }
        };
        let mut calls: FuturesUnordered<_> = self.nodes.iter().enumerate().map(renewed).collect();
        let mut ballots: Vec<_> = leases.iter().map(|_| Ballot::new(self.nodes.len())).collect();
        while ballots.iter().any(|ballot| ballot.renewal().is_none()) {
            let Some((number, answers)) = calls.next().await else { break };
            for (ballot, answer) in ballots.iter_mut().zip(answers) {
                ballot.count(number, answer);
            }
        }
        let renewal = |ballot: Ballot<Renewal>| ballot.renewal().ok_or_else(|| ballot.failure(&self.names));
        ballots.into_iter().map(renewal).collect()
    }

    pub(super) async fn release_everywhere(&self, lease: &Attempt) -> Result<Release, StoreError> {
        self.rests.end(lease.token(), Duration::ZERO).await;
        let parts = lease.parts(self.nodes.len());
        let mut calls =
            self.ask(parts, |node, part, marks| async move { take_back(&*node, &part, &marks).await });
        let mut ballot = Ballot::new(self.nodes.len());
        while ballot.says(|release: &Release| release.held).is_none() {
            let Some((node, answer)) = calls.next().await else { break };
            ballot.count(node, answer);
        }
        self.go_on(lease.token(), What::Answers, calls);
        let Some(held) = ballot.says(|release| release.held) else {
            return Err(ballot.failure(&self.names));
        };
        // By this answer or an earlier one; or nothing ever went there.
        let settled = |part: &Arc<Attempt>| part.sent_at().is_none() && part.route().is_answered();
        let conclusive = parts.iter().all(settled);
        let woken = ballot.answers().iter().map(|(_, release)| release.woken).max().flatten();
        Ok(Release { held, conclusive, woken })
    }

    /// Every node is asked, and waited for: people want to know that it is gone.
    pub(super) async fn revoke_everywhere(&self, on: &ClaimKey, token: &Token) -> Result<bool, StoreError> {
        let mut ballot = Ballot::new(self.nodes.len());
        let mut calls: FuturesUnordered<_> = self
            .nodes
            .iter()
            .enumerate()
            .map(|(number, node)| async move { (number, node.revoke(on, token).await) })
            .collect();
        while let Some((node, answer)) = calls.next().await {
            ballot.count(node, answer);
        }
        ballot.says(|revoked| *revoked).ok_or_else(|| ballot.failure(&self.names))
    }
}
