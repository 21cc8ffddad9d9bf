//! Answers that take their time: for how long a guard holds while they are sent.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use axum::Router;
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, post as on_post};
use bytes::Bytes;
use clinch::http::Web;
use clinch::submit::{Disconnect, DuplicatePolicy, LimitPolicy, LockPolicy, ReleaseWhen, Streaming};
use http::{HeaderMap, Request, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use serde_json::json;
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::bench::{Engine, HELD, Kind};
use crate::common::{LONG, Service, post_as};
use crate::wire::{Http2, Wire};

fn submission() -> Request<Full<Bytes>> {
    post_as("alice", "/orders", &json!({"item": 7}))
}

/// A body of which the test says what comes and when it ends. It tells when it is dropped.
struct Told {
    frames: mpsc::UnboundedReceiver<Frame<Bytes>>,
    _dropped: mpsc::UnboundedSender<Infallible>,
}

impl http_body::Body for Told {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.frames.poll_recv(context).map(|frame| frame.map(Ok))
    }
}

/// What the test has of such a body.
struct Telling {
    frames: mpsc::UnboundedSender<Frame<Bytes>>,
    dropped: mpsc::UnboundedReceiver<Infallible>,
}

impl Telling {
    fn data(&self, data: &'static str) {
        self.frames.send(Frame::data(Bytes::from_static(data.as_bytes()))).unwrap();
    }

    /// Waits until the body was dropped.
    async fn until_dropped(mut self, what: &str) {
        let dropped = timeout(LONG, self.dropped.recv()).await;
        assert!(dropped.unwrap_or_else(|_| panic!("{what}: the body is dropped")).is_none());
    }
}

fn told() -> (Telling, Told) {
    let (frames, coming) = mpsc::unbounded_channel();
    let (alive, dropped) = mpsc::unbounded_channel();
    (Telling { frames, dropped }, Told { frames: coming, _dropped: alive })
}

/// A handler that answers with these bodies, one after the other.
fn answering(bodies: impl IntoIterator<Item = Told>) -> MethodRouter {
    let bodies: Arc<Mutex<VecDeque<_>>> = Arc::new(Mutex::new(bodies.into_iter().collect()));
    on_post(move || {
        let body = bodies.lock().unwrap().pop_front().expect("as many requests as bodies");
        async move { Body::new(body) }
    })
}

fn guarded(kind: Kind, web: &Web, handler: MethodRouter, streaming: Streaming) -> MethodRouter {
    match kind {
        Kind::Duplicate => {
            let policy = DuplicatePolicy::new().interval(HELD).streaming(streaming);
            handler.layer(web.duplicate(policy).unwrap())
        }
        Kind::Lock => {
            handler.layer(web.lock(LockPolicy::new("order").ttl(HELD).streaming(streaming)).unwrap())
        }
        Kind::Limit => {
            handler.layer(web.limit(LimitPolicy::new("a", 1).ttl(HELD).streaming(streaming)).unwrap())
        }
    }
}

/// A client that reads its answer piece by piece.
enum Reader {
    Http1(tokio::task::JoinHandle<()>),
    Http2(Http2<Full<Bytes>>),
}

impl Reader {
    /// Sends the submission, and has the head of its answer.
    async fn send(http2: bool, service: &Service) -> (Self, http::Response<Incoming>) {
        if http2 {
            let mut connection = Http2::connect(service.address).await;
            let response =
                timeout(LONG, connection.begin(submission())).await.expect("the head comes").unwrap();
            return (Self::Http2(connection), response);
        }
        let stream = TokioIo::new(TcpStream::connect(service.address).await.unwrap());
        let (mut sender, connection) = hyper::client::conn::http1::handshake(stream).await.unwrap();
        let driving = tokio::spawn(async { drop(connection.await) });
        let response =
            timeout(LONG, sender.send_request(submission())).await.expect("the head comes").unwrap();
        (Self::Http1(driving), response)
    }

    /// Closes the connection.
    async fn close(self) {
        match self {
            Self::Http1(driving) => {
                driving.abort();
                let _ = driving.await;
            }
            Self::Http2(connection) => connection.close().await,
        }
    }
}

/// Reads the next piece of an answer.
async fn piece(body: &mut Incoming) -> Bytes {
    let frame = timeout(LONG, body.frame()).await.expect("a piece comes");
    frame.expect("it has not ended").unwrap().into_data().unwrap()
}

/// Unless told otherwise, a guard holds until the head of the answer is ready, however long the rest takes.
/// Proves: D7
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn until_the_head_is_ready() {
    for engine in Engine::both() {
        for (kind, http2) in Kind::ALL.into_iter().flat_map(|kind| [(kind, false), (kind, true)]) {
            let what = format!("{}, {kind:?}, HTTP/2 {http2}", engine.name());
            let case = engine.case().await;
            let (first, second) = (told(), told());
            let handler = answering([first.1, second.1]);
            let app = Router::new().route("/orders", guarded(kind, &case.web, handler, Streaming::UntilHead));
            let service = Service::start(app).await;

            let (_reader, response) = Reader::send(http2, &service).await;
            assert_eq!(response.status(), 200, "{what}");
            assert_eq!(case.left(), 0, "{what}");
            // Its body has not even begun, and the next one has its own.
            second.0.data("second");
            drop(second.0);
            let answer = service.send(submission()).await;
            assert_eq!((answer.status.as_u16(), answer.text()), (200, "second"), "{what}");
            first.0.data("first");
            let mut body = response.into_body();
            assert_eq!(piece(&mut body).await, "first", "{what}");
        }
    }
}

/// If asked for, it holds until the body has ended.
/// Proves: D7
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn until_the_body_has_ended() {
    for engine in Engine::both() {
        for (kind, http2) in Kind::ALL.into_iter().flat_map(|kind| [(kind, false), (kind, true)]) {
            let what = format!("{}, {kind:?}, HTTP/2 {http2}", engine.name());
            let case = engine.case().await;
            let (first, second) = (told(), told());
            let handler = answering([first.1, second.1]);
            let app = Router::new().route("/orders", guarded(kind, &case.web, handler, Streaming::UntilEnd));
            let service = Service::start(app).await;

            let (_reader, response) = Reader::send(http2, &service).await;
            let mut body = response.into_body();
            first.0.data("first");
            assert_eq!(piece(&mut body).await, "first", "{what}");
            assert_eq!(service.send(submission()).await.status, kind.status(), "{what}");
            drop(first.0);
            let rest = timeout(LONG, body.collect()).await.expect("the body ends").unwrap();
            assert!(rest.to_bytes().is_empty(), "{what}");
            case.free().await;
            drop(second.0);
            assert_eq!(service.send(submission()).await.status, 200, "{what}");
            case.free().await;
        }
    }
}

/// A client that goes away in the middle of its answer has no more of it; what was held for it is free.
/// Proves: D7, B4
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn until_the_client_goes_away_in_the_middle_of_the_body() {
    for engine in Engine::both() {
        for (kind, http2) in Kind::ALL.into_iter().flat_map(|kind| [(kind, false), (kind, true)]) {
            let what = format!("{}, {kind:?}, HTTP/2 {http2}", engine.name());
            let case = engine.case().await;
            let (first, second) = (told(), told());
            let handler = answering([first.1, second.1]);
            let app = Router::new().route("/orders", guarded(kind, &case.web, handler, Streaming::UntilEnd));
            let service = Service::start(app).await;

            let (reader, response) = Reader::send(http2, &service).await;
            let mut body = response.into_body();
            first.0.data("first");
            assert_eq!(piece(&mut body).await, "first", "{what}");
            assert_eq!(service.send(submission()).await.status, kind.status(), "{what}");
            reader.close().await;
            first.0.until_dropped(&what).await;
            case.free().await;
            drop(second.0);
            assert_eq!(service.send(submission()).await.status, 200, "{what}");
        }
    }
}

/// The shapes that an answer can have on its way to the client. Servers do not ask all of them to their very end.
const SHAPES: [&str; 7] = [
    "whole",
    "empty",
    "no content",
    "stream",
    "stream with a length",
    "trailers",
    "empty stream with a length",
];

fn shaped(shape: &str) -> Response {
    let stream = |frames: Vec<Frame<Bytes>>| {
        let (telling, told) = told();
        frames.into_iter().for_each(|frame| telling.frames.send(frame).unwrap());
        Body::new(told)
    };
    let data = || vec![Frame::data(Bytes::from_static(b"do")), Frame::data(Bytes::from_static(b"ne"))];
    match shape {
        "whole" => "done".into_response(),
        "empty" => ().into_response(),
        "no content" => StatusCode::NO_CONTENT.into_response(),
        "stream" => stream(data()).into_response(),
        "stream with a length" => ([("content-length", "4")], stream(data())).into_response(),
        "empty stream with a length" => ([("content-length", "0")], stream(Vec::new())).into_response(),
        "trailers" => {
            let trailers = HeaderMap::from_iter([("x-sum".parse().unwrap(), "4".parse().unwrap())]);
            let frames = data().into_iter().chain([Frame::trailers(trailers)]).collect();
            ([("trailer", "x-sum")], stream(frames)).into_response()
        }
        other => panic!("{other}"),
    }
}

/// An answer that was sent to its end is no failure and no client that went away, in whatever shape it was sent.
/// Proves: D8
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_was_sent_as_a_whole_is_a_success() {
    let engine = Engine::Memory;
    for (shape, http2) in SHAPES.into_iter().flat_map(|shape| [(shape, false), (shape, true)]) {
        let what = format!("{shape}, HTTP/2 {http2}");
        let send = async |guarded: MethodRouter| {
            let service = Service::start(Router::new().route("/orders", guarded)).await;
            let answer =
                if http2 { service.send_http2(submission()).await } else { service.send(submission()).await };
            assert!(answer.status.is_success(), "{what}: {answer:?}");
            let expected = if shape.contains("empty") || shape == "no content" { "" } else { "done" };
            assert_eq!(answer.text(), expected, "{what}");
        };
        let handler = || on_post(move || async move { shaped(shape) });

        // What is kept after a success is kept.
        let case = engine.case().await;
        let policy = DuplicatePolicy::new().interval(HELD).streaming(Streaming::UntilEnd);
        let policy = policy.release(ReleaseWhen::OnFailure);
        send(handler().layer(case.web.duplicate(policy).unwrap())).await;
        case.settle().await;
        assert_eq!(case.left(), 1, "{what}: kept after a success");

        // What is kept for clients that go away is not kept for one that did not.
        let case = engine.case().await;
        let policy = LockPolicy::new("order").ttl(HELD).streaming(Streaming::UntilEnd);
        let policy = policy.disconnect(Disconnect::Hold);
        send(handler().layer(case.web.lock(policy).unwrap())).await;
        case.settle().await;
        assert_eq!(case.left(), 0, "{what}: free after the end");
    }
}

/// An answer to HEAD has no body that could end.
/// Proves: D8
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_to_head_ends_with_its_head() {
    let engine = Engine::Memory;
    for http2 in [false, true] {
        let case = engine.case().await;
        let policy = LockPolicy::new("order").ttl(HELD).streaming(Streaming::UntilEnd);
        let policy = policy.disconnect(Disconnect::Hold).safe_methods(true);
        // Not a route for GET, whose body axum itself takes away.
        let handler: MethodRouter = axum::routing::any(|| async { shaped("stream") });
        let app = Router::new().route("/orders", handler.layer(case.web.lock(policy).unwrap()));
        let service = Service::start(app).await;
        let request = Request::head("/orders").body(Full::default()).unwrap();
        let answer = if http2 { service.send_http2(request).await } else { service.send(request).await };
        assert_eq!((answer.status.as_u16(), answer.body.len()), (200, 0));
        case.settle().await;
        assert_eq!(case.left(), 0, "HTTP/2 {http2}");
    }
}

/// An answer that breaks off is a failure, and one that says that it is one as well, once it was sent.
/// Proves: D8
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_breaks_off_or_says_so_is_a_failure() {
    struct Broken;
    impl http_body::Body for Broken {
        type Data = Bytes;
        type Error = std::io::Error;

        fn poll_frame(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
            Poll::Ready(Some(Err(std::io::Error::other("as planned"))))
        }
    }
    let engine = Engine::Memory;
    for http2 in [false, true] {
        for broken in [true, false] {
            let case = engine.case().await;
            let policy = DuplicatePolicy::new().interval(HELD).streaming(Streaming::UntilEnd);
            let policy = policy.release(ReleaseWhen::OnFailure);
            let handler = on_post(move || async move {
                if broken {
                    Body::new(Broken).into_response()
                } else {
                    (StatusCode::BAD_GATEWAY, shaped("stream").into_body()).into_response()
                }
            });
            let guarded = handler.layer(case.web.duplicate(policy).unwrap());
            let service = Service::start(Router::new().route("/orders", guarded)).await;
            if http2 {
                let mut connection = Http2::connect(service.address).await;
                let whole = async { connection.begin(submission()).await?.into_body().collect().await };
                assert_eq!(timeout(LONG, whole).await.expect("an answer or an error").is_err(), broken);
            } else {
                let mut request = submission();
                request.headers_mut().insert("connection", "close".parse().unwrap());
                let mut wire = Wire::connect(service.address).await;
                wire.request(&request).await;
                assert_eq!(wire.read_to_end().await.ends_with(b"0\r\n\r\n"), !broken);
            }
            case.free().await;
        }
    }
}
