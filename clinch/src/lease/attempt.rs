//! Attempts: claims wanted together.

use std::any::Any;
use std::borrow::Borrow;
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use once_cell::race::OnceBox;
use tokio::time::Instant;

use super::sent::Sent;
use super::{Claim, ClaimKey, Claims, Token};
use crate::key::hash::OfKey;
use crate::stamp::Stamp;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Mutex, MutexGuard, PoisonError};

/// The most claims that one attempt may make.
pub const MAX_CLAIMS: usize = 64;

/// One or more claims wanted together, all or none, under one token.
///
/// An attempt that was granted is a lease, and is still this value: renewing and releasing name the same token and the
/// same claims. It is shared between the manager and the store, so it also carries the two things that both must know:
/// when it was first sent ([`sent_at`](Self::sent_at)) and over which connection ([`Route`]).
pub struct Attempt {
    token: Token,
    claims: Claims,
    sent: Sent,
    route: Route,
}

/// Whether an attempt will come again if it is denied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Patience {
    /// It asks once.
    Try,
    /// It will come again if it is denied. An engine that lets waiting writers go before new readers remembers it for
    /// that; [`release`](crate::store::Store::release) withdraws it.
    Wait {
        /// It gives up at this instant.
        until: Instant,
        /// It comes again at least this often: an engine forgets one that has not.
        again_within: Duration,
        /// How long the key is kept for it if its holder hands it over ([heirs](crate::store::Capabilities::heirs)), until
        /// it is renewed or asked for again. Zero: it takes the key only by asking for it. Others are for a single exclusive
        /// claim on a lock, without a fence.
        confirm: Duration,
    },
    /// It stands in the engine's queue for its key, first come first served, and keeps its token while it waits. For a
    /// single exclusive claim on a store with [`fair`](crate::store::Capabilities::fair) queues.
    Queue {
        /// It gives up at this instant. One whose time is over already does not enter the queue, but it overtakes nobody
        /// in it either: that is a fair try.
        until: Instant,
        /// How long the place is kept for it when its turn comes, until it asks again.
        confirm: Duration,
    },
}

impl Patience {
    /// How much longer it waits from now on; zero for a try.
    pub fn left(&self) -> Duration {
        match self {
            Self::Try => Duration::ZERO,
            Self::Wait { until, .. } | Self::Queue { until, .. } => {
                until.saturating_duration_since(Instant::now())
            }
        }
    }

    /// How long the key is kept for it if its holder hands it over, if it can be.
    pub fn inherits(&self) -> Option<Duration> {
        match self {
            Self::Wait { confirm, .. } if !confirm.is_zero() => Some(*confirm),
            _ => None,
        }
    }
}

impl Attempt {
    /// An attempt with these claims, which asks once.
    ///
    /// # Errors
    /// [`AttemptError`] if there is no claim, if there are more than [`MAX_CLAIMS`], or if two are on the same key.
    pub fn new(token: Token, claims: Vec<Claim>) -> Result<Self, AttemptError> {
        Self::check(&claims)?;
        Ok(Self::of(token, claims.into()))
    }

    /// Whether these claims make an attempt.
    pub(crate) fn check(claims: &[Claim]) -> Result<(), AttemptError> {
        if claims.is_empty() {
            return Err(AttemptError::NoClaim);
        }
        if claims.len() > MAX_CLAIMS {
            return Err(AttemptError::TooMany { claims: claims.len() });
        }
        for (i, claim) in claims.iter().enumerate() {
            if claims[..i].iter().any(|earlier| earlier.on() == claim.on()) {
                return Err(AttemptError::Twice { on: claim.on().clone() });
            }
        }
        Ok(())
    }

    /// An attempt with a single claim, which asks once.
    pub fn one(token: Token, claim: Claim) -> Self {
        Self::of(token, Claims::One(claim))
    }

    /// An attempt with claims that were checked before.
    pub(crate) fn of(token: Token, claims: Claims) -> Self {
        Self { token, claims, sent: Sent::default(), route: Route::default() }
    }

    /// The same lease once more, of an engine that keeps no routes.
    pub(crate) fn granted_again(&self) -> Self {
        let sent = self.sent.again();
        Self { sent, ..Self::of(self.token.clone(), self.claims.clone()) }
    }

    /// The same attempt, which is sent at that moment.
    pub(crate) fn sent(mut self, at: Stamp) -> Self {
        self.sent = Sent::at(at);
        self
    }

    /// The same attempt with another patience.
    #[must_use]
    pub fn with_patience(self, patience: Patience) -> Self {
        self.route.set_patience(patience);
        self
    }

    /// Its token.
    pub const fn token(&self) -> &Token {
        &self.token
    }

    /// Its claims; never empty, no key twice.
    pub fn claims(&self) -> &[Claim] {
        &self.claims
    }

    /// Whether it will come again.
    pub fn patience(&self) -> Patience {
        self.route.patience()
    }

    /// The shortest TTL among its claims: how long the whole lease is good for.
    pub fn ttl(&self) -> Duration {
        self.claims.iter().map(Claim::ttl).min().unwrap_or_default()
    }

    /// The longest TTL among its claims: after this nothing of it is left in the engine.
    pub fn longest_ttl(&self) -> Duration {
        self.claims.iter().map(Claim::ttl).max().unwrap_or_default()
    }

    /// To be called by a store before the first byte of an acquire goes out, and as shortly before as it can: what is waited for
    /// after it is taken off the lease. Only the first call counts: validity runs from the first send.
    pub fn sending(&self) {
        if self.sent.get().is_none() {
            self.sent.set(Stamp::now());
        }
    }

    /// The same, by a store that goes on from that moment: it did so then. Says whether that is when it was first sent.
    pub(crate) fn sent_from(&self, at: Stamp) -> bool {
        self.sent.set(at)
    }

    /// Until when a lease on one key counts that was sent once, in an engine of this process: so long from then on.
    pub(crate) fn counts_until(&self) -> Stamp {
        self.sent.stamp().after_nanos(self.claims[0].ttl_nanos())
    }

    /// Such a lease was renewed: by that engine's count it is as good as one that was first sent then.
    pub(crate) fn counts_from(&self, at: Stamp) {
        self.sent.again_at(at);
    }

    /// To be called by a manager when the attempt was denied and every acquire of it was answered: what is granted later
    /// is granted to a later send, and validity will run from that one.
    pub fn unsent(&self) {
        self.sent.forget();
    }

    /// When it was first sent; `None` as long as nothing went out, and then there is nothing to take back either.
    pub fn sent_at(&self) -> Option<Instant> {
        self.sent.get()
    }

    /// Over which connection it went; for stores.
    pub const fn route(&self) -> &Route {
        &self.route
    }

    /// For a store that asks several engines which know nothing of each other: the same attempt as each of them knows it,
    /// with a route of its own, and without patience. They are made once: `count` is the same every time.
    ///
    /// Validity runs from the first send to any of them, which the store notes on the whole
    /// ([`sending`](Self::sending)); the whole is answered once all its parts are.
    pub fn parts(&self, count: usize) -> &[Arc<Self>] {
        let part = || Arc::new(Self::of(self.token.clone(), self.claims.clone()));
        self.route.notes().parts.get_or_init(|| (0..count).map(|_| part()).collect())
    }
}

/// What is known of a key as an attempt, or as what has one, is of its only key.
impl<T: Borrow<Attempt>> OfKey for Arc<T> {
    fn on(&self) -> &ClaimKey {
        let attempt: &Attempt = (**self).borrow();
        attempt.claims[0].on()
    }
}

impl fmt::Debug for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Attempt")
            .field("token", &self.token)
            .field("claims", &&*self.claims)
            .field("patience", &self.patience())
            .field("sent_at", &self.sent_at())
            .finish_non_exhaustive()
    }
}

/// A store's note on an attempt: the connections over which it was sent and not answered.
///
/// An attempt whose outcome is unknown must be taken back over the same connection, because on another one the release
/// can overtake the grant. A store that has such connections keeps them here while an acquire is unanswered; others
/// ignore it.
#[derive(Default)]
pub struct Route {
    /// Made when there is something to note: an engine in this process never has anything.
    notes: OnceBox<Notes>,
}

#[derive(Default)]
struct Notes {
    legs: Mutex<Vec<Leg>>,
    /// Of the attempt; `None`: it asks once, as most do, which is why it is in here.
    patience: Mutex<Option<Patience>>,
    taking_back: AtomicBool,
    took_turn: AtomicBool,
    known: AtomicBool,
    /// Where the attempt goes to several engines: what each of them knows of it.
    parts: OnceLock<Vec<Arc<Attempt>>>,
}

impl Notes {
    fn legs(&self) -> MutexGuard<'_, Vec<Leg>> {
        self.legs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Leg {
    connection: Arc<dyn Any + Send + Sync>,
    abandoned: bool,
}

impl Leg {
    fn is<C>(&self, connection: &Arc<C>) -> bool {
        std::ptr::addr_eq(Arc::as_ptr(&self.connection), Arc::as_ptr(connection))
    }
}

impl Route {
    fn notes(&self) -> &Notes {
        self.notes.get_or_init(Box::default)
    }

    fn noted(&self) -> Option<&Notes> {
        self.notes.get()
    }

    /// From now on it waits like this.
    pub(crate) fn set_patience(&self, patience: Patience) {
        let patience = Some(patience).filter(|patience| *patience != Patience::Try);
        if patience.is_some() || self.noted().is_some() {
            *self.notes().patience.lock().unwrap_or_else(PoisonError::into_inner) = patience;
        }
    }

    fn patience(&self) -> Patience {
        let patience = |notes: &Notes| *notes.patience.lock().unwrap_or_else(PoisonError::into_inner);
        self.noted().and_then(patience).unwrap_or(Patience::Try)
    }

    /// Notes that an acquire goes out over `connection`.
    pub fn sending_over<C: Send + Sync + 'static>(&self, connection: &Arc<C>) {
        let mut legs = self.notes().legs();
        if !legs.iter().any(|leg| leg.is(connection)) {
            legs.push(Leg { connection: connection.clone(), abandoned: false });
        }
    }

    /// Notes that everything that went out over `connection` was answered.
    pub fn answered_over<C: Send + Sync + 'static>(&self, connection: &Arc<C>) {
        if let Some(notes) = self.noted() {
            notes.legs().retain(|leg| !leg.is(connection));
        }
    }

    /// Notes that no answer came over `connection` in time, although what went out may still arrive.
    pub fn abandon<C: Send + Sync + 'static>(&self, connection: &Arc<C>) {
        if let Some(notes) = self.noted() {
            notes.legs().iter_mut().filter(|leg| leg.is(connection)).for_each(|leg| leg.abandoned = true);
        }
    }

    /// Gives the abandoned connections another chance.
    pub fn revive(&self) {
        if let Some(notes) = self.noted() {
            notes.legs().iter_mut().for_each(|leg| leg.abandoned = false);
        }
    }

    /// Notes that a store gives back what it was granted, in the middle of an acquire. Until that was
    /// [answered](Self::took_back), the release may arrive any time, so nothing can be granted under the same token.
    pub fn taking_back(&self) {
        self.notes().taking_back.store(true, Ordering::Release);
    }

    /// Notes that it was answered: nothing more of it will arrive.
    pub fn took_back(&self) {
        if let Some(notes) = self.noted() {
            notes.taking_back.store(false, Ordering::Release);
        }
    }

    /// Whether a release of it may still be under way.
    pub fn is_taking_back(&self) -> bool {
        self.noted().is_some_and(|notes| notes.taking_back.load(Ordering::Acquire))
    }

    /// Notes that the attempt, which stood in a queue, has taken the news that its turn has come for its grant.
    pub fn take_turn(&self) {
        self.notes().took_turn.store(true, Ordering::Release);
    }

    /// Whether it has.
    pub fn took_turn(&self) -> bool {
        self.noted().is_some_and(|notes| notes.took_turn.load(Ordering::Acquire))
    }

    /// Notes that the engine may know the attempt as one that waits, although every acquire of it was denied.
    pub fn know(&self) {
        self.notes().known.store(true, Ordering::Release);
    }

    /// Whether it may.
    pub fn is_known(&self) -> bool {
        self.noted().is_some_and(|notes| notes.known.load(Ordering::Acquire))
    }

    /// Whether it went to several engines.
    pub(crate) fn has_parts(&self) -> bool {
        self.noted().is_some_and(|notes| notes.parts.get().is_some())
    }

    /// Whether every acquire that went out was answered, those of its parts included, and nothing is being taken back.
    pub fn is_answered(&self) -> bool {
        let Some(notes) = self.noted() else { return true };
        let parts = || notes.parts.get().into_iter().flatten().all(|part| part.route.is_answered());
        notes.legs().is_empty() && !self.is_taking_back() && parts()
    }

    /// The connections over which an acquire went out that was not answered, and whether each was abandoned.
    pub fn unanswered<C: Send + Sync + 'static>(&self) -> Vec<(Arc<C>, bool)> {
        let leg = |leg: &Leg| Some((leg.connection.clone().downcast().ok()?, leg.abandoned));
        self.noted().map(|notes| notes.legs().iter().filter_map(leg).collect()).unwrap_or_default()
    }
}

impl fmt::Debug for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Route")
    }
}

/// Why claims do not make an attempt.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AttemptError {
    /// There is no claim.
    #[error("an attempt needs at least one claim")]
    NoClaim,
    /// There are too many claims.
    #[error("an attempt with {claims} claims; at most {MAX_CLAIMS} are allowed")]
    TooMany {
        /// How many there are.
        claims: usize,
    },
    /// Two claims are on the same key.
    #[error("two claims of one attempt are on the same key {on}")]
    Twice {
        /// The key.
        on: ClaimKey,
    },
}
