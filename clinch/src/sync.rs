//! What is shared between threads is built of these: std's and tokio's own, re-exported and nothing more.
//!
//! Built with `--cfg shuttle` they are those of the `shuttle` crate, which decides at every one of them who goes on, so
//! that `clinch-shuttle` can run the memory store and the manager under many schedules. Locks, atomics and tasks of those
//! two come from here; whatever is taken from std directly is invisible to it.

#[cfg(not(shuttle))]
pub(crate) use self::real::*;
#[cfg(shuttle)]
pub(crate) use self::scheduled::*;
#[cfg(shuttle)]
pub use self::scheduled::{attentive, forget_calls};

#[cfg(not(shuttle))]
mod real {
    pub(crate) use std::hash::RandomState;
    pub(crate) use std::sync::{Mutex, MutexGuard, PoisonError, atomic};

    use tokio::runtime::Handle;
    pub(crate) use tokio::sync::Notify;

    /// Spawns a task that nobody waits for.
    #[inline]
    pub(crate) fn spawn(runtime: &Handle, task: impl Future<Output = ()> + Send + 'static) {
        runtime.spawn(task);
    }
}

#[cfg(shuttle)]
mod scheduled {
    use std::cell::Cell;
    use std::future::poll_fn;
    use std::hash::{BuildHasherDefault, DefaultHasher};
    use std::pin::pin;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
    use std::task::{Context, Wake, Waker};

    pub(crate) use shuttle::sync::{Mutex, MutexGuard, PoisonError, atomic};
    use tokio::runtime::Handle;
    use tokio::sync::futures::Notified;

    /// The same in every run, so that a schedule that failed fails again.
    pub(crate) type RandomState = BuildHasherDefault<DefaultHasher>;

    /// A task of the schedule instead of the runtime's.
    pub(crate) fn spawn(_runtime: &Handle, task: impl Future<Output = ()> + Send + 'static) {
        drop(shuttle::future::spawn(attentive(task)));
    }

    /// The future, polled again whenever it was woken. shuttle alone forgets that a task was woken while it waited for a
    /// lock in the middle of being polled.
    ///
    /// # Cancel safety
    /// As safe as the future itself.
    pub async fn attentive<F: Future>(future: F) -> F::Output {
        let mut future = pin!(future);
        let mut bell = None;
        poll_fn(|context| {
            let bell = bell.get_or_insert_with(|| {
                Arc::new(Bell { rung: AtomicBool::new(false), task: context.waker().clone() })
            });
            bell.rung.store(false, Relaxed);
            let polled = future.as_mut().poll(&mut Context::from_waker(&Waker::from(bell.clone())));
            if polled.is_pending() && bell.rung.load(Relaxed) {
                bell.task.wake_by_ref();
            }
            polled
        })
        .await
    }

    /// Remembers that it was rung.
    struct Bell {
        rung: AtomicBool,
        task: Waker,
    }

    impl Wake for Bell {
        fn wake(self: Arc<Self>) {
            self.rung.store(true, Relaxed);
            self.task.wake_by_ref();
        }
    }

    thread_local! {
        static FORGETS_CALLS: Cell<bool> = const { Cell::new(false) };
    }

    /// A planted bug, on this thread: whoever is called while it does not wait is not called.
    pub fn forget_calls(forget: bool) {
        FORGETS_CALLS.set(forget);
    }

    /// tokio's, in one step each, before which anybody else may go on.
    #[derive(Debug, Default)]
    pub(crate) struct Notify {
        inner: tokio::sync::Notify,
        step: atomic::AtomicBool,
    }

    impl Notify {
        pub(crate) fn new() -> Self {
            Self::default()
        }

        fn step(&self) -> &tokio::sync::Notify {
            self.step.load(atomic::Ordering::SeqCst);
            &self.inner
        }

        pub(crate) fn notify_one(&self) {
            let inner = self.step();
            if FORGETS_CALLS.get() { inner.notify_waiters() } else { inner.notify_one() }
        }

        pub(crate) fn notify_waiters(&self) {
            self.step().notify_waiters();
        }

        pub(crate) fn notified(&self) -> Notified<'_> {
            self.step().notified()
        }
    }
}
