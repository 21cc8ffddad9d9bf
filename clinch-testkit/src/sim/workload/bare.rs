//! A client of the port without a manager: the simplest that is right.
//!
//! It asks under one token until the outcome is known, believes in a lease only for its TTL from the first send, and
//! gives back until that is conclusive. It knows nothing of its own process, so every claim meets the engine.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use clinch::lease::{Attempt, Claim, Fence, Mode, Patience, Token};
use clinch::store::{Denial, Effect, Notice, Renewal, Revocations, Store, StoreError, Verdict};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::operation::{Journal, Operation};
use crate::history::{Event, HeldClaim, Outcome, Stop, Wanted, Wish, in_operation};
use crate::sim::engine::role;
use crate::sim::{CALL_LIMIT, Gate, LATEST_LANDING, Register};

/// How bare clients go about it. All but the first are bugs, to prove the checker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Habit {
    /// As they should.
    Honest,
    /// A guard that was passed on still gives the lease back, later.
    StaleRelease,
    /// A lease is passed on with its fence unchanged.
    PassKeepsFence,
    /// A guard never looks at the clock again.
    NeverChecks,
    /// One request enters what another one holds, as if it were its own.
    EntersAcross,
    /// The resource does not look at fences.
    NoFenceCheck,
}

/// What is asked for.
#[derive(Debug, Clone)]
pub(super) struct Want {
    pub(super) claims: Vec<Claim>,
    pub(super) wait: Duration,
    pub(super) retry: Duration,
    pub(super) fair: bool,
}

impl Want {
    fn attempt(&self, token: Token, deadline: Instant) -> Option<Attempt> {
        let patience = if self.fair {
            Patience::Queue { until: deadline, confirm: Duration::from_millis(500) }
        } else if self.wait.is_zero() {
            Patience::Try
        } else {
            Patience::Wait {
                until: deadline,
                again_within: self.retry * 2 + CALL_LIMIT,
                confirm: Duration::ZERO,
            }
        };
        Some(Attempt::new(token, self.claims.clone()).ok()?.with_patience(patience))
    }

    fn wanted(&self) -> Wanted {
        let of = |claim: &Claim| match claim.mode() {
            Mode::Permit { of } => of.get(),
            _ => 1,
        };
        let claim = |claim: &Claim| (claim.on().to_string(), role(claim.mode()), of(claim));
        let claims = self.claims.iter().map(claim).collect();
        Wanted { claims, wait: self.wait, fair: self.fair, bare: true }
    }
}

/// A process without a manager.
#[derive(Debug, Clone)]
pub(super) struct Bare {
    client: usize,
    store: Arc<dyn Store>,
    journal: Journal,
    register: Register,
    gate: Gate,
    habit: Habit,
    /// The highest fence that this process has seen on each key.
    seen: Arc<Mutex<BTreeMap<String, u64>>>,
}

impl Bare {
    pub(super) fn new(
        client: usize,
        store: Arc<dyn Store>,
        journal: Journal,
        register: Register,
        gate: Gate,
        habit: Habit,
    ) -> Self {
        Self { client, store, journal, register, gate, habit, seen: Arc::default() }
    }

    /// The floor under the next fence of this key.
    pub(super) fn floor(&self, key: &str) -> Fence {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        Fence::new(seen.get(key).copied().unwrap_or_default())
    }

    fn saw(&self, key: String, fence: u64) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let highest = seen.entry(key).or_default();
        *highest = fence.max(*highest);
    }

    fn begin(&self, want: &Want, wish: Wish) -> Operation {
        let key = want.claims.first().map(|claim| claim.on().to_string()).unwrap_or_default();
        self.journal.begin(self.client, &key, wish)
    }

    /// Asks until it is granted, or the time is over.
    pub(super) async fn take(&self, want: &Want, token: Token) -> Option<Guard> {
        let deadline = Instant::now() + want.wait;
        let attempt = Arc::new(want.attempt(token, deadline)?);
        let operation = self.begin(want, Wish::Lock(want.wanted()));
        let revocations = self.store.revocations();
        // Whatever ends this, dropping it included.
        let mut unsettled = Unsettled { bare: self.clone(), attempt: attempt.clone(), open: true };
        match self.ask(want, &attempt, deadline, operation.op).await {
            Ok(fences) => {
                unsettled.open = false;
                let guard = self.guard(operation.op, want, attempt, fences, revocations);
                operation.complete(Outcome::Granted(guard.attempt.token().into()));
                Some(guard)
            }
            Err(outcome) => {
                let knows = matches!(outcome, Outcome::Denied { .. } | Outcome::Failed);
                // A try that was answered has left nothing behind.
                unsettled.open = !(knows && want.wait.is_zero() && attempt.route().is_answered());
                operation.complete(outcome);
                None
            }
        }
    }

    async fn ask(
        &self,
        want: &Want,
        attempt: &Attempt,
        deadline: Instant,
        op: u64,
    ) -> Result<Vec<Option<u64>>, Outcome> {
        let queued = want.fair.then(|| attempt.token());
        let mut wakeups = None;
        let mut calls = 0;
        loop {
            calls += 1;
            match in_operation(op, self.store.acquire(attempt)).await {
                Ok(Verdict::Granted(grant)) => {
                    if Instant::now() >= valid_until(attempt, attempt.sent_at()) {
                        return Err(Outcome::TooLate);
                    }
                    return Ok(grant.fences.iter().map(|fence| fence.map(Fence::get)).collect());
                }
                Ok(Verdict::Denied(denial)) => {
                    if attempt.route().is_answered() {
                        attempt.unsent();
                    }
                    if Instant::now() >= deadline {
                        return Err(denied(&denial));
                    }
                    let again = (Instant::now() + denial.retry_after.unwrap_or(want.retry).min(want.retry))
                        .min(deadline);
                    let on = want.claims.get(denial.claim).or(want.claims.first()).map(Claim::on);
                    if wakeups.is_none() {
                        wakeups = on.map(|on| self.store.wakeups(on, queued));
                    }
                    if let Some(wakeups) = &mut wakeups {
                        let _ = timeout(again - Instant::now(), wakeups.next()).await;
                    }
                }
                Ok(_) => return Err(Outcome::Failed),
                Err(error) => {
                    let pause = Duration::from_millis(20);
                    let more =
                        if want.wait.is_zero() { calls < 2 } else { Instant::now() + pause < deadline };
                    if !error.is_retryable() || !more {
                        return Err(failed(&error));
                    }
                    if !want.wait.is_zero() {
                        sleep(pause).await;
                    }
                }
            }
        }
    }

    fn guard(
        &self,
        op: u64,
        want: &Want,
        attempt: Arc<Attempt>,
        fences: Vec<Option<u64>>,
        revocations: Revocations,
    ) -> Guard {
        let valid_until = valid_until(&attempt, attempt.sent_at());
        let (bare, want) = (self.clone(), want.clone());
        let guard = Guard { bare, want, op, attempt, fences, valid_until, revocations, open: true };
        guard.held();
        guard
    }

    /// Gives back in the background until nothing more can come of it.
    fn settle(&self, attempt: Arc<Attempt>) {
        let store = self.store.clone();
        tokio::spawn(self.gate.behind(async move {
            let settled = Instant::now() + LATEST_LANDING + CALL_LIMIT;
            loop {
                let last = Instant::now() >= settled;
                if store.release(&attempt).await.is_ok_and(|release| release.conclusive) || last {
                    return;
                }
                sleep(Duration::from_millis(700)).await;
            }
        }));
    }
}

/// An attempt of which something may be in the engine.
struct Unsettled {
    bare: Bare,
    attempt: Arc<Attempt>,
    open: bool,
}

impl Drop for Unsettled {
    fn drop(&mut self) {
        if self.open && (self.attempt.sent_at().is_some() || self.attempt.patience() != Patience::Try) {
            self.bare.settle(self.attempt.clone());
        }
    }
}

/// Until when a lease may be believed in that was sent then: an engine's clock may be 1 % off.
fn valid_until(attempt: &Attempt, sent_at: Option<Instant>) -> Instant {
    let ttl = attempt.ttl();
    let sure = (ttl - ttl / 100).saturating_sub(Duration::from_millis(5));
    sent_at.unwrap_or_else(Instant::now) + sure
}

/// Comes back when the lease of this token was ended by force.
async fn revoked(revocations: &mut Revocations, token: &Token) {
    while let Some(notice) = revocations.next().await {
        if matches!(&notice, Notice::Revoked(revoked) if revoked.token == *token) {
            return;
        }
    }
    std::future::pending::<()>().await;
}

fn denied(denial: &Denial) -> Outcome {
    Outcome::Denied { holder: denial.holder.as_ref().map(|holder| holder.token().into()) }
}

fn failed(error: &StoreError) -> Outcome {
    if error.effect() == Effect::Unknown { Outcome::Unknown } else { Outcome::Failed }
}

/// A lease that is believed in.
pub(super) struct Guard {
    bare: Bare,
    want: Want,
    op: u64,
    attempt: Arc<Attempt>,
    fences: Vec<Option<u64>>,
    valid_until: Instant,
    revocations: Revocations,
    open: bool,
}

impl Guard {
    fn fence(&self, index: usize) -> Option<u64> {
        self.fences.get(index).copied().flatten()
    }

    fn held(&self) {
        let claims = self.attempt.claims().iter().enumerate().map(|(index, claim)| HeldClaim {
            key: claim.on().to_string(),
            role: role(claim.mode()),
            ttl: claim.ttl(),
            fence: self.fence(index),
        });
        let claims: Vec<_> = claims.collect();
        for claim in &claims {
            claim.fence.into_iter().for_each(|fence| self.bare.saw(claim.key.clone(), fence));
        }
        let (client, token) = (self.bare.client, self.attempt.token().into());
        self.bare.journal.record(Event::Held { op: self.op, client, token, claims, degraded: false });
    }

    fn end(&mut self, how: Stop) {
        if std::mem::replace(&mut self.open, false) {
            let token = self.attempt.token().into();
            self.bare.journal.record(Event::Ended { op: self.op, token, how });
        }
    }

    /// Looks whether it is still valid.
    fn check(&mut self) -> bool {
        let valid = Instant::now() < self.valid_until || self.bare.habit == Habit::NeverChecks;
        let token = self.attempt.token().into();
        self.bare.journal.record(Event::Probe { op: self.op, token, valid: valid && self.open });
        if !valid {
            self.end(Stop::Lost);
        }
        self.open
    }

    /// Writes to what each fenced claim protects, whether the lease is still held or not: that is what fences are for.
    pub(super) fn write(&self) {
        for (index, claim) in self.attempt.claims().iter().enumerate() {
            if let Some(fence) = self.fence(index) {
                let (key, token) = (claim.on().to_string(), self.attempt.token().into());
                let taken = self.bare.register.write(&key, fence);
                self.bare.journal.record(Event::Write { op: self.op, key, token, fence, taken });
            }
        }
    }

    /// Goes on as long as `time`, or until it is lost.
    pub(super) async fn keep(&mut self, time: Duration, renew: bool) {
        let end = Instant::now() + time;
        let every = self.attempt.ttl() / 3;
        let mut due = Instant::now() + every;
        while self.check() {
            self.write();
            if Instant::now() >= end {
                return;
            }
            if renew && Instant::now() >= due {
                due = Instant::now() + every;
                self.renew().await;
                continue;
            }
            let mut next = end;
            if self.bare.habit != Habit::NeverChecks {
                next = next.min(self.valid_until);
            }
            if renew {
                next = next.min(due);
            }
            self.sleep_until(next).await;
        }
    }

    /// Sleeps, unless the lease is revoked meanwhile.
    async fn sleep_until(&mut self, at: Instant) {
        tokio::select! {
            biased;
            () = revoked(&mut self.revocations, self.attempt.token()) => self.lose(),
            () = sleep_until(at) => {}
        }
    }

    /// It is lost, and of what it has, only one claim may have been revoked.
    fn lose(&mut self) {
        self.end(Stop::Lost);
        self.bare.settle(self.attempt.clone());
    }

    async fn renew(&mut self) {
        let renewal = tokio::select! {
            biased;
            renewal = self.bare.store.renew(&self.attempt) => renewal,
            () = revoked(&mut self.revocations, self.attempt.token()) => return self.lose(),
            () = sleep_until(self.valid_until) => return,
        };
        match renewal {
            // An answer that was waiting behind the gate may come too late.
            Ok(Renewal::Extended { sent_at }) if Instant::now() < self.valid_until => {
                self.valid_until = self.valid_until.max(valid_until(&self.attempt, Some(sent_at)));
            }
            Ok(Renewal::Lost) => self.lose(),
            _ => {}
        }
    }

    /// Gives it back and tells whether it was held.
    pub(super) async fn release(mut self) -> Self {
        let token = self.attempt.token().into();
        let operation = self.bare.begin(&self.want, Wish::Release { token });
        self.end(Stop::Released);
        let mut calls = 0;
        let outcome = loop {
            calls += 1;
            match in_operation(operation.op, self.bare.store.release(&self.attempt)).await {
                Ok(release) => {
                    if !release.conclusive {
                        self.bare.settle(self.attempt.clone());
                    }
                    break Outcome::Released(release.held);
                }
                Err(error) if error.is_retryable() && calls < 2 => {}
                Err(error) => {
                    self.bare.settle(self.attempt.clone());
                    break failed(&error);
                }
            }
        };
        operation.complete(outcome);
        self
    }

    /// Gives it back in the background.
    pub(super) fn give_up(mut self) -> Self {
        self.end(Stop::Dropped);
        self.bare.settle(self.attempt.clone());
        self
    }

    /// Dies without a word: the engine finds out when the TTL is over.
    pub(super) fn die(mut self) -> Self {
        self.end(Stop::Dropped);
        self
    }

    /// Whether there is enough of it left to be passed on.
    pub(super) fn can_pass(&self) -> bool {
        let enough = self.valid_until > Instant::now() + self.attempt.ttl() / 2;
        self.open && enough && self.attempt.claims().len() == 1
    }

    /// Passes the lease on inside the process, without a call.
    pub(super) fn pass(mut self) -> Self {
        let operation = self.bare.begin(&self.want, Wish::Lock(self.want.wanted()));
        let entered = self.bare.habit == Habit::EntersAcross;
        if !entered {
            self.end(Stop::Done);
        }
        if self.bare.habit == Habit::StaleRelease {
            self.bare.settle(self.attempt.clone());
        }
        let step = u64::from(self.bare.habit != Habit::PassKeepsFence);
        let fences = self.fences.iter().map(|fence| fence.map(|fence| fence + step)).collect();
        // News that nobody has read yet is for the next one.
        let revocations = std::mem::replace(&mut self.revocations, self.bare.store.revocations());
        let next = Self {
            bare: self.bare.clone(),
            want: self.want.clone(),
            op: operation.op,
            attempt: self.attempt.clone(),
            fences,
            valid_until: self.valid_until,
            revocations,
            open: true,
        };
        next.held();
        operation.complete(Outcome::Granted(next.attempt.token().into()));
        if entered {
            tokio::spawn(async move {
                sleep(Duration::from_millis(20)).await;
                self.end(Stop::Done);
            });
        }
        next
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if self.open {
            self.end(Stop::Dropped);
            self.bare.settle(self.attempt.clone());
        }
    }
}
