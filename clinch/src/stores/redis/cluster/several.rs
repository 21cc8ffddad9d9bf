//! Claims of one attempt in several slots: taken slot by slot in rising order, rolled back on the first refusal.
//!
//! Everybody takes them in the same order, so nobody waits for somebody who waits for him. Others may see a claim held for a
//! moment that is then given back. What a token held before, it keeps: only what this very step granted is rolled back.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::future::join_all;
use tokio::time::Instant;

use super::slots::slot;
use super::store::RedisClusterStore;
use super::{Connection, Trip};
use crate::lease::{Attempt, Claim, Holder};
use crate::store::{Denial, Effect, ErrorKind, Grant, Renewal, StoreError, Verdict};
use crate::stores::in_flight::Purpose;
use crate::stores::redis::claims::{self, Part};
use crate::stores::redis::confirm;
use crate::stores::redis::keys::Names;
use crate::stores::redis::released::{self, Released};

/// The places of claims in their attempt, by slot.
pub(super) type Groups = BTreeMap<u16, Vec<usize>>;

pub(super) fn groups<'a>(names: &Names, claims: impl Iterator<Item = &'a Claim>) -> Groups {
    let mut groups = Groups::new();
    for (place, claim) in claims.enumerate() {
        groups.entry(slot(&names.key(claim.on()))).or_default().push(place);
    }
    groups
}

impl RedisClusterStore {
    /// Grants all claims or none, in as many steps as there are slots.
    pub(super) async fn acquire_several(
        &self,
        attempt: &Attempt,
        groups: &Groups,
    ) -> Result<Verdict, StoreError> {
        let mut fences = vec![None; attempt.claims().len()];
        let mut taken = Vec::new();
        for (number, (slot, places)) in groups.iter().enumerate() {
            let call = claims::acquire_some(&self.names, attempt, places).confirmed_by(self.replicas);
            let answer = self.run(Purpose::Other, *slot, call, &mut Trip::acquiring(attempt)).await;
            let part = answer.and_then(|answer| {
                let (answer, too_few) = confirm::read(answer, self.replicas)?;
                Ok((claims::part(attempt, places, answer)?, too_few))
            });
            match part {
                Ok((Part::Granted { .. }, Some(too_few))) => {
                    taken.extend(places);
                    self.roll_back(attempt, &taken).await?;
                    return Err(too_few);
                }
                Ok((Part::Granted { fences: given, new }, None)) => {
                    places.iter().zip(given).for_each(|(place, fence)| fences[*place] = fence);
                    taken.extend(new);
                }
                Ok((Part::Denied(denial), _)) => {
                    let untried = groups.iter().skip(number + 1);
                    let (denial, rolled_back) = futures_util::future::join(
                        self.first_denial(attempt, untried, denial),
                        self.roll_back(attempt, &taken),
                    )
                    .await;
                    return rolled_back.map(|()| Verdict::Denied(denial));
                }
                Err(error) if error.effect() == Effect::NotApplied => {
                    self.roll_back(attempt, &taken).await?;
                    return Err(error);
                }
                // What was granted so far is the caller's to settle, with the rest.
                Err(error) => return Err(error),
            }
        }
        let fenced = attempt.claims().iter().any(|claim| claim.fence_floor().is_some());
        Ok(if fenced { Verdict::Granted(Grant { fences }) } else { Verdict::granted() })
    }

    /// Of all denials the one that stands first in the attempt: the slots that were not asked are looked at.
    async fn first_denial<'a>(
        &self,
        attempt: &Attempt,
        untried: impl Iterator<Item = (&'a u16, &'a Vec<usize>)>,
        denial: Denial,
    ) -> Denial {
        let earlier = untried.filter(|(_, places)| places.iter().any(|place| *place < denial.claim));
        let looks = earlier.map(|(slot, places)| async move {
            let call = claims::look_at_some(&self.names, attempt, places);
            let answer = self.run(Purpose::Other, *slot, call, &mut Trip::default()).await;
            // Who cannot be asked denies nothing.
            match answer.and_then(|answer| claims::part(attempt, places, answer)).ok()? {
                Part::Denied(denial) => Some(denial),
                Part::Granted { .. } => None,
            }
        });
        let others = join_all(looks).await.into_iter().flatten();
        others.chain([denial]).min_by_key(|denial| denial.claim).unwrap_or_default()
    }

    /// Gives back what this step took. If that fails, the outcome is unknown: something may be held.
    async fn roll_back(&self, attempt: &Attempt, taken: &[usize]) -> Result<(), StoreError> {
        let of = |place: &usize| attempt.claims().get(*place).map(|claim| slot(&self.names.key(claim.on())));
        let mut by_slot = Groups::new();
        for place in taken {
            by_slot.entry(of(place).unwrap_or_default()).or_default().push(*place);
        }
        attempt.route().taking_back();
        let releases = by_slot.iter().map(|(slot, places)| async move {
            let call = claims::release_some(&self.names, attempt, places);
            self.run(Purpose::Upkeep, *slot, call, &mut Trip::default()).await
        });
        match join_all(releases).await.into_iter().find_map(Result::err) {
            None => {
                attempt.route().took_back();
                Ok(())
            }
            Some(error) => {
                let message =
                    format!("what was taken of several keys could not be given back: {}", error.message());
                Err(StoreError::unknown(error.kind(), message))
            }
        }
    }

    /// Extends all claims, or none if one is lost: looks at all first.
    pub(super) async fn renew_several(
        &self,
        lease: &Attempt,
        groups: &Groups,
    ) -> Result<Renewal, StoreError> {
        let looks = groups.iter().map(|(slot, places)| async move {
            let on: Vec<_> = claims::some(lease, places).map(|claim| claim.on().clone()).collect();
            let call = claims::inspect(&self.names, &on, true);
            let found = self.run(Purpose::Upkeep, *slot, call, &mut Trip::default()).await?;
            let found: Vec<Vec<redis::Value>> =
                redis::from_redis_value(found).map_err(crate::stores::redis::error::nonsense)?;
            for (on, found) in on.iter().zip(found) {
                let holders = claims::holders(on, found)?;
                if !holders.iter().map(Holder::token).any(|token| token == lease.token()) {
                    return Ok(false);
                }
            }
            Ok(true)
        });
        for held in join_all(looks).await {
            if !held? {
                return Ok(Renewal::Lost);
            }
        }
        let sent_at = Instant::now();
        let renewals = groups.iter().map(|(slot, places)| async move {
            let call = claims::renew_some(&self.names, lease, places);
            let answer = self.run(Purpose::Upkeep, *slot, call, &mut Trip::default()).await?;
            first_of(answer).and_then(claims::extended)
        });
        for extended in join_all(renewals).await {
            if !extended? {
                return Ok(Renewal::Lost);
            }
        }
        Ok(Renewal::Extended { sent_at })
    }

    /// Gives all claims back, slot by slot and all at the same time.
    pub(super) async fn release_several(
        &self,
        lease: &Attempt,
        groups: &Groups,
        over: &[Arc<Connection>],
    ) -> (Result<Released, StoreError>, Vec<Arc<Connection>>) {
        let releases = groups.iter().map(|(slot, places)| async move {
            let mut trip = Trip::over(over);
            let call = claims::release_some(&self.names, lease, places);
            let answer = self.run(Purpose::Upkeep, *slot, call, &mut trip).await;
            let claims = claims::some(lease, places);
            (answer.and_then(|answer| released::released_some(&self.names, claims, answer)), trip.answered)
        });
        let mut all = Ok(Released { held: true, heirs: 0, told: Vec::new() });
        let mut answered = Vec::new();
        for (released, over) in join_all(releases).await {
            answered.extend(over);
            all = match (all, released) {
                (Ok(all), Ok(one)) => {
                    let told = all.told.into_iter().chain(one.told).collect();
                    Ok(Released { held: all.held && one.held, heirs: 0, told })
                }
                (Err(error), _) | (_, Err(error)) => Err(error),
            };
        }
        (all, answered)
    }
}

/// The one answer in a list of answers.
pub(super) fn first_of(answer: redis::Value) -> Result<redis::Value, StoreError> {
    match answer {
        redis::Value::Array(answers) if answers.len() == 1 => {
            Ok(answers.into_iter().next().unwrap_or(redis::Value::Nil))
        }
        _ => Err(StoreError::unknown(ErrorKind::Protocol, "Redis did not answer for the lease")),
    }
}
