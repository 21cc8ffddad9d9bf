//! Failures of the engine in the log: said loudly, but not over and over.
//!
//! When an engine is down, everybody who wants something fails, and whoever gives something back tries again and again. The
//! first failure of a kind is an error in the log; those that follow within a second are told in detail only to those who
//! listen for it, and the next error says how many they were.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::time::Duration;

use tokio::time::Instant;

use super::core::Core;
use crate::store::StoreError;
use crate::sync::{Mutex, PoisonError};

/// The least time between two errors in the log about the same operation and the same kind of failure.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// What was complained about.
#[derive(Debug, Default)]
pub(super) struct Complaints(Mutex<BTreeMap<(&'static str, &'static str), Last>>);

#[derive(Debug)]
struct Last {
    at: Instant,
    /// How many were not said aloud since.
    silent: u64,
}

impl Complaints {
    /// Whether it is time to say it aloud, and how many were not since the last time.
    fn aloud(&self, operation: &'static str, kind: &'static str) -> Option<u64> {
        let now = Instant::now();
        // As many as there are operations and kinds.
        let mut complaints = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(last) = complaints.get_mut(&(operation, kind)) else {
            complaints.insert((operation, kind), Last { at: now, silent: 0 });
            return Some(0);
        };
        if now.duration_since(last.at) < AGAIN_AFTER {
            last.silent += 1;
            return None;
        }
        last.at = now;
        Some(std::mem::take(&mut last.silent))
    }
}

impl Core {
    /// Logs that the engine failed.
    pub(super) fn complain(&self, operation: &'static str, key: &dyn Display, error: &StoreError) {
        let kind = error.kind().word();
        match self.complaints.aloud(operation, kind) {
            Some(silent) => {
                tracing::error!(operation, kind, %key, %error, silent, "engine failure");
            }
            None => tracing::debug!(operation, kind, %key, %error, "engine failure"),
        }
    }

    /// Logs that somebody goes on although the engine failed.
    pub(super) fn unprotected(&self, key: &dyn Display, error: &StoreError) {
        self.complain("acquire", key, error);
        match self.complaints.aloud("unprotected", error.kind().word()) {
            Some(silent) => tracing::warn!(%key, silent, "going on unprotected, because the engine failed"),
            None => tracing::debug!(%key, "going on unprotected, because the engine failed"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_failure_is_said_once_a_second_and_counted_meanwhile() {
        let complaints = Complaints::default();
        assert_eq!(complaints.aloud("acquire", "timeout"), Some(0));
        for _ in 0..3 {
            assert_eq!(complaints.aloud("acquire", "timeout"), None);
        }
        assert_eq!(complaints.aloud("acquire", "unavailable"), Some(0));
        assert_eq!(complaints.aloud("release", "timeout"), Some(0));
        tokio::time::advance(AGAIN_AFTER).await;
        assert_eq!(complaints.aloud("acquire", "timeout"), Some(3));
        assert_eq!(complaints.aloud("acquire", "timeout"), None);
    }
}
