//! What attributes know of the request that they run in. The HTTP layer provides it; nothing here knows HTTP.

use std::pin::Pin;
use std::sync::Arc;

use super::policy::{Disconnect, DuplicatePolicy};
use super::submission::Submission;
use crate::error::Error;
use crate::key::Key;

tokio::task_local! {
    static CURRENT: Arc<dyn Request>;
}

/// How a refusal is to be answered, where that is not as usual.
#[derive(Debug, Clone, Default)]
pub(crate) struct Answer {
    /// The key that was refused.
    pub(crate) key: Option<Key>,
    pub(crate) status: Option<u16>,
    pub(crate) message: Option<String>,
}

/// What asking a request for its submission returns.
pub(crate) type Submitting<'a> = Pin<Box<dyn Future<Output = Result<Submission, Error>> + Send + 'a>>;

/// A request, as far as an attribute is concerned.
pub(crate) trait Request: Send + Sync {
    /// What was submitted by it, as far as the policy looks at that.
    fn submission<'a>(&'a self, policy: &'a DuplicatePolicy) -> Submitting<'a>;

    /// What is to happen if the client goes away from now on.
    fn on_disconnect(&self, disconnect: Disconnect);

    /// How a refusal by the attribute is to be answered.
    fn answer_with(&self, answer: Answer);

    /// How the last refusal is to be answered.
    fn answer(&self) -> Answer;

    /// What its client calls itself.
    fn user_agent(&self) -> Option<String>;
}

/// The request that the running task serves.
pub(crate) fn current() -> Option<Arc<dyn Request>> {
    CURRENT.try_with(Arc::clone).ok()
}

/// Runs a future that serves this request.
#[cfg(feature = "http")]
pub(crate) async fn serve<F: Future>(request: Arc<dyn Request>, future: F) -> F::Output {
    CURRENT.scope(request, future).await
}
