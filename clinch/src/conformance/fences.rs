//! [`Capabilities::fences`](crate::store::Capabilities::fences): numbers that rise with every grant on a key.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::Instant;

use super::case::{
    Case, LONG, copy, denied_by, ensure, extended, free, granted, held_by, on, refused, rival, token,
};
use super::{Failure, Harness};
use crate::lease::{Attempt, Claim, Fence};
use crate::store::{ErrorKind, Grant, Store, Verdict};

const NO_FLOOR: Fence = Fence::new(0);

/// A new attempt for a fenced claim on the key of this name.
fn fenced(case: &Case<'_>, name: &str, ttl: Duration, floor: Fence) -> Result<Attempt, Failure> {
    Ok(Attempt::one(token(), case.claim(name, ttl)?.fenced(floor)))
}

/// The fence of the only claim.
#[track_caller]
fn only(grant: &Grant) -> Result<Fence, Failure> {
    match grant.fences[..] {
        [Some(fence)] => Ok(fence),
        _ => Err(Failure::new(format!("the grant of one fenced claim has the fences {:?}", grant.fences))),
    }
}

#[track_caller]
fn rises(before: Fence, fence: Fence) -> Result<(), Failure> {
    if fence > before {
        return Ok(());
    }
    Err(Failure::new(format!("the fence {fence} was given after {before}")))
}

/// A fence is a multiple of [`Fence::STEP`], and not zero.
pub(super) async fn a_fence_is_a_multiple_of_the_step(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    for floor in [0, 1, Fence::STEP - 1, Fence::STEP, 5 * Fence::STEP + 1] {
        let lease = fenced(&case, "lock", LONG, Fence::new(floor))?;
        let fence = only(&granted(case.store.acquire(&lease).await?)?)?.get();
        ensure!(
            fence != 0 && fence % Fence::STEP == 0,
            "the fence {fence} is no multiple of {}",
            Fence::STEP
        );
        case.store.release(&lease).await?;
    }
    Ok(())
}

/// Each grant after a release has a higher fence, whichever connection asks.
pub(super) async fn fences_rise_over_releases(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let mut last = NO_FLOOR;
    for round in 0..20 {
        let store = if round % 2 == 0 { &case.store } else { &case.other };
        let lease = fenced(&case, "lock", LONG, NO_FLOOR)?;
        let fence = only(&granted(store.acquire(&lease).await?)?)?;
        rises(last, fence)?;
        last = fence;
        ensure!(store.release(&lease).await?.held, "the lease was not held any more");
    }
    Ok(())
}

/// The grant after a lease expired has a higher fence.
pub(super) async fn fences_rise_over_an_expiry(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let short = fenced(&case, "lock", case.pace.ttl, NO_FLOOR)?;
    let first = only(&granted(case.store.acquire(&short).await?)?)?;
    case.outlive(short.ttl()).await;
    // The same attempt again is a new grant, once the first has ended.
    let second = only(&granted(case.store.acquire(&short).await?)?)?;
    rises(first, second)?;
    case.outlive(short.ttl()).await;
    let next = fenced(&case, "lock", LONG, NO_FLOOR)?;
    rises(second, only(&granted(case.other.acquire(&next).await?)?)?)?;
    case.other.release(&next).await?;
    Ok(())
}

/// The grant after a lease was revoked has a higher fence.
pub(super) async fn fences_rise_over_a_revocation(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let lease = fenced(&case, "lock", LONG, NO_FLOOR)?;
    let first = only(&granted(case.store.acquire(&lease).await?)?)?;
    ensure!(case.other.revoke(on(&lease), lease.token()).await?, "the holder's token was not found");
    let next = fenced(&case, "lock", LONG, NO_FLOOR)?;
    rises(first, only(&granted(case.other.acquire(&next).await?)?)?)?;
    case.other.release(&next).await?;
    Ok(())
}

/// Fences rise in the order in which many holders had the key, over several connections.
pub(super) async fn fences_rise_with_the_order_of_holders(harness: &dyn Harness) -> Result<(), Failure> {
    const GRANTS: usize = 6;
    let case = Case::new(harness).await?;
    let fences = Arc::new(Mutex::new(Vec::new()));
    let mut holders = JoinSet::new();
    for store in case.connections(4).await? {
        let attempts: Result<Vec<_>, _> =
            (0..GRANTS).map(|_| fenced(&case, "lock", LONG, NO_FLOOR)).collect();
        holders.spawn(hold_in_turn(store, attempts?, fences.clone()));
    }
    let all = async {
        while let Some(held) = holders.join_next().await {
            held??;
        }
        Ok::<_, Failure>(())
    };
    case.awaited("the turn of many holders", all).await??;
    let fences = fences.lock().unwrap_or_else(PoisonError::into_inner);
    ensure!(fences.len() == 4 * GRANTS, "{} fences of {} grants", fences.len(), 4 * GRANTS);
    for pair in fences.windows(2) {
        rises(pair[0], pair[1])?;
    }
    Ok(())
}

/// Holds the key once with each attempt, and notes the fences while it does.
async fn hold_in_turn(
    store: Arc<dyn Store>,
    attempts: Vec<Attempt>,
    fences: Arc<Mutex<Vec<Fence>>>,
) -> Result<(), Failure> {
    for attempt in attempts {
        let grant = loop {
            match store.acquire(&attempt).await? {
                Verdict::Granted(grant) => break grant,
                Verdict::Denied(_) => tokio::time::sleep(Duration::from_millis(1)).await,
            }
        };
        fences.lock().unwrap_or_else(PoisonError::into_inner).push(only(&grant)?);
        store.release(&attempt).await?;
    }
    Ok(())
}

/// Sent again with the same token, an attempt that was granted gets the same fence, also over another connection and
/// after a renewal.
pub(super) async fn a_repeat_gets_the_same_fence(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let lease = fenced(&case, "lock", LONG, NO_FLOOR)?;
    let first = only(&granted(case.store.acquire(&lease).await?)?)?;
    let again = only(&granted(case.store.acquire(&lease).await?)?)?;
    extended(case.store.renew(&lease).await?)?;
    let elsewhere = only(&granted(case.other.acquire(&copy(&lease)?).await?)?)?;
    ensure!(
        first == again && first == elsewhere,
        "one grant had the fences {first}, {again} and {elsewhere}"
    );
    case.store.release(&lease).await?;
    Ok(())
}

/// A fence is above the floor that the caller names, and what follows is above that fence.
pub(super) async fn a_fence_is_above_its_floor(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let lease = fenced(&case, "lock", LONG, NO_FLOOR)?;
    let first = only(&granted(case.store.acquire(&lease).await?)?)?;
    case.store.release(&lease).await?;
    // Further on than the engine's clock gets in this test, and a pass inside a process at that.
    let floor = Fence::new(first.get() + 600_000_000 * Fence::STEP + 7);
    let above = fenced(&case, "lock", LONG, floor)?;
    let second = only(&granted(case.store.acquire(&above).await?)?)?;
    rises(floor, second)?;
    case.store.release(&above).await?;
    let last = fenced(&case, "lock", LONG, first)?;
    rises(second, only(&granted(case.other.acquire(&last).await?)?)?)?;
    case.other.release(&last).await?;
    Ok(())
}

/// Of several claims each fenced one has its own fence, in the order of the claims, and the others have none.
pub(super) async fn each_fenced_claim_has_its_own(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let claim = |name| case.claim(name, LONG);
    let mut before = [NO_FLOOR; 2];
    for _ in 0..2 {
        let claims = vec![claim("a")?.fenced(NO_FLOOR), claim("b")?, claim("c")?.fenced(NO_FLOOR)];
        let lease = Attempt::new(token(), claims)?;
        let grant = granted(case.store.acquire(&lease).await?)?;
        let [Some(a), None, Some(c)] = grant.fences[..] else {
            return Err(Failure::new(format!("the first and third claim are fenced: {:?}", grant.fences)));
        };
        let again = granted(case.other.acquire(&copy(&lease)?).await?)?;
        ensure!(again == grant, "the first answer was {grant:?}, the same attempt then got {again:?}");
        rises(before[0], a)?;
        rises(before[1], c)?;
        before = [a, c];
        ensure!(case.store.release(&lease).await?.held, "the lease was not held any more");
    }
    Ok(())
}

/// A denied attempt moves no fence: the holder's stays what it is, as it is shown and as it is told again.
pub(super) async fn a_denied_attempt_moves_no_fence(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let lease = fenced(&case, "lock", LONG, NO_FLOOR)?;
    let fence = only(&granted(case.store.acquire(&lease).await?)?)?;
    for _ in 0..3 {
        denied_by(case.other.acquire(&rival(&lease)?).await?, 0, lease.token())?;
    }
    let shown = held_by(case.other.inspect(on(&lease)).await?, lease.token())?.fence();
    ensure!(shown == Some(fence), "the holder was given {fence}, and after a denial {shown:?} is shown");
    let again = only(&granted(case.store.acquire(&lease).await?)?)?;
    ensure!(again == fence, "the holder was given {fence}, and after a denial {again}");
    case.store.release(&lease).await?;
    Ok(())
}

/// A holder is shown with its fence, and one that asked for none without.
///
/// Proves: T2
pub(super) async fn a_holder_is_shown_with_its_fence(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let lease = fenced(&case, "lock", LONG, NO_FLOOR)?;
    let fence = only(&granted(case.store.acquire(&lease).await?)?)?;
    extended(case.store.renew(&lease).await?)?;
    let shown = held_by(case.other.inspect(on(&lease)).await?, lease.token())?.fence();
    ensure!(shown == Some(fence), "a holder with the fence {fence} is shown with {shown:?}");
    ensure!(case.store.release(&lease).await?.held, "the lease was not held any more");
    let plain = case.attempt("lock", LONG)?;
    let grant = granted(case.store.acquire(&plain).await?)?;
    ensure!(grant.fences.is_empty(), "no claim asked for a fence, and the grant has {:?}", grant.fences);
    let shown = held_by(case.other.inspect(on(&plain)).await?, plain.token())?.fence();
    ensure!(shown.is_none(), "a holder that asked for no fence is shown with {shown:?}");
    case.store.release(&plain).await?;
    Ok(())
}

/// A fenced lease ends with its TTL like any other: the fence keeps nothing alive.
pub(super) async fn a_fence_does_not_outlive_its_lease(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let sent = Instant::now();
    let lease = fenced(&case, "lock", case.pace.ttl, NO_FLOOR)?;
    granted(case.store.acquire(&lease).await?)?;
    case.outlive(lease.ttl()).await;
    free(&case.other.inspect(on(&lease)).await?)?;
    ensure!(!case.store.release(&lease).await?.held, "an expired lease was held after {:?}", sent.elapsed());
    Ok(())
}

/// A shared claim that asks for a fence is [`ErrorKind::Unsupported`], and takes nothing.
pub(super) async fn fenced_readers_are_refused(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let claim = Claim::shared(case.key("lock")?, LONG).fenced(NO_FLOOR);
    refused_and_free(&case, &Attempt::one(token(), claim)).await
}

/// A permit that asks for a fence is [`ErrorKind::Unsupported`], and takes nothing.
pub(super) async fn fenced_permits_are_refused(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let claim = case.permit("limit", 2, LONG)?.claims()[0].clone().fenced(NO_FLOOR);
    refused_and_free(&case, &Attempt::one(token(), claim)).await
}

async fn refused_and_free(case: &Case<'_>, attempt: &Attempt) -> Result<(), Failure> {
    refused(case.store.acquire(attempt).await, ErrorKind::Unsupported)?;
    free(&case.other.inspect(on(attempt)).await?)
}
