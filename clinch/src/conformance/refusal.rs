//! What a store cannot serve it refuses cleanly: it says what is wrong, that nothing happened, and that a retry will
//! not help.

use std::num::NonZeroU32;

use super::case::{Case, LONG, ensure, free, granted, held_by, on, refused, token};
use super::{Failure, Harness};
use crate::lease::{Attempt, Claim, Fence, Record};
use crate::store::{ErrorKind, Store, StoreError, Verdict};

/// A shared claim is [`ErrorKind::Unsupported`] and leaves the key free.
pub(super) async fn shared_claims_are_refused_cleanly(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let attempt = Attempt::one(token(), Claim::shared(case.key("shared")?, LONG));
    refused(case.store.acquire(&attempt).await, ErrorKind::Unsupported)?;
    still_free(&case, &attempt, "shared").await
}

/// A permit is [`ErrorKind::Unsupported`] and takes no lock of the same name.
pub(super) async fn permits_are_refused_cleanly(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let attempt = Attempt::one(token(), Claim::permit(case.key("permit")?, NonZeroU32::MIN, LONG));
    refused(case.store.acquire(&attempt).await, ErrorKind::Unsupported)?;
    still_free(&case, &attempt, "permit").await
}

/// A claim that asks for a fence is [`ErrorKind::Unsupported`] and leaves the key free: a lease without the fence is
/// not what was asked for.
pub(super) async fn fences_are_refused_cleanly(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let attempt = Attempt::one(token(), case.claim("fenced", LONG)?.fenced(Fence::new(0)));
    refused(case.store.acquire(&attempt).await, ErrorKind::Unsupported)?;
    still_free(&case, &attempt, "fenced").await
}

/// Several claims in one attempt are [`ErrorKind::Unsupported`] and leave all keys free.
pub(super) async fn several_claims_are_refused_cleanly(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let attempt = case.several(&["a", "b"], LONG)?;
    refused(case.store.acquire(&attempt).await, ErrorKind::Unsupported)?;
    still_free(&case, &attempt, "a").await?;
    still_free(&case, &attempt, "b").await
}

/// A completion is [`ErrorKind::Unsupported`], and the lease stays as it is.
pub(super) async fn records_are_refused_cleanly(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let lease = Attempt::one(token(), Claim::duplicate(case.key("lease")?, LONG));
    granted(case.store.acquire(&lease).await?)?;
    refused(case.store.complete(&lease, &Record::new("done"), None).await, ErrorKind::Unsupported)?;
    held_by(case.other.inspect(on(&lease)).await?, lease.token())?;
    ensure!(case.store.release(&lease).await?.held, "a completion that was refused ended the lease");
    Ok(())
}

/// A claim that the store cannot serve, beside one that it can: neither is taken.
pub(super) async fn a_refused_claim_leaves_the_others_free(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let shared = Claim::shared(case.key("shared")?, LONG);
    let attempt = Attempt::new(token(), vec![case.claim("exclusive", LONG)?, shared])?;
    refused(case.store.acquire(&attempt).await, ErrorKind::Unsupported)?;
    still_free(&case, &attempt, "exclusive").await?;
    still_free(&case, &attempt, "shared").await
}

/// Whether the refused attempt left the lock of this name free.
async fn still_free(case: &Case<'_>, refused: &Attempt, name: &str) -> Result<(), Failure> {
    let lock = case.attempt(name, LONG)?;
    free(&case.other.inspect(on(&lock)).await?)?;
    granted(case.other.acquire(&lock).await?)?;
    case.other.release(&lock).await?;
    // A caller may settle a refused attempt like any other.
    match case.store.release(refused).await {
        Ok(release) => ensure!(!release.held, "the release of a refused attempt says that it was held"),
        Err(error) if error.kind() == ErrorKind::Unsupported => {}
        Err(error) => return Err(error.into()),
    }
    Ok(())
}

/// A key that holds something that is no lease is [`ErrorKind::WrongType`], again and again, and no step removes it.
pub(super) async fn a_key_that_is_no_lease_is_reported_and_kept(
    harness: &dyn Harness,
) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let attempt = case.attempt("wrong type", LONG)?;
    case.put_wrong_type(on(&attempt)).await?;
    no_lease(&*case.store, case.store.acquire(&attempt).await)?;
    // What these answer is theirs; that the value survives them is the point.
    let _ = case.store.renew(&attempt).await;
    let _ = case.store.release(&attempt).await;
    let _ = case.store.inspect(on(&attempt)).await;
    let _ = case.store.revoke(on(&attempt), attempt.token()).await;
    no_lease(&*case.other, case.other.acquire(&case.attempt("wrong type", LONG)?).await)
}

/// Refused because of what is there. Where servers vote, it is over once most have refused: what the others did is then not known.
#[track_caller]
fn no_lease(by: &dyn Store, answer: Result<Verdict, StoreError>) -> Result<(), Failure> {
    match answer {
        Err(error)
            if by.capabilities().split_votes
                && error.kind() == ErrorKind::WrongType
                && !error.is_retryable() =>
        {
            Ok(())
        }
        answer => refused(answer, ErrorKind::WrongType),
    }
}
