//! A client that has its answer can submit again; and no engine can keep the answer from it.

use std::time::Duration;

use axum::Router;
use clinch::LockManager;
use clinch::http::Web;
use clinch::submit::{Guards, Settings};
use clinch_testkit::proxy::{Action, FaultProxy, Rule};
use clinch_testkit::server::RedisServer;
use serde_json::json;

use crate::bench::{Engine, Kind, Probe, eventually};
use crate::common::{LONG, Service, post_as};

/// What was taken is given back before the answer goes out, so that the next submission finds it free, every time.
/// Proves: D7
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_has_its_answer_can_submit_again() {
    const TIMES: usize = 200;
    for engine in Engine::both() {
        for (kind, http2) in Kind::ALL.into_iter().flat_map(|kind| [(kind, false), (kind, true)]) {
            let settings = Settings::new().release_within(LONG);
            let (case, probe) = (engine.case_with(settings).await, Probe::new());
            let app = Router::new().route("/orders", kind.guard(&case.web, probe.handler(), None));
            let service = Service::start(app).await;
            probe.open(TIMES);
            for time in 0..TIMES {
                let submission = post_as("alice", "/orders", &json!({"item": 7}));
                let answer =
                    if http2 { service.send_http2(submission).await } else { service.send(submission).await };
                assert_eq!(answer.status, 200, "{}, {kind:?}, HTTP/2 {http2}, {time}", engine.name());
            }
            // Nothing was left to the background.
            assert_eq!((case.left(), probe.seen().finished), (0, TIMES), "{}, {kind:?}", engine.name());
            assert_eq!(case.web.guards().statistics().late_releases, 0);
        }
    }
}

/// An engine that does not answer the release keeps nobody from its answer; the release arrives when it can.
/// Proves: D7, L2
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_that_stalls_keeps_nobody_from_its_answer() {
    for kind in Kind::ALL {
        let server = RedisServer::start();
        let proxy = FaultProxy::start(server.addr()).await;
        let locks = LockManager::builder().call_timeout(LONG).connect(&proxy.url()).await.unwrap();
        let settings = Settings::new().release_within(Duration::from_millis(200));
        let web = Web::new(Guards::new(locks).with_settings(settings).unwrap());
        let probe = Probe::new();
        let app = Router::new().route("/orders", kind.guard(&web, probe.handler(), None));
        let service = Service::start(app).await;
        let stalling = async {
            probe.until("the handler runs", |seen| seen.entered == 1).await;
            proxy.add(Rule::new(Action::HoldRequest).lease_only());
            probe.open(1);
            proxy.wait_until_held().await;
        };
        let submission = || post_as("alice", "/orders", &json!({"item": 7}));
        let (answer, ()) = tokio::join!(service.send(submission()), stalling);
        assert_eq!(answer.status, 200, "{kind:?}");
        assert_eq!(web.guards().statistics().late_releases, 1, "{kind:?}");
        assert!(!server.keys("clinch:*").is_empty() && proxy.held() == 1, "{kind:?}");

        proxy.release_held();
        eventually("the key is free", || server.keys("clinch:*").is_empty()).await;
        probe.open(1);
        assert_eq!(service.send(submission()).await.status, 200, "{kind:?}");
    }
}

/// An engine that dies meanwhile does not change what the handler has answered.
/// Proves: L2
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_that_dies_changes_nothing_of_the_answer() {
    for kind in Kind::ALL {
        let server = RedisServer::start();
        let locks = LockManager::connect(&server.url()).await.unwrap();
        let settings = Settings::new().release_within(Duration::from_millis(200));
        let web = Web::new(Guards::new(locks).with_settings(settings).unwrap());
        let probe = Probe::new();
        let service =
            Service::start(Router::new().route("/orders", kind.guard(&web, probe.handler(), None))).await;
        let dying = async {
            probe.until("the handler runs", |seen| seen.entered == 1).await;
            server.kill();
            probe.open(1);
        };
        let (answer, ()) =
            tokio::join!(service.send(post_as("alice", "/orders", &json!({"item": 7}))), dying);
        assert_eq!((answer.status.as_u16(), answer.text()), (200, "done"), "{kind:?}");
    }
}
