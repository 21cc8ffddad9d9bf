//! The engine: its memory, its clock, and the rules by which a step changes the memory.
//!
//! The rules are a trait so that an engine can be broken on purpose. What a step did is not taken from its answer but
//! seen in the [`Table`], so that a broken engine cannot lie to the history.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use clinch::lease::{ClaimKey, Token};

/// An instant by the engine's own clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct EngineTime {
    micros: i128,
}

const MILLION: i128 = 1_000_000;

impl EngineTime {
    pub(super) fn of(elapsed: Duration, drift_ppm: i64) -> Self {
        let micros = i128::try_from(elapsed.as_micros()).unwrap_or(i128::MAX / MILLION / 2);
        Self { micros: micros * (MILLION + i128::from(drift_ppm)) / MILLION }
    }

    /// The same instant by everybody else's clock.
    pub(super) fn elapsed(self, drift_ppm: i64) -> Duration {
        let micros = self.micros * MILLION / (MILLION + i128::from(drift_ppm));
        Duration::from_micros(micros.try_into().unwrap_or_default())
    }

    /// So much later, in whole milliseconds, as engines count.
    #[must_use]
    pub fn after(self, ttl: Duration) -> Self {
        let millis = i128::try_from(ttl.as_millis()).unwrap_or(i128::from(u64::MAX));
        Self { micros: self.micros + millis * 1000 }
    }

    /// How much later this is; zero if it is not.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_micros((self.micros - earlier.micros).try_into().unwrap_or_default())
    }
}

/// A place that is taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// By whom.
    pub token: Token,
    /// Until when.
    pub expires: EngineTime,
}

/// The engine's memory: one place per key. What has expired may still lie here; nobody may see it.
#[derive(Debug, Default)]
pub struct Table(BTreeMap<ClaimKey, Place>);

impl Table {
    /// What lies on the key, expired or not.
    pub fn get(&self, on: &ClaimKey) -> Option<&Place> {
        self.0.get(on)
    }

    /// Puts a place there, over whatever there is.
    pub fn put(&mut self, on: &ClaimKey, token: &Token, expires: EngineTime) {
        self.0.insert(on.clone(), Place { token: token.clone(), expires });
    }

    /// Takes away whatever there is; says whether there was something.
    pub fn remove(&mut self, on: &ClaimKey) -> bool {
        self.0.remove(on).is_some()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&ClaimKey, &Place)> {
        self.0.iter()
    }

    pub(super) fn clear(&mut self) -> BTreeMap<ClaimKey, Place> {
        std::mem::take(&mut self.0)
    }
}

/// How an engine carries steps out. The given ones are right; a planted bug overrides one.
pub trait Rules: fmt::Debug + Send + Sync {
    /// Whether the place still counts.
    fn is_live(&self, place: &Place, now: EngineTime) -> bool {
        place.expires > now
    }

    /// Who has the key.
    fn holder(&self, table: &Table, on: &ClaimKey, now: EngineTime) -> Option<Place> {
        table.get(on).filter(|place| self.is_live(place, now)).cloned()
    }

    /// Whether this token has the key.
    fn holds(&self, table: &Table, on: &ClaimKey, token: &Token, now: EngineTime) -> bool {
        self.holder(table, on, now).is_some_and(|place| place.token == *token)
    }

    /// Grants the key, or says who has it.
    ///
    /// # Errors
    /// The holder.
    fn acquire(
        &self,
        table: &mut Table,
        on: &ClaimKey,
        token: &Token,
        ttl: Duration,
        now: EngineTime,
    ) -> Result<(), Place> {
        match self.holder(table, on, now) {
            Some(place) if place.token == *token => Ok(()),
            Some(place) => Err(place),
            None => {
                table.put(on, token, now.after(ttl));
                Ok(())
            }
        }
    }

    /// Extends the lease; says whether it was there.
    fn renew(&self, table: &mut Table, on: &ClaimKey, token: &Token, ttl: Duration, now: EngineTime) -> bool {
        match self.holder(table, on, now) {
            Some(place) if place.token == *token => {
                table.put(on, token, place.expires.max(now.after(ttl)));
                true
            }
            _ => false,
        }
    }

    /// Gives the lease back; says whether it was there.
    fn release(&self, table: &mut Table, on: &ClaimKey, token: &Token, now: EngineTime) -> bool {
        self.holds(table, on, token, now) && table.remove(on)
    }

    /// Ends the lease by force; says whether it was there.
    fn revoke(&self, table: &mut Table, on: &ClaimKey, token: &Token, now: EngineTime) -> bool {
        self.holds(table, on, token, now) && table.remove(on)
    }
}

/// The rules as they should be.
#[derive(Debug, Clone, Copy, Default)]
pub struct Honest;

impl Rules for Honest {}
