//! How guards refuse: with which status, in which words, in which form.

use std::collections::BTreeMap;

use axum::Router;
use axum::routing::post as on_post;
use bytes::Bytes;
use clinch::LockManager;
use clinch::http::{Held, Refusal, RefusalKind, Statuses, Web};
use clinch::submit::{DuplicatePolicy, Guards, IdempotencyPolicy, Limits, LockPolicy, Settings};
use clinch_testkit::server::RedisServer;
use http::{HeaderValue, Request, Response};
use http_body_util::Full;
use serde_json::{Value, json};

use crate::common::{Answer, Service, engines, post_as};
use crate::stage::{Bench, DONE, KINDS, Kind, same_orders};

/// The answer to the second one while the first one runs.
async fn refused(bench: &Bench) -> Answer {
    let order = same_orders();
    let first = bench.submit(order()).await.running();
    let refused = bench.submit(order()).await.refused();
    assert_eq!(first.finish(DONE).await.status, 200);
    refused
}

/// Every guard can have a status of its own for those whom it refuses, which counts before the service's; neither speaks of
/// an engine that fails.
///
/// Proves: B8
#[tokio::test]
async fn each_guard_can_have_a_status_of_its_own() {
    for (engine, web, server) in engines().await {
        let statuses = Statuses::new().duplicate(460).lock(461).limit(462).idempotency_in_flight(463);
        let by_service = web.clone().with_statuses(statuses).unwrap();
        for (of_service, (kind, usual)) in (460..).zip(KINDS) {
            for (web, extra, status) in [
                (&web, json!({}), usual),
                (&by_service, json!({}), of_service),
                (&web, json!({"status": 418}), 418),
                (&by_service, json!({"status": 418}), 418),
            ] {
                let answer = refused(&kind.bench(web, &extra).await).await;
                assert_eq!(answer.status, status, "{engine} {kind:?}");
                assert_eq!(answer.json()["status"], status, "{engine} {kind:?}");
                assert!(answer.header("retry-after").is_some(), "{engine} {kind:?}");
            }
        }
        if let Some(server) = &server {
            server.kill();
            for (kind, _) in KINDS {
                let bench = kind.bench(&by_service, &json!({"status": 418})).await;
                assert_eq!(bench.submit(same_orders()()).await.refused().status, 503, "{kind:?}");
            }
        }
    }
}

fn with_key(body: &Value, key: &str) -> Request<Full<Bytes>> {
    let mut request = post_as("alice", "/orders", body);
    request.headers_mut().insert("idempotency-key", HeaderValue::from_str(key).unwrap());
    request
}

/// Causes a refusal of every kind, and returns the answers by their types.
async fn all_refusals(web: &Web, server: &RedisServer) -> BTreeMap<String, Answer> {
    let mut answers = Vec::new();
    for (kind, _) in KINDS {
        answers.push(refused(&kind.bench(web, &json!({})).await).await);
    }
    let idempotency = |policy: IdempotencyPolicy| {
        let layer = web.idempotency(policy).unwrap();
        async move { Bench::with("/orders", &layer).await }
    };
    let bench = idempotency(IdempotencyPolicy::new().required(true)).await;
    answers.push(bench.submit(post_as("alice", "/orders", &json!({}))).await.refused());
    answers.push(bench.submit(with_key(&json!({}), "k")).await.refused());
    assert_eq!(bench.run(with_key(&json!({}), r#""reused""#)).await.status, 200);
    answers.push(bench.submit(with_key(&json!({"other": 1}), r#""reused""#)).await.refused());
    let bench = idempotency(IdempotencyPolicy::new().max_response_bytes(1)).await;
    assert_eq!(bench.run(with_key(&json!({}), r#""large""#)).await.status, 200);
    answers.push(bench.submit(with_key(&json!({}), r#""large""#)).await.refused());
    let bench = Bench::with("/orders", &web.lock(LockPolicy::new("order:{id}")).unwrap()).await;
    answers.push(bench.submit(same_orders()()).await.refused());
    let bench = Bench::duplicate("/orders", web, DuplicatePolicy::new()).await;
    let large = post_as("alice", "/orders", &json!({"text": "x".repeat(200)}));
    answers.push(bench.submit(large).await.refused());
    // A handler that asks for a lease which nobody took for it is set up wrongly.
    let handler = async |_: Held| "not reached";
    let service = Service::start(Router::new().route("/orders", on_post(handler)).layer(web.layer())).await;
    answers.push(service.send(same_orders()()).await);
    server.kill();
    let bench = Kind::Lock.bench(web, &json!({})).await;
    answers.push(bench.submit(same_orders()()).await.refused());

    let kind = |answer: &Answer| answer.headers.get("x-kind").map(|kind| kind.to_str().unwrap().to_owned());
    let named = answers.into_iter().map(|answer| {
        let kind = kind(&answer).unwrap_or_else(|| answer.json()["type"].as_str().unwrap().to_owned());
        (kind.trim_start_matches("urn:clinch:problem:").to_owned(), answer)
    });
    named.collect()
}

/// All kinds, by what they are called in the settings and in the type of the problem, with their usual statuses.
const ALL: [(&str, &str, u16); 12] = [
    ("duplicate", "duplicate-submit", 429),
    ("lock", "locked", 409),
    ("limit", "limit-reached", 503),
    ("engine", "unavailable", 503),
    ("too_large", "too-large", 413),
    ("idempotency_key_missing", "idempotency-key-missing", 400),
    ("idempotency_key_malformed", "idempotency-key-malformed", 400),
    ("idempotency_key_reused", "idempotency-key-reused", 422),
    ("idempotency_in_flight", "idempotency-in-flight", 409),
    ("response_not_stored", "response-not-stored", 409),
    ("bad_request", "bad-request", 400),
    ("internal", "internal-error", 500),
];

async fn web_on(server: &RedisServer) -> Web {
    let guards = Guards::new(LockManager::connect(&server.url()).await.unwrap());
    let limits = Limits::new().body_bytes(100);
    Web::new(guards.with_settings(Settings::new().limits(limits)).unwrap())
}

/// Every refusal that there is has the status that the service gives it; all are problem details.
///
/// Proves: B8
#[tokio::test]
async fn the_service_can_give_every_refusal_its_status() {
    let others: serde_json::Map<String, Value> =
        (560..).zip(ALL).map(|(status, (field, ..))| (field.to_owned(), json!(status))).collect();
    let others: Statuses = serde_json::from_value(others.into()).unwrap();
    for statuses in [None, Some(others)] {
        let server = RedisServer::start();
        let web = web_on(&server).await;
        let web = match &statuses {
            Some(statuses) => web.with_statuses(statuses.clone()).unwrap(),
            None => web,
        };
        let answers = all_refusals(&web, &server).await;
        for (other, (field, kind, usual)) in (560..).zip(ALL) {
            let answer = answers.get(kind).unwrap_or_else(|| panic!("no {kind} in {answers:?}"));
            let status = if statuses.is_some() { other } else { usual };
            assert_eq!(answer.status, status, "{field}: {answer:?}");
            assert_eq!(answer.json()["status"], status, "{field}");
            assert_eq!(answer.header("content-type"), Some("application/problem+json"), "{field}");
            assert_eq!(answer.header("cache-control"), Some("no-store"), "{field}");
        }
        assert_eq!(answers.len(), ALL.len());
    }
    assert!(web_on(&RedisServer::start()).await.with_statuses(Statuses::new().engine(200)).is_err());
}

/// A closure can write the whole response to every refusal: status, headers and body.
///
/// Proves: B8
#[tokio::test]
async fn a_closure_can_write_the_whole_response() {
    let server = RedisServer::start();
    let web = web_on(&server).await.with_refusals(|refusal: &Refusal| {
        let text = format!("<p>{:?}: {}</p>", refusal.kind, refusal.retry_after.is_some());
        let kind = refusal.kind.problem_type();
        Response::builder()
            .status(if refusal.kind == RefusalKind::Engine { 504 } else { 299 })
            .header("content-type", "text/html")
            .header("x-kind", kind)
            .body(text.into())
            .unwrap()
    });
    let answers = all_refusals(&web, &server).await;
    assert_eq!(answers.len(), ALL.len());
    for (kind, answer) in answers {
        assert_eq!(answer.status, if kind == "unavailable" { 504 } else { 299 }, "{kind}");
        assert_eq!(answer.header("content-type"), Some("text/html"), "{kind}");
        assert_eq!(answer.header("retry-after"), None, "{kind}");
        assert!(answer.text().starts_with("<p>") && answer.text().ends_with("</p>"), "{kind}: {answer:?}");
        if kind == "duplicate-submit" {
            assert_eq!(answer.text(), "<p>Duplicate: true</p>");
        }
    }
}

/// Messages are for people, in their own language: they arrive as they were written.
///
/// Proves: D1, D6
#[tokio::test]
async fn messages_in_any_language_arrive_as_they_were_written() {
    for (engine, web, _server) in engines().await {
        for (kind, status) in KINDS {
            for message in
                ["请勿重复提交", "بطاقتك قيد المعالجة", "wait 🙏🏽 a moment ✋", "\"a\"\n\t\\ <b>\u{2028}", ""]
            {
                let answer = refused(&kind.bench(&web, &json!({"message": message})).await).await;
                assert_eq!(answer.status, status, "{engine} {kind:?}");
                assert_eq!(answer.json()["message"], message, "{engine} {kind:?}");
            }
            // Without one there is a plain English one.
            let plain = refused(&kind.bench(&web, &json!({})).await).await;
            let told = plain.json()["message"].as_str().unwrap().to_owned();
            assert!(told.is_ascii() && told.len() > 20, "{engine} {kind:?}: {told}");
        }
    }
}

/// Who sends what a guard cannot look at is refused, but is no duplicate, and is in nobody's way: such requests must not look
/// like a flood of duplicates.
#[tokio::test]
async fn a_bad_request_is_not_counted_as_a_duplicate() {
    for (engine, web, _server) in engines().await {
        let settings = Settings::new().limits(Limits::new().body_bytes(100));
        let web = Web::new(web.guards().clone().with_settings(settings).unwrap());
        let duplicate = Bench::duplicate("/orders", &web, DuplicatePolicy::new()).await;
        let locked = Bench::with("/orders", &web.lock(LockPolicy::new("order:{id}")).unwrap()).await;
        let large = json!({"text": "x".repeat(200)});
        for (bench, request, status) in [
            (&duplicate, post_as("alice", "/orders", &large), 413),
            (&locked, post_as("alice", "/orders", &json!({})), 400),
        ] {
            assert_eq!(bench.submit(request).await.refused().status, status, "{engine}");
        }
        let counts = web.guards().statistics();
        let refused = counts.duplicates + counts.denied_by_lock + counts.denied_by_limit;
        assert_eq!((refused, counts.engine_failures, counts.admitted), (0, 0, 0), "{engine}: {counts:?}");
    }
}
