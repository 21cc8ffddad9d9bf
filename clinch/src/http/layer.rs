//! The layer of a guard.

use tower_layer::Layer;

use super::gate::{DuplicateGate, Gate, LimitGate, LockGate};
use super::service::GuardService;
use super::web::Web;

/// Puts a guard before a service. Made by [`Web`].
#[derive(Debug, Clone)]
pub struct GuardLayer<G> {
    web: Web,
    gate: G,
}

/// Refuses duplicate submissions: [`Web::duplicate`].
pub type DuplicateLayer = GuardLayer<DuplicateGate>;
/// Runs a service under a lock: [`Web::lock`].
pub type LockLayer = GuardLayer<LockGate>;
/// Runs a service under a concurrency limit: [`Web::limit`].
pub type LimitLayer = GuardLayer<LimitGate>;

impl<G: Gate> GuardLayer<G> {
    pub(super) const fn new(web: Web, gate: G) -> Self {
        Self { web, gate }
    }
}

impl<S, G: Gate> Layer<S> for GuardLayer<G> {
    type Service = GuardService<S, G>;

    fn layer(&self, inner: S) -> Self::Service {
        GuardService::new(inner, self.web.clone(), self.gate.clone())
    }
}
