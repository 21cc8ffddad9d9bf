//! The store keeps every promise of the port under Sentinels.

use std::sync::Arc;
use std::time::Duration;

use clinch::conformance::{Harness, Staged};
use clinch::lease::ClaimKey;
use clinch::store::{Store, StoreFuture};
use clinch::stores::redis::RedisStore;
use clinch_testkit::deployment::SentinelDeployment;
use clinch_testkit::server::RedisServer;

use super::common::{conforms, options};

struct UnderSentinels(SentinelDeployment);

impl UnderSentinels {
    fn primary(&self) -> &RedisServer {
        &self.0.servers()[self.0.primary()]
    }
}

impl Harness for UnderSentinels {
    fn connect(&self) -> StoreFuture<'_, Arc<dyn Store>> {
        Box::pin(async {
            Ok(Arc::new(RedisStore::connect(&self.0.url(), &options()).await?) as Arc<dyn Store>)
        })
    }

    fn put_foreign<'a>(&'a self, on: &'a ClaimKey, value: &'a str, ttl: Option<Duration>) -> Staged<'a> {
        Some(Box::pin(async move {
            let key = format!("clinch:{on}");
            match ttl {
                Some(ttl) => {
                    self.primary().command(&["SET", &key, value, "NX", "PX", &ttl.as_millis().to_string()])
                }
                None => self.primary().command(&["SET", &key, value, "NX"]),
            };
            Ok(())
        }))
    }

    fn put_wrong_type<'a>(&'a self, on: &'a ClaimKey) -> Staged<'a> {
        Some(Box::pin(async move {
            self.primary().command(&["RPUSH", &format!("clinch:{on}"), "precious"]);
            Ok(())
        }))
    }
}

/// Proves: O6
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_whole_suite_runs_under_sentinels() {
    conforms(&UnderSentinels(SentinelDeployment::start())).await;
}
