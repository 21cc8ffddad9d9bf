//! The engine that a command talks to.

use std::path::Path;

use clinch::LockManager;
use clinch::config::Config;

use crate::failure::Failure;
use crate::message::say;
use crate::state;

/// Where it is, and how it is talked to.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) config: Config,
}

impl Engine {
    /// Its address, as it may be shown.
    pub(crate) fn shown(&self) -> String {
        self.config.store.to_string()
    }

    /// A manager on it; one without an engine, where Clinch is turned off by configuration.
    pub(crate) async fn connect(&self) -> Result<LockManager, Failure> {
        self.warn_of_variables();
        Ok(self.config.connect().await?)
    }

    /// A manager on it, also where Clinch is turned off: for looking at what the engine has.
    pub(crate) async fn connect_anyway(&self) -> Result<LockManager, Failure> {
        self.warn_of_variables();
        self.look().await
    }

    /// The same, without a word.
    pub(crate) async fn look(&self) -> Result<LockManager, Failure> {
        let mut config = self.config.clone();
        config.enabled = true;
        Ok(config.connect().await?)
    }

    /// A name that was written wrongly would leave a command with another engine than the one that was meant.
    fn warn_of_variables(&self) {
        // Others set such names too; only one that is like one of ours is worth a word.
        for told in self.config.unknown_variables().iter().filter(|told| told.contains("did you mean")) {
            say(&format!("warning: {told}"));
        }
    }
}

/// Where the default engine is: a file for this user on this machine, so that nothing has to be set up. `None` for a user
/// without a home.
pub(crate) fn default_url() -> Option<String> {
    file_url(&state::folder()?.join("clinch.db"))
}

/// The address of a SQLite file. `None` for a path that is no text.
fn file_url(path: &Path) -> Option<String> {
    // What means something in a URL is escaped.
    let escaped = path.to_str()?.replace('%', "%25").replace('?', "%3F").replace('#', "%23");
    Some(format!("sqlite://{escaped}"))
}
