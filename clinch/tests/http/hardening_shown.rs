//! What an attack on the guards found in logs, in scopes, and in what is shown.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::routing::{get, post};
use bytes::Bytes;
use clinch::http::Web;
use clinch::submit::{
    DuplicatePolicy, Guards, IdempotencyPolicy, InFlight, LimitPolicy, LockPolicy, Settings,
};
use clinch::{Error, LockManager, LockOptions};
use tokio::sync::Notify;
use tower::{Layer, Service, ServiceExt};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, Subscriber, span};

fn web() -> Web {
    Web::new(Guards::new(LockManager::memory()))
}

fn req(method: &str, path: &str, body: impl Into<Body>) -> Request {
    Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", "application/json")
        .body(body.into())
        .unwrap()
}

async fn status(app: &Router, request: Request) -> u16 {
    app.clone().oneshot(request).await.unwrap().status().as_u16()
}

#[derive(Clone, Default)]
struct Warnings(Arc<Mutex<Vec<String>>>);
struct Text(String);
impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.push_str(&format!("{}={value:?} ", field.name()));
    }
}
impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::WARN
    }
    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }
    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn event(&self, event: &Event<'_>) {
        let mut text = Text(format!("{} ", event.metadata().level()));
        event.record(&mut text);
        self.0.lock().unwrap().push(text.0);
    }
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

// D9: a clamp is logged once.
#[clinch::prevent_duplicate(interval = "10m", include_user = false, manager = locks)]
async fn clamped(locks: &LockManager) -> Result<(), Error> {
    Ok(())
}

#[tokio::test]
async fn an_attribute_with_a_manager_logs_a_clamp_once() {
    let warnings = Warnings::default();
    let _logging = tracing::subscriber::set_default(warnings.clone());
    let locks = LockManager::memory();
    for _ in 0..3 {
        clamped(&locks).await.unwrap();
    }
    let logged = warnings.0.lock().unwrap().clone();
    assert_eq!(logged.len(), 1, "{logged:#?}");
}

// A stranger's long path is no error of the set-up.
#[tokio::test]
async fn what_a_client_sends_is_not_logged_as_a_guard_that_is_set_up_wrongly() {
    let warnings = Warnings::default();
    let _logging = tracing::subscriber::set_default(warnings.clone());
    let web = web();
    let app = Router::new()
        .route("/o/{id}", post(|| async { "ok" }).layer(web.lock(LockPolicy::new("order:{id}")).unwrap()));
    assert_eq!(status(&app, req("POST", &format!("/o/{}", "x".repeat(600)), "{}")).await, 400);
    let logged = warnings.0.lock().unwrap().clone();
    assert!(logged.is_empty(), "{logged:#?}");
}

// The attribute's disconnect policies.
#[clinch::prevent_duplicate(disconnect = "finish")]
async fn finishes(axum::Extension(go): axum::Extension<Arc<Notify>>) -> Result<&'static str, Error> {
    go.notified().await;
    Ok("done")
}
#[clinch::prevent_duplicate(disconnect = "release")]
async fn releases(axum::Extension(go): axum::Extension<Arc<Notify>>) -> Result<&'static str, Error> {
    go.notified().await;
    Ok("done")
}
#[clinch::prevent_duplicate(disconnect = "hold")]
async fn holds(axum::Extension(go): axum::Extension<Arc<Notify>>) -> Result<&'static str, Error> {
    go.notified().await;
    Ok("done")
}

// The clock stands still until nothing is left to do.
#[tokio::test(start_paused = true)]
async fn an_attributes_disconnect_policies_do_what_they_say() {
    let web = web();
    let go = Arc::new(Notify::new());
    let app = Router::new()
        .route("/finish", post(finishes))
        .route("/release", post(releases))
        .route("/hold", post(holds))
        .layer(web.layer())
        .layer(axum::Extension(go.clone()));
    for path in ["/finish", "/release", "/hold"] {
        let gone = app.clone().oneshot(req("POST", path, "{}"));
        assert!(tokio::time::timeout(Duration::from_millis(50), gone).await.is_err());
    }
    let left = |path: &'static str| {
        let app = app.clone();
        async move {
            let sent = app.oneshot(req("POST", path, "{}"));
            tokio::time::timeout(Duration::from_millis(50), sent).await.map(|r| r.unwrap().status().as_u16())
        }
    };
    assert_eq!(left("/finish").await.unwrap(), 429);
    assert!(left("/release").await.is_err());
    assert_eq!(left("/hold").await.unwrap(), 429);
    go.notify_one();
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(left("/finish").await.is_err());
    assert_eq!(left("/hold").await.unwrap(), 429);
}

// A guard that lets a GET pass still opens the request's scope.
#[tokio::test]
async fn a_layer_opens_the_scope_also_for_requests_that_it_lets_pass() {
    let web = web();
    let locks = web.guards().locks().clone();
    let handler = move || {
        let locks = locks.clone();
        async move {
            let again = LockOptions::new(Duration::from_secs(5)).reentrant();
            let _outer = locks.lock("a", again.clone()).await?;
            let _inner = locks.lock("a", again).await?;
            Ok::<_, Error>("ok")
        }
    };
    let app = Router::new()
        .route("/x", get(handler.clone()).post(handler).layer(web.lock(LockPolicy::new("k")).unwrap()));
    assert_eq!(status(&app, req("POST", "/x", "{}")).await, 200);
    assert_eq!(status(&app, req("GET", "/x", "")).await, 200);
}

// Debug shows no body.
#[tokio::test]
async fn the_debug_of_a_body_shows_nothing_of_it() {
    let web = web();
    let (say, mut said) = tokio::sync::mpsc::unbounded_channel();
    let inner = tower::service_fn(move |request: http::Request<clinch::http::RequestBody<_>>| {
        let _: Result<_, _> = say.send(format!("{request:?}"));
        async {
            Ok::<_, std::convert::Infallible>(http::Response::new(http_body_util::Empty::<Bytes>::new()))
        }
    });
    let mut service = web.duplicate(DuplicatePolicy::new()).unwrap().layer(inner);
    let request = http::Request::post("/login")
        .body(http_body_util::Full::new(Bytes::from_static(b"password=hunter2")))
        .unwrap();
    service.ready().await.unwrap().call(request).await.unwrap();
    let shown = said.recv().await.unwrap();
    assert!(!shown.contains("hunter2"), "{shown}");
}

// Policies as data.
#[test]
fn policies_say_the_same_in_a_file() {
    let policy = IdempotencyPolicy::new()
        .in_flight(InFlight::Wait(Duration::from_secs(10)))
        .required(true)
        .replay_headers(["X-A"]);
    let text = serde_json::to_string(&policy).unwrap();
    assert_eq!(serde_json::from_str::<IdempotencyPolicy>(&text).unwrap(), policy, "{text}");
    let policy = LimitPolicy::new("a", 3).strategy(clinch::Strategy::Proceed);
    let text = serde_json::to_string(&policy).unwrap();
    assert_eq!(serde_json::from_str::<LimitPolicy>(&text).unwrap(), policy, "{text}");
    let settings = Settings::new().shadow(true).strategy(clinch::Strategy::RetryOnce);
    let text = serde_json::to_string(&settings).unwrap();
    assert_eq!(serde_json::from_str::<Settings>(&text).unwrap(), settings, "{text}");
}

#[clinch::lock(key = "k")]
async fn forgotten() -> Result<&'static str, Error> {
    Ok("ok")
}

/// Whoever forgets the router's layer is told so in the log; the client is told nothing of it.
#[tokio::test]
async fn a_forgotten_layer_is_told_in_the_log() {
    let warnings = Warnings::default();
    let _logging = tracing::subscriber::set_default(warnings.clone());
    let app = Router::new().route("/x", post(forgotten));
    assert_eq!(status(&app, req("POST", "/x", "{}")).await, 500);
    let logged = warnings.0.lock().unwrap().clone();
    assert!(logged.len() == 1 && logged[0].contains("Web::layer"), "{logged:#?}");
}
