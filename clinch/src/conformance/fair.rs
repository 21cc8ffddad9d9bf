//! [`Capabilities::fair`](crate::store::Capabilities::fair): a queue for a key, first come first served.

use std::time::Duration;

use tokio::time::Instant;

use super::case::{
    Case, LONG, always_too_late, denied, denied_by, ensure, extended, free, granted, held_by, lost, on,
    refused, remaining, token,
};
use super::{Failure, Harness};
use crate::lease::{Attempt, Claim, Fence, Patience};
use crate::store::{ErrorKind, Wakeups};

/// How long places are kept, where no test waits for the end of that.
const KEPT: Duration = Duration::from_secs(10);

/// A new attempt that waits in the queue for the key of this name.
fn queued(case: &Case<'_>, name: &str, ttl: Duration, confirm: Duration) -> Result<Attempt, Failure> {
    let patience = Patience::Queue { until: Instant::now() + LONG, confirm };
    Ok(case.attempt(name, ttl)?.with_patience(patience))
}

/// A new attempt that respects the queue for the key of this name, and does not wait.
fn fair_try(case: &Case<'_>, name: &str) -> Result<Attempt, Failure> {
    let patience = Patience::Queue { until: Instant::now(), confirm: KEPT };
    Ok(case.attempt(name, LONG)?.with_patience(patience))
}

/// A lease on the key of this name, and these many attempts in its queue, in the order of their arrival.
async fn held_and_queued<const N: usize>(
    case: &Case<'_>,
    name: &str,
    confirm: Duration,
) -> Result<(Attempt, [Attempt; N]), Failure> {
    let holder = queued(case, name, LONG, confirm)?;
    granted(case.store.acquire(&holder).await?)?;
    let mut waiting = Vec::with_capacity(N);
    for i in 0..N {
        let attempt = queued(case, name, LONG, confirm)?;
        let store = if i % 2 == 0 { &case.other } else { &case.store };
        denied_by(store.acquire(&attempt).await?, 0, holder.token())?;
        waiting.push(attempt);
    }
    match waiting.try_into() {
        Ok(waiting) => Ok((holder, waiting)),
        Err(_) => Err(Failure::new("the suite did not count its attempts")),
    }
}

/// A key whose holder's lease has run out, and these many attempts in its queue, in the order of their arrival.
async fn free_and_queued<const N: usize>(case: &Case<'_>) -> Result<(String, [Attempt; N]), Failure> {
    for ttl in case.ttls() {
        let name = format!("lock {ttl:?}");
        let brief = queued(case, &name, ttl, KEPT)?;
        let sent = Instant::now();
        granted(case.store.acquire(&brief).await?)?;
        let mut waiting = Vec::with_capacity(N);
        for _ in 0..N {
            let attempt = queued(case, &name, LONG, KEPT)?;
            let verdict = case.other.acquire(&attempt).await?;
            waiting.push((attempt, verdict));
        }
        if case.too_late(sent, ttl) {
            all_leave(case, &waiting.iter().map(|(attempt, _)| attempt).collect::<Vec<_>>()).await?;
            continue;
        }
        let mut attempts = Vec::with_capacity(N);
        for (attempt, verdict) in waiting {
            denied_by(verdict, 0, brief.token())?;
            attempts.push(attempt);
        }
        case.outlive(ttl).await;
        let Ok(attempts) = attempts.try_into() else {
            return Err(Failure::new("the suite did not count its attempts"));
        };
        return Ok((name, attempts));
    }
    Err(always_too_late())
}

/// The holder gives the key back.
async fn released(case: &Case<'_>, holder: &Attempt) -> Result<(), Failure> {
    ensure!(case.store.release(holder).await?.held, "the holder's release says that nothing was held");
    Ok(())
}

/// The key is kept for this one.
async fn kept_for(case: &Case<'_>, heir: &Attempt) -> Result<(), Failure> {
    held_by(case.other.inspect(on(heir)).await?, heir.token()).map(drop)
}

/// Withdraws or releases them all, so that nothing is left in the queue.
async fn all_leave(case: &Case<'_>, attempts: &[&Attempt]) -> Result<(), Failure> {
    for attempt in attempts {
        case.store.release(attempt).await?;
    }
    Ok(())
}

/// A key that is free and has no queue is granted at once, to one that would wait and to one that would not.
pub(super) async fn a_free_key_is_granted_at_once(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    for attempt in [queued(&case, "lock", LONG, KEPT)?, fair_try(&case, "lock")?] {
        let sent = Instant::now();
        granted(case.store.acquire(&attempt).await?)?;
        case.has_left(&held_by(case.other.inspect(on(&attempt)).await?, attempt.token())?, LONG, sent)?;
        granted(case.other.acquire(&attempt).await?)?;
        released(&case, &attempt).await?;
        free(&case.other.inspect(on(&attempt)).await?)?;
    }
    Ok(())
}

/// Many attempts on several connections get the key in the order of their arrival, in whatever order they ask again.
pub(super) async fn the_order_is_that_of_arrival(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let connections = case.connections(3).await?;
    let mut holder = queued(&case, "lock", LONG, KEPT)?;
    granted(case.store.acquire(&holder).await?)?;
    let mut waiting = Vec::new();
    for (i, store) in (0..20).zip(connections.iter().cycle()) {
        let attempt = queued(&case, "lock", LONG, KEPT)?;
        denied_by(store.acquire(&attempt).await?, 0, holder.token())?;
        waiting.push(attempt);
        // Those that stand in the queue ask again meanwhile.
        denied_by(store.acquire(&waiting[i / 2]).await?, 0, holder.token())?;
    }
    while !waiting.is_empty() {
        released(&case, &holder).await?;
        let heir = waiting.remove(0);
        for (attempt, store) in waiting.iter().rev().zip(connections.iter().cycle()) {
            denied_by(store.acquire(attempt).await?, 0, heir.token())?;
        }
        granted(case.other.acquire(&heir).await?)?;
        holder = heir;
    }
    released(&case, &holder).await?;
    free(&case.other.inspect(on(&holder)).await?)
}

/// Sent again, an attempt in the queue keeps its place.
pub(super) async fn a_repeat_keeps_its_place(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let (holder, [first, second]) = held_and_queued(&case, "lock", KEPT).await?;
    for attempt in [&first, &second, &first] {
        denied_by(case.store.acquire(attempt).await?, 0, holder.token())?;
        denied_by(case.other.acquire(attempt).await?, 0, holder.token())?;
    }
    released(&case, &holder).await?;
    kept_for(&case, &first).await?;
    granted(case.other.acquire(&first).await?)?;
    released(&case, &first).await?;
    kept_for(&case, &second).await?;
    // Each stood there once.
    granted(case.other.acquire(&second).await?)?;
    released(&case, &second).await?;
    free(&case.other.inspect(on(&first)).await?)
}

/// An attempt in the queue holds nothing: it is not shown, its renewal is *lost*, and its release says so.
pub(super) async fn a_queued_attempt_holds_nothing(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let (holder, [first]) = held_and_queued(&case, "lock", KEPT).await?;
    held_by(case.other.inspect(on(&holder)).await?, holder.token())?;
    lost(case.other.renew(&first).await?)?;
    ensure!(!case.other.revoke(on(&first), first.token()).await?, "an attempt in the queue was revoked");
    ensure!(!case.other.release(&first).await?.held, "an attempt in the queue says that it was held");
    extended(case.store.renew(&holder).await?)?;
    released(&case, &holder).await?;
    free(&case.other.inspect(on(&holder)).await?)
}

/// A release hands the key to the first in the queue at once: it is shown as the holder, for no longer than the place is
/// kept, and everybody else is denied by it.
pub(super) async fn a_release_hands_over_at_once(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let (holder, [first, second]) = held_and_queued(&case, "lock", KEPT).await?;
    let sent = Instant::now();
    released(&case, &holder).await?;
    let heir = held_by(case.other.inspect(on(&first)).await?, first.token())?;
    case.has_left(&heir, KEPT, sent)?;
    for attempt in [&second, &holder, &case.attempt("lock", LONG)?, &fair_try(&case, "lock")?] {
        let denial = denied_by(case.other.acquire(attempt).await?, 0, first.token())?;
        ensure!(denial.retry_after.is_some(), "the denial does not say when to ask again");
    }
    all_leave(&case, &[&first, &second, &holder]).await?;
    free(&case.other.inspect(on(&first)).await?)
}

/// An heir that asks again has its full TTL from then on, and asking once more moves nothing.
pub(super) async fn an_heir_that_asks_has_its_full_ttl(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    for ttl in case.ttls() {
        let name = format!("lock {ttl:?}");
        let holder = queued(&case, &name, LONG, ttl)?;
        let (long, short) = (queued(&case, &name, LONG, ttl)?, queued(&case, &name, ttl, KEPT)?);
        granted(case.store.acquire(&holder).await?)?;
        denied(case.other.acquire(&long).await?)?;
        denied(case.other.acquire(&short).await?)?;
        let handed = Instant::now();
        released(&case, &holder).await?;
        let asked = Instant::now();
        let answer = case.other.acquire(&long).await?;
        if case.too_late(handed, ttl) {
            all_leave(&case, &[&long, &short]).await?;
            continue;
        }
        granted(answer)?;
        case.outlive(ttl).await;
        case.has_left(&held_by(case.store.inspect(on(&long)).await?, long.token())?, LONG, asked)?;
        // A TTL shorter than the place is kept counts too, once it asked.
        released(&case, &long).await?;
        let asked = Instant::now();
        granted(case.other.acquire(&short).await?)?;
        case.advance(ttl / 2).await;
        let again = case.other.acquire(&short).await?;
        if case.too_late(asked, ttl) {
            all_leave(&case, &[&short]).await?;
            continue;
        }
        granted(again)?;
        case.outlive(ttl / 2).await;
        return free(&case.store.inspect(on(&short)).await?);
    }
    Err(always_too_late())
}

/// An heir's fence is above those of the holders before it, and the same when it asks once more.
pub(super) async fn an_heir_has_a_fence_of_its_own(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let patience = Patience::Queue { until: Instant::now() + LONG, confirm: KEPT };
    let fenced = || -> Result<Attempt, Failure> {
        let claim = case.claim("lock", LONG)?.fenced(Fence::new(0));
        Ok(Attempt::one(token(), claim).with_patience(patience))
    };
    let (holder, first) = (fenced()?, fenced()?);
    let before = granted(case.store.acquire(&holder).await?)?.fences;
    denied(case.other.acquire(&first).await?)?;
    released(&case, &holder).await?;
    let fences = granted(case.other.acquire(&first).await?)?.fences;
    ensure!(
        fences.len() == 1 && fences > before,
        "the holder had the fences {before:?}, its heir has {fences:?}"
    );
    let again = granted(case.store.acquire(&first).await?)?.fences;
    ensure!(again == fences, "one grant had the fences {fences:?} and {again:?}");
    released(&case, &first).await
}

/// An heir that does not ask again is skipped when the place was kept for its time, and not before; it is out of the
/// queue then.
pub(super) async fn an_heir_that_does_not_ask_is_skipped(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    for confirm in case.ttls() {
        let name = format!("lock {confirm:?}");
        let holder = queued(&case, &name, LONG, KEPT)?;
        let (silent, next) = (queued(&case, &name, LONG, confirm)?, queued(&case, &name, LONG, KEPT)?);
        granted(case.store.acquire(&holder).await?)?;
        denied(case.other.acquire(&silent).await?)?;
        denied(case.other.acquire(&next).await?)?;
        let handed = Instant::now();
        released(&case, &holder).await?;
        case.advance(confirm / 2).await;
        let early = case.store.acquire(&next).await?;
        if case.too_late(handed, confirm) {
            all_leave(&case, &[&silent, &next]).await?;
            continue;
        }
        denied_by(early, 0, silent.token())?;
        case.outlive(confirm / 2).await;
        granted(case.store.acquire(&next).await?)?;
        // One that comes after it was skipped stands behind those who were there.
        let last = queued(&case, &name, LONG, KEPT)?;
        denied_by(case.other.acquire(&last).await?, 0, next.token())?;
        denied_by(case.other.acquire(&silent).await?, 0, next.token())?;
        released(&case, &next).await?;
        kept_for(&case, &last).await?;
        return all_leave(&case, &[&silent, &last]).await;
    }
    Err(always_too_late())
}

/// An attempt that is withdrawn is skipped at once.
pub(super) async fn a_withdrawn_attempt_is_skipped(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let (holder, [first, second, third]) = held_and_queued(&case, "lock", KEPT).await?;
    for withdrawn in [&second, &first] {
        ensure!(!case.other.release(withdrawn).await?.held, "an attempt in the queue says that it was held");
    }
    held_by(case.other.inspect(on(&holder)).await?, holder.token())?;
    released(&case, &holder).await?;
    kept_for(&case, &third).await?;
    granted(case.other.acquire(&third).await?)?;
    released(&case, &third).await?;
    free(&case.other.inspect(on(&third)).await?)
}

/// An attempt whose time is over is skipped.
pub(super) async fn an_attempt_whose_time_is_over_is_skipped(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let holder = queued(&case, "lock", LONG, KEPT)?;
    granted(case.store.acquire(&holder).await?)?;
    let until = Instant::now() + case.pace.ttl;
    let brief = case.attempt("lock", LONG)?.with_patience(Patience::Queue { until, confirm: KEPT });
    let second = queued(&case, "lock", LONG, KEPT)?;
    for attempt in [&brief, &second] {
        denied_by(case.other.acquire(attempt).await?, 0, holder.token())?;
    }
    case.outlive(case.pace.ttl).await;
    released(&case, &holder).await?;
    kept_for(&case, &second).await?;
    all_leave(&case, &[&brief, &second]).await
}

/// An heir that gives its place up before it asked held nothing, and the next one has it at once.
pub(super) async fn a_withdrawn_heir_hands_on(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let (holder, [first, second]) = held_and_queued(&case, "lock", KEPT).await?;
    released(&case, &holder).await?;
    ensure!(!case.other.release(&first).await?.held, "an heir that never asked says that it was held");
    kept_for(&case, &second).await?;
    granted(case.other.acquire(&second).await?)?;
    released(&case, &second).await?;
    free(&case.other.inspect(on(&second)).await?)
}

/// An attempt that does not wait overtakes nobody, also when it finds the key free: the first in the queue has it then.
pub(super) async fn a_try_overtakes_nobody(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let (name, [first]) = free_and_queued(&case).await?;
    for _ in 0..2 {
        denied_by(case.store.acquire(&fair_try(&case, &name)?).await?, 0, first.token())?;
        kept_for(&case, &first).await?;
    }
    granted(case.other.acquire(&first).await?)?;
    released(&case, &first).await
}

/// An attempt that does not wait does not enter the queue.
pub(super) async fn a_try_does_not_enter_the_queue(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let (holder, [first]) = held_and_queued(&case, "lock", KEPT).await?;
    for attempt in [fair_try(&case, "lock")?, fair_try(&case, "lock")?] {
        denied_by(case.other.acquire(&attempt).await?, 0, holder.token())?;
    }
    released(&case, &holder).await?;
    granted(case.other.acquire(&first).await?)?;
    released(&case, &first).await?;
    free(&case.other.inspect(on(&first)).await?)
}

/// Whoever of the queue finds the key free while another is first hands it over, is denied, and keeps its place.
pub(super) async fn whoever_finds_a_free_key_hands_it_over(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let (name, [first, second]) = free_and_queued(&case).await?;
    let newcomer = queued(&case, &name, LONG, KEPT)?;
    for attempt in [&newcomer, &second] {
        denied_by(case.store.acquire(attempt).await?, 0, first.token())?;
    }
    kept_for(&case, &first).await?;
    for (heir, next) in [(&first, &second), (&second, &newcomer)] {
        granted(case.other.acquire(heir).await?)?;
        released(&case, heir).await?;
        kept_for(&case, next).await?;
    }
    all_leave(&case, &[&newcomer]).await
}

/// A key that nobody holds any more is granted to the first in the queue when it asks, without a detour.
pub(super) async fn the_first_takes_a_free_key(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let (_, [first, second]) = free_and_queued(&case).await?;
    let asked = Instant::now();
    granted(case.other.acquire(&first).await?)?;
    case.has_left(&held_by(case.store.inspect(on(&first)).await?, first.token())?, LONG, asked)?;
    released(&case, &first).await?;
    kept_for(&case, &second).await?;
    all_leave(&case, &[&second]).await
}

/// When the holder's lease is revoked, the first in the queue is next, whoever asks first.
pub(super) async fn a_revocation_keeps_the_order(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let (holder, [first, second]) = held_and_queued(&case, "lock", KEPT).await?;
    ensure!(case.other.revoke(on(&holder), holder.token()).await?, "the holder's token was not found");
    denied_by(case.store.acquire(&second).await?, 0, first.token())?;
    granted(case.other.acquire(&first).await?)?;
    released(&case, &first).await?;
    kept_for(&case, &second).await?;
    all_leave(&case, &[&second]).await
}

/// Attempts without that patience do not know of the queue: they are granted a free key, and those in the queue wait
/// for them like for any holder.
pub(super) async fn plain_attempts_do_not_know_of_the_queue(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let (name, [first]) = free_and_queued(&case).await?;
    let plain = case.attempt(&name, LONG)?;
    granted(case.store.acquire(&plain).await?)?;
    denied_by(case.other.acquire(&first).await?, 0, plain.token())?;
    released(&case, &plain).await?;
    granted(case.other.acquire(&first).await?)?;
    released(&case, &first).await
}

/// The time after which asking again makes sense is the holder's, and no more than a place is kept for each one before.
pub(super) async fn the_time_to_retry_counts_those_before(harness: &dyn Harness) -> Result<(), Failure> {
    const BRIEF: Duration = Duration::from_secs(1);
    let case = Case::new(harness).await?;
    let holder = queued(&case, "lock", LONG / 2, BRIEF)?;
    let sent = Instant::now();
    granted(case.store.acquire(&holder).await?)?;
    let mut waiting = Vec::new();
    for before in 0..4 {
        let attempt = queued(&case, "lock", LONG, BRIEF)?;
        let denial = denied_by(case.other.acquire(&attempt).await?, 0, holder.token())?;
        let least = case.at_least(holder.ttl(), sent);
        let most = holder.ttl() + BRIEF * before + case.pace.lag;
        ensure!(
            denial.retry_after.is_some_and(|after| (least..=most).contains(&after)),
            "asking again after {:?} is not between {least:?} and {most:?}",
            denial.retry_after
        );
        let shown = denial.holder.as_ref().map(remaining).transpose()?;
        ensure!(
            shown.is_some_and(|left| left <= holder.ttl() + case.pace.lag),
            "the holder is shown with {shown:?} left"
        );
        waiting.push(attempt);
    }
    all_leave(&case, &waiting.iter().collect::<Vec<_>>()).await?;
    released(&case, &holder).await
}

/// Whether a stream fires within the time in which nothing should come.
async fn fires(case: &Case<'_>, wakeups: &mut Wakeups) -> bool {
    tokio::time::timeout(case.pace.quiet, wakeups.next()).await.is_ok()
}

/// A release hands over and fires the heir's stream, and nobody else's: no other can get the key. A stream may fire for
/// nothing now and then, so one quiet round of three is enough.
pub(super) async fn only_the_heir_is_woken(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    for round in 0..3 {
        let name = format!("lock {round}");
        let (holder, [first, second]) = held_and_queued(&case, &name, KEPT).await?;
        let mut heirs = case.subscribed(&case.other, on(&first), Some(first.token())).await?;
        // Each listens where it asked.
        let mut seconds = case.subscribed(&case.store, on(&first), Some(second.token())).await?;
        let mut anyones = case.subscribed(&case.store, on(&first), None).await?;
        released(&case, &holder).await?;
        case.awaited("the firing of the heir's stream", heirs.next()).await?;
        let quiet = !fires(&case, &mut seconds).await && !fires(&case, &mut anyones).await;
        // The same when an heir hands on.
        case.other.release(&first).await?;
        case.awaited("the firing of the next heir's stream", seconds.next()).await?;
        let quiet = quiet && !fires(&case, &mut anyones).await;
        all_leave(&case, &[&second]).await?;
        if quiet {
            return Ok(());
        }
    }
    Err(Failure::new("every time a key was handed over, others than the heir were woken"))
}

/// Whoever hands a free key over wakes the heir too.
pub(super) async fn the_heir_of_a_free_key_is_woken(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let (name, [first]) = free_and_queued(&case).await?;
    let mut heirs = case.subscribed(&case.other, on(&first), Some(first.token())).await?;
    denied_by(case.store.acquire(&fair_try(&case, &name)?).await?, 0, first.token())?;
    case.awaited("the firing of the heir's stream", heirs.next()).await?;
    all_leave(&case, &[&first]).await
}

/// The stream of one in the queue also fires when a lease that knows of no queue is given back or revoked.
pub(super) async fn plain_releases_wake_the_queue(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    for revoked in [false, true] {
        let plain = case.attempt("lock", LONG)?;
        granted(case.store.acquire(&plain).await?)?;
        let first = queued(&case, "lock", LONG, KEPT)?;
        denied_by(case.other.acquire(&first).await?, 0, plain.token())?;
        let mut wakeups = case.subscribed(&case.other, on(&first), Some(first.token())).await?;
        let ended = match revoked {
            true => case.store.revoke(on(&plain), plain.token()).await?,
            false => case.store.release(&plain).await?.held,
        };
        ensure!(ended, "the lease was not held any more");
        case.awaited("the firing for one in the queue", wakeups.next()).await?;
        granted(case.other.acquire(&first).await?)?;
        released(&case, &first).await?;
    }
    Ok(())
}

/// A queue is for one exclusive claim on a lock: a duplicate guard's is [`ErrorKind::Unsupported`], and takes nothing.
pub(super) async fn other_claims_are_refused(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    refuses(&case, vec![Claim::duplicate(case.key("lock")?, LONG)]).await
}

/// Several claims in a queue are [`ErrorKind::Unsupported`], and take nothing.
pub(super) async fn several_claims_are_refused(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    refuses(&case, vec![case.claim("a", LONG)?, case.claim("b", LONG)?]).await
}

/// Shared claims in a queue are [`ErrorKind::Unsupported`], and take nothing.
pub(super) async fn shared_claims_are_refused(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    refuses(&case, vec![Claim::shared(case.key("lock")?, LONG)]).await
}

async fn refuses(case: &Case<'_>, claims: Vec<Claim>) -> Result<(), Failure> {
    let patience = Patience::Queue { until: Instant::now() + LONG, confirm: KEPT };
    let attempt = Attempt::new(token(), claims)?.with_patience(patience);
    refused(case.store.acquire(&attempt).await, ErrorKind::Unsupported)?;
    for claim in attempt.claims() {
        free(&case.other.inspect(claim.on()).await?)?;
    }
    Ok(())
}
