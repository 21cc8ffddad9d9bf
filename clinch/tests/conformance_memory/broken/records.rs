//! How broken stores finish leases, and what they make of the records.
//!
//! All of them, the one without a fault too, keep records beside the memory engine, which would not let go of one.

use std::time::Duration;

use clinch::lease::{Attempt, ClaimKey, Holder, Mode, Record, Space, Token};
use clinch::store::{Denial, ErrorKind, Release, Store, StoreError, Verdict};
use tokio::time::Instant;

use super::Broken;
use crate::faults::Fault;

/// What is left of a lease.
#[derive(Debug, Clone)]
pub(super) struct Finished {
    token: Token,
    record: Record,
    until: Instant,
}

const fn said(held: bool) -> Release {
    Release { held, conclusive: true, woken: None }
}

impl Broken {
    /// Where this store keeps what is left on a key.
    fn record_key(&self, on: &ClaimKey) -> ClaimKey {
        let space = if self.is(Fault::RecordsOfAllSpaces) { Space::Lock } else { on.space };
        ClaimKey { space, key: on.key.clone() }
    }

    /// What is left on a key.
    fn finished(&self, on: &ClaimKey) -> Option<Finished> {
        let finished = self.beside().records.get(&self.record_key(on)).cloned();
        finished.filter(|finished| finished.until > Instant::now())
    }

    /// What is left there by this token.
    fn finished_by(&self, on: &ClaimKey, token: &Token) -> Option<Finished> {
        self.finished(on).filter(|finished| finished.token == *token)
    }

    pub(super) async fn complete(
        &self,
        lease: &Attempt,
        record: &Record,
        ttl: Option<Duration>,
    ) -> Result<Release, StoreError> {
        let refused = |kind| Err(StoreError::not_applied(kind, "broken on purpose"));
        let bent = self.bent_attempt(lease);
        let lease = bent.as_ref().unwrap_or(lease);
        let (claim, token) = (&lease.claims()[0], lease.token());
        let on = claim.on();
        let keeps = lease.claims().len() == 1 && on.space.keeps_records();
        let claimed = self.capabilities().records || self.is(Fault::CompleteUnclaimed);
        if !claimed || !(keeps || self.is(Fault::CompleteTakesAnything)) {
            return refused(ErrorKind::Unsupported);
        }
        let was_wrong = self.beside().wrong.contains(on);
        if was_wrong && !self.is(Fault::CompleteIgnoresWrongTypes) {
            return refused(ErrorKind::WrongType);
        }
        self.beside().wrong.remove(on);
        let before = if self.is(Fault::RecordsRemembered) {
            self.beside().records.get(&self.record_key(on)).cloned()
        } else {
            self.finished(on)
        };
        match &before {
            Some(before) if before.token != *token && !self.is(Fault::CompleteUnchecked) => {
                return Ok(said(false));
            }
            Some(before) if before.token == *token && !self.is(Fault::CompleteRepeatsReplace) => {
                return Ok(said(!self.is(Fault::CompleteRepeatsFail)));
            }
            _ => {}
        }
        let holder = self.holder(on).await;
        let mine = holder.as_ref().filter(|holder| holder.token() == token);
        let takes = match self.fault {
            Fault::CompleteUnchecked => true,
            Fault::CompleteResurrects => mine.is_some() || holder.is_none(),
            _ => mine.is_some() || was_wrong || before.is_some(),
        };
        if !takes {
            return Ok(said(false));
        }
        let left = mine.and_then(Holder::remaining).unwrap_or(claim.ttl());
        let kept_for = match self.fault {
            Fault::RecordsEndWithTheLease => left,
            Fault::RecordsHaveTheFullTtl => ttl.unwrap_or(claim.ttl()),
            _ => ttl.unwrap_or(left),
        };
        let until = Instant::now() + kept_for;
        let finished = Finished { token: token.clone(), record: self.bent_record(record), until };
        self.beside().records.insert(self.record_key(on), finished);
        match mine {
            Some(_) => drop(self.inner.release(lease).await?),
            None => self.clear(lease.claims()).await?,
        }
        Ok(said(true))
    }

    /// What this store makes of a record.
    fn bent_record(&self, record: &Record) -> Record {
        let bytes = record.as_bytes();
        match self.fault {
            Fault::RecordsAsText => Record::new(String::from_utf8_lossy(bytes).into_owned()),
            Fault::RecordsCutShort => Record::new(bytes[..bytes.len().min(1 << 16)].to_vec()),
            _ => record.clone(),
        }
    }

    /// The verdict on an attempt that finds a record in its way.
    pub(super) fn denied_by_record(&self, attempt: &Attempt) -> Option<Verdict> {
        let looked_at = if self.is(Fault::RecordsOfTheFirstClaimOnly) { 1 } else { usize::MAX };
        let mut claims = attempt.claims().iter().enumerate().take(looked_at);
        let (claim, finished) = claims.find_map(|(i, claim)| Some((i, self.finished(claim.on())?)))?;
        let on = attempt.claims()[claim].on();
        let left = finished.until.saturating_duration_since(Instant::now());
        let retry_after = Some(left.max(Duration::from_millis(1)));
        let holder = || Holder::new(on.clone(), Mode::Exclusive, finished.token.clone(), retry_after);
        attempt.sending();
        let mut denial =
            Denial { claim, retry_after, done: Some(finished.record.clone()), ..Denial::default() };
        match self.fault {
            Fault::RecordsWithoutContent => denial.done = Some(Record::default()),
            Fault::RecordsNameTheirMaker => denial.holder = Some(holder()),
            Fault::RecordsSaySoon => denial.retry_after = Some(Duration::from_millis(1)),
            Fault::RecordsNeverEmpty if finished.record.as_bytes().is_empty() => denial.done = None,
            Fault::RecordsGrantedToTheirMaker if finished.token == *attempt.token() => {
                return Some(Verdict::granted());
            }
            Fault::RecordsExtendedByDenials => {
                let until = Instant::now() + Duration::from_secs(10);
                self.beside().records.insert(self.record_key(on), Finished { until, ..finished });
            }
            _ => {}
        }
        Some(Verdict::Denied(denial))
    }

    /// Whether this store takes what a token has left behind for a lease of it, for a step that has this fault.
    pub(super) fn mistakes_for_a_lease(&self, fault: Fault, on: &ClaimKey, token: &Token) -> bool {
        self.is(fault) && self.finished_by(on, token).is_some()
    }

    pub(super) fn forget_record(&self, on: &ClaimKey) {
        let key = self.record_key(on);
        self.beside().records.remove(&key);
    }

    /// Those who left records behind, on one key or on all, as if they held something.
    pub(super) fn makers(&self, on: Option<&ClaimKey>) -> Vec<Holder> {
        if !self.is(Fault::RecordsShown) {
            return Vec::new();
        }
        let beside = self.beside();
        let meant = beside.records.iter().filter(|(key, _)| on.is_none_or(|on| on == *key));
        meant
            .map(|(key, finished)| Holder::new(key.clone(), Mode::Exclusive, finished.token.clone(), None))
            .collect()
    }
}
