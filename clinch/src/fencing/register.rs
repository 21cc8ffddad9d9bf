//! A resource in memory that checks fences.

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::Stale;
use crate::lease::Fence;

/// A value that takes writes only with a fence not lower than the highest it has seen.
///
/// It stands for the real resource in tests and examples, and shows in a few lines what that resource has to do.
///
/// ```
/// use clinch::Fence;
/// use clinch::fencing::{FencedRegister, Stale};
///
/// let register = FencedRegister::new();
/// assert_eq!(register.read(), None);
///
/// let (earlier, later) = (Fence::new(33), Fence::new(34));
/// register.write(later, "bob").unwrap();
/// assert_eq!(register.write(earlier, "alice"), Err(Stale { offered: earlier, highest: later }));
/// assert_eq!(register.read(), Some((later, "bob")));
/// ```
#[derive(Debug)]
pub struct FencedRegister<T> {
    /// The highest fence, and what came with it.
    state: Mutex<Option<(Fence, T)>>,
}

impl<T> FencedRegister<T> {
    /// An empty register, which takes a write with any fence.
    pub const fn new() -> Self {
        Self { state: Mutex::new(None) }
    }

    /// Writes, unless somebody with a higher fence has written before.
    ///
    /// # Errors
    /// [`Stale`]; the register is as it was.
    pub fn write(&self, fence: Fence, value: T) -> Result<(), Stale> {
        let mut state = self.state();
        match *state {
            Some((highest, _)) if fence < highest => Err(Stale { offered: fence, highest }),
            _ => {
                *state = Some((fence, value));
                Ok(())
            }
        }
    }

    /// The last value that was taken, with its fence; `None` if there was none yet.
    pub fn read(&self) -> Option<(Fence, T)>
    where
        T: Clone,
    {
        self.state().clone()
    }

    fn state(&self) -> MutexGuard<'_, Option<(Fence, T)>> {
        // Only a `T` that panics while it is dropped or cloned poisons it, and the pair is whole even then.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Default for FencedRegister<T> {
    fn default() -> Self {
        Self::new()
    }
}
