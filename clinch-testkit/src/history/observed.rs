//! A store that writes down what its manager is told.

use std::sync::Arc;
use std::time::Duration;

use clinch::lease::{Attempt, ClaimKey, Fence, Record, Token};
use clinch::store::{Effect, Release, Renewal, Store, StoreError, StoreFuture, Verdict};

use super::{Answer, Call, Event, Recorder, Tag};

tokio::task_local! {
    static OPERATION: u64;
}

/// Runs `future` as part of an operation: the calls that are made inside it carry its number.
pub async fn in_operation<F: Future>(op: u64, future: F) -> F::Output {
    OPERATION.scope(op, future).await
}

/// The operation that is running in this task.
pub(crate) fn operation() -> Option<u64> {
    OPERATION.try_with(|op| *op).ok()
}

/// The outermost wrapper of a store: what passes here is what the manager sees.
#[derive(Debug)]
pub struct Observed {
    inner: Arc<dyn Store>,
    recorder: Recorder,
    client: usize,
}

impl Observed {
    /// Writes down what `inner` tells the manager of this process.
    pub fn new(inner: Arc<dyn Store>, recorder: Recorder, client: usize) -> Self {
        Self { inner, recorder, client }
    }

    fn watch<'a, T: 'a>(
        &'a self,
        call: Call,
        token: &Token,
        step: StoreFuture<'a, T>,
        answer: impl FnOnce(&T) -> Answer + Send + 'a,
    ) -> StoreFuture<'a, T> {
        let mut seen = Seen { store: self, call, token: token.into(), answer: Answer::Dropped };
        Box::pin(async move {
            // Moved in: whenever the future is dropped, so is this.
            let seen = &mut seen;
            let result = step.await;
            seen.answer = match &result {
                Ok(value) => answer(value),
                Err(error) => failure(error),
            };
            result
        })
    }
}

fn failure(error: &StoreError) -> Answer {
    match error.effect() {
        Effect::NotApplied => Answer::NotApplied,
        Effect::Unknown => Answer::Unknown,
    }
}

/// A call, written down when it ends in any way.
struct Seen<'a> {
    store: &'a Observed,
    call: Call,
    token: Tag,
    answer: Answer,
}

impl Drop for Seen<'_> {
    fn drop(&mut self) {
        let (client, call) = (self.store.client, self.call);
        let answer = std::mem::replace(&mut self.answer, Answer::Dropped);
        self.store.recorder.record(Event::Port {
            client,
            op: operation(),
            call,
            token: self.token.clone(),
            answer,
        });
    }
}

const fn yes(yes: bool) -> Answer {
    if yes { Answer::Yes } else { Answer::No }
}

const fn ended(release: &Release) -> Answer {
    Answer::Release { held: release.held, conclusive: release.conclusive }
}

impl Store for Observed {
    crate::passes_on!(inner: capabilities, wakeups, revocations, inspect, list, ping, close);

    fn acquire<'a>(&'a self, attempt: &'a Attempt) -> StoreFuture<'a, Verdict> {
        self.watch(Call::Acquire, attempt.token(), self.inner.acquire(attempt), |verdict| match verdict {
            Verdict::Granted(grant) => {
                Answer::Granted(grant.fences.iter().map(|fence| fence.map(Fence::get)).collect())
            }
            _ => Answer::No,
        })
    }

    fn renew<'a>(&'a self, lease: &'a Attempt) -> StoreFuture<'a, Renewal> {
        self.watch(Call::Renew, lease.token(), self.inner.renew(lease), |renewal| {
            yes(matches!(renewal, Renewal::Extended { .. }))
        })
    }

    fn release<'a>(&'a self, lease: &'a Attempt) -> StoreFuture<'a, Release> {
        self.watch(Call::Release, lease.token(), self.inner.release(lease), ended)
    }

    fn complete<'a>(
        &'a self,
        lease: &'a Attempt,
        record: &'a Record,
        ttl: Option<Duration>,
    ) -> StoreFuture<'a, Release> {
        self.watch(Call::Complete, lease.token(), self.inner.complete(lease, record, ttl), ended)
    }

    fn revoke<'a>(&'a self, on: &'a ClaimKey, token: &'a Token) -> StoreFuture<'a, bool> {
        self.watch(Call::Revoke, token, self.inner.revoke(on, token), |revoked| yes(*revoked))
    }
}
