//! A service behind a guard whose handlers run until the test says how they end.

use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::error_handling::HandleError;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use clinch::LockManager;
use clinch::http::Web;
use clinch::lease::Holder;
use clinch::store::{Cursor, Store};
use clinch::stores::memory::MemoryStore;
use clinch::submit::{DuplicatePolicy, Guards, IdempotencyPolicy, LimitPolicy, LockPolicy};
use clinch_testkit::server::RedisServer;
use futures_util::future::BoxFuture;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};
use tokio::sync::{Mutex, mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tower::Layer;

use crate::common::{Answer, LONG, Service, post_as};

/// The pause between two looks at something that takes its time.
pub(crate) const POLL: Duration = Duration::from_millis(5);

/// How a handler ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Status(u16),
    /// An error of the service itself, not a response.
    Error,
    Panic,
}

/// It succeeds.
pub(crate) const DONE: End = End::Status(200);

/// The error of a service.
#[derive(Debug)]
pub(crate) struct Failed;

/// A handler that says when it begins, and runs until it is told how to end.
#[derive(Debug, Clone)]
pub(crate) struct Work {
    begun: mpsc::UnboundedSender<oneshot::Sender<End>>,
    ran: Arc<AtomicUsize>,
}

impl<B> tower::Service<Request<B>> for Work {
    type Response = Response;
    type Error = Failed;
    type Future = BoxFuture<'static, Result<Response, Failed>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Failed>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<B>) -> Self::Future {
        let work = self.clone();
        Box::pin(async move {
            work.ran.fetch_add(1, Ordering::SeqCst);
            let (end, ended) = oneshot::channel();
            let _ = work.begun.send(end);
            match ended.await.unwrap_or(DONE) {
                End::Status(status) => Ok((StatusCode::from_u16(status).unwrap(), "done").into_response()),
                End::Error => Err(Failed),
                End::Panic => panic!("a handler that panics, as it is told to"),
            }
        })
    }
}

/// A service on a socket, with a handler for the test to play.
#[derive(Clone)]
pub(crate) struct Bench {
    service: Arc<Service>,
    begun: Arc<Mutex<mpsc::UnboundedReceiver<oneshot::Sender<End>>>>,
    ran: Arc<AtomicUsize>,
}

/// What became of a request: its handler runs, or it has its answer without one.
#[must_use]
pub(crate) enum Sent {
    Running(Running),
    Answered(Answer),
}

impl Sent {
    pub(crate) fn running(self) -> Running {
        match self {
            Self::Running(running) => running,
            Self::Answered(answer) => panic!("not let in: {answer:?}"),
        }
    }

    pub(crate) fn refused(self) -> Answer {
        match self {
            Self::Running(_) => panic!("let in"),
            Self::Answered(answer) => answer,
        }
    }

    /// Whether it was let in; then it is ended.
    pub(crate) async fn was_let_in(self) -> bool {
        match self {
            Self::Running(running) => running.finish(DONE).await.status == 200,
            Self::Answered(_) => false,
        }
    }
}

/// A request whose handler runs. Dropped, the handler ends well.
#[derive(Debug)]
#[must_use]
pub(crate) struct Running {
    end: oneshot::Sender<End>,
    answer: JoinHandle<Option<Answer>>,
}

impl Running {
    /// Ends the handler, and waits for the answer to its client.
    pub(crate) async fn finish(self, end: End) -> Answer {
        self.end_by(end).await.unwrap()
    }

    /// The same, if there may be no answer.
    pub(crate) async fn end_by(self, end: End) -> Option<Answer> {
        self.end.send(end).unwrap();
        timeout(LONG, self.answer).await.unwrap().unwrap()
    }

    /// The client goes away. Returns when the handler was dropped for it.
    pub(crate) async fn leave(mut self) {
        self.answer.abort();
        timeout(LONG, self.end.closed()).await.unwrap();
    }
}

/// Sends one request on a connection of its own. No answer: the connection broke.
async fn send(url: String, mut request: Request<Full<Bytes>>, from: Option<IpAddr>) -> Option<Answer> {
    let mut connector = HttpConnector::new();
    connector.set_local_address(from);
    let client: Client<_, Full<Bytes>> =
        Client::builder(TokioExecutor::new()).pool_max_idle_per_host(0).build(connector);
    *request.uri_mut() = format!("{url}{}", request.uri()).parse().unwrap();
    let response = client.request(request).await.ok()?;
    let (status, headers) = (response.status(), response.headers().clone());
    Some(Answer { status, headers, body: response.into_body().collect().await.ok()?.to_bytes() })
}

impl Bench {
    /// Starts a service with what the closure makes of the handler.
    pub(crate) async fn start(app: impl FnOnce(Work) -> Router) -> Self {
        let (sender, begun) = mpsc::unbounded_channel();
        let work = Work { begun: sender, ran: Arc::default() };
        let ran = work.ran.clone();
        Self { service: Arc::new(Service::start(app(work)).await), begun: Arc::new(begun.into()), ran }
    }

    /// Starts a service with this guard before its handler, on one route.
    pub(crate) async fn with<L>(path: &str, layer: &L) -> Self
    where
        L: Layer<Work>,
        L::Service: tower::Service<Request<Body>, Error = Failed> + Clone + Send + Sync + 'static,
        <L::Service as tower::Service<Request<Body>>>::Response: IntoResponse + Send + 'static,
        <L::Service as tower::Service<Request<Body>>>::Future: Send,
    {
        Self::start(|work| Router::new().route_service(path, route(work, layer))).await
    }

    /// Starts a service with this policy against duplicates.
    pub(crate) async fn duplicate(path: &str, web: &Web, policy: DuplicatePolicy) -> Self {
        Self::with(path, &web.duplicate(policy).unwrap()).await
    }

    /// How many handlers began.
    pub(crate) fn ran(&self) -> usize {
        self.ran.load(Ordering::SeqCst)
    }

    /// Sends a request, and returns when its handler runs or its answer is there. One at a time.
    pub(crate) async fn submit(&self, request: Request<Full<Bytes>>) -> Sent {
        self.submit_from(None, request).await
    }

    /// The same from another address of this machine.
    pub(crate) async fn submit_from(&self, from: Option<IpAddr>, request: Request<Full<Bytes>>) -> Sent {
        let mut begun = self.begun.lock().await;
        let url = format!("http://{}", self.service.address);
        let mut answer = tokio::spawn(send(url, request, from));
        let sent = async {
            tokio::select! {
                biased;
                end = begun.recv() => Sent::Running(Running { end: end.unwrap(), answer }),
                answered = &mut answer => Sent::Answered(answered.unwrap().unwrap()),
            }
        };
        timeout(LONG, sent).await.unwrap()
    }

    /// Submits until it is let in.
    pub(crate) async fn submit_until_let_in(&self, request: impl Fn() -> Request<Full<Bytes>>) -> Running {
        let trying = async {
            loop {
                match self.submit(request()).await {
                    Sent::Running(running) => return running,
                    Sent::Answered(_) => sleep(POLL).await,
                }
            }
        };
        timeout(LONG, trying).await.unwrap()
    }

    /// Submits, and ends it well if it is let in.
    pub(crate) async fn run(&self, request: Request<Full<Bytes>>) -> Answer {
        match self.submit(request).await {
            Sent::Running(running) => running.finish(DONE).await,
            Sent::Answered(answer) => answer,
        }
    }

    /// Whether the second is refused while the first one runs.
    pub(crate) async fn are_same(&self, first: Request<Full<Bytes>>, second: Request<Full<Bytes>>) -> bool {
        let first = self.submit(first).await.running();
        let same = !self.submit(second).await.was_let_in().await;
        assert_eq!(first.finish(DONE).await.status, 200);
        same
    }
}

/// A handler behind a guard, as a service for a route; its errors become 500.
pub(crate) fn route<L>(
    work: Work,
    layer: &L,
) -> impl tower::Service<Request<Body>, Response = Response, Error = Infallible, Future: Send>
+ Clone
+ Send
+ Sync
+ 'static
where
    L: Layer<Work>,
    L::Service: tower::Service<Request<Body>, Error = Failed> + Clone + Send + Sync + 'static,
    <L::Service as tower::Service<Request<Body>>>::Response: IntoResponse + Send + 'static,
    <L::Service as tower::Service<Request<Body>>>::Future: Send,
{
    HandleError::new(layer.layer(work), async |Failed: Failed| StatusCode::INTERNAL_SERVER_ERROR)
}

/// Requests that are the same one to every guard, and others than those of any call before: what an idempotency key leaves
/// behind is not in their way.
pub(crate) fn same_orders() -> impl Fn() -> Request<Full<Bytes>> {
    static LAST: AtomicUsize = AtomicUsize::new(0);
    let n = LAST.fetch_add(1, Ordering::Relaxed);
    move || {
        let mut request = post_as("alice", "/orders", &json!({"card": "4711"}));
        request.headers_mut().insert("idempotency-key", format!("\"k-{n}\"").parse().unwrap());
        request
    }
}

/// The guards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Duplicate,
    Lock,
    Limit,
    Idempotency,
}

/// All of them, with the status by which each refuses the second one.
pub(crate) const KINDS: [(Kind, u16); 4] =
    [(Kind::Duplicate, 429), (Kind::Lock, 409), (Kind::Limit, 503), (Kind::Idempotency, 409)];

impl Kind {
    /// Starts a service behind this guard, one at a time for a long time, with what the object has in addition.
    pub(crate) async fn bench(self, web: &Web, extra: &Value) -> Bench {
        fn policy<P: serde::de::DeserializeOwned>(mut base: Value, extra: &Value) -> P {
            let (base_fields, extra) = (base.as_object_mut().unwrap(), extra.as_object().unwrap());
            base_fields.extend(extra.iter().map(|(name, value)| (name.clone(), value.clone())));
            serde_json::from_value(base).unwrap()
        }
        let path = "/orders";
        match self {
            Self::Duplicate => {
                let policy: DuplicatePolicy = policy(json!({"interval": "60s"}), extra);
                Bench::with(path, &web.duplicate(policy).unwrap()).await
            }
            Self::Lock => {
                let policy: LockPolicy = policy(json!({"key": "k", "ttl": "60s"}), extra);
                Bench::with(path, &web.lock(policy).unwrap()).await
            }
            Self::Limit => {
                let policy: LimitPolicy = policy(json!({"key": "n", "limit": 1, "ttl": "60s"}), extra);
                Bench::with(path, &web.limit(policy).unwrap()).await
            }
            Self::Idempotency => {
                let policy: IdempotencyPolicy = policy(json!({}), extra);
                Bench::with(path, &web.idempotency(policy).unwrap()).await
            }
        }
    }
}

/// An engine, and as many managers on it as one likes, as if each were in a process of its own.
pub(crate) enum Engine {
    Memory(Arc<dyn Store>),
    Redis(RedisServer),
}

impl Engine {
    pub(crate) fn both() -> [Self; 2] {
        [Self::Memory(Arc::new(MemoryStore::new())), Self::Redis(RedisServer::start())]
    }

    pub(crate) async fn connect(&self) -> LockManager {
        match self {
            Self::Memory(store) => LockManager::builder().store(store.clone()).build().unwrap(),
            Self::Redis(server) => {
                // A busy machine is not what is tested.
                LockManager::builder().call_timeout(LONG).connect(&server.url()).await.unwrap()
            }
        }
    }

    pub(crate) async fn web(&self) -> Web {
        Web::new(Guards::new(self.connect().await))
    }
}

impl std::fmt::Display for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Memory(_) => "memory",
            Self::Redis(_) => "redis",
        })
    }
}

/// All who hold something.
pub(crate) async fn holders(locks: &LockManager) -> Vec<Holder> {
    let mut all = Vec::new();
    let mut cursor = Some(Cursor::START);
    while let Some(at) = cursor {
        let page = locks.list(at).await.unwrap();
        all.extend(page.holders);
        cursor = page.next;
    }
    all
}
