//! The engine that a command talks to.

use clinch::{Error, LockManager};

/// Where it is, and what its keys begin with.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) url: String,
    pub(crate) prefix: String,
}

impl Engine {
    /// A manager on it.
    pub(crate) async fn connect(&self) -> Result<LockManager, Error> {
        LockManager::builder().prefix(self.prefix.as_str()).connect(&self.url).await
    }
}
