//! The engine that a command talks to.

use std::path::{Path, PathBuf};

use clinch::LockManager;
use clinch::config::Config;

use crate::exit::Exit;
use crate::failure::Failure;
use crate::state;

/// Where it is, and how it is talked to.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) config: Config,
    /// The folder of the default engine, if it is that one: it is made when it is not there.
    pub(crate) folder: Option<PathBuf>,
}

impl Engine {
    /// Its address, as it may be shown.
    pub(crate) fn shown(&self) -> String {
        self.config.store.to_string()
    }

    /// A manager on it.
    pub(crate) async fn connect(&self) -> Result<LockManager, Failure> {
        if let Some(folder) = &self.folder {
            state::make(folder).map_err(|error| {
                let what = format!("cannot make `{}` for the default engine: {error}", folder.display());
                Failure::new(Exit::UNAVAILABLE, what)
            })?;
        }
        Ok(self.config.connect().await?)
    }

    /// The same, also where Clinch is turned off by configuration: for looking at what the engine has.
    pub(crate) async fn connect_anyway(&self) -> Result<LockManager, Failure> {
        let mut config = self.config.clone();
        config.enabled = true;
        Self { config, folder: self.folder.clone() }.connect().await
    }
}

/// Where the default engine is, and its folder: a file for this user on this machine, so that nothing has to be set up.
/// `None` for a user without a home.
pub(crate) fn default_url() -> Option<(String, PathBuf)> {
    let folder = state::folder()?;
    Some((file_url(&folder.join("clinch.db"))?, folder))
}

/// The address of a SQLite file. `None` for a path that is no text.
fn file_url(path: &Path) -> Option<String> {
    // What means something in a URL is escaped.
    let escaped = path.to_str()?.replace('%', "%25").replace('?', "%3F").replace('#', "%23");
    Some(format!("sqlite://{escaped}"))
}
