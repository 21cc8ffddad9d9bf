//! Calls to the engine, measured: a wrapper around any store, so that no store has to know.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use metrics::{Counter, Gauge, Histogram, counter, gauge, histogram};
use tokio::time::Instant;

use super::names;
use super::resolved::Resolved;
use crate::lease::{Attempt, ClaimKey, Holder, Record, Token};
use crate::store::{
    About, Capabilities, Cursor, Diagnosis, ErrorKind, Page, Release, Renewal, Revocations, Store,
    StoreAnswers, StoreError, StoreFuture, Verdict, Wakeups,
};

/// The store, with its calls measured. A call that its caller gives up counts as not answered if it had nearly all of this
/// time.
pub(crate) fn measured(store: Arc<dyn Store>, call_timeout: Duration) -> Arc<dyn Store> {
    Arc::new(Measured { store, nearly_all: call_timeout.mul_f64(0.9), handles: Resolved::default() })
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Operation {
    Acquire,
    AcquireEach,
    Renew,
    RenewEach,
    Release,
    Complete,
    Inspect,
    List,
    Revoke,
    Ping,
}

impl Operation {
    const ALL: [Self; 10] = [
        Self::Acquire,
        Self::AcquireEach,
        Self::Renew,
        Self::RenewEach,
        Self::Release,
        Self::Complete,
        Self::Inspect,
        Self::List,
        Self::Revoke,
        Self::Ping,
    ];

    const fn word(self) -> &'static str {
        match self {
            Self::Acquire => "acquire",
            Self::AcquireEach => "acquire_each",
            Self::Renew => "renew",
            Self::RenewEach => "renew_each",
            Self::Release => "release",
            Self::Complete => "complete",
            Self::Inspect => "inspect",
            Self::List => "list",
            Self::Revoke => "revoke",
            Self::Ping => "ping",
        }
    }
}

struct Measured {
    store: Arc<dyn Store>,
    nearly_all: Duration,
    handles: Resolved<Handles>,
}

impl fmt::Debug for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.store.fmt(f)
    }
}

struct Handles {
    /// By operation.
    calls: [(Counter, Histogram); Operation::ALL.len()],
    in_flight: Gauge,
}

impl Handles {
    fn new() -> Self {
        let calls = Operation::ALL.map(|operation| {
            let word = operation.word();
            // A rate needs a zero to rise from. The rarer kinds come when they come.
            for kind in [ErrorKind::Unavailable, ErrorKind::Timeout] {
                failures(operation, kind).increment(0);
            }
            (
                counter!(names::ENGINE_CALLS, "operation" => word),
                histogram!(names::ENGINE_CALL_SECONDS, "operation" => word),
            )
        });
        Self { calls, in_flight: gauge!(names::ENGINE_CALLS_IN_FLIGHT) }
    }
}

fn failures(operation: Operation, kind: ErrorKind) -> Counter {
    counter!(names::ENGINE_FAILURES, "operation" => operation.word(), "kind" => kind.word())
}

/// A call that is under way.
struct Call<'a> {
    store: &'a Measured,
    handles: Arc<Handles>,
    operation: Operation,
    began: Instant,
    /// `None`: its caller has given it up.
    ended: Option<Result<(), ErrorKind>>,
}

impl Call<'_> {
    fn ended<'e>(&mut self, errors: impl IntoIterator<Item = &'e StoreError>) {
        self.ended = Some(match errors.into_iter().next() {
            Some(error) => Err(error.kind()),
            None => Ok(()),
        });
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        let took = self.began.elapsed();
        let (calls, seconds) = &self.handles.calls[self.operation as usize];
        self.handles.in_flight.decrement(1.0);
        calls.increment(1);
        seconds.record(took);
        match self.ended {
            Some(Ok(())) => {}
            Some(Err(kind)) => failures(self.operation, kind).increment(1),
            None if took >= self.store.nearly_all => {
                failures(self.operation, ErrorKind::Timeout).increment(1);
            }
            None => {}
        }
    }
}

impl Measured {
    fn call(&self, operation: Operation) -> Call<'_> {
        let handles = self.handles.get(Handles::new);
        handles.in_flight.increment(1.0);
        Call { store: self, handles, operation, began: Instant::now(), ended: None }
    }

    fn one<'a, T: 'a>(&'a self, operation: Operation, step: StoreFuture<'a, T>) -> StoreFuture<'a, T> {
        Box::pin(async move {
            let mut call = self.call(operation);
            let answer = step.await;
            call.ended(answer.as_ref().err());
            answer
        })
    }

    /// One exchange is one call, however many it is about.
    fn each<'a, T: Send + 'a>(
        &'a self,
        operation: Operation,
        step: StoreAnswers<'a, T>,
    ) -> StoreAnswers<'a, T> {
        Box::pin(async move {
            let mut call = self.call(operation);
            let answers = step.await;
            call.ended(answers.iter().filter_map(|answer| answer.as_ref().err()));
            answers
        })
    }
}

impl Store for Measured {
    fn engine(&self) -> &'static str {
        self.store.engine()
    }

    fn part(&self, lease: &Attempt) -> usize {
        self.store.part(lease)
    }

    fn capabilities(&self) -> Capabilities {
        self.store.capabilities()
    }

    fn call_limit(&self) -> Option<Duration> {
        self.store.call_limit()
    }

    fn acquire<'a>(&'a self, attempt: &'a Attempt) -> StoreFuture<'a, Verdict> {
        self.one(Operation::Acquire, self.store.acquire(attempt))
    }

    fn acquire_each<'a>(&'a self, attempts: &'a [Arc<Attempt>]) -> StoreAnswers<'a, Verdict> {
        self.each(Operation::AcquireEach, self.store.acquire_each(attempts))
    }

    fn renew<'a>(&'a self, lease: &'a Attempt) -> StoreFuture<'a, Renewal> {
        self.one(Operation::Renew, self.store.renew(lease))
    }

    fn renew_each<'a>(&'a self, leases: &'a [Arc<Attempt>]) -> StoreAnswers<'a, Renewal> {
        self.each(Operation::RenewEach, self.store.renew_each(leases))
    }

    fn release<'a>(&'a self, lease: &'a Attempt) -> StoreFuture<'a, Release> {
        self.one(Operation::Release, self.store.release(lease))
    }

    fn complete<'a>(
        &'a self,
        lease: &'a Attempt,
        record: &'a Record,
        ttl: Option<Duration>,
    ) -> StoreFuture<'a, Release> {
        self.one(Operation::Complete, self.store.complete(lease, record, ttl))
    }

    fn wakeups(&self, on: &ClaimKey, queued: Option<&Token>) -> Wakeups {
        self.store.wakeups(on, queued)
    }

    fn is_listening(&self, on: &ClaimKey) -> bool {
        self.store.is_listening(on)
    }

    fn revocations(&self) -> Revocations {
        self.store.revocations()
    }

    fn inspect<'a>(&'a self, on: &'a ClaimKey) -> StoreFuture<'a, Vec<Holder>> {
        self.one(Operation::Inspect, self.store.inspect(on))
    }

    fn list(&self, cursor: Cursor) -> StoreFuture<'_, Page> {
        self.one(Operation::List, self.store.list(cursor))
    }

    fn revoke<'a>(&'a self, on: &'a ClaimKey, token: &'a Token) -> StoreFuture<'a, bool> {
        self.one(Operation::Revoke, self.store.revoke(on, token))
    }

    fn ping(&self) -> StoreFuture<'_, Duration> {
        self.one(Operation::Ping, self.store.ping())
    }

    /// A ping that tells more.
    fn about(&self) -> StoreFuture<'_, About> {
        self.one(Operation::Ping, self.store.about())
    }

    /// Many calls of many kinds, for a person who waits for them: not measured.
    fn diagnose(&self) -> StoreFuture<'_, Diagnosis> {
        self.store.diagnose()
    }

    fn close(&self) {
        self.store.close();
    }
}
