//! The Redis store keeps every promise of the port; each test has a server of its own.

#![cfg(all(feature = "redis", feature = "conformance"))]

use std::sync::Arc;
use std::time::Duration;

use clinch::conformance::{self, Harness, Need, Pace, Staged};
use clinch::lease::ClaimKey;
use clinch::store::{Store, StoreFuture};
use clinch::stores::StoreOptions;
use clinch::stores::redis::RedisStore;
use clinch_testkit::server::RedisServer;

struct OnRedis(RedisServer);

impl OnRedis {
    fn start() -> Self {
        Self(RedisServer::start())
    }
}

/// The key under which the store keeps a claim.
fn engine_key(on: &ClaimKey) -> String {
    format!("clinch:{on}")
}

impl Harness for OnRedis {
    fn pace(&self) -> Pace {
        let mut pace = Pace::default();
        pace.at_once = 16;
        pace.patience = Duration::from_secs(30);
        pace
    }

    fn connect(&self) -> StoreFuture<'_, Arc<dyn Store>> {
        Box::pin(async {
            // Time limits are not what is tested.
            let mut options = StoreOptions::default();
            options.call_timeout = Duration::from_secs(10);
            let store = RedisStore::connect(&self.0.url(), &options).await?;
            Ok(Arc::new(store) as Arc<dyn Store>)
        })
    }

    fn put_foreign<'a>(&'a self, on: &'a ClaimKey, value: &'a str, ttl: Option<Duration>) -> Staged<'a> {
        Some(Box::pin(async move {
            let key = engine_key(on);
            match ttl {
                Some(ttl) => self.0.command(&["SET", &key, value, "NX", "PX", &ttl.as_millis().to_string()]),
                None => self.0.command(&["SET", &key, value, "NX"]),
            };
            Ok(())
        }))
    }

    fn put_wrong_type<'a>(&'a self, on: &'a ClaimKey) -> Staged<'a> {
        Some(Box::pin(async move {
            self.0.command(&["RPUSH", &engine_key(on), "precious"]);
            Ok(())
        }))
    }
}

clinch::conformance_tests!(
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    OnRedis::start()
);

/// Nothing is skipped but what the store does not claim, and what it does better than refusing.
#[tokio::test]
async fn the_whole_suite_runs_on_redis() {
    let redis = OnRedis::start();
    let can = redis.connect().await.unwrap().capabilities();
    let report = conformance::run(&redis).await;
    report.assert_passed();
    let claimed = [
        (Need::Shared, can.shared),
        (Need::Permits, can.permits),
        (Need::Fences, can.fences),
        (Need::Fair, can.fair),
        (Need::Heirs, can.heirs),
        (Need::Records, can.records),
    ];
    let unclaimed = |need: &Need| claimed.contains(&(*need, false));
    let skipped = report.skipped().map(|(promise, _)| promise);
    let wrongly: Vec<_> = skipped
        .filter(|promise| promise.group() != "refusal" && !promise.needs().iter().any(unclaimed))
        .map(ToString::to_string)
        .collect();
    assert!(wrongly.is_empty(), "skipped: {wrongly:?}");
}
