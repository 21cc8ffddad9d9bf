//! The guards of a web service: with how its users are told apart, and how they are refused.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Method, Response, StatusCode};

use super::gate::{DuplicateGate, LimitGate, LockGate};
use super::idempotency::IdempotencyLayer;
use super::layer::GuardLayer;
use super::look::user_agent;
use super::response_body::ResponseBody;
use super::served::WebLayer;
use super::{Identify, IdentityChain, ProblemJson, Refusal, Refuse, Statuses};
use crate::error::Error;
use crate::submit::{DuplicatePolicy, Guards, IdempotencyPolicy, LimitPolicy, LockPolicy, log_duplicate};

tokio::task_local! {
    /// What serves the running task's request.
    static CURRENT: Web;
}

/// Marks the answer of a guard, as opposed to that of a handler.
#[derive(Debug, Clone, Copy)]
pub(super) struct Refused;

/// The guards of a web service: [`Guards`], how users are told apart, and how they are refused. Makes layers. Clones are the
/// same.
///
/// ```
/// use axum::{Router, routing::post};
/// use clinch::LockManager;
/// use clinch::http::Web;
/// use clinch::submit::{DuplicatePolicy, Guards, LockPolicy};
///
/// # async fn create_order() {}
/// # async fn pay() {}
/// # fn main() -> Result<(), clinch::Error> {
/// let web = Web::new(Guards::new(LockManager::memory()));
/// let app: Router = Router::new()
///     .route("/orders", post(create_order).layer(web.duplicate(DuplicatePolicy::new())?))
///     .route("/orders/{id}/pay", post(pay).layer(web.lock(LockPolicy::new("order:{id}"))?))
///     .layer(web.layer()); // for handlers with attributes
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Web(Arc<Inner>);

#[derive(Clone)]
struct Inner {
    guards: Guards,
    identity: Arc<dyn Identify>,
    refuse: Arc<dyn Refuse>,
    statuses: Statuses,
}

impl fmt::Debug for Web {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Web").field("guards", &self.0.guards).finish_non_exhaustive()
    }
}

impl Web {
    /// With the default chain of identities, and refusals as problem details.
    pub fn new(guards: Guards) -> Self {
        Self(Arc::new(Inner {
            guards,
            identity: Arc::new(IdentityChain::default()),
            refuse: Arc::new(ProblemJson),
            statuses: Statuses::default(),
        }))
    }

    /// Tells users apart in this way.
    #[must_use]
    pub fn with_identity(mut self, identity: impl Identify) -> Self {
        Arc::make_mut(&mut self.0).identity = Arc::new(identity);
        self
    }

    /// Refuses in this way.
    #[must_use]
    pub fn with_refusals(mut self, refuse: impl Refuse) -> Self {
        Arc::make_mut(&mut self.0).refuse = Arc::new(refuse);
        self
    }

    /// Refuses with these statuses.
    ///
    /// # Errors
    /// [`Error::InvalidOption`] for one outside of 400 to 599.
    pub fn with_statuses(mut self, statuses: Statuses) -> Result<Self, Error> {
        statuses.check()?;
        Arc::make_mut(&mut self.0).statuses = statuses;
        Ok(self)
    }

    /// The guards.
    pub fn guards(&self) -> &Guards {
        &self.0.guards
    }

    /// The one layer on the router that handlers with attributes need: it gives them the manager and the settings, tells them
    /// what was submitted, and opens the request's scope.
    ///
    /// Authentication that puts a [`VerifiedUser`](super::VerifiedUser) into requests belongs outside of it: in axum, into a
    /// `.layer(…)` that is added after this one.
    ///
    /// To tell what was submitted it remembers what is read of a request's body, up to the limit of the settings.
    pub fn layer(&self) -> WebLayer {
        WebLayer::new(self.clone())
    }

    /// A layer that refuses duplicate submissions.
    ///
    /// # Errors
    /// [`Error::InvalidOption`] if the policy cannot work.
    pub fn duplicate(&self, policy: DuplicatePolicy) -> Result<GuardLayer<DuplicateGate>, Error> {
        Ok(GuardLayer::new(self.clone(), DuplicateGate::new(policy)?))
    }

    /// A layer that runs the handler under a lock. The template's placeholders are parameters of the path or of the query.
    ///
    /// The key is made of their text as it was sent: a handler that reads `042` as the number 42 works on it under another lock
    /// than that of `42`. Where a parameter has several spellings, the attribute is the better guard: its key is made of what the
    /// handler got.
    ///
    /// # Errors
    /// [`Error::InvalidOption`], or [`Error::InvalidKey`], if the policy cannot work.
    pub fn lock(&self, policy: LockPolicy) -> Result<GuardLayer<LockGate>, Error> {
        self.guards().check_options(policy.options(None))?;
        Ok(GuardLayer::new(self.clone(), LockGate::new(policy)?))
    }

    /// A layer that runs at most so many handlers at a time. The template's placeholders are parameters of the path or of the
    /// query.
    ///
    /// # Errors
    /// [`Error::InvalidOption`], or [`Error::InvalidKey`], if the policy cannot work.
    pub fn limit(&self, policy: LimitPolicy) -> Result<GuardLayer<LimitGate>, Error> {
        self.guards().check_options(policy.options(None))?;
        Ok(GuardLayer::new(self.clone(), LimitGate::new(policy)?))
    }

    /// A layer that carries out requests with an `Idempotency-Key` once, and answers their repetitions from the stored result.
    ///
    /// # Errors
    /// [`Error::InvalidOption`] if the policy cannot work.
    pub fn idempotency(&self, policy: IdempotencyPolicy) -> Result<IdempotencyLayer, Error> {
        IdempotencyLayer::new(self.clone(), policy)
    }

    /// Whether a guard looks at requests of this method.
    pub(super) fn guards_method(&self, enabled: bool, safe_methods: bool, method: &Method) -> bool {
        let safe = matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS);
        self.guards().is_on(enabled) && (safe_methods || !safe)
    }

    pub(super) fn identity(&self) -> &dyn Identify {
        &*self.0.identity
    }

    /// What serves the running task's request.
    pub(super) fn current() -> Option<Self> {
        CURRENT.try_with(Self::clone).ok()
    }

    /// Runs a future that serves a request of this service.
    pub(super) async fn serve<F: Future>(self, future: F) -> F::Output {
        CURRENT.scope(self, future).await
    }

    /// Answers with a refusal. What the policy itself says counts before what the service says.
    pub(super) fn refusal(
        &self,
        mut refusal: Refusal,
        status: Option<u16>,
        message: Option<&str>,
    ) -> Response<Bytes> {
        refusal.status = self.0.statuses.of(refusal.kind);
        // It speaks of those who are in the way of each other, not of engines that fail or bodies that are too large.
        if refusal.kind.is_denial() {
            if let Some(status) = status.and_then(|status| StatusCode::from_u16(status).ok()) {
                refusal.status = status;
            }
            if let Some(message) = message {
                message.clone_into(&mut refusal.message);
            }
        }
        let mut response = self.0.refuse.refuse(&refusal);
        response.extensions_mut().insert(Refused);
        response
    }

    /// The same for an error, which is logged.
    pub(super) fn refuse<B>(
        &self,
        error: Error,
        headers: &HeaderMap,
        status: Option<u16>,
        message: Option<&str>,
    ) -> Response<ResponseBody<B>> {
        log_duplicate(&error, || user_agent(headers));
        self.refusal(Refusal::taken_from(error), status, message).map(ResponseBody::whole)
    }
}
