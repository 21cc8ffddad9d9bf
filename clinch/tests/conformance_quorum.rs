//! The quorum keeps every promise of the port that it claims, on three real servers.

#![cfg(all(feature = "redis", feature = "conformance"))]

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use clinch::conformance::{self, Harness, Pace, Staged};
use clinch::lease::ClaimKey;
use clinch::store::{Store, StoreFuture};
use clinch::stores::StoreOptions;
use clinch::stores::quorum::QuorumStore;
use clinch_testkit::server::RedisServer;

/// Servers that say that they have run for long enough: their clocks were set ahead before anybody held anything. All
/// tests share them.
static SERVERS: LazyLock<Vec<RedisServer>> = LazyLock::new(|| {
    let servers = (0..3).map(|_| {
        let server = RedisServer::builder().movable_clock(true).start();
        server.move_clock(120);
        server
    });
    servers.collect()
});

struct OnThree;

/// Time limits are not what is tested.
fn options() -> StoreOptions {
    let mut options = StoreOptions::default();
    options.call_timeout = Duration::from_secs(10);
    options.connect_timeout = Duration::from_secs(10);
    options
}

impl OnThree {
    /// The same done to every server.
    fn everywhere(&self, on: &ClaimKey, command: impl Fn(&RedisServer, &str)) {
        SERVERS.iter().for_each(|server| command(server, &format!("clinch:{on}")));
    }
}

impl Harness for OnThree {
    fn connect(&self) -> StoreFuture<'_, Arc<dyn Store>> {
        Box::pin(async {
            let hosts: Vec<_> = SERVERS.iter().map(|server| format!("127.0.0.1:{}", server.port())).collect();
            let url = format!("redis+quorum://{}", hosts.join(","));
            Ok(Arc::new(QuorumStore::connect(&url, &options()).await?) as Arc<dyn Store>)
        })
    }

    fn put_foreign<'a>(&'a self, on: &'a ClaimKey, value: &'a str, ttl: Option<Duration>) -> Staged<'a> {
        Some(Box::pin(async move {
            self.everywhere(on, |server, key| {
                match ttl.map(|ttl| ttl.as_millis().to_string()) {
                    Some(ms) => server.command(&["SET", key, value, "NX", "PX", &ms]),
                    None => server.command(&["SET", key, value, "NX"]),
                };
            });
            Ok(())
        }))
    }

    fn put_wrong_type<'a>(&'a self, on: &'a ClaimKey) -> Staged<'a> {
        Some(Box::pin(async move {
            self.everywhere(on, |server, key| {
                server.command(&["RPUSH", key, "precious"]);
            });
            Ok(())
        }))
    }

    fn pace(&self) -> Pace {
        let mut pace = Pace::default();
        pace.longest_ttl = Duration::from_secs(60);
        // Three servers and their clients on one busy machine: what was asked may arrive so much later.
        pace.lag = Duration::from_millis(100);
        pace.ttl = 8 * pace.lag;
        pace.at_once = 2;
        pace.patience = Duration::from_secs(30);
        pace
    }
}

/// Proves: B10
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quorum_keeps_every_promise_that_it_claims() {
    let report = conformance::run(&OnThree).await;
    report.assert_passed();
    // What it does not claim is refused cleanly, and that was tested too.
    let refusals = ["shared", "permits", "fences", "several", "records"];
    for refused in refusals.map(|what| format!("refusal::{what}")) {
        let skipped = |(promise, _): (&conformance::Promise, _)| promise.to_string().starts_with(&refused);
        assert!(!report.skipped().any(skipped), "{refused}: {report}");
    }
}
