//! The port: what an engine must do to carry leases.
//!
//! Lock, limit, duplicate guard and several keys at once are all **one** call, [`Store::acquire`]: grant this attempt,
//! all its claims or none. A store does short atomic steps and nothing else. Waiting, retrying, renewing, cancelling
//! and measuring are written once, in the manager, for all engines.
//!
//! Three promises hold for every step of every store, and the conformance suite
//! (feature `conformance`) checks them:
//!
//! - **Idempotent by token.** Sent twice, a step changes nothing the second time, and `acquire` answers the same, with
//!   the same fences. So a lost reply is simply asked again.
//! - **All or nothing.** A step looks at everything first and writes only then.
//! - **Honest errors.** Every [`StoreError`] says whether the step was *not applied* or its outcome is *unknown*, and
//!   whether a retry can help. After *unknown*, "not held" proves nothing.

mod about;
mod at_once;
mod capabilities;
mod error;
mod events;
mod verdict;

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;

pub use about::{About, Diagnosis, Fact, Finding, Severity};
pub use at_once::{Asking, Asks, AtOnce};
pub use capabilities::Capabilities;
pub use error::{Effect, ErrorKind, StoreError};
pub use events::{Kept, News, Notice, Revocation, Revocations, Wakeups};
pub use verdict::{Cursor, Denial, Grant, Page, Release, Renewal, Verdict};

use crate::lease::{Attempt, ClaimKey, Holder, Record, Token};

/// What a store's steps return: a boxed future, so that the manager can hold an `Arc<dyn Store>`.
pub type StoreFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// What the steps for many at once return: an answer for each.
pub type StoreAnswers<'a, T> = Pin<Box<dyn Future<Output = Vec<Result<T, StoreError>>> + Send + 'a>>;

/// An engine behind the port.
///
/// Write your own by implementing this trait and running the conformance suite on it.
///
/// # Cancel safety
/// Every returned future may be dropped at any point. What was sent may then still take effect: the outcome is
/// *unknown*, exactly as after a time-out, and the manager settles it with [`release`](Self::release).
pub trait Store: fmt::Debug + Send + Sync + 'static {
    /// The engine's name in one word, for people and for what is measured: `memory`, `redis`.
    fn engine(&self) -> &'static str {
        "other"
    }

    /// What this store can do, as data. It does not change while the store lives.
    fn capabilities(&self) -> Capabilities;

    /// After how long a call of an [`acquire`](Self::acquire) ends by itself, not counting as much again in which it may wait
    /// for its place among the calls in flight. `None`: nobody knows, and the manager keeps a timer of its own for it.
    fn call_limit(&self) -> Option<Duration> {
        None
    }

    /// Grants all claims of the attempt, or none.
    ///
    /// - If this token already holds its claims, the answer is the same [`Verdict::Granted`] again, with the same
    ///   fences, and no expiry has moved. If it holds only some of them any more, the others are granted again if they
    ///   are free; if not, it is denied and keeps what it has.
    /// - [`Verdict::Denied`] names the first claim that could not be granted, who holds it, and the time left.
    /// - [`Attempt::sending`] is called after any queueing inside the store and before the first byte goes out.
    /// - **Permits.** Granted if fewer than the claim's own number are held, by whatever number the others came in. A
    ///   permit ends with its own TTL, however long the others live. The denial names the holder that ends first.
    /// - **Shared claims** exclude exclusive ones of any client, and are excluded by them. An exclusive claim that is denied
    ///   by shared holders and will come again is remembered until an exclusive claim on the key is granted to one that
    ///   waits, at most for the `again_within` or the `confirm` of its patience: new shared claims on the key are denied
    ///   meanwhile.
    /// - **Fences.** An exclusive claim with a floor gets a number above the floor and above every number that was given
    ///   on its key before, also after the engine restarted or lost its memory (as far as its clock has not gone back). It
    ///   is a multiple of [`Fence::STEP`](crate::lease::Fence::STEP); the numbers between are the manager's.
    /// - **Queues.** An attempt with [`Patience::Queue`](crate::lease::Patience::Queue) that finds its key taken, or
    ///   others in the queue before it, is put at the queue's end, unless it stands there. When a queued attempt's lease is released, the key is kept for the
    ///   first one in the queue for its `confirm` time (it is shown as the holder), and that one's stream of wake-ups
    ///   fires; it has its full TTL as soon as it asks again, and is out of the queue if it does not. If the stream told that the
    ///   key is [`Kept`] for it, it may take that for its grant and [say so](crate::lease::Route::take_turn); then a renewal
    ///   has the same effect as asking again, and its release says that it was held. Whoever finds a free
    ///   key while another is first in the queue hands the key over in the same way, and is denied. Attempts without that
    ///   patience do not know of the queue.
    /// - **Heirs** ([`Capabilities::heirs`]). An attempt with [`Patience::Wait`](crate::lease::Patience::Wait) and a `confirm`
    ///   time that an exclusive holder denies may be noted as the one that comes next, for no longer than half that time after
    ///   it asked. A release may then set the key to the heir's token for its `confirm` time, as a grant, and tell all who
    ///   wait, with the heir's name ([`Kept`]). Asking again and renewing give the heir its full TTL; releasing withdraws it.
    ///   Others who wait come to their chance too: where a store denies one without a `confirm` time, it notes no heir until that
    ///   one comes again, and where several can inherit it need not note any.
    /// - A claim the store cannot serve is [`ErrorKind::Unsupported`], a key that holds something else is
    ///   [`ErrorKind::WrongType`]; either way nothing was changed.
    fn acquire<'a>(&'a self, attempt: &'a Attempt) -> StoreFuture<'a, Verdict>;

    /// Takes a step for each of these attempts, which have nothing to do with each other, in one exchange with the engine
    /// where it can. The answers come in the order of the attempts.
    fn acquire_each<'a>(&'a self, attempts: &'a [Arc<Attempt>]) -> StoreAnswers<'a, Verdict> {
        Box::pin(join_all(attempts.iter().map(|attempt| self.acquire(attempt))))
    }

    /// Extends every claim of the lease to its full TTL from now.
    ///
    /// It only ever extends: an expiry that is already later stays. (A lease from which somebody else took its expiry
    /// gets one again: nothing is held for ever.) If any claim is no longer held by this token,
    /// nothing is extended and the answer is [`Renewal::Lost`].
    fn renew<'a>(&'a self, lease: &'a Attempt) -> StoreFuture<'a, Renewal>;

    /// Renews each of these leases, in few exchanges with the engine; see [`Capabilities::batches`]. The answers come in
    /// the order of the leases, and each says of its own lease what [`renew`](Self::renew) would.
    fn renew_each<'a>(&'a self, leases: &'a [Arc<Attempt>]) -> StoreAnswers<'a, Renewal> {
        Box::pin(join_all(leases.iter().map(|lease| self.renew(lease))))
    }

    /// Which part of the engine serves this lease, by any number. Leases of different parts are renewed in calls of their own,
    /// so that a part that is ill delays no other. An engine that is all one has one part.
    fn part(&self, lease: &Attempt) -> usize {
        let _ = lease;
        0
    }

    /// Gives back whatever this token holds of the lease's claims, wakes waiters, and withdraws the attempt if it was
    /// still waiting. Never touches what another token holds.
    fn release<'a>(&'a self, lease: &'a Attempt) -> StoreFuture<'a, Release>;

    /// Finishes the lease: in the place of its one claim stays `record`, for `ttl` from now, or for what is left of the lease
    /// if there is none; and those who wait are woken.
    ///
    /// Nobody holds the key then, and nobody gets it until the record is gone: an `acquire`, by whatever token, is denied
    /// with the record ([`Denial::done`]), a renewal finds the lease lost, a release finds nothing to give back, and
    /// [`inspect`](Self::inspect) and [`list`](Self::list) show no holder. If this token no longer holds the claim, nothing
    /// is changed and `held` is false. Sent again by the token that left the record, it answers the same and changes nothing,
    /// neither the record nor its expiry. Like a release, it is `conclusive` or not.
    ///
    /// For a lease of a single claim in a space that [keeps records](crate::lease::Space::keeps_records); any other is
    /// [`ErrorKind::Unsupported`]. So is every one where [`Capabilities::records`] is not claimed.
    fn complete<'a>(
        &'a self,
        lease: &'a Attempt,
        record: &'a Record,
        ttl: Option<Duration>,
    ) -> StoreFuture<'a, Release> {
        let _ = (lease, record, ttl);
        let message = "this engine keeps no records";
        Box::pin(async move { Err(StoreError::not_applied(ErrorKind::Unsupported, message)) })
    }

    /// A stream that fires when a place on this key may have become free, and once after every (re)subscription. For an
    /// attempt in the key's queue, `queued` is its token: its stream also fires when its turn has come, if it asked this store.
    ///
    /// Dropping it ends the subscription. It may fire for nothing; if it fails to fire, the waiter's poll finds out. An
    /// expiry need not fire it: the waiter knows when that is due. Nor need anything in a space that nobody
    /// [waits for](crate::lease::Space::is_waited_for).
    fn wakeups(&self, on: &ClaimKey, queued: Option<&Token>) -> Wakeups;

    /// Whether what wakes attempts in this key's queue is heard already, because others wait there: then one more stream costs
    /// nothing, and whoever has it before it asks misses nothing.
    fn is_listening(&self, on: &ClaimKey) -> bool {
        let _ = on;
        false
    }

    /// A stream of the leases that [`revoke`](Self::revoke) ended, by whomever and from wherever, and of the moments from
    /// which on it hears them all.
    fn revocations(&self) -> Revocations;

    /// Who holds this key. For people; the answer is already old when it arrives.
    fn inspect<'a>(&'a self, on: &'a ClaimKey) -> StoreFuture<'a, Vec<Holder>>;

    /// Holders, page by page. For people: a holder that comes or goes meanwhile may be missed, or seen twice.
    fn list(&self, cursor: Cursor) -> StoreFuture<'_, Page>;

    /// Ends exactly this holder's lease on this key, tells its manager, and wakes waiters. `false` if this token no
    /// longer held it.
    fn revoke<'a>(&'a self, on: &'a ClaimKey, token: &'a Token) -> StoreFuture<'a, bool>;

    /// A real round trip to the engine; returns how long it took.
    fn ping(&self) -> StoreFuture<'_, Duration>;

    /// A real round trip to the engine, and what it says of itself.
    fn about(&self) -> StoreFuture<'_, About> {
        Box::pin(async move { Ok(About::new(self.ping().await?)) })
    }

    /// Looks at the engine closely, for people: how it is set up, and what of that can cost a lease. It changes nothing that
    /// lasts. What the engine's user may not see is a fact that is [hidden](Diagnosis::hidden), not an error.
    fn diagnose(&self) -> StoreFuture<'_, Diagnosis> {
        Box::pin(async move { Ok(Diagnosis::default()) })
    }

    /// The same steps without futures, of an engine that never waits: a caller then need not be suspended for them. It is
    /// only faster; `None`, the default, is right for every store, and for every store around another one.
    fn at_once(&self) -> Option<&dyn AtOnce> {
        None
    }

    /// Lets go of connections and background tasks. Leases outlive it. Steps after it may fail with
    /// [`ErrorKind::Closed`].
    fn close(&self) {}
}
