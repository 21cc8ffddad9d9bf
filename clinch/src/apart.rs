//! What threads write all the time, kept apart: a cache line that two of them write goes to and fro between their cores, which
//! takes longer than all else that is done for a lock.

use std::cell::Cell;
use std::ops::Deref;
use std::sync::atomic::{AtomicUsize, Ordering};

/// On cache lines of its own. Two of 64 bytes, because some processors fetch them in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Apart<T>(pub(crate) T);

impl<T> Deref for Apart<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

/// Which of so many of the same kind this thread uses: its own one, unless there are more threads.
pub(crate) fn of_this_thread(many: usize) -> usize {
    // Not for what is decided here: nothing depends on which one it is.
    static THREADS: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static NUMBER: Cell<usize> = const { Cell::new(usize::MAX) };
    }
    let mut number = NUMBER.get();
    if number == usize::MAX {
        number = THREADS.fetch_add(1, Ordering::Relaxed);
        NUMBER.set(number);
    }
    number % many
}
