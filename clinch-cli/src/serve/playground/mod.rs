//! The playground: one small service with a guard of every kind, to be disturbed on purpose.
//!
//! The handlers are written as any user of the library would write them, with attributes and with layers. Nothing here
//! decides who wins; the guards do.

mod handlers;
mod storm;

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::Response;
use axum::routing::post;
use clinch::http::{VerifiedUser, Web};
use clinch::submit::{DuplicatePolicy, Guards, IdempotencyPolicy, LimitPolicy, Limits, Settings};
use clinch::{Error, LockManager};

use self::handlers::{Desk, create_order, export, hand_out, pay, payment, report};
use self::storm::Storms;
use super::access::{Access, check_reader};
use super::connections::Phases;

/// The playground's routes.
pub(super) fn routes(
    locks: LockManager,
    body_bytes: usize,
    own: SocketAddr,
    access: &Arc<Access>,
    phases: Phases,
) -> Result<Router, Error> {
    // Whatever a configuration makes of a fleet's guards, these are to show what guards do.
    let settings = Settings::new().limits(Limits::new().body_bytes(body_bytes));
    let web = Web::new(Guards::new(locks).with_settings(settings)?);

    // One export at a time, whoever asks and for whatever.
    let gate = DuplicatePolicy::new()
        .name("export")
        .include_user(false)
        .include_params(false)
        .message("an export is running; one is enough for everybody");
    let two = LimitPolicy::new("reports", 2)
        .name("reports")
        .message("two reports are being written; try again in a moment");
    // How long it takes is no part of what is paid.
    let once = IdempotencyPolicy::new().name("payments").required(true).exclude_params(["work_ms"]);

    let guarded = Router::new()
        // By attributes: see the handlers.
        .route("/demo/orders", post(create_order))
        .route("/demo/orders/{id}/pay", post(pay))
        .route("/demo/seats/{id}", post(hand_out))
        // By layers, for handlers that know nothing of it.
        .route("/demo/export", post(export).layer(web.duplicate(gate)?))
        .route("/demo/reports", post(report).layer(web.limit(two)?))
        .route("/demo/payments", post(payment).layer(web.idempotency(once)?))
        .layer(web.layer())
        .layer(from_fn(as_one_player))
        .with_state(Desk::new(phases));
    let storms = Router::new()
        .route("/demo/storm", post(storm::storm))
        .with_state(Arc::new(Storms::new(own, access.clone())));
    Ok(guarded.merge(storms).layer(from_fn_with_state(access.clone(), check_reader)))
}

/// Whoever plays here is one user: a token is the console's and says nothing of who shows it, and what a storm sends comes from
/// the server itself.
async fn as_one_player(mut request: Request, next: Next) -> Response {
    request.extensions_mut().insert(VerifiedUser("player".to_owned()));
    next.run(request).await
}
