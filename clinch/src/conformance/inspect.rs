//! [`Store::inspect`](crate::store::Store::inspect): holders, for people.

use std::time::{Duration, SystemTime};

use tokio::time::Instant;

use super::case::{Case, LONG, denied_by, ensure, free, granted, held_by, on, remaining, rival};
use super::{Failure, Harness};
use crate::lease::{Attempt, Mode, Token};

/// A key that nobody holds has no holder.
pub(super) async fn a_free_key_has_no_holder(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let lease = case.attempt("free", LONG)?;
    free(&case.store.inspect(on(&lease)).await?)?;
    granted(case.store.acquire(&lease).await?)?;
    case.store.release(&lease).await?;
    free(&case.store.inspect(on(&lease)).await?)
}

/// A holder is shown with its key, its mode, the time it has left, and all that its token says: host, process, label,
/// task, since when. A denied attempt is told the same.
///
/// Proves: T2
pub(super) async fn a_holder_is_shown_with_all_it_said(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let random = rand::random::<u128>();
    let token = Token::from_text(format!("{random:032x}@web%3A1:4242:nightly%20job%20é:7:1700000000123"));
    let lease = Attempt::one(token, case.claim("lease", LONG)?);
    let sent = Instant::now();
    granted(case.store.acquire(&lease).await?)?;
    let inspected = held_by(case.other.inspect(on(&lease)).await?, lease.token())?;
    let denial = denied_by(case.other.acquire(&rival(&lease)?).await?, 0, lease.token())?;
    for holder in [Some(inspected), denial.holder].into_iter().flatten() {
        ensure!(holder.on() == on(&lease), "the holder is shown on {:?}", holder.on());
        ensure!(holder.mode() == Mode::Exclusive, "the holder is shown as {:?}", holder.mode());
        ensure!(holder.fence().is_none(), "the holder is shown with a fence it never asked for");
        let (left, least, most) = (remaining(&holder)?, case.at_least(LONG, sent), LONG + case.pace.lag);
        ensure!(
            (least..=most).contains(&left),
            "the holder is shown with {left:?} left, not {least:?} to {most:?}"
        );
        let Some(owner) = holder.owner() else {
            return Err(Failure::new("the holder is shown as unknown, though its token says who it is"));
        };
        let who = (owner.host.as_str(), owner.pid, owner.label.as_deref(), owner.task);
        ensure!(who == ("web:1", 4242, Some("nightly job é"), Some(7)), "the holder is shown as {who:?}");
        let since = SystemTime::UNIX_EPOCH + Duration::from_millis(1_700_000_000_123);
        ensure!(holder.since() == Some(since), "the holder is shown since {:?}", holder.since());
    }
    case.store.release(&lease).await?;
    Ok(())
}

/// A lease that has expired is not shown.
pub(super) async fn an_expired_holder_is_not_shown(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let lease = case.attempt("lease", case.pace.ttl)?;
    granted(case.store.acquire(&lease).await?)?;
    case.outlive(lease.ttl()).await;
    free(&case.store.inspect(on(&lease)).await?)?;
    free(&case.other.inspect(on(&lease)).await?)
}

/// Looking at a holder moves no expiry.
pub(super) async fn looking_changes_nothing(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let lease = case.attempt("lease", case.pace.ttl)?;
    granted(case.store.acquire(&lease).await?)?;
    case.advance(lease.ttl() / 2).await;
    case.other.inspect(on(&lease)).await?;
    case.store.inspect(on(&lease)).await?;
    case.outlive(lease.ttl() / 2).await;
    free(&case.other.inspect(on(&lease)).await?)
}
