//! [`Store::renew`](crate::store::Store::renew): by token, only ever extending.

use tokio::time::Instant;

use super::case::{
    Case, LONG, always_too_late, denied_by, ensure, extended, free, granted, held_by, lost, on, remaining,
    rival,
};
use super::{Failure, Harness};
use crate::lease::Attempt;

/// A renewed lease has its full TTL again, counted from now, and ends after that. The answer says from which instant
/// the new validity counts: not before the renewal was asked for, not after it was answered.
///
/// Proves: B3
pub(super) async fn a_renewed_lease_has_its_full_ttl_again(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    for ttl in case.ttls() {
        let lease = case.attempt(&format!("lease {ttl:?}"), ttl)?;
        let second = rival(&lease)?;
        let sent = Instant::now();
        granted(case.store.acquire(&lease).await?)?;
        case.advance(ttl / 2).await;
        let asked = Instant::now();
        let renewal = case.store.renew(&lease).await?;
        let answered = Instant::now();
        if case.too_late(sent, ttl) {
            continue;
        }
        let sent_at = extended(renewal)?;
        ensure!(
            (asked..=answered).contains(&sent_at),
            "the new validity counts from outside of the renewal itself"
        );
        // Past the first end, before the second.
        case.advance(ttl * 3 / 4).await;
        let early = case.other.acquire(&second).await?;
        if case.too_late(asked, ttl) {
            continue;
        }
        denied_by(early, 0, lease.token())?;
        case.outlive(ttl / 4).await;
        return free(&case.other.inspect(on(&lease)).await?);
    }
    Err(always_too_late())
}

/// A renewal never brings an end nearer: renewed with a shorter TTL than it has left, a lease keeps what it has.
///
/// Proves: B3
pub(super) async fn a_renewal_never_shortens(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let lease = case.attempt("lease", LONG)?;
    let shorter = Attempt::one(lease.token().clone(), case.claim("lease", case.pace.ttl)?);
    let sent = Instant::now();
    granted(case.store.acquire(&lease).await?)?;
    extended(case.store.renew(&shorter).await?)?;
    let left = remaining(&held_by(case.other.inspect(on(&lease)).await?, lease.token())?)?;
    let least = case.at_least(LONG, sent);
    ensure!(left >= least, "a renewal shortened a lease: {left:?} are left, at least {least:?} were");
    case.outlive(shorter.ttl()).await;
    held_by(case.other.inspect(on(&lease)).await?, lease.token())?;
    case.store.release(&lease).await?;
    Ok(())
}

/// Another token's renewal is *lost* and moves the holder's expiry by nothing.
///
/// Proves: B3
pub(super) async fn a_stranger_renews_nothing(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let lease = case.attempt("lease", case.pace.ttl)?;
    granted(case.store.acquire(&lease).await?)?;
    case.advance(lease.ttl() / 2).await;
    lost(case.other.renew(&case.attempt("lease", LONG)?).await?)?;
    case.outlive(lease.ttl() / 2).await;
    free(&case.other.inspect(on(&lease)).await?)
}

/// A lease that has expired is *lost*: renewing does not bring it back, nor make one that never was.
///
/// Proves: B3
pub(super) async fn an_expired_lease_is_lost_for_good(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let lease = case.attempt("lease", case.pace.ttl)?;
    granted(case.store.acquire(&lease).await?)?;
    case.outlive(lease.ttl()).await;
    for not_held in [&lease, &case.attempt("never", LONG)?] {
        lost(case.store.renew(not_held).await?)?;
        free(&case.other.inspect(on(not_held)).await?)?;
        granted(case.other.acquire(&rival(not_held)?).await?)?;
    }
    Ok(())
}

/// A lease that was released is *lost*: a renewal that comes late does not bring it back.
///
/// Proves: B3
pub(super) async fn a_released_lease_is_lost_for_good(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let lease = case.attempt("lease", LONG)?;
    granted(case.store.acquire(&lease).await?)?;
    extended(case.store.renew(&lease).await?)?;
    ensure!(case.store.release(&lease).await?.held, "a renewed lease could not be released");
    lost(case.store.renew(&lease).await?)?;
    free(&case.other.inspect(on(&lease)).await?)
}

/// The renewal of a lease that another has taken over is *lost*, and the successor's expiry does not move.
///
/// Proves: B3
pub(super) async fn a_successor_is_not_extended(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let ttl = case.pace.ttl;
    let former = case.attempt("lease", ttl)?;
    granted(case.store.acquire(&former).await?)?;
    case.outlive(ttl).await;
    let successor = rival(&former)?;
    granted(case.other.acquire(&successor).await?)?;
    case.advance(ttl / 2).await;
    let longer = Attempt::one(former.token().clone(), case.claim("lease", LONG)?);
    lost(case.store.renew(&longer).await?)?;
    case.outlive(ttl / 2).await;
    free(&case.other.inspect(on(&former)).await?)
}
