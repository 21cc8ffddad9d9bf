//! What a store tells by itself: wake-ups and revocations.

use std::fmt;
use std::sync::Arc;

use tokio::sync::{Notify, broadcast};
use tokio::time::Instant;

use crate::lease::{ClaimKey, Token};
use crate::sync::{Mutex, PoisonError};

/// Fires when a place on a key may have become free or was handed over to one that waits, and once after every (re)subscription.
///
/// Several firings that nobody waited for count as one.
pub struct Wakeups {
    signal: Arc<Notify>,
    kept: Option<Arc<Kept>>,
    // Dropped with the stream; a store ends its subscription there. After the signal: a store may see by the references to that
    // whether anybody waits.
    _subscription: Option<Box<dyn Send + Sync>>,
}

impl Wakeups {
    /// A stream that fires on `signal.notify_one()`, with whatever must live as long as it.
    pub fn new(signal: Arc<Notify>, subscription: impl Send + Sync + 'static) -> Self {
        Self { signal, kept: None, _subscription: Some(Box::new(subscription)) }
    }

    /// The same for a store that can tell from when on a key is [`Kept`] for an attempt.
    #[must_use]
    pub fn with_kept(mut self, kept: Arc<Kept>) -> Self {
        self.kept = Some(kept);
        self
    }

    /// A stream that never fires: for stores that cannot push.
    pub fn never() -> Self {
        Self { signal: Arc::default(), kept: None, _subscription: None }
    }

    /// The news that the key is kept for an attempt, if there are any; told once.
    pub fn kept(&mut self) -> Option<News> {
        self.kept.as_ref()?.take()
    }

    /// Waits until it fires.
    ///
    /// # Cancel safety
    /// Safe: a firing is not lost when the future is dropped.
    pub async fn next(&mut self) {
        self.signal.notified().await;
    }
}

impl fmt::Debug for Wakeups {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Wakeups")
    }
}

/// The news that a key is kept for an attempt, in its queue or as its holder's heir, from the store to whoever listens.
///
/// With it the attempt has the lease for as long as the key is kept for it, its `confirm` time, counted from the instant that
/// is told. So that must be one at which the attempt had asked last and nothing was kept for it yet, by the clock of whoever
/// asked. A renewal confirms: the lease has its full TTL then.
#[derive(Debug, Default)]
pub struct Kept(Mutex<Option<News>>);

/// By how much of its token an attempt is named where others may read it: enough to be its own, and too little to release with.
const BEGINNING: usize = 16;

/// That a key is kept for an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct News {
    since: Instant,
    /// How the attempt's token begins; `None`: it is the one that the stream is for.
    of: Option<[u8; BEGINNING]>,
}

impl News {
    /// Since when the key is kept, at the earliest, if it is for the attempt with this token.
    pub fn since_for(&self, token: &Token) -> Option<Instant> {
        let is_meant = self.of.is_none_or(|beginning| token.as_str().as_bytes().starts_with(&beginning));
        is_meant.then_some(self.since)
    }
}

impl Kept {
    /// It is kept for the attempt in the queue that the stream is for, since after that instant. To be told before the stream
    /// fires, as all of this.
    pub fn since(&self, at: Instant) {
        self.put(News { since: at, of: None });
    }

    /// It is kept for the attempt whose token begins so. The instant counts only if that is one of this store's.
    pub fn since_for(&self, beginning: [u8; BEGINNING], at: Instant) {
        self.put(News { since: at, of: Some(beginning) });
    }

    fn put(&self, news: News) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(news);
    }

    fn take(&self) -> Option<News> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// A lease that was ended by force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Revocation {
    /// The key.
    pub on: ClaimKey,
    /// Whose lease it was.
    pub token: Token,
}

/// What a stream of revocations tells.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Notice {
    /// From here on every revocation is told. What was revoked before, or while the store was not listening, was not:
    /// whoever must know asks the engine.
    Listening,
    /// A lease was ended by force.
    Revoked(Revocation),
}

/// A stream of revocations, for a manager to tell its guards.
#[derive(Debug)]
pub struct Revocations {
    events: broadcast::Receiver<Notice>,
    listening: bool,
}

impl Revocations {
    /// A stream of what is sent into the channel; `listening` says whether the store already hears everything, and else
    /// it sends [`Notice::Listening`] once it does. The channel's capacity bounds what a slow listener keeps: after a
    /// gap it is told [`Notice::Listening`] again.
    pub const fn new(events: broadcast::Receiver<Notice>, listening: bool) -> Self {
        Self { events, listening }
    }

    /// Waits for the next one; `None` once the store is gone.
    ///
    /// # Cancel safety
    /// Safe: a notice is not lost when the future is dropped.
    pub async fn next(&mut self) -> Option<Notice> {
        if std::mem::take(&mut self.listening) {
            return Some(Notice::Listening);
        }
        match self.events.recv().await {
            Ok(notice) => Some(notice),
            Err(broadcast::error::RecvError::Lagged(_)) => Some(Notice::Listening),
            Err(broadcast::error::RecvError::Closed) => None,
        }
    }
}
