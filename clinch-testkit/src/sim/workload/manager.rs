//! A process with a manager, and how its operations are written down.

use std::time::Duration;

use clinch::lease::Space;
use clinch::store::Effect;
use clinch::{Denied, DeniedBy, Error, Lease, LockGuard, LockManager};
use tokio::time::sleep;

use super::SHUTDOWN_LIMIT;
use super::operation::{Journal, Operation};
use super::seam;
use crate::history::{Event, Outcome, Recorder, Stop, Tag, Wish, in_operation};
use crate::sim::Register;

/// A process: a manager, and how its operations are written down.
#[derive(Debug, Clone)]
pub(super) struct Process {
    pub(super) client: usize,
    pub(super) register: Register,
    pub(super) manager: LockManager,
    pub(super) journal: Journal,
}

/// A belief to hold a key; it ends with this value at the latest.
pub(super) struct Belief {
    op: u64,
    key: String,
    fence: Option<u64>,
    register: Register,
    lease: Lease,
    recorder: Recorder,
    open: bool,
}

impl Belief {
    fn end(&mut self, how: Stop) {
        if std::mem::replace(&mut self.open, false) {
            self.recorder.record(Event::Ended { op: self.op, token: self.lease.token().into(), how });
        }
    }

    fn probe(&self) {
        let (token, valid) = (self.lease.token().into(), self.lease.is_valid());
        self.recorder.record(Event::Probe { op: self.op, token, valid });
        self.write();
    }

    /// Writes to what the key protects, whether the lock is still held or not: that is what fences are for.
    fn write(&self) {
        if let Some(fence) = self.fence {
            let (op, key, token) = (self.op, self.key.clone(), self.lease.token().into());
            let taken = self.register.write(&key, fence);
            self.recorder.record(Event::Write { op, key, token, fence, taken });
        }
    }

    /// Goes on as long as `time`, or until the lease is lost.
    pub(super) async fn keep(&mut self, time: Duration) {
        let lease = self.lease.clone();
        tokio::select! {
            biased;
            _ = lease.lost() => self.end(Stop::Lost),
            () = sleep(time) => {}
        }
        self.probe();
    }
}

impl Drop for Belief {
    fn drop(&mut self) {
        self.end(Stop::Dropped);
        self.write();
    }
}

/// A guard with the belief that comes with it. The belief ends first.
pub(super) struct Holding {
    pub(super) belief: Belief,
    guard: LockGuard,
}

/// How a lock is asked for.
#[derive(Debug, Clone)]
pub(super) struct Ask {
    pub(super) key: String,
    pub(super) ttl: Duration,
    pub(super) wait: Duration,
    pub(super) retry: Duration,
    pub(super) renew: Option<Renew>,
    pub(super) kind: Kind,
    /// Goes on unprotected when the engine fails.
    pub(super) proceed: bool,
}

/// What kind of lease is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Kind {
    Plain,
    Fenced,
    Shared,
    Fair,
    /// One of so many permits.
    Permit(u32),
    /// A lock along with one of so many permits.
    Limited(u32),
    /// The locks on these other keys as well.
    Several(Vec<String>),
}

/// How a lock is renewed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Renew {
    pub(super) every: Duration,
    /// After this it is left to run out.
    pub(super) up_to: Option<Duration>,
}

/// A business key as the history knows it: with its space.
pub(super) fn key_of(space: Space, key: &str) -> String {
    format!("{}:{key}", space.word())
}

impl Process {
    fn begin(&self, key: &str, wish: Wish) -> Operation {
        self.journal.begin(self.client, &key_of(Space::Lock, key), wish)
    }

    fn believe(&self, op: u64, ask: &Ask, lease: Lease) -> Belief {
        let claims = seam::held(ask, &lease);
        let fence = claims.first().and_then(|claim| claim.fence);
        self.journal.record(Event::Held {
            op,
            client: self.client,
            token: lease.token().into(),
            claims,
            degraded: lease.is_degraded(),
        });
        let (recorder, register) = (self.journal.recorder.clone(), self.register.clone());
        let key = key_of(Space::Lock, &ask.key);
        Belief { op, key, fence, register, lease, recorder, open: true }
    }

    pub(super) async fn acquire(&self, ask: &Ask) -> Option<Holding> {
        let operation = self.begin(&ask.key, Wish::Lock(seam::wanted(ask)));
        let op = operation.op;
        let answer = in_operation(op, seam::attempt(&self.manager, ask)).await;
        match answer.map_err(|error| failure(&error)).and_then(seam::guard) {
            Ok(guard) => {
                let belief = self.believe(op, ask, guard.lease());
                operation.complete(Outcome::Granted(guard.token().into()));
                Some(Holding { belief, guard })
            }
            Err(outcome) => {
                operation.complete(outcome);
                None
            }
        }
    }

    pub(super) async fn run_under(&self, ask: &Ask, time: Duration) {
        let operation = self.begin(&ask.key, Wish::Run(seam::wanted(ask)));
        let op = operation.op;
        let block = async |lease: Lease| {
            let mut belief = self.believe(op, ask, lease);
            belief.keep(time).await;
            belief.end(Stop::Done);
        };
        let options = seam::options(&self.manager, ask);
        let result = match &ask.kind {
            Kind::Permit(of) => match self.manager.limit(ask.key.as_str(), *of) {
                Ok(limit) => in_operation(op, limit.with_permit(options, block)).await,
                Err(error) => Err(error),
            },
            _ => in_operation(op, self.manager.with_lock(ask.key.as_str(), options, block)).await,
        };
        operation.complete(match result {
            Ok(()) => Outcome::Ran,
            Err(Error::LockNotAcquired { denied, .. }) => denial(&denied),
            Err(error) => failure(&error),
        });
    }

    pub(super) async fn release(&self, key: &str, holding: Holding) {
        let Holding { mut belief, guard } = holding;
        let token: Tag = guard.token().into();
        let operation = self.begin(key, Wish::Release { token });
        belief.end(Stop::Released);
        match in_operation(operation.op, guard.release()).await {
            Ok(held) => operation.complete(Outcome::Released(held)),
            Err(error) => operation.complete(failure(&error)),
        }
    }

    /// Looks who holds the key, and ends that lease by force if `by_force`.
    pub(super) async fn look(&self, key: &str, by_force: bool) {
        let operation = self.begin(key, Wish::Inspect);
        let holder = match in_operation(operation.op, self.manager.inspect(key)).await {
            Ok(holders) => {
                let holder = holders.into_iter().next();
                operation.complete(Outcome::Seen(holder.as_ref().map(|holder| holder.token().into())));
                holder
            }
            Err(error) => return operation.complete(failure(&error)),
        };
        let Some(holder) = holder.filter(|_| by_force) else { return };
        // People take their time.
        sleep(Duration::from_millis(20)).await;
        let operation = self.begin(key, Wish::Revoke { token: holder.token().into() });
        match in_operation(operation.op, self.manager.force_release(&holder)).await {
            Ok(revoked) => operation.complete(Outcome::Revoked(revoked)),
            Err(error) => operation.complete(failure(&error)),
        }
    }

    pub(super) async fn shut_down(&self) {
        let left = self.manager.shutdown(SHUTDOWN_LIMIT).await;
        let (unreleased, guards) = (left.unreleased, left.guards);
        self.journal.record(Event::Shutdown { client: self.client, unreleased, guards });
    }
}

pub(super) fn denial(denied: &Denied) -> Outcome {
    match denied.cause {
        DeniedBy::TooLate => Outcome::TooLate,
        _ => Outcome::Denied { holder: denied.holder.as_ref().map(|holder| holder.token().into()) },
    }
}

pub(super) fn failure(error: &Error) -> Outcome {
    match error {
        Error::ShutDown { .. } => Outcome::ShutDown,
        Error::Engine { cause: source, .. } if source.effect() == Effect::Unknown => Outcome::Unknown,
        _ => Outcome::Failed,
    }
}
