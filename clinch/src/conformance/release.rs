//! [`Store::release`]: compare-and-delete, by token.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::Instant;

use super::case::{Case, LONG, copy, denied, denied_by, ensure, free, granted, held_by, on, rival};
use super::{Failure, Harness};
use crate::lease::{Attempt, Patience};
use crate::store::{Store, StoreError, Verdict};

/// The holder's release says `held` and frees the key; sent again, it changes nothing and says that nothing was held.
///
/// Proves: L3
pub(super) async fn the_holder_releases_once(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let lease = case.attempt("lease", LONG)?;
    granted(case.store.acquire(&lease).await?)?;
    ensure!(case.store.release(&lease).await?.held, "the holder's release says that nothing was held");
    free(&case.other.inspect(on(&lease)).await?)?;
    ensure!(
        !case.store.release(&lease).await?.held,
        "the second release of a lease says again that it was held"
    );
    granted(case.other.acquire(&rival(&lease)?).await?)?;
    Ok(())
}

/// The right to release is the token: another connection that knows it may use it.
pub(super) async fn another_connection_may_release(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let lease = case.attempt("lease", LONG)?;
    granted(case.store.acquire(&lease).await?)?;
    ensure!(
        case.other.release(&copy(&lease)?).await?.held,
        "a release over another connection did not match"
    );
    free(&case.store.inspect(on(&lease)).await?)?;
    ensure!(!case.store.release(&lease).await?.held, "a lease that was given back is released a second time");
    Ok(())
}

/// Another token's release says that nothing was held, and the holder stays.
///
/// Proves: L3, L8
pub(super) async fn a_stranger_releases_nothing(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let lease = case.attempt("lease", LONG)?;
    granted(case.store.acquire(&lease).await?)?;
    for store in [&case.store, &case.other] {
        ensure!(
            !store.release(&rival(&lease)?).await?.held,
            "a stranger's release says that it held the key"
        );
        held_by(case.other.inspect(on(&lease)).await?, lease.token())?;
    }
    ensure!(case.store.release(&lease).await?.held, "after a stranger's release the holder's lease was gone");
    Ok(())
}

/// The release of a lease that has expired says that nothing was held.
///
/// Proves: L3
pub(super) async fn an_expired_lease_is_not_released(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let lease = case.attempt("lease", case.pace.ttl)?;
    granted(case.store.acquire(&lease).await?)?;
    case.outlive(lease.ttl()).await;
    ensure!(!case.store.release(&lease).await?.held, "the release of an expired lease says that it was held");
    free(&case.other.inspect(on(&lease)).await?)
}

/// The release of a lease that has expired and was taken by another leaves the successor alone.
///
/// Proves: L3, L8
pub(super) async fn a_successor_is_never_released(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let (lost, successor) = case.succeeded("lease").await?;
    ensure!(!case.store.release(&lost).await?.held, "the release of a lost lease says that it was held");
    held_by(case.other.inspect(on(&lost)).await?, successor.token())?;
    denied_by(case.store.acquire(&rival(&lost)?).await?, 0, successor.token())?;
    ensure!(
        case.other.release(&successor).await?.held,
        "a lost lease's release took the successor's lease away"
    );
    Ok(())
}

/// Releases of one lease that are sent several times, while a successor takes the key, never hit the successor: look
/// and delete are one step.
///
/// Proves: L8
pub(super) async fn a_late_release_never_hits_a_successor(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let connections = case.connections(4).await?;
    for round in 0..16 {
        let lease = Arc::new(case.attempt(&format!("round {round}"), LONG)?);
        let successor = Arc::new(rival(&lease)?);
        granted(case.store.acquire(&lease).await?)?;
        let mut taking = tokio::spawn(take(case.other.clone(), successor.clone()));
        let releases = release_at_once(&connections, &lease, 2).await?;
        match tokio::time::timeout(case.pace.patience, &mut taking).await {
            Ok(taken) => taken??,
            Err(_) => {
                taking.abort();
                return Err(Failure::new("a key that was released was never granted again"));
            }
        }
        // Where servers vote, several releases at once may have shared the votes, so that none had most of them.
        let shared = releases == 0 && case.store.capabilities().split_votes;
        ensure!(releases == 1 || shared, "{releases} releases of one lease say that it was held");
        held_by(case.other.inspect(on(&lease)).await?, successor.token())?;
        ensure!(case.other.release(&successor).await?.held, "a late release took the successor's lease away");
    }
    Ok(())
}

/// Asks until it is granted.
async fn take(store: Arc<dyn Store>, attempt: Arc<Attempt>) -> Result<(), StoreError> {
    while let Verdict::Denied(_) = store.acquire(&attempt).await? {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    Ok(())
}

/// Releases the lease over all connections at the same time, several times each; how many say that it was held.
async fn release_at_once(
    connections: &[Arc<dyn Store>],
    lease: &Arc<Attempt>,
    times: usize,
) -> Result<usize, Failure> {
    let mut tasks = JoinSet::new();
    for store in connections.iter().cycle().take(connections.len() * times) {
        let (store, lease) = (store.clone(), lease.clone());
        tasks.spawn(async move { store.release(&lease).await });
    }
    let mut held = 0;
    while let Some(release) = tasks.join_next().await {
        held += usize::from(release??.held);
    }
    Ok(held)
}

/// Of many releases of one lease at the same time, exactly one says `held`; where votes can be split, perhaps none.
///
/// Proves: L3
pub(super) async fn one_of_many_releases_counts(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let connections = case.connections(4).await?;
    let lease = Arc::new(case.attempt("lease", LONG)?);
    granted(case.store.acquire(&lease).await?)?;
    let held = release_at_once(&connections, &lease, 8).await?;
    // Where votes can be split, several may have given it back together, and none of them alone.
    let split = held == 0 && case.store.capabilities().split_votes;
    ensure!(held == 1 || split, "{held} of 32 releases of one lease say that it was held");
    free(&case.other.inspect(on(&lease)).await?)
}

/// An attempt that was denied, or never sent, has nothing to give back: its release says so and touches nothing.
///
/// Proves: L3, L8
pub(super) async fn an_attempt_that_was_not_granted_releases_nothing(
    harness: &dyn Harness,
) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let lease = case.attempt("lease", LONG)?;
    let second = rival(&lease)?;
    granted(case.store.acquire(&lease).await?)?;
    denied(case.other.acquire(&second).await?)?;
    ensure!(
        !case.other.release(&second).await?.held,
        "the release of a denied attempt says that it was held"
    );
    held_by(case.store.inspect(on(&lease)).await?, lease.token())?;

    let never_sent = case.attempt("free", LONG)?;
    ensure!(
        !case.store.release(&never_sent).await?.held,
        "the release of an attempt never sent says that it was held"
    );
    free(&case.store.inspect(on(&never_sent)).await?)?;
    case.store.release(&lease).await?;
    Ok(())
}

/// An attempt that would wait ([`Patience::Wait`]) and is denied is withdrawn by its release: it stands in
/// nobody's way afterwards and is not granted later.
pub(super) async fn a_waiting_attempt_is_withdrawn(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let lease = case.attempt("lease", LONG)?;
    let waiting = rival(&lease)?.with_patience(Patience::Wait {
        until: Instant::now() + LONG,
        again_within: LONG,
        confirm: Duration::ZERO,
    });
    granted(case.store.acquire(&lease).await?)?;
    denied_by(case.other.acquire(&waiting).await?, 0, lease.token())?;
    ensure!(
        !case.other.release(&waiting).await?.held,
        "the release of a waiting attempt says that it was held"
    );
    ensure!(case.store.release(&lease).await?.held, "the withdrawal of a waiter ended the holder's lease");
    free(&case.store.inspect(on(&lease)).await?)?;
    let newcomer = rival(&lease)?;
    granted(case.store.acquire(&newcomer).await?)?;
    held_by(case.other.inspect(on(&lease)).await?, newcomer.token())?;
    case.store.release(&newcomer).await?;
    Ok(())
}
