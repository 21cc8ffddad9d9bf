//! Sentinels: who tells where the primary is.
//!
//! They are asked before every connect, as Sentinel's guidelines for clients want it: one after the other, the next one as
//! soon as the one before takes long; whoever answered is asked first the next time; others that it knows are learnt. What
//! they name is only believed once it says itself that it is a primary (`link.rs` asks it).

use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::{AsyncConnectionConfig, Client, FromRedisValue, RedisResult, Value};
use tokio::time::Instant;

use super::address::{Opener, Place, shown_place};
use super::error::not_connected;
use super::race::first_answer;
use crate::store::{Diagnosis, ErrorKind, Severity, StoreError};
use crate::stores::StoreOptions;

/// How many are known at most: far more than anybody runs.
const MOST: usize = 32;

/// The Sentinels of one primary.
pub(super) struct Sentinels {
    name: String,
    /// Whoever answered last comes first.
    places: Mutex<Vec<Place>>,
    data: Opener,
    watch: Opener,
    /// For all of them together.
    limit: Duration,
}

impl fmt::Debug for Sentinels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sentinels").field("name", &self.name).finish_non_exhaustive()
    }
}

/// What a Sentinel said.
pub(super) struct Found {
    /// Where the primary is.
    pub(super) primary: Client,
    pub(super) at: String,
    /// Who said so.
    by: Place,
}

impl Sentinels {
    pub(super) fn new(
        name: String,
        places: Vec<Place>,
        data: Opener,
        watch: Opener,
        options: &StoreOptions,
    ) -> Self {
        let limit = options.connect_timeout.min(options.call_timeout);
        Self { name, places: Mutex::new(places), data, watch, limit }
    }

    fn places(&self) -> MutexGuard<'_, Vec<Place>> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    #[cfg(test)]
    pub(super) fn known(&self) -> Vec<String> {
        self.places().iter().map(shown_place).collect()
    }

    /// How long one connect to what they name may take: they may name another soon.
    pub(super) const fn limit(&self) -> Duration {
        self.limit
    }

    /// Asks where the primary is.
    pub(super) async fn find(&self) -> Result<Found, StoreError> {
        let (by, (address, others)) = self.ask(|place| self.primary_by(place)).await?;
        self.answered(&by, others);
        Ok(Found { primary: self.data.at(&address.0, address.1)?, at: shown_place(&address), by })
    }

    /// What this one named is no primary or does not answer: others are asked first.
    pub(super) fn doubt(&self, found: &Found) {
        let mut places = self.places();
        if let Some(at) = places.iter().position(|place| *place == found.by) {
            let doubted = places.remove(at);
            places.push(doubted);
        }
    }

    fn answered(&self, by: &Place, others: Vec<Place>) {
        let mut places = self.places();
        if let Some(at) = places.iter().position(|place| place == by) {
            let first = places.remove(at);
            places.insert(0, first);
        }
        for other in others {
            if places.len() < MOST && !places.contains(&other) {
                places.push(other);
            }
        }
    }

    /// The first answer, and whose it is.
    async fn ask<T, A>(&self, ask: impl Fn(Place) -> A) -> Result<(Place, T), StoreError>
    where
        A: Future<Output = Result<T, StoreError>>,
    {
        let places = self.places().clone();
        first_answer(places, Instant::now() + self.limit, ask).await.map_err(|last| {
            last.unwrap_or_else(|| {
                let message = format!("no Sentinel of `{}` answered within {:?}", self.name, self.limit);
                StoreError::not_applied(ErrorKind::Unavailable, message)
            })
        })
    }

    /// Where the primary is, and who else watches it, by one of them.
    async fn primary_by(&self, place: Place) -> Result<(Place, Vec<Place>), StoreError> {
        let mut asks = redis::pipe();
        asks.cmd("SENTINEL").arg("GET-MASTER-ADDR-BY-NAME").arg(&self.name);
        asks.cmd("SENTINEL").arg("SENTINELS").arg(&self.name);
        asks.ignore_errors();
        let mut answers = self.exchange(&place, &asks).await?.into_iter();
        let named = answers.next().unwrap_or(Ok(Value::Nil)).map_err(|error| failed(&place, error))?;
        let Ok(Some(address)) = Option::<(String, u16)>::from_redis_value(named) else {
            let message = format!("the Sentinel at {} knows no primary `{}`", shown_place(&place), self.name);
            return Err(StoreError::not_applied(ErrorKind::Unavailable, message));
        };
        // One that does not tell of others has told enough.
        let others: Vec<HashMap<String, Value>> = answers
            .next()
            .and_then(Result::ok)
            .and_then(|others| redis::from_redis_value(others).ok())
            .unwrap_or_default();
        let other = |fields: HashMap<String, Value>| {
            let field =
                |name: &str| fields.get(name).cloned().and_then(|value| redis::from_redis_value(value).ok());
            let port: Option<String> = field("port");
            Some((field("ip")?, port?.parse().ok()?))
        };
        Ok((address, others.into_iter().filter_map(other).collect()))
    }

    /// One exchange with a Sentinel, over a connection of its own.
    async fn exchange(
        &self,
        place: &Place,
        asks: &redis::Pipeline,
    ) -> Result<Vec<RedisResult<Value>>, StoreError> {
        let failed = |error| failed(place, error);
        let client = self.watch.at(&place.0, place.1)?;
        let config = AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
        let mut redis = client.get_multiplexed_async_connection_with_config(&config).await.map_err(failed)?;
        asks.query_async(&mut redis).await.map_err(failed)
    }

    /// What they say of themselves and of what they watch.
    pub(super) async fn diagnose(&self, diagnosis: &mut Diagnosis) -> Result<(), StoreError> {
        let asked = self.ask(|place| async move {
            let mut asks = redis::pipe();
            asks.cmd("SENTINEL").arg("MASTER").arg(&self.name);
            asks.cmd("SENTINEL").arg("CKQUORUM").arg(&self.name);
            asks.ignore_errors();
            self.exchange(&place, &asks).await
        });
        let (_, mut answers) = asked.await?;
        let can_fail_over = answers.pop().is_some_and(|answer| answer.is_ok());
        let seen: HashMap<String, Value> =
            answers.pop().and_then(|seen| redis::from_redis_value(seen.ok()?).ok()).unwrap_or_default();
        let number = |name: &str| {
            let digits: String = redis::from_redis_value(seen.get(name)?.clone()).ok()?;
            digits.parse::<u32>().ok()
        };
        match number("num-other-sentinels") {
            Some(others) => {
                let sentinels = others.saturating_add(1);
                diagnosis.fact("sentinels", sentinels);
                if sentinels < 3 {
                    let problem = format!(
                        "{sentinels} Sentinels watch this primary: one that fails may leave no majority"
                    );
                    diagnosis.finding(
                        "sentinels",
                        Severity::Warning,
                        problem,
                        "run three, on three machines",
                    );
                }
            }
            None => diagnosis.hidden("sentinels", "not told"),
        }
        if let Some(quorum) = number("quorum") {
            diagnosis.fact("sentinel_quorum", quorum);
        }
        if !can_fail_over {
            let problem = "the Sentinels could not fail over now: too few of them can be reached";
            diagnosis.finding(
                "sentinel_quorum",
                Severity::Warning,
                problem,
                "see `SENTINEL CKQUORUM` and their logs",
            );
        }
        Ok(())
    }
}

fn failed(place: &Place, error: redis::RedisError) -> StoreError {
    not_connected(&format!("{} (a Sentinel)", shown_place(place)), error)
}
