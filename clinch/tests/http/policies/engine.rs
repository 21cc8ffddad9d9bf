//! What happens to requests when the engine fails.

use axum::Router;
use axum::routing::post as on_post;
use clinch::http::{Held, Web};
use clinch::submit::{DuplicatePolicy, Guards, Settings};
use clinch::{LockManager, Strategy};
use clinch_testkit::proxy::{Action, FaultProxy, Rule};
use clinch_testkit::server::RedisServer;
use serde_json::json;

use crate::common::{Answer, LONG, Service};
use crate::stage::{Bench, DONE, KINDS, Kind, same_orders};

/// What Redis says when it may not write: an engine that fails, and is asked again in vain or not.
const REFUSAL: &[u8] = b"-NOREPLICAS Not enough good replicas to write.\r\n";

/// It says that it cannot say, and nothing of what is behind it.
fn assert_unavailable(answer: &Answer, server: &RedisServer, shown: &str) {
    assert_eq!(answer.status, 503, "{shown}");
    assert_eq!(answer.header("content-type"), Some("application/problem+json"), "{shown}");
    let body = answer.json();
    assert_eq!(body["type"], "urn:clinch:problem:unavailable", "{shown}");
    assert_eq!(body["status"], 503, "{shown}");
    let whole = format!("{:?} {body}", answer.headers).to_lowercase();
    let port = server.port().to_string();
    for internal in ["redis", "127.0.0.1", &port, "replicas", "dup:", "orders", "4711", "alice", "token"] {
        assert!(!whole.contains(internal), "{shown}: {internal} in {whole}");
    }
}

/// Without its engine every guard refuses with 503, unless it is told otherwise; said by the policy or by the settings.
///
/// Proves: D10
/// Fault: 42
#[tokio::test]
async fn without_its_engine_every_guard_refuses_and_says_nothing_of_it() {
    let server = RedisServer::start();
    let managers = [
        LockManager::connect(&server.url()).await.unwrap(),
        LockManager::builder().strategy(Strategy::Proceed).connect(&server.url()).await.unwrap(),
        LockManager::builder().strategy(Strategy::Proceed).connect(&server.url()).await.unwrap(),
    ];
    server.kill();
    let [plain, by_policy, by_settings] = managers.map(Guards::new);
    let by_settings = by_settings.with_settings(Settings::new().strategy(Strategy::FailFast)).unwrap();
    let strategies = [json!({}), json!({"strategy": "fail_fast"}), json!({})];
    for (guards, extra) in [plain, by_policy, by_settings].into_iter().zip(strategies) {
        for (n, (kind, _)) in (1..).zip(KINDS) {
            let (bench, order) = (kind.bench(&Web::new(guards.clone()), &extra).await, same_orders());
            assert_unavailable(&bench.submit(order()).await.refused(), &server, &format!("{kind:?}"));
            let counts = guards.statistics();
            assert_eq!((counts.requests, counts.engine_failures, counts.admitted), (n, n, 0), "{kind:?}");
            assert_eq!(bench.ran(), 0);
        }
    }
}

/// `retry_once` asks once more, and no more than that; what was only a moment's failure is no failure.
///
/// Proves: D10
/// Fault: 42
#[tokio::test]
async fn retry_once_asks_the_engine_once_more() {
    let server = RedisServer::start();
    let warm = Web::new(Guards::new(LockManager::connect(&server.url()).await.unwrap()));
    for (kind, _) in KINDS {
        // The server knows the scripts, so that each question is one command.
        assert_eq!(kind.bench(&warm, &json!({})).await.run(same_orders()()).await.status, 200);
        for (strategy, failures, asked, let_in) in
            [("fail_fast", 1, 1, false), ("retry_once", 1, 2, true), ("retry_once", 2, 2, false)]
        {
            let shown = format!("{kind:?} {strategy} {failures}");
            let order = same_orders();
            let proxy = FaultProxy::start(server.addr()).await;
            let guards = Guards::new(LockManager::connect(&proxy.url()).await.unwrap());
            let bench = kind.bench(&Web::new(guards.clone()), &json!({"strategy": strategy})).await;
            proxy.reset_counts();
            let refuse = Action::ReplaceReply(REFUSAL.to_vec());
            proxy.add(Rule::new(refuse).lease_only().times(failures));
            let sent = bench.submit(order()).await;
            assert_eq!(
                (proxy.lease_commands(), proxy.rules_left()),
                (asked, 0),
                "{shown}: {:?}",
                proxy.log()
            );
            if let_in {
                assert_eq!(sent.running().finish(DONE).await.status, 200, "{shown}");
            } else {
                assert_unavailable(&sent.refused(), &server, &shown);
            }
            let counts = guards.statistics();
            let (yes, no) = (u64::from(let_in), u64::from(!let_in));
            assert_eq!((counts.admitted, counts.engine_failures), (yes, no), "{shown}");
        }
    }
}

/// An engine that is really gone is still gone the second time.
///
/// Proves: D10
/// Fault: 42
#[tokio::test]
async fn retry_once_refuses_when_the_engine_stays_away() {
    let (server, order) = (RedisServer::start(), same_orders());
    let guards = Guards::new(LockManager::connect(&server.url()).await.unwrap());
    server.kill();
    let policy = DuplicatePolicy::new().strategy(Strategy::RetryOnce);
    let bench = Bench::duplicate("/orders", &Web::new(guards.clone()), policy).await;
    assert_unavailable(&bench.submit(order()).await.refused(), &server, "retry_once");
    let counts = guards.statistics();
    assert_eq!((counts.requests, counts.engine_failures, bench.ran()), (1, 1, 0));
}

/// `proceed` runs the handler, which can see that nothing protects it; it is counted, and in this process it excludes.
///
/// Proves: D10
/// Fault: 42
#[tokio::test]
async fn proceed_runs_unprotected_and_the_handler_can_tell() {
    async fn handler(Held(lease): Held) -> String {
        format!("degraded: {}, fence: {:?}", lease.is_degraded(), lease.fence())
    }
    let (server, order) = (RedisServer::start(), same_orders());
    let guards = Guards::new(LockManager::connect(&server.url()).await.unwrap());
    let guards = guards.with_settings(Settings::new().strategy(Strategy::Proceed)).unwrap();
    let web = Web::new(guards.clone());
    let layer = web.duplicate(DuplicatePolicy::new().interval(2 * LONG)).unwrap();
    let service = Service::start(Router::new().route("/orders", on_post(handler).layer(layer))).await;
    assert_eq!(service.send(order()).await.text(), "degraded: false, fence: None");
    server.kill();
    let answer = service.send(order()).await;
    assert_eq!((answer.status.as_u16(), answer.text()), (200, "degraded: true, fence: None"));
    let counts = guards.statistics();
    assert_eq!((counts.requests, counts.admitted, counts.unprotected), (2, 1, 1));
    assert_eq!((counts.engine_failures, counts.duplicates), (0, 0));

    for (kind, status) in KINDS {
        let (before, order) = (guards.statistics(), same_orders());
        let bench = kind.bench(&web, &json!({})).await;
        let first = bench.submit(order()).await.running();
        // Not in the way of other processes, but of this one's own.
        assert_eq!(bench.submit(order()).await.refused().status, status, "{kind:?}");
        assert_eq!(first.finish(DONE).await.status, 200, "{kind:?}");
        let after = guards.statistics();
        assert_eq!(after.unprotected - before.unprotected, 1, "{kind:?}");
        assert_eq!(after.engine_failures, 0, "{kind:?}");
    }
}

/// What ran unprotected leaves the engine as it finds it when that is back.
///
/// Proves: D10
/// Fault: 42
#[tokio::test]
async fn after_the_engine_is_back_guards_protect_again() {
    let (server, order) = (RedisServer::start(), same_orders());
    let guards = Guards::new(LockManager::connect(&server.url()).await.unwrap());
    let guards = guards.with_settings(Settings::new().strategy(Strategy::Proceed)).unwrap();
    let bench = Kind::Duplicate.bench(&Web::new(guards.clone()), &json!({})).await;
    server.kill();
    assert_eq!(bench.run(order()).await.status, 200);
    assert_eq!(guards.statistics().unprotected, 1);
    server.restart();
    let protected = async {
        loop {
            let admitted = guards.statistics().admitted;
            let running = bench.submit(order()).await.running();
            if guards.statistics().admitted > admitted {
                return running;
            }
            assert_eq!(running.finish(DONE).await.status, 200);
        }
    };
    let running = tokio::time::timeout(LONG, protected).await.unwrap();
    assert_eq!(server.keys("clinch:dup:*").len(), 1);
    assert_eq!(bench.submit(order()).await.refused().status, 429);
    assert_eq!(running.finish(DONE).await.status, 200);
    assert_eq!(server.keys("*"), Vec::<String>::new());
}
