//! `GET /healthz`, `GET /readyz`: whether the process lives, and whether its engine answers.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use clinch::LockManager;
use http::{HeaderMap, StatusCode, Uri};
use serde_json::json;

use super::access::Access;

/// How long the engine has to answer.
const LIMIT: Duration = Duration::from_secs(2);

/// What is asked about.
#[derive(Debug)]
pub(super) struct Health {
    pub(super) locks: LockManager,
    pub(super) engine: String,
    pub(super) access: Arc<Access>,
}

impl Health {
    /// The routes. They answer whatever the request calls us, because those who look after processes call them by
    /// many names; but only those who may read are told more than a word.
    pub(super) fn routes(self) -> Router {
        Router::new()
            .route("/healthz", get(async || Json(json!({"status": "up"}))))
            .route("/readyz", get(ready))
            .with_state(Arc::new(self))
    }
}

async fn ready(State(health): State<Arc<Health>>, uri: Uri, headers: HeaderMap) -> Response {
    let found = health.locks.health(LIMIT).await;
    let status = if found.up { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let word = if found.up { "up" } else { "down" };
    if !health.access.may_read(&uri, &headers) {
        return (status, Json(json!({"status": word}))).into_response();
    }
    let body = json!({
        "status": word,
        "engine": found.engine,
        "address": health.engine,
        "server": found.server,
        "version": found.version,
        "latency_ms": found.latency.map(|took| took.as_secs_f64() * 1000.0),
        "degraded": found.degraded,
        "error": found.error,
        "clinch": env!("CARGO_PKG_VERSION"),
    });
    (status, Json(body)).into_response()
}
