//! `Idempotency-Key`: the ways in which the first one can end.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::body::Body;
use axum::middleware::{self, Next};
use bytes::Bytes;
use clinch::http::Web;
use clinch::submit::{Disconnect, IdempotencyPolicy};
use futures_util::stream;
use http::Request;
use http_body_util::Full;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use serde_json::json;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use crate::common::{Answer, LONG, Service, engines};
use crate::keyed::{
    From, Work, app, by_hand, eventually, from, keyed, kind, of, pairs, problem, send, serve, with,
};

fn request() -> Request<Full<Bytes>> {
    keyed("k", "/orders", &json!({"item": 1}))
}

/// One whose lease is lost while it runs leaves nothing in the place of its successor's result.
///
/// Proves: B9
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_lease_stores_nothing_over_its_successor() {
    for (_, [here, there], engine) in pairs().await {
        let (late, work) = (Work::gated(), Work::gated());
        let one = serve(&here, IdempotencyPolicy::new(), &late).await;
        let other = serve(&there, IdempotencyPolicy::new(), &work).await;
        let first = send(&one, request());
        late.has_begun().await;
        // The engine loses its memory, and another one comes: it runs, while the first one ends.
        engine.forget_everything();
        let second = send(&other, with("x-status", "202", request()));
        work.has_begun().await;
        late.let_go();
        let first = of(first).await;
        assert_eq!((first.status.as_u16(), from(&first)), (201, From::Run(1)));
        for service in [&one, &other] {
            assert_eq!(from(&service.send(request()).await), problem("idempotency-in-flight"));
        }
        work.let_go();
        assert_eq!(from(&of(second).await), From::Run(1));
        for service in [&one, &other] {
            let again = service.send(request()).await;
            assert_eq!((again.status.as_u16(), from(&again)), (202, From::Replay(1)));
        }
        assert_eq!((late.ran(), work.ran()), (1, 1));

        // The same the other way round: the successor has stored its result when the first one ends.
        let first = send(&one, keyed("l", "/orders", &json!({})));
        late.has_begun().await;
        engine.forget_everything();
        work.let_go();
        let done = with("x-status", "202", keyed("l", "/orders", &json!({})));
        assert_eq!(other.send(done).await.status, 202);
        late.let_go();
        assert_eq!(of(first).await.status, 201);
        for service in [&one, &other] {
            let again = service.send(keyed("l", "/orders", &json!({}))).await;
            assert_eq!((again.status.as_u16(), from(&again)), (202, From::Replay(2)));
        }
    }
}

/// Says when it is dropped.
struct Ends(Arc<Semaphore>);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.add_permits(1);
    }
}

/// A service with a client that has left: its handler has begun, and the server has dropped what it ran for it.
async fn left(app: Router, work: &Work) -> Arc<Service> {
    let over = Arc::new(Semaphore::new(0));
    let ends = over.clone();
    let outermost = middleware::from_fn(move |request: axum::extract::Request, next: Next| {
        let ends = Ends(ends.clone());
        async move {
            let _ends = ends;
            next.run(request).await
        }
    });
    let service = Arc::new(Service::start(app.layer(outermost)).await);
    let client = by_hand(&service).await;
    work.has_begun().await;
    drop(client);
    timeout(LONG, over.acquire()).await.expect("nobody noticed that the client left").unwrap().forget();
    service
}

/// The client goes away: the handler runs on to its end, and its result is there for the one who comes back.
///
/// Proves: B9
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_leaves_finds_its_result_when_it_comes_back() {
    for (engine, web, _server) in engines().await {
        let work = Work::gated();
        let service = left(app(&web, IdempotencyPolicy::new(), &work), &work).await;
        assert_eq!(from(&service.send(request()).await), problem("idempotency-in-flight"), "{engine}");
        work.let_go();
        eventually("it is done", async || match from(&service.send(request()).await) {
            From::Replay(1) => true,
            other => {
                assert_eq!(other, problem("idempotency-in-flight"), "{engine}");
                false
            }
        })
        .await;
        assert_eq!(work.ran(), 1, "{engine}");
    }
}

/// An app whose handler answers at once, with a body that is made while it is read.
fn streaming(web: &Web, work: &Work) -> Router {
    let work = work.clone();
    let handler = async move || {
        let made = async move {
            let run = work.run().await;
            assert!(run != 2, "the second one panics");
            Ok::<_, Infallible>(format!("run {run}"))
        };
        ([("x-run", "1")], Body::from_stream(stream::once(made)))
    };
    let guard = web.idempotency(IdempotencyPolicy::new()).unwrap();
    Router::new().route("/orders", axum::routing::post(handler)).layer(guard)
}

/// The same while the response is still being made: it is made to its end, and stored.
///
/// Proves: B9
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_response_that_is_being_made_when_its_client_leaves_is_stored() {
    for (engine, web, _server) in engines().await {
        let work = Work::gated();
        let service = left(streaming(&web, &work), &work).await;
        assert_eq!(from(&service.send(request()).await), problem("idempotency-in-flight"), "{engine}");
        work.let_go();
        eventually("it is done", async || match from(&service.send(request()).await) {
            From::Replay(1) => true,
            other => {
                assert_eq!(other, problem("idempotency-in-flight"), "{engine}");
                false
            }
        })
        .await;
        assert_eq!(work.ran(), 1, "{engine}");
    }
}

/// Where the policy is to give up, the handler is dropped and the key is free; where it is to hold, the handler is dropped
/// and the key stays closed until its lease runs out.
///
/// Proves: B9
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_leaves_gives_its_key_up_or_keeps_it_as_the_policy_says() {
    for (engine, web, _server) in engines().await {
        let work = Work::gated();
        let policy = IdempotencyPolicy::new().disconnect(Disconnect::Release);
        let service = left(app(&web, policy, &work), &work).await;
        let again = eventually_run(&service, &work).await;
        work.let_go();
        assert_eq!(from(&of(again).await), From::Run(2), "{engine}");

        let work = Work::gated();
        let policy = IdempotencyPolicy::new().disconnect(Disconnect::Hold).key_prefix("hold");
        let service = left(app(&web, policy.lease(LONG), &work), &work).await;
        eventually("the handler is dropped", async || {
            let answer = service.send(request()).await;
            assert_eq!(answer.status, 409, "{engine}");
            let kind = kind(&answer);
            assert!(["idempotency-in-flight", "response-not-stored"].contains(&kind.as_str()), "{kind}");
            if kind == "response-not-stored" {
                // Nobody says that it was carried out, and it can be tried again when the lease is over.
                let told = answer.json();
                for text in [&told["detail"], &told["message"]] {
                    assert!(!text.as_str().unwrap().contains("was carried out"), "{told}");
                }
                assert!((1..=30).contains(&told["retryAfter"].as_u64().unwrap()), "{told}");
            }
            kind == "response-not-stored"
        })
        .await;
        assert_eq!(work.ran(), 1, "{engine}");
    }
}

/// Sends until a run has begun, and gives the one that has.
async fn eventually_run(service: &Arc<Service>, work: &Work) -> JoinHandle<Answer> {
    let deadline = Instant::now() + LONG;
    loop {
        assert!(Instant::now() < deadline, "the key is never free");
        let ran = work.ran();
        let mut sent = send(service, request());
        tokio::select! {
            answer = &mut sent => assert_eq!(from(&answer.unwrap()), problem("idempotency-in-flight")),
            () = work.has_begun() => {
                assert_eq!(work.ran(), ran + 1);
                return sent;
            }
        }
    }
}

/// A handler that panics frees its key, whatever is to happen to clients that leave.
///
/// Proves: B9
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_panic_frees_the_key() {
    for (engine, web, _server) in engines().await {
        for disconnect in [Disconnect::Finish, Disconnect::Release, Disconnect::Hold] {
            let label = format!("{engine}: {disconnect:?}");
            let work = Work::open();
            let policy =
                IdempotencyPolicy::new().disconnect(disconnect).key_prefix(format!("{disconnect:?}"));
            // The status is none, and the handler does not expect that.
            let service = serve(&web, policy, &work).await;
            let client = Client::builder(TokioExecutor::new()).build_http();
            let mut panics = with("x-status", "none", request());
            *panics.uri_mut() = format!("http://{}/orders", service.address).parse().unwrap();
            client.request(panics).await.unwrap_err();
            eventually("the key is free", async || match from(&service.send(request()).await) {
                From::Run(2) => true,
                other => {
                    assert_eq!(other, problem("idempotency-in-flight"), "{label}");
                    false
                }
            })
            .await;
            assert_eq!(from(&service.send(request()).await), From::Replay(2), "{label}");
            assert_eq!(work.ran(), 2, "{label}");
        }
    }
}

/// So does a panic while the response is made.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_panic_while_the_response_is_made_frees_the_key() {
    for (engine, web, _server) in engines().await {
        let work = Work::open();
        let service = Service::start(streaming(&web, &work)).await;
        assert_eq!(from(&service.send(keyed("l", "/orders", &json!({}))).await), From::Run(1), "{engine}");
        let client = Client::builder(TokioExecutor::new()).build_http();
        let mut panics = request();
        *panics.uri_mut() = format!("http://{}/orders", service.address).parse().unwrap();
        client.request(panics).await.unwrap_err();
        eventually("the key is free", async || {
            let answer = service.send(request()).await;
            assert!(answer.status == 200 || answer.status == 409, "{engine}: {answer:?}");
            answer.status == 200
        })
        .await;
        assert_eq!(service.send(request()).await.text(), "run 3", "{engine}");
        assert_eq!(work.ran(), 3, "{engine}");
    }
}

/// The handler is given a look at the lease of its key.
#[tokio::test]
async fn the_handler_sees_the_lease_of_its_key() {
    for (engine, web, _server) in engines().await {
        let leases = Arc::new(AtomicUsize::new(0));
        let seen = leases.clone();
        let app = Router::new().route(
            "/lease",
            axum::routing::post(async move |request: axum::extract::Request| {
                let lease = request.extensions().get::<clinch::Lease>().unwrap();
                seen.fetch_add(usize::from(lease.is_valid()), Ordering::SeqCst);
            })
            .layer(web.idempotency(IdempotencyPolicy::new()).unwrap()),
        );
        let service = Service::start(app).await;
        service.send(keyed("k", "/lease", &json!({}))).await;
        service.send(keyed("k", "/lease", &json!({}))).await;
        assert_eq!(leases.load(Ordering::SeqCst), 1, "{engine}");
    }
}
