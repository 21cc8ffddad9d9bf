//! `GET /console/events`: what there is to see, as it happens.

use std::convert::Infallible;
use std::sync::Arc;

use axum::extract::{Query, State};
use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use http::{HeaderValue, StatusCode, header};
use serde::Serialize;
use tokio::sync::{OwnedSemaphorePermit, watch};

use super::Console;
use super::sampler::Sample;
use super::view::{Wish, view};
use crate::serve::connections::{Phase, Phases};
use crate::serve::metrics::{Hold, Pulse};
use crate::serve::problem::Problem;

/// One who watches.
struct Watcher {
    console: Arc<Console>,
    samples: watch::Receiver<Arc<Sample>>,
    pulses: watch::Receiver<Option<Pulse>>,
    wish: Wish,
    phases: Phases,
    greeted: bool,
    /// Its place among those who may watch.
    _place: OwnedSemaphorePermit,
}

/// What was measured in the last second.
#[derive(Debug, Serialize)]
struct News {
    last: Option<Pulse>,
    hold: Hold,
}

pub(super) async fn events(State(console): State<Arc<Console>>, Query(wish): Query<Wish>) -> Response {
    let Ok(place) = console.watchers.clone().try_acquire_owned() else {
        let detail = "too many watch already; close another console";
        let problem = Problem::new(StatusCode::SERVICE_UNAVAILABLE, "too-many-watchers", detail);
        let soon = [(header::RETRY_AFTER, HeaderValue::from_static("5"))];
        return (soon, problem).into_response();
    };
    let watcher = Watcher {
        samples: console.sampler.watch(),
        pulses: console.pulses.watch(),
        phases: console.phases.clone(),
        console,
        wish,
        greeted: false,
        _place: place,
    };
    let events = stream::unfold(watcher, async |mut watcher| {
        let event = watcher.next().await?;
        Some((Ok::<_, Infallible>(event), watcher))
    });
    Sse::new(events).into_response()
}

impl Watcher {
    /// What this server is, then every sample. `None` when the server drains.
    async fn next(&mut self) -> Option<Event> {
        if !self.greeted {
            self.greeted = true;
            return Event::default().event("hello").json_data(self.console.greeting()).ok();
        }
        tokio::select! {
            biased;
            () = self.phases.reached(Phase::Draining) => return None,
            changed = self.pulses.changed() => {
                changed.ok()?;
                let last = *self.pulses.borrow_and_update();
                let news = News { last, hold: self.console.pulses.hold() };
                return Event::default().event("pulse").json_data(news).ok();
            }
            changed = self.samples.changed() => changed.ok()?,
        }
        let sample = self.samples.borrow_and_update().clone();
        Event::default().event("state").json_data(view(&sample, &self.wish)).ok()
    }
}
