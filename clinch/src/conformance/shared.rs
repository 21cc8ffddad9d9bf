//! [`Capabilities::shared`](crate::store::Capabilities::shared): many readers or one writer, and writers that wait.

use std::time::Duration;

use tokio::time::Instant;

use super::case::{
    Case, LONG, acquire_at_once, always_too_late, copy, denied, denied_by, ensure, extended, free, granted,
    held_by, held_by_all, lost, on, refused, rival, token,
};
use super::{Failure, Harness};
use crate::lease::{Attempt, Mode, Patience, Token};
use crate::store::{Denial, ErrorKind, Verdict};

/// A writer that waits for long, and comes again within this time.
fn waiting(case: &Case<'_>, name: &str, again_within: Duration) -> Result<Attempt, Failure> {
    let patience = Patience::Wait { until: Instant::now() + LONG, again_within, confirm: Duration::ZERO };
    Ok(case.attempt(name, LONG)?.with_patience(patience))
}

/// A denial that names one of these readers, and a time to ask again that is not beyond `most`.
#[track_caller]
fn by_a_reader(
    case: &Case<'_>,
    denial: &Denial,
    readers: &[&Attempt],
    most: Duration,
) -> Result<(), Failure> {
    let known = |by: &Token| readers.iter().any(|reader| reader.token() == by);
    if !denial.holder.as_ref().is_some_and(|by| known(by.token())) {
        return Err(Failure::new(format!("the denial names {:?}, who is no reader", denial.holder)));
    }
    in_time(case, denial, most)
}

#[track_caller]
fn in_time(case: &Case<'_>, denial: &Denial, most: Duration) -> Result<(), Failure> {
    let (least, most) = (Duration::from_millis(1), most + case.pace.lag);
    match denial.retry_after {
        Some(after) if (least..=most).contains(&after) => Ok(()),
        after => Err(Failure::new(format!("asking again after {after:?} is not {least:?} to {most:?}"))),
    }
}

/// Any number of readers hold a key together, over several connections, and all are shown, as readers.
///
/// Proves: T2
pub(super) async fn readers_share(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let connections = case.connections(3).await?;
    let attempts: Result<_, _> = (0..12).map(|_| case.shared("lock", LONG)).collect();
    let sent = Instant::now();
    let mut readers = Vec::new();
    for (reader, verdict) in acquire_at_once(&connections, attempts?).await? {
        granted(verdict)?;
        readers.push(reader);
    }
    let holders = case.other.inspect(on(&readers[0])).await?;
    held_by_all(&holders, &readers.iter().collect::<Vec<_>>())?;
    for holder in &holders {
        ensure!(holder.mode() == Mode::Shared, "a reader is shown as {:?}", holder.mode());
        ensure!(holder.on() == on(&readers[0]), "a reader is shown on {:?}", holder.on());
        case.has_left(holder, LONG, sent)?;
    }
    for reader in &readers {
        ensure!(case.other.release(reader).await?.held, "a reader that was granted held nothing");
    }
    free(&case.other.inspect(on(&readers[0])).await?)
}

/// A reader keeps writers out, and is named.
pub(super) async fn readers_exclude_writers(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let readers = [case.shared("lock", LONG)?, case.shared("lock", LONG)?];
    let writer = case.attempt("lock", LONG)?;
    granted(case.store.acquire(&readers[0]).await?)?;
    denied_by(case.other.acquire(&writer).await?, 0, readers[0].token())?;
    granted(case.store.acquire(&readers[1]).await?)?;
    let denial = denied(case.other.acquire(&writer).await?)?;
    by_a_reader(&case, &denial, &readers.each_ref(), LONG)?;
    held_by_all(&case.other.inspect(on(&writer)).await?, &readers.each_ref())?;
    ensure!(!case.other.release(&writer).await?.held, "a writer that was denied held the key");
    for reader in &readers {
        ensure!(case.store.release(reader).await?.held, "a writer that was denied took a reader's place");
    }
    Ok(())
}

/// A writer keeps readers out, and is named.
pub(super) async fn a_writer_excludes_readers(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let (writer, reader) = (case.attempt("lock", LONG)?, case.shared("lock", LONG)?);
    granted(case.store.acquire(&writer).await?)?;
    let denial = denied_by(case.other.acquire(&reader).await?, 0, writer.token())?;
    in_time(&case, &denial, LONG)?;
    held_by(case.other.inspect(on(&writer)).await?, writer.token())?;
    ensure!(case.store.release(&writer).await?.held, "the writer was not held any more");
    granted(case.other.acquire(&reader).await?)?;
    case.other.release(&reader).await?;
    Ok(())
}

/// Of readers and writers at the same time, over several connections, either readers are granted or one writer.
pub(super) async fn readers_and_writers_never_meet(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let connections = case.connections(4).await?;
    for round in 0..12 {
        let name = format!("round {round}");
        let attempt = |i| if i % 3 == 0 { case.attempt(&name, LONG) } else { case.shared(&name, LONG) };
        let attempts: Result<_, _> = (round..round + 12).map(attempt).collect();
        let mut answers = acquire_at_once(&connections, attempts?).await?;
        answers.retain(|(_, verdict)| matches!(verdict, Verdict::Granted(_)));
        let leases: Vec<&Attempt> = answers.iter().map(|(lease, _)| lease).collect();
        let writers = leases.iter().filter(|lease| lease.claims()[0].mode() == Mode::Exclusive).count();
        ensure!(!leases.is_empty(), "of readers and writers on a free key, none was granted");
        ensure!(
            writers == 0 || leases.len() == 1,
            "{writers} writers and {} readers were granted the same key",
            leases.len() - writers
        );
        held_by_all(&case.other.inspect(on(leases[0])).await?, &leases)?;
        for lease in leases {
            ensure!(case.other.release(lease).await?.held, "what was granted was not held");
        }
    }
    Ok(())
}

/// Sent again with the same token, a reader's attempt gets the same answer, counts once, and moves no expiry.
pub(super) async fn a_repeat_changes_nothing(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    for ttl in case.ttls() {
        let reader = case.shared(&format!("lock {ttl:?}"), ttl)?;
        let sent = Instant::now();
        granted(case.store.acquire(&reader).await?)?;
        case.advance(ttl / 2).await;
        let again = [case.store.acquire(&reader).await?, case.other.acquire(&copy(&reader)?).await?];
        let holders = case.other.inspect(on(&reader)).await?;
        if case.too_late(sent, ttl) {
            continue;
        }
        for again in again {
            granted(again)?;
        }
        held_by(holders, reader.token())?;
        case.outlive(ttl / 2).await;
        free(&case.other.inspect(on(&reader)).await?)?;
        let writer = case.attempt(&format!("lock {ttl:?}"), LONG)?;
        granted(case.other.acquire(&writer).await?)?;
        case.other.release(&writer).await?;
        return Ok(());
    }
    Err(always_too_late())
}

/// The key is free for writers when the last reader has gone, and not before; a second release changes nothing.
///
/// Proves: L3
pub(super) async fn the_last_reader_frees_the_key(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let (first, last, writer) =
        (case.shared("lock", LONG)?, case.shared("lock", LONG)?, case.attempt("lock", LONG)?);
    for reader in [&first, &last] {
        granted(case.store.acquire(reader).await?)?;
    }
    ensure!(case.store.release(&first).await?.held, "a reader's release says that nothing was held");
    ensure!(!case.store.release(&first).await?.held, "a reader's second release says that it was held");
    denied_by(case.other.acquire(&writer).await?, 0, last.token())?;
    ensure!(case.other.release(&last).await?.held, "the last reader's release says that nothing was held");
    granted(case.other.acquire(&writer).await?)?;
    case.other.release(&writer).await?;
    Ok(())
}

/// The release of a token that is no reader takes no reader's place.
///
/// Proves: L3, L8
pub(super) async fn a_stranger_releases_no_reader(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let reader = case.shared("lock", LONG)?;
    granted(case.store.acquire(&reader).await?)?;
    for stranger in [rival(&reader)?, case.attempt("lock", LONG)?] {
        ensure!(!case.other.release(&stranger).await?.held, "a stranger's release says that it held the key");
        held_by(case.other.inspect(on(&reader)).await?, reader.token())?;
        denied(case.other.acquire(&case.attempt("lock", LONG)?).await?)?;
    }
    ensure!(case.store.release(&reader).await?.held, "a stranger's release took a reader's place");
    Ok(())
}

/// A reader ends with its own TTL, whatever others have left, and the last of them keeps writers out to its own end.
pub(super) async fn each_reader_ends_on_its_own(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let ttl = case.pace.ttl;
    for (name, order) in [("rising", [ttl, LONG]), ("falling", [LONG, ttl])] {
        let sent = Instant::now();
        let readers = [case.shared(name, order[0])?, case.shared(name, order[1])?];
        for reader in &readers {
            granted(case.store.acquire(reader).await?)?;
        }
        case.outlive(ttl).await;
        let [expired, long] = if order[0] == ttl { readers.each_ref() } else { [&readers[1], &readers[0]] };
        let holder = held_by(case.other.inspect(on(long)).await?, long.token())?;
        case.has_left(&holder, LONG, sent)?;
        denied_by(case.other.acquire(&case.attempt(name, LONG)?).await?, 0, long.token())?;
        ensure!(
            !case.store.release(expired).await?.held,
            "an expired reader's release says that it was held"
        );
        ensure!(case.store.release(long).await?.held, "a reader went with another one's end");
    }
    Ok(())
}

/// A renewal extends the reader of its token, which keeps writers out for as long, and no other reader.
///
/// Proves: B3
pub(super) async fn a_renewal_extends_its_own_reader_only(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    for ttl in case.ttls() {
        let name = format!("lock {ttl:?}");
        let (renewed, left_alone) = (case.shared(&name, ttl)?, case.shared(&name, ttl)?);
        let sent = Instant::now();
        for reader in [&renewed, &left_alone] {
            granted(case.store.acquire(reader).await?)?;
        }
        case.advance(ttl / 2).await;
        let longer = Attempt::one(renewed.token().clone(), case.shared(&name, LONG)?.claims()[0].clone());
        let asked = Instant::now();
        let renewal = case.store.renew(&longer).await?;
        if case.too_late(sent, ttl) {
            continue;
        }
        extended(renewal)?;
        // With less than it has left: that moves nothing.
        extended(case.store.renew(&renewed).await?)?;
        case.outlive(ttl).await;
        let holder = held_by(case.other.inspect(on(&renewed)).await?, renewed.token())?;
        case.has_left(&holder, LONG, asked)?;
        denied_by(case.other.acquire(&case.attempt(&name, LONG)?).await?, 0, renewed.token())?;
        case.store.release(&renewed).await?;
        return Ok(());
    }
    Err(always_too_late())
}

/// A reader that has expired or was given back is *lost*: renewing brings it not back, whoever else reads.
///
/// Proves: B3
pub(super) async fn a_lost_reader_is_not_renewed(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let shared = |ttl| case.shared("lock", ttl);
    let (expired, released, kept) = (shared(case.pace.ttl)?, shared(LONG)?, shared(LONG)?);
    for reader in [&expired, &released, &kept] {
        granted(case.store.acquire(reader).await?)?;
    }
    ensure!(case.store.release(&released).await?.held, "the reader was not held any more");
    case.outlive(expired.ttl()).await;
    for reader in [&expired, &released, &shared(LONG)?] {
        lost(case.store.renew(reader).await?)?;
        held_by(case.other.inspect(on(&kept)).await?, kept.token())?;
    }
    case.store.release(&kept).await?;
    Ok(())
}

/// A revocation ends the reader of its token and no other.
pub(super) async fn a_revocation_ends_exactly_one(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let (first, second) = (case.shared("lock", LONG)?, case.shared("lock", LONG)?);
    let writer = case.attempt("lock", LONG)?;
    for reader in [&first, &second] {
        granted(case.store.acquire(reader).await?)?;
    }
    ensure!(case.other.revoke(on(&first), first.token()).await?, "the reader's token was not found");
    held_by(case.other.inspect(on(&first)).await?, second.token())?;
    lost(case.store.renew(&first).await?)?;
    denied_by(case.other.acquire(&writer).await?, 0, second.token())?;
    ensure!(case.other.revoke(on(&first), second.token()).await?, "the reader's token was not found");
    granted(case.other.acquire(&writer).await?)?;
    case.other.release(&writer).await?;
    Ok(())
}

/// The last reader's release fires the streams of the key.
pub(super) async fn the_last_readers_release_fires(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let (first, last) = (case.shared("lock", LONG)?, case.shared("lock", LONG)?);
    for reader in [&first, &last] {
        granted(case.store.acquire(reader).await?)?;
    }
    ensure!(case.store.release(&first).await?.held, "the reader was not held any more");
    let mut wakeups = case.subscribed(&case.other, on(&last), None).await?;
    ensure!(case.store.release(&last).await?.held, "the reader was not held any more");
    case.awaited("the firing after the last reader's release", wakeups.next()).await
}

/// A writer that was denied by readers and waits keeps new readers out; it is denied itself by the readers that are in.
pub(super) async fn a_waiting_writer_keeps_new_readers_out(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let (reader, late) = (case.shared("lock", LONG)?, case.shared("lock", LONG)?);
    let writer = waiting(&case, "lock", LONG / 2)?;
    granted(case.store.acquire(&reader).await?)?;
    denied_by(case.other.acquire(&writer).await?, 0, reader.token())?;
    for store in [&case.store, &case.other] {
        let denial = denied(store.acquire(&late).await?)?;
        by_a_reader(&case, &denial, &[&reader], LONG / 2)?;
    }
    held_by(case.other.inspect(on(&reader)).await?, reader.token())?;
    denied_by(case.other.acquire(&writer).await?, 0, reader.token())?;
    case.other.release(&writer).await?;
    case.store.release(&reader).await?;
    Ok(())
}

/// A reader that is in stays in although a writer waits: its repeat and its renewal are granted.
pub(super) async fn a_waiting_writer_leaves_readers_in(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let reader = case.shared("lock", LONG)?;
    let writer = waiting(&case, "lock", LONG)?;
    granted(case.store.acquire(&reader).await?)?;
    denied_by(case.other.acquire(&writer).await?, 0, reader.token())?;
    granted(case.store.acquire(&reader).await?)?;
    granted(case.other.acquire(&copy(&reader)?).await?)?;
    extended(case.store.renew(&reader).await?)?;
    ensure!(case.store.release(&reader).await?.held, "a waiting writer took a reader's place");
    case.other.release(&writer).await?;
    Ok(())
}

/// When the readers have gone, the key is kept from new readers until the waiting writer comes, and it is granted then.
pub(super) async fn a_waiting_writer_comes_before_new_readers(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let (reader, late) = (case.shared("lock", LONG)?, case.shared("lock", LONG)?);
    let writer = waiting(&case, "lock", LONG / 2)?;
    granted(case.store.acquire(&reader).await?)?;
    denied_by(case.other.acquire(&writer).await?, 0, reader.token())?;
    ensure!(case.store.release(&reader).await?.held, "the reader was not held any more");
    let denial = denied(case.store.acquire(&late).await?)?;
    ensure!(denial.holder.is_none(), "a key that nobody holds is held by {:?}", denial.holder);
    in_time(&case, &denial, LONG / 2)?;
    free(&case.other.inspect(on(&reader)).await?)?;
    granted(case.other.acquire(&writer).await?)?;
    denied_by(case.store.acquire(&late).await?, 0, writer.token())?;
    case.other.release(&writer).await?;
    Ok(())
}

/// A writer's grant ends the wait, its own or another's: when it has gone, readers come in at once.
pub(super) async fn a_writers_grant_ends_the_wait(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    for own in [true, false] {
        let name = format!("lock {own}");
        let reader = case.shared(&name, LONG)?;
        let writer = waiting(&case, &name, LONG)?;
        granted(case.store.acquire(&reader).await?)?;
        denied_by(case.other.acquire(&writer).await?, 0, reader.token())?;
        ensure!(case.store.release(&reader).await?.held, "the reader was not held any more");
        let granted_one = if own { writer } else { waiting(&case, &name, LONG)? };
        granted(case.other.acquire(&granted_one).await?)?;
        ensure!(case.other.release(&granted_one).await?.held, "the writer was not held any more");
        granted(case.store.acquire(&reader).await?)?;
        case.store.release(&reader).await?;
    }
    Ok(())
}

/// A writer that is withdrawn lets readers in at once; another token's release does not withdraw it.
pub(super) async fn a_withdrawn_writer_lets_readers_in(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let (reader, late) = (case.shared("lock", LONG)?, case.shared("lock", LONG)?);
    let writer = waiting(&case, "lock", LONG)?;
    granted(case.store.acquire(&reader).await?)?;
    denied_by(case.other.acquire(&writer).await?, 0, reader.token())?;
    case.other.release(&rival(&writer)?).await?;
    denied(case.store.acquire(&late).await?)?;
    ensure!(!case.other.release(&writer).await?.held, "a waiting writer's release says that it was held");
    granted(case.store.acquire(&late).await?)?;
    for reader in [&reader, &late] {
        ensure!(case.store.release(reader).await?.held, "a writer's withdrawal took a reader's place");
    }
    Ok(())
}

/// A writer's withdrawal fires the streams of the key: readers that it kept out come in.
pub(super) async fn a_writers_withdrawal_fires(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let reader = case.shared("lock", LONG)?;
    let writer = waiting(&case, "lock", LONG)?;
    granted(case.store.acquire(&reader).await?)?;
    denied_by(case.other.acquire(&writer).await?, 0, reader.token())?;
    let mut wakeups = case.subscribed(&case.store, on(&reader), None).await?;
    case.other.release(&writer).await?;
    case.awaited("the firing after a writer's withdrawal", wakeups.next()).await?;
    case.store.release(&reader).await?;
    Ok(())
}

/// A writer that did not come again in time lets readers in, and not before.
pub(super) async fn a_writer_that_never_came_again_lets_readers_in(
    harness: &dyn Harness,
) -> Result<(), Failure> {
    writer_forgotten(harness, |sent, ttl| Patience::Wait {
        until: sent + LONG,
        again_within: ttl,
        confirm: Duration::ZERO,
    })
    .await
}

/// A writer whose time is over lets readers in, and not before, however often it meant to come.
pub(super) async fn a_writer_whose_time_is_over_lets_readers_in(
    harness: &dyn Harness,
) -> Result<(), Failure> {
    writer_forgotten(harness, |sent, ttl| Patience::Wait {
        until: sent + ttl,
        again_within: LONG,
        confirm: Duration::ZERO,
    })
    .await
}

/// A writer with this patience, made of an instant and a time, is forgotten when the time has passed since.
async fn writer_forgotten(
    harness: &dyn Harness,
    patience: impl Fn(Instant, Duration) -> Patience,
) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    for ttl in case.ttls() {
        let name = format!("lock {ttl:?}");
        let (reader, late) = (case.shared(&name, LONG)?, case.shared(&name, LONG)?);
        granted(case.store.acquire(&reader).await?)?;
        let sent = Instant::now();
        let writer = case.attempt(&name, LONG)?.with_patience(patience(sent, ttl));
        denied_by(case.other.acquire(&writer).await?, 0, reader.token())?;
        case.advance(ttl / 2).await;
        let early = case.store.acquire(&late).await?;
        if case.too_late(sent, ttl) {
            continue;
        }
        by_a_reader(&case, &denied(early)?, &[&reader], ttl)?;
        case.outlive(ttl / 2).await;
        granted(case.store.acquire(&late).await?)?;
        for reader in [&reader, &late] {
            case.store.release(reader).await?;
        }
        return Ok(());
    }
    Err(always_too_late())
}

/// A writer in the key's queue keeps new readers out as well, and lets them in when it leaves.
pub(super) async fn a_queued_writer_keeps_new_readers_out(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let (reader, late) = (case.shared("lock", LONG)?, case.shared("lock", LONG)?);
    let patience = Patience::Queue { until: Instant::now() + LONG, confirm: LONG };
    let writer = case.attempt("lock", LONG)?.with_patience(patience);
    granted(case.store.acquire(&reader).await?)?;
    denied_by(case.other.acquire(&writer).await?, 0, reader.token())?;
    denied(case.store.acquire(&late).await?)?;
    case.other.release(&writer).await?;
    granted(case.store.acquire(&late).await?)?;
    for reader in [&reader, &late] {
        case.store.release(reader).await?;
    }
    Ok(())
}

/// A writer that only tries keeps nobody out.
pub(super) async fn a_writer_that_tries_keeps_nobody_out(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let (reader, late) = (case.shared("lock", LONG)?, case.shared("lock", LONG)?);
    let over = Patience::Wait { until: Instant::now(), again_within: LONG, confirm: Duration::ZERO };
    granted(case.store.acquire(&reader).await?)?;
    for writer in [case.attempt("lock", LONG)?, case.attempt("lock", LONG)?.with_patience(over)] {
        denied_by(case.other.acquire(&writer).await?, 0, reader.token())?;
    }
    granted(case.store.acquire(&late).await?)?;
    for reader in [&reader, &late] {
        case.store.release(reader).await?;
    }
    Ok(())
}

/// A shared and an exclusive claim in one attempt: both or neither, and the denial names the claim that failed.
pub(super) async fn a_shared_and_an_exclusive_claim_come_together(
    harness: &dyn Harness,
) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let claims = vec![case.shared("read", LONG)?.claims()[0].clone(), case.claim("write", LONG)?];
    let lease = Attempt::new(token(), claims)?;
    let (read, write) = (lease.claims()[0].on(), lease.claims()[1].on());

    let writer = case.attempt("read", LONG)?;
    granted(case.other.acquire(&writer).await?)?;
    denied_by(case.store.acquire(&lease).await?, 0, writer.token())?;
    free(&case.other.inspect(write).await?)?;
    case.other.release(&writer).await?;

    let readers = [case.shared("read", LONG)?, case.shared("write", LONG)?];
    for reader in &readers {
        granted(case.other.acquire(reader).await?)?;
    }
    denied_by(case.store.acquire(&lease).await?, 1, readers[1].token())?;
    held_by(case.other.inspect(read).await?, readers[0].token())?;
    case.other.release(&readers[1]).await?;

    granted(case.store.acquire(&lease).await?)?;
    held_by_all(&case.other.inspect(read).await?, &[&readers[0], &lease])?;
    held_by(case.other.inspect(write).await?, lease.token())?;
    ensure!(case.store.release(&lease).await?.held, "a shared and an exclusive claim were not both held");
    held_by(case.other.inspect(read).await?, readers[0].token())?;
    free(&case.other.inspect(write).await?)?;
    case.other.release(&readers[0]).await?;
    Ok(())
}

/// Another client's value keeps readers out, and is named.
pub(super) async fn another_clients_value_excludes_readers(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let reader = case.shared("foreign", LONG)?;
    let foreign = Token::from_text(case.text("plain value"));
    case.put_foreign(on(&reader), foreign.as_str(), Some(LONG)).await?;
    denied_by(case.store.acquire(&reader).await?, 0, &foreign)?;
    ensure!(!case.store.release(&reader).await?.held, "a reader that was denied held the key");
    held_by(case.other.inspect(on(&reader)).await?, &foreign)?;
    case.store.revoke(on(&reader), &foreign).await?;
    granted(case.store.acquire(&reader).await?)?;
    case.store.release(&reader).await?;
    Ok(())
}

/// Readers keep other clients out, until the last of them has gone.
pub(super) async fn readers_exclude_other_clients(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let (short, long) = (case.shared("lock", case.pace.ttl)?, case.shared("lock", LONG)?);
    let foreign = Token::from_text(case.text("plain value"));
    for reader in [&long, &short] {
        granted(case.store.acquire(reader).await?)?;
    }
    case.outlive(short.ttl()).await;
    case.put_foreign(on(&long), foreign.as_str(), Some(LONG)).await?;
    held_by(case.other.inspect(on(&long)).await?, long.token())?;
    ensure!(case.store.release(&long).await?.held, "another client took a reader's place");
    free(&case.other.inspect(on(&long)).await?)?;
    case.put_foreign(on(&long), foreign.as_str(), Some(LONG)).await?;
    held_by(case.other.inspect(on(&long)).await?, &foreign)?;
    case.other.revoke(on(&long), &foreign).await?;
    Ok(())
}

/// A reader finds a key that holds something that is no lease, and reports it: [`ErrorKind::WrongType`].
pub(super) async fn a_key_that_is_no_lease_is_reported_to_readers(
    harness: &dyn Harness,
) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let reader = case.shared("wrong type", LONG)?;
    case.put_wrong_type(on(&reader)).await?;
    refused(case.store.acquire(&reader).await, ErrorKind::WrongType)?;
    let _ = case.store.release(&reader).await;
    refused(case.other.acquire(&rival(&reader)?).await, ErrorKind::WrongType)
}
