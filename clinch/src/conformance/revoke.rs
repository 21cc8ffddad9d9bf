//! [`Store::revoke`]: the end of one holder's lease by force, and the news of it.

use super::case::{Case, LONG, ensure, free, granted, held_by, lost, on, rival, token};
use super::{Failure, Harness};
use crate::lease::Attempt;
use crate::store::{Notice, Revocation, Revocations};

/// The holder named by its token loses its lease: the key is free, its own renewal and release say so, and a second
/// revocation finds nothing.
///
/// Proves: L3, B3
pub(super) async fn the_named_holder_loses_its_lease(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let lease = case.attempt("lease", LONG)?;
    granted(case.store.acquire(&lease).await?)?;
    ensure!(case.other.revoke(on(&lease), lease.token()).await?, "the holder's token was not found");
    free(&case.other.inspect(on(&lease)).await?)?;
    ensure!(!case.other.revoke(on(&lease), lease.token()).await?, "a lease was revoked twice");
    lost(case.store.renew(&lease).await?)?;
    ensure!(!case.store.release(&lease).await?.held, "the release of a revoked lease says that it was held");
    granted(case.other.acquire(&rival(&lease)?).await?)?;
    Ok(())
}

/// A token that no longer holds the key revokes nothing: the successor stays.
pub(super) async fn a_stale_token_revokes_nothing(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let (former, successor) = case.succeeded("lease").await?;
    for stale in [former.token(), &token()] {
        ensure!(!case.other.revoke(on(&former), stale).await?, "a token that holds nothing was revoked");
        held_by(case.store.inspect(on(&former)).await?, successor.token())?;
    }
    ensure!(
        case.store.release(&successor).await?.held,
        "a stale token's revocation took the successor's lease away"
    );
    Ok(())
}

/// Waits until the stream hears every revocation.
async fn listening(case: &Case<'_>, revocations: &mut Revocations) -> Result<(), Failure> {
    while case.awaited("that a stream of revocations is listening", revocations.next()).await?
        != Some(Notice::Listening)
    {}
    Ok(())
}

/// The next revocation that the stream tells.
async fn next(case: &Case<'_>, revocations: &mut Revocations) -> Result<Revocation, Failure> {
    loop {
        match case.awaited("a revocation", revocations.next()).await? {
            Some(Notice::Revoked(revocation)) => return Ok(revocation),
            Some(_) => {}
            None => return Err(Failure::new("a stream of revocations ended while its store lives")),
        }
    }
}

/// Once a stream says that it is listening, it tells every revocation, with its key and token, on every connection: the
/// holder's manager hears it from wherever it was made.
pub(super) async fn every_connection_is_told(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let third = harness.connect().await?;
    let mut streams = [&case.store, &case.other, &third].map(|store| store.revocations());
    for stream in &mut streams {
        listening(&case, stream).await?;
    }
    let lease = case.attempt("revoked", LONG)?;
    granted(case.store.acquire(&lease).await?)?;
    ensure!(case.other.revoke(on(&lease), lease.token()).await?, "the holder's token was not found");
    let expected = Revocation { on: on(&lease).clone(), token: lease.token().clone() };
    for stream in &mut streams {
        while next(&case, stream).await? != expected {}
    }
    Ok(())
}

/// A stream that begins while another one of the same connection is listening says so too.
pub(super) async fn a_later_stream_is_listening_too(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let mut first = case.store.revocations();
    listening(&case, &mut first).await?;
    let mut second = case.store.revocations();
    listening(&case, &mut second).await?;
    let lease = case.attempt("revoked", LONG)?;
    granted(case.store.acquire(&lease).await?)?;
    ensure!(case.other.revoke(on(&lease), lease.token()).await?, "the holder's token was not found");
    while next(&case, &mut second).await?.token != *lease.token() {}
    Ok(())
}

/// Releases, and revocations that found nothing, are not told.
pub(super) async fn only_revocations_are_told(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let mut revocations = case.store.revocations();
    listening(&case, &mut revocations).await?;

    let released = case.attempt("released", LONG)?;
    granted(case.other.acquire(&released).await?)?;
    ensure!(!case.other.revoke(on(&released), &token()).await?, "a token that holds nothing was revoked");
    case.other.release(&released).await?;
    ensure!(!case.other.revoke(on(&released), released.token()).await?, "a released lease was revoked");
    let last = case.attempt("last", LONG)?;
    granted(case.other.acquire(&last).await?)?;
    ensure!(case.other.revoke(on(&last), last.token()).await?, "the holder's token was not found");
    loop {
        let told = next(&case, &mut revocations).await?;
        ensure!(told.on != *on(&released), "a revocation was told that never took place");
        if told.on == *on(&last) {
            return Ok(());
        }
    }
}

/// A revocation ends the lease on that key only; the other claims of the same attempt stay, until they are released.
pub(super) async fn the_other_claims_of_a_lease_stay(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let lease = case.several(&["a", "b"], LONG)?;
    let kept = Attempt::one(lease.token().clone(), lease.claims()[1].clone());
    granted(case.store.acquire(&lease).await?)?;
    ensure!(case.other.revoke(on(&lease), lease.token()).await?, "the holder's token was not found");
    free(&case.other.inspect(on(&lease)).await?)?;
    held_by(case.other.inspect(on(&kept)).await?, lease.token())?;
    ensure!(
        !case.store.release(&lease).await?.held,
        "a release says that all was held, though one claim was revoked"
    );
    free(&case.other.inspect(on(&kept)).await?)
}
