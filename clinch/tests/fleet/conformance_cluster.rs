//! The store keeps every promise of the port on a Cluster.

use std::sync::Arc;
use std::time::Duration;

use clinch::conformance::{Harness, Staged};
use clinch::lease::ClaimKey;
use clinch::store::{Store, StoreFuture};
use clinch::stores::redis::RedisClusterStore;
use clinch_testkit::deployment::RedisCluster;

use super::common::{conforms, options};

struct OnCluster(RedisCluster, String);

impl Harness for OnCluster {
    fn connect(&self) -> StoreFuture<'_, Arc<dyn Store>> {
        Box::pin(async {
            Ok(Arc::new(RedisClusterStore::connect(&self.1, &options()).await?) as Arc<dyn Store>)
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
    let cluster = RedisCluster::start();
    let url = cluster.url();
    conforms(&OnCluster(cluster, url)).await;
}

/// `deploy/redis/clinch-cluster.acl` is enough for all of it, and a diagnosis finds nothing missing.
///
/// Proves: O6
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_rights_for_a_cluster_are_enough() {
    let cluster = RedisCluster::start();
    let rules =
        include_str!("../../../deploy/redis/clinch-cluster.acl").replace(" off resetpass ", " on >secret ");
    let rules: Vec<_> = rules.split_whitespace().skip(1).collect();
    let sharded = cluster.nodes()[0].version().has_redis(7, 0);
    let known = |rule: &&str| sharded || !matches!(*rule, "+spublish" | "+ssubscribe" | "+sunsubscribe");
    let rules: Vec<_> = rules.into_iter().filter(known).collect();
    for node in cluster.nodes() {
        let reply = node.command(&[["ACL", "SETUSER"].as_slice(), &rules].concat());
        assert!(!reply.is_error(), "{reply:?}");
    }
    let url = cluster.url().replace("://", "://clinch:secret@");
    let harness = OnCluster(cluster, url);
    conforms(&harness).await;
    let diagnosis = harness.connect().await.unwrap().diagnose().await.unwrap();
    let errors: Vec<_> = diagnosis
        .findings
        .iter()
        .filter(|finding| finding.severity == clinch::store::Severity::Error)
        .collect();
    assert!(errors.is_empty(), "{errors:?}");
}
