//! A close look at the engine.

use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use super::LockManager;
use crate::store::{Diagnosis, ErrorKind, Severity, StoreError};

/// How many round trips are measured.
const ROUND_TRIPS: usize = 5;

impl LockManager {
    /// Looks closely at the engine, for people, for at most about `limit`: how far away it is, how it is set up, what its user
    /// may do, and what of that can cost a lease. It never fails: that there is no engine is a finding.
    ///
    /// # Cancel safety
    /// Safe: it changes nothing that lasts.
    pub async fn diagnose(&self, limit: Duration) -> Diagnosis {
        let deadline = Instant::now() + limit;
        let mut diagnosis = Diagnosis::default();
        diagnosis.fact("engine", self.core.store.engine());
        let late = || {
            let message = format!("the engine was not done within {limit:?}");
            StoreError::unknown(ErrorKind::Timeout, message)
        };
        let trips = timeout_at(deadline, self.round_trips()).await.unwrap_or_else(|_| Err(late()));
        let looked = match trips {
            Err(error) => Err(error),
            Ok(median) => {
                self.distance(median, &mut diagnosis);
                timeout_at(deadline, self.core.store.diagnose()).await.unwrap_or_else(|_| Err(late()))
            }
        };
        match looked {
            Ok(of_engine) => {
                diagnosis.facts.extend(of_engine.facts);
                diagnosis.findings.extend(of_engine.findings);
            }
            Err(error) => {
                let remedy =
                    "see whether the engine runs, and whether its address and its credentials are right";
                diagnosis.finding("unreachable", Severity::Error, error.to_string(), remedy);
            }
        }
        diagnosis
    }

    /// The median of a few round trips. The first may make a connection, and does not count.
    async fn round_trips(&self) -> Result<Duration, StoreError> {
        self.core.once_more(|| self.core.store.ping()).await?;
        let mut trips = Vec::with_capacity(ROUND_TRIPS);
        for _ in 0..ROUND_TRIPS {
            trips.push(self.core.store.ping().await?);
        }
        trips.sort_unstable();
        Ok(trips.get(trips.len() / 2).copied().unwrap_or_default())
    }

    fn distance(&self, median: Duration, diagnosis: &mut Diagnosis) {
        diagnosis.fact("round_trip_ms", format!("{:.3}", median.as_secs_f64() * 1_000.0));
        let limit = self.core.call_timeout;
        if median > limit / 4 {
            let problem = format!("a round trip takes {median:?}, and a call has {limit:?} in all");
            let remedy = "put the engine nearer to its users, or raise `call_timeout`";
            diagnosis.finding("round_trip", Severity::Warning, problem, remedy);
        }
    }
}
