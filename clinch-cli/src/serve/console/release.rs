//! `POST /console/release`: ends a lease by force. It needs the token, and is written to the audit log.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Json;
use axum::extract::{ConnectInfo, State};
use http::StatusCode;
use serde::{Deserialize, Serialize};

use super::Console;
use crate::serve::problem::Problem;

/// Which holder, by the name that the page has for it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Which {
    id: String,
}

/// What became of it.
#[derive(Debug, Serialize)]
pub(super) struct Released {
    released: bool,
    key: String,
    holder: String,
}

pub(super) async fn release(
    State(console): State<Arc<Console>>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    Json(which): Json<Which>,
) -> Result<Json<Released>, Problem> {
    let gone = || {
        let detail = "this holder is gone already, so nothing was released; a successor is never touched";
        Problem::new(StatusCode::NOT_FOUND, "holder-gone", detail)
    };
    let holder = console.sampler.find(&which.id).ok_or_else(gone)?;
    let _ = peer;
    // In a task of its own: once begun, it is carried out and written down, also if the client goes away.
    let locks = console.locks.clone();
    let released = tokio::spawn(async move {
        let released = locks.force_release(&holder).await;
        (released, holder)
    });
    let (released, holder) = released.await.map_err(|_| gone())?;
    match released {
        Ok(true) => {
            let name = holder.owner().map_or_else(|| "an unknown client".to_owned(), |owner| owner.to_string());
            Ok(Json(Released { released: true, key: holder.on().to_string(), holder: name }))
        }
        Ok(false) => Err(gone()),
        Err(error) => Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, "engine-failed", error.to_string())),
    }
}
