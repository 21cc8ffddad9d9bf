//! [`Capabilities::permits`](crate::store::Capabilities::permits): one of N places on a key.

use tokio::time::Instant;

use super::case::{
    Case, LONG, acquire_at_once, always_too_late, copy, denied, denied_by, ensure, extended, free, granted,
    held_by, held_by_all, listed, lost, on, refused, remaining, rival, token,
};
use super::{Failure, Harness};
use crate::lease::{Attempt, Mode};
use crate::store::{ErrorKind, Verdict};

/// Of many attempts at the same time, over several connections, exactly as many are granted as the limit says; the
/// others are denied by one of those, and none fails.
pub(super) async fn never_more_than_the_limit(harness: &dyn Harness) -> Result<(), Failure> {
    const LIMIT: u32 = 5;
    const ATTEMPTS: usize = 48;
    let case = Case::new(harness).await?;
    let connections = case.connections(4).await?;
    for round in 0..4 {
        let name = format!("round {round}");
        let attempts: Result<_, _> = (0..ATTEMPTS).map(|_| case.permit(&name, LIMIT, LONG)).collect();
        let (holders, losers): (Vec<_>, Vec<_>) = acquire_at_once(&connections, attempts?)
            .await?
            .into_iter()
            .partition(|(_, verdict)| matches!(verdict, Verdict::Granted(_)));
        ensure!(
            holders.len() == 5,
            "{} of {ATTEMPTS} attempts on {LIMIT} permits were granted",
            holders.len()
        );
        let holders: Vec<&Attempt> = holders.iter().map(|(holder, _)| holder).collect();
        for (_, verdict) in losers {
            let by = denied(verdict)?.holder;
            let known = by.is_some_and(|by| holders.iter().any(|holder| holder.token() == by.token()));
            ensure!(known, "a denial names nobody who holds a permit");
        }
        held_by_all(&case.other.inspect(on(holders[0])).await?, &holders)?;
        for holder in holders {
            ensure!(case.other.release(holder).await?.held, "a permit that was granted was not held");
        }
    }
    Ok(())
}

/// One permit of one excludes like a lock, and is free again when it was given back.
pub(super) async fn a_limit_of_one_excludes_like_a_lock(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let only = case.permit("one", 1, LONG)?;
    granted(case.store.acquire(&only).await?)?;
    denied_by(case.other.acquire(&rival(&only)?).await?, 0, only.token())?;
    held_by(case.other.inspect(on(&only)).await?, only.token())?;
    ensure!(case.store.release(&only).await?.held, "the only permit was not held");
    free(&case.other.inspect(on(&only)).await?)?;
    let next = rival(&only)?;
    granted(case.other.acquire(&next).await?)?;
    case.other.release(&next).await?;
    Ok(())
}

/// A lock and a limit of the same name are two things.
pub(super) async fn a_lock_of_the_same_name_is_another_thing(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let (lock, permit) = (case.attempt("same", LONG)?, case.permit("same", 1, LONG)?);
    granted(case.store.acquire(&lock).await?)?;
    granted(case.store.acquire(&permit).await?)?;
    held_by(case.other.inspect(on(&lock)).await?, lock.token())?;
    held_by(case.other.inspect(on(&permit)).await?, permit.token())?;
    ensure!(case.store.release(&permit).await?.held, "the permit was not held any more");
    held_by(case.other.inspect(on(&lock)).await?, lock.token())?;
    case.store.release(&lock).await?;
    Ok(())
}

/// Sent again with the same token, an attempt gets the same answer and holds one permit, not two.
pub(super) async fn a_repeat_counts_once(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let (first, second) = (case.permit("twice", 2, LONG)?, case.permit("twice", 2, LONG)?);
    let answer = case.store.acquire(&first).await?;
    for again in [case.store.acquire(&first).await?, case.other.acquire(&copy(&first)?).await?] {
        ensure!(again == answer, "the first answer was {answer:?}, the same attempt then got {again:?}");
    }
    granted(case.other.acquire(&second).await?)?;
    // Also when the limit is reached.
    granted(case.other.acquire(&copy(&first)?).await?)?;
    held_by_all(&case.other.inspect(on(&first)).await?, &[&first, &second])?;
    ensure!(case.store.release(&first).await?.held, "a permit that was asked for often was not held");
    held_by(case.other.inspect(on(&first)).await?, second.token())?;
    case.store.release(&second).await?;
    Ok(())
}

/// Sent again with the same token, an attempt that was granted moves no expiry.
pub(super) async fn a_repeat_moves_no_expiry(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    for ttl in case.ttls() {
        let lease = case.permit(&format!("lease {ttl:?}"), 2, ttl)?;
        let sent = Instant::now();
        granted(case.store.acquire(&lease).await?)?;
        case.advance(ttl / 2).await;
        let again = case.store.acquire(&lease).await?;
        if case.too_late(sent, ttl) {
            continue;
        }
        granted(again)?;
        case.outlive(ttl / 2).await;
        return free(&case.other.inspect(on(&lease)).await?);
    }
    Err(always_too_late())
}

/// A permit ends with its own TTL although newer ones live: it is not shown any more, and its place is free.
pub(super) async fn a_permit_ends_though_a_newer_one_lives(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let (short, long) = (case.permit("limit", 2, case.pace.ttl)?, case.permit("limit", 2, LONG)?);
    granted(case.store.acquire(&short).await?)?;
    granted(case.store.acquire(&long).await?)?;
    extended(case.store.renew(&long).await?)?;
    case.outlive(short.ttl()).await;
    held_by(case.other.inspect(on(&short)).await?, long.token())?;
    let (next, last) = (case.permit("limit", 2, LONG)?, case.permit("limit", 2, LONG)?);
    granted(case.other.acquire(&next).await?)?;
    denied(case.other.acquire(&last).await?)?;
    for lease in [&long, &next] {
        ensure!(case.store.release(lease).await?.held, "a permit went with another one's end");
    }
    Ok(())
}

/// A permit lives for all of its TTL although others with less came before or after it.
pub(super) async fn a_permit_lives_though_others_end(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let ttl = case.pace.ttl;
    let permit = |ttl| case.permit("limit", 3, ttl);
    let (before, long, after) = (permit(ttl)?, permit(LONG)?, permit(ttl)?);
    let sent = Instant::now();
    for lease in [&before, &long, &after] {
        granted(case.store.acquire(lease).await?)?;
    }
    case.outlive(ttl).await;
    let holder = held_by(case.other.inspect(on(&long)).await?, long.token())?;
    case.has_left(&holder, LONG, sent)?;
    denied_by(case.other.acquire(&case.permit("limit", 1, LONG)?).await?, 0, long.token())?;
    ensure!(case.store.release(&long).await?.held, "a permit went with the others");
    Ok(())
}

/// Given back twice, a permit is free once.
///
/// Proves: L3
pub(super) async fn a_second_release_refunds_nothing(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let (first, second) = (case.permit("limit", 2, LONG)?, case.permit("limit", 2, LONG)?);
    for lease in [&first, &second] {
        granted(case.store.acquire(lease).await?)?;
    }
    ensure!(case.store.release(&first).await?.held, "the holder's release says that nothing was held");
    for store in [&case.store, &case.other] {
        let again = store.release(&copy(&first)?).await?.held;
        ensure!(!again, "the second release of a permit says again that it was held");
        held_by(case.other.inspect(on(&first)).await?, second.token())?;
    }
    let third = rival(&first)?;
    granted(case.other.acquire(&third).await?)?;
    denied(case.other.acquire(&rival(&first)?).await?)?;
    for lease in [&second, &third] {
        ensure!(case.store.release(lease).await?.held, "a second release took another's permit");
    }
    Ok(())
}

/// The release of a permit that has expired says that nothing was held, and frees nobody else's.
///
/// Proves: L3, L8
pub(super) async fn an_expired_permit_refunds_nothing(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let short = case.permit("limit", 1, case.pace.ttl)?;
    granted(case.store.acquire(&short).await?)?;
    case.outlive(short.ttl()).await;
    let next = case.permit("limit", 1, LONG)?;
    granted(case.other.acquire(&next).await?)?;
    ensure!(
        !case.store.release(&short).await?.held,
        "the release of an expired permit says that it was held"
    );
    held_by(case.other.inspect(on(&next)).await?, next.token())?;
    denied_by(case.store.acquire(&rival(&next)?).await?, 0, next.token())?;
    ensure!(case.other.release(&next).await?.held, "the release of an expired permit freed another's");
    Ok(())
}

/// The release of a token that holds no permit frees nobody's.
///
/// Proves: L3, L8
pub(super) async fn a_stranger_refunds_nothing(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let (first, second) = (case.permit("limit", 2, LONG)?, case.permit("limit", 2, LONG)?);
    for lease in [&first, &second] {
        granted(case.store.acquire(lease).await?)?;
    }
    let stranger = rival(&first)?;
    denied(case.other.acquire(&stranger).await?)?;
    ensure!(!case.other.release(&stranger).await?.held, "a stranger's release says that it held a permit");
    held_by_all(&case.other.inspect(on(&first)).await?, &[&first, &second])?;
    denied(case.other.acquire(&stranger).await?)?;
    for lease in [&first, &second] {
        ensure!(case.store.release(lease).await?.held, "a stranger's release took a permit away");
    }
    Ok(())
}

/// A caller with a higher limit than the others had is granted up to its own.
pub(super) async fn a_raised_limit_counts_at_once(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let permit = |of| case.permit("limit", of, LONG);
    let leases = [permit(1)?, permit(2)?, permit(3)?, permit(4)?];
    for lease in &leases {
        granted(case.store.acquire(lease).await?)?;
    }
    denied(case.other.acquire(&permit(4)?).await?)?;
    held_by_all(&case.other.inspect(on(&leases[0])).await?, &leases.each_ref())?;
    for lease in &leases {
        case.store.release(lease).await?;
    }
    Ok(())
}

/// A caller with a lower limit than the others had is denied until fewer than its own number are held; those who hold
/// keep what they have.
pub(super) async fn a_lowered_limit_counts_at_once(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let permit = |of| case.permit("limit", of, LONG);
    let leases = [permit(3)?, permit(3)?, permit(3)?];
    for lease in &leases {
        granted(case.store.acquire(lease).await?)?;
    }
    let lower = permit(2)?;
    denied(case.other.acquire(&lower).await?)?;
    held_by_all(&case.other.inspect(on(&lower)).await?, &leases.each_ref())?;
    case.store.release(&leases[0]).await?;
    denied(case.other.acquire(&lower).await?)?;
    case.store.release(&leases[1]).await?;
    granted(case.other.acquire(&lower).await?)?;
    held_by_all(&case.other.inspect(on(&lower)).await?, &[&leases[2], &lower])?;
    case.store.release(&leases[2]).await?;
    case.store.release(&lower).await?;
    Ok(())
}

/// A renewal extends the permit of its token, and none of the others.
///
/// Proves: B3
pub(super) async fn a_renewal_extends_its_own_permit_only(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    for ttl in case.ttls() {
        let name = format!("limit {ttl:?}");
        let (renewed, left_alone) = (case.permit(&name, 2, ttl)?, case.permit(&name, 2, ttl)?);
        let sent = Instant::now();
        for lease in [&renewed, &left_alone] {
            granted(case.store.acquire(lease).await?)?;
        }
        case.advance(ttl / 2).await;
        let longer = Attempt::one(renewed.token().clone(), case.permit(&name, 2, LONG)?.claims()[0].clone());
        let asked = Instant::now();
        let renewal = case.store.renew(&longer).await?;
        if case.too_late(sent, ttl) {
            continue;
        }
        extended(renewal)?;
        case.outlive(ttl / 2).await;
        let holder = held_by(case.other.inspect(on(&renewed)).await?, renewed.token())?;
        case.has_left(&holder, LONG, asked)?;
        case.store.release(&renewed).await?;
        return Ok(());
    }
    Err(always_too_late())
}

/// A renewal never brings a permit's end nearer.
///
/// Proves: B3
pub(super) async fn a_renewal_never_shortens(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let lease = case.permit("limit", 2, LONG)?;
    let shorter =
        Attempt::one(lease.token().clone(), case.permit("limit", 2, case.pace.ttl)?.claims()[0].clone());
    let sent = Instant::now();
    granted(case.store.acquire(&lease).await?)?;
    extended(case.store.renew(&shorter).await?)?;
    case.has_left(&held_by(case.other.inspect(on(&lease)).await?, lease.token())?, LONG, sent)?;
    case.outlive(shorter.ttl()).await;
    held_by(case.other.inspect(on(&lease)).await?, lease.token())?;
    case.store.release(&lease).await?;
    Ok(())
}

/// A permit that has expired or was given back is *lost*: renewing brings it not back, whoever else holds one.
///
/// Proves: B3
pub(super) async fn a_lost_permit_is_not_renewed(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let permit = |ttl| case.permit("limit", 3, ttl);
    let (expired, released, kept) = (permit(case.pace.ttl)?, permit(LONG)?, permit(LONG)?);
    for lease in [&expired, &released, &kept] {
        granted(case.store.acquire(lease).await?)?;
    }
    ensure!(case.store.release(&released).await?.held, "the permit was not held any more");
    case.outlive(expired.ttl()).await;
    for lease in [&expired, &released, &permit(LONG)?] {
        lost(case.store.renew(lease).await?)?;
        held_by(case.other.inspect(on(&kept)).await?, kept.token())?;
    }
    case.store.release(&kept).await?;
    Ok(())
}

/// A denial names the holder whose permit ends first, and the time until then.
pub(super) async fn a_denial_names_the_holder_that_ends_first(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let permit = |ttl| case.permit("limit", 3, ttl);
    let (long, first, longer) = (permit(LONG)?, permit(LONG / 3)?, permit(LONG / 2)?);
    let sent = Instant::now();
    for lease in [&long, &first, &longer] {
        granted(case.store.acquire(lease).await?)?;
    }
    let denial = denied_by(case.other.acquire(&permit(LONG)?).await?, 0, first.token())?;
    let (least, most) = (case.at_least(first.ttl(), sent), first.ttl() + case.pace.lag);
    ensure!(
        denial.retry_after.is_some_and(|after| (least..=most).contains(&after)),
        "asking again after {:?} is not between {least:?} and {most:?}",
        denial.retry_after
    );
    for lease in [&long, &first, &longer] {
        case.store.release(lease).await?;
    }
    Ok(())
}

/// A permit that is given back fires the streams of its key, also on other connections.
pub(super) async fn a_release_fires(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let (first, second) = (case.permit("limit", 2, LONG)?, case.permit("limit", 2, LONG)?);
    for lease in [&first, &second] {
        granted(case.store.acquire(lease).await?)?;
    }
    let mut wakeups = case.subscribed(&case.other, on(&first), None).await?;
    for lease in [&first, &second] {
        ensure!(case.store.release(lease).await?.held, "the permit was not held any more");
        case.awaited("the firing after a permit's release", wakeups.next()).await?;
    }
    Ok(())
}

/// All holders are shown, as holders of permits, each with the time it has left.
///
/// Proves: T2
pub(super) async fn every_holder_is_shown(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let leases = [case.permit("limit", 3, LONG)?, case.permit("limit", 3, LONG / 2)?];
    let sent = Instant::now();
    for lease in &leases {
        granted(case.store.acquire(lease).await?)?;
    }
    let holders = case.other.inspect(on(&leases[0])).await?;
    held_by_all(&holders, &leases.each_ref())?;
    for holder in &holders {
        ensure!(holder.on() == on(&leases[0]), "the holder is shown on {:?}", holder.on());
        ensure!(
            matches!(holder.mode(), Mode::Permit { .. }),
            "the holder of a permit is shown as {:?}",
            holder.mode()
        );
        let lease = leases.iter().find(|lease| lease.token() == holder.token());
        case.has_left(holder, lease.map_or(LONG, Attempt::ttl), sent)?;
    }
    for lease in &leases {
        case.store.release(lease).await?;
    }
    Ok(())
}

/// All holders are listed.
pub(super) async fn every_holder_is_listed(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let leases = [case.permit("limit", 3, LONG)?, case.permit("limit", 3, LONG)?];
    for lease in &leases {
        granted(case.store.acquire(lease).await?)?;
    }
    for lease in &leases {
        let listed = listed(&case.other).await?;
        let found = listed.iter().find(|holder| holder.token() == lease.token());
        let Some(holder) = found else { return Err(Failure::new("a listing does not show every permit")) };
        ensure!(holder.on() == on(lease), "a listing shows the permit on {:?}", holder.on());
        ensure!(
            remaining(holder)? <= LONG + case.pace.lag,
            "a listing shows a permit with too much time left"
        );
    }
    for lease in &leases {
        case.store.release(lease).await?;
    }
    Ok(())
}

/// A revocation ends the permit of its token and no other.
pub(super) async fn a_revocation_ends_exactly_one(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let permit = || case.permit("limit", 3, LONG);
    let (first, revoked, last) = (permit()?, permit()?, permit()?);
    for lease in [&first, &revoked, &last] {
        granted(case.store.acquire(lease).await?)?;
    }
    ensure!(case.other.revoke(on(&revoked), revoked.token()).await?, "the holder's token was not found");
    held_by_all(&case.other.inspect(on(&first)).await?, &[&first, &last])?;
    ensure!(!case.other.revoke(on(&revoked), revoked.token()).await?, "a permit was revoked twice");
    lost(case.store.renew(&revoked).await?)?;
    granted(case.other.acquire(&revoked).await?)?;
    for lease in [&first, &revoked, &last] {
        ensure!(case.store.release(lease).await?.held, "a revocation took more than one permit");
    }
    Ok(())
}

/// A lock and a permit in one attempt, in either order.
fn lock_and_permit(case: &Case<'_>, name: &str, lock_first: bool) -> Result<Attempt, Failure> {
    let permit = case.permit(name, 2, LONG / 2)?.claims()[0].clone();
    let lock = case.claim(name, LONG)?;
    Ok(Attempt::new(token(), if lock_first { vec![lock, permit] } else { vec![permit, lock] })?)
}

/// A lock and a permit in one attempt are granted together, each with its own TTL, renewed together, and given back
/// together.
pub(super) async fn a_lock_and_a_permit_come_together(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    for lock_first in [true, false] {
        let lease = lock_and_permit(&case, &format!("both {lock_first}"), lock_first)?;
        let mut sent = Instant::now();
        granted(case.store.acquire(&lease).await?)?;
        for renewed in [false, true] {
            if renewed {
                sent = Instant::now();
                extended(case.store.renew(&lease).await?)?;
            }
            for claim in lease.claims() {
                let holder = held_by(case.other.inspect(claim.on()).await?, lease.token())?;
                case.has_left(&holder, claim.ttl(), sent)?;
            }
        }
        ensure!(case.store.release(&lease).await?.held, "a lock and a permit were not both held");
        for claim in lease.claims() {
            free(&case.other.inspect(claim.on()).await?)?;
        }
    }
    Ok(())
}

/// If the lock or the permit cannot be granted, neither is; the denial names which, wherever it stands.
pub(super) async fn a_lock_and_a_permit_are_both_granted_or_neither(
    harness: &dyn Harness,
) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    for lock_first in [true, false] {
        let name = format!("both {lock_first}");
        let (lock_at, permit_at) = if lock_first { (0, 1) } else { (1, 0) };
        let attempt = lock_and_permit(&case, &name, lock_first)?;

        let holder = case.attempt(&name, LONG)?;
        granted(case.other.acquire(&holder).await?)?;
        denied_by(case.store.acquire(&attempt).await?, lock_at, holder.token())?;
        free(&case.other.inspect(attempt.claims()[permit_at].on()).await?)?;
        ensure!(case.other.release(&holder).await?.held, "a denied attempt took the lock away");

        let holders = [case.permit(&name, 2, LONG / 2)?, case.permit(&name, 2, LONG)?];
        for holder in &holders {
            granted(case.other.acquire(holder).await?)?;
        }
        denied_by(case.store.acquire(&attempt).await?, permit_at, holders[0].token())?;
        free(&case.other.inspect(attempt.claims()[lock_at].on()).await?)?;
        for holder in &holders {
            ensure!(case.other.release(holder).await?.held, "a denied attempt took a permit away");
        }
        granted(case.store.acquire(&attempt).await?)?;
        case.store.release(&attempt).await?;
    }
    Ok(())
}

/// A limit's key that holds something else is [`ErrorKind::WrongType`], and no step removes it.
pub(super) async fn a_key_that_is_no_limit_is_reported_and_kept(
    harness: &dyn Harness,
) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let attempt = case.permit("wrong type", 2, LONG)?;
    case.put_wrong_type(on(&attempt)).await?;
    refused(case.store.acquire(&attempt).await, ErrorKind::WrongType)?;
    // What these answer is theirs; that the value survives them is the point.
    let _ = case.store.renew(&attempt).await;
    let _ = case.store.release(&attempt).await;
    let _ = case.store.revoke(on(&attempt), attempt.token()).await;
    refused(case.other.acquire(&rival(&attempt)?).await, ErrorKind::WrongType)
}
