//! [`Capabilities::several`](crate::store::Capabilities::several): attempts with several claims, all or none.

use tokio::time::Instant;

use super::case::{
    Case, LONG, acquire_at_once, always_too_late, denied, denied_by, ensure, extended, free, granted,
    held_by, lost, refused, remaining, rival, token,
};
use super::{Failure, Harness};
use crate::lease::{Attempt, Claim, MAX_CLAIMS};
use crate::store::{ErrorKind, Verdict};

/// Every claim of a granted attempt is held, each for its own TTL and in its own space.
pub(super) async fn all_claims_are_granted_together(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let duplicate = Claim::duplicate(case.key("a")?, LONG);
    let claims = vec![case.claim("a", LONG)?, case.claim("b", LONG / 2)?, duplicate];
    let lease = Attempt::new(token(), claims)?;
    let sent = Instant::now();
    let grant = granted(case.store.acquire(&lease).await?)?;
    ensure!(grant.fences.is_empty(), "no claim asked for a fence, and the grant has {:?}", grant.fences);
    for claim in lease.claims() {
        let holder = held_by(case.other.inspect(claim.on()).await?, lease.token())?;
        let (left, least, most) =
            (remaining(&holder)?, case.at_least(claim.ttl(), sent), claim.ttl() + case.pace.lag);
        ensure!(
            (least..=most).contains(&left),
            "{} has {left:?} left, not {least:?} to {most:?}",
            claim.on()
        );
        denied(case.other.acquire(&Attempt::one(token(), claim.clone())).await?)?;
    }
    case.store.release(&lease).await?;
    Ok(())
}

/// If any claim is held by another, wherever it stands in the attempt, the denial names it and nothing is taken.
pub(super) async fn none_is_granted_if_one_is_held(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let names = ["a", "b", "c"];
    for (held, name) in names.into_iter().enumerate() {
        let holder = case.attempt(name, LONG)?;
        granted(case.other.acquire(&holder).await?)?;
        let attempt = case.several(&names, LONG)?;
        denied_by(case.store.acquire(&attempt).await?, held, holder.token())?;
        for (i, claim) in attempt.claims().iter().enumerate() {
            let holders = case.other.inspect(claim.on()).await?;
            if i == held {
                held_by(holders, holder.token())?;
            } else {
                free(&holders)?;
            }
        }
        ensure!(
            !case.store.release(&attempt).await?.held,
            "the release of a denied attempt says that it was held"
        );
        ensure!(
            case.other.release(&holder).await?.held,
            "an attempt that was denied took the holder's lease away"
        );
    }
    Ok(())
}

/// If more than one claim is held by others, the denial names the first.
pub(super) async fn the_first_held_claim_is_named(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let (first, second) = (case.attempt("b", LONG)?, case.attempt("c", LONG)?);
    granted(case.other.acquire(&second).await?)?;
    granted(case.other.acquire(&first).await?)?;
    for (names, holder) in [(["a", "b", "c"], &first), (["a", "c", "b"], &second)] {
        denied_by(case.store.acquire(&case.several(&names, LONG)?).await?, 1, holder.token())?;
    }
    case.other.release(&first).await?;
    case.other.release(&second).await?;
    Ok(())
}

/// Sent again with the same token, an attempt that was granted gets the same answer and moves no expiry.
pub(super) async fn a_repeated_attempt_moves_no_expiry(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    for ttl in case.ttls() {
        let (a, b) = (format!("a {ttl:?}"), format!("b {ttl:?}"));
        let lease = case.several(&[&a, &b], ttl)?;
        let sent = Instant::now();
        let first = case.store.acquire(&lease).await?;
        case.advance(ttl / 2).await;
        let again = case.store.acquire(&lease).await?;
        if case.too_late(sent, ttl) {
            continue;
        }
        ensure!(first == again, "the first answer was {first:?}, the same attempt then got {again:?}");
        granted(again)?;
        case.outlive(ttl / 2).await;
        for claim in lease.claims() {
            free(&case.other.inspect(claim.on()).await?)?;
        }
        return Ok(());
    }
    Err(always_too_late())
}

/// An attempt that comes again when one of its claims is lost to another is denied, and what it still holds stays
/// held, with its expiry unmoved: a denial changes nothing.
pub(super) async fn a_denial_takes_nothing_back(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let ttl = case.pace.ttl;
    let lease = Attempt::new(token(), vec![case.claim("a", LONG)?, case.claim("b", ttl)?])?;
    granted(case.store.acquire(&lease).await?)?;
    case.outlive(ttl).await;
    let successor = case.attempt("b", LONG)?;
    granted(case.other.acquire(&successor).await?)?;
    denied_by(case.store.acquire(&lease).await?, 1, successor.token())?;
    let left = remaining(&held_by(case.other.inspect(lease.claims()[0].on()).await?, lease.token())?)?;
    ensure!(left <= LONG - ttl, "a denial moved an expiry: {left:?} are left of {LONG:?} after {ttl:?}");
    held_by(case.other.inspect(lease.claims()[1].on()).await?, successor.token())?;
    case.store.release(&lease).await?;
    case.other.release(&successor).await?;
    Ok(())
}

/// Attempts at the same time on the same keys in opposite orders are all answered, at most one is granted, and it has
/// all of its claims; the others have none.
pub(super) async fn opposite_orders_never_share_nor_deadlock(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let connections = case.connections(4).await?;
    for round in 0..16 {
        let (a, b) = (format!("a {round}"), format!("b {round}"));
        let (there, back) = ([a.as_str(), b.as_str()], [b.as_str(), a.as_str()]);
        let attempts: Result<_, _> =
            (0..8).map(|i| case.several(if i % 2 == 0 { &there } else { &back }, LONG)).collect();
        let answering = acquire_at_once(&connections, attempts?);
        let mut answers = case.awaited("an answer to attempts in opposite orders", answering).await??;
        answers.retain(|(_, verdict)| matches!(verdict, Verdict::Granted(_)));
        ensure!(answers.len() <= 1, "{} attempts on the same two keys were granted", answers.len());
        for name in there {
            let on = case.claim(name, LONG)?.on().clone();
            let holders = case.other.inspect(&on).await?;
            match answers.first() {
                Some((winner, _)) => drop(held_by(holders, winner.token())?),
                None => free(&holders)?,
            }
        }
        if let Some((winner, _)) = answers.first() {
            ensure!(case.other.release(winner).await?.held, "the winner did not hold what it was granted");
        }
    }
    Ok(())
}

/// Each claim ends with its own TTL, whatever the others have left.
pub(super) async fn each_claim_expires_on_its_own(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let ttl = case.pace.ttl;
    let lease =
        Attempt::new(token(), vec![case.claim("a", LONG)?, case.claim("b", ttl)?, case.claim("c", LONG)?])?;
    granted(case.store.acquire(&lease).await?)?;
    case.outlive(ttl).await;
    held_by(case.other.inspect(lease.claims()[0].on()).await?, lease.token())?;
    free(&case.other.inspect(lease.claims()[1].on()).await?)?;
    held_by(case.other.inspect(lease.claims()[2].on()).await?, lease.token())?;
    ensure!(
        !case.store.release(&lease).await?.held,
        "a release says that all was held, though one claim had expired"
    );
    Ok(())
}

/// A renewal gives every claim its own full TTL again.
///
/// Proves: B3
pub(super) async fn a_renewal_extends_each_claim_to_its_own_ttl(
    harness: &dyn Harness,
) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let lease = Attempt::new(token(), vec![case.claim("a", LONG)?, case.claim("b", LONG / 2)?])?;
    granted(case.store.acquire(&lease).await?)?;
    case.advance(case.pace.ttl).await;
    let asked = Instant::now();
    extended(case.store.renew(&lease).await?)?;
    for claim in lease.claims() {
        let holder = held_by(case.other.inspect(claim.on()).await?, lease.token())?;
        let (left, least, most) =
            (remaining(&holder)?, case.at_least(claim.ttl(), asked), claim.ttl() + case.pace.lag);
        ensure!(
            (least..=most).contains(&left),
            "{} has {left:?} left, not {least:?} to {most:?}",
            claim.on()
        );
    }
    case.store.release(&lease).await?;
    Ok(())
}

/// If any claim is no longer held, free or another's, wherever it stands, the renewal is *lost*, extends none of the
/// others, and leaves the other holder alone.
///
/// Proves: B3
pub(super) async fn a_renewal_is_all_or_lost(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let ttl = case.pace.ttl;
    let mut leases = Vec::new();
    for gone in 0..3 {
        for taken in [false, true] {
            let names = ["a", "b", "c"].map(|name| format!("{name} {gone} {taken}"));
            let names = names.each_ref().map(String::as_str);
            let lease = case.several(&names, ttl)?;
            granted(case.store.acquire(&lease).await?)?;
            let part = Attempt::one(lease.token().clone(), lease.claims()[gone].clone());
            case.store.release(&part).await?;
            let successor = case.attempt(names[gone], LONG)?;
            if taken {
                granted(case.other.acquire(&successor).await?)?;
            }
            // As long as can be, so that an extension would show.
            let claims: Result<_, Failure> = names.iter().map(|name| case.claim(name, LONG)).collect();
            let longer = Attempt::new(lease.token().clone(), claims?)?;
            leases.push((longer, gone, taken.then_some(successor)));
        }
    }
    case.advance(ttl / 2).await;
    for (longer, ..) in &leases {
        lost(case.store.renew(longer).await?)?;
    }
    case.outlive(ttl / 2).await;
    for (longer, gone, successor) in &leases {
        for (i, claim) in longer.claims().iter().enumerate() {
            let holders = case.other.inspect(claim.on()).await?;
            match successor {
                Some(successor) if i == *gone => drop(held_by(holders, successor.token())?),
                _ => free(&holders)?,
            }
        }
        if let Some(successor) = successor {
            case.other.release(successor).await?;
        }
    }
    Ok(())
}

/// One release gives all claims back.
///
/// Proves: L3
pub(super) async fn a_release_gives_all_back(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let lease = case.several(&["a", "b", "c"], LONG)?;
    granted(case.store.acquire(&lease).await?)?;
    ensure!(case.store.release(&lease).await?.held, "the holder's release says that not all was held");
    for claim in lease.claims() {
        free(&case.other.inspect(claim.on()).await?)?;
    }
    ensure!(
        !case.store.release(&lease).await?.held,
        "the second release of a lease says again that it was held"
    );
    Ok(())
}

/// If a claim is lost to another, the release says that not all was held, gives the rest back all the same, and
/// leaves the successor alone.
///
/// Proves: L3, L8
pub(super) async fn a_release_gives_back_what_is_left(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let ttl = case.pace.ttl;
    let lease =
        Attempt::new(token(), vec![case.claim("a", LONG)?, case.claim("b", ttl)?, case.claim("c", LONG)?])?;
    granted(case.store.acquire(&lease).await?)?;
    case.outlive(ttl).await;
    let successor = case.attempt("b", LONG)?;
    granted(case.other.acquire(&successor).await?)?;
    ensure!(
        !case.store.release(&lease).await?.held,
        "a release says that all was held, though one claim was another's"
    );
    free(&case.other.inspect(lease.claims()[0].on()).await?)?;
    held_by(case.other.inspect(lease.claims()[1].on()).await?, successor.token())?;
    free(&case.other.inspect(lease.claims()[2].on()).await?)?;
    case.other.release(&successor).await?;
    Ok(())
}

/// [`MAX_CLAIMS`] claims in one attempt are granted, renewed and released like two.
pub(super) async fn as_many_claims_as_an_attempt_may_have(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let names: Vec<String> = (0..MAX_CLAIMS).map(|i| i.to_string()).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let lease = case.several(&names, LONG)?;
    granted(case.store.acquire(&lease).await?)?;
    denied_by(case.other.acquire(&rival(&lease)?).await?, 0, lease.token())?;
    extended(case.store.renew(&lease).await?)?;
    for claim in lease.claims() {
        held_by(case.other.inspect(claim.on()).await?, lease.token())?;
    }
    ensure!(case.store.release(&lease).await?.held, "the holder's release says that not all was held");
    for claim in lease.claims() {
        free(&case.other.inspect(claim.on()).await?)?;
    }
    Ok(())
}

/// If one key holds something that is no lease, wherever it stands in the attempt, that is reported and no other claim
/// is taken: everything is looked at before anything is written.
pub(super) async fn a_key_that_is_no_lease_leaves_the_others_free(
    harness: &dyn Harness,
) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    for (wrong, name) in ["a", "b", "c"].into_iter().enumerate() {
        let names = ["a", "b", "c"].map(|other| format!("{other} beside {name}"));
        let attempt = case.several(&names.each_ref().map(String::as_str), LONG)?;
        case.put_wrong_type(attempt.claims()[wrong].on()).await?;
        refused(case.store.acquire(&attempt).await, ErrorKind::WrongType)?;
        for (i, claim) in attempt.claims().iter().enumerate() {
            if i != wrong {
                free(&case.other.inspect(claim.on()).await?)?;
            }
        }
    }
    Ok(())
}
