//! The engine that a command talks to.

use std::io;
use std::path::{Path, PathBuf};

use clinch::LockManager;
use clinch::config::{Config, Source, StoreUrl};
use clinch::store::{ErrorKind, StoreError};

use crate::exit::Exit;
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
        self.config.connect().await.map_err(|error| self.failed(error))
    }

    /// A manager on it, also where Clinch is turned off.
    pub(crate) async fn connect_anyway(&self) -> Result<LockManager, Failure> {
        self.warn_of_variables();
        self.connect_again().await
    }

    /// The same, without a word.
    pub(crate) async fn connect_again(&self) -> Result<LockManager, Failure> {
        self.turned_on().connect().await.map_err(|error| self.failed(error))
    }

    /// A manager for looking at what the engine has. Where nobody has made this user's own file yet, that is nothing.
    pub(crate) async fn look(&self) -> Result<LockManager, Failure> {
        self.warn_of_variables();
        let Some(file) = self.own_file_to_come() else { return self.look_closely().await };
        say(&format!("note: {}: {TO_COME}", not_there_yet(&file)));
        Ok(LockManager::memory())
    }

    /// The same, without a word. A file that is not there is an error: whoever only looks makes none, least of all one whose
    /// name was mistyped.
    pub(crate) async fn look_closely(&self) -> Result<LockManager, Failure> {
        let mut config = self.turned_on();
        if config.store.scheme() == "sqlite" {
            // A `?` of the path itself is escaped.
            let url = config.store.expose().split('?').next().unwrap_or_default();
            config.store = StoreUrl::new(format!("{url}{EXPECTED}"));
        }
        config.connect().await.map_err(|error| self.failed_at(&config.store, error))
    }

    fn failed(&self, error: clinch::Error) -> Failure {
        self.failed_at(&self.config.store, error)
    }

    /// Why there is no connection, for whoever typed the address: what a call left behind, and whether a program should ask
    /// again, is of no use here.
    fn failed_at(&self, store: &StoreUrl, error: clinch::Error) -> Failure {
        let clinch::Error::Engine { cause, .. } = &error else { return error.into() };
        let failure = Failure::new(Exit::refused(&error), cause.message());
        if store.scheme() == "sqlite" {
            // Whatever else is wrong with a file is said with what to do about it.
            let not_there = expects_file(store) && is_not_there(cause);
            return if not_there { failure.with_remedy(self.how_to_find_it()) } else { failure };
        }
        let named = self.config.source("store");
        match cause.kind() {
            ErrorKind::Unavailable | ErrorKind::Timeout => failure.with_remedy(format!(
                "see whether it runs there, and whether the address from {named} is right"
            )),
            ErrorKind::Auth => failure.with_remedy(format!(
                "see whether the address from {named} has the right user and password, and what that user may do"
            )),
            _ => failure,
        }
    }

    /// What to do about a file that is not there.
    fn how_to_find_it(&self) -> String {
        if self.is_default() {
            return TO_COME.to_owned();
        }
        let named = self.config.source("store");
        let made = if expects_file(&self.config.store) {
            "with `mode=rw` in it none is made"
        } else {
            "what takes locks there, such as `clinch run`, makes it"
        };
        format!("see whether the path from {named} is right; {made}")
    }

    fn turned_on(&self) -> Config {
        let mut config = self.config.clone();
        config.enabled = true;
        config
    }

    /// This user's own file, if it is the engine because none was named, and has not been made yet. One in which nothing is
    /// is being made.
    pub(crate) fn own_file_to_come(&self) -> Option<PathBuf> {
        default_file().filter(|file| {
            self.is_default()
                && match file.metadata() {
                    Ok(file) => file.is_file() && file.len() == 0,
                    Err(error) => error.kind() == io::ErrorKind::NotFound,
                }
        })
    }

    /// Whether no engine was named.
    fn is_default(&self) -> bool {
        matches!(self.config.source("store"), Source::Given(by) if by == DEFAULT)
    }

    /// A name that was written wrongly would leave a command with another engine than the one that was meant.
    fn warn_of_variables(&self) {
        // Others set such names too; only one that is like one of ours is worth a word.
        for told in self.config.unknown_variables().iter().filter(|told| told.contains("did you mean")) {
            say(&format!("warning: {told}"));
        }
    }
}

/// Where the address of the default engine is from.
pub(crate) const DEFAULT: &str = "default of the program";

/// What is said of its file before it is there.
pub(crate) const TO_COME: &str =
    "the first `clinch run` makes it; --store or CLINCH_STORE names another engine";

/// What is wrong with it then.
pub(crate) fn not_there_yet(file: &Path) -> String {
    format!("no engine is named, and {} is not there yet", file.display())
}

/// What an address of a SQLite file that must be there ends with.
const EXPECTED: &str = "?mode=rw";

fn expects_file(store: &StoreUrl) -> bool {
    store.expose().ends_with(EXPECTED)
}

/// Whether what is wrong with a file that must be there is that it is not.
fn is_not_there(cause: &StoreError) -> bool {
    let kind = cause.cause().and_then(|cause| cause.downcast_ref()).map(io::Error::kind);
    matches!(kind, Some(io::ErrorKind::NotFound | io::ErrorKind::NotADirectory))
}

/// Where the default engine is: a file for this user on this machine, so that nothing has to be set up. `None` for a user
/// without a home.
pub(crate) fn default_url() -> Option<String> {
    file_url(&default_file()?)
}

fn default_file() -> Option<PathBuf> {
    Some(state::folder()?.join("clinch.db"))
}

/// The address of a SQLite file. `None` for a path that is no text.
fn file_url(path: &Path) -> Option<String> {
    // What means something in a URL is escaped.
    let escaped = path.to_str()?.replace('%', "%25").replace('?', "%3F").replace('#', "%23");
    Some(format!("sqlite://{escaped}"))
}
