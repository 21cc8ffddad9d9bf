//! The console: one page, what it shows, and what it may do.

mod assets;
mod events;
mod release;
mod sampler;
mod view;

use std::sync::Arc;

use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::routing::{get, post};
use clinch::LockManager;
use serde::Serialize;
use tokio::sync::Semaphore;

pub(super) use self::release::Releases;
pub(super) use self::sampler::Sampler;
use super::access::{Access, check_reader, check_token};
use super::connections::Phases;
use super::metrics::{Hold, Pulse, Pulses};

/// The console's server side.
#[derive(Debug)]
pub(super) struct Console {
    pub(super) locks: LockManager,
    pub(super) sampler: Arc<Sampler>,
    pub(super) pulses: Arc<Pulses>,
    pub(super) releases: Releases,
    /// How many may watch.
    pub(super) watchers: Arc<Semaphore>,
    pub(super) phases: Phases,
    pub(super) engine: String,
    pub(super) playground: bool,
}

/// What the page is told about this server.
#[derive(Debug, Serialize)]
struct Greeting<'a> {
    version: &'static str,
    engine: &'a str,
    playground: bool,
    history: Vec<Pulse>,
    hold: Hold,
}

impl Console {
    fn greeting(&self) -> Greeting<'_> {
        Greeting {
            version: env!("CARGO_PKG_VERSION"),
            engine: &self.engine,
            playground: self.playground,
            history: self.pulses.history(),
            hold: self.pulses.hold(),
        }
    }

    /// Its routes. The page itself says nothing about anything, so everybody may have it.
    pub(super) fn routes(self, access: &Arc<Access>) -> Router {
        let reading = from_fn_with_state(access.clone(), check_reader);
        let acting = from_fn_with_state(access.clone(), check_token);
        Router::new()
            .route("/console/events", get(events::events).layer(reading))
            .route("/console/release", post(release::release).layer(acting))
            .with_state(Arc::new(self))
            .route("/", get(assets::page))
            .route("/console/{file}", get(assets::file))
    }
}
