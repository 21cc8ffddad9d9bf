//! A close look at the engine: how far away it is, whether every step that it should be able to do works for us, and what
//! it says of how it is set up.

use std::num::NonZeroU32;
use std::time::Duration;

use tokio::time::{Instant, timeout, timeout_at};

use super::LockManager;
use crate::key::Key;
use crate::lease::{Attempt, Claim, ClaimKey, Patience, Record};
use crate::store::{Cursor, Diagnosis, ErrorKind, Severity, StoreError};

/// How many round trips are measured.
const ROUND_TRIPS: usize = 5;
/// The TTL of what is taken on the way; it is given back at once.
const TTL: Duration = Duration::from_secs(5);
/// How long a record is left.
const MOMENT: Duration = Duration::from_millis(10);

/// A step that was tried, and what came of it.
type Tried = (&'static str, Result<(), StoreError>);

impl LockManager {
    /// Looks closely at the engine, for people, for at most `limit`: how far away it is, which steps work, how it is set up, what
    /// its user may do, and what of that can cost a lease. It never fails: that there is no engine is a finding.
    ///
    /// It takes and gives back a few leases on keys that nobody else uses: `clinch-doctor`, and the same with a random number.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use clinch::LockManager;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let diagnosis = LockManager::memory().diagnose(Duration::from_secs(5)).await;
    /// for finding in &diagnosis.findings {
    ///     println!("{}: {} ({})", finding.severity, finding.problem, finding.remedy);
    /// }
    /// # assert_eq!(diagnosis.findings, []);
    /// # assert_eq!(diagnosis.value("engine"), Some("memory"));
    /// # }
    /// ```
    ///
    /// # Cancel safety
    /// Safe: what it had taken is gone after 5 s.
    pub async fn diagnose(&self, limit: Duration) -> Diagnosis {
        let mut diagnosis = Diagnosis::default();
        diagnosis.fact("engine", self.core.store.engine());
        let deadline = Instant::now() + limit;
        let looked = timeout_at(deadline, self.look_closely(&mut diagnosis)).await;
        let looked = looked.unwrap_or_else(|_| {
            let message = format!("the engine was not done with its answers within {limit:?}");
            Err(StoreError::unknown(ErrorKind::Timeout, message))
        });
        if let Err(error) = looked {
            let remedy = match error.kind() {
                ErrorKind::Protocol => "do what it says, or name another engine",
                _ => "see whether the engine runs, and whether its address and its credentials are right",
            };
            diagnosis.finding("unreachable", Severity::Error, error.to_string(), remedy);
        }
        diagnosis
    }

    async fn look_closely(&self, diagnosis: &mut Diagnosis) -> Result<(), StoreError> {
        match self.round_trips().await {
            Ok(median) => self.distance(median, diagnosis),
            // It is there, and says why it takes nothing new.
            Err(error) if error.kind() == ErrorKind::Full => {
                diagnosis.hidden("round_trip_ms", "the engine has no room");
            }
            Err(error) => return Err(error),
        }
        let of_engine = self.core.store.diagnose().await?;
        diagnosis.facts.extend(of_engine.facts);
        diagnosis.findings.extend(of_engine.findings);
        self.steps(diagnosis).await
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
            let remedy = "put the engine nearer to those who use it, or raise `call_timeout`";
            diagnosis.finding("round_trip", Severity::Warning, problem, remedy);
        }
    }

    /// Tries every step that the store says it can do.
    async fn steps(&self, diagnosis: &mut Diagnosis) -> Result<(), StoreError> {
        let name = format!("clinch-doctor:{:016x}", self.core.sources.random_u128() >> 64);
        let (Ok(key), Ok(fixed)) = (Key::new(name), Key::new("clinch-doctor")) else { return Ok(()) };
        let mut tried = Vec::new();
        self.try_leases(&key, &fixed, &mut tried).await;
        if self.core.store.capabilities().list {
            tried.push(("list", self.core.store.list(Cursor::START).await.map(|_| ())));
        }
        let pushed = self.is_pushed_to(&key).await;
        let works = tried.iter().filter(|(_, outcome)| outcome.is_ok()).map(|(step, _)| *step);
        let works: Vec<_> = works.chain((pushed == Some(true)).then_some("wake_ups")).collect();
        diagnosis.fact("steps", works.join(", "));
        // What several steps are told is one thing to change.
        let mut failures: Vec<(Vec<&str>, StoreError)> = Vec::new();
        for (step, outcome) in tried {
            match outcome {
                Ok(()) => {}
                // Not of this step alone.
                Err(error) if matches!(error.kind(), ErrorKind::Timeout | ErrorKind::Unavailable) => {
                    return Err(error);
                }
                Err(error) => match failures.iter_mut().find(|(_, same)| same.message() == error.message()) {
                    Some((steps, _)) => steps.push(step),
                    None => failures.push((vec![step], error)),
                },
            }
        }
        for (steps, error) in failures {
            let fail = if steps.len() == 1 { "fails" } else { "fail" };
            let problem = format!("`{}` {fail}: {error}", steps.join("`, `"));
            diagnosis.finding("step", Severity::Error, problem, remedy(error.kind()));
        }
        // Where not even a lock can be had, the reason is that one.
        if pushed == Some(false) && works.contains(&"lock") {
            let problem = "the engine pushes no wake-ups: waiters find out by asking, every `retry_interval`";
            let remedy = "let the engine's user subscribe to and publish on the channels of this prefix";
            diagnosis.finding("wake_ups", Severity::Warning, problem, remedy);
        }
        Ok(())
    }

    /// Takes and gives back leases of every kind. The last fence of a key is remembered for long, so fences have a key that is
    /// always the same.
    async fn try_leases(&self, key: &Key, fixed: &Key, tried: &mut Vec<Tried>) {
        let store = &self.core.store;
        let can = store.capabilities();
        let attempt = |claim| Attempt::one(self.core.new_token(Some("doctor")), claim);
        let lock = attempt(Claim::exclusive(key.clone(), TTL));
        tried.push(("lock", store.acquire(&lock).await.map(|_| ())));
        tried.push(("renew", store.renew(&lock).await.map(|_| ())));
        tried.push(("inspect", store.inspect(&ClaimKey::lock(key.clone())).await.map(|_| ())));
        tried.push(("release", store.release(&lock).await.map(|_| ())));
        let until = Instant::now();
        for (step, can, lease) in [
            (
                "fence",
                can.fences,
                attempt(Claim::exclusive(fixed.clone(), TTL).fenced(self.core.fence_floor())),
            ),
            ("shared", can.shared, attempt(Claim::shared(key.clone(), TTL))),
            ("permit", can.permits, attempt(Claim::permit(key.clone(), NonZeroU32::MIN, TTL))),
            (
                "fair",
                can.fair,
                attempt(Claim::exclusive(key.clone(), TTL))
                    .with_patience(Patience::Queue { until, confirm: MOMENT }),
            ),
        ] {
            if can {
                let outcome = store.acquire(&lease).await;
                let released = store.release(&lease).await;
                tried.push((step, outcome.and(released.map(|_| ()))));
            }
        }
        if can.records {
            let lease = attempt(Claim::duplicate(key.clone(), TTL));
            let outcome = match store.acquire(&lease).await {
                Ok(_) => store.complete(&lease, &Record::new("doctor"), Some(MOMENT)).await.map(|_| ()),
                Err(error) => Err(error),
            };
            tried.push(("record", outcome));
        }
    }

    /// Whether a subscription is confirmed; nothing if the store does not push at all.
    async fn is_pushed_to(&self, key: &Key) -> Option<bool> {
        self.core.store.capabilities().wakeups.then_some(())?;
        let mut wakeups = self.core.store.wakeups(&ClaimKey::lock(key.clone()), None);
        Some(timeout(self.core.call_timeout, wakeups.next()).await.is_ok())
    }
}

fn remedy(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::Auth => {
            "give the engine's user the right to it (for Redis, `deploy/redis/clinch.acl` lists all that is needed)"
        }
        ErrorKind::ReadOnly => "connect to the primary",
        ErrorKind::Full => "give the engine more room, or free some",
        _ => "see what the engine says, and its log",
    }
}
