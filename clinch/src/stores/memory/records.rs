//! Records in memory, and the bound on how much of it they take.

use std::borrow::Borrow;
use std::sync::Arc;

use bytes::Bytes;

use crate::lease::Record;
use crate::store::{ErrorKind, StoreError};
use crate::sync::atomic::{AtomicUsize, Ordering};

/// Room for records: so many bytes of all of them together.
#[derive(Debug)]
pub(super) struct RecordRoom {
    taken: Arc<AtomicUsize>,
    max: usize,
}

/// A record that is in memory. Its bytes count until it is dropped, wherever that happens.
#[derive(Debug)]
pub(super) struct Kept {
    record: Record,
    taken: Arc<AtomicUsize>,
}

impl RecordRoom {
    pub(super) fn new(max: usize) -> Self {
        Self { taken: Arc::default(), max }
    }

    pub(super) const fn max(&self) -> usize {
        self.max
    }

    pub(super) fn taken(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }

    /// Keeps a copy: the caller's bytes may be a small part of something large, which would live on with them.
    pub(super) fn keep(&self, record: &Record) -> Result<Kept, StoreError> {
        let new = record.as_bytes().len();
        let fits = |taken: usize| taken.checked_add(new).filter(|taken| *taken <= self.max);
        if let Err(taken) = self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits) {
            let message = format!(
                "the memory store keeps {taken} bytes of records and its bound is {}: no room for {new} more; keep them \
                 for a shorter time, or raise the bound",
                self.max
            );
            return Err(StoreError::not_applied(ErrorKind::Full, message));
        }
        let record = Record::new(Bytes::copy_from_slice(record.as_bytes()));
        Ok(Kept { record, taken: self.taken.clone() })
    }
}

impl Borrow<Record> for Kept {
    fn borrow(&self) -> &Record {
        &self.record
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.taken.fetch_sub(self.record.as_bytes().len(), Ordering::Relaxed);
    }
}
