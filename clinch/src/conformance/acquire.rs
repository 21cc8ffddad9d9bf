//! [`Store::acquire`](crate::store::Store::acquire): one claim at a time.

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use tokio::time::Instant;

use super::case::{
    Case, LONG, acquire_at_once, always_too_late, copy, denied, denied_by, ensure, free, granted, held_by,
    on, rival, token,
};
use super::{Failure, Harness};
use crate::key::{Key, MAX_KEY_BYTES};
use crate::lease::{Attempt, Claim};
use crate::store::Verdict;

/// A key that nobody holds is granted, without fences if none were asked for, and is held from then on.
pub(super) async fn a_free_key_is_granted(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let lease = case.attempt("lease", LONG)?;
    let grant = granted(case.store.acquire(&lease).await?)?;
    ensure!(grant.fences.is_empty(), "no claim asked for a fence, and the grant has {:?}", grant.fences);
    held_by(case.other.inspect(on(&lease)).await?, lease.token())?;
    case.store.release(&lease).await?;
    Ok(())
}

/// A key that is held is denied to every other token. The denial names the claim, the holder, and when to ask again:
/// at least 1 ms from now, at most the holder's TTL.
pub(super) async fn a_held_key_is_denied_and_its_holder_named(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let lease = case.attempt("lease", LONG)?;
    let sent = Instant::now();
    granted(case.store.acquire(&lease).await?)?;
    for store in [&case.store, &case.other] {
        let denial = denied_by(store.acquire(&rival(&lease)?).await?, 0, lease.token())?;
        let Some(retry_after) = denial.retry_after else {
            return Err(Failure::new(
                "the denial does not say when to ask again, though the holder has an expiry",
            ));
        };
        let (least, most) = (case.at_least(LONG, sent).max(Duration::from_millis(1)), LONG + case.pace.lag);
        ensure!(
            (least..=most).contains(&retry_after),
            "asking again after {retry_after:?} is not between {least:?} and {most:?}"
        );
        let named = denial.holder.map(|holder| holder.on().clone());
        ensure!(
            named.as_ref() == Some(on(&lease)),
            "the denial's holder is on {named:?}, not on the key asked for"
        );
    }
    case.store.release(&lease).await?;
    Ok(())
}

/// A denial changes nothing: the holder stays, its expiry does not move, and the denied attempt gets nothing later.
pub(super) async fn a_denied_attempt_changes_nothing(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    for ttl in case.ttls() {
        let lease = case.attempt(&format!("lease {ttl:?}"), ttl)?;
        let sent = Instant::now();
        granted(case.store.acquire(&lease).await?)?;
        case.advance(ttl / 2).await;
        let asked = case.other.acquire(&rival(&lease)?).await?;
        let holders = case.other.inspect(on(&lease)).await?;
        if case.too_late(sent, ttl) {
            continue;
        }
        denied_by(asked, 0, lease.token())?;
        held_by(holders, lease.token())?;
        case.outlive(ttl / 2).await;
        return free(&case.other.inspect(on(&lease)).await?);
    }
    Err(always_too_late())
}

/// Sent again with the same token, an attempt that was granted gets the same answer, also over another connection: so
/// a lost reply is simply asked again.
pub(super) async fn a_repeated_attempt_gets_the_same_answer(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let lease = case.attempt("lease", LONG)?;
    let first = Verdict::Granted(granted(case.store.acquire(&lease).await?)?);
    for again in [case.store.acquire(&lease).await?, case.other.acquire(&copy(&lease)?).await?] {
        ensure!(again == first, "the first answer was {first:?}, the same attempt then got {again:?}");
    }
    held_by(case.other.inspect(on(&lease)).await?, lease.token())?;
    ensure!(case.store.release(&lease).await?.held, "a lease that was asked for three times was not held");
    free(&case.other.inspect(on(&lease)).await?)
}

/// Sent again with the same token, an attempt that was granted moves no expiry.
pub(super) async fn a_repeated_attempt_moves_no_expiry(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    for ttl in case.ttls() {
        let lease = case.attempt(&format!("lease {ttl:?}"), ttl)?;
        let sent = Instant::now();
        granted(case.store.acquire(&lease).await?)?;
        case.advance(ttl / 2).await;
        let again = case.store.acquire(&lease).await?;
        if case.too_late(sent, ttl) {
            // A new grant, perhaps, after the first had ended.
            continue;
        }
        granted(again)?;
        case.outlive(ttl / 2).await;
        return free(&case.other.inspect(on(&lease)).await?);
    }
    Err(always_too_late())
}

/// Of many attempts at the same time, over several connections, exactly one is granted; all others are denied, and
/// none fails. Where votes can be split, never more than one is, and one is before long.
///
/// Proves: L7
pub(super) async fn one_of_many_wins(harness: &dyn Harness) -> Result<(), Failure> {
    const ROUNDS: usize = 4;
    const ATTEMPTS: usize = 64;
    const SPLIT: usize = 100;
    let case = Case::new(harness).await?;
    let connections = case.connections(4).await?;
    let splits = case.store.capabilities().split_votes;
    let (mut round, mut split) = (0, 0);
    while round < ROUNDS {
        let name = format!("round {round}");
        let attempts: Result<_, _> = (0..ATTEMPTS).map(|_| case.attempt(&name, LONG)).collect();
        let (winners, losers): (Vec<_>, Vec<_>) = acquire_at_once(&connections, attempts?)
            .await?
            .into_iter()
            .partition(|(_, verdict)| matches!(verdict, Verdict::Granted(_)));
        if splits && winners.is_empty() {
            split += 1;
            ensure!(split < SPLIT, "nobody won in {SPLIT} rounds");
            continue;
        }
        round += 1;
        ensure!(winners.len() == 1, "{} of {ATTEMPTS} attempts at the same time were granted", winners.len());
        let (winner, _) = &winners[0];
        for (_, verdict) in losers {
            // A loser may have been in another loser's way.
            if splits { drop(denied(verdict)?) } else { drop(denied_by(verdict, 0, winner.token())?) }
        }
        held_by(case.other.inspect(on(winner)).await?, winner.token())?;
        ensure!(case.other.release(winner).await?.held, "the winner did not hold what it was granted");
    }
    Ok(())
}

/// [`Attempt::sending`] is called, granted or denied, and before the step can have taken effect.
pub(super) async fn the_instant_of_sending_is_noted(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let lease = case.attempt("lease", LONG)?;
    let second = rival(&lease)?;
    for attempt in [&lease, &second] {
        let before = Instant::now();
        let verdict = case.store.acquire(attempt).await?;
        let after = Instant::now();
        let Some(sent_at) = attempt.sent_at() else {
            return Err(Failure::new(format!(
                "answered {verdict:?}, but the attempt does not know that it was sent"
            )));
        };
        ensure!(
            (before..=after).contains(&sent_at),
            "noted as sent before it was asked for or after it was answered"
        );
    }
    case.store.release(&lease).await?;
    Ok(())
}

/// A future of `acquire` that is dropped before it was polled did nothing: nothing was sent, the key is free.
pub(super) async fn a_future_that_was_never_polled_did_nothing(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let lease = case.attempt("lease", LONG)?;
    drop(case.store.acquire(&lease));
    case.advance(case.pace.quiet).await;
    ensure!(lease.sent_at().is_none(), "an attempt that was never polled is noted as sent");
    free(&case.other.inspect(on(&lease)).await?)
}

/// A future of `acquire` may be dropped at any point. What it left is settled with `release`: once one says that it is
/// *conclusive*, nothing of the attempt comes any more; if none does, nothing is left once the TTL is over.
pub(super) async fn a_dropped_attempt_can_be_settled(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let ttl = case.pace.ttl * 2;
    for polls in [1, 2, 3, 5, 8] {
        let lease = case.attempt(&format!("after {polls} polls"), ttl)?;
        poll_and_drop(&case, &lease, polls).await;
        let mut left = ttl + case.pace.lag;
        while !case.store.release(&lease).await?.conclusive && !left.is_zero() {
            let pause = case.pace.lag.min(left);
            case.advance(pause).await;
            left -= pause;
        }
        free(&case.other.inspect(on(&lease)).await?)?;
        // What is still on its way would arrive now.
        case.advance(case.pace.lag).await;
        free(&case.other.inspect(on(&lease)).await?)?;
        granted(case.other.acquire(&rival(&lease)?).await?)?;
    }
    Ok(())
}

async fn poll_and_drop(case: &Case<'_>, lease: &Attempt, polls: u32) {
    let mut acquiring = case.store.acquire(lease);
    for _ in 0..polls {
        let answered = poll_fn(|context| Poll::Ready(acquiring.as_mut().poll(context).is_ready())).await;
        if answered {
            return;
        }
        tokio::task::yield_now().await;
    }
}

/// Every valid [`Key`] works and names one thing only: the longest ones, blanks, other scripts, a hash tag, and texts
/// that a pattern, an escape or a cut would take for each other.
pub(super) async fn every_valid_key_is_its_own(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let base = case.text("k");
    let filled = |last: char| {
        let room = MAX_KEY_BYTES - base.len() - last.len_utf8();
        format!("{base}{}{last}", "x".repeat(room))
    };
    let tails = [
        "",
        " ",
        "  ",
        ":",
        "::",
        "%",
        "%3A",
        "%20",
        "*",
        "?",
        "[k]",
        "\\",
        "'",
        "\"",
        "/",
        "..",
        "K",
        "é",
        "e\u{301}",
        "日本:注文",
        "\u{1F512}",
        ":lock:k",
        "@h:1:",
    ];
    let mut texts: Vec<String> = tails.iter().map(|tail| format!("{base}{tail}")).collect();
    texts.extend([filled('a'), filled('b'), filled('é'), format!(" {base}"), format!("K{base}")]);
    texts.extend([
        format!("{{{base}}}"),
        format!("{{{base}}}:cart"),
        format!("cart:{{{base}}}"),
        format!("{base}{{:}}"),
    ]);

    let mut leases = Vec::new();
    for text in texts {
        let lease = Attempt::one(token(), Claim::exclusive(Key::new(&text)?, LONG));
        let verdict = case.store.acquire(&lease).await?;
        ensure!(
            matches!(verdict, Verdict::Granted(_)),
            "the free key {text:?} collides with another: {verdict:?}"
        );
        leases.push(lease);
    }
    for lease in &leases {
        let holder = held_by(case.other.inspect(on(lease)).await?, lease.token())?;
        ensure!(holder.on() == on(lease), "the holder of {:?} is shown on {:?}", on(lease), holder.on());
        denied_by(case.other.acquire(&rival(lease)?).await?, 0, lease.token())?;
    }
    for lease in &leases {
        ensure!(case.other.release(lease).await?.held, "{:?} was not held any more", on(lease));
    }
    Ok(())
}

/// The same text in two spaces names two things: both can be held, and releasing one leaves the other.
pub(super) async fn the_same_text_in_two_spaces_is_two_keys(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let lock = case.attempt("same", LONG)?;
    let duplicate = Attempt::one(token(), Claim::duplicate(case.key("same")?, LONG));
    granted(case.store.acquire(&lock).await?)?;
    granted(case.store.acquire(&duplicate).await?)?;
    held_by(case.other.inspect(on(&lock)).await?, lock.token())?;
    held_by(case.other.inspect(on(&duplicate)).await?, duplicate.token())?;
    denied(case.other.acquire(&rival(&duplicate)?).await?)?;
    ensure!(case.store.release(&lock).await?.held, "the lock was not held any more");
    free(&case.other.inspect(on(&lock)).await?)?;
    held_by(case.other.inspect(on(&duplicate)).await?, duplicate.token())?;
    ensure!(case.store.release(&duplicate).await?.held, "the duplicate guard was not held any more");
    Ok(())
}
