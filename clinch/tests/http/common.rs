//! Services on real sockets, clients that talk to them, and the two engines below.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::serve::ListenerExt;
use bytes::Bytes;
use clinch::LockManager;
use clinch::http::Web;
use clinch::submit::Guards;
use clinch_testkit::server::RedisServer;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// Long enough for anything that happens at all, on a busy machine too.
pub(crate) const LONG: Duration = Duration::from_secs(30);

/// A service on a free port of this machine. It ends with this value.
pub(crate) struct Service {
    pub(crate) address: SocketAddr,
    serving: JoinHandle<()>,
    http1: Client<HttpConnector, Full<Bytes>>,
    http2: Client<HttpConnector, Full<Bytes>>,
}

impl Drop for Service {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl Service {
    pub(crate) async fn start(app: Router) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        // Without it, a small answer can wait for 40 ms.
        let listener = listener.tap_io(|stream| stream.set_nodelay(true).unwrap());
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        let app = app.into_make_service_with_connect_info::<SocketAddr>();
        let serving = tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        let client = || Client::builder(TokioExecutor::new());
        let (http1, http2) = (client().build(connector.clone()), client().http2_only(true).build(connector));
        Self { address, serving, http1, http2 }
    }

    /// Sends a request and reads its answer.
    pub(crate) async fn send(&self, request: Request<Full<Bytes>>) -> Answer {
        self.send_by(&self.http1, request).await
    }

    /// The same over HTTP/2.
    pub(crate) async fn send_http2(&self, request: Request<Full<Bytes>>) -> Answer {
        self.send_by(&self.http2, request).await
    }

    async fn send_by(
        &self,
        client: &Client<HttpConnector, Full<Bytes>>,
        mut request: Request<Full<Bytes>>,
    ) -> Answer {
        let target = format!("http://{}{}", self.address, request.uri());
        *request.uri_mut() = target.parse().unwrap();
        let answering = async {
            let response = client.request(request).await.unwrap();
            let (status, headers) = (response.status(), response.headers().clone());
            Answer { status, headers, body: response.into_body().collect().await.unwrap().to_bytes() }
        };
        timeout(LONG, answering).await.expect("the service answers")
    }
}

/// An answer, read to its end.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }
}

/// A request with a JSON body.
pub(crate) fn post(path: &str, body: &Value) -> Request<Full<Bytes>> {
    Request::builder()
        .method(Method::POST)
        .uri(path)
        .header("content-type", "application/json")
        .body(Full::new(body.to_string().into()))
        .unwrap()
}

/// The same from a user.
pub(crate) fn post_as(user: &str, path: &str, body: &Value) -> Request<Full<Bytes>> {
    let mut request = post(path, body);
    request.headers_mut().insert("authorization", format!("Bearer {user}").parse().unwrap());
    request
}

/// The two engines on which everything is shown, each with what keeps it alive.
pub(crate) async fn engines() -> [(&'static str, Web, Option<RedisServer>); 2] {
    let server = RedisServer::start();
    // A busy machine is not what is tested.
    let redis = LockManager::builder().call_timeout(LONG).connect(&server.url()).await.unwrap();
    [
        ("memory", Web::new(Guards::new(LockManager::memory())), None),
        ("redis", Web::new(Guards::new(redis)), Some(server)),
    ]
}

/// A layer in between that gives up when it is told to, as one with a time limit does: `from_fn_with_state(told, gives_up)`.
pub(crate) async fn gives_up(
    State(told): State<Arc<Notify>>,
    request: axum::extract::Request,
    next: Next,
) -> Response {
    tokio::select! {
        response = next.run(request) => response,
        () = told.notified() => StatusCode::GATEWAY_TIMEOUT.into_response(),
    }
}
