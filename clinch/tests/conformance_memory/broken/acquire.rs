//! How broken stores grant.

use std::future::pending;
use std::num::NonZeroU32;
use std::sync::atomic::Ordering;
use std::time::Duration;

use clinch::key::Key;
use clinch::lease::{Attempt, Claim, Fence, Holder, Mode, Patience, Space, Token};
use clinch::store::{Denial, ErrorKind, Grant, Store, StoreError, Verdict};
use tokio::time::Instant;

use super::{AGES, Broken, lease_of, made};
use crate::faults::Fault;

impl Broken {
    /// The claim as this store would really take it.
    fn bent(&self, of: &Attempt, i: usize) -> Claim {
        let asked = &of.claims()[i];
        let (mut on, mut mode, mut floor) = (asked.on().clone(), asked.mode(), asked.fence_floor());
        let mut ttl = asked.ttl();
        match self.fault {
            Fault::AcquireFolds => on.key = Key::new(on.key.as_str().to_lowercase()).unwrap(),
            Fault::AcquireMixesSpaces => {
                on.space = Space::Lock;
                mode = if mode == Mode::Shared { mode } else { Mode::Exclusive };
            }
            Fault::AcquireIgnoresModes => (mode, floor) = (Mode::Exclusive, None),
            Fault::ExpiresNever => ttl *= 1_000,
            Fault::ExpiresEarly => ttl /= 2,
            Fault::AcquireUsesTheFirstTtl => ttl = of.claims()[0].ttl(),
            Fault::FencesIgnoreFloors => floor = floor.map(|_| Fence::new(0)),
            Fault::FencesStripped if mode != Mode::Exclusive => floor = None,
            Fault::ReadersExclude if mode == Mode::Shared => mode = Mode::Exclusive,
            Fault::ReadersApart if mode == Mode::Shared => {
                on.key = Key::new(format!("{} of readers", on.key)).unwrap();
            }
            Fault::PermitsWithoutEnd => mode = unlimited(mode),
            Fault::PermitsByTheFirstLimit if unlimited(mode) != mode => {
                mode = *self.beside().limits.entry(on.clone()).or_insert(mode);
            }
            _ => {}
        }
        made(&on, mode, ttl, floor)
    }

    /// How patient this store takes the attempt to be.
    fn bent_patience(&self, attempt: &Attempt) -> Patience {
        let far = Instant::now() + AGES;
        let claim = &attempt.claims()[0];
        let on_lock = claim.mode() == Mode::Exclusive && claim.on().space == Space::Lock;
        let patience = attempt.patience();
        match (self.fault, patience) {
            (Fault::AcquireIgnoresModes | Fault::QueuesIgnored, Patience::Queue { .. })
            | (Fault::WritersWaitUnnoticed, Patience::Wait { .. } | Patience::Queue { .. }) => Patience::Try,
            (Fault::WritersWaitForEver, Patience::Wait { .. })
            | (Fault::WritersWaitWhenTheyTry, Patience::Wait { .. } | Patience::Try) => {
                Patience::Wait { until: far, again_within: AGES, confirm: Duration::ZERO }
            }
            (Fault::QueuesWithoutEnd, Patience::Queue { confirm, .. }) => {
                Patience::Queue { until: far, confirm }
            }
            (Fault::QueuesForAll, Patience::Try) if attempt.claims().len() == 1 && on_lock => {
                Patience::Queue { until: Instant::now(), confirm: Duration::from_secs(10) }
            }
            (Fault::TriesOvertake, Patience::Queue { .. }) if patience.left().is_zero() => Patience::Try,
            (Fault::TriesEnterTheQueue, Patience::Queue { confirm, .. }) if patience.left().is_zero() => {
                Patience::Queue { until: far, confirm }
            }
            (Fault::HeirsHaveAllTheTime, Patience::Queue { until, .. }) => {
                Patience::Queue { until, confirm: claim.ttl() }
            }
            (Fault::HeirsSkippedEarly, Patience::Queue { until, confirm }) => {
                Patience::Queue { until, confirm: confirm / 4 }
            }
            _ => patience,
        }
    }

    /// The attempt as this store would really send it; `None` if that is the attempt itself.
    pub(super) fn bent_attempt(&self, attempt: &Attempt) -> Option<Attempt> {
        let claims: Vec<_> = (0..attempt.claims().len()).map(|i| self.bent(attempt, i)).collect();
        let patience = self.bent_patience(attempt);
        let same = claims == attempt.claims() && patience == attempt.patience();
        if same && !self.is(Fault::AcquireForgetsToNoteTheSending) {
            return None;
        }
        if !self.is(Fault::AcquireForgetsToNoteTheSending) {
            attempt.sending();
        }
        // Two claims that fall together are left as they are.
        let same = || Attempt::new(attempt.token().clone(), attempt.claims().to_vec());
        let bent = Attempt::new(attempt.token().clone(), claims).or_else(|_| same()).unwrap();
        Some(bent.with_patience(patience))
    }

    pub(super) async fn acquire(&self, attempt: &Attempt) -> Result<Verdict, StoreError> {
        let several = attempt.claims().len() > 1;
        let unsupported = StoreError::not_applied(ErrorKind::Unsupported, "broken on purpose");
        let plain = |claim: &Claim| claim.mode() == Mode::Exclusive && claim.fence_floor().is_none();
        match self.fault {
            Fault::Stuck => pending().await,
            Fault::AcquireDeniesForever => return Ok(Verdict::Denied(Denial::default())),
            Fault::AcquireTakesFewClaims if attempt.claims().len() > 10 => return Err(unsupported),
            Fault::Modest if !attempt.claims().iter().all(plain) => return Err(unsupported),
            _ => {}
        }
        if !self.capabilities().several && several && !self.is(Fault::AcquireIgnoresSeveral) {
            return Err(unsupported);
        }
        let bent = self.bent_attempt(attempt);
        let attempt = bent.as_ref().unwrap_or(attempt);
        let claims = attempt.claims();

        let is_wrong = |claim: &Claim| self.beside().wrong.contains(claim.on());
        if claims.iter().any(is_wrong) && !self.is(Fault::AcquireIgnoresWrongTypes) {
            if self.is(Fault::AcquireReportsWrongTypesAfterWriting) {
                for claim in claims.iter().take_while(|claim| !is_wrong(claim)) {
                    self.inner.acquire(&Attempt::one(attempt.token().clone(), claim.clone())).await?;
                }
            }
            return Err(StoreError::not_applied(ErrorKind::WrongType, "no lease"));
        }
        for (i, claim) in claims.iter().enumerate() {
            if let Some(token) = self.beside().forever.get(claim.on()) {
                let holder = Some(Holder::new(claim.on().clone(), Mode::Exclusive, token.clone(), None));
                return Ok(Verdict::Denied(Denial { claim: i, holder, retry_after: None, done: None }));
            }
        }

        if let Some(verdict) = self.denied_by_record(attempt) {
            return Ok(verdict);
        }
        let verdict = self.decide(attempt).await?;
        self.remember(attempt, &verdict).await?;
        Ok(self.tell(attempt, verdict).await)
    }

    async fn remember(&self, attempt: &Attempt, verdict: &Verdict) -> Result<(), StoreError> {
        let (claims, token) = (attempt.claims(), attempt.token());
        if matches!(verdict, Verdict::Granted(_)) {
            let mut beside = self.beside();
            beside.granted.insert(token.clone());
            beside.past.extend(claims.iter().map(|claim| (claim.on().clone(), token.clone())));
            beside.queued.retain(|(other, ..)| other != token);
            return Ok(());
        }
        for claim in claims.iter().filter(|claim| claim.fence_floor().is_some()) {
            *self.beside().denied.entry(claim.on().clone()).or_default() += 1;
        }
        match attempt.patience() {
            Patience::Wait { .. } => self.beside().waiting.push((token.clone(), claims[0].clone())),
            patience @ Patience::Queue { .. } if !patience.left().is_zero() => {
                let queued = {
                    let mut beside = self.beside();
                    beside.queued.retain(|(other, ..)| other != token);
                    beside.queued.insert(0, (token.clone(), claims[0].clone(), patience));
                    beside.queued.clone()
                };
                if self.is(Fault::QueuesLastFirst) {
                    self.queue_anew(&queued).await?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Takes everybody out of the queue and lets them in again in this order.
    async fn queue_anew(&self, queued: &[(Token, Claim, Patience)]) -> Result<(), StoreError> {
        let attempts = queued.iter().map(|(token, claim, patience)| {
            Attempt::one(token.clone(), claim.clone()).with_patience(*patience)
        });
        let attempts: Vec<_> = attempts.collect();
        for attempt in &attempts {
            self.inner.release(attempt).await?;
        }
        for attempt in &attempts {
            self.inner.acquire(attempt).await?;
        }
        Ok(())
    }

    /// Grants or denies, in this store's own way.
    async fn decide(&self, attempt: &Attempt) -> Result<Verdict, StoreError> {
        let (claims, token) = (attempt.claims(), attempt.token());
        let claim = &claims[0];
        let queues = matches!(attempt.patience(), Patience::Queue { .. });
        let plain = |claims: Vec<Claim>| Attempt::new(token.clone(), claims).unwrap();
        match self.fault {
            Fault::AcquireRefusesRepeats => {
                let holders = self.holders(claim.on()).await;
                if let Some(holder) = holders.into_iter().find(|holder| holder.token() == token) {
                    return Ok(denied_by(holder));
                }
            }
            Fault::AcquireRepeatsExtend => drop(self.inner.renew(attempt).await?),
            Fault::AcquireOverwrites => self.clear(claims).await?,
            Fault::AcquireChecksThenActs => return self.check_then_act(attempt).await,
            Fault::AcquireGrantsPartly => {
                attempt.sending();
                for (i, claim) in claims.iter().enumerate() {
                    let one = Attempt::one(token.clone(), claim.clone());
                    if let Verdict::Denied(denial) = self.inner.acquire(&one).await? {
                        return Ok(Verdict::Denied(Denial { claim: i, ..denial }));
                    }
                }
            }
            Fault::AcquireArrivesLate => {
                let (store, late) = (self.inner.clone(), plain(claims.to_vec()));
                attempt.sending();
                let arriving = tokio::spawn(async move {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                    store.acquire(&late).await
                });
                return arriving.await.unwrap();
            }
            Fault::PermitsCountRepeats if self.holds(claim.on(), token).await => {
                let again = Token::from_text(format!("{}again", token.as_str()));
                self.inner.acquire(&Attempt::one(again, claim.clone())).await?;
            }
            Fault::CrowdsEndWithTheNewest | Fault::CrowdsEndWithTheOldest
                if claim.mode() != Mode::Exclusive =>
            {
                return self.end_together(attempt).await;
            }
            Fault::WritersSendReadersAway if claim.mode() == Mode::Shared => {
                let waited_for = self.beside().waiting.iter().any(|(_, other)| other.on() == claim.on());
                if let Some(holder) = self.holder(claim.on()).await.filter(|_| waited_for) {
                    return Ok(denied_by(holder));
                }
            }
            // The queue does not know it, so its place there is the last.
            Fault::QueuesForgetPlaces if queues && !self.holds(claim.on(), token).await => {
                self.inner.release(attempt).await?;
            }
            Fault::FindersKeep if queues && self.holder(claim.on()).await.is_none() => {
                return self.inner.acquire(&plain(claims.to_vec())).await;
            }
            Fault::HeirsKeptShort if queues && self.holds(claim.on(), token).await => {
                return Ok(Verdict::granted());
            }
            _ => {}
        }
        let verdict = self.inner.acquire(attempt).await?;
        if self.is(Fault::AcquireRollsBackTooMuch) && matches!(verdict, Verdict::Denied(_)) {
            self.inner.release(attempt).await?;
        }
        Ok(verdict)
    }

    /// Looks first, and writes later without a second look.
    async fn check_then_act(&self, attempt: &Attempt) -> Result<Verdict, StoreError> {
        let (claims, token) = (attempt.claims(), attempt.token());
        for claim in claims {
            let holders = self.holders(claim.on()).await;
            let free = match claim.mode() {
                Mode::Permit { of } => holders.len() < usize::try_from(of.get()).unwrap(),
                Mode::Shared => holders.iter().all(|holder| holder.mode() == Mode::Shared),
                _ => holders.is_empty(),
            };
            if !free {
                return self.inner.acquire(attempt).await;
            }
        }
        tokio::task::yield_now().await;
        attempt.sending();
        for claim in claims {
            for holder in self.holders(claim.on()).await {
                let crowd = claim.mode() != Mode::Exclusive && holder.mode() != Mode::Exclusive;
                if !crowd {
                    self.inner.revoke(claim.on(), holder.token()).await?;
                }
            }
        }
        let blind = claims.iter().map(|c| made(c.on(), unlimited(c.mode()), c.ttl(), c.fence_floor()));
        self.inner.acquire(&Attempt::new(token.clone(), blind.collect()).unwrap()).await
    }

    /// Gives all who share a key one end: the newest one's, or the oldest one's.
    async fn end_together(&self, attempt: &Attempt) -> Result<Verdict, StoreError> {
        let claim = &attempt.claims()[0];
        let others = self.holders(claim.on()).await;
        if self.is(Fault::CrowdsEndWithTheOldest) {
            attempt.sending();
            let oldest = others.iter().filter_map(Holder::remaining).min().unwrap_or(claim.ttl());
            let shorter = made(claim.on(), claim.mode(), claim.ttl().min(oldest), None);
            return self.inner.acquire(&Attempt::one(attempt.token().clone(), shorter)).await;
        }
        let verdict = self.inner.acquire(attempt).await?;
        for other in others.iter().filter(|_| matches!(verdict, Verdict::Granted(_))) {
            self.inner.renew(&lease_of(other, claim.ttl())).await?;
        }
        Ok(verdict)
    }

    /// Says it, in this store's own way.
    async fn tell(&self, attempt: &Attempt, verdict: Verdict) -> Verdict {
        let mut denial = match verdict {
            Verdict::Denied(denial) => denial,
            Verdict::Granted(grant) => return Verdict::Granted(self.fenced(grant)),
            other => return other,
        };
        match self.fault {
            Fault::DenialIsAnonymous => denial = Denial { claim: denial.claim, ..Denial::default() },
            Fault::DenialSaysNow => {
                let soon = denial.retry_after.is_none_or(|after| after < Duration::from_millis(2));
                denial.retry_after = if soon { Some(Duration::ZERO) } else { denial.retry_after };
            }
            Fault::QueuesSaySoon if matches!(attempt.patience(), Patience::Queue { .. }) => {
                denial.retry_after = Some(Duration::from_millis(1));
            }
            Fault::DenialExtends => {
                let longer = denial.holder.as_ref().map(|by| lease_of(by, Duration::from_secs(30)));
                if let Some(longer) = longer {
                    self.inner.renew(&longer).await.unwrap();
                }
            }
            Fault::DenialNamesTheLongest => {
                let holders = self.holders(attempt.claims()[denial.claim].on()).await;
                denial.holder = holders.into_iter().max_by_key(Holder::remaining);
            }
            Fault::DenialNamesTheLast => {
                for (i, claim) in attempt.claims().iter().enumerate() {
                    if let Some(holder) = self.holder(claim.on()).await {
                        denial = Denial {
                            claim: i,
                            retry_after: holder.remaining(),
                            holder: Some(holder),
                            done: None,
                        };
                    }
                }
            }
            Fault::InspectGuessesOwners | Fault::InspectHidesOwners => {
                denial.holder = denial.holder.map(|holder| self.shown(&holder));
            }
            _ => {}
        }
        Verdict::Denied(denial)
    }

    /// The fences, in this store's own way.
    fn fenced(&self, mut grant: Grant) -> Grant {
        let all = self.is(Fault::FencesForAll);
        for fence in grant.fences.iter_mut().filter(|fence| fence.is_some() || all) {
            let given = fence.map_or(Fence::STEP, Fence::get);
            let asked = u64::from(self.asked.fetch_add(1, Ordering::Relaxed));
            *fence = Some(Fence::new(match self.fault {
                Fault::FencesStandStill => 7 * Fence::STEP,
                Fault::FencesByAttempt => given + asked * Fence::STEP,
                Fault::FencesOutOfStep => given + 1,
                _ => given,
            }));
        }
        grant
    }
}

fn unlimited(mode: Mode) -> Mode {
    if let Mode::Permit { .. } = mode { Mode::Permit { of: NonZeroU32::MAX } } else { mode }
}

fn denied_by(holder: Holder) -> Verdict {
    Verdict::Denied(Denial { claim: 0, retry_after: holder.remaining(), holder: Some(holder), done: None })
}
