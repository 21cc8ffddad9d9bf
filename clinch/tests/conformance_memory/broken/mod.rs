//! Stores that are broken on purpose: each the memory engine with one [`Fault`].

mod acquire;
mod heirs;
mod leave;
mod records;

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use clinch::conformance::{Harness, Staged};
use clinch::lease::{Attempt, Claim, ClaimKey, Fence, Holder, Mode, Patience, Record, Space, Token};
use clinch::store::{
    Capabilities, Cursor, ErrorKind, Kept, Page, Release, Renewal, Revocations, Store, StoreAnswers,
    StoreError, StoreFuture, Verdict, Wakeups,
};
use clinch::stores::memory::MemoryStore;
use futures_util::FutureExt;
use futures_util::future::join_all;
use tokio::sync::Notify;

use self::heirs::Heir;
use self::records::Finished;
use crate::faults::Fault;
use crate::put;

/// A time that no test sees the end of.
const AGES: Duration = Duration::from_secs(3_600);

/// A whole engine around the memory one, with what that cannot hold, and with a fault.
#[derive(Debug, Clone)]
pub(crate) struct Broken {
    inner: MemoryStore,
    fault: Fault,
    beside: Arc<Mutex<Beside>>,
    asked: Arc<AtomicU32>,
}

#[derive(Debug, Default)]
struct Beside {
    /// Keys that hold something that is no lease.
    wrong: HashSet<ClaimKey>,
    /// Values without expiry.
    forever: HashMap<ClaimKey, Token>,
    /// Everybody who was ever granted a key.
    past: HashMap<ClaimKey, Token>,
    /// Every token that was ever granted something.
    granted: HashSet<Token>,
    /// Who waits, and was never withdrawn.
    waiting: Vec<(Token, Claim)>,
    /// Who stands in a queue, the last one first.
    queued: Vec<(Token, Claim, Patience)>,
    /// The first limit that was asked for.
    limits: HashMap<ClaimKey, Mode>,
    /// How many fenced attempts were denied.
    denied: HashMap<ClaimKey, u64>,
    /// What is left of finished leases.
    records: HashMap<ClaimKey, Finished>,
    /// Every stream of wake-ups.
    streams: Vec<(ClaimKey, Arc<Notify>)>,
    /// Who comes next.
    heirs: HashMap<ClaimKey, Heir>,
    /// Who was handed a key, and has neither asked nor renewed since.
    handed: HashSet<Token>,
    /// Whom to tell of heirs.
    kept: Vec<(ClaimKey, Arc<Kept>)>,
}

/// A claim of this kind, whatever the space says.
fn made(on: &ClaimKey, mode: Mode, ttl: Duration, floor: Option<Fence>) -> Claim {
    let claim = match mode {
        Mode::Shared => Claim::shared(on.key.clone(), ttl),
        Mode::Permit { of } => Claim::permit(on.key.clone(), of, ttl),
        _ if on.space == Space::Duplicate => Claim::duplicate(on.key.clone(), ttl),
        _ if on.space == Space::Idempotency => Claim::idempotent(on.key.clone(), ttl),
        _ => Claim::exclusive(on.key.clone(), ttl),
    };
    match floor {
        Some(floor) => claim.fenced(floor),
        None => claim,
    }
}

/// What a holder has, as a lease of this TTL.
fn lease_of(holder: &Holder, ttl: Duration) -> Attempt {
    Attempt::one(holder.token().clone(), made(holder.on(), holder.mode(), ttl, None))
}

impl Broken {
    pub(crate) fn new(fault: Fault) -> Self {
        Self { inner: MemoryStore::new(), fault, beside: Arc::default(), asked: Arc::default() }
    }

    fn beside(&self) -> MutexGuard<'_, Beside> {
        self.beside.lock().unwrap()
    }

    fn is(&self, fault: Fault) -> bool {
        self.fault == fault
    }

    /// Whether it claims to grant exclusive claims only.
    fn is_modest(&self) -> bool {
        self.is(Fault::Modest) || self.is(Fault::AcquireIgnoresModes)
    }

    async fn holders(&self, on: &ClaimKey) -> Vec<Holder> {
        self.inner.inspect(on).await.unwrap()
    }

    async fn holder(&self, on: &ClaimKey) -> Option<Holder> {
        self.holders(on).await.into_iter().next()
    }

    async fn holds(&self, on: &ClaimKey, token: &Token) -> bool {
        self.holders(on).await.iter().any(|holder| holder.token() == token)
    }

    /// Ends whatever is on these keys.
    async fn clear(&self, claims: &[Claim]) -> Result<(), StoreError> {
        for claim in claims {
            for holder in self.holders(claim.on()).await {
                self.inner.revoke(claim.on(), holder.token()).await?;
            }
        }
        Ok(())
    }

    /// A holder as this store shows it.
    fn shown(&self, holder: &Holder) -> Holder {
        let token = match self.fault {
            Fault::InspectHidesOwners if holder.owner().is_some_and(|owner| owner.host == "web:1") => {
                let text = holder.token().as_str();
                Token::from_text(&text[..text.len() - 5])
            }
            Fault::InspectGuessesOwners if holder.owner().is_none() => {
                Token::from_text(format!("{:032x}@someone:1:", 7))
            }
            _ => holder.token().clone(),
        };
        let fence = match self.fault {
            Fault::FencesHidden => None,
            Fault::FencesMovedByDenials => {
                let denied = self.beside().denied.get(holder.on()).copied().unwrap_or_default();
                holder.fence().map(|fence| Fence::new(fence.get() + denied * Fence::STEP))
            }
            _ => holder.fence(),
        };
        Holder::new(holder.on().clone(), holder.mode(), token, holder.remaining()).with_fence(fence)
    }

    async fn inspect(&self, on: &ClaimKey) -> Result<Vec<Holder>, StoreError> {
        if let Some(token) = self.beside().forever.get(on) {
            return Ok(vec![Holder::new(on.clone(), Mode::Exclusive, token.clone(), None)]);
        }
        let mut holders = self.inner.inspect(on).await?;
        holders.extend(self.makers(Some(on)));
        let unknown = |token| Holder::new(on.clone(), Mode::Exclusive, token, None);
        match self.fault {
            Fault::InspectRemembers if holders.is_empty() => {
                holders.extend(self.beside().past.get(on).cloned().map(unknown));
            }
            Fault::InspectShowsOne => holders.truncate(1),
            Fault::InspectExtends => {
                for holder in &holders {
                    self.inner.renew(&lease_of(holder, Duration::from_secs(30))).await?;
                }
            }
            Fault::QueuesShown => {
                let beside = self.beside();
                let queued = beside.queued.iter().filter(|(_, claim, _)| claim.on() == on);
                holders.extend(queued.map(|(token, ..)| unknown(token.clone())));
            }
            _ => {}
        }
        Ok(holders.iter().map(|holder| self.shown(holder)).collect())
    }

    async fn list(&self, cursor: Cursor) -> Result<Page, StoreError> {
        let mut page = self.inner.list(cursor).await?;
        page.holders.extend(self.makers(None));
        page.holders = page.holders.iter().map(|holder| self.shown(holder)).collect();
        match self.fault {
            Fault::ListFirstPageOnly => page.next = None,
            Fault::ListShowsOneAKey => page.holders.dedup_by(|a, b| a.on() == b.on()),
            Fault::ListRemembers => {
                let past = self.beside().past.clone();
                let unknown = |(on, token)| Holder::new(on, Mode::Exclusive, token, None);
                page.holders.extend(past.into_iter().map(unknown));
            }
            _ => {}
        }
        Ok(page)
    }

    /// A stream that fires whenever any key is given back to anybody.
    fn woken_with_everybody(&self, on: &ClaimKey, mut inner: Wakeups) -> Wakeups {
        let signal = Arc::new(Notify::new());
        self.beside().streams.push((on.clone(), signal.clone()));
        let fed = signal.clone();
        let feeder = tokio::spawn(async move {
            loop {
                inner.next().await;
                fed.notify_one();
            }
        });
        Wakeups::new(signal, Feeder(feeder))
    }
}

/// A task that ends with the stream it feeds.
struct Feeder(tokio::task::JoinHandle<()>);

impl Drop for Feeder {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Store for Broken {
    fn capabilities(&self) -> Capabilities {
        let mut capabilities = self.inner.capabilities();
        capabilities.heirs = !self.is_modest();
        if self.is(Fault::AcquireIgnoresSeveral) {
            capabilities.several = false;
        }
        if self.is_modest() {
            (capabilities.shared, capabilities.permits) = (false, false);
            (capabilities.fences, capabilities.fair) = (false, false);
        }
        if self.is_modest() || self.is(Fault::CompleteUnclaimed) {
            capabilities.records = false;
        }
        if self.is(Fault::FickleCapabilities) {
            capabilities.same_clock = self.asked.fetch_xor(1, Ordering::Relaxed) == 0;
        }
        capabilities
    }

    fn acquire<'a>(&'a self, attempt: &'a Attempt) -> StoreFuture<'a, Verdict> {
        if self.is(Fault::AcquireActsWhenCalled) {
            let answer = self.inner.acquire(attempt).now_or_never().unwrap();
            return Box::pin(async { answer });
        }
        Box::pin(self.acquire_or_wait(attempt))
    }

    fn acquire_each<'a>(&'a self, attempts: &'a [Arc<Attempt>]) -> StoreAnswers<'a, Verdict> {
        let answering = join_all(attempts.iter().map(|attempt| Store::acquire(self, attempt)));
        Box::pin(async move {
            assert!(!attempts.is_empty() || !self.is(Fault::EachPanicsOnNothing));
            let mut answers = answering.await;
            match self.fault {
                Fault::EachAnswersBackwards => answers.reverse(),
                Fault::EachFailsTogether => {
                    let failed = answers.iter().find_map(|answer| answer.as_ref().err().cloned());
                    answers.iter_mut().for_each(|answer| {
                        *answer = failed.clone().map_or_else(|| answer.clone(), Err);
                    });
                }
                _ => {}
            }
            answers
        })
    }

    fn renew<'a>(&'a self, lease: &'a Attempt) -> StoreFuture<'a, Renewal> {
        Box::pin(self.renew_or_confirm(lease))
    }

    fn renew_each<'a>(&'a self, leases: &'a [Arc<Attempt>]) -> StoreAnswers<'a, Renewal> {
        let answering = join_all(leases.iter().map(|lease| Store::renew(self, lease)));
        Box::pin(async move {
            assert!(!leases.is_empty() || !self.is(Fault::EachPanicsOnNothing));
            let mut answers = answering.await;
            match self.fault {
                Fault::EachAnswersBackwards => answers.reverse(),
                Fault::EachFailsTogether if answers.iter().any(|a| matches!(a, Ok(Renewal::Lost))) => {
                    answers.iter_mut().for_each(|answer| *answer = Ok(Renewal::Lost));
                }
                _ => {}
            }
            answers
        })
    }

    fn release<'a>(&'a self, lease: &'a Attempt) -> StoreFuture<'a, Release> {
        Box::pin(async move {
            let release = self.release_or_hand_over(lease).await;
            if self.is(Fault::EverybodyWoken) {
                let meant = |on: &ClaimKey| lease.claims().iter().any(|claim| claim.on() == on);
                let beside = self.beside();
                beside.streams.iter().filter(|(on, _)| meant(on)).for_each(|(_, stream)| stream.notify_one());
            }
            release
        })
    }

    fn complete<'a>(
        &'a self,
        lease: &'a Attempt,
        record: &'a Record,
        ttl: Option<Duration>,
    ) -> StoreFuture<'a, Release> {
        Box::pin(self.complete(lease, record, ttl))
    }

    fn wakeups(&self, on: &ClaimKey, queued: Option<&Token>) -> Wakeups {
        let (mut inner, signal) = (self.inner.wakeups(on, queued), Arc::new(Notify::new()));
        let fed = signal.clone();
        let feeder = match self.fault {
            Fault::WakeupsWithoutTheFirst => tokio::spawn(async move {
                inner.next().await;
                loop {
                    inner.next().await;
                    fed.notify_one();
                }
            }),
            Fault::WakeupsOnlyTheFirst => tokio::spawn(async move { fed.notify_one() }),
            Fault::WakeupsAllTheTime => tokio::spawn(async move {
                loop {
                    fed.notify_one();
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            }),
            Fault::EverybodyWoken => return self.woken_with_everybody(on, inner),
            _ => return self.told_of_heirs(on, inner),
        };
        Wakeups::new(signal, Feeder(feeder))
    }

    fn revocations(&self) -> Revocations {
        self.inner.revocations()
    }

    fn inspect<'a>(&'a self, on: &'a ClaimKey) -> StoreFuture<'a, Vec<Holder>> {
        Box::pin(self.inspect(on))
    }

    fn list(&self, cursor: Cursor) -> StoreFuture<'_, Page> {
        Box::pin(self.list(cursor))
    }

    fn revoke<'a>(&'a self, on: &'a ClaimKey, token: &'a Token) -> StoreFuture<'a, bool> {
        Box::pin(self.revoke(on, token))
    }

    fn ping(&self) -> StoreFuture<'_, Duration> {
        match self.fault {
            Fault::PingFails => {
                Box::pin(async { Err(StoreError::not_applied(ErrorKind::Unavailable, "broken on purpose")) })
            }
            Fault::PingPanics => Box::pin(async { panic!("broken on purpose") }),
            _ => self.inner.ping(),
        }
    }

    fn close(&self) {
        if self.is(Fault::CloseForgets) {
            self.inner.forget_everything();
        }
    }
}

impl Harness for Broken {
    fn connect(&self) -> StoreFuture<'_, Arc<dyn Store>> {
        Box::pin(async {
            let store = match self.fault {
                Fault::ConnectionsApart => Self::new(self.fault),
                _ => self.clone(),
            };
            Ok(Arc::new(store) as Arc<dyn Store>)
        })
    }

    fn put_foreign<'a>(&'a self, on: &'a ClaimKey, value: &'a str, ttl: Option<Duration>) -> Staged<'a> {
        Some(Box::pin(async move {
            match ttl {
                Some(ttl) => put(&self.inner, on, value, ttl).await?,
                None => drop(self.beside().forever.insert(on.clone(), Token::from_text(value))),
            }
            Ok(())
        }))
    }

    fn put_wrong_type<'a>(&'a self, on: &'a ClaimKey) -> Staged<'a> {
        Some(Box::pin(async move {
            self.beside().wrong.insert(on.clone());
            Ok(())
        }))
    }
}
