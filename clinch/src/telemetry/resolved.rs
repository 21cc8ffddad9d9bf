//! Handles of metrics, kept as long as the recorder is the same.

use std::sync::{Arc, PoisonError, RwLock};

use metrics::with_recorder;

/// Something that was made with the recorder that was there then. A recorder may be installed after the manager was made, and
/// tests have one for each thread; what was made with another one is made anew.
#[derive(Debug)]
pub(super) struct Resolved<T>(RwLock<Option<(usize, Arc<T>)>>);

impl<T> Default for Resolved<T> {
    fn default() -> Self {
        Self(RwLock::default())
    }
}

impl<T> Resolved<T> {
    pub(super) fn get(&self, make: impl FnOnce() -> T) -> Arc<T> {
        // Where the recorder is says which one it is, for as long as it is there.
        let here = with_recorder(|recorder| std::ptr::from_ref(recorder).cast::<()>().addr());
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        if let Some((made_with, value)) = &*known
            && *made_with == here
        {
            return value.clone();
        }
        drop(known);
        let value = Arc::new(make());
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Some((here, value.clone()));
        value
    }
}
