//! What makes two submissions the same.

use axum::Router;
use axum::extract::RawForm;
use axum::routing::post as on_post;
use bytes::Bytes;
use clinch::lease::Space;
use clinch::submit::DuplicatePolicy;
use http::{Method, Request};
use http_body_util::Full;
use serde_json::{Value, json};

use crate::common::{LONG, Service, engines, post_as};
use crate::stage::{Bench, DONE, holders, route};

fn policy() -> DuplicatePolicy {
    DuplicatePolicy::new().interval(2 * LONG)
}

/// A form of a user, as browsers send it.
fn form_as(user: &str, path: &str, form: &'static str) -> Request<Full<Bytes>> {
    Request::builder()
        .method(Method::POST)
        .uri(path)
        .header("authorization", format!("Bearer {user}"))
        .header("content-type", "application/x-www-form-urlencoded")
        .body(Full::new(form.into()))
        .unwrap()
}

/// A parameter that is excluded counts as if it were not there, wherever it was sent.
///
/// Proves: D1, D4
#[tokio::test]
async fn an_excluded_parameter_does_not_count() {
    for (engine, web, _server) in engines().await {
        let excluding = policy().exclude_params(["timestamp", "client.sent_at"]);
        let bench = Bench::duplicate("/orders", &web, excluding).await;
        let json = |body: Value| post_as("alice", "/orders", &body);
        let query = |query: &str| post_as("alice", &format!("/orders?{query}"), &json!({}));
        let form = |form| form_as("alice", "/orders", form);
        for (first, second, same) in [
            (json(json!({"item": 7, "timestamp": 1})), json(json!({"timestamp": 2, "item": 7})), true),
            (json(json!({"item": 7, "timestamp": 1})), json(json!({"item": 7})), true),
            (json(json!({"client": {"sent_at": 1, "id": 1}})), json(json!({"client": {"id": 1}})), true),
            (query("item=7&timestamp=1"), query("timestamp=2&item=7"), true),
            (form("item=7&timestamp=1"), form("item=7&timestamp=2"), true),
            // What is not named as it stands still counts.
            (json(json!({"item": 7, "timestamp": 1})), json(json!({"item": 8, "timestamp": 1})), false),
            (json(json!({"client": {"sent_at": 1}})), json(json!({"order": {"sent_at": 1}})), false),
            (query("item=7&timestamp=1"), query("item=8&timestamp=1"), false),
            (form("item=7&timestamp=1"), form("item=7&time=1"), false),
        ] {
            let shown = format!("{engine}: {} {first:?} {second:?}", first.uri());
            assert_eq!(bench.are_same(first, second).await, same, "{shown}");
        }
    }
}

/// Without anything excluded, every difference makes another submission, and the order of names makes none.
///
/// Proves: D2, D4
#[tokio::test]
async fn all_other_parameters_count() {
    for (engine, web, _server) in engines().await {
        let bench = Bench::duplicate("/orders", &web, policy()).await;
        let json = |body: Value| post_as("alice", "/orders", &body);
        let raw = |body: &'static str| {
            let mut request = json(json!({}));
            *request.body_mut() = Full::new(body.into());
            request
        };
        for (first, second, same) in [
            (json(json!({"item": 7, "n": 1})), raw(r#"{ "n": 1, "item": 7 }"#), true),
            (json(json!({"item": 7})), json(json!({"item": 8})), false),
            (json(json!({"item": 7, "timestamp": 1})), json(json!({"item": 7, "timestamp": 2})), false),
            (json(json!({"items": [1, 2]})), json(json!({"items": [2, 1]})), false),
            (raw(r#"{"n":9007199254740992}"#), raw(r#"{"n":9007199254740993}"#), false),
            (raw(""), json(json!({})), false),
        ] {
            let shown = format!("{engine}: {first:?} {second:?}");
            assert_eq!(bench.are_same(first, second).await, same, "{shown}");
        }
    }
}

/// Parameters of the path, of the query and of a form are parameters like those in JSON.
///
/// Proves: D4
#[tokio::test]
async fn parameters_of_path_query_and_form_count() {
    for (engine, web, _server) in engines().await {
        let bench = Bench::duplicate("/shops/{shop}/orders", &web, policy()).await;
        let path = |path: &str| post_as("alice", path, &json!({}));
        let form = |form| form_as("alice", "/shops/1/orders", form);
        for (first, second, same) in [
            (path("/shops/1/orders"), path("/shops/1/orders"), true),
            (path("/shops/1/orders"), path("/shops/2/orders"), false),
            (path("/shops/%C3%A9/orders"), path("/shops/%c3%a9/orders"), true),
            (path("/shops/1/orders?a=1&b=2"), path("/shops/1/orders?b=2&a=1"), true),
            (path("/shops/1/orders?a=1"), path("/shops/1/orders?a=2"), false),
            (path("/shops/1/orders?a=1&a=2"), path("/shops/1/orders?a=2&a=1"), false),
            (path("/shops/1/orders?a=1"), path("/shops/1/orders"), false),
            (form("item=7&name=J%C3%BCrgen+K"), form("name=J%c3%bcrgen%20K&item=7"), true),
            (form("item=7"), form("item=8"), false),
            (form("item=7"), form("item=7&item=7"), false),
            // The same name elsewhere is another parameter.
            (path("/shops/1/orders?item=7"), form("item=7"), false),
        ] {
            let shown = format!("{engine}: {} {first:?} {second:?}", first.uri());
            assert_eq!(bench.are_same(first, second).await, same, "{shown}");
        }
    }
}

/// The guard reads the body, and so does the handler: the same bytes.
///
/// Proves: D4
#[tokio::test]
async fn the_handler_still_reads_what_the_guard_has_read() {
    for (engine, web, _server) in engines().await {
        let echo = async |RawForm(form): RawForm| form;
        let app = Router::new().route("/orders", on_post(echo).layer(web.duplicate(policy()).unwrap()));
        let service = Service::start(app).await;
        for form in ["item=7&name=J%C3%BCrgen+K", "", "%ff=%fe&&=&a"] {
            let answer = service.send(form_as("alice", "/orders", form)).await;
            assert_eq!((answer.status.as_u16(), &*answer.body), (200, form.as_bytes()), "{engine}");
        }
    }
}

/// With neither users nor parameters it is one gate for everybody, on this route and no other.
///
/// Proves: D2
#[tokio::test]
async fn without_users_and_parameters_it_is_one_gate_for_everybody() {
    for (engine, web, server) in engines().await {
        let gate = web.duplicate(policy().include_user(false).include_params(false)).unwrap();
        let bench = Bench::start(|work| {
            Router::new()
                .route_service("/close", route(work.clone(), &gate))
                .route_service("/open/{id}", route(work, &gate))
        })
        .await;
        let first = bench.submit(post_as("alice", "/close?a=1", &json!({"item": 7}))).await.running();
        for other in [
            post_as("bob", "/close?a=2", &json!({"item": 8})),
            post_as("alice", "/close", &json!(null)),
            form_as("carol", "/close", "x=y"),
        ] {
            assert_eq!(bench.submit(other).await.refused().status, 429, "{engine}");
        }
        if let Some(server) = &server {
            assert_eq!(server.keys("*"), ["clinch:dup:POST%20/close:*:*"]);
        }
        let elsewhere = bench.submit(post_as("alice", "/open/1", &json!({}))).await.running();
        assert_eq!(bench.submit(post_as("bob", "/open/2", &json!({}))).await.refused().status, 429);
        for running in [first, elsewhere] {
            assert_eq!(running.finish(DONE).await.status, 200, "{engine}");
        }
    }
}

/// Where users do not count, two of them with the same parameters are the same, and other parameters are not.
///
/// Proves: D2
#[tokio::test]
async fn without_users_parameters_still_count() {
    for (engine, web, _server) in engines().await {
        let bench = Bench::duplicate("/coupons", &web, policy().include_user(false)).await;
        let coupon = |user, code: &str| post_as(user, "/coupons", &json!({"code": code}));
        assert!(bench.are_same(coupon("alice", "A"), coupon("bob", "A")).await, "{engine}");
        assert!(!bench.are_same(coupon("alice", "A"), coupon("bob", "B")).await, "{engine}");
        assert!(!bench.are_same(coupon("alice", "A"), coupon("alice", "B")).await, "{engine}");

        let bench = Bench::duplicate("/coupons", &web, policy().include_params(false)).await;
        assert!(bench.are_same(coupon("alice", "A"), coupon("alice", "B")).await, "{engine}");
        assert!(!bench.are_same(coupon("alice", "A"), coupon("bob", "A")).await, "{engine}");
    }
}

/// A key names prefix, verb and route, as the router has it, and shows neither user nor parameters.
///
/// Proves: D1, D2, D3
#[tokio::test]
async fn a_key_names_the_route_and_not_the_path() {
    for (engine, web, server) in engines().await {
        let guard = web.duplicate(policy().key_prefix("shop")).unwrap();
        let bench = Bench::start(|work| {
            let orders = Router::new().route_service("/orders/{id}", route(work, &guard));
            Router::new().nest("/api/{version}", orders)
        })
        .await;
        let order = |verb: Method, path: &str| {
            let mut request = post_as("s3cret", path, &json!({"card": "4711"}));
            *request.method_mut() = verb;
            request
        };
        let mut running = Vec::new();
        // Another verb is another submission, and so is another path.
        for (verb, path) in [
            (Method::POST, "/api/v1/orders/42"),
            (Method::PUT, "/api/v1/orders/42"),
            (Method::POST, "/api/v1/orders/43"),
            (Method::POST, "/api/v2/orders/42"),
        ] {
            running.push(bench.submit(order(verb, path)).await.running());
        }
        let held = holders(web.guards().locks()).await;
        let mut keys: Vec<String> = held.iter().map(|holder| holder.on().key.to_string()).collect();
        keys.sort();
        assert!(held.iter().all(|holder| holder.on().space == Space::Duplicate), "{engine}: {held:?}");
        let starts = ["POST", "POST", "POST", "PUT"]
            .map(|verb| format!("shop:{verb}%20/api/%7Bversion%7D/orders/%7Bid%7D:"));
        assert_eq!(keys.len(), 4, "{engine}: {keys:?}");
        for (key, start) in keys.iter().zip(starts) {
            let rest = key.strip_prefix(&start).unwrap_or_else(|| panic!("{engine}: {key}"));
            let hashes: Vec<&str> = rest.split(':').collect();
            let hex = |hash: &&str| hash.len() == 32 && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
            assert!(hashes.len() == 2 && hashes.iter().all(hex), "{engine}: {key}");
        }
        if let Some(server) = &server {
            let with_prefix: Vec<String> = keys.iter().map(|key| format!("clinch:dup:{key}")).collect();
            assert_eq!(server.keys("*"), with_prefix);
        }
        for running in running {
            assert_eq!(running.finish(DONE).await.status, 200, "{engine}");
        }
    }
}
