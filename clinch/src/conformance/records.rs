//! [`Store::complete`](crate::store::Store::complete): what is left of a lease whose work is done.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::case::{
    Case, LONG, always_too_late, copy, denied, denied_by, ensure, extended, free, granted, held_by, listed,
    lost, on, refused, rival, token,
};
use super::{Failure, Harness};
use crate::lease::{Attempt, Claim, Patience, Record};
use crate::store::{ErrorKind, Verdict};

fn record(text: &'static str) -> Record {
    Record::new(text)
}

impl Case<'_> {
    /// A new attempt in a duplicate window.
    fn window(&self, name: &str, ttl: Duration) -> Result<Attempt, Failure> {
        Ok(Attempt::one(token(), Claim::duplicate(self.key(name)?, ttl)))
    }

    /// A lease that was granted and finished, with what is left of its own time.
    async fn finished(&self, name: &str, ttl: Duration, left: &Record) -> Result<Attempt, Failure> {
        let lease = self.window(name, ttl)?;
        self.finish(&lease, left, None).await?;
        Ok(lease)
    }

    /// Takes the lease and finishes it.
    async fn finish(&self, lease: &Attempt, left: &Record, ttl: Option<Duration>) -> Result<(), Failure> {
        granted(self.store.acquire(lease).await?)?;
        ensure!(
            self.store.complete(lease, left, ttl).await?.held,
            "the completion of a lease that is held says that it was not"
        );
        Ok(())
    }

    /// Whether the key of this attempt still denies with this record, on the other connection.
    async fn still(&self, of: &Attempt, left: &Record) -> Result<(), Failure> {
        done(self.other.acquire(&rival(of)?).await?, 0, left).map(drop)
    }
}

/// Denied because of this claim, by this record and by nobody; says when it goes away.
#[track_caller]
fn done(verdict: Verdict, claim: usize, left: &Record) -> Result<Duration, Failure> {
    let denial = denied(verdict)?;
    if denial.claim != claim {
        return Err(Failure::new(format!("the denial names claim {}, not {claim}", denial.claim)));
    }
    if let Some(holder) = denial.holder {
        return Err(Failure::new(format!("a finished key is said to be held by {:?}", holder.token())));
    }
    match denial.done {
        Some(record) if record == *left => {}
        other => return Err(Failure::new(format!("the denial brings {other:?} instead of {left:?}"))),
    }
    denial.retry_after.ok_or_else(|| Failure::new("a record is shown without the time it has left"))
}

/// A finished key denies everybody, in each space and on every connection, with the record, no holder, and the time after
/// which the record is gone.
pub(super) async fn a_finished_key_denies_with_its_record(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let left = record("the result");
    for claim in [Claim::duplicate(case.key("a")?, LONG), Claim::idempotent(case.key("b")?, LONG)] {
        let lease = Attempt::one(token(), claim);
        let (sent, kept) = (Instant::now(), LONG / 2);
        case.finish(&lease, &left, Some(kept)).await?;
        for store in [&case.store, &case.other, &harness.connect().await?] {
            let after = done(store.acquire(&rival(&lease)?).await?, 0, &left)?;
            let (least, most) = (case.at_least(kept, sent), kept + case.pace.lag);
            ensure!((least..=most).contains(&after), "{after:?} are left, not {least:?} to {most:?}");
        }
    }
    Ok(())
}

/// The token that finished the key does not hold it any more: it is denied like anybody.
pub(super) async fn its_own_token_is_denied_too(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let left = record("mine");
    let lease = case.finished("lease", LONG, &left).await?;
    done(case.store.acquire(&lease).await?, 0, &left)?;
    done(case.other.acquire(&copy(&lease)?).await?, 0, &left)?;
    case.still(&lease, &left).await
}

/// Attempts that go out in one call are denied with the record like others, and do not mix them up.
pub(super) async fn attempts_in_one_call_are_denied_with_it(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let (first, second) = (record("the first"), record("the second"));
    let a = case.finished("a", LONG, &first).await?;
    let b = case.finished("b", LONG, &second).await?;
    let attempts = [rival(&b)?, case.window("free", LONG)?, rival(&a)?].map(Arc::new);
    let mut answers = case.other.acquire_each(&attempts).await.into_iter();
    let mut next = || answers.next().unwrap_or(Ok(Verdict::granted()));
    done(next()?, 0, &second)?;
    granted(next()?)?;
    done(next()?, 0, &first)?;
    case.other.release(&attempts[1]).await?;
    Ok(())
}

/// Whoever is denied, one that waits too, leaves the record and its end as they are.
pub(super) async fn a_denial_moves_no_expiry(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let left = record("short");
    for ttl in case.ttls() {
        let lease = case.window(&format!("lease {ttl:?}"), LONG)?;
        let sent = Instant::now();
        case.finish(&lease, &left, Some(ttl)).await?;
        case.advance(ttl / 2).await;
        let patience =
            Patience::Wait { until: Instant::now() + LONG, again_within: LONG, confirm: Duration::ZERO };
        let early = [
            case.other.acquire(&rival(&lease)?).await?,
            case.other.acquire(&rival(&lease)?.with_patience(patience)).await?,
        ];
        if case.too_late(sent, ttl) {
            continue;
        }
        for verdict in early {
            done(verdict, 0, &left)?;
        }
        case.outlive(ttl / 2).await;
        granted(case.other.acquire(&rival(&lease)?).await?)?;
        return Ok(());
    }
    Err(always_too_late())
}

/// A renewal finds the lease lost, and moves no expiry.
pub(super) async fn a_finished_lease_is_lost(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let left = record("done");
    let lease = Arc::new(case.window("lease", LONG)?);
    case.finish(&lease, &left, Some(case.pace.ttl)).await?;
    lost(case.store.renew(&lease).await?)?;
    lost(case.other.renew(&copy(&lease)?).await?)?;
    for renewal in case.store.renew_each(&[lease.clone(), lease.clone()]).await {
        lost(renewal?)?;
    }
    case.outlive(case.pace.ttl).await;
    granted(case.other.acquire(&rival(&lease)?).await?)?;
    Ok(())
}

/// A release finds nothing to give back, and the record stays.
pub(super) async fn a_release_finds_nothing(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let left = record("done");
    let lease = case.finished("lease", LONG, &left).await?;
    for release in [case.store.release(&lease).await?, case.other.release(&copy(&lease)?).await?] {
        ensure!(!release.held, "the release of a finished lease says that it was held");
        case.still(&lease, &left).await?;
    }
    ensure!(
        !case.other.release(&rival(&lease)?).await?.held,
        "a stranger's release says that it held the key"
    );
    case.still(&lease, &left).await
}

/// Another token finishes nothing: not what is held, not what is free, and not what is finished.
pub(super) async fn a_stranger_finishes_nothing(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let (left, other) = (record("the holder's"), record("a stranger's"));
    let lease = case.window("lease", LONG)?;
    let finish = async |why: &str| -> Result<(), Failure> {
        let release = case.other.complete(&rival(&lease)?, &other, Some(LONG)).await?;
        ensure!(!release.held, "a stranger's completion says that it held a key that {why}");
        Ok(())
    };
    finish("is free").await?;
    granted(case.store.acquire(&lease).await?)?;
    finish("is another's").await?;
    held_by(case.other.inspect(on(&lease)).await?, lease.token())?;
    ensure!(case.store.complete(&lease, &left, None).await?.held, "a stranger took the holder's lease away");
    finish("is finished").await?;
    case.still(&lease, &left).await
}

/// A lease that has expired is not finished: the key is free.
pub(super) async fn an_expired_lease_is_not_finished(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let lease = case.window("lease", case.pace.ttl)?;
    granted(case.store.acquire(&lease).await?)?;
    case.outlive(lease.ttl()).await;
    let release = case.store.complete(&lease, &record("late"), Some(LONG)).await?;
    ensure!(!release.held, "the completion of an expired lease says that it was held");
    granted(case.other.acquire(&rival(&lease)?).await?)?;
    Ok(())
}

/// A lease that was given back is not finished: the key is free.
pub(super) async fn a_released_lease_is_not_finished(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let lease = case.window("lease", LONG)?;
    granted(case.store.acquire(&lease).await?)?;
    ensure!(case.store.release(&lease).await?.held, "the holder's release says that nothing was held");
    let release = case.store.complete(&lease, &record("late"), Some(LONG)).await?;
    ensure!(!release.held, "the completion of a lease that was given back says that it was held");
    granted(case.other.acquire(&rival(&lease)?).await?)?;
    Ok(())
}

/// A lease that has expired and was taken by another leaves the successor, and the successor's record, alone.
pub(super) async fn a_successor_is_never_finished(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let (late, left) = (record("late"), record("the successor's"));
    let former = case.window("lease", case.pace.ttl)?;
    let successor = Attempt::one(token(), Claim::duplicate(case.key("lease")?, LONG));
    granted(case.store.acquire(&former).await?)?;
    case.outlive(former.ttl()).await;
    granted(case.other.acquire(&successor).await?)?;
    ensure!(!case.store.complete(&former, &late, None).await?.held, "a lost lease was finished");
    held_by(case.store.inspect(on(&former)).await?, successor.token())?;
    ensure!(case.other.complete(&successor, &left, None).await?.held, "the successor's lease was taken away");
    ensure!(!case.store.complete(&former, &late, None).await?.held, "a lost lease was finished");
    case.still(&successor, &left).await
}

/// Sent again by the token that left the record, over whatever connection and with whatever record or time, a completion
/// says `held` again and changes neither the record nor its end.
pub(super) async fn finished_again_nothing_changes(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let left = record("the first");
    for ttl in case.ttls() {
        let lease = case.window(&format!("lease {ttl:?}"), LONG)?;
        let sent = Instant::now();
        case.finish(&lease, &left, Some(ttl)).await?;
        let again = copy(&lease)?;
        for (other, time) in [("the first", Some(ttl)), ("the second", Some(LONG)), ("the third", None)] {
            for (store, lease) in [(&case.store, &lease), (&case.other, &again)] {
                let release = store.complete(lease, &record(other), time).await?;
                ensure!(release.held || case.too_late(sent, ttl), "a repeated completion says: not held");
            }
        }
        // A shorter time is not taken over either.
        case.store.complete(&lease, &left, Some(Duration::from_millis(1))).await?;
        case.advance(ttl / 2).await;
        let early = case.other.acquire(&rival(&lease)?).await?;
        if case.too_late(sent, ttl) {
            continue;
        }
        done(early, 0, &left)?;
        case.outlive(ttl / 2).await;
        granted(case.other.acquire(&rival(&lease)?).await?)?;
        return Ok(());
    }
    Err(always_too_late())
}

/// A record that is given less time than the lease has left is gone after that, and not before.
pub(super) async fn a_time_shorter_than_the_lease_counts(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let left = record("short");
    for ttl in case.ttls() {
        let lease = case.window(&format!("lease {ttl:?}"), LONG)?;
        let sent = Instant::now();
        case.finish(&lease, &left, Some(ttl)).await?;
        case.advance(ttl * 3 / 4).await;
        let early = case.other.acquire(&rival(&lease)?).await?;
        if case.too_late(sent, ttl) {
            continue;
        }
        ensure!(done(early, 0, &left)? <= ttl, "a record of {ttl:?} is said to stay longer");
        case.outlive(ttl / 4).await;
        granted(case.other.acquire(&rival(&lease)?).await?)?;
        return Ok(());
    }
    Err(always_too_late())
}

/// A record that is given more time than the lease has left outlives the lease, and is gone after its own time.
pub(super) async fn a_time_longer_than_the_lease_counts(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let left = record("long");
    for ttl in case.ttls() {
        let lease = case.window(&format!("lease {ttl:?}"), ttl)?;
        let sent = Instant::now();
        granted(case.store.acquire(&lease).await?)?;
        let held = case.store.complete(&lease, &left, Some(ttl * 3)).await?.held;
        if case.too_late(sent, ttl) {
            continue;
        }
        ensure!(held, "the completion of a lease that is held says that it was not");
        case.outlive(ttl).await;
        let early = case.other.acquire(&rival(&lease)?).await?;
        if case.too_late(sent, ttl * 3) {
            continue;
        }
        done(early, 0, &left)?;
        case.outlive(ttl * 2).await;
        granted(case.other.acquire(&rival(&lease)?).await?)?;
        return Ok(());
    }
    Err(always_too_late())
}

/// A record that is given no time is gone when the lease would have ended, and not before.
pub(super) async fn without_a_time_the_rest_of_the_lease_counts(
    harness: &dyn Harness,
) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let left = record("the rest");
    for ttl in case.ttls() {
        let lease = case.window(&format!("lease {ttl:?}"), ttl)?;
        let sent = Instant::now();
        granted(case.store.acquire(&lease).await?)?;
        case.advance(ttl / 2).await;
        let held = case.store.complete(&lease, &left, None).await?.held;
        case.advance(ttl / 4).await;
        let early = case.other.acquire(&rival(&lease)?).await?;
        if case.too_late(sent, ttl) {
            continue;
        }
        ensure!(held, "the completion of a lease that is held says that it was not");
        let (after, most) = (done(early, 0, &left)?, ttl / 4 + case.pace.lag);
        ensure!(after <= most, "{after:?} are left of the record, where the lease had at most {most:?}");
        case.outlive(ttl / 4).await;
        granted(case.other.acquire(&rival(&lease)?).await?)?;
        return Ok(());
    }
    Err(always_too_late())
}

/// Once a record is gone, the key is as if there had never been one: it is granted, held, renewed, and finished anew.
pub(super) async fn a_key_is_used_anew_after_its_record(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let (old, new) = (record("the old one"), record("the new one"));
    let lease = case.window("lease", LONG)?;
    case.finish(&lease, &old, Some(case.pace.ttl)).await?;
    case.outlive(case.pace.ttl).await;
    ensure!(!case.store.complete(&lease, &old, None).await?.held, "a record that is gone is found again");
    let next = rival(&lease)?;
    granted(case.other.acquire(&next).await?)?;
    held_by(case.store.inspect(on(&next)).await?, next.token())?;
    extended(case.other.renew(&next).await?)?;
    let denial = denied_by(case.store.acquire(&rival(&lease)?).await?, 0, next.token())?;
    ensure!(denial.done.is_none(), "a key that is held denies with {:?}", denial.done);
    ensure!(case.other.complete(&next, &new, None).await?.held, "the second lease was not held any more");
    case.still(&next, &new).await
}

/// A completion wakes those who wait, also on other connections.
pub(super) async fn a_completion_fires(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    for (name, store) in [("a", &case.other), ("b", &case.store)] {
        // In a space that is waited for.
        let lease = Attempt::one(token(), Claim::idempotent(case.key(name)?, LONG));
        granted(case.store.acquire(&lease).await?)?;
        let mut wakeups = case.subscribed(store, on(&lease), None).await?;
        let release = case.store.complete(&lease, &record("done"), None).await?;
        ensure!(release.held, "the lease was not held any more");
        ensure!(release.woken != Some(0), "a completion says that it woke nobody");
        case.awaited("the firing after a completion", wakeups.next()).await?;
    }
    Ok(())
}

/// A finished key has no holder.
pub(super) async fn nobody_is_shown(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    for claim in [Claim::duplicate(case.key("a")?, LONG), Claim::idempotent(case.key("b")?, LONG)] {
        let lease = Attempt::one(token(), claim);
        granted(case.store.acquire(&lease).await?)?;
        held_by(case.other.inspect(on(&lease)).await?, lease.token())?;
        case.store.complete(&lease, &record("done"), None).await?;
        free(&case.other.inspect(on(&lease)).await?)?;
        free(&case.store.inspect(on(&lease)).await?)?;
    }
    Ok(())
}

/// A finished key is not listed; others are.
pub(super) async fn nobody_is_listed(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let kept = case.window("kept", LONG)?;
    granted(case.store.acquire(&kept).await?)?;
    let lease = case.finished("lease", LONG, &record("done")).await?;
    let holders = listed(&case.other).await?;
    let shown = |lease: &Attempt| holders.iter().any(|holder| holder.on() == on(lease));
    ensure!(!shown(&lease), "a listing shows a lease that is finished");
    ensure!(shown(&kept), "a listing does not show a lease that is held");
    case.store.release(&kept).await?;
    Ok(())
}

/// A record is nobody's lease: it is not revoked, and stays.
pub(super) async fn a_record_is_not_revoked(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let left = record("done");
    let lease = case.finished("lease", LONG, &left).await?;
    ensure!(!case.other.revoke(on(&lease), lease.token()).await?, "a finished lease was revoked");
    ensure!(!case.other.revoke(on(&lease), &token()).await?, "a token that holds nothing was revoked");
    case.still(&lease, &left).await
}

/// Every byte comes back as it was: NUL, line ends, what is no text at all, and what looks like something of the store's.
pub(super) async fn any_bytes_come_back(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let every: Vec<u8> = (0..=u8::MAX).collect();
    let contents: [&[u8]; 7] = [
        &every,
        b"\0",
        b"\r\n$-1\r\n",
        b"\n\ndone:x\n",
        b"\xff\xfe\xc3(",
        b"shared:",
        " \u{e9}\n".as_bytes(),
    ];
    for (i, content) in contents.into_iter().enumerate() {
        let left = Record::new(content.to_vec());
        let lease = case.finished(&i.to_string(), LONG, &left).await?;
        case.still(&lease, &left).await?;
    }
    Ok(())
}

/// A record of 1 MiB comes back as it was.
pub(super) async fn a_large_record_comes_back(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    // A pattern of which no part looks like another, so that nothing can be lost or swapped unnoticed.
    let content: Vec<u8> = (0..1_u32 << 18).flat_map(u32::to_le_bytes).collect();
    let left = Record::new(content);
    let lease = case.window("lease", LONG)?;
    case.finish(&lease, &left, Some(case.pace.patience)).await?;
    case.still(&lease, &left).await
}

/// An empty record is one too: it denies, and is told from none.
pub(super) async fn an_empty_record_is_one(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let left = Record::default();
    let lease = case.finished("lease", LONG, &left).await?;
    case.still(&lease, &left).await?;
    free(&case.store.inspect(on(&lease)).await?)?;
    lost(case.store.renew(&lease).await?)?;
    ensure!(case.store.complete(&lease, &left, None).await?.held, "a repeated completion says: not held");
    Ok(())
}

/// Whether the completion of this lease is refused, and the lease stays as it is.
async fn refuses(case: &Case<'_>, lease: &Attempt) -> Result<(), Failure> {
    granted(case.store.acquire(lease).await?)?;
    refused(case.store.complete(lease, &record("done"), Some(LONG)).await, ErrorKind::Unsupported)?;
    for claim in lease.claims() {
        held_by(case.other.inspect(claim.on()).await?, lease.token())?;
    }
    ensure!(case.store.release(lease).await?.held, "a completion that was refused ended the lease");
    granted(case.other.acquire(&rival(lease)?).await?)?;
    Ok(())
}

/// A lock keeps no record: its completion is [`ErrorKind::Unsupported`] and changes nothing.
pub(super) async fn locks_are_refused(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    refuses(&case, &case.attempt("lock", LONG)?).await
}

/// A permit keeps no record.
pub(super) async fn permits_are_refused(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    refuses(&case, &case.permit("permit", 1, LONG)?).await
}

/// A lease of several claims keeps no record, though each of them alone could.
pub(super) async fn several_claims_are_refused(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let claims = vec![Claim::duplicate(case.key("a")?, LONG), Claim::idempotent(case.key("b")?, LONG)];
    refuses(&case, &Attempt::new(token(), claims)?).await
}

/// An attempt of several claims is denied as a whole by a record on one of them, wherever that stands in the attempt.
pub(super) async fn several_claims_are_denied_by_one_record(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let left = record("the result");
    let finished = case.finished("finished", LONG, &left).await?.claims()[0].clone();
    let (lock, window) = (case.claim("lock", LONG)?, Claim::idempotent(case.key("window")?, LONG));
    for at in 0..3 {
        let mut claims = vec![lock.clone(), window.clone()];
        claims.insert(at, finished.clone());
        done(case.other.acquire(&Attempt::new(token(), claims)?).await?, at, &left)?;
        free(&case.store.inspect(lock.on()).await?)?;
        free(&case.store.inspect(window.on()).await?)?;
    }
    granted(case.store.acquire(&Attempt::new(token(), vec![lock, window])?).await?)?;
    Ok(())
}

/// The same text in another space is another key: a record on one stands in nobody's way on the others.
pub(super) async fn each_space_is_its_own(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let (left, other) = (record("of the window"), record("of the key"));
    let window = case.finished("same", LONG, &left).await?;
    let key = Attempt::one(token(), Claim::idempotent(case.key("same")?, LONG));
    granted(case.other.acquire(&case.attempt("same", LONG)?).await?)?;
    case.finish(&key, &other, None).await?;
    case.still(&window, &left).await?;
    case.still(&key, &other).await
}

/// A completion leaves a key alone that holds something else, whatever it answers.
pub(super) async fn a_key_that_is_no_lease_is_kept(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let lease = case.window("wrong type", LONG)?;
    case.put_wrong_type(on(&lease)).await?;
    match case.store.complete(&lease, &record("done"), None).await {
        Ok(release) => ensure!(!release.held, "something that is no lease is said to have been held"),
        Err(error) if error.kind() == ErrorKind::WrongType => {}
        Err(error) => return Err(error.into()),
    }
    refused(case.other.acquire(&rival(&lease)?).await, ErrorKind::WrongType)
}
