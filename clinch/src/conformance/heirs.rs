//! [`Capabilities::heirs`](crate::store::Capabilities::heirs): a release hands the key over to one that waits.
//!
//! The contract says that a store *may* note an heir. The suite asks for one case in which a store that claims this must: exactly
//! one attempt waits, with a `confirm` time ([`Patience::Wait`]); it asked less than half that time ago, and was denied by an
//! exclusive holder that came with such a patience itself, so that a store need not look for heirs at every release.

use std::time::Duration;

use tokio::time::Instant;

use super::case::{
    Case, LONG, always_too_late, denied_by, ensure, extended, free, granted, held_by, lost, on,
};
use super::{Failure, Harness};
use crate::lease::{Attempt, Patience};
use crate::store::{News, Wakeups};

/// How long a key is kept for its heir, where no test waits for the end of that. A machine that stalls for half of it is asked
/// again.
const KEPT: [Duration; 3] = [Duration::from_secs(10); 3];

/// By how much a store may count the moment at which an heir asked earlier than it was.
const GRAIN: Duration = Duration::from_millis(1);

/// A new attempt that waits for the key of this name, and takes it only by asking if `confirm` is zero.
fn waiting(case: &Case<'_>, name: &str, ttl: Duration, confirm: Duration) -> Result<Attempt, Failure> {
    let patience = Patience::Wait { until: Instant::now() + LONG, again_within: LONG, confirm };
    Ok(case.attempt(name, ttl)?.with_patience(patience))
}

/// A lease on the key of this name, and one that can inherit it and was just denied.
async fn held_and_waited_for(
    case: &Case<'_>,
    name: &str,
    confirm: Duration,
) -> Result<(Attempt, Attempt), Failure> {
    let (holder, heir) = (waiting(case, name, LONG, confirm)?, waiting(case, name, LONG, confirm)?);
    granted(case.store.acquire(&holder).await?)?;
    denied_by(case.other.acquire(&heir).await?, 0, holder.token())?;
    Ok((holder, heir))
}

/// A key that a release has handed over.
struct HandedOver {
    name: String,
    /// Who had it.
    holder: Attempt,
    /// Who asked for it on the other connection and was denied.
    heir: Attempt,
    /// For how long it is kept.
    confirm: Duration,
    /// Just before the release.
    at: Instant,
}

impl HandedOver {
    /// Whether it may be kept no longer, so that an answer proves nothing.
    fn is_over(&self, case: &Case<'_>) -> bool {
        case.too_late(self.at, self.confirm)
    }
}

/// Lets a holder release a key of its own for which an heir waits; `None` if the heir had asked too long before.
async fn hand_over(case: &Case<'_>, confirm: Duration) -> Result<Option<HandedOver>, Failure> {
    let name = format!("lock {:016x}", rand::random::<u64>());
    let asked = Instant::now();
    let (holder, heir) = held_and_waited_for(case, &name, confirm).await?;
    let at = Instant::now();
    released(case, &holder).await?;
    if case.too_late(asked, confirm / 2) {
        case.store.release(&heir).await?;
        return Ok(None);
    }
    Ok(Some(HandedOver { name, holder, heir, confirm, at }))
}

/// The same, for a time that no test waits for.
async fn handed_over(case: &Case<'_>) -> Result<HandedOver, Failure> {
    for confirm in KEPT {
        if let Some(handed) = hand_over(case, confirm).await? {
            return Ok(handed);
        }
    }
    Err(always_too_late())
}

/// The holder gives the key back.
async fn released(case: &Case<'_>, holder: &Attempt) -> Result<(), Failure> {
    ensure!(case.store.release(holder).await?.held, "the holder's release says that nothing was held");
    Ok(())
}

/// The key is free for anybody.
async fn free_for_all(case: &Case<'_>, name: &str) -> Result<(), Failure> {
    let anybody = case.attempt(name, LONG)?;
    free(&case.other.inspect(on(&anybody)).await?)?;
    granted(case.other.acquire(&anybody).await?)?;
    released(case, &anybody).await
}

/// The next news of a stream, which may fire without any.
async fn news(wakeups: &mut Wakeups) -> News {
    loop {
        wakeups.next().await;
        if let Some(news) = wakeups.kept() {
            return news;
        }
    }
}

/// A release hands the key over to one that was denied and can inherit: it is shown as the holder, for no longer than the key is
/// kept, and everybody else is denied by it.
pub(super) async fn a_release_hands_over(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let handed = handed_over(&case).await?;
    let (heir, name) = (&handed.heir, &handed.name);
    let shown = held_by(case.store.inspect(on(heir)).await?, heir.token())?;
    case.has_left(&shown, handed.confirm, handed.at)?;
    for attempt in [&handed.holder, &case.attempt(name, LONG)?, &waiting(&case, name, LONG, Duration::ZERO)?]
    {
        let denial = denied_by(case.store.acquire(attempt).await?, 0, heir.token())?;
        ensure!(denial.retry_after.is_some(), "the denial does not say when to ask again");
        case.store.release(attempt).await?;
    }
    held_by(case.other.inspect(on(heir)).await?, heir.token())?;
    case.store.release(heir).await?;
    Ok(())
}

/// The heir is told by its stream that the key is kept for it, and since when: since it asked last, by its own clock. Everybody
/// else who waits is woken too, and not told that it is kept for them.
pub(super) async fn an_heir_is_told(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    for (round, confirm) in KEPT.into_iter().enumerate() {
        let name = format!("lock {round}");
        let (holder, heir) = held_and_waited_for(&case, &name, confirm).await?;
        let stranger = waiting(&case, &name, LONG, confirm)?;
        // It listens where it asked.
        let mut heirs = case.subscribed(&case.other, on(&heir), None).await?;
        let mut strangers = case.subscribed(&case.other, on(&heir), None).await?;
        // Not at the moment at which it asked first.
        case.advance(case.pace.lag).await;
        let before = Instant::now();
        denied_by(case.other.acquire(&heir).await?, 0, holder.token())?;
        let after = Instant::now();
        // Nor at that of the release.
        case.advance(case.pace.lag).await;
        released(&case, &holder).await?;
        if case.too_late(before, confirm / 2) {
            case.store.release(&heir).await?;
            continue;
        }
        let told = case.awaited("the news that the key is kept for an heir", news(&mut heirs)).await?;
        let Some(since) = told.since_for(heir.token()) else {
            return Err(Failure::new("the news that the key is kept do not name the heir"));
        };
        let early = before.saturating_duration_since(since);
        ensure!(early <= GRAIN, "kept since {early:?} before the heir asked last");
        ensure!(since <= after, "kept since {:?} after the heir was denied", since.duration_since(after));
        case.awaited("the firing for others who wait", strangers.next()).await?;
        let mistaken = strangers.kept().is_some_and(|news| news.since_for(stranger.token()).is_some());
        ensure!(!mistaken, "one that did not inherit is told that the key is kept for it");
        case.store.release(&heir).await?;
        return Ok(());
    }
    Err(always_too_late())
}

/// If the heir does nothing, the key is kept for its time, which is not its TTL, and not for less; then others get it, and the
/// heir has lost it.
pub(super) async fn an_heir_that_does_nothing_loses_it(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    for confirm in case.ttls() {
        let Some(handed) = hand_over(&case, confirm).await? else { continue };
        let next = case.attempt(&handed.name, LONG)?;
        case.advance(confirm / 2).await;
        let early = case.store.acquire(&next).await?;
        if handed.is_over(&case) {
            case.store.release(&handed.heir).await?;
            case.store.release(&next).await?;
            continue;
        }
        denied_by(early, 0, handed.heir.token())?;
        case.outlive(confirm / 2).await;
        granted(case.store.acquire(&next).await?)?;
        lost(case.other.renew(&handed.heir).await?)?;
        held_by(case.other.inspect(on(&next)).await?, next.token())?;
        return released(&case, &next).await;
    }
    Err(always_too_late())
}

/// An heir that renews has its full TTL from then on.
pub(super) async fn a_renewal_confirms(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    for confirm in case.ttls() {
        let Some(handed) = hand_over(&case, confirm).await? else { continue };
        let heir = &handed.heir;
        let asked = Instant::now();
        let renewal = case.other.renew(heir).await?;
        if handed.is_over(&case) {
            case.store.release(heir).await?;
            continue;
        }
        extended(renewal)?;
        case.outlive(confirm).await;
        case.has_left(&held_by(case.store.inspect(on(heir)).await?, heir.token())?, LONG, asked)?;
        return released(&case, heir).await;
    }
    Err(always_too_late())
}

/// An heir that asks again is granted what it has, with its full TTL from then on.
pub(super) async fn asking_again_confirms(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    for confirm in case.ttls() {
        let Some(handed) = hand_over(&case, confirm).await? else { continue };
        let heir = &handed.heir;
        let asked = Instant::now();
        let answer = case.other.acquire(heir).await?;
        if handed.is_over(&case) {
            case.store.release(heir).await?;
            continue;
        }
        granted(answer)?;
        case.outlive(confirm).await;
        case.has_left(&held_by(case.store.inspect(on(heir)).await?, heir.token())?, LONG, asked)?;
        return released(&case, heir).await;
    }
    Err(always_too_late())
}

/// An heir that releases before it was handed anything held nothing, and inherits nothing: the key is free after the holder.
pub(super) async fn a_withdrawn_heir_inherits_nothing(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let [confirm, ..] = KEPT;
    let (holder, heir) = held_and_waited_for(&case, "lock", confirm).await?;
    ensure!(!case.other.release(&heir).await?.held, "an heir that was handed nothing says that it was held");
    held_by(case.other.inspect(on(&holder)).await?, holder.token())?;
    released(&case, &holder).await?;
    free_for_all(&case, "lock").await
}

/// An heir that was handed the key and releases gives it back, whether it has confirmed or not.
pub(super) async fn an_heir_gives_it_back(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    for confirmed in [false, true] {
        let handed = handed_over(&case).await?;
        if confirmed {
            extended(case.other.renew(&handed.heir).await?)?;
        }
        let release = case.other.release(&handed.heir).await?;
        ensure!(release.held, "the release of what was handed over says that nothing was held");
        free_for_all(&case, &handed.name).await?;
        lost(case.other.renew(&handed.heir).await?)?;
    }
    Ok(())
}

/// An attempt without a `confirm` time, whether it waits or not, is handed nothing: the key is free after the holder.
pub(super) async fn others_inherit_nothing(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let [confirm, ..] = KEPT;
    for (name, waits) in [("waited for", true), ("tried", false)] {
        let holder = waiting(&case, name, LONG, confirm)?;
        let other =
            if waits { waiting(&case, name, LONG, Duration::ZERO) } else { case.attempt(name, LONG) }?;
        granted(case.store.acquire(&holder).await?)?;
        denied_by(case.other.acquire(&other).await?, 0, holder.token())?;
        released(&case, &holder).await?;
        free_for_all(&case, name).await?;
        granted(case.other.acquire(&other).await?)?;
        released(&case, &other).await?;
    }
    Ok(())
}

/// A release by one that is not the holder hands nothing over: neither what another holds, nor what nobody holds any more.
pub(super) async fn a_stranger_hands_nothing_over(harness: &dyn Harness) -> Result<(), Failure> {
    let case = Case::new(harness).await?;
    let [confirm, ..] = KEPT;
    let (holder, heir) = held_and_waited_for(&case, "held", confirm).await?;
    let stranger = waiting(&case, "held", LONG, confirm)?;
    ensure!(!case.store.release(&stranger).await?.held, "a stranger's release says that it was held");
    held_by(case.other.inspect(on(&holder)).await?, holder.token())?;
    denied_by(case.other.acquire(&heir).await?, 0, holder.token())?;
    extended(case.store.renew(&holder).await?)?;
    for attempt in [&heir, &holder] {
        case.store.release(attempt).await?;
    }
    for ttl in case.ttls() {
        let name = format!("expired {ttl:?}");
        // So long that the heir may still be noted when the lease has ended.
        let (brief, heir) = (waiting(&case, &name, ttl, LONG)?, waiting(&case, &name, LONG, LONG)?);
        let sent = Instant::now();
        granted(case.store.acquire(&brief).await?)?;
        let answer = case.other.acquire(&heir).await?;
        if case.too_late(sent, ttl) {
            case.store.release(&heir).await?;
            continue;
        }
        denied_by(answer, 0, brief.token())?;
        case.outlive(ttl).await;
        ensure!(!case.store.release(&brief).await?.held, "the release of a lost lease says that it was held");
        return free_for_all(&case, &name).await;
    }
    Err(always_too_late())
}
