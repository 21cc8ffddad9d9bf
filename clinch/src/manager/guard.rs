//! A lock that is held, and a look at it.

use std::fmt;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::Instant;

use super::handle::{Handle, Kind};
use super::held::{Held, Loss, Remains};
use super::renew::Renewing;
use super::tenure::Tenure;
use crate::error::Error;
use crate::key::Key;
use crate::lease::{Fence, Mode, Token};

/// A look at a lease: what it is on, how long it is good for, when it is lost. It gives no right to release.
///
/// Clones look at the same lease. A look outlives the guard; then the lease is over and [`lost`](Self::lost) says so.
pub struct Lease {
    pub(super) held: Arc<Held>,
    pub(super) core: Arc<Handle>,
    pub(super) pass: u32,
    /// Of the [`Tenure`] that this is the lease of; a look has none. In here, because there is room.
    pub(super) marks: Marks,
}

/// What a tenure notes of itself.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Marks {
    /// The lease may go to the next in line when this one is done.
    pub(super) passes: bool,
    pub(super) over: bool,
    /// A guard has it.
    pub(super) guarded: bool,
}

impl Clone for Lease {
    fn clone(&self) -> Self {
        let core = Handle::of(&self.core, Kind::Look);
        Self { held: self.held.clone(), core, pass: self.pass, marks: Marks::default() }
    }
}

impl Lease {
    /// It is that of a guard, and counts as one until it is dropped.
    pub(super) fn counts(&mut self) {
        if !self.core.is_of_guard() {
            self.core = Handle::of(&self.core, Kind::Guard);
        }
    }

    /// The key; the first one, if the lease is on several.
    pub fn key(&self) -> &Key {
        &self.held.on().key
    }

    /// The keys of all its locks, in the order in which they were asked for; the name of the limit if it is a permit alone.
    pub fn keys(&self) -> impl Iterator<Item = &Key> {
        let only = self.held.claims().len() == 1;
        let claims = self.held.claims().iter();
        claims
            .filter(move |claim| only || !matches!(claim.mode(), Mode::Permit { .. }))
            .map(|claim| &claim.on().key)
    }

    /// The token under which the engine has it. Whoever knows it can release the lease: do not log it.
    pub fn token(&self) -> &Token {
        self.held.attempt().token()
    }

    /// The fence of this holder, if the lock is [`fenced`](crate::LockOptions::fenced) and the lease is not degraded: higher
    /// than that of every holder before. Of several keys it is the fence of the first; see [`fence_of`](Self::fence_of).
    pub fn fence(&self) -> Option<Fence> {
        self.held.fence(0, self.pass)
    }

    /// The fence of this holder on one of the lease's keys.
    pub fn fence_of(&self, key: &Key) -> Option<Fence> {
        let place = self.held.claims().iter().position(|claim| claim.on().key == *key)?;
        self.held.fence(place, self.pass)
    }

    /// Whether the engine failed and the holder went on without it ([`Strategy::Proceed`](crate::Strategy::Proceed)): other
    /// processes may hold the same. Inside this process it excludes like any other, and everything else that is said here
    /// of its validity is about that only.
    pub fn is_degraded(&self) -> bool {
        self.held.is_degraded()
    }

    /// How long the lease is still valid: from just before it was asked for, minus drift. Zero once it is lost or
    /// given back.
    pub fn remaining(&self) -> Duration {
        self.held.remaining_for(self.pass)
    }

    /// Whether the lease is still valid, by the clock that does not stop when the machine sleeps.
    ///
    /// A true answer is already a little old. Where a late write would do harm, check a fence at the resource.
    pub fn is_valid(&self) -> bool {
        !self.remaining().is_zero()
    }

    /// Waits until the lease no longer protects, and says why: its validity ended, the engine gave it to somebody
    /// else, somebody ended it by force, or it was given back.
    ///
    /// Fires no later than the end of the validity, even while a renewal hangs, and up to 1 ms early, because timers
    /// are that coarse. It cannot fire while the runtime is blocked; check [`is_valid`](Self::is_valid) after work that
    /// blocks.
    ///
    /// # Cancel safety
    /// Safe: nothing is lost when the future is dropped; call it again.
    pub async fn lost(&self) -> Loss {
        self.core.ensure_background();
        if self.held.is_degraded() {
            // The engine knows nothing of it that could be heard or looked up.
            return self.held.lost(self.pass).await;
        }
        let heard = &self.core.background.heard;
        loop {
            let since = heard.since();
            heard.watch(&self.held);
            tokio::select! {
                biased;
                loss = self.held.lost(self.pass) => return loss,
                () = heard.begun_after(since) => {}
            }
        }
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease")
            .field("key", self.key())
            .field("remaining", &self.remaining())
            .finish_non_exhaustive()
    }
}

/// What the guards of one holder share: usually there is one, more where a scope entered again. The last one out ends it.
#[derive(Debug)]
pub(super) struct Holding {
    // Dropped first: what is given up is not renewed any more.
    renewing: Option<Renewing>,
    tenure: Tenure,
}

impl Holding {
    pub(super) const fn new(tenure: Tenure, renewing: Option<Renewing>) -> Self {
        Self { renewing, tenure }
    }

    pub(super) const fn held(&self) -> &Arc<Held> {
        self.tenure.held()
    }

    pub(super) const fn pass(&self) -> u32 {
        self.tenure.pass()
    }

    /// Whether its lease is renewed anyway.
    pub(super) const fn renews(&self) -> bool {
        self.renewing.is_some()
    }
}

/// A lock or a permit that is held. It is given back by [`release`](Self::release), or in the background when it is dropped.
///
/// Everything that can be asked of a [`Lease`] can be asked of its guard. A guard itself cannot be cloned: `guard.clone()` is
/// a clone of its [`Lease`], which keeps nothing held.
#[must_use = "a lock is held only as long as its guard lives: bind it to a name such as `_guard` (`let _ =` gives it back at once)"]
pub struct LockGuard {
    share: Share,
}

/// A guard's share in the right to release.
enum Share {
    /// All of it, as nearly always.
    Whole(Tenure),
    /// The same, of a lease that is renewed.
    Renewed(Box<Holding>),
    /// That of one of the guards in a scope.
    Part(Box<Part>),
}

struct Part {
    // Dropped in this order: what is given up is not renewed any more, and the lease counts as a guard's until the end.
    /// One that entered again may ask for longer than the lease was made for.
    renewing: Option<Renewing>,
    /// `None` only while it is being released.
    holding: Option<Arc<Holding>>,
    lease: Lease,
}

impl LockGuard {
    /// The only one of its holder.
    pub(super) fn new(mut holding: Holding) -> Self {
        holding.tenure.counts();
        Self {
            share: match holding {
                Holding { renewing: None, tenure } => Share::Whole(tenure),
                renewed => Share::Renewed(Box::new(renewed)),
            },
        }
    }

    /// The first of a holder that may have several, which is counted already. `told` is what they have in common.
    #[cfg(feature = "submit")]
    pub(super) fn first_of(mut holding: Holding, told: impl FnOnce(&Arc<Holding>)) -> Self {
        let core = holding.tenure.counts_by_its_guards();
        let (held, pass) = (holding.held().clone(), holding.pass());
        let lease = Lease { held, core, pass, marks: Marks::default() };
        let holding = Arc::new(holding);
        told(&holding);
        Self { share: Share::Part(Box::new(Part { lease, holding: Some(holding), renewing: None })) }
    }

    /// One of a holder that may have several. The lease is renewed as long as this one lives, if that is what it needs.
    pub(super) fn one_of(holding: Arc<Holding>, renewing: Option<Renewing>) -> Self {
        let mut lease = holding.tenure.lease().clone();
        lease.counts();
        Self { share: Share::Part(Box::new(Part { lease, holding: Some(holding), renewing })) }
    }

    /// A look at the lease, to be kept where the guard cannot go.
    pub fn lease(&self) -> Lease {
        Lease::clone(self)
    }

    /// Gives the lock back and says whether this token still held it: `false` if it had expired at the engine (a little
    /// later than by the guard's own careful count), was taken over, or was ended by force; and if the first answer was
    /// lost and the second time there was nothing left to give back.
    ///
    /// Where the lease goes to the next waiter of this process, or another guard of the same scope still has it, nothing is
    /// sent, and the answer is whether it was still valid.
    ///
    /// # Errors
    /// [`Error::Engine`] if the engine could not be told. The release then goes on in the background until it is
    /// answered or the lease has run out.
    ///
    /// # Panics
    /// The future panics if it is polled again after it has ended, as that of an `async fn` does.
    ///
    /// # Cancel safety
    /// Safe: if the future is dropped, the release goes on in the background.
    pub fn release(self) -> impl Future<Output = Result<bool, Error>> {
        Releasing::New(self)
    }

    /// Begins a release that leaves this behind: says whether the token still held it where that needs no waiting, or else what
    /// is to be waited for.
    pub(crate) fn begin_finish(self, remains: Option<Remains>) -> Result<bool, Unfinished> {
        if let Some(remains) = remains {
            self.held.leave(remains);
        }
        let (mut holding, part) = match self.share {
            Share::Whole(tenure) => (Holding::new(tenure, None), None),
            Share::Renewed(holding) => (*holding, None),
            Share::Part(mut part) => {
                part.renewing = None;
                match part.holding.take().and_then(Arc::into_inner) {
                    Some(holding) => (holding, Some(part)),
                    None => return Ok(part.lease.is_valid()),
                }
            }
        };
        if !holding.renews()
            && let Some(held) = holding.tenure.release_at_once()
        {
            return Ok(held);
        }
        let Holding { renewing, tenure } = holding;
        drop(renewing);
        Err(Unfinished { tenure, _part: part })
    }

    /// The same in the background, as when it is dropped.
    pub(crate) fn finish_later(self, remains: Option<Remains>) {
        if let Some(remains) = remains {
            self.held.leave(remains);
        }
    }

    /// When it was granted, within a moment.
    pub(crate) fn since(&self) -> Instant {
        self.held.since()
    }
}

/// The future of [`release`](LockGuard::release). By hand, because an `async fn` has room for all that can happen, and a future is
/// moved: what must be waited for is in a box.
enum Releasing {
    New(LockGuard),
    Waits(Pin<Box<dyn Future<Output = Result<bool, Error>> + Send>>),
    Over,
}

impl Future for Releasing {
    type Output = Result<bool, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if let Self::New(guard) = &mut *self
            && let Share::Whole(tenure) = &mut guard.share
            && let Some(held) = tenure.release_at_once()
        {
            *self = Self::Over;
            return Poll::Ready(Ok(held));
        }
        let mut waiting = match std::mem::replace(&mut *self, Self::Over) {
            Self::New(guard) => match guard.begin_finish(None) {
                Ok(held) => return Poll::Ready(Ok(held)),
                Err(unfinished) => Box::pin(unfinished.finish()),
            },
            Self::Waits(waiting) => waiting,
            #[expect(
                clippy::panic,
                reason = "only a mistake in the caller's program gets here, and an `async fn` panics too"
            )]
            Self::Over => panic!("the future of a release was polled after its end"),
        };
        let answer = waiting.as_mut().poll(context);
        if answer.is_pending() {
            *self = Self::Waits(waiting);
        }
        answer
    }
}

/// A guard that is done, and whose lease is still to be given back. Dropped, it goes on in the background.
pub(crate) struct Unfinished {
    tenure: Tenure,
    /// Counts as a guard until the end.
    _part: Option<Box<Part>>,
}

impl Unfinished {
    /// Gives the lease back, and says whether it was still ours.
    pub(crate) async fn finish(self) -> Result<bool, Error> {
        let Self { tenure, _part } = self;
        tenure.release().await
    }

    /// Whether the lease still protects.
    #[cfg(feature = "submit")]
    pub(crate) fn is_valid(&self) -> bool {
        self.tenure.lease().is_valid()
    }
}

impl Deref for LockGuard {
    type Target = Lease;

    fn deref(&self) -> &Lease {
        match &self.share {
            Share::Whole(tenure) => tenure.lease(),
            Share::Renewed(holding) => holding.tenure.lease(),
            Share::Part(part) => &part.lease,
        }
    }
}

impl fmt::Debug for LockGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockGuard")
            .field("key", self.key())
            .field("remaining", &self.remaining())
            .field("degraded", &self.is_degraded())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_future_of_a_release_is_little_more_than_the_guard() {
        assert!(size_of::<Releasing>() <= size_of::<LockGuard>() + size_of::<usize>());
    }
}
