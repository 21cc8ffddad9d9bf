//! A resource that checks fences.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// What the keys protect: it takes a write unless it has seen a higher fence. Clones are the same resource.
#[derive(Debug, Clone)]
pub struct Register {
    highest: Arc<Mutex<BTreeMap<String, u64>>>,
    checks: bool,
}

impl Register {
    /// A resource; one that does not check takes everything.
    pub fn new(checks: bool) -> Self {
        Self { highest: Arc::default(), checks }
    }

    /// Writes with this fence; says whether it was taken.
    pub fn write(&self, key: &str, fence: u64) -> bool {
        let mut highest = self.highest.lock().unwrap_or_else(PoisonError::into_inner);
        let highest = highest.entry(key.to_owned()).or_default();
        if fence < *highest && self.checks {
            return false;
        }
        *highest = fence.max(*highest);
        true
    }
}
