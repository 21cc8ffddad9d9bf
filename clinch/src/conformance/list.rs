//! [`Capabilities::list`](crate::store::Capabilities::list): all holders, page by page.

use std::collections::HashMap;

use super::case::{Case, LONG, acquire_at_once, ensure, granted, listed, on, remaining, token};
use super::{Failure, Harness};
use crate::lease::{Attempt, Claim, ClaimKey, Holder};

/// A listing ends, and shows every holder that was there all the time, of every space, with its token and time left.
///
/// Proves: T2
pub(super) async fn every_holder_is_listed(harness: &dyn Harness) -> Result<(), Failure> {
    // More than a page of most stores; few at a time, so that no bound on calls in flight is met.
    const LEASES: usize = 300;
    const AT_A_TIME: usize = 30;
    let case = Case::new(harness).await?;
    let connections = case.connections(2).await?;
    let mut leases = Vec::new();
    for first in (0..LEASES).step_by(AT_A_TIME) {
        let mut attempts = Vec::new();
        for i in first..first + AT_A_TIME {
            let key = case.key(&i.to_string())?;
            let claim = if i % 10 == 0 { Claim::duplicate(key, LONG) } else { Claim::exclusive(key, LONG) };
            attempts.push(Attempt::one(token(), claim));
        }
        for (lease, verdict) in acquire_at_once(&connections, attempts).await? {
            granted(verdict)?;
            leases.push(lease);
        }
    }
    // Where servers vote, those that were not needed may still be on their way to a lease, and one that comes is missed.
    if case.store.capabilities().split_votes {
        case.advance(case.pace.lag).await;
    }
    let holders: HashMap<ClaimKey, Holder> =
        listed(&case.other).await?.into_iter().map(|holder| (holder.on().clone(), holder)).collect();
    let seen = leases.iter().filter(|lease| holders.contains_key(on(lease))).count();
    ensure!(seen == LEASES, "a listing shows {seen} of {LEASES} holders");
    for lease in &leases {
        let holder = &holders[on(lease)];
        ensure!(holder.token() == lease.token(), "a listing shows another holder of {}", on(lease));
        let left = remaining(holder)?;
        ensure!(left <= LONG + case.pace.lag, "a listing shows {left:?} left of {LONG:?}");
        case.store.release(lease).await?;
    }
    Ok(())
}

/// The keys of these leases that a listing shows.
async fn shown(case: &Case<'_>, leases: &[&Attempt]) -> Result<usize, Failure> {
    let holders = listed(&case.other).await?;
    Ok(leases.iter().filter(|lease| holders.iter().any(|holder| holder.on() == on(lease))).count())
}

/// Holders that have released are not listed any more; the others are.
pub(super) async fn released_holders_vanish(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let (released, kept) = (case.attempt("released", LONG)?, case.attempt("kept", LONG)?);
    for lease in [&released, &kept] {
        granted(case.store.acquire(lease).await?)?;
    }
    ensure!(
        shown(&case, &[&released, &kept]).await? == 2,
        "a listing does not show two leases that are held"
    );
    case.store.release(&released).await?;
    ensure!(shown(&case, &[&released]).await? == 0, "a listing shows a lease that was released");
    ensure!(shown(&case, &[&kept]).await? == 1, "a listing does not show a lease that is held");
    case.store.release(&kept).await?;
    Ok(())
}

/// Holders whose lease has expired are not listed any more.
pub(super) async fn expired_holders_vanish(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let (expired, kept) = (case.attempt("expired", case.pace.ttl)?, case.attempt("kept", LONG)?);
    for lease in [&expired, &kept] {
        granted(case.store.acquire(lease).await?)?;
    }
    case.outlive(expired.ttl()).await;
    ensure!(shown(&case, &[&expired]).await? == 0, "a listing shows a lease that has expired");
    ensure!(shown(&case, &[&kept]).await? == 1, "a listing does not show a lease that is held");
    case.store.release(&kept).await?;
    Ok(())
}

/// Another client's value is listed too, as an unknown holder.
///
/// Proves: T2
pub(super) async fn another_clients_value_is_listed_as_unknown(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let on = ClaimKey::lock(case.key("foreign")?);
    let value = case.text("plain value");
    case.put_foreign(&on, &value, Some(LONG)).await?;
    let Some(holder) = listed(&case.other).await?.into_iter().find(|holder| *holder.on() == on) else {
        return Err(Failure::new("a listing does not show another client's value"));
    };
    ensure!(holder.owner().is_none(), "another client's value is listed as {:?}", holder.owner());
    ensure!(holder.token().as_str() == value, "a listing shows another value than the one that is there");
    case.other.revoke(&on, holder.token()).await?;
    Ok(())
}
