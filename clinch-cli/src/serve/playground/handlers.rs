//! The handlers. Each pretends to work for a while, so that there is time to come in its way.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::Json;
use axum::extract::{Path, Query, State};
use clinch::{Error, Fence, Lease};
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::serve::connections::{Phase, Phases};

/// The longest that a handler works.
pub(super) const MOST_WORK_MS: u64 = 10_000;

/// How long it works unless told.
pub(super) const WORK_MS: u64 = 1_000;

/// What the handlers share: a number for everything that was done.
#[derive(Debug, Clone)]
pub(super) struct Desk {
    last: Arc<AtomicU64>,
    phases: Phases,
}

impl Desk {
    pub(super) fn new(phases: Phases) -> Self {
        Self { last: Arc::default(), phases }
    }

    fn number(&self) -> u64 {
        self.last.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Works, but not past the server's end: what is held then is given back.
    async fn work(&self, work: Work) {
        let mut phases = self.phases.clone();
        tokio::select! {
            () = sleep(Duration::from_millis(work.work_ms.min(MOST_WORK_MS))) => {}
            () = phases.reached(Phase::Over) => {}
        }
    }
}

/// How long to work.
#[derive(Debug, Clone, Copy, Deserialize)]
pub(super) struct Work {
    #[serde(default = "usual")]
    work_ms: u64,
}

const fn usual() -> u64 {
    WORK_MS
}

/// The same order by the same user is refused while the first one is being taken, whatever its timestamp says.
#[clinch::prevent_duplicate(
    name = "orders",
    interval = "5s",
    message = "this order is being taken already; please do not submit twice",
    exclude_params = ["timestamp", "work_ms"],
    key_prefix = "orders"
)]
pub(super) async fn create_order(
    State(desk): State<Desk>,
    Query(work): Query<Work>,
    Json(order): Json<Value>,
) -> Result<(StatusCode, Json<Value>), Error> {
    desk.work(work).await;
    Ok((StatusCode::CREATED, Json(json!({"order": desk.number(), "of": order}))))
}

/// Only one at a time pays an order; the others do not wait. The fence tells a ledger who is late.
#[clinch::lock(name = "pay", key = "order:{id}", ttl_ms = 15_000, fenced, lease = lease)]
pub(super) async fn pay(
    State(desk): State<Desk>,
    Path(id): Path<String>,
    Query(work): Query<Work>,
) -> Result<Json<Value>, Error> {
    desk.work(work).await;
    let fence = lease.as_ref().and_then(Lease::fence).map(Fence::get);
    Ok(Json(json!({"paid": id, "fence": fence.map(|fence| fence.to_string())})))
}

/// One at a time, and the others wait for their turn.
#[clinch::lock(name = "seats", key = "seat:{id}", ttl_ms = 15_000, wait_ms = 10_000)]
pub(super) async fn hand_out(
    State(desk): State<Desk>,
    Path(id): Path<String>,
    Query(work): Query<Work>,
) -> Result<Json<Value>, Error> {
    desk.work(work).await;
    Ok(Json(json!({"seat": id, "ticket": desk.number()})))
}

/// Behind a gate for everybody: see the router.
pub(super) async fn export(State(desk): State<Desk>, Query(work): Query<Work>) -> Json<Value> {
    desk.work(work).await;
    Json(json!({"export": desk.number()}))
}

/// At most two at a time: see the router.
pub(super) async fn report(State(desk): State<Desk>, Query(work): Query<Work>) -> Json<Value> {
    desk.work(work).await;
    Json(json!({"report": desk.number()}))
}

/// Carried out once per `Idempotency-Key`: see the router.
pub(super) async fn payment(
    State(desk): State<Desk>,
    Query(work): Query<Work>,
    Json(payment): Json<Value>,
) -> (StatusCode, Json<Value>) {
    desk.work(work).await;
    (StatusCode::CREATED, Json(json!({"payment": desk.number(), "of": payment})))
}
