//! The simulated engine keeps every promise of the port that it claims, as long as no fault strikes: what is proven on it
//! is proven on a store like any other.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use clinch::conformance::{Harness, Pace, Staged};
use clinch::lease::{Attempt, Claim, ClaimKey, Space, Token};
use clinch::store::{Store, StoreFuture};
use clinch_testkit::sim::{Faults, Sim};

/// A world without faults; every connection is a process of its own.
struct Simulated {
    sim: Sim,
    clients: AtomicUsize,
}

impl Simulated {
    fn new() -> Self {
        Self { sim: Sim::new(1, Faults::NONE), clients: AtomicUsize::new(0) }
    }

    fn store(&self) -> Arc<dyn Store> {
        self.sim.store(self.clients.fetch_add(1, Ordering::Relaxed))
    }
}

impl Harness for Simulated {
    fn connect(&self) -> StoreFuture<'_, Arc<dyn Store>> {
        Box::pin(async { Ok(self.store()) })
    }

    fn put_foreign<'a>(&'a self, on: &'a ClaimKey, value: &'a str, ttl: Option<Duration>) -> Staged<'a> {
        let ttl = ttl?;
        let claim = match on.space {
            Space::Lock => Claim::exclusive(on.key.clone(), ttl),
            Space::Duplicate => Claim::duplicate(on.key.clone(), ttl),
            _ => return None,
        };
        let foreign = Attempt::one(Token::from_text(value), claim);
        Some(Box::pin(async move {
            // On a taken key it does nothing, as `SET NX`.
            self.store().acquire(&foreign).await.map(|_| ())
        }))
    }

    /// A request and its reply take up to 200 ms each, and a connection 10 ms more.
    fn pace(&self) -> Pace {
        let mut pace = Pace::default();
        pace.lag = Duration::from_millis(500);
        pace.ttl = Duration::from_secs(8);
        pace.quiet = Duration::from_secs(1);
        pace.limit = Duration::from_secs(600);
        pace
    }
}

clinch::conformance_tests!(
    #[tokio::test(start_paused = true)]
    Simulated::new()
);
