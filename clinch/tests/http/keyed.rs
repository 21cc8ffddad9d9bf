//! What the tests of `Idempotency-Key` share: a handler that counts, requests with keys, and what answers are.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::routing::any;
use bytes::Bytes;
use clinch::LockManager;
use clinch::http::Web;
use clinch::stores::memory::MemoryStore;
use clinch::submit::{Guards, IdempotencyPolicy};
use clinch_testkit::server::RedisServer;
use http::{HeaderMap, HeaderValue, Request, StatusCode};
use http_body_util::Full;
use serde_json::Value;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use crate::common::{Answer, LONG, Service, post_as};

/// A handler that counts its runs, says that it has begun, and goes on when it is let go.
#[derive(Clone)]
pub(crate) struct Work {
    ran: Arc<AtomicUsize>,
    begun: Arc<Semaphore>,
    gate: Arc<Semaphore>,
}

impl Work {
    /// One that is never held up.
    pub(crate) fn open() -> Self {
        let work = Self::gated();
        work.gate.add_permits(1_000_000);
        work
    }

    /// One that waits in every run until it is let go.
    pub(crate) fn gated() -> Self {
        Self { ran: Arc::default(), begun: Arc::new(Semaphore::new(0)), gate: Arc::new(Semaphore::new(0)) }
    }

    /// Runs, and says which run it was.
    pub(crate) async fn run(&self) -> usize {
        let run = self.ran.fetch_add(1, Ordering::SeqCst) + 1;
        self.begun.add_permits(1);
        self.gate.acquire().await.unwrap().forget();
        run
    }

    /// Waits until one more run has begun.
    pub(crate) async fn has_begun(&self) {
        timeout(LONG, self.begun.acquire()).await.expect("no run has begun").unwrap().forget();
    }

    /// Lets one run go on.
    pub(crate) fn let_go(&self) {
        self.gate.add_permits(1);
    }

    pub(crate) fn ran(&self) -> usize {
        self.ran.load(Ordering::SeqCst)
    }
}

/// `/orders` and `/payments` with every verb behind the guard. The answer says which run it comes from; its status is what
/// the request's `x-status` asks for (a header is no part of what is asked for), or 201.
pub(crate) fn app(web: &Web, policy: IdempotencyPolicy, work: &Work) -> Router {
    let work = work.clone();
    let handler = move |headers: HeaderMap| {
        let work = work.clone();
        async move {
            let run = work.run().await;
            let status = headers
                .get("x-status")
                .map_or(StatusCode::CREATED, |status| StatusCode::from_bytes(status.as_bytes()).unwrap());
            (status, [("x-run", run.to_string())], format!("run {run}"))
        }
    };
    Router::new()
        .route("/orders", any(handler.clone()))
        .route("/payments", any(handler))
        .layer(web.idempotency(policy).unwrap())
}

/// A service with such handlers.
pub(crate) async fn serve(web: &Web, policy: IdempotencyPolicy, work: &Work) -> Arc<Service> {
    Arc::new(Service::start(app(web, policy, work)).await)
}

/// Alice's request with this key.
pub(crate) fn keyed(key: &str, path: &str, body: &Value) -> Request<Full<Bytes>> {
    with_key(&format!("\"{key}\""), post_as("alice", path, body))
}

/// The request with this line of `Idempotency-Key`, and with those that it has.
pub(crate) fn with_key(line: &str, mut request: Request<Full<Bytes>>) -> Request<Full<Bytes>> {
    request.headers_mut().append("idempotency-key", HeaderValue::from_str(line).unwrap());
    request
}

/// The request with another header.
pub(crate) fn with(
    name: &'static str,
    value: &str,
    mut request: Request<Full<Bytes>>,
) -> Request<Full<Bytes>> {
    request.headers_mut().insert(name, HeaderValue::from_str(value).unwrap());
    request
}

/// Sends it in a task of its own.
pub(crate) fn send(service: &Arc<Service>, request: Request<Full<Bytes>>) -> JoinHandle<Answer> {
    let service = service.clone();
    tokio::spawn(async move { service.send(request).await })
}

/// A client that sends Alice's request with the key `k` for item 1, and can go away.
pub(crate) async fn by_hand(service: &Service) -> TcpStream {
    let body = serde_json::json!({"item": 1}).to_string();
    let text = format!(
        "POST /orders HTTP/1.1\r\nhost: x\r\nauthorization: Bearer alice\r\nidempotency-key: \"k\"\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut client = TcpStream::connect(service.address).await.unwrap();
    client.write_all(text.as_bytes()).await.unwrap();
    client
}

/// What a task has brought, which is soon over.
pub(crate) async fn of<T>(task: JoinHandle<T>) -> T {
    timeout(LONG, task).await.expect("no answer").unwrap()
}

/// Where an answer comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum From {
    /// This run of the handler.
    Run(usize),
    /// The stored result of this run.
    Replay(usize),
    /// The guard: a problem of this kind.
    Problem(String),
}

/// A problem of this kind.
pub(crate) fn problem(kind: &str) -> From {
    From::Problem(kind.to_owned())
}

/// Where an answer of [`app`] comes from.
pub(crate) fn from(answer: &Answer) -> From {
    let replayed = answer.header("idempotency-replayed");
    match answer.header("x-run").map(|run| run.parse().unwrap()) {
        Some(run) => {
            if answer.status != 204 {
                assert_eq!(answer.text(), format!("run {run}"), "{answer:?}");
            }
            match replayed {
                None => From::Run(run),
                Some("true") => From::Replay(run),
                Some(other) => panic!("Idempotency-Replayed: {other}"),
            }
        }
        None => {
            assert_eq!(replayed, None, "{answer:?}");
            From::Problem(kind(answer))
        }
    }
}

/// The kind of the problem that an answer is.
pub(crate) fn kind(answer: &Answer) -> String {
    assert_eq!(answer.header("content-type"), Some("application/problem+json"), "{answer:?}");
    let problem = answer.json();
    assert_eq!(problem["status"], answer.status.as_u16(), "{answer:?}");
    problem["type"].as_str().unwrap().strip_prefix("urn:clinch:problem:").unwrap().to_owned()
}

/// An engine that two managers share.
pub(crate) enum Engine {
    Memory(Arc<MemoryStore>),
    Redis(RedisServer),
}

impl Engine {
    pub(crate) const fn server(&self) -> Option<&RedisServer> {
        match self {
            Self::Memory(_) => None,
            Self::Redis(server) => Some(server),
        }
    }

    /// It loses its memory, as by a restart.
    pub(crate) fn forget_everything(&self) {
        match self {
            Self::Memory(store) => store.forget_everything(),
            Self::Redis(server) => server.flushall(),
        }
    }
}

/// Two managers on one engine, as two processes would have them; and the same of the other engine.
pub(crate) async fn pairs() -> [(&'static str, [Web; 2], Engine); 2] {
    let store = Arc::new(MemoryStore::new());
    let memory = [on_memory(&store), on_memory(&store)];
    let server = RedisServer::start();
    let on_redis = async || {
        let builder = LockManager::builder().call_timeout(LONG);
        Web::new(Guards::new(builder.connect(&server.url()).await.unwrap()))
    };
    let redis = [on_redis().await, on_redis().await];
    [("memory", memory, Engine::Memory(store)), ("redis", redis, Engine::Redis(server))]
}

/// A manager of its own on this store.
pub(crate) fn on_memory(store: &Arc<MemoryStore>) -> Web {
    Web::new(Guards::new(LockManager::builder().store(store.clone()).build().unwrap()))
}

/// Waits until something is so that only others can tell; the pause is not what makes it so.
pub(crate) async fn eventually(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + LONG;
    while !is_so().await {
        assert!(Instant::now() < deadline, "{what}: not within {LONG:?}");
        sleep(Duration::from_millis(5)).await;
    }
}
