//! What the tests share: connections, keys that are new every time, and short ways to say what an answer must be.

use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::Instant;

use super::{Failure, Harness, Pace};
use crate::key::Key;
use crate::lease::{Attempt, Claim, ClaimKey, Holder, Token};
use crate::store::{Cursor, Denial, Effect, ErrorKind, Grant, Renewal, Store, StoreError, Verdict, Wakeups};

/// The TTL of leases that do not expire while a test runs, and the time after which nothing is left of it.
pub(super) const LONG: Duration = Duration::from_secs(30);

/// How often a test that came too late asks again, each time with leases twice as long.
const TRIES: u32 = 4;

/// Fails the test unless the condition holds.
macro_rules! ensure {
    ($holds:expr, $($message:tt)+) => {
        if !$holds {
            return Err($crate::conformance::Failure::new(format!($($message)+)));
        }
    };
}
pub(super) use ensure;

/// One test at work: two connections, and names that nobody else uses.
pub(super) struct Case<'h> {
    pub(super) harness: &'h dyn Harness,
    pub(super) store: Arc<dyn Store>,
    pub(super) other: Arc<dyn Store>,
    pub(super) pace: Pace,
    id: String,
}

impl<'h> Case<'h> {
    pub(super) async fn new(harness: &'h dyn Harness) -> Result<Self, Failure> {
        let (store, other) = (harness.connect().await?, harness.connect().await?);
        let id = format!("{:016x}", rand::random::<u64>());
        Ok(Self { harness, store, other, pace: harness.pace(), id })
    }

    /// `count` connections.
    pub(super) async fn connections(&self, count: usize) -> Result<Vec<Arc<dyn Store>>, Failure> {
        let mut connections = Vec::with_capacity(count);
        for _ in 0..count {
            connections.push(self.harness.connect().await?);
        }
        Ok(connections)
    }

    /// A text that no other test uses.
    pub(super) fn text(&self, name: &str) -> String {
        format!("conformance:{}:{name}", self.id)
    }

    pub(super) fn key(&self, name: &str) -> Result<Key, Failure> {
        Ok(Key::new(self.text(name))?)
    }

    /// An exclusive claim on the key of this name.
    pub(super) fn claim(&self, name: &str, ttl: Duration) -> Result<Claim, Failure> {
        Ok(Claim::exclusive(self.key(name)?, ttl))
    }

    /// A new attempt for one exclusive claim on the key of this name.
    pub(super) fn attempt(&self, name: &str, ttl: Duration) -> Result<Attempt, Failure> {
        Ok(Attempt::one(token(), self.claim(name, ttl)?))
    }

    /// A new attempt for an exclusive claim on each of these keys.
    pub(super) fn several(&self, names: &[&str], ttl: Duration) -> Result<Attempt, Failure> {
        let claims: Result<_, _> = names.iter().map(|name| self.claim(name, ttl)).collect();
        Ok(Attempt::new(token(), claims?)?)
    }

    /// A new attempt for one of `of` permits on the key of this name.
    pub(super) fn permit(&self, name: &str, of: u32, ttl: Duration) -> Result<Attempt, Failure> {
        let of = NonZeroU32::new(of).unwrap_or(NonZeroU32::MIN);
        Ok(Attempt::one(token(), Claim::permit(self.key(name)?, of, ttl)))
    }

    /// A new attempt for a shared claim on the key of this name.
    pub(super) fn shared(&self, name: &str, ttl: Duration) -> Result<Attempt, Failure> {
        Ok(Attempt::one(token(), Claim::shared(self.key(name)?, ttl)))
    }

    /// A stream that has fired for the first time: from here on nothing is missed.
    pub(super) async fn subscribed(
        &self,
        store: &Arc<dyn Store>,
        on: &ClaimKey,
        queued: Option<&Token>,
    ) -> Result<Wakeups, Failure> {
        let mut wakeups = store.wakeups(on, queued);
        self.awaited("the firing after the subscription", wakeups.next()).await?;
        Ok(wakeups)
    }

    /// Whether a holder has the time left that a lease of this TTL, granted at `sent` or later, has now.
    #[track_caller]
    pub(super) fn has_left(&self, holder: &Holder, ttl: Duration, sent: Instant) -> Result<(), Failure> {
        let (left, least, most) = (remaining(holder)?, self.at_least(ttl, sent), ttl + self.pace.lag);
        if (least..=most).contains(&left) {
            return Ok(());
        }
        Err(Failure::new(format!("{} has {left:?} left, not {least:?} to {most:?}", holder.on())))
    }

    /// Whether a lease that was just renewed is seen to have all of its time again. Where servers vote, one of those that are
    /// asked may not have heard of the renewal yet, and what is shown is the least of them: then it is looked at again.
    pub(super) async fn has_all_left(
        &self,
        by: &dyn Store,
        lease: &Attempt,
        asked: Instant,
    ) -> Result<(), Failure> {
        let until = Instant::now() + self.pace.patience;
        loop {
            let holder = held_by(by.inspect(on(lease)).await?, lease.token())?;
            let seen = self.has_left(&holder, lease.ttl(), asked);
            if seen.is_ok() || !by.capabilities().split_votes || Instant::now() >= until {
                return seen;
            }
            self.advance(self.pace.lag).await;
        }
    }

    pub(super) async fn advance(&self, time: Duration) {
        self.harness.advance(time).await;
    }

    /// Lets a lease of this TTL, granted before, come to its end.
    pub(super) async fn outlive(&self, ttl: Duration) {
        self.advance(ttl + self.pace.lag).await;
    }

    /// TTLs for tests that must ask before a lease ends: should one come too late, the next is longer.
    pub(super) fn ttls(&self) -> impl Iterator<Item = Duration> + use<> {
        let first = self.pace.ttl;
        (0..TRIES).map(move |doubled| first * 2_u32.pow(doubled))
    }

    /// Whether a lease of this TTL, asked for at `sent` or later, may have ended by now, so that an answer proves
    /// nothing.
    pub(super) fn too_late(&self, sent: Instant, ttl: Duration) -> bool {
        sent.elapsed() + self.pace.lag >= ttl
    }

    /// The least that a lease of this TTL, granted at `sent` or later, may have left now.
    pub(super) fn at_least(&self, ttl: Duration, sent: Instant) -> Duration {
        ttl.saturating_sub(sent.elapsed()).saturating_sub(self.pace.lag)
    }

    /// A lease that has expired, and the successor that holds its key now.
    pub(super) async fn succeeded(&self, name: &str) -> Result<(Attempt, Attempt), Failure> {
        let lost = self.attempt(name, self.pace.ttl)?;
        granted(self.store.acquire(&lost).await?)?;
        self.outlive(self.pace.ttl).await;
        let successor = self.attempt(name, LONG)?;
        granted(self.other.acquire(&successor).await?)?;
        Ok((lost, successor))
    }

    /// Waits for something that should come.
    pub(super) async fn awaited<T>(&self, what: &str, coming: impl Future<Output = T>) -> Result<T, Failure> {
        match tokio::time::timeout(self.pace.patience, coming).await {
            Ok(came) => Ok(came),
            Err(_) => Err(Failure::new(format!("{what} did not come within {:?}", self.pace.patience))),
        }
    }

    /// Puts another client's value on a key.
    pub(super) async fn put_foreign(
        &self,
        on: &ClaimKey,
        value: &str,
        ttl: Option<Duration>,
    ) -> Result<(), Failure> {
        match self.harness.put_foreign(on, value, ttl) {
            Some(putting) => Ok(putting.await?),
            None => Err(Failure::new("the harness cannot put another client's value")),
        }
    }

    /// Puts something on a key that is no lease.
    pub(super) async fn put_wrong_type(&self, on: &ClaimKey) -> Result<(), Failure> {
        match self.harness.put_wrong_type(on) {
            Some(putting) => Ok(putting.await?),
            None => Err(Failure::new("the harness cannot put a value that is no lease")),
        }
    }
}

/// What a test returns that never was quick enough.
#[track_caller]
pub(super) fn always_too_late() -> Failure {
    Failure::new("every answer came too late to prove anything; give the harness a pace with a longer ttl")
}

/// A new token, in the form that managers make.
pub(super) fn token() -> Token {
    let random = rand::random::<u128>();
    Token::from_text(format!("{random:032x}@conformance:{}:", std::process::id()))
}

/// The key of an attempt's first claim.
pub(super) fn on(attempt: &Attempt) -> &ClaimKey {
    attempt.claims()[0].on()
}

/// Another attempt for the same claims.
pub(super) fn rival(of: &Attempt) -> Result<Attempt, Failure> {
    Ok(Attempt::new(token(), of.claims().to_vec())?)
}

/// The same attempt as another process would know it: the same token and claims, never sent.
pub(super) fn copy(of: &Attempt) -> Result<Attempt, Failure> {
    Ok(Attempt::new(of.token().clone(), of.claims().to_vec())?)
}

#[track_caller]
pub(super) fn granted(verdict: Verdict) -> Result<Grant, Failure> {
    match verdict {
        Verdict::Granted(grant) => Ok(grant),
        Verdict::Denied(denial) => {
            Err(Failure::new(format!("denied where it had to be granted: {denial:?}")))
        }
    }
}

#[track_caller]
pub(super) fn denied(verdict: Verdict) -> Result<Denial, Failure> {
    match verdict {
        Verdict::Granted(_) => Err(Failure::new("granted where it had to be denied")),
        Verdict::Denied(denial) => Ok(denial),
    }
}

/// Denied, because of this claim and this holder.
#[track_caller]
pub(super) fn denied_by(verdict: Verdict, claim: usize, holder: &Token) -> Result<Denial, Failure> {
    let denial = denied(verdict)?;
    let named = denial.holder.as_ref().map(Holder::token);
    if denial.claim != claim {
        return Err(Failure::new(format!(
            "the denial names claim {}, but it was claim {claim}",
            denial.claim
        )));
    }
    if named != Some(holder) {
        return Err(Failure::new(format!("the denial names {named:?}, but the holder is {holder:?}")));
    }
    Ok(denial)
}

/// Exactly one holder, this one.
#[track_caller]
pub(super) fn held_by(holders: Vec<Holder>, token: &Token) -> Result<Holder, Failure> {
    match <[Holder; 1]>::try_from(holders) {
        Ok([holder]) if holder.token() == token => Ok(holder),
        Ok([holder]) => Err(Failure::new(format!("held by {:?} and not by {token:?}", holder.token()))),
        Err(holders) => {
            Err(Failure::new(format!("{} holders, where {token:?} is the only one", holders.len())))
        }
    }
}

/// Exactly these holders, in whatever order.
#[track_caller]
pub(super) fn held_by_all(holders: &[Holder], leases: &[&Attempt]) -> Result<(), Failure> {
    let shown = leases.iter().all(|lease| holders.iter().any(|holder| holder.token() == lease.token()));
    if shown && holders.len() == leases.len() {
        return Ok(());
    }
    let shown: Vec<_> = holders.iter().map(|holder| (holder.token(), holder.remaining())).collect();
    Err(Failure::new(format!("the holders are {shown:?}, where {} others had to be shown", leases.len())))
}

#[track_caller]
pub(super) fn free(holders: &[Holder]) -> Result<(), Failure> {
    match holders {
        [] => Ok(()),
        [holder, ..] => Err(Failure::new(format!("a key that is free is held by {:?}", holder.token()))),
    }
}

/// The instant from which the new validity counts.
#[track_caller]
pub(super) fn extended(renewal: Renewal) -> Result<Instant, Failure> {
    match renewal {
        Renewal::Extended { sent_at } => Ok(sent_at),
        Renewal::Lost => Err(Failure::new("the renewal of a lease that is held says that it is lost")),
    }
}

#[track_caller]
pub(super) fn lost(renewal: Renewal) -> Result<(), Failure> {
    match renewal {
        Renewal::Extended { .. } => {
            Err(Failure::new("the renewal of a lease that is not held says that it was extended"))
        }
        Renewal::Lost => Ok(()),
    }
}

/// Refused with this kind of error, which says that nothing happened and that a retry will not help.
#[track_caller]
pub(super) fn refused<T: fmt::Debug>(answer: Result<T, StoreError>, kind: ErrorKind) -> Result<(), Failure> {
    let error = match answer {
        Ok(answer) => return Err(Failure::new(format!("{answer:?} where it had to be refused"))),
        Err(error) => error,
    };
    let seen = (error.kind(), error.effect(), error.is_retryable());
    if seen != (kind, Effect::NotApplied, false) {
        let wanted = "that was not applied and is not worth a retry";
        return Err(Failure::new(format!(
            "the error had to be {kind:?}, {wanted}; it is {:?}: {error}",
            error.kind()
        )));
    }
    Ok(())
}

/// The time left, which every lease of ours has.
#[track_caller]
pub(super) fn remaining(holder: &Holder) -> Result<Duration, Failure> {
    holder.remaining().ok_or_else(|| Failure::new("a lease is shown without the time it has left"))
}

/// Sends all attempts at the same time, spread over the connections.
pub(super) async fn acquire_at_once(
    connections: &[Arc<dyn Store>],
    attempts: Vec<Attempt>,
) -> Result<Vec<(Attempt, Verdict)>, Failure> {
    let mut tasks = JoinSet::new();
    for (attempt, store) in attempts.into_iter().zip(connections.iter().cycle()) {
        let store = store.clone();
        tasks.spawn(async move {
            let verdict = store.acquire(&attempt).await;
            verdict.map(|verdict| (attempt, verdict))
        });
    }
    let mut answers = Vec::new();
    while let Some(answer) = tasks.join_next().await {
        answers.push(answer??);
    }
    Ok(answers)
}

/// A whole listing.
pub(super) async fn listed(store: &Arc<dyn Store>) -> Result<Vec<Holder>, Failure> {
    let mut holders = Vec::new();
    let mut cursor = Cursor::START;
    // Far more pages than any engine under test has; a listing that goes round in circles does not end.
    for _ in 0..100_000 {
        let page = store.list(cursor).await?;
        holders.extend(page.holders);
        match page.next {
            Some(next) => cursor = next,
            None => return Ok(holders),
        }
    }
    Err(Failure::new("a listing did not end after 100,000 pages"))
}
