//! How broken stores hand keys over to those who wait.
//!
//! All of them, the one without a fault too, note their heirs beside the memory engine, which knows of none.

use std::sync::Arc;
use std::time::Duration;

use clinch::lease::{Attempt, Claim, ClaimKey, Mode, Patience, Space, Token};
use clinch::store::{Denial, Kept, Release, Renewal, Store, StoreError, Verdict, Wakeups};
use tokio::time::Instant;

use super::{Broken, made};
use crate::faults::Fault;

/// Who comes next.
#[derive(Debug, Clone)]
pub(super) struct Heir {
    token: Token,
    claim: Claim,
    /// How long the key is kept for it.
    confirm: Duration,
    asked_first: Instant,
    asked_last: Instant,
}

impl Heir {
    /// Whether it asked so shortly before that it will still be there.
    fn counts(&self) -> bool {
        self.asked_last.elapsed() < self.confirm / 2
    }
}

impl Broken {
    /// How long a key is kept for this attempt, if it is one that this store would hand a key over to.
    fn inherits(&self, attempt: &Attempt) -> Option<Duration> {
        let [claim] = attempt.claims() else { return None };
        let on_lock = claim.mode() == Mode::Exclusive && claim.on().space == Space::Lock;
        if self.is_modest() || !on_lock || claim.fence_floor().is_some() {
            return None;
        }
        match attempt.patience() {
            Patience::Wait { confirm: Duration::ZERO, .. } if self.is(Fault::WaitersInheritUnasked) => {
                Some(Duration::from_secs(10))
            }
            patience => patience.inherits().map(|confirm| confirm.min(claim.ttl())),
        }
    }

    pub(super) async fn acquire_or_wait(&self, attempt: &Attempt) -> Result<Verdict, StoreError> {
        let asked = Instant::now();
        let verdict = self.acquire(attempt).await?;
        match &verdict {
            Verdict::Granted(_) => self.takes(attempt).await?,
            Verdict::Denied(denial) => self.note(attempt, denial, asked),
            _ => {}
        }
        Ok(verdict)
    }

    /// One that asks again for what was handed over to it has its full TTL.
    async fn takes(&self, attempt: &Attempt) -> Result<(), StoreError> {
        self.beside().heirs.retain(|_, heir| heir.token != *attempt.token());
        let was_handed = self.beside().handed.remove(attempt.token());
        if was_handed && !self.is(Fault::WaitersAskInVain) {
            self.inner.renew(attempt).await?;
        }
        Ok(())
    }

    /// One that was denied comes next, if nobody else does.
    fn note(&self, attempt: &Attempt, denial: &Denial, asked: Instant) {
        let (on, token) = (attempt.claims()[0].on(), attempt.token());
        let mut beside = self.beside();
        let Some(confirm) = self.inherits(attempt) else {
            if matches!(attempt.patience(), Patience::Wait { .. }) {
                // It comes to its chance too.
                beside.heirs.remove(on);
            }
            return;
        };
        let is_exclusive = denial.holder.as_ref().is_some_and(|holder| holder.mode() == Mode::Exclusive);
        let noted = beside.heirs.get(on).filter(|heir| heir.counts());
        if !is_exclusive || noted.is_some_and(|heir| heir.token != *token) {
            return;
        }
        let asked_first = noted.map_or(asked, |heir| heir.asked_first);
        let (token, claim) = (token.clone(), attempt.claims()[0].clone());
        let heir = Heir { token, claim, confirm, asked_first, asked_last: asked };
        beside.heirs.insert(on.clone(), heir);
    }

    pub(super) async fn renew_or_confirm(&self, lease: &Attempt) -> Result<Renewal, StoreError> {
        if self.is(Fault::WaitersRenewInVain) && self.beside().handed.contains(lease.token()) {
            return Ok(Renewal::Extended { sent_at: Instant::now() });
        }
        let renewal = self.renew(lease).await?;
        self.beside().handed.remove(lease.token());
        Ok(renewal)
    }

    pub(super) async fn release_or_hand_over(&self, lease: &Attempt) -> Result<Release, StoreError> {
        if !self.is(Fault::WaitersInheritWithdrawn) {
            self.beside().heirs.retain(|_, heir| heir.token != *lease.token());
        }
        let mut release = self.release(lease).await?;
        let was_handed = self.beside().handed.remove(lease.token());
        let bequeaths = self.inherits(lease).is_some();
        match self.fault {
            Fault::WaitersInheritFromAnybody if bequeaths => {
                self.clear(lease.claims()).await?;
                self.hand_over(lease).await?;
            }
            // Where another holds it, this changes nothing.
            Fault::WaitersInheritFromNobody if bequeaths => self.hand_over(lease).await?,
            _ if bequeaths && release.held => self.hand_over(lease).await?,
            _ => {}
        }
        if was_handed && self.is(Fault::WaitersHoldNothing) {
            release.held = false;
        }
        Ok(release)
    }

    /// What was just given back goes to the one that comes next. Those who wait were woken by the release, and look only after
    /// this: it does not wait for anything.
    async fn hand_over(&self, lease: &Attempt) -> Result<(), StoreError> {
        let on = lease.claims()[0].on();
        let noted = self.beside().heirs.remove(on);
        let noted = noted.filter(|heir| heir.counts() && heir.token != *lease.token());
        let Some(heir) = noted.filter(|_| !self.is(Fault::WaitersInheritNothing)) else { return Ok(()) };
        let ttl = match self.fault {
            Fault::WaitersInheritForGood => heir.claim.ttl(),
            Fault::WaitersInheritBriefly => heir.confirm / 4,
            _ => heir.confirm,
        };
        let kept = Attempt::one(heir.token.clone(), made(on, Mode::Exclusive, ttl, None));
        if let Verdict::Granted(_) = self.inner.acquire(&kept).await? {
            self.beside().handed.insert(heir.token.clone());
            self.tell_of(&heir);
        }
        Ok(())
    }

    /// Tells all who wait for whom the key is kept, and since when.
    fn tell_of(&self, heir: &Heir) {
        let since = match self.fault {
            Fault::WaitersInheritUntold => return,
            Fault::WaitersInheritLately => Instant::now(),
            Fault::WaitersInheritLongAgo => heir.asked_first,
            _ => heir.asked_last,
        };
        let beginning = heir.token.as_str().as_bytes()[..16].try_into().unwrap();
        let beside = self.beside();
        for (_, kept) in beside.kept.iter().filter(|(on, _)| on == heir.claim.on()) {
            match self.fault {
                Fault::WaitersInheritTogether => kept.since(since),
                _ => kept.since_for(beginning, since),
            }
        }
    }

    /// The same stream, which is told of heirs too.
    pub(super) fn told_of_heirs(&self, on: &ClaimKey, wakeups: Wakeups) -> Wakeups {
        let kept = Arc::<Kept>::default();
        self.beside().kept.push((on.clone(), kept.clone()));
        wakeups.with_kept(kept)
    }
}
