//! The future of [`try_lock`](LockManager::try_lock).

use std::ops::ControlFlow;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::LockManager;
use super::carry_out::{Taking, Waiting};
use super::guard::LockGuard;
use super::options::LockOptions;
use super::outcome::Outcome;
use crate::error::Error;
use crate::key::IntoKey;

/// As [`Wish`](super::carry_out::Wish), but its options are used where they are: most tries are over at their first poll, and
/// then moving them is a good part of the time that they take.
pub(super) struct Trying<'a, K> {
    manager: &'a LockManager,
    /// Until it is first polled.
    key: Option<K>,
    options: LockOptions,
    waits: Option<Waiting<'a>>,
}

impl<'a, K> Trying<'a, K> {
    #[inline]
    pub(super) const fn new(manager: &'a LockManager, key: K, options: LockOptions) -> Self {
        Self { manager, key: Some(key), options, waits: None }
    }
}

// Nothing in it is pinned: what waits is in a box.
impl<K> Unpin for Trying<'_, K> {}

impl<K: IntoKey> Future for Trying<'_, K> {
    type Output = Result<Option<LockGuard>, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        if let Some(key) = this.key.take() {
            match this.manager.try_to_take(key.into_key()?, &mut this.options)? {
                ControlFlow::Break(told) => return Poll::Ready(Ok(told)),
                ControlFlow::Continue(Taking::Ended(result)) => {
                    return Poll::Ready(result.and_then(Outcome::or_denied));
                }
                ControlFlow::Continue(Taking::Waits(waiting)) => this.waits = Some(waiting),
            }
        }
        let Some(waiting) = &mut this.waits else { return Poll::Pending };
        let polled = waiting.as_mut().poll(context);
        if polled.is_ready() {
            this.waits = None;
        }
        polled.map(|result| result.and_then(Outcome::or_denied))
    }
}
