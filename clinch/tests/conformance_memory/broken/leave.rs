//! How broken stores renew, release and revoke.

use std::sync::atomic::Ordering;
use std::time::Duration;

use clinch::lease::{Attempt, ClaimKey, Mode, Patience, Token};
use clinch::store::{Cursor, Release, Renewal, Store, StoreError, Verdict};
use tokio::time::Instant;

use super::{AGES, Broken, lease_of, made};
use crate::faults::Fault;

impl Broken {
    pub(super) async fn renew(&self, lease: &Attempt) -> Result<Renewal, StoreError> {
        if lease.claims().iter().any(|claim| self.beside().forever.contains_key(claim.on())) {
            return Ok(Renewal::Lost);
        }
        let bent = self.bent_attempt(lease);
        let lease = bent.as_ref().unwrap_or(lease);
        let extended = Renewal::Extended { sent_at: Instant::now() };
        if self.mistakes_for_a_lease(Fault::RecordsRenewed, lease.claims()[0].on(), lease.token()) {
            return Ok(extended);
        }
        match self.fault {
            Fault::RenewUnchecked => {
                for claim in lease.claims() {
                    if let Some(holder) = self.holder(claim.on()).await {
                        self.inner.renew(&Attempt::one(holder.token().clone(), claim.clone())).await?;
                    }
                }
                Ok(extended)
            }
            Fault::RenewShortens => {
                if self.inner.renew(lease).await? == Renewal::Lost {
                    return Ok(Renewal::Lost);
                }
                self.inner.release(lease).await?;
                self.inner.acquire(lease).await?;
                Ok(extended)
            }
            Fault::RenewDoesNothing => {
                for claim in lease.claims() {
                    if !self.holds(claim.on(), lease.token()).await {
                        return Ok(Renewal::Lost);
                    }
                }
                Ok(extended)
            }
            Fault::RenewResurrects => match self.inner.acquire(lease).await? {
                Verdict::Granted(_) => self.inner.renew(lease).await,
                _ => Ok(Renewal::Lost),
            },
            Fault::RenewPartly => {
                let mut all = true;
                for claim in lease.claims() {
                    let one = Attempt::one(lease.token().clone(), claim.clone());
                    all &= self.inner.renew(&one).await? != Renewal::Lost;
                }
                Ok(if all { extended } else { Renewal::Lost })
            }
            Fault::RenewExtendsAll => {
                let renewal = self.inner.renew(lease).await?;
                for claim in lease.claims() {
                    for holder in self.holders(claim.on()).await {
                        self.inner.renew(&lease_of(&holder, claim.ttl())).await?;
                    }
                }
                Ok(renewal)
            }
            _ => self.inner.renew(lease).await,
        }
    }

    pub(super) async fn release(&self, lease: &Attempt) -> Result<Release, StoreError> {
        let said = |held| Ok(Release { held, conclusive: true, woken: None });
        let sent = lease.sent_at().is_some();
        let bent = self.bent_attempt(lease);
        let lease = bent.as_ref().unwrap_or(lease);
        let (claims, token) = (lease.claims(), lease.token());
        self.beside().queued.retain(|(other, ..)| other != token);
        if self.mistakes_for_a_lease(Fault::RecordsReleased, claims[0].on(), token) {
            self.forget_record(claims[0].on());
            return said(true);
        }
        if self.is(Fault::AcquireIgnoresWrongTypes) {
            self.beside().wrong.retain(|on| claims.iter().all(|claim| claim.on() != on));
        }
        match self.fault {
            Fault::ReleaseUnchecked => {
                self.clear(claims).await?;
                said(true)
            }
            Fault::ReleaseAlwaysSaysHeld => {
                self.inner.release(lease).await?;
                said(true)
            }
            Fault::ReleaseChecksThenActs => {
                for claim in claims {
                    if !self.holds(claim.on(), token).await {
                        return said(false);
                    }
                }
                // Not all at the same moment, so that somebody comes in between.
                let turn = self.asked.fetch_add(1, Ordering::Relaxed) % 4;
                tokio::time::sleep(Duration::from_millis(3) * turn).await;
                self.clear(claims).await?;
                said(true)
            }
            Fault::ReleaseOnlyBySender if !sent => said(false),
            Fault::ReleaseFirstClaimOnly => {
                self.inner.release(&Attempt::one(token.clone(), claims[0].clone())).await
            }
            Fault::ReleaseStopsAtTheFirstLoss => {
                for claim in claims {
                    if !self.inner.release(&Attempt::one(token.clone(), claim.clone())).await?.held {
                        return said(false);
                    }
                }
                said(true)
            }
            Fault::ReleaseKeepsWaiters => {
                let release = self.inner.release(lease).await?;
                let waiting = self.beside().waiting.pop();
                if let Some((token, claim)) = waiting {
                    let next = Attempt::one(token, claim);
                    if let Verdict::Denied(_) = self.inner.acquire(&next).await? {
                        self.beside().waiting.push((next.token().clone(), next.claims()[0].clone()));
                    }
                }
                Ok(release)
            }
            Fault::ReleaseToldAsRevocation => {
                let mut all = true;
                for claim in claims {
                    all &= self.inner.revoke(claim.on(), token).await?;
                }
                said(all)
            }
            Fault::ReleaseRefundsAlways => {
                let release = self.inner.release(lease).await?;
                for claim in claims.iter().filter(|claim| !release.held && claim.mode() != Mode::Exclusive) {
                    if let Some(holder) = self.holder(claim.on()).await {
                        self.inner.revoke(claim.on(), holder.token()).await?;
                    }
                }
                Ok(release)
            }
            Fault::ReleaseEmptiesTheKey => {
                let release = self.inner.release(lease).await?;
                if release.held {
                    self.clear(claims).await?;
                }
                Ok(release)
            }
            Fault::ReleaseIgnoresWaiters if !self.beside().granted.contains(token) => said(false),
            Fault::WritersWaitBeyondTheirGrant => {
                let release = self.inner.release(lease).await?;
                let waited_for = self.beside().waiting.iter().any(|(_, claim)| claim.on() == claims[0].on());
                if release.held && waited_for && claims[0].mode() == Mode::Exclusive {
                    self.remember_a_writer(claims[0].on()).await?;
                }
                Ok(release)
            }
            _ => self.inner.release(lease).await,
        }
    }

    /// Lets a writer wait for this key that nobody knows of.
    async fn remember_a_writer(&self, on: &ClaimKey) -> Result<(), StoreError> {
        let lease = |name, mode| Attempt::one(Token::from_text(name), made(on, mode, AGES, None));
        let patience =
            Patience::Wait { until: Instant::now() + AGES, again_within: AGES, confirm: Duration::ZERO };
        let reader = lease("reader", Mode::Shared);
        self.inner.acquire(&reader).await?;
        self.inner.acquire(&lease("writer", Mode::Exclusive).with_patience(patience)).await?;
        self.inner.release(&reader).await?;
        Ok(())
    }

    pub(super) async fn revoke(&self, on: &ClaimKey, token: &Token) -> Result<bool, StoreError> {
        let forever = self.beside().forever.get(on) == Some(token);
        if self.is(Fault::RevokeOwnOnly) && token.owner().is_none() {
            return Ok(false);
        }
        if self.mistakes_for_a_lease(Fault::RecordsRevoked, on, token) {
            self.forget_record(on);
            return Ok(true);
        }
        if forever {
            self.beside().forever.remove(on);
            return Ok(true);
        }
        match self.fault {
            Fault::RevokeUnchecked => match self.holder(on).await {
                Some(holder) => self.inner.revoke(on, holder.token()).await,
                None => Ok(false),
            },
            Fault::RevokeUntold => {
                let holders = self.holders(on).await;
                match holders.iter().find(|holder| holder.token() == token) {
                    Some(holder) => Ok(self.inner.release(&lease_of(holder, AGES)).await?.held),
                    None => Ok(false),
                }
            }
            Fault::RevokeEverywhere => {
                let held = self.inner.revoke(on, token).await?;
                for holder in self.inner.list(Cursor::START).await?.holders {
                    if holder.token() == token {
                        self.inner.revoke(holder.on(), token).await?;
                    }
                }
                Ok(held)
            }
            Fault::RevokeEmptiesTheKey => {
                let held = self.inner.revoke(on, token).await?;
                for holder in self.holders(on).await.iter().filter(|_| held) {
                    self.inner.revoke(on, holder.token()).await?;
                }
                Ok(held)
            }
            _ => self.inner.revoke(on, token).await,
        }
    }
}
