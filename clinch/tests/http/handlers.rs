//! Attributes on axum handlers, with the one layer on the router that they need.

use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use axum::routing::post as on_post;
use axum::{Json, Router};
use http::StatusCode;
use serde_json::{Value, json};

use crate::bench::{Case, Engine, Probe};
use crate::common::{LONG, Service, post_as};
use crate::wire::{Client, Way};

/// The application's own error.
enum ApiError {
    SoldOut,
    Guard(clinch::Error),
}

impl From<clinch::Error> for ApiError {
    fn from(error: clinch::Error) -> Self {
        Self::Guard(error)
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        match self {
            Self::SoldOut => (StatusCode::GONE, "sold out").into_response(),
            Self::Guard(error) => error.into_response(),
        }
    }
}

#[clinch::prevent_duplicate(
    interval = "30s",
    message = "please do not submit twice",
    exclude_params = ["timestamp"],
    key_prefix = "order"
)]
async fn create_order(State(probe): State<Probe>, Json(order): Json<Value>) -> Result<Json<Value>, ApiError> {
    probe.run().await;
    if order["item"] == 0 {
        return Err(ApiError::SoldOut);
    }
    Ok(Json(order))
}

#[clinch::lock(key = "order:{order_id}", ttl_ms = 30_000)]
async fn pay(
    State(probe): State<Probe>,
    Path(order_id): Path<String>,
    Json(body): Json<Value>,
) -> Result<Json<Value>, ApiError> {
    probe.run().await;
    Ok(Json(json!({"paid": order_id, "with": body})))
}

#[clinch::limit(key = "export", limit = 1, ttl_ms = 30_000)]
async fn export(State(probe): State<Probe>) -> Result<&'static str, ApiError> {
    Ok(probe.run().await)
}

async fn shop(case: &Case<'_>, probe: &Probe) -> Service {
    let app = Router::new()
        .route("/orders", on_post(create_order))
        .route("/orders/{order_id}/pay", on_post(pay))
        .route("/export", on_post(export))
        .layer(case.web.layer())
        .with_state(probe.clone());
    Service::start(probe.watch(app)).await
}

/// What is sent twice, what is another request, and the status of the one that is refused.
fn cases() -> [(&'static str, Value, Value, &'static str, Value, u16); 3] {
    let (order, later) = (json!({"item": 7, "timestamp": 1}), json!({"timestamp": 2, "item": 7}));
    [
        ("/orders", order, later, "/orders", json!({"item": 8}), 429),
        ("/orders/42/pay", json!({"card": 1}), json!({"card": 2}), "/orders/43/pay", json!({"card": 1}), 409),
        ("/export", json!({}), json!({}), "/orders", json!({"item": 9}), 503),
    ]
}

/// While the first one runs, the same is refused and something else is not; after it, the same is let in again. Over HTTP/1.1
/// and over HTTP/2.
///
/// Proves: D1, D6, L10, L11
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attributes_guard_axum_handlers() {
    for engine in Engine::both() {
        for (path, first, again, other_path, other, status) in cases() {
            let (case, probe) = (engine.case().await, Probe::new());
            let service = shop(&case, &probe).await;
            let what = format!("{} {path}", engine.name());
            let send = |path: &'static str, body: &Value| service.send(post_as("alice", path, body));
            let second = async {
                probe.until("the first one runs", |seen| seen.entered == 1).await;
                for refused in
                    [send(path, &again).await, service.send_http2(post_as("alice", path, &again)).await]
                {
                    assert_eq!(refused.status, status, "{what}");
                    assert_eq!(refused.header("content-type"), Some("application/problem+json"), "{what}");
                    let (problem, after) = (refused.json(), refused.header("retry-after").unwrap());
                    let left = problem["remainingTime"].as_u64().unwrap();
                    assert!((1..=30_000).contains(&left), "{what}: {problem}");
                    assert_eq!(problem["retryAfter"], left.div_ceil(1_000), "{what}");
                    assert_eq!(after, left.div_ceil(1_000).to_string(), "{what}");
                    if status == 429 {
                        assert_eq!(problem["message"], "please do not submit twice", "{what}");
                        assert_eq!(problem["inProgress"], true, "{what}");
                    }
                }
                let different = send(other_path, &other);
                let ending = async {
                    probe.until("something else runs", |seen| seen.entered == 2).await;
                    probe.open(2);
                };
                assert_eq!(tokio::join!(different, ending).0.status, 200, "{what}");
            };
            let (done, ()) = tokio::join!(send(path, &first), second);
            assert_eq!(done.status, 200, "{what}");
            // The answer comes after the release, so nobody has to wait for it.
            probe.open(1);
            assert_eq!(send(path, &again).await.status, 200, "{what}");
            case.free().await;
        }
    }
}

/// A handler's own error is its answer, and gives the key back.
///
/// Proves: D7
/// Fault: 43
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_with_an_attribute_that_fails_gives_it_back() {
    for engine in Engine::both() {
        let (case, probe) = (engine.case().await, Probe::new());
        let service = shop(&case, &probe).await;
        for _ in 0..2 {
            probe.open(1);
            let answer = service.send(post_as("alice", "/orders", &json!({"item": 0}))).await;
            assert_eq!((answer.status.as_u16(), answer.text()), (410, "sold out"), "{}", engine.name());
        }
        case.free().await;
    }
}

/// When its client goes away, a handler with `prevent_duplicate` runs on to its end and keeps its place meanwhile; one with `lock`
/// or `limit` is dropped and makes room.
///
/// Proves: D7, D11
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_of_handlers_with_attributes_may_go_away() {
    for engine in Engine::both() {
        for way in Way::ALL {
            for (path, first, again, _, _, status) in cases() {
                let what = format!("{} {path} {way:?}", engine.name());
                let (case, probe) = (engine.case().await, Probe::new());
                let service = shop(&case, &probe).await;
                let client = Client::send(way, service.address, post_as("alice", path, &first)).await;
                probe.until("the handler runs", |seen| seen.entered == 1).await;
                let _kept = client.leave(way).await;
                probe.until("the request is given up", |seen| seen.left == 1).await;
                if status == 429 {
                    let refused = service.send(post_as("alice", path, &again)).await;
                    assert_eq!(refused.status, 429, "{what}");
                    probe.open(1);
                    probe.until("it runs to its end", |seen| seen.finished == 1).await;
                } else {
                    probe.until("it is dropped", |seen| seen.dropped == 1).await;
                }
                case.free().await;
                probe.open(1);
                let after = service.send(post_as("alice", path, &again));
                assert_eq!(tokio::time::timeout(LONG, after).await.unwrap().status, 200, "{what}");
                case.settle().await;
            }
        }
    }
}
