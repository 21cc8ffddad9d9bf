//! Handlers that panic: what they held is free, and the panic is the server's.

use std::panic::{AssertUnwindSafe, panic_any};
use std::pin::Pin;
use std::sync::{Mutex, Once, PoisonError};
use std::task::{Context, Poll};
use std::thread::ThreadId;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn};
use axum::response::IntoResponse;
use axum::routing::{MethodRouter, post as on_post};
use bytes::Bytes;
use clinch::submit::{Disconnect, DuplicatePolicy, LockPolicy, ReleaseWhen, Streaming};
use futures_util::FutureExt;
use http_body::Frame;
use http_body_util::Full;
use serde_json::json;
use tower::ServiceExt;

use crate::bench::{Engine, HELD, Kind, Probe};
use crate::common::{LONG, Service, post_as};
use crate::wire::{Client, Http2, Way, Wire};

/// A panic that a test wants.
pub(crate) struct Planned;

fn planned() -> ! {
    watch();
    panic_any(Planned)
}

static PANICS: Mutex<Vec<(ThreadId, String)>> = Mutex::new(Vec::new());

/// Notes panics from now on, but for those that are planned, which are not printed either.
pub(crate) fn watch() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if !panic.payload().is::<Planned>() {
                let id = std::thread::current().id();
                PANICS.lock().unwrap_or_else(PoisonError::into_inner).push((id, panic.to_string()));
                usual(panic);
            }
        }));
    });
}

/// What has panicked on this thread since [`watch`] was called. In a runtime of one thread that is all of it.
pub(crate) fn unplanned() -> Vec<String> {
    let here = std::thread::current().id();
    let panics = PANICS.lock().unwrap_or_else(PoisonError::into_inner);
    panics.iter().filter(|(thread, _)| *thread == here).map(|(_, panic)| panic.clone()).collect()
}

fn submission(item: &str) -> http::Request<Full<Bytes>> {
    post_as("alice", "/orders", &json!({"item": item}))
}

/// A handler that panics, unless told otherwise, after it was let go.
fn panicking(probe: &Probe) -> MethodRouter {
    let probe = probe.clone();
    on_post(move |request: Request| async move {
        let done = probe.run().await;
        if !request.headers().contains_key("x-well") {
            planned();
        }
        done
    })
}

fn well() -> http::Request<Full<Bytes>> {
    let mut request = submission("7");
    request.headers_mut().insert("x-well", "1".parse().unwrap());
    request
}

/// Whatever is to happen to handlers whose clients go away: one that panics is over.
/// Proves: D7, B4
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_that_panics_makes_room_and_the_server_sees_it() {
    for engine in Engine::both() {
        for kind in Kind::ALL {
            for disconnect in [Disconnect::Finish, Disconnect::Release, Disconnect::Hold] {
                for http2 in [false, true] {
                    let what = format!("{}, {kind:?}, {disconnect:?}, HTTP/2 {http2}", engine.name());
                    let (case, probe) = (engine.case().await, Probe::new());
                    let guarded = kind.guard(&case.web, panicking(&probe), Some(disconnect));
                    let service = Service::start(probe.watch(Router::new().route("/orders", guarded))).await;
                    probe.open(2);
                    if http2 {
                        let mut connection = Http2::connect(service.address).await;
                        let answer = tokio::time::timeout(LONG, connection.begin(submission("7"))).await;
                        assert!(answer.expect("it ends").is_err(), "{what}");
                    } else {
                        let mut wire = Wire::connect(service.address).await;
                        wire.request(&submission("7")).await;
                        assert_eq!(wire.read_to_end().await, b"", "{what}");
                    }
                    let seen = probe.until("the panic came through", |seen| seen.panicked == 1).await;
                    assert_eq!((seen.finished, seen.left), (1, 0), "{what}");
                    case.free().await;
                    assert_eq!(service.send(well()).await.status, 200, "{what}");
                    case.settle().await;
                    assert_eq!(case.left(), 0, "{what}");
                }
            }
        }
    }
}

/// A layer outside of the guard that catches panics has this very one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_layer_outside_can_catch_the_panic() {
    async fn catching(request: Request, next: Next) -> axum::response::Response {
        match AssertUnwindSafe(next.run(request)).catch_unwind().await {
            Ok(response) => response,
            Err(panic) if panic.is::<Planned>() => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
            Err(_) => StatusCode::IM_A_TEAPOT.into_response(),
        }
    }
    for engine in Engine::both() {
        for kind in Kind::ALL {
            let (case, probe) = (engine.case().await, Probe::new());
            let guarded = kind.guard(&case.web, panicking(&probe), None);
            let app =
                Router::new().route("/orders", guarded).layer(case.web.layer()).layer(from_fn(catching));
            let service = Service::start(app).await;
            probe.open(2);
            assert_eq!(service.send(submission("7")).await.status, 500, "{}, {kind:?}", engine.name());
            case.free().await;
            assert_eq!(service.send(well()).await.status, 200, "{}, {kind:?}", engine.name());
        }
    }
}

/// A panic is a failure: what is released on failure is released, what never is, is not.
/// Proves: D8
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_panic_is_a_failure_and_never_is_never() {
    for engine in Engine::both() {
        for (release, left) in [(ReleaseWhen::OnFailure, 0), (ReleaseWhen::Never, 1)] {
            for disconnect in [Disconnect::Finish, Disconnect::Release, Disconnect::Hold] {
                let what = format!("{}, {release:?}, {disconnect:?}", engine.name());
                let (case, probe) = (engine.case().await, Probe::new());
                let policy = DuplicatePolicy::new().interval(HELD).release(release).disconnect(disconnect);
                let guarded = panicking(&probe).layer(case.web.duplicate(policy).unwrap());
                let service = Service::start(probe.watch(Router::new().route("/orders", guarded))).await;
                probe.open(1);
                let mut wire = Wire::connect(service.address).await;
                wire.request(&submission("7")).await;
                assert_eq!(wire.read_to_end().await, b"", "{what}");
                probe.until("the panic came through", |seen| seen.panicked == 1).await;
                if left == 1 {
                    assert_eq!(service.send(submission("7")).await.status, 429, "{what}");
                }
                case.settle().await;
                assert_eq!(case.left(), left, "{what}");
            }
        }
    }
}

/// A handler that runs on for a client that went away, and panics then.
/// Proves: D7, B4
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_that_panics_in_the_background_makes_room() {
    for engine in Engine::both() {
        for kind in Kind::ALL {
            for way in Way::ALL {
                let what = format!("{}, {kind:?}, {way:?}", engine.name());
                let (case, probe) = (engine.case().await, Probe::new());
                let guarded = kind.guard(&case.web, panicking(&probe), Some(Disconnect::Finish));
                let service = Service::start(probe.watch(Router::new().route("/orders", guarded))).await;
                let client = Client::send(way, service.address, submission("7")).await;
                probe.until("the handler runs", |seen| seen.entered == 1).await;
                let _kept = client.leave(way).await;
                probe.until("the request is given up", |seen| seen.left == 1).await;
                assert_eq!(service.send(submission("7")).await.status, kind.status(), "{what}");
                probe.open(2);
                probe.until("the handler is about to panic", |seen| seen.finished == 1).await;
                case.free().await;
                assert_eq!(service.send(well()).await.status, 200, "{what}");
                case.settle().await;
                assert_eq!(case.left(), 0, "{what}");
            }
        }
    }
}

/// A body that panics while it is sent is no client that went away.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_that_panics_makes_room() {
    struct Panicking;
    impl http_body::Body for Panicking {
        type Data = Bytes;
        type Error = std::convert::Infallible;

        fn poll_frame(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
            planned()
        }
    }
    for engine in Engine::both() {
        for disconnect in [Disconnect::Finish, Disconnect::Release, Disconnect::Hold] {
            for http2 in [false, true] {
                let case = engine.case().await;
                let policy = LockPolicy::new("order").ttl(HELD).disconnect(disconnect);
                let guarded = on_post(|| async { Body::new(Panicking) })
                    .layer(case.web.lock(policy.streaming(Streaming::UntilEnd)).unwrap());
                let service = Service::start(Router::new().route("/orders", guarded)).await;
                if http2 {
                    let mut connection = Http2::connect(service.address).await;
                    let whole = async {
                        let response = connection.begin(submission("7")).await?;
                        http_body_util::BodyExt::collect(response.into_body()).await
                    };
                    assert!(tokio::time::timeout(LONG, whole).await.expect("it ends").is_err());
                } else {
                    let mut wire = Wire::connect(service.address).await;
                    wire.request(&submission("7")).await;
                    wire.read_to_end().await;
                }
                let freed = tokio::time::timeout(LONG, case.free()).await;
                assert!(freed.is_ok(), "{}, {disconnect:?}, HTTP/2 {http2}", engine.name());
                case.settle().await;
            }
        }
    }
}

/// A service may panic before it even returns a future.
#[tokio::test]
async fn a_service_that_panics_when_it_is_called_makes_room() {
    let engine = Engine::Memory;
    let case = engine.case().await;
    let policy = LockPolicy::new("order").ttl(HELD).disconnect(Disconnect::Hold);
    let inner =
        tower::service_fn(|_| -> std::future::Ready<Result<http::Response<Full<Bytes>>, ()>> { planned() });
    let service = tower_layer::Layer::layer(&case.web.lock(policy).unwrap(), inner);
    let called = AssertUnwindSafe(service.oneshot(submission("7"))).catch_unwind().await;
    assert!(called.is_err_and(|panic| panic.is::<Planned>()));
    case.free().await;
    case.settle().await;
}
