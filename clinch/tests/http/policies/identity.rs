//! Who is who: two submissions of one user are the same, those of two users are not.

use std::net::{IpAddr, Ipv4Addr};

use axum::Router;
use axum::extract::Request as Asked;
use axum::middleware::{Next, from_fn};
use axum::response::Response;
use bytes::Bytes;
use clinch::http::{ClientAddress, IdentityChain, TrustedProxies, VerifiedUser, Web};
use clinch::submit::{DuplicatePolicy, Guards};
use http::{HeaderName, HeaderValue, Request};
use http_body_util::Full;
use serde_json::{Value, json};

use crate::common::{LONG, engines, post};
use crate::stage::{Bench, DONE, route};

/// Only users count.
fn policy() -> DuplicatePolicy {
    DuplicatePolicy::new().interval(2 * LONG).include_params(false)
}

/// A request with these headers.
fn order(query: &str, body: &Value, headers: &[(&'static str, &'static str)]) -> Request<Full<Bytes>> {
    let mut request = post(&format!("/orders{query}"), body);
    for (name, value) in headers {
        request.headers_mut().append(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    request
}

fn with(headers: &[(&'static str, &'static str)]) -> Request<Full<Bytes>> {
    order("", &json!({}), headers)
}

/// Two requests, and whether one user sent them.
type Case = (Request<Full<Bytes>>, Request<Full<Bytes>>, bool);

async fn check(engine: &str, bench: &Bench, cases: Vec<Case>) {
    for (first, second, same) in cases {
        let shown = format!("{engine}: {first:?} and {second:?}");
        assert_eq!(bench.are_same(first, second).await, same, "{shown}");
    }
}

/// Users are told apart by their token, or else by what they say they are, or else by their session.
///
/// Proves: D3
#[tokio::test]
async fn users_are_told_apart_by_token_parameter_and_session() {
    for (engine, web, _server) in engines().await {
        let bench = Bench::duplicate("/orders", &web, policy()).await;
        let (alice, bob) = (("authorization", "Bearer alice"), ("authorization", "Bearer bob"));
        let (session, other) = (("cookie", "theme=dark; JSESSIONID=one"), ("cookie", "JSESSIONID=two"));
        let query = |query| order(query, &json!({}), &[]);
        let body = |body: Value| order("", &body, &[]);
        let cases = vec![
            (with(&[alice]), with(&[alice]), true),
            (with(&[alice]), with(&[("authorization", "bearer   alice")]), true),
            (with(&[alice]), with(&[bob]), false),
            (with(&[alice]), with(&[]), false),
            (query("?userId=1"), query("?x=y&userId=1"), true),
            (query("?userId=1"), query("?userId=2"), false),
            (query("?userId=1"), body(json!({"userId": 1, "item": 7})), true),
            (body(json!({"userId": "1"})), body(json!({"userId": 1})), true),
            (body(json!({"userId": "1"})), body(json!({"userId": "2"})), false),
            (body(json!({"userId": "1"})), body(json!({"user": {"userId": "1"}})), false),
            (with(&[session]), with(&[("cookie", "JSESSIONID=one; theme=light")]), true),
            (with(&[session]), with(&[other]), false),
            (with(&[session]), with(&[("cookie", "theme=dark")]), false),
            // Of several, the first that is known decides.
            (order("?userId=1", &json!({}), &[alice]), order("?userId=2", &json!({}), &[alice]), true),
            (order("?userId=1", &json!({}), &[alice]), order("?userId=1", &json!({}), &[bob]), false),
            (order("?userId=1", &json!({}), &[session]), order("?userId=1", &json!({}), &[other]), true),
            (order("?userId=1", &json!({}), &[session]), order("?userId=2", &json!({}), &[session]), false),
            // The same word in another place is somebody else.
            (query("?userId=one"), with(&[("cookie", "session=one")]), false),
            (query("?userId=alice"), with(&[("authorization", "alice")]), false),
        ];
        check(engine, &bench, cases).await;
    }
}

/// Who says nothing is told apart by his address: that of the connection, or the one that a trusted proxy names.
///
/// Proves: D3
#[tokio::test]
async fn who_says_nothing_is_told_apart_by_address() {
    for (engine, web, _server) in engines().await {
        let bench = Bench::duplicate("/orders", &web, policy()).await;
        let forwarded = |header: &'static str| with(&[("x-forwarded-for", header)]);
        // Anybody can write this.
        let cases = vec![
            (with(&[]), with(&[]), true),
            (with(&[]), forwarded("192.0.2.1"), true),
            (forwarded("192.0.2.1"), forwarded("192.0.2.2"), true),
        ];
        check(engine, &bench, cases).await;
        if cfg!(target_os = "linux") {
            let from = |last| Some(IpAddr::V4(Ipv4Addr::new(127, 0, 0, last)));
            let first = bench.submit_from(from(2), with(&[])).await.running();
            let other = bench.submit_from(from(3), with(&[])).await.running();
            assert_eq!(bench.submit_from(from(2), with(&[])).await.refused().status, 429, "{engine}");
            for running in [first, other] {
                assert_eq!(running.finish(DONE).await.status, 200, "{engine}");
            }
        }

        let proxies = TrustedProxies::parse(["127.0.0.0/8"]).unwrap();
        let chain = IdentityChain::new().then(ClientAddress::behind(proxies));
        let web = Web::new(Guards::new(web.guards().locks().clone())).with_identity(chain);
        let bench = Bench::duplicate("/orders", &web, policy()).await;
        let cases = vec![
            (forwarded("192.0.2.1"), forwarded("192.0.2.2"), false),
            (forwarded("192.0.2.1"), forwarded("192.0.2.1, 127.0.0.9"), true),
            // What the client itself wrote further left does not count.
            (forwarded("198.51.100.7, 192.0.2.1"), forwarded("203.0.113.9, 192.0.2.1"), true),
            (forwarded("198.51.100.7, 192.0.2.1"), forwarded("198.51.100.7, 192.0.2.2"), false),
        ];
        check(engine, &bench, cases).await;
    }
}

/// A user whom the application has verified is that user, whatever else the request says; and who only says so is not.
///
/// Proves: D3
#[tokio::test]
async fn a_verified_user_comes_before_everything_that_a_request_says() {
    async fn verify(mut request: Asked, next: Next) -> Response {
        if let Some(user) = request.headers().get("x-verified") {
            let user = VerifiedUser(user.to_str().unwrap().to_owned());
            request.extensions_mut().insert(user);
        }
        next.run(request).await
    }
    for (engine, web, _server) in engines().await {
        let guard = web.duplicate(policy()).unwrap();
        let bench = Bench::start(|work| {
            Router::new().route_service("/orders", route(work, &guard)).layer(from_fn(verify))
        })
        .await;
        let (one, two) = (("x-verified", "1"), ("x-verified", "2"));
        let claims = [("authorization", "Bearer alice"), ("cookie", "session=one")];
        let claiming = |query, user| order(query, &json!({}), &[user, claims[0], claims[1]]);
        let cases = vec![
            (with(&[one]), with(&[one]), true),
            (with(&[one]), with(&[two]), false),
            (claiming("?userId=3", one), with(&[one]), true),
            (claiming("?userId=3", one), claiming("?userId=3", two), false),
            // Nobody is user 1 by saying so.
            (with(&[one]), order("?userId=1", &json!({}), &[]), false),
            (with(&[one]), with(&[("authorization", "1")]), false),
            // An empty id is none.
            (with(&[("x-verified", ""), claims[0]]), with(&[claims[0]]), true),
        ];
        check(engine, &bench, cases).await;
    }
}
