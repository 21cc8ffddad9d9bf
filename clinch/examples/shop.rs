//! A small web shop with a guard of every kind. `cargo run -p clinch --features axum --example shop`, and then:
//!
//! ```sh
//! curl -i -H 'Content-Type: application/json' -d '{"item": 7, "timestamp": 1}' localhost:4780/orders    # twice within 5 s: 429
//! curl -i -X POST 'localhost:4780/orders/42/pay?work_ms=3000'                                           # twice at once: 409
//! curl -i -X POST 'localhost:4780/export?work_ms=3000'                                                  # three at once: 503
//! curl -i -X POST -H 'Idempotency-Key: "k1"' localhost:4780/refunds                                     # twice: the same answer
//! ```
//!
//! It is for one process on the embedded memory engine, and for many with `CLINCH_STORE=redis://127.0.0.1:6379`. `SHOP_LISTEN`
//! is the address it listens on.
#![allow(clippy::print_stdout, reason = "a program that talks to a person")]

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::extract::{Path, Query};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use clinch::http::{Held, IdentityChain, TrustedProxies, Web};
use clinch::submit::{DuplicatePolicy, Guards, IdempotencyPolicy, LimitPolicy, LockPolicy, Settings};
use clinch::{Lease, LockManager};
use serde::Deserialize;
use serde_json::{Value, json};

/// The shop's own errors. Those of the guards are part of them, and are responses by themselves.
enum ApiError {
    NoSuchItem(u32),
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
            Self::NoSuchItem(item) => {
                (http::StatusCode::NOT_FOUND, format!("there is no item {item}")).into_response()
            }
            Self::Guard(error) => error.into_response(),
        }
    }
}

#[derive(Deserialize)]
struct NewOrder {
    item: u32,
}

/// How long a handler works, so that there is time to come in its way.
#[derive(Deserialize)]
struct Work {
    #[serde(default)]
    work_ms: u64,
}

impl Work {
    async fn done(&self) {
        tokio::time::sleep(Duration::from_millis(self.work_ms.min(10_000))).await;
    }
}

fn next_number() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    LAST.fetch_add(1, Ordering::Relaxed) + 1
}

/// The same order by the same user within 5 s is refused, whatever its timestamp says; one that failed may be sent again.
#[clinch::prevent_duplicate(
    interval = "5s",
    message = "please do not submit twice",
    exclude_params = ["timestamp"],
    key_prefix = "order",
    release = "on_failure"
)]
async fn create_order(
    Query(work): Query<Work>,
    Json(order): Json<NewOrder>,
) -> Result<Json<Value>, ApiError> {
    work.done().await;
    if order.item == 0 {
        return Err(ApiError::NoSuchItem(order.item));
    }
    Ok(Json(json!({"order": next_number(), "item": order.item})))
}

/// Only one at a time pays an order. The fence tells the ledger who is late.
#[clinch::lock(key = "order:{order_id}", ttl_ms = 15_000, fenced, reentrant, lease = lease)]
async fn pay(Path(order_id): Path<String>, Query(work): Query<Work>) -> Result<Json<Value>, ApiError> {
    work.done().await;
    note_payment(&order_id).await?;
    // As a text: it is beyond what a number is exact to in JavaScript.
    let fence = lease.as_ref().and_then(Lease::fence).map(|fence| fence.get().to_string());
    Ok(Json(json!({"paid": order_id, "fence": fence})))
}

/// Under the same lock, which the request has already: it enters again.
#[clinch::lock(key = "order:{order_id}", ttl_ms = 15_000, reentrant)]
async fn note_payment(order_id: &str) -> Result<(), clinch::Error> {
    Ok(())
}

/// At most two at a time, in the whole fleet.
#[clinch::limit(key = "export", limit = 2, message = "two exports are running; try again in a moment")]
async fn export(Query(work): Query<Work>) -> Result<&'static str, ApiError> {
    work.done().await;
    Ok("exported\n")
}

/// Guarded by layers: see the router.
async fn work(Query(work): Query<Work>, held: Option<Held>) -> Json<Value> {
    work.done().await;
    let degraded = held.is_some_and(|Held(lease)| lease.is_degraded());
    Json(json!({"number": next_number(), "degraded": degraded}))
}

/// The shop on these locks.
fn shop(locks: LockManager) -> Result<Router, clinch::Error> {
    let guards =
        Guards::new(locks).with_settings(Settings::new().release_within(Duration::from_millis(500)))?;
    // Users are told apart by their token, a `userId`, their session or their address. A proxy on this machine is believed.
    let users = IdentityChain::behind(TrustedProxies::parse(["127.0.0.1", "::1"])?);
    let web = Web::new(guards.clone()).with_identity(users);
    Ok(Router::new()
        .route("/orders", post(create_order))
        .route("/orders/{order_id}/pay", post(pay))
        .route("/export", post(export))
        // The same as layers, for handlers that know nothing of it.
        .route(
            "/comments",
            post(work).layer(web.duplicate(DuplicatePolicy::new().min_hold(Duration::from_secs(1)))?),
        )
        .route(
            "/stock/{item}",
            post(work).layer(web.lock(LockPolicy::new("stock:{item}").wait(Duration::from_secs(2)))?),
        )
        .route("/reports", post(work).layer(web.limit(LimitPolicy::new("reports", 2))?))
        .route("/refunds", post(work).layer(web.idempotency(IdempotencyPolicy::new().required(true))?))
        .layer(web.layer())
        .route("/statistics", get(async move || format!("{:#?}\n", guards.statistics()))))
}

#[tokio::main]
pub(crate) async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let store = std::env::var("CLINCH_STORE").unwrap_or("memory:".into());
    let listen = std::env::var("SHOP_LISTEN").unwrap_or("127.0.0.1:4780".into());
    let locks = LockManager::connect(&store).await?;
    let listener = tokio::net::TcpListener::bind(&listen).await?;
    println!("the shop is open on http://{}", listener.local_addr()?);
    let app = shop(locks.clone())?.into_make_service_with_connect_info::<SocketAddr>();
    let closed = async { drop(tokio::signal::ctrl_c().await) };
    axum::serve(listener, app).with_graceful_shutdown(closed).await?;
    // What handlers still hold is given back before the program ends.
    locks.shutdown(Duration::from_secs(5)).await;
    Ok(())
}
