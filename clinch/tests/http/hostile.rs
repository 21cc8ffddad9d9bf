//! What no good client sends: clear answers, bounded memory, no panic.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use axum::routing::post as on_post;
use axum::{Json, Router};
use bytes::Bytes;
use clinch::http::Web;
use clinch::submit::{DuplicatePolicy, IdempotencyPolicy};
use http::{HeaderValue, Request};
use http_body::{Body, Frame};
use http_body_util::Full;
use serde_json::{Value, json};

use crate::common::{Answer, LONG, Service, engines, post, post_as};
use crate::stage::{Bench, DONE};
use crate::wire::{Http2, Wire};

/// As large as the issue of it: far over the limit, and more than anybody should hold in memory for a stranger.
const HUGE: usize = 100_000_000;
/// The limit of what is looked at, unless set.
const LIMIT: usize = 2 * 1024 * 1024;

/// A body that says nothing of its length and is made while it is sent.
#[derive(Clone)]
struct Endless {
    left: usize,
    sent: Arc<AtomicUsize>,
}

impl Body for Endless {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        const PIECE: &[u8] = &[b' '; 16 * 1024];
        if self.left == 0 {
            return Poll::Ready(None);
        }
        self.left = self.left.saturating_sub(PIECE.len());
        self.sent.fetch_add(PIECE.len(), Ordering::SeqCst);
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(PIECE)))))
    }
}

#[clinch::prevent_duplicate]
async fn with_attribute(Json(order): Json<Value>) -> Result<Json<Value>, clinch::Error> {
    Ok(Json(order))
}

/// The attribute comes before anything is read: the handler takes no body.
#[clinch::prevent_duplicate]
async fn without_extractors() -> Result<&'static str, clinch::Error> {
    Ok("done")
}

/// A handler behind each guard that looks at bodies.
async fn shop(web: &Web) -> Service {
    let layered = |body: Json<Value>| async move { body };
    let idempotent = web.idempotency(IdempotencyPolicy::new()).unwrap();
    let app = Router::new()
        .route("/layer", on_post(layered).layer(web.duplicate(DuplicatePolicy::new()).unwrap()))
        .route("/idempotent", on_post(layered).layer(idempotent))
        .route("/attribute", on_post(with_attribute))
        .route("/bare", on_post(without_extractors))
        .layer(web.layer());
    Service::start(app).await
}

const PATHS: [&str; 4] = ["/layer", "/idempotent", "/attribute", "/bare"];

/// A request to one of them, with a key for the one that looks at it.
fn request<B>(path: &str, body: B) -> Request<B> {
    Request::post(path)
        .header("content-type", "application/json")
        .header("idempotency-key", r#""k""#)
        .body(body)
        .unwrap()
}

fn assert_too_large(answer: &Answer, what: &str) {
    // Axum's own extractor has the same limit, and may see it first.
    assert_eq!(answer.status, 413, "{what}: {answer:?}");
    if answer.header("content-type") == Some("application/problem+json") {
        assert_eq!(answer.json()["type"], "urn:clinch:problem:too-large", "{what}");
    }
}

/// A body of 100 MB is refused as soon as that is known: when it is announced, or when the limit is passed.
///
/// Proves: D4
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_huge_body_is_refused_and_not_kept() {
    for (engine, web, _server) in engines().await {
        let service = shop(&web).await;
        for path in PATHS {
            let what = format!("{engine} {path}");
            // Not announced, and sent for as long as somebody reads.
            let sent = Arc::new(AtomicUsize::new(0));
            let body = Endless { left: HUGE, sent: sent.clone() };
            let mut connection = Http2::connect(service.address).await;
            assert_too_large(&connection.send(request(path, body)).await, &what);
            // What is over the limit was on its way: the windows of HTTP/2, and what the client has in hand.
            let sent = sent.load(Ordering::SeqCst);
            assert!(sent <= LIMIT + 4 * 1024 * 1024, "{what}: {sent} bytes were taken");
            // Announced, and never sent. (Behind the attribute, axum's extractor comes first and waits for what it was promised.)
            if path == "/attribute" {
                continue;
            }
            let mut wire = Wire::connect(service.address).await;
            let head = format!(
                "POST {path} HTTP/1.1\r\nhost: test\r\ncontent-type: application/json\r\nidempotency-key: \"k\"\r\nconnection: close\r\ncontent-length: {HUGE}\r\n\r\n"
            );
            wire.send(head).await;
            let read = wire.read_until("\r\n\r\n").await;
            assert!(read.starts_with("HTTP/1.1 413"), "{what}: {read}");
        }
        assert_eq!(web.guards().statistics().duplicates, 0, "{engine}");
    }
}

/// JSON that is nested a thousand times is refused, with what is accepted; the handler is not called.
///
/// Proves: D4
#[tokio::test]
async fn deep_json_is_refused() {
    for (engine, web, _server) in engines().await {
        let service = shop(&web).await;
        let deep = format!("{}0{}", "[".repeat(1_000), "]".repeat(1_000));
        for path in ["/layer", "/idempotent", "/bare"] {
            let answer = service.send(request(path, Full::from(deep.clone()))).await;
            assert_too_large(&answer, &format!("{engine} {path}"));
            assert!(answer.json()["detail"].as_str().unwrap().contains("at most 64"), "{answer:?}");
        }
        // Here it is the handler's extractor that comes first, and refuses it in its own way.
        let answer = service.send(request("/attribute", Full::from(deep))).await;
        assert_eq!(answer.status, 400, "{engine}: {answer:?}");
    }
}

/// What says that it is JSON and is not counts by its bytes, and the handler's own answer stands.
///
/// Proves: D4
#[tokio::test]
async fn broken_json_is_the_handlers_business() {
    let broken = |text: &str| {
        let mut request = post_as("alice", "/orders", &json!({}));
        *request.body_mut() = Full::from(text.to_owned());
        request
    };
    for (engine, web, _server) in engines().await {
        let service = shop(&web).await;
        for path in ["/layer", "/idempotent", "/attribute"] {
            let answer = service.send(request(path, Full::from(r#"{"item": "#))).await;
            assert_eq!(answer.status, 400, "{engine} {path}");
            assert_ne!(answer.header("content-type"), Some("application/problem+json"), "{engine} {path}");
        }
        let bench = Bench::duplicate("/orders", &web, DuplicatePolicy::new().interval(2 * LONG)).await;
        for (one, other, same) in [
            (r#"{"item": "#, r#"{"item": "#, true),
            (r#"{"item": "#, r#"{"item":"#, false),
            (r#"{"a":1,"b":2"#, r#"{"b":2,"a":1"#, false),
        ] {
            assert_eq!(bench.are_same(broken(one), broken(other)).await, same, "{engine}: {one} and {other}");
        }
    }
}

/// Ten thousand parameters are just many: the same ones in another order are the same, one more is not.
///
/// Proves: D4
#[tokio::test]
async fn ten_thousand_query_parameters_are_just_many() {
    let query = |numbers: &mut dyn Iterator<Item = usize>| {
        let query: Vec<String> = numbers.map(|number| format!("{number:x}=")).collect();
        post_as("alice", &format!("/orders?{}", query.join("&")), &json!({}))
    };
    for (engine, web, _server) in engines().await {
        let bench = Bench::duplicate("/orders", &web, DuplicatePolicy::new().interval(2 * LONG)).await;
        let all = || query(&mut (0..10_000));
        assert!(bench.are_same(all(), query(&mut (0..10_000).rev())).await, "{engine}");
        assert!(!bench.are_same(all(), query(&mut (0..10_001))).await, "{engine}");
    }
}

/// An `Authorization` that is no text is a user like any other.
///
/// Proves: D3
#[tokio::test]
async fn an_authorization_that_is_not_utf8_is_a_user_like_any_other() {
    let by = |bytes: &[u8]| {
        let mut request = post("/orders", &json!({}));
        request.headers_mut().insert("authorization", HeaderValue::from_bytes(bytes).unwrap());
        request
    };
    for (engine, web, _server) in engines().await {
        let bench = Bench::duplicate("/orders", &web, DuplicatePolicy::new().interval(2 * LONG)).await;
        for (one, other, same) in [
            (&b"Bearer \xff\xfe"[..], &b"Bearer \xff\xfe"[..], true),
            (b"Bearer \xff\xfe", b"Bearer \xff\xfd", false),
            // Not taken for the text that stands in for what is no text.
            (b"Bearer \xff", "Bearer \u{fffd}".as_bytes(), false),
        ] {
            assert_eq!(bench.are_same(by(one), by(other)).await, same, "{engine}: {one:?} and {other:?}");
        }
    }
}

/// A message is a text in a body, whatever it looks like, and never part of a head.
///
/// Proves: D6
#[tokio::test]
async fn a_message_cannot_write_headers() {
    let message = "later\r\nSet-Cookie: admin=1\r\n\r\n<script>\u{0}\"}";
    for (engine, web, _server) in engines().await {
        let policy = DuplicatePolicy::new().interval(2 * LONG).message(message);
        let bench = Bench::duplicate("/orders", &web, policy).await;
        let order = || post_as("alice", "/orders", &json!({}));
        let first = bench.submit(order()).await.running();
        let refused = bench.submit(order()).await.refused();
        assert_eq!((refused.status.as_u16(), refused.header("set-cookie")), (429, None), "{engine}");
        assert_eq!(refused.json()["message"], message, "{engine}");
        assert_eq!(first.finish(DONE).await.status, 200);
    }
}
