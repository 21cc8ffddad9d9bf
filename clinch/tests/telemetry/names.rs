//! Under which name a guard is counted, and what the list of metrics says.

use std::collections::BTreeSet;
use std::time::Duration;

use axum::Router;
use axum::routing::post;
use clinch::http::Web;
use clinch::submit::{DuplicatePolicy, Guards, IdempotencyPolicy, LimitPolicy, LockPolicy};
use clinch::telemetry::{self as t, METRICS, Metric, MetricKind};
use clinch::{Error, LockManager, LockOptions};
use http::{Request, StatusCode};
use metrics::Unit;
use tower::ServiceExt;

use crate::common::{Ledger, TTL, table};

async fn send(app: &Router, path: &str, headers: &[(&str, &str)]) -> StatusCode {
    let mut request = Request::post(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    app.clone().oneshot(request.body(axum::body::Body::empty()).unwrap()).await.unwrap().status()
}

#[clinch::lock(key = "stock:{id}")]
async fn take(id: u64) -> Result<u64, Error> {
    Ok(id)
}

#[clinch::limit(key = "report:{id}", limit = 1, name = "reports")]
async fn report(id: u64) -> Result<u64, Error> {
    Ok(id)
}

#[clinch::prevent_duplicate(user = "{id}")]
async fn submit(id: u64) -> Result<u64, Error> {
    Ok(id)
}

/// A guard goes by its name, or by what stands in the program text: never by what a client wrote.
///
/// Proves: O1
#[tokio::test]
async fn a_guard_goes_by_its_name_its_template_its_route_or_its_function() {
    let ledger = Ledger::new();
    let guards = Guards::new(LockManager::memory());
    let web = Web::new(guards.clone());
    let handler = || post(async || "done");
    let duplicate = |policy| web.duplicate(policy).unwrap();
    let app = Router::new()
        .route("/orders/{id}", handler().layer(duplicate(DuplicatePolicy::new())))
        .route("/named/{id}", handler().layer(duplicate(DuplicatePolicy::new().name("named"))))
        .route("/locked/{id}", handler().layer(web.lock(LockPolicy::new("item:{id}")).unwrap()))
        .route("/limited", handler().layer(web.limit(LimitPolicy::new("export", 2).name("exports")).unwrap()))
        .route("/pay/{id}", handler().layer(web.idempotency(IdempotencyPolicy::new()).unwrap()));
    for id in ["17", "18"] {
        assert_eq!(send(&app, &format!("/orders/{id}"), &[]).await, 200);
        assert_eq!(send(&app, &format!("/named/{id}"), &[]).await, 200);
        assert_eq!(send(&app, &format!("/locked/{id}"), &[]).await, 200);
        let key = format!("\"{id}\"");
        assert_eq!(send(&app, &format!("/pay/{id}"), &[("idempotency-key", key.as_str())]).await, 200);
    }
    assert_eq!(send(&app, "/limited", &[]).await, 200);
    // A path that no route is known of can be anything.
    let unrouted = Router::new().fallback(async || "done").layer(duplicate(DuplicatePolicy::new()));
    for path in ["/secret/4711", "/secret/4712"] {
        assert_eq!(send(&unrouted, path, &[]).await, 200);
    }
    guards
        .enter(async {
            assert_eq!(
                (take(1).await.unwrap(), report(2).await.unwrap(), submit(3).await.unwrap()),
                (1, 2, 3)
            );
        })
        .await;
    let counted = ledger.by(t::REQUESTS, "guard", &[]);
    let function = format!("{}::submit", module_path!());
    let expected = table([
        ("POST /orders/{id}", 2.0),
        ("named", 2.0),
        ("item:{id}", 2.0),
        ("exports", 1.0),
        ("POST /pay/{id}", 2.0),
        ("duplicate", 2.0),
        ("stock:{id}", 1.0),
        ("reports", 1.0),
        (function.as_str(), 1.0),
    ]);
    assert_eq!(counted, expected);
    assert_eq!(ledger.by(t::ATTEMPTS, "guard", &[("outcome", "acquired")]), expected);
}

/// A client that invents verbs does not invent guards: there is room for so many names only.
///
/// Proves: O1
#[tokio::test]
async fn a_verb_that_a_client_made_up_is_no_name() {
    let ledger = Ledger::new();
    let web = Web::new(Guards::new(LockManager::memory()));
    let any = || axum::routing::any(async || "done");
    let app = Router::new()
        .route("/orders", any().layer(web.duplicate(DuplicatePolicy::new()).unwrap()))
        .route("/pay", any().layer(web.idempotency(IdempotencyPolicy::new()).unwrap()));
    for (verb, path) in [("INVENTED", "/orders"), ("PUT", "/orders"), ("INVENTED", "/pay"), ("PUT", "/pay")] {
        let request =
            Request::builder().method(verb).uri(path).header("idempotency-key", format!("\"{verb}\""));
        let request = request.body(axum::body::Body::empty()).unwrap();
        assert_eq!(app.clone().oneshot(request).await.unwrap().status(), 200);
    }
    let expected = table([("duplicate", 1.0), ("PUT /orders", 1.0), ("idempotency", 1.0), ("PUT /pay", 1.0)]);
    assert_eq!(ledger.by(t::REQUESTS, "guard", &[]), expected);
}

/// A name that cannot be one is refused before anything is sent.
#[tokio::test]
async fn bad_names_are_refused() {
    let locks = LockManager::memory();
    let guards = Guards::new(locks.clone());
    for name in [String::new(), "x".repeat(65), "a\nb".to_owned()] {
        let error = locks.attempt("a", LockOptions::new(TTL).named(name.clone())).await.unwrap_err();
        assert!(matches!(error, Error::InvalidOption { field: "name", .. }), "{error}");
        let error = guards.lock(&LockPolicy::new("a").name(name.clone()), "a").await.unwrap_err();
        assert!(matches!(error, Error::InvalidOption { field: "name", .. }), "{error}");
        let web = Web::new(guards.clone());
        assert!(web.duplicate(DuplicatePolicy::new().name(name.clone())).is_err());
        assert!(web.limit(LimitPolicy::new("a", 1).name(name.clone())).is_err());
        assert!(web.idempotency(IdempotencyPolicy::new().name(name)).is_err());
    }
    assert!(locks.inspect("a").await.unwrap().is_empty());
}

/// Names and units as Prometheus has them; every metric is described, and every one is in the manual.
///
/// Proves: O1
#[test]
fn all_metrics_are_described_and_follow_the_convention() {
    let manual = include_str!("../../../docs/operations.md");
    let ledger = Ledger::new();
    t::describe();
    let names: BTreeSet<_> = METRICS.iter().map(|metric| metric.name).collect();
    assert_eq!(names.len(), METRICS.len(), "every name is there once");
    for Metric { name, kind, help, .. } in METRICS {
        let (unit, description) = ledger.description(name).unwrap();
        assert_eq!(description, *help, "{name}");
        let fits = match kind {
            MetricKind::Counter => name.ends_with("_total") && unit == Some(Unit::Count),
            MetricKind::Histogram if name.ends_with("_seconds") => unit == Some(Unit::Seconds),
            MetricKind::Histogram => name.ends_with("_ratio") && unit.is_none(),
            MetricKind::Gauge => !name.ends_with("_total") && unit == Some(Unit::Count),
        };
        assert!(name.starts_with("clinch_") && fits, "{name}");
        assert!(manual.contains(&format!("| `{name}` |")), "{name} is not in docs/operations.md");
    }
}

/// A recorder may come after the manager.
#[tokio::test]
async fn a_recorder_that_is_installed_late_is_found() {
    let locks = LockManager::memory();
    locks.lock("a", Duration::from_secs(1)).await.unwrap().release().await.unwrap();
    let ledger = Ledger::new();
    locks.lock("a", Duration::from_secs(1)).await.unwrap().release().await.unwrap();
    assert_eq!(ledger.sum(t::ATTEMPTS, &[("outcome", "acquired")]), 1.0);
    assert_eq!(ledger.sum(t::ENGINE_CALLS, &[]), 2.0);
}
