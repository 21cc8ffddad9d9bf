//! Operations, as callers see them, and their numbers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::history::{Event, Outcome, Recorder, Wish};

/// Where the operations of all processes are written down.
#[derive(Debug, Clone)]
pub(super) struct Journal {
    pub(super) recorder: Recorder,
    operations: Arc<AtomicU64>,
}

impl Journal {
    pub(super) fn new(recorder: Recorder) -> Self {
        Self { recorder, operations: Arc::default() }
    }

    pub(super) fn record(&self, event: Event) {
        self.recorder.record(event);
    }

    pub(super) fn begin(&self, client: usize, key: &str, wish: Wish) -> Operation {
        let op = self.operations.fetch_add(1, Ordering::Relaxed);
        self.record(Event::Invoke { op, client, key: key.to_owned(), wish });
        Operation { op, recorder: self.recorder.clone(), open: true }
    }
}

/// An operation under way; dropped before it completed, it was abandoned.
pub(super) struct Operation {
    pub(super) op: u64,
    recorder: Recorder,
    open: bool,
}

impl Operation {
    pub(super) fn complete(mut self, outcome: Outcome) {
        self.open = false;
        self.recorder.record(Event::Complete { op: self.op, outcome });
    }
}

impl Drop for Operation {
    fn drop(&mut self) {
        if self.open {
            self.recorder.record(Event::Complete { op: self.op, outcome: Outcome::Abandoned });
        }
    }
}
