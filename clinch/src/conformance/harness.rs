//! What the suite must be told about a store: how to connect, and what else can be done to its engine.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use crate::lease::ClaimKey;
use crate::store::{Store, StoreFuture};

/// Something put into the engine behind the store's back; `None` if the harness cannot do that.
///
/// It is also asked for just to see whether it can be done, and then dropped: nothing may happen before it is polled.
pub type Staged<'a> = Option<StoreFuture<'a, ()>>;

/// How the suite gets at the store under test. Only [`connect`](Self::connect) must be written.
pub trait Harness: Send + Sync {
    /// A new connection to the same engine, as another process would make it. What one connection is granted, the
    /// others must see.
    ///
    /// An engine that lives inside the store gives its clones.
    fn connect(&self) -> StoreFuture<'_, Arc<dyn Store>>;

    /// Puts `value` on the key the way another client's plain lock does (`SET key value NX PX ttl`), or without expiry.
    /// The value is not a token that Clinch made. On a key that is taken it does nothing, and that is no error.
    ///
    /// The default cannot; the promises in the group `foreign` are skipped then. A harness may be able to do
    /// one with an expiry and none without.
    fn put_foreign<'a>(&'a self, on: &'a ClaimKey, value: &'a str, ttl: Option<Duration>) -> Staged<'a> {
        let _ = (on, value, ttl);
        None
    }

    /// Puts something on the key that is no lease at all (on Redis, a list). Let it expire after a minute or clean it
    /// up yourself: no step of a store may remove it.
    ///
    /// The default cannot.
    fn put_wrong_type<'a>(&'a self, on: &'a ClaimKey) -> Staged<'a> {
        let _ = on;
        None
    }

    /// Lets at least `time` pass for the engine. The default sleeps on tokio's clock, which is right for real engines
    /// and, on a paused clock, for engines that live on it. Only an engine with a clock of its own needs another.
    fn advance(&self, time: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(tokio::time::sleep(time))
    }

    /// The times of the suite.
    fn pace(&self) -> Pace {
        Pace::default()
    }
}

/// How long things take in the suite. The defaults suit an engine that is a few milliseconds away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Pace {
    /// The TTL of the leases that the suite lets expire. At least eight times the lag. 400 ms.
    pub ttl: Duration,
    /// How much later than its TTL says a lease may end, and how far off a time left may be. 50 ms.
    pub lag: Duration,
    /// How long the suite waits for a wake-up or a revocation before it calls it missing. 5 s.
    pub patience: Duration,
    /// How long the suite watches for something that must not come. 200 ms.
    pub quiet: Duration,
    /// The longest TTL that the store serves. Ten years.
    pub longest_ttl: Duration,
    /// How long one promise may take altogether before the store counts as stuck. 60 s.
    pub limit: Duration,
    /// How many promises [`run`](super::run) checks at the same time. 1, as a paused clock needs it; on a real one more of them
    /// wait for their leases to expire together.
    pub at_once: usize,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            ttl: Duration::from_millis(400),
            lag: Duration::from_millis(50),
            patience: Duration::from_secs(5),
            quiet: Duration::from_millis(200),
            longest_ttl: Duration::from_secs(86_400 * 3_653),
            limit: Duration::from_secs(60),
            at_once: 1,
        }
    }
}
