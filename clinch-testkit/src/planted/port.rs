//! Broken stores: an honest engine, and a wrong word on the way to it or back.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use clinch::lease::{Attempt, ClaimKey, Mode, Record, Token};
use clinch::store::{
    Denial, Effect, ErrorKind, Notice, Release, Renewal, Revocations, Store, StoreError, StoreFuture, Verdict,
};
use tokio::sync::broadcast;
use tokio::time::{Instant, sleep};

/// What is broken; [`all`](super::all) says it in words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PortBug {
    CheckThenAct,
    NewTokenOnRetry,
    SentLate,
    RenewedFromReply,
    ExtendedThoughLost,
    GrantedThoughDenied,
    DenialInvented,
    DenialRemembered,
    ReleaseAlwaysHeld,
    ReleaseNeverHeld,
    ReleaseSwallowed,
    ConclusiveLie,
    NotAppliedLie,
    NoTimeLimit,
    Deaf,
}

/// A store with one bug.
#[derive(Debug)]
pub(super) struct Planted {
    inner: Arc<dyn Store>,
    /// A stream of revocations on which nothing is ever said.
    silence: broadcast::Sender<Notice>,
    bug: PortBug,
    calls: AtomicU64,
    /// What goes out in the place of the attempts with these tokens.
    instead: Mutex<BTreeMap<Token, Arc<Attempt>>>,
    denied: Mutex<BTreeMap<ClaimKey, (Instant, Denial)>>,
}

impl Planted {
    pub(super) fn new(inner: Arc<dyn Store>, bug: PortBug) -> Self {
        let (instead, denied) = (Mutex::default(), Mutex::default());
        Self { inner, bug, calls: AtomicU64::new(0), instead, denied, silence: broadcast::channel(1).0 }
    }

    /// Every `nth` call.
    fn is_nth(&self, nth: u64) -> bool {
        (self.calls.fetch_add(1, Ordering::Relaxed) + 1).is_multiple_of(nth)
    }

    fn instead_of(&self, attempt: &Attempt) -> Option<Arc<Attempt>> {
        self.instead.lock().unwrap_or_else(PoisonError::into_inner).get(attempt.token()).cloned()
    }

    fn put_instead(&self, attempt: &Attempt, token: Token) -> Arc<Attempt> {
        let (claims, patience) = (attempt.claims(), attempt.patience());
        let other = Attempt::new(token.clone(), claims.to_vec());
        // The same claims make an attempt again.
        let other = other.unwrap_or_else(|_| Attempt::one(token, claims[0].clone()));
        let other = Arc::new(other.with_patience(patience));
        let mut instead = self.instead.lock().unwrap_or_else(PoisonError::into_inner);
        instead.insert(attempt.token().clone(), other.clone());
        other
    }

    fn remembered(&self, attempt: &Attempt) -> Option<Denial> {
        let denied = self.denied.lock().unwrap_or_else(PoisonError::into_inner);
        let (at, denial) = denied.get(attempt.claims()[0].on())?;
        (at.elapsed() < Duration::from_millis(500)).then(|| denial.clone())
    }

    fn remember(&self, attempt: &Attempt, denial: &Denial) {
        let on = attempt.claims()[0].on().clone();
        self.denied
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(on, (Instant::now(), denial.clone()));
    }

    /// The call as it should be, on what goes out in the place of this attempt.
    async fn honest(&self, attempt: &Attempt) -> Result<Verdict, StoreError> {
        match self.instead_of(attempt) {
            Some(other) => self.inner.acquire(&other).await,
            None => self.inner.acquire(attempt).await,
        }
    }

    async fn broken_acquire(&self, attempt: &Attempt) -> Result<Verdict, StoreError> {
        match self.bug {
            PortBug::CheckThenAct
                if attempt.claims().len() == 1 && attempt.claims()[0].mode() == Mode::Exclusive =>
            {
                let on = attempt.claims()[0].on();
                match self.inner.inspect(on).await?.pop() {
                    Some(holder) if holder.token() != attempt.token() => {
                        let retry_after = holder.remaining();
                        Ok(Verdict::Denied(Denial {
                            claim: 0,
                            holder: Some(holder),
                            retry_after,
                            done: None,
                        }))
                    }
                    _ => self.inner.acquire(attempt).await,
                }
            }
            PortBug::NewTokenOnRetry => {
                if attempt.sent_at().is_some() {
                    let text: String = attempt.token().as_str().chars().skip(1).collect();
                    // Still 32 digits, and another token every time.
                    let before = self.instead_of(attempt).map_or(0, |other| other.token().as_str().len());
                    let digit = if before == 0 { 'a' } else { 'b' };
                    self.put_instead(attempt, Token::from_text(format!("{digit}{text}")));
                }
                self.honest(attempt).await
            }
            PortBug::SentLate => {
                if self.instead_of(attempt).is_none() {
                    self.put_instead(attempt, attempt.token().clone());
                }
                let answer = self.honest(attempt).await;
                attempt.sending();
                answer
            }
            PortBug::GrantedThoughDenied => match self.inner.acquire(attempt).await? {
                Verdict::Denied(_) if self.is_nth(15) => Ok(Verdict::granted()),
                verdict => Ok(verdict),
            },
            PortBug::DenialInvented if self.is_nth(15) => Ok(Verdict::Denied(Denial::default())),
            PortBug::DenialRemembered => {
                if let Some(denial) = self.remembered(attempt) {
                    return Ok(Verdict::Denied(denial));
                }
                let verdict = self.inner.acquire(attempt).await?;
                if let Verdict::Denied(denial) = &verdict {
                    self.remember(attempt, denial);
                }
                Ok(verdict)
            }
            PortBug::NotAppliedLie => {
                self.inner.acquire(attempt).await.map_err(|error| match error.effect() {
                    Effect::Unknown => StoreError::not_applied(error.kind(), "a lie"),
                    Effect::NotApplied => error,
                })
            }
            PortBug::NoTimeLimit => late(self.inner.acquire(attempt).await).await,
            _ => self.inner.acquire(attempt).await,
        }
    }

    async fn broken_renew(&self, lease: &Attempt) -> Result<Renewal, StoreError> {
        let renewal = match self.instead_of(lease) {
            Some(other) => self.inner.renew(&other).await?,
            None => self.inner.renew(lease).await?,
        };
        Ok(match (self.bug, renewal) {
            (PortBug::RenewedFromReply, Renewal::Extended { .. })
            | (PortBug::ExtendedThoughLost, Renewal::Lost) => Renewal::Extended { sent_at: Instant::now() },
            (_, renewal) => renewal,
        })
    }

    async fn broken_release(&self, lease: &Attempt) -> Result<Release, StoreError> {
        if self.bug == PortBug::ReleaseSwallowed && self.is_nth(5) {
            return Ok(Release { held: true, conclusive: true, woken: None });
        }
        let answer = match self.instead_of(lease) {
            Some(other) => self.inner.release(&other).await,
            None => self.inner.release(lease).await,
        };
        let mut release = if self.bug == PortBug::NoTimeLimit { late(answer).await? } else { answer? };
        match self.bug {
            PortBug::ReleaseAlwaysHeld => release.held = true,
            PortBug::ReleaseNeverHeld => release.held = false,
            PortBug::ConclusiveLie => release.conclusive = true,
            _ => {}
        }
        Ok(release)
    }
}

/// A time-out, nine seconds later than it should be.
async fn late<T>(answer: Result<T, StoreError>) -> Result<T, StoreError> {
    if answer.as_ref().is_err_and(|error| error.kind() == ErrorKind::Timeout) {
        sleep(Duration::from_secs(9)).await;
    }
    answer
}

impl Store for Planted {
    crate::passes_on!(inner: capabilities, wakeups, inspect, list, revoke, ping, close);

    fn acquire<'a>(&'a self, attempt: &'a Attempt) -> StoreFuture<'a, Verdict> {
        Box::pin(self.broken_acquire(attempt))
    }

    fn renew<'a>(&'a self, lease: &'a Attempt) -> StoreFuture<'a, Renewal> {
        Box::pin(self.broken_renew(lease))
    }

    fn release<'a>(&'a self, lease: &'a Attempt) -> StoreFuture<'a, Release> {
        Box::pin(self.broken_release(lease))
    }

    fn complete<'a>(
        &'a self,
        lease: &'a Attempt,
        record: &'a Record,
        ttl: Option<Duration>,
    ) -> StoreFuture<'a, Release> {
        Box::pin(async move {
            match self.instead_of(lease) {
                Some(other) => self.inner.complete(&other, record, ttl).await,
                None => self.inner.complete(lease, record, ttl).await,
            }
        })
    }

    fn revocations(&self) -> Revocations {
        match self.bug {
            PortBug::Deaf => Revocations::new(self.silence.subscribe(), true),
            _ => self.inner.revocations(),
        }
    }
}
