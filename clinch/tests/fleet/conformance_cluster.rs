//! The store keeps every promise of the port on a Cluster.

use std::sync::Arc;
use std::time::Duration;

use clinch::conformance::{Harness, Staged};
use clinch::lease::ClaimKey;
use clinch::store::{Store, StoreFuture};
use clinch::stores::redis::RedisClusterStore;
use clinch_testkit::deployment::RedisCluster;

use super::common::{conforms, options};

struct OnCluster(RedisCluster);

impl Harness for OnCluster {
    fn connect(&self) -> StoreFuture<'_, Arc<dyn Store>> {
        Box::pin(async {
            Ok(Arc::new(RedisClusterStore::connect(&self.0.url(), &options()).await?) as Arc<dyn Store>)
        })
    }

    fn put_foreign<'a>(&'a self, on: &'a ClaimKey, value: &'a str, ttl: Option<Duration>) -> Staged<'a> {
        Some(Box::pin(async move {
            let key = format!("clinch:{on}");
            let server = self.0.server_of(&key);
            match ttl {
                Some(ttl) => server.command(&["SET", &key, value, "NX", "PX", &ttl.as_millis().to_string()]),
                None => server.command(&["SET", &key, value, "NX"]),
            };
            Ok(())
        }))
    }

    fn put_wrong_type<'a>(&'a self, on: &'a ClaimKey) -> Staged<'a> {
        Some(Box::pin(async move {
            let key = format!("clinch:{on}");
            self.0.server_of(&key).command(&["RPUSH", &key, "precious"]);
            Ok(())
        }))
    }
}

/// Proves: O6
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_whole_suite_runs_on_a_cluster() {
    conforms(&OnCluster(RedisCluster::start())).await;
}
