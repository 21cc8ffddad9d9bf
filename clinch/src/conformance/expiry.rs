//! Leases end by themselves, by the engine's clock.

use std::time::Duration;

use tokio::time::Instant;

use super::case::{
    Case, LONG, always_too_late, denied_by, ensure, free, granted, held_by, on, remaining, rival,
};
use super::{Failure, Harness};
use crate::store::Verdict;

/// A lease excludes others for all of its TTL, and is gone after it without anybody doing anything.
pub(super) async fn a_lease_ends_by_itself_and_not_before(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    for ttl in case.ttls() {
        let lease = case.attempt(&format!("lease {ttl:?}"), ttl)?;
        let second = rival(&lease)?;
        let sent = Instant::now();
        granted(case.store.acquire(&lease).await?)?;
        case.advance(ttl * 3 / 4).await;
        let early = case.other.acquire(&second).await?;
        if case.too_late(sent, ttl) {
            continue;
        }
        denied_by(early, 0, lease.token())?;
        case.outlive(ttl / 4).await;
        granted(case.other.acquire(&second).await?)?;
        held_by(case.store.inspect(on(&lease)).await?, second.token())?;
        return Ok(());
    }
    Err(always_too_late())
}

/// Every TTL from a millisecond to years is kept, to the millisecond.
pub(super) async fn a_lease_lives_as_long_as_was_asked(harness: &dyn Harness) -> Result<(), Failure> {
    const DAY: Duration = Duration::from_secs(86_400);
    let case = Case::new(harness).await?;
    let shortest = case.attempt("shortest", Duration::from_millis(1))?;
    granted(case.store.acquire(&shortest).await?)?;
    case.outlive(shortest.ttl()).await;
    free(&case.other.inspect(on(&shortest)).await?)?;

    let ttls = [Duration::from_micros(30_000_700), DAY, DAY * 30, DAY * 3_653];
    for ttl in ttls.into_iter().filter(|ttl| *ttl <= case.pace.longest_ttl) {
        let lease = case.attempt(&format!("lease {ttl:?}"), ttl)?;
        let sent = Instant::now();
        granted(case.store.acquire(&lease).await?)?;
        let holders = case.other.inspect(on(&lease)).await?;
        let least = case.at_least(ttl, sent);
        // First of all: nothing of ten years stays behind.
        case.store.release(&lease).await?;
        let left = remaining(&held_by(holders, lease.token())?)?;
        let most = ttl + case.pace.lag;
        ensure!(
            (least..=most).contains(&left),
            "of a TTL of {ttl:?}, {left:?} are left, not {least:?} to {most:?}"
        );
    }
    Ok(())
}

/// The time after which asking again makes sense is never less than 1 ms, however close the end is: no caller spins.
pub(super) async fn the_time_to_retry_is_never_below_a_millisecond(
    harness: &dyn Harness,
) -> Result<(), Failure> {
    const LEAST: Duration = Duration::from_millis(1);
    let case = Case::new(harness).await?;
    let ttl = Duration::from_millis(30);
    let lease = case.attempt("lease", ttl)?;
    let second = rival(&lease)?;
    granted(case.store.acquire(&lease).await?)?;
    let (started, mut asked) = (Instant::now(), 0_u32);
    while let Verdict::Denied(denial) = case.other.acquire(&second).await? {
        if let Some(retry_after) = denial.retry_after {
            let most = ttl + case.pace.lag;
            ensure!(
                (LEAST..=most).contains(&retry_after),
                "asking again after {retry_after:?} is not 1 ms to {most:?}"
            );
        }
        ensure!(started.elapsed() < case.pace.patience, "a lease of {ttl:?} does not end");
        asked += 1;
        // Asks as often as it can, so that the last millisecond is among the answers, and lets time pass.
        if asked % 8 == 0 {
            case.advance(LEAST).await;
        } else {
            tokio::task::yield_now().await;
        }
    }
    Ok(())
}

/// A lease that expired and was taken by another is denied to its former holder, like to anybody.
pub(super) async fn a_lost_lease_is_not_granted_over_its_successor(
    harness: &dyn Harness,
) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let (lost, successor) = case.succeeded("lease").await?;
    let denial = denied_by(case.store.acquire(&lost).await?, 0, successor.token())?;
    let most = LONG + case.pace.lag;
    ensure!(
        denial.retry_after.is_none_or(|after| after <= most),
        "the time left is not the successor's: {denial:?}"
    );
    held_by(case.other.inspect(on(&lost)).await?, successor.token())?;
    case.other.release(&successor).await?;
    Ok(())
}
