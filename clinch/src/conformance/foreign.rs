//! Other clients' plain locks on the same keys: they exclude, are excluded, and are shown as what they are.

use tokio::time::Instant;

use super::case::{Case, LONG, always_too_late, denied_by, ensure, free, granted, held_by, lost, on};
use super::{Failure, Harness};
use crate::lease::Token;

/// Another client's value denies attempts, and is shown as an unknown holder with the time it has left.
///
/// Proves: T2
pub(super) async fn another_clients_value_denies_and_is_shown_as_unknown(
    harness: &dyn Harness,
) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let attempt = case.attempt("foreign", LONG)?;
    let foreign = Token::from_text(case.text("plain value"));
    let sent = Instant::now();
    case.put_foreign(on(&attempt), foreign.as_str(), Some(LONG)).await?;
    let denial = denied_by(case.store.acquire(&attempt).await?, 0, &foreign)?;
    let inspected = held_by(case.other.inspect(on(&attempt)).await?, &foreign)?;
    let (least, most) = (case.at_least(LONG, sent), LONG + case.pace.lag);
    let in_range = |left: Option<_>| left.is_some_and(|left| (least..=most).contains(&left));
    ensure!(in_range(denial.retry_after), "asking again after {:?} is not its time left", denial.retry_after);
    for holder in [Some(inspected), denial.holder].into_iter().flatten() {
        ensure!(holder.owner().is_none(), "another client's value is shown as {:?}", holder.owner());
        ensure!(holder.since().is_none(), "another client's value is shown since {:?}", holder.since());
        ensure!(
            in_range(holder.remaining()),
            "another client's value is shown with {:?} left",
            holder.remaining()
        );
    }
    case.store.revoke(on(&attempt), &foreign).await?;
    Ok(())
}

/// No step of an attempt that another client's value denies touches that value.
///
/// Proves: L8, B3
pub(super) async fn another_clients_value_is_never_touched(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let attempt = case.attempt("foreign", LONG)?;
    let foreign = Token::from_text(case.text("plain value"));
    case.put_foreign(on(&attempt), foreign.as_str(), Some(LONG)).await?;
    denied_by(case.store.acquire(&attempt).await?, 0, &foreign)?;
    lost(case.store.renew(&attempt).await?)?;
    ensure!(
        !case.store.release(&attempt).await?.held,
        "a release says that it held what another client holds"
    );
    ensure!(
        !case.store.revoke(on(&attempt), attempt.token()).await?,
        "a token that holds nothing was revoked"
    );
    held_by(case.other.inspect(on(&attempt)).await?, &foreign)?;
    case.store.revoke(on(&attempt), &foreign).await?;
    Ok(())
}

/// Another client's value that expires frees the key, and not before.
pub(super) async fn another_clients_value_expires_like_a_lease(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    for ttl in case.ttls() {
        let attempt = case.attempt(&format!("foreign {ttl:?}"), LONG)?;
        let foreign = Token::from_text(case.text("plain value"));
        let sent = Instant::now();
        case.put_foreign(on(&attempt), foreign.as_str(), Some(ttl)).await?;
        case.advance(ttl / 2).await;
        let early = case.store.acquire(&attempt).await?;
        if case.too_late(sent, ttl) {
            continue;
        }
        denied_by(early, 0, &foreign)?;
        case.outlive(ttl / 2).await;
        granted(case.store.acquire(&attempt).await?)?;
        case.store.release(&attempt).await?;
        return Ok(());
    }
    Err(always_too_late())
}

/// What `inspect` shows can be revoked, another client's value too.
pub(super) async fn another_clients_value_can_be_revoked(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let attempt = case.attempt("foreign", LONG)?;
    let foreign = Token::from_text(case.text("plain value"));
    case.put_foreign(on(&attempt), foreign.as_str(), Some(LONG)).await?;
    let holder = held_by(case.store.inspect(on(&attempt)).await?, &foreign)?;
    ensure!(
        case.other.revoke(holder.on(), holder.token()).await?,
        "a holder that was just shown was not found"
    );
    free(&case.store.inspect(on(&attempt)).await?)?;
    granted(case.store.acquire(&attempt).await?)?;
    case.store.release(&attempt).await?;
    Ok(())
}

/// Another client's value without expiry denies attempts and is shown without a time left; when to ask again is then
/// not known.
///
/// Proves: T2
pub(super) async fn a_value_without_expiry_denies_without_end(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let attempt = case.attempt("foreign", LONG)?;
    let foreign = Token::from_text(case.text("plain value"));
    case.put_foreign(on(&attempt), foreign.as_str(), None).await?;
    let verdict = case.store.acquire(&attempt).await?;
    let renewal = case.store.renew(&attempt).await?;
    let holders = case.other.inspect(on(&attempt)).await?;
    // First of all: nothing without expiry stays behind.
    let revoked = case.store.revoke(on(&attempt), &foreign).await?;

    let denial = denied_by(verdict, 0, &foreign)?;
    ensure!(
        denial.retry_after.is_none(),
        "asking again after {:?}, of a value without expiry",
        denial.retry_after
    );
    lost(renewal)?;
    for holder in [Some(held_by(holders, &foreign)?), denial.holder].into_iter().flatten() {
        ensure!(holder.owner().is_none(), "another client's value is shown as {:?}", holder.owner());
        ensure!(
            holder.remaining().is_none(),
            "a value without expiry is shown with {:?} left",
            holder.remaining()
        );
    }
    ensure!(revoked, "a holder that was just shown was not found");
    free(&case.other.inspect(on(&attempt)).await?)
}
