//! `POST /console/release`: ends a lease by force. It needs the token, and is written to the audit log.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use axum::Json;
use axum::extract::{ConnectInfo, State};
use clinch::{Holder, LockManager};
use http::StatusCode;
use serde::{Deserialize, Serialize};
use tokio::runtime::Handle;
use tokio::task::spawn_blocking;

use super::Console;
use crate::audit::{Audit, Wish};
use crate::engine::Engine;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::holder::View;
use crate::message::say;
use crate::serve::problem::Problem;
use crate::state;

const VIA: &str = "clinch serve";

/// Ends leases, and writes it down.
#[derive(Debug, Clone)]
pub(in crate::serve) struct Releases {
    /// `None`: there is no place for one, and so nothing is released.
    audit_log: Option<PathBuf>,
    /// The engine's address, without its password.
    engine: String,
    prefix: String,
}

/// Which holder, by its id.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Which {
    id: String,
}

/// What became of it.
#[derive(Debug, Serialize)]
pub(super) struct Released {
    released: bool,
    holder: View,
    /// Whether that could be written down too; that it was to be done is written in any case.
    logged: bool,
}

impl Releases {
    /// A log that is configured must be there; the default one is looked for when it is needed.
    pub(in crate::serve) fn new(engine: &Engine) -> Result<Self, Failure> {
        let configured = &engine.config.serve.audit_log;
        if let Some(path) = configured {
            Audit::open(path, VIA).map_err(|error| {
                let what = format!(
                    "the audit log `{}` cannot be written: {error}; nothing is served: name another one with --audit-log \
                     or `serve.audit_log`, or leave that out for the one in the user's state folder",
                    path.display()
                );
                Failure::new(Exit::IO, what)
            })?;
        }
        Ok(Self {
            audit_log: configured.clone().or_else(state::audit_log),
            engine: engine.shown(),
            prefix: engine.config.prefix.clone(),
        })
    }

    /// Ends the lease of exactly this holder. It blocks: the wish is on the disk before anything is done.
    fn end(
        &self,
        locks: &LockManager,
        holder: &Holder,
        peer: SocketAddr,
        runtime: &Handle,
    ) -> Result<Released, Problem> {
        let unlogged = |error: std::io::Error| {
            say(&format!("the audit log cannot be written: {error}; nothing was released"));
            let detail =
                "the audit log cannot be written, so nothing was released; the server's own messages say why";
            Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "not-logged", detail)
        };
        let no_place =
            || std::io::Error::other("there is no place for it: configure `serve.audit_log`, or set HOME");
        // Opened for each: it may have been moved away by whoever keeps logs.
        let path = self.audit_log.as_deref().ok_or_else(no_place).map_err(unlogged)?;
        let audit = Audit::open(path, VIA).map_err(unlogged)?;
        let from = peer.to_string();
        let wish = Wish { holder, engine: &self.engine, prefix: &self.prefix, from: Some(&from) };
        let asked = audit.asked(wish).map_err(unlogged)?;
        let released = runtime.block_on(locks.force_release(holder));
        let logged = asked.ended(released.as_ref().copied());
        if let Err(error) = &logged {
            say(&format!("what came of a force-release could not be written to the audit log: {error}"));
        }
        match released {
            Ok(true) => Ok(Released { released: true, holder: View::new(holder), logged: logged.is_ok() }),
            Ok(false) => Err(gone()),
            Err(error) => Err(engine_failed(&error)),
        }
    }
}

fn gone() -> Problem {
    let detail = "this holder is gone already, so nothing was released; a successor is never touched";
    Problem::new(StatusCode::NOT_FOUND, "holder-gone", detail)
}

fn engine_failed(error: &clinch::Error) -> Problem {
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, "engine-failed", error.to_string())
}

pub(super) async fn release(
    State(console): State<Arc<Console>>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    Json(which): Json<Which>,
) -> Result<Json<Released>, Problem> {
    let found = console.sampler.find(&which.id).await.map_err(|error| engine_failed(&error))?;
    let holder = found.ok_or_else(gone)?;
    let runtime = Handle::current();
    // Once begun, it is carried out and written down, also if the client goes away.
    let ended = spawn_blocking(move || console.releases.end(&console.locks, &holder, peer, &runtime)).await;
    let failed =
        |_| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "failed", "what came of it is not known");
    ended.map_err(failed)?.map(Json)
}
