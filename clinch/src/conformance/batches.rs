//! [`Store::acquire_each`](crate::store::Store::acquire_each) and [`Store::renew_each`](crate::store::Store::renew_each):
//! many at once that have nothing to do with each other.

use std::sync::Arc;

use tokio::time::Instant;

use super::case::{
    Case, LONG, copy, denied_by, ensure, extended, free, granted, held_by, lost, on, refused, rival, token,
};
use super::{Failure, Harness};
use crate::lease::{Attempt, Claim, Fence};
use crate::store::{ErrorKind, Verdict};

/// One answer for each.
#[track_caller]
fn one_each<T>(answers: &[T], asked: usize) -> Result<(), Failure> {
    if answers.len() == asked {
        return Ok(());
    }
    Err(Failure::new(format!("{} answers to {asked}", answers.len())))
}

/// Grants and denials come in the order of the attempts, and each is what a single step would say.
pub(super) async fn attempts_are_answered_in_their_order(harness: &dyn Harness) -> Result<(), Failure> {
    const ATTEMPTS: usize = 40;
    let case = Case::new(harness).await?;
    let (mut holders, mut attempts) = (Vec::new(), Vec::new());
    for i in 0..ATTEMPTS {
        let attempt = case.attempt(&i.to_string(), LONG)?;
        let holder = (i % 3 == 0).then(|| rival(&attempt)).transpose()?;
        if let Some(holder) = &holder {
            granted(case.other.acquire(holder).await?)?;
        }
        holders.push(holder);
        attempts.push(Arc::new(attempt));
    }
    let before = Instant::now();
    let answers = case.store.acquire_each(&attempts).await;
    one_each(&answers, ATTEMPTS)?;
    for ((attempt, holder), answer) in attempts.iter().zip(&holders).zip(answers) {
        match holder {
            Some(holder) => drop(denied_by(answer?, 0, holder.token())?),
            None => drop(granted(answer?)?),
        }
        ensure!(
            attempt.sent_at().is_some_and(|sent| (before..=Instant::now()).contains(&sent)),
            "answered, but the attempt does not know when it was sent"
        );
        let holder = holder.as_ref().unwrap_or(attempt);
        held_by(case.other.inspect(on(attempt)).await?, holder.token())?;
        ensure!(case.other.release(holder).await?.held, "what was granted was not held");
    }
    Ok(())
}

/// Of two attempts for the same key in one call, exactly one is granted.
pub(super) async fn attempts_in_one_call_exclude_each_other(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let first = case.attempt("same", LONG)?;
    let attempts = [Arc::new(rival(&first)?), Arc::new(first)];
    let answers = case.store.acquire_each(&attempts).await;
    one_each(&answers, 2)?;
    let mut winners = Vec::new();
    for (attempt, answer) in attempts.iter().zip(answers) {
        if let Verdict::Granted(_) = answer? {
            winners.push(attempt);
        }
    }
    ensure!(winners.len() == 1, "{} of two attempts for one key were granted", winners.len());
    held_by(case.other.inspect(on(winners[0])).await?, winners[0].token())?;
    // Asked again, each gets the answer it got.
    for (attempt, answer) in attempts.iter().zip(case.store.acquire_each(&attempts).await) {
        let held = Arc::ptr_eq(attempt, winners[0]);
        ensure!(
            matches!(answer?, Verdict::Granted(_)) == held,
            "asked again in one call, an attempt got another answer"
        );
    }
    case.store.release(winners[0]).await?;
    Ok(())
}

/// An attempt that the store cannot serve is refused, and the others in the call are answered like any.
pub(super) async fn a_refused_attempt_leaves_the_others_alone(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    // No store gives a fence to a reader.
    let impossible = Claim::shared(case.key("impossible")?, LONG).fenced(Fence::new(0));
    let attempts = [
        Arc::new(case.attempt("a", LONG)?),
        Arc::new(Attempt::one(token(), impossible)),
        Arc::new(case.attempt("b", LONG)?),
    ];
    let answers = case.store.acquire_each(&attempts).await;
    one_each(&answers, 3)?;
    for (i, answer) in answers.into_iter().enumerate() {
        if i == 1 {
            refused(answer, ErrorKind::Unsupported)?;
        } else {
            granted(answer?)?;
            ensure!(case.store.release(&attempts[i]).await?.held, "what was granted was not held");
        }
    }
    Ok(())
}

/// A call for nothing has no answers.
pub(super) async fn a_call_for_nothing_has_no_answers(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    one_each(&case.store.acquire_each(&[]).await, 0)?;
    one_each(&case.store.renew_each(&[]).await, 0)
}

/// A future of either that is dropped before it was polled did nothing.
pub(super) async fn a_future_that_was_never_polled_did_nothing(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let attempts = [Arc::new(case.attempt("a", LONG)?), Arc::new(case.attempt("b", LONG)?)];
    drop(case.store.acquire_each(&attempts));
    case.advance(case.pace.quiet).await;
    for attempt in &attempts {
        ensure!(attempt.sent_at().is_none(), "an attempt that was never polled is noted as sent");
        free(&case.other.inspect(on(attempt)).await?)?;
    }
    Ok(())
}

/// Renewals are answered in the order of the leases, each for its own: one that is lost is said to be, and all others
/// have their full TTL again.
///
/// Proves: B3
pub(super) async fn renewals_are_answered_in_their_order(harness: &dyn Harness) -> Result<(), Failure> {
    const LEASES: usize = 40;
    let case = Case::new(harness).await?;
    let mut leases = Vec::new();
    for i in 0..LEASES {
        let lease = case.attempt(&i.to_string(), if i % 3 == 0 { LONG } else { LONG / 2 })?;
        granted(case.store.acquire(&lease).await?)?;
        if i % 4 == 0 {
            case.store.release(&lease).await?;
        }
        // Another process's, which knows the token.
        leases.push(Arc::new(copy(&lease)?));
    }
    case.advance(case.pace.ttl).await;
    let asked = Instant::now();
    let answers = case.other.renew_each(&leases).await;
    let answered = Instant::now();
    one_each(&answers, LEASES)?;
    for (i, (lease, answer)) in leases.iter().zip(answers).enumerate() {
        if i % 4 == 0 {
            lost(answer?)?;
            free(&case.store.inspect(on(lease)).await?)?;
            continue;
        }
        let sent_at = extended(answer?)?;
        ensure!(
            (asked..=answered).contains(&sent_at),
            "the new validity counts from outside of the renewal itself"
        );
        case.has_all_left(&*case.store, lease, asked).await?;
        case.store.release(lease).await?;
    }
    Ok(())
}

/// A lease of another token in the call is *lost*, extends nothing, and keeps nobody's lease from being extended.
///
/// Proves: B3
pub(super) async fn a_lost_lease_leaves_the_others_alone(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let ttl = case.pace.ttl;
    let (held, taken) = (case.attempt("held", LONG)?, case.attempt("taken", ttl * 4)?);
    for lease in [&held, &taken] {
        granted(case.store.acquire(lease).await?)?;
    }
    case.advance(ttl).await;
    let stranger = Attempt::one(token(), case.claim("taken", LONG)?);
    let leases = [Arc::new(stranger), Arc::new(held)];
    let asked = Instant::now();
    let mut answers = case.store.renew_each(&leases).await.into_iter();
    let (Some(first), Some(second), None) = (answers.next(), answers.next(), answers.next()) else {
        return Err(Failure::new("two renewals had not two answers"));
    };
    lost(first?)?;
    extended(second?)?;
    case.has_all_left(&*case.other, &leases[1], asked).await?;
    case.outlive(ttl * 3).await;
    free(&case.other.inspect(on(&taken)).await?)?;
    case.store.release(&leases[1]).await?;
    Ok(())
}
