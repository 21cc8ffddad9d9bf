//! Handlers under a lock or a limit, and what they see of it.

use std::convert::Infallible;
use std::time::Duration;

use axum::Router;
use axum::routing::{get, post as on_post};
use clinch::Fence;
use clinch::http::Held;
use clinch::submit::{LimitPolicy, LockPolicy};
use serde_json::json;
use tokio::time::{sleep, timeout};

use crate::common::{LONG, Service, engines, post, post_as};
use crate::stage::{Bench, DONE, End, POLL, holders};

/// Who does not get the lock is told 409, and when to try again; another key is not in the way, and every end frees it.
///
/// Proves: L10
#[tokio::test]
async fn under_a_lock_the_second_one_is_told_409() {
    for (engine, web, _server) in engines().await {
        let policy = LockPolicy::new("order:{id}").ttl(2 * LONG);
        let bench = Bench::with("/orders/{id}/pay", &web.lock(policy).unwrap()).await;
        let pay = |id: u32, user| post_as(user, &format!("/orders/{id}/pay"), &json!({"by": user}));
        for end in [DONE, End::Status(500), End::Error, End::Panic] {
            let shown = format!("{engine} {end:?}");
            let first = bench.submit(pay(1, "alice")).await.running();
            let refused = bench.submit(pay(1, "bob")).await.refused();
            let told = refused.json();
            assert_eq!(refused.status, 409, "{shown}");
            assert_eq!(refused.header("content-type"), Some("application/problem+json"), "{shown}");
            assert_eq!(told["type"], "urn:clinch:problem:locked", "{shown}");
            assert!((1_000..=60_000).contains(&told["remainingTime"].as_u64().unwrap()), "{shown}: {told}");
            assert_eq!(refused.header("retry-after"), Some(&*told["retryAfter"].to_string()), "{shown}");
            let whole = format!("{:?} {told}", refused.headers);
            assert!(!whole.contains("alice") && !whole.contains("order:1"), "{shown}: {whole}");
            let other = bench.submit(pay(2, "bob")).await.running();
            let keys = holders(web.guards().locks()).await;
            let mut keys: Vec<String> = keys.iter().map(|holder| holder.on().to_string()).collect();
            keys.sort();
            assert_eq!(keys, ["lock:order:1", "lock:order:2"], "{shown}");
            for running in [first, other] {
                drop(running.end_by(end).await);
            }
            assert_eq!(bench.run(pay(1, "bob")).await.status, 200, "{shown}");
        }
        let counts = web.guards().statistics();
        assert_eq!((counts.requests, counts.admitted, counts.denied_by_lock), (16, 12, 4), "{engine}");
    }
}

/// With a wait, the second one comes in when the first one is out, or is told 409 when its time is over.
///
/// Proves: L1, L10
#[tokio::test]
async fn with_a_wait_the_second_one_comes_after_the_first() {
    for (engine, web, _server) in engines().await {
        let policy = LockPolicy::new("k").ttl(2 * LONG);
        let patient = Bench::with("/", &web.lock(policy.clone().wait(LONG)).unwrap()).await;
        let hasty = Bench::with("/", &web.lock(policy.wait(Duration::from_secs(1))).unwrap()).await;
        let first = patient.submit(post("/", &json!({}))).await.running();
        let second = tokio::spawn({
            let patient = patient.clone();
            async move { patient.submit(post("/", &json!({}))).await }
        });
        let came = async {
            while web.guards().statistics().requests < 2 {
                sleep(POLL).await;
            }
        };
        timeout(LONG, came).await.unwrap();
        assert_eq!(hasty.submit(post("/", &json!({}))).await.refused().status, 409, "{engine}");
        assert_eq!((second.is_finished(), patient.ran()), (false, 1), "{engine}");
        assert_eq!(first.finish(DONE).await.status, 200, "{engine}");
        let second = timeout(LONG, second).await.unwrap().unwrap().running();
        assert_eq!(hasty.submit(post("/", &json!({}))).await.refused().status, 409, "{engine}");
        assert_eq!(second.finish(DONE).await.status, 200, "{engine}");
        assert_eq!(hasty.run(post("/", &json!({}))).await.status, 200, "{engine}");
    }
}

/// At most as many as the limit says run at a time; who is one too many is told 503, and every end makes room.
///
/// Proves: T4
#[tokio::test]
async fn under_a_limit_one_too_many_is_told_503() {
    for (engine, web, _server) in engines().await {
        let policy = LimitPolicy::new("export:{kind}", 2).ttl(2 * LONG);
        let bench = Bench::with("/export/{kind}", &web.limit(policy).unwrap()).await;
        let export = |kind: &str| post(&format!("/export/{kind}"), &json!({}));
        for end in [DONE, End::Status(500), End::Error, End::Panic] {
            let shown = format!("{engine} {end:?}");
            let first = bench.submit(export("a")).await.running();
            let second = bench.submit(export("a")).await.running();
            let refused = bench.submit(export("a")).await.refused();
            assert_eq!(refused.status, 503, "{shown}");
            assert_eq!(refused.json()["type"], "urn:clinch:problem:limit-reached", "{shown}");
            let other = bench.submit(export("b")).await.running();
            drop(first.end_by(end).await);
            let third = bench.submit(export("a")).await.running();
            assert_eq!(bench.submit(export("a")).await.refused().status, 503, "{shown}");
            for running in [second, third, other] {
                assert_eq!(running.finish(DONE).await.status, 200, "{shown}");
            }
        }
        let counts = web.guards().statistics();
        assert_eq!((counts.requests, counts.admitted, counts.denied_by_limit), (24, 16, 8), "{engine}");
    }
}

/// The handler sees the lease that was taken for it: its key, and a fence that rises where one was asked for.
///
/// Proves: B2
#[tokio::test]
async fn the_handler_sees_its_lease_and_its_fence() {
    async fn strict(Held(lease): Held) -> String {
        format!("{} {:?} {}", lease.key(), lease.fence().map(Fence::get), lease.is_valid())
    }
    async fn lenient(held: Option<Held>) -> &'static str {
        if held.is_some() { "held" } else { "not held" }
    }
    for (engine, web, _server) in engines().await {
        let lock = LockPolicy::new("order:{id}").ttl(LONG);
        let plain = web.lock(lock.clone()).unwrap();
        let fenced = web.lock(lock.clone().fenced(true)).unwrap();
        let off = || web.lock(lock.clone().enabled(false)).unwrap();
        let outer = web.limit(LimitPolicy::new("all", 1)).unwrap();
        let app = Router::new()
            .route("/plain/{id}", on_post(strict).layer(plain))
            .route("/fenced/{id}", on_post(strict).layer(fenced.clone()))
            .route("/both/{id}", on_post(strict).layer::<_, Infallible>(fenced).layer(outer))
            .route("/off/{id}", on_post(lenient).layer(off()))
            .route("/needed/{id}", on_post(strict).layer(off()))
            .route("/none", get(lenient));
        let service = Service::start(app).await;
        let said = async |path: &str| service.send(post(path, &json!({}))).await;
        assert_eq!(said("/plain/1").await.text(), "order:1 None true", "{engine}");
        let mut last = 0;
        // Of two layers it is the inner one's.
        for path in ["/fenced/1", "/both/1", "/fenced/1", "/fenced/1"] {
            let answer = said(path).await;
            let fence =
                answer.text().strip_prefix("order:1 Some(").and_then(|rest| rest.strip_suffix(") true"));
            let fence: u64 = fence.unwrap_or_else(|| panic!("{engine}: {answer:?}")).parse().unwrap();
            assert!(fence > last, "{engine}: {fence} after {last}");
            last = fence;
        }
        assert_eq!(said("/off/1").await.text(), "not held", "{engine}");
        assert_eq!(said("/needed/1").await.status, 500, "{engine}");
        let safe = http::Request::get("/none").body(Default::default()).unwrap();
        assert_eq!(service.send(safe).await.text(), "not held", "{engine}");
    }
}

/// A key is filled in from the path and the query; what is missing is the client's mistake, and it is told which.
///
/// Proves: L10
#[tokio::test]
async fn a_key_is_filled_in_from_path_and_query() {
    for (engine, web, _server) in engines().await {
        let layer = web.lock(LockPolicy::new("{shop}:{item}:{shop}").ttl(LONG)).unwrap();
        let bench = Bench::with("/shops/{shop}/buy", &layer).await;
        let mut running = Vec::new();
        for (path, key) in [
            ("/shops/1/buy?item=2", "1:2:1"),
            ("/shops/1/buy?x=y&x=z&item=3", "1:3:1"),
            ("/shops/2/buy?shop=9&item=a+b", "2:a%20b:2"),
            ("/shops/a%3Ab/buy?item=%C3%A9", "a%3Ab:é:a%3Ab"),
        ] {
            let running_now = bench.submit(post(path, &json!({"item": "body"}))).await.running();
            let keys = holders(web.guards().locks()).await;
            let keys: Vec<String> = keys.iter().map(|holder| holder.on().key.to_string()).collect();
            assert!(keys.iter().any(|held| held == key), "{engine}: {key} in {keys:?}");
            running.push(running_now);
        }
        assert_eq!(bench.submit(post("/shops/1/buy?item=2", &json!({}))).await.refused().status, 409);
        // A body is not looked at for that, and of two nobody knows which one the handler takes.
        for missing in ["/shops/1/buy", "/shops/1/buy?items=2", "/shops/1/buy?item=3&item=4"] {
            let answer = bench.submit(post(missing, &json!({"item": 2}))).await.refused();
            assert_eq!(answer.status, 400, "{engine}");
            let told = answer.json();
            assert_eq!(told["type"], "urn:clinch:problem:bad-request", "{engine}");
            assert!(told["detail"].as_str().unwrap().contains("`item`"), "{engine}: {told}");
        }
        for running in running {
            assert_eq!(running.finish(DONE).await.status, 200, "{engine}");
        }
    }
}
