//! Metrics: what the library measures in this process, for Prometheus and for the console.
//!
//! A recorder of our own for the `metrics` facade, because the console draws the same numbers that Prometheus scrapes, and
//! because it costs no more memory after a year than after an hour: every histogram has fixed buckets.

mod buckets;
mod pulse;
mod recorder;
mod render;

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use clinch::telemetry;
use http::header;

pub(super) use self::pulse::{Hold, Pulse, Pulses};
pub(super) use self::recorder::Recorder;
use super::access::{Access, check_reader};

/// Records what this process does from now on. `None` if somebody else does already, which cannot be in this program.
pub(super) fn install() -> Option<Arc<Recorder>> {
    let recorder = Arc::new(Recorder::default());
    metrics::set_global_recorder(recorder.clone()).ok()?;
    telemetry::describe();
    Some(recorder)
}

pub(super) fn routes(recorder: Arc<Recorder>, access: &Arc<Access>) -> Router {
    let reading = from_fn_with_state(access.clone(), check_reader);
    Router::new().route("/metrics", get(scrape).layer(reading)).with_state(recorder)
}

async fn scrape(State(recorder): State<Arc<Recorder>>) -> Response {
    let content_type = [(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")];
    (content_type, render::text(&recorder)).into_response()
}
