//! [`Capabilities::wakeups`](crate::store::Capabilities::wakeups): waiters are woken by push.

use super::case::{Case, LONG, ensure, granted, on, token};
use super::{Failure, Harness};
use crate::lease::{Attempt, Claim};

/// A stream fires once after it was subscribed, whether the key is held or free: the waiter looks again, and a release
/// between its first look and its subscription is not missed.
pub(super) async fn a_stream_fires_once_it_is_subscribed(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let lease = case.attempt("held", LONG)?;
    granted(case.other.acquire(&lease).await?)?;
    case.subscribed(&case.store, on(&lease), None).await?;
    case.subscribed(&case.store, on(&case.attempt("free", LONG)?), None).await?;
    case.other.release(&lease).await?;
    Ok(())
}

/// A release fires, also on other connections.
pub(super) async fn a_release_fires(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let lease = case.attempt("lease", LONG)?;
    for store in [&case.other, &case.store] {
        granted(case.store.acquire(&lease).await?)?;
        let mut wakeups = case.subscribed(store, on(&lease), None).await?;
        ensure!(case.store.release(&lease).await?.held, "the lease was not held any more");
        case.awaited("the firing after a release", wakeups.next()).await?;
    }
    Ok(())
}

/// A revocation fires, also on other connections.
pub(super) async fn a_revocation_fires(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let lease = case.attempt("lease", LONG)?;
    for store in [&case.other, &case.store] {
        granted(case.store.acquire(&lease).await?)?;
        let mut wakeups = case.subscribed(store, on(&lease), None).await?;
        ensure!(case.store.revoke(on(&lease), lease.token()).await?, "the lease was not held any more");
        case.awaited("the firing after a revocation", wakeups.next()).await?;
    }
    Ok(())
}

/// The release of a lease with several claims fires for each of its keys.
pub(super) async fn a_release_of_several_claims_fires_for_each(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let lease = case.several(&["a", "b", "c"], LONG)?;
    granted(case.store.acquire(&lease).await?)?;
    let mut streams = Vec::new();
    for claim in lease.claims() {
        streams.push(case.subscribed(&case.other, claim.on(), None).await?);
    }
    ensure!(case.store.release(&lease).await?.held, "the lease was not held any more");
    for wakeups in &mut streams {
        case.awaited("the firing for each key of a lease", wakeups.next()).await?;
    }
    Ok(())
}

/// A firing that comes while nobody waits is kept for the next one who does.
pub(super) async fn a_firing_waits_for_its_listener(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let lease = case.attempt("lease", LONG)?;
    granted(case.store.acquire(&lease).await?)?;
    let mut wakeups = case.subscribed(&case.other, on(&lease), None).await?;
    ensure!(case.store.release(&lease).await?.held, "the lease was not held any more");
    case.advance(case.pace.quiet).await;
    case.awaited("a firing from before it was waited for", wakeups.next()).await
}

/// Every stream of a key fires, on all connections, and dropping one leaves the others.
pub(super) async fn every_stream_of_a_key_fires(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let lease = case.attempt("lease", LONG)?;
    granted(case.store.acquire(&lease).await?)?;
    let mut streams = Vec::new();
    for store in [&case.other, &case.other, &case.other, &case.store] {
        streams.push(case.subscribed(store, on(&lease), None).await?);
    }
    drop(streams.remove(1));
    // Time for a store to end the whole subscription by mistake.
    case.advance(case.pace.lag).await;
    ensure!(case.store.release(&lease).await?.held, "the lease was not held any more");
    for wakeups in &mut streams {
        case.awaited("the firing of every stream of a key", wakeups.next()).await?;
    }
    Ok(())
}

/// A stream is for one key: releases of other keys, and of the same text in another space, do not fire it. A stream
/// may fire for nothing now and then, so one quiet round of three is enough.
pub(super) async fn other_keys_do_not_fire(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    for round in 0..3 {
        let name = format!("waited for {round}");
        let mut wakeups = case.subscribed(&case.store, on(&case.attempt(&name, LONG)?), None).await?;
        let others = [
            case.attempt(&format!("{name}0"), LONG)?,
            Attempt::one(token(), Claim::duplicate(case.key(&name)?, LONG)),
        ];
        for other in &others {
            granted(case.other.acquire(other).await?)?;
            ensure!(case.other.release(other).await?.held, "the lease was not held any more");
        }
        if tokio::time::timeout(case.pace.quiet, wakeups.next()).await.is_err() {
            return Ok(());
        }
    }
    Err(Failure::new("a stream fired every time another key was released"))
}
