//! What every connection promises, whatever is sent over it.

use tokio::time::Instant;

use super::case::{Case, LONG, denied_by, ensure, granted, held_by, on, rival};
use super::{Failure, Harness};
use crate::store::ErrorKind;

/// `ping` is answered, and says how long the round trip took.
pub(super) async fn it_answers_a_ping(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let sent = Instant::now();
    let took = case.store.ping().await?;
    let passed = sent.elapsed();
    ensure!(took <= passed + case.pace.lag, "a ping says that it took {took:?}, but only {passed:?} passed");
    Ok(())
}

/// `capabilities` does not change while the store lives, and is the same on all connections to one engine.
pub(super) async fn its_capabilities_stay_as_they_are(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let first = case.store.capabilities();
    let lease = case.attempt("lease", LONG)?;
    granted(case.store.acquire(&lease).await?)?;
    case.store.release(&lease).await?;
    for (later, whose) in
        [(case.store.capabilities(), "later"), (case.other.capabilities(), "on another connection")]
    {
        ensure!(later == first, "the capabilities were {first:?}, and {whose} they are {later:?}");
    }
    Ok(())
}

/// What one connection is granted excludes and is seen by all others.
pub(super) async fn all_connections_see_the_same_leases(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let lease = case.attempt("lease", LONG)?;
    granted(case.store.acquire(&lease).await?)?;
    for store in case.connections(3).await? {
        held_by(store.inspect(on(&lease)).await?, lease.token())?;
        denied_by(store.acquire(&rival(&lease)?).await?, 0, lease.token())?;
    }
    case.store.release(&lease).await?;
    Ok(())
}

/// A lease ends by release, revocation or expiry, not with the connection it was taken over. Steps on a connection
/// that was closed work or fail with [`ErrorKind::Closed`].
pub(super) async fn a_lease_outlives_its_connection(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let lease = case.attempt("lease", LONG)?;
    let closing = harness.connect().await?;
    granted(closing.acquire(&lease).await?)?;
    closing.close();
    if let Err(error) = closing.ping().await {
        let kind = error.kind();
        ensure!(kind == ErrorKind::Closed, "a step on a closed connection failed with {kind:?}: {error}");
    }
    drop(closing);
    case.advance(case.pace.quiet).await;
    held_by(case.other.inspect(on(&lease)).await?, lease.token())?;
    denied_by(case.other.acquire(&rival(&lease)?).await?, 0, lease.token())?;
    ensure!(case.other.release(&lease).await?.held, "the lease of a closed connection could not be released");
    Ok(())
}
