//! Writing a history down.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::time::Instant;

use super::{Entry, Event, Header};

/// Takes events down, in the order in which they happen. Clones write into the same history.
#[derive(Debug, Clone)]
pub struct Recorder {
    start: Instant,
    entries: Arc<Mutex<Vec<Entry>>>,
}

impl Recorder {
    /// An empty history that begins now.
    pub fn new() -> Self {
        Self { start: Instant::now(), entries: Arc::default() }
    }

    /// Takes one event down, at this instant.
    pub fn record(&self, event: Event) {
        let at = self.start.elapsed();
        self.entries.lock().unwrap_or_else(PoisonError::into_inner).push(Entry { at, event });
    }

    /// When the history began.
    pub const fn start(&self) -> Instant {
        self.start
    }

    /// What was taken down so far.
    pub fn history(&self, header: Header) -> History {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner).clone();
        History { header, entries }
    }
}

impl Default for Recorder {
    fn default() -> Self {
        Self::new()
    }
}

/// What happened, from beginning to end. Its `Display` is one line per event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct History {
    /// What it was recorded under.
    pub header: Header,
    /// The events, in their order.
    pub entries: Vec<Entry>,
}

impl fmt::Display for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.header)?;
        self.entries.iter().try_for_each(|entry| writeln!(f, "{entry}"))
    }
}
