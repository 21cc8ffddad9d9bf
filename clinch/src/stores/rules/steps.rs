//! The steps over the keys of one attempt: each looks at everything and writes only then.

use std::borrow::Borrow;

use super::Moment;
use super::entry::{Call, Entry, Footing, Place, Standing, left};
use super::queue::Queued;
use crate::lease::{Attempt, Claim, Fence, Mode, Patience, Record, Space};
use crate::store::{Denial, ErrorKind, Grant, StoreError, Verdict};

/// The keys of an attempt's claims, which nobody else changes meanwhile. Claims are named by their place in the attempt.
pub(in crate::stores) trait Table {
    /// A moment on the engine's clock.
    type At: Moment;
    /// What a finished lease leaves.
    type Left: Borrow<Record>;

    /// Removes what has expired on this claim's key.
    fn tidy(&mut self, claim: usize, now: Self::At);

    /// What is known of the key, if anything is.
    fn get(&self, claim: usize) -> Option<&Entry<Self::At, Self::Left>>;

    /// The same, for something to be put there.
    fn entry(&mut self, claim: usize) -> &mut Entry<Self::At, Self::Left>;

    /// Works on what is known of the key, if anything is, and forgets the key if nothing is left.
    fn with<T>(
        &mut self,
        claim: usize,
        work: impl FnOnce(&mut Entry<Self::At, Self::Left>) -> T,
    ) -> Option<T>;

    /// Makes room for so many places or waits, or fails.
    fn reserve(&mut self, new: usize) -> Result<(), StoreError>;

    /// So much room is free again.
    fn give_back(&mut self, gone: usize);

    /// A new fence, above the floor and above all that were given on its key before.
    fn fence(&mut self, floor: Fence) -> Fence;

    /// Wakes those who wait for the key, once the step has come to its end.
    fn wake(&mut self, claim: usize, call: Call);
}

/// Refuses what makes no sense on any store.
pub(in crate::stores) fn serves(attempt: &Attempt) -> Result<(), StoreError> {
    let refused = |message| Err(StoreError::not_applied(ErrorKind::Unsupported, message));
    let fenced = |claim: &&Claim| claim.mode() != Mode::Exclusive && claim.fence_floor().is_some();
    if let Some(claim) = attempt.claims().iter().find(fenced) {
        return refused(format!("fences come with exclusive claims only, not with {claim:?}"));
    }
    let queues = |claim: &Claim| claim.mode() == Mode::Exclusive && claim.on().space == Space::Lock;
    match attempt.claims() {
        [claim] if queues(claim) => Ok(()),
        _ if is_queued(attempt) => refused("queues are for one exclusive claim on a lock".to_owned()),
        _ => Ok(()),
    }
}

/// [`Store::acquire`](crate::store::Store::acquire), of an attempt that is [served](serves).
pub(in crate::stores) fn acquire<T: Table>(
    table: &mut T,
    attempt: &Attempt,
    now: T::At,
) -> Result<Verdict, StoreError> {
    let (claims, token) = (attempt.claims(), attempt.token());
    let (mut needed, mut freed) = (0, 0);
    for (i, claim) in claims.iter().enumerate() {
        table.tidy(i, now);
        let Some(entry) = table.get(i) else {
            needed += 1;
            continue;
        };
        let standing = entry.standing(claim, token);
        let turn = matches!(standing, Standing::Held(_)) || entry.first().is_none_or(|first| first == token);
        match standing {
            Standing::Free | Standing::Held(_) if turn || !is_queued(attempt) => {
                needed += usize::from(matches!(standing, Standing::Free));
                freed += entry.freed_by_grant(claim.mode(), token, waits(attempt));
            }
            _ => {
                let denial = denial(i, claim, &standing, now);
                if claim.mode() == Mode::Exclusive && denial.is_by_readers() {
                    note(table, i, attempt, now);
                }
                return match queued(attempt, now) {
                    Some(queued) => queue_up(table, i, claim, queued, now),
                    None => Ok(Verdict::Denied(denial)),
                };
            }
        }
    }
    table.reserve(needed.saturating_sub(freed))?;
    table.give_back(freed.saturating_sub(needed));
    let mut grant = Grant::default();
    let fenced = claims.iter().any(|claim| claim.fence_floor().is_some());
    for (i, claim) in claims.iter().enumerate() {
        let fence = put(table, i, attempt, claim, now);
        if fenced {
            grant.fences.push(fence.filter(|_| claim.fence_floor().is_some()));
        }
    }
    Ok(Verdict::Granted(grant))
}

/// [`Store::renew`](crate::store::Store::renew); says whether all of it was held.
pub(in crate::stores) fn renew<T: Table>(table: &mut T, lease: &Attempt, now: T::At) -> bool {
    let (claims, token) = (lease.claims(), lease.token());
    for (i, claim) in claims.iter().enumerate() {
        table.tidy(i, now);
        if !table.get(i).is_some_and(|entry| entry.holds(claim.mode(), token)) {
            return false;
        }
    }
    for (i, claim) in claims.iter().enumerate() {
        table.entry(i).extend(claim.mode(), token, now.after(claim.ttl()));
    }
    true
}

/// [`Store::release`](crate::store::Store::release); says whether all of it was held.
pub(in crate::stores) fn release<T: Table>(table: &mut T, lease: &Attempt, now: T::At) -> bool {
    let mut held = 0;
    // All of them, also where one was lost.
    for i in 0..lease.claims().len() {
        let left = table.with(i, |entry| (entry.tidy(now), entry.leave(lease.token(), now)));
        let Some((expired, leaving)) = left else { continue };
        held += usize::from(leaving.held);
        table.give_back(expired + leaving.gone);
        table.wake(i, leaving.call);
    }
    held == lease.claims().len()
}

/// The only claim of a try that a holder of its key alone can stand in the way of, if it is one: where nothing is known of that
/// key it is simply [placed](place_alone).
pub(in crate::stores) fn plain(attempt: &Attempt) -> Option<&Claim> {
    match (attempt.claims(), attempt.patience()) {
        ([claim], Patience::Try) if claim.mode() == Mode::Exclusive && claim.fence_floor().is_none() => {
            Some(claim)
        }
        _ => None,
    }
}

/// The place of such a claim.
pub(in crate::stores) fn place_alone<M: Moment, R>(attempt: &Attempt, claim: &Claim, now: M) -> Place<M, R> {
    Place {
        token: attempt.token().clone(),
        mode: claim.mode(),
        expires: now.after(claim.ttl()),
        fence: None,
        footing: Footing::Plain,
        done: None,
    }
}

/// Gives the claim its place, unless it has it, and says with which fence.
fn put<T: Table>(table: &mut T, index: usize, attempt: &Attempt, claim: &Claim, now: T::At) -> Option<Fence> {
    let given = |entry: &Entry<T::At, T::Left>| match entry.standing(claim, attempt.token()) {
        Standing::Held(place) => place.fence,
        _ => None,
    };
    let fence = claim.fence_floor().map(|floor| match table.get(index).and_then(given) {
        Some(fence) => fence,
        None => table.fence(floor),
    });
    let place = Place {
        token: attempt.token().clone(),
        mode: claim.mode(),
        expires: now.after(claim.ttl()),
        fence,
        footing: if is_queued(attempt) { Footing::Fair } else { Footing::Plain },
        done: None,
    };
    table.entry(index).grant(place, waits(attempt))
}

/// Remembers a writer that readers kept out and that will come again.
fn note<T: Table>(table: &mut T, index: usize, attempt: &Attempt, now: T::At) {
    let (until, again_within) = match attempt.patience() {
        Patience::Wait { until, again_within, .. } => (T::At::at(until, now), again_within),
        Patience::Queue { until, confirm } => (T::At::at(until, now), confirm),
        Patience::Try => return,
    };
    let noted = table.get(index).is_some_and(Entry::is_noted);
    // Without room it is not remembered; but then there is no room for new readers either.
    if until > now && (noted || table.reserve(1).is_ok()) {
        table.entry(index).note(attempt.token().clone(), until.min(now.after(again_within)));
    }
}

/// Denies an attempt whose turn it is not. It enters the queue if it has time left, and a free key goes to the first in the
/// queue.
fn queue_up<T: Table>(
    table: &mut T,
    index: usize,
    claim: &Claim,
    queued: Queued<T::At>,
    now: T::At,
) -> Result<Verdict, StoreError> {
    let (token, confirm) = (queued.token.clone(), queued.confirm);
    let enters = queued.until > now;
    let is_in = table.get(index).is_some_and(|entry| entry.is_queued(&token));
    // Room first: an attempt that fails has changed nothing.
    table.reserve(usize::from(enters && !is_in))?;
    let entry = table.entry(index);
    let heir = entry.hand_over(now);
    if enters {
        entry.enqueue(queued);
    }
    // Each one before it has its turn, if only for as long as a place is kept.
    let turns = u32::try_from(entry.before(&token)).unwrap_or(u32::MAX);
    let mut denial = denial(index, claim, &entry.standing(claim, &token), now);
    denial.retry_after = denial.retry_after.map(|after| after.saturating_add(confirm.saturating_mul(turns)));
    if let Some(heir) = heir {
        table.wake(index, Call::Heir(heir));
    }
    Ok(Verdict::Denied(denial))
}

fn denial<M: Moment, R: Borrow<Record>>(
    claim: usize,
    of: &Claim,
    standing: &Standing<'_, M, R>,
    now: M,
) -> Denial {
    let Standing::Taken { by, until } = standing else { return Denial { claim, ..Denial::default() } };
    let done = by.and_then(|place| place.done.as_deref()).map(|left| Borrow::<Record>::borrow(left).clone());
    let holder = by.filter(|_| done.is_none()).map(|place| place.holder(of.on(), now));
    Denial { claim, holder, retry_after: Some(left(*until, now)), done }
}

/// Whether it would have come again.
fn waits(attempt: &Attempt) -> bool {
    !matches!(attempt.patience(), Patience::Try)
}

/// Whether it knows of the queue.
fn is_queued(attempt: &Attempt) -> bool {
    matches!(attempt.patience(), Patience::Queue { .. })
}

/// What it says of itself to the queue; `None` if it knows of none.
fn queued<M: Moment>(attempt: &Attempt, now: M) -> Option<Queued<M>> {
    let Patience::Queue { until, confirm } = attempt.patience() else { return None };
    Some(Queued { token: attempt.token().clone(), until: M::at(until, now), confirm })
}
