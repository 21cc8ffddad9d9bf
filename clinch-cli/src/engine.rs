//! The engine that a command talks to.

use clinch::stores::without_password;
use clinch::{Error, LockManager};

/// Where it is, and what its keys begin with.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) url: String,
    pub(crate) prefix: String,
}

impl Engine {
    /// Its address, as it may be shown.
    pub(crate) fn shown(&self) -> String {
        without_password(&self.url)
    }

    /// A manager on it.
    pub(crate) async fn connect(&self) -> Result<LockManager, Error> {
        LockManager::builder().prefix(self.prefix.as_str()).connect(&self.url).await
    }
}
