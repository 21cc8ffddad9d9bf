//! One run that moves every metric, with secrets in every place that has room for one; none of them is in a label.

use std::time::Duration;

use axum::Router;
use axum::routing::post;
use clinch::http::{IdentityChain, SessionCookie, Web};
use clinch::submit::{DuplicatePolicy, Guards, IdempotencyPolicy, LockPolicy, Settings};
use clinch::telemetry::{self as t, METRICS};
use clinch::{LockManager, LockOptions};
use clinch_testkit::proxy::{Action, FaultProxy, Rule};
use clinch_testkit::server::RedisServer;
use http::{Request, StatusCode};
use tokio::time::timeout;
use tower::ServiceExt;

use crate::common::{LONG, Ledger, TTL, eventually};

const PASSWORD: &str = "s3cr3t-password";
const USER: &str = "s3cr3t-acl-user";
/// In keys, bodies, headers and paths.
const MARKS: [&str; 9] = [
    PASSWORD,
    USER,
    "s3cr3t-bearer",
    "s3cr3t-session",
    "s3cr3t-fleet",
    "s3cr3t-order",
    "s3cr3t-label",
    "s3cr3t-idempotency",
    "s3cr3t-item",
];

fn request(path: &str, idempotency_key: Option<&str>) -> Request<axum::body::Body> {
    let mut request = Request::post(path)
        .header("authorization", "Bearer s3cr3t-bearer")
        .header("cookie", "session=s3cr3t-session")
        .header("content-type", "application/json");
    if let Some(key) = idempotency_key {
        request = request.header("idempotency-key", format!("\"{key}\""));
    }
    request.body(r#"{"item": "s3cr3t-item"}"#.into()).unwrap()
}

async fn send(app: &Router, request: Request<axum::body::Body>) -> StatusCode {
    app.clone().oneshot(request).await.unwrap().status()
}

/// Proves: O1
#[tokio::test]
async fn every_metric_moves_and_no_label_has_a_secret_in_it() {
    let ledger = Ledger::new();
    let server = RedisServer::builder().acl_user(USER, &format!("on >{PASSWORD} ~* &* +@all")).start();
    let proxy = FaultProxy::start(server.addr()).await;
    let url = proxy.url_with(0, Some(USER), Some(PASSWORD));
    let builder = LockManager::builder().host("host-s3cr3t-label").call_timeout(Duration::from_secs(3));
    let locks = builder.connect(&url).await.unwrap();
    let mut tokens = Vec::new();

    // Over HTTP: let in, refused, replayed, in shadow mode.
    let settings = Settings::new().release_within(Duration::from_millis(500));
    let guards = Guards::new(locks.clone()).with_settings(settings).unwrap().with_fleet_key(b"s3cr3t-fleet");
    let identity = IdentityChain::default().first(SessionCookie::named(["session"]));
    let web = Web::new(guards.clone()).with_identity(identity);
    let handler = || post(async || "done");
    let never = || DuplicatePolicy::new().release(clinch::submit::ReleaseWhen::Never);
    let app = Router::new()
        .route("/orders/{id}", handler().layer(web.duplicate(never()).unwrap()))
        .route("/looked/{id}", handler().layer(web.duplicate(never().shadow(true)).unwrap()))
        .route("/locked/{id}", handler().layer(web.lock(LockPolicy::new("order:{id}")).unwrap()))
        .route("/pay/{id}", handler().layer(web.idempotency(IdempotencyPolicy::new()).unwrap()));
    for (path, key, statuses) in [
        ("/orders/s3cr3t-order", None, [200, 429]),
        ("/looked/s3cr3t-order", None, [200, 200]),
        ("/locked/s3cr3t-order", None, [200, 200]),
        ("/pay/s3cr3t-order", Some("s3cr3t-idempotency"), [200, 200]),
    ] {
        for status in statuses {
            assert_eq!(send(&app, request(path, key)).await, status, "{path}");
        }
    }
    // A release that nobody waits for any longer.
    proxy.add(Rule::new(Action::HoldReply).lease_only().nth(2));
    assert_eq!(send(&app, request("/locked/s3cr3t-order", None)).await, 200);
    proxy.release_held();

    // Renewed and lost.
    let every = LockOptions::new(TTL).label("s3cr3t-label").renew_every(Duration::from_millis(20));
    let renewed = locks.lock("s3cr3t-order:1", every).await.unwrap();
    tokens.push(renewed.token().as_str().to_owned());
    eventually("it is renewed", || ledger.sum(t::RENEWALS, &[("outcome", "extended")]) > 0.0).await;
    server.command(&["DEL", "clinch:lock:s3cr3t-order:1"]);
    timeout(LONG, renewed.lost()).await.unwrap();
    drop(renewed);
    // Outlived.
    let short = Duration::from_millis(1_500);
    let leaked = locks.lock("s3cr3t-order:2", short).await.unwrap();
    tokens.push(leaked.token().as_str().to_owned());
    eventually("it is found", || ledger.sum(t::GUARDS_LEAKED, &[]) > 0.0).await;
    drop(leaked);
    // Waited for, and found by a poll.
    let asked = || ledger.sum(t::ENGINE_CALLS, &[("operation", "acquire")]);
    let before = asked();
    server.command(&["SET", "clinch:lock:s3cr3t-order:3", "somebody's", "PX", "60000"]);
    let waits = LockOptions::new(TTL).wait(LONG);
    let seen = async {
        eventually("it polls", || asked() >= before + 4.0).await;
        let moved = ledger.moved();
        server.command(&["DEL", "clinch:lock:s3cr3t-order:3"]);
        moved
    };
    let (guard, mut moved) = tokio::join!(locks.lock("s3cr3t-order:3", waits), seen);
    let guard = guard.unwrap();
    tokens.push(guard.token().as_str().to_owned());
    moved.extend(ledger.moved());
    // In flight, without an answer, and then without an engine.
    proxy.stall();
    let mut asking = Box::pin(locks.attempt("s3cr3t-order:4", TTL));
    tokio::select! {
        _ = &mut asking => panic!("answered"),
        () = eventually("it is asked", || ledger.sum(t::ENGINE_CALLS_IN_FLIGHT, &[]) > 0.0) => {}
    }
    moved.extend(ledger.moved());
    drop(asking);
    let failing = async {
        while ledger.sum(t::BREAKER_OPEN, &[]) == 0.0 {
            assert!(locks.attempt("s3cr3t-order:5", TTL).await.unwrap().guard().is_none());
        }
    };
    timeout(LONG, failing).await.expect("the breaker opens");
    moved.extend(ledger.moved());
    drop(guard);

    let names: Vec<_> = METRICS.iter().map(|metric| metric.name).collect();
    let still: Vec<_> = names.iter().filter(|name| !moved.contains(**name)).collect();
    assert!(still.is_empty(), "never moved: {still:?}");
    let secrets: Vec<&str> = MARKS.into_iter().chain(tokens.iter().map(String::as_str)).collect();
    for (name, labels) in ledger.series() {
        let metric = METRICS.iter().find(|metric| metric.name == name).expect("it is in the list");
        assert!(labels.iter().all(|(label, _)| metric.labels.contains(&label.as_str())), "{name} {labels:?}");
        assert_eq!(labels.len(), metric.labels.len(), "{name} {labels:?}");
        for (label, value) in &labels {
            let found =
                secrets.iter().find(|secret| value.contains(**secret) || secret.contains(value.as_str()));
            assert_eq!(found, None, "{name}: {label} is {value}");
            assert!(!value.contains("s3cr3t"), "{name}: {label} is {value}");
        }
    }
}
