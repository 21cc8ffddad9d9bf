//! The future of [`try_lock`](LockManager::try_lock).

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use super::LockManager;
use super::carry_out::{Begun, Waiting};
use super::guard::LockGuard;
use super::options::LockOptions;
use super::outcome::Outcome;
use super::riding::{Riding, Rode};
use crate::error::Error;
use crate::key::IntoKey;

/// As [`Wish`](super::carry_out::Wish), but its options are used where they are: most tries are over at their first poll, and
/// then moving them is a good part of the time that they take.
pub(super) struct Trying<'a, K> {
    manager: &'a LockManager,
    options: LockOptions,
    stage: Stage<'a, K>,
}

enum Stage<'a, K> {
    New(K),
    Rides(Box<Riding<'a>>),
    Waits(Waiting<'a>),
    Over,
}

impl<'a, K> Trying<'a, K> {
    #[inline]
    pub(super) const fn new(manager: &'a LockManager, key: K, options: LockOptions) -> Self {
        Self { manager, options, stage: Stage::New(key) }
    }
}

// Nothing in it is pinned: what waits is in a box.
impl<K> Unpin for Trying<'_, K> {}

impl<K: IntoKey> Future for Trying<'_, K> {
    type Output = Result<Option<LockGuard>, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { manager, options, stage } = &mut *self;
        if matches!(stage, Stage::New(_))
            && let Stage::New(key) = std::mem::replace(stage, Stage::Over)
        {
            match manager.try_to_take(key.into_key()?, options)? {
                Begun::Told(told) => return Poll::Ready(Ok(told)),
                Begun::Rides(riding) => *stage = Stage::Rides(riding),
                Begun::Waits(waiting) => *stage = Stage::Waits(waiting),
            }
        }
        if let Stage::Rides(riding) = stage {
            let rode = ready!(riding.poll(context));
            let Stage::Rides(riding) = std::mem::replace(stage, Stage::Over) else { return Poll::Pending };
            match rode {
                Rode::Denied => return Poll::Ready(Ok(None)),
                Rode::Goes(ride) => *stage = Stage::Waits(riding.go_on(manager, options.take(), ride)?),
            }
        }
        let Stage::Waits(waiting) = stage else { return Poll::Pending };
        let outcome = ready!(waiting.as_mut().poll(context));
        *stage = Stage::Over;
        Poll::Ready(outcome.and_then(Outcome::or_denied))
    }
}
