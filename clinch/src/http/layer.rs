//! The layer of a guard.

use std::sync::Arc;

use tower_layer::Layer;

use super::gate::{DuplicateGate, Gate, LimitGate, LockGate};
use super::service::GuardService;
use super::web::Web;

/// Puts a guard before a service. Made by [`Web`].
#[derive(Debug, Clone)]
pub struct GuardLayer<G>(Arc<Guard<G>>);

/// What a guard consists of. Together, because it is cloned for every request.
#[derive(Debug)]
pub(super) struct Guard<G> {
    pub(super) web: Web,
    pub(super) gate: G,
}

/// Refuses duplicate submissions: [`Web::duplicate`].
pub type DuplicateLayer = GuardLayer<DuplicateGate>;
/// Runs a service under a lock: [`Web::lock`].
pub type LockLayer = GuardLayer<LockGate>;
/// Runs a service under a concurrency limit: [`Web::limit`].
pub type LimitLayer = GuardLayer<LimitGate>;

impl<G: Gate> GuardLayer<G> {
    pub(super) fn new(web: Web, gate: G) -> Self {
        Self(Arc::new(Guard { web, gate }))
    }
}

impl<S, G: Gate> Layer<S> for GuardLayer<G> {
    type Service = GuardService<S, G>;

    fn layer(&self, inner: S) -> Self::Service {
        GuardService::new(inner, self.0.clone())
    }
}
