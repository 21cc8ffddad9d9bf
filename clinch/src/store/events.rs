//! What a store tells by itself: wake-ups and revocations.

use std::fmt;
use std::sync::Arc;

use tokio::sync::{Notify, broadcast};

use crate::lease::{ClaimKey, Token};

/// Fires when a place on a key may have become free, and once after every (re)subscription.
///
/// Several firings that nobody waited for count as one.
pub struct Wakeups {
    signal: Arc<Notify>,
    // Dropped with the stream; a store ends its subscription there.
    _subscription: Option<Box<dyn Send + Sync>>,
}

impl Wakeups {
    /// A stream that fires on `signal.notify_one()`, with whatever must live as long as it.
    pub fn new(signal: Arc<Notify>, subscription: impl Send + Sync + 'static) -> Self {
        Self { signal, _subscription: Some(Box::new(subscription)) }
    }

    /// A stream that never fires: for stores that cannot push.
    pub fn never() -> Self {
        Self { signal: Arc::default(), _subscription: None }
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

/// A lease that was ended by force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Revocation {
    /// The key.
    pub on: ClaimKey,
    /// Whose lease it was.
    pub token: Token,
}

/// A stream of revocations.
#[derive(Debug)]
pub struct Revocations {
    events: broadcast::Receiver<Revocation>,
}

impl Revocations {
    /// A stream of what is sent into the channel. Its capacity bounds what a slow listener keeps; what it misses, the
    /// next renewal or the end of the validity finds.
    pub const fn new(events: broadcast::Receiver<Revocation>) -> Self {
        Self { events }
    }

    /// Waits for the next one; `None` once the store is gone.
    ///
    /// # Cancel safety
    /// Safe: a revocation is not lost when the future is dropped.
    pub async fn next(&mut self) -> Option<Revocation> {
        loop {
            match self.events.recv().await {
                Ok(revocation) => return Some(revocation),
                Err(broadcast::error::RecvError::Lagged(_)) => {}
                Err(broadcast::error::RecvError::Closed) => return None,
            }
        }
    }
}
