//! `Idempotency-Key`: what is stored of a response, and what the first client gets of it.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use bytes::Bytes;
use clinch::http::Web;
use clinch::submit::IdempotencyPolicy;
use futures_util::stream;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use serde_json::json;

use crate::common::{Answer, Service, engines};
use crate::keyed::{Work, keyed, kind};

/// A service whose handler counts, and answers with what `answer` makes of the number of its run.
async fn answering<R: IntoResponse>(
    web: &Web,
    policy: IdempotencyPolicy,
    answer: impl Fn(usize) -> R + Clone + Send + Sync + 'static,
) -> (Arc<Service>, Work) {
    let work = Work::open();
    let handler = {
        let work = work.clone();
        move || {
            let (work, answer) = (work.clone(), answer.clone());
            async move { answer(work.run().await).into_response() }
        }
    };
    let app = Router::new().route("/orders", any(handler)).layer(web.idempotency(policy).unwrap());
    (Arc::new(Service::start(app).await), work)
}

fn request() -> Request<Full<Bytes>> {
    keyed("k", "/orders", &json!({"item": 1}))
}

/// All that an answer says, without what belongs to the moment and without the mark of a replay.
fn said(answer: &Answer) -> (StatusCode, HeaderMap, Bytes) {
    let mut headers = answer.headers.clone();
    headers.remove("date");
    headers.remove("idempotency-replayed");
    (answer.status, headers, answer.body.clone())
}

/// Sends the same twice, and says what came; the second one must be the stored first one, with the same status, headers and
/// body to the last byte.
async fn twice(service: &Service, label: &str) -> Answer {
    let (first, second) = (service.send(request()).await, service.send(request()).await);
    assert_eq!(first.header("idempotency-replayed"), None, "{label}");
    assert_eq!(second.header("idempotency-replayed"), Some("true"), "{label}");
    assert_eq!(said(&first), said(&second), "{label}");
    // It is as long as it says, over both versions of the protocol.
    let third = service.send_http2(request()).await;
    assert_eq!((third.status, &third.body), (first.status, &first.body), "{label}");
    if first.status != 204 {
        let length = first.body.len().to_string();
        assert_eq!(second.header("content-length"), Some(length.as_str()), "{label}");
        assert_eq!(third.header("content-length"), Some(length.as_str()), "{label}");
    }
    first
}

/// Bodies of all kinds come back as they were: binary, empty, none at all, up to the very limit, and streamed.
///
/// Proves: B9
#[tokio::test]
async fn bodies_come_back_byte_by_byte() {
    type Made = fn() -> Response;
    let all_bytes = || (0..=u8::MAX).collect::<Vec<_>>().repeat(3);
    let bodies: [(&str, usize, Made); 6] = [
        ("binary", 768, || (0..=u8::MAX).collect::<Vec<_>>().repeat(3).into_response()),
        ("empty", 0, || StatusCode::ACCEPTED.into_response()),
        ("none", 0, || StatusCode::NO_CONTENT.into_response()),
        ("at the limit", 256 * 1024, || vec![7; 256 * 1024].into_response()),
        ("streamed", 4_000, || {
            let pieces = (0..4_u8).map(|n| Ok::<_, Infallible>(Bytes::from(vec![n; 1_000])));
            Body::from_stream(stream::iter(pieces)).into_response()
        }),
        ("streamed to the limit", 256 * 1024, || {
            let pieces = (0..256_u32).map(|_| Ok::<_, Infallible>(Bytes::from(vec![7; 1024])));
            Body::from_stream(stream::iter(pieces)).into_response()
        }),
    ];
    for (engine, web, _server) in engines().await {
        for (name, length, made) in bodies {
            let label = format!("{engine}: {name}");
            let policy = IdempotencyPolicy::new().key_prefix(name);
            let (service, work) = answering(&web, policy, move |_| made()).await;
            let answer = twice(&service, &label).await;
            assert_eq!((answer.body.len(), work.ran()), (length, 1), "{label}");
            if name == "binary" {
                assert_eq!(answer.body, all_bytes(), "{label}");
            }
        }
    }
}

/// All headers are stored, in their order and with all their values, but for those that belong to the first client, to its
/// connection, or to the moment.
///
/// Proves: B9
#[tokio::test]
async fn headers_come_back_but_for_those_of_the_first_client() {
    let kept = [
        ("cache-control", "private, max-age=60"),
        ("vary", "Accept"),
        ("vary", "Accept-Language"),
        ("etag", "\"7\""),
        ("location", "/orders/7"),
        ("link", "</orders/6>; rel=prev"),
        ("x-tag", "a"),
        ("link", "</orders/8>; rel=next"),
        ("x-tag", "b"),
        ("content-type", "text/plain; charset=utf-8"),
        ("x-bytes", "\u{e9}"),
    ];
    let left_out = [
        ("set-cookie", "session=secret"),
        ("set-cookie", "theme=dark"),
        ("date", "Mon, 01 Jan 2024 00:00:00 GMT"),
        ("keep-alive", "timeout=5"),
        ("proxy-authenticate", "Basic"),
        ("connection", "x-hop"),
        ("x-hop", "1"),
    ];
    let values = |answer: &Answer, name: &str| -> Vec<HeaderValue> {
        answer.headers.get_all(name).iter().cloned().collect()
    };
    for (engine, web, _server) in engines().await {
        let (service, work) = answering(&web, IdempotencyPolicy::new(), move |_| {
            let mut response = Response::new(Body::from("done"));
            for (name, value) in kept.iter().chain(&left_out) {
                let value = HeaderValue::from_bytes(value.as_bytes()).unwrap();
                response.headers_mut().append(HeaderName::from_static(name), value);
            }
            response
        })
        .await;
        let (first, second) = (service.send(request()).await, service.send(request()).await);
        assert_eq!(work.ran(), 1, "{engine}");
        assert_eq!(second.header("idempotency-replayed"), Some("true"), "{engine}");
        for (name, _) in kept {
            assert_eq!(values(&second, name), values(&first, name), "{engine}: {name}");
            assert!(!values(&second, name).is_empty(), "{engine}: {name}");
        }
        for (name, value) in left_out {
            assert!(values(&first, name).contains(&HeaderValue::from_static(value)), "{engine}: {name}");
            assert!(!values(&second, name).contains(&HeaderValue::from_static(value)), "{engine}: {name}");
        }
    }
}

/// With a list, only what is on it is stored, and never what must not be.
///
/// Proves: B9
#[tokio::test]
async fn an_allow_list_says_which_headers_are_stored() {
    for (engine, web, _server) in engines().await {
        let policy = IdempotencyPolicy::new().replay_headers(["X-Order", "Set-Cookie", "Content-Type"]);
        let (service, _work) = answering(&web, policy, |run| {
            let headers = [
                ("x-order", "7"),
                ("x-trace", "abc"),
                ("set-cookie", "a=b"),
                ("content-type", "application/json"),
            ];
            (headers, format!("{{\"run\":{run}}}"))
        })
        .await;
        service.send(request()).await;
        let second = service.send(request()).await;
        let mut names: Vec<_> = second.headers.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        let expected = ["content-length", "content-type", "date", "idempotency-replayed", "x-order"];
        assert_eq!(names, expected, "{engine}");
        assert_eq!(second.json(), json!({"run": 1}), "{engine}");
    }
}

/// A response over the limit is delivered whole, announced or not, and its request is not carried out again.
///
/// Proves: B9
#[tokio::test]
async fn what_is_too_large_is_delivered_and_not_carried_out_again() {
    type Made = fn() -> Body;
    let announced = || Body::from(vec![7; 300 * 1024]);
    let streamed = || {
        let pieces = (0..300_u32).map(|_| Ok::<_, Infallible>(Bytes::from(vec![7; 1024])));
        Body::from_stream(stream::iter(pieces))
    };
    let just_over = || Body::from(vec![7; 256 * 1024 + 1]);
    let bodies: [(&str, usize, Made); 3] = [
        ("announced", 300 * 1024, announced),
        ("streamed", 300 * 1024, streamed),
        ("just over", 256 * 1024 + 1, just_over),
    ];
    for (engine, web, server) in engines().await {
        for (name, length, body) in bodies {
            let label = format!("{engine}: {name}");
            let policy = IdempotencyPolicy::new().key_prefix(name);
            let (service, work) = answering(&web, policy, move |_| body()).await;
            let first = service.send(request()).await;
            assert_eq!((first.status.as_u16(), first.body.len()), (200, length), "{label}");
            assert!(first.body.iter().all(|byte| *byte == 7), "{label}");
            for _ in 0..2 {
                let again = service.send(request()).await;
                assert_eq!(
                    (again.status.as_u16(), kind(&again)),
                    (409, "response-not-stored".into()),
                    "{label}"
                );
            }
            // What stands there still knows what was asked for.
            let other = service.send(keyed("k", "/orders", &json!({"item": 2}))).await;
            assert_eq!(
                (other.status.as_u16(), kind(&other)),
                (422, "idempotency-key-reused".into()),
                "{label}"
            );
            assert_eq!(work.ran(), 1, "{label}");
        }
        if let Some(server) = &server {
            let left = server.keys("*").iter().map(|key| server.get(key).unwrap().len()).max();
            assert!(left.is_some_and(|bytes| bytes < 512), "{left:?}");
        }
    }
}

/// The limit can be set.
#[tokio::test]
async fn the_limit_of_what_is_stored_can_be_set() {
    for (engine, web, _server) in engines().await {
        for (limit, stored) in [(0, false), (4, false), (5, true)] {
            let policy = IdempotencyPolicy::new().max_response_bytes(limit).key_prefix(limit.to_string());
            let (service, work) = answering(&web, policy, |_| "12345").await;
            assert_eq!(service.send(request()).await.text(), "12345", "{engine}");
            let again = service.send(request()).await;
            assert_eq!(again.header("idempotency-replayed").is_some(), stored, "{engine}: {limit}");
            assert_eq!(work.ran(), 1, "{engine}");
        }
    }
}

/// A body that fails in the middle fails for the client too, and what it comes from is not carried out again.
///
/// Proves: B9
#[tokio::test]
async fn a_body_that_fails_in_the_middle_is_not_taken_for_a_whole_one() {
    for (engine, web, _server) in engines().await {
        let (service, work) = answering(&web, IdempotencyPolicy::new(), |_| {
            let pieces = [Ok(Bytes::from_static(b"half")), Err(io::Error::other("the disk is gone"))];
            Body::from_stream(stream::iter(pieces))
        })
        .await;
        let client = Client::builder(TokioExecutor::new()).build_http();
        let mut broken = request();
        *broken.uri_mut() = format!("http://{}/orders", service.address).parse().unwrap();
        // The head may come before the failure or not; the end must not.
        let whole = match client.request(broken).await {
            Ok(response) => response.into_body().collect().await.is_ok(),
            Err(_) => false,
        };
        assert!(!whole, "{engine}: half a body came as a whole one");
        let again = service.send(request()).await;
        assert_eq!((again.status.as_u16(), kind(&again)), (409, "response-not-stored".into()), "{engine}");
        assert_eq!(work.ran(), 1, "{engine}");
    }
}

/// Trailers reach the first client. They are not stored.
#[tokio::test]
async fn trailers_reach_the_first_client() {
    for (engine, web, _server) in engines().await {
        let (service, work) = answering(&web, IdempotencyPolicy::new(), |_| {
            let mut trailers = HeaderMap::new();
            trailers.insert("x-checksum", HeaderValue::from_static("42"));
            let frames = [
                Ok::<_, Infallible>(Frame::data(Bytes::from_static(b"body"))),
                Ok(Frame::trailers(trailers)),
            ];
            Body::new(StreamBody::new(stream::iter(frames)))
        })
        .await;
        let client = Client::builder(TokioExecutor::new()).http2_only(true).build_http();
        let expected = [Some("42"), None];
        for trailer in expected {
            let mut request = request();
            *request.uri_mut() = format!("http://{}/orders", service.address).parse().unwrap();
            let body = client.request(request).await.unwrap().into_body().collect().await.unwrap();
            let found = body.trailers().and_then(|trailers| trailers.get("x-checksum"));
            assert_eq!(found.map(|value| value.to_str().unwrap()), trailer, "{engine}");
            assert_eq!(body.to_bytes(), "body", "{engine}");
        }
        assert_eq!(work.ran(), 1, "{engine}");
    }
}

/// A stored answer to HEAD says as the first one how long the body would be.
#[tokio::test]
async fn answers_to_head_keep_the_length_of_what_they_do_not_send() {
    for (engine, web, _server) in engines().await {
        let policy = IdempotencyPolicy::new().safe_methods(true);
        let (service, work) = answering(&web, policy, |_| "12345").await;
        for replayed in [None, Some("true")] {
            let mut request = request();
            *request.method_mut() = Method::HEAD;
            let answer = service.send(request).await;
            assert_eq!(answer.header("idempotency-replayed"), replayed, "{engine}");
            assert_eq!(answer.header("content-length"), Some("5"), "{engine}");
        }
        assert_eq!(work.ran(), 1, "{engine}");
    }
}
