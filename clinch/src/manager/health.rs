//! Whether the engine is there and serves.

use std::time::Duration;

use tokio::time::timeout;

use super::LockManager;

/// Whether the engine is there and serves, from a real round trip to it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "submit", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Health {
    /// Whether it answered in time.
    pub up: bool,
    /// The engine's name: `memory`, `redis`.
    pub engine: &'static str,
    /// What it calls itself, where that is more: `valkey`.
    pub server: Option<String>,
    /// Its version, as far as it tells.
    pub version: Option<String>,
    /// How long the round trip took. In JSON it is `latency_ms`, a number with fractions.
    #[cfg_attr(feature = "submit", serde(rename = "latency_ms", serialize_with = "in_ms"))]
    pub latency: Option<Duration>,
    /// Why it does not serve as it should although it is up, if so: it is a read-only replica; attempts are still not asked,
    /// because it did not answer a moment ago.
    pub degraded: Option<String>,
    /// Why it is down, if it is. There are no secrets in it.
    pub error: Option<String>,
}

impl Health {
    /// Whether it is up and serves as it should.
    pub const fn is_ready(&self) -> bool {
        self.up && self.degraded.is_none()
    }
}

#[cfg(feature = "submit")]
fn in_ms<S: serde::Serializer>(time: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    match time {
        Some(time) => serializer.serialize_some(&(time.as_secs_f64() * 1_000.0)),
        None => serializer.serialize_none(),
    }
}

impl LockManager {
    /// Asks the engine whether it is there, for at most `limit`, whatever it does.
    ///
    /// Other than a [`ping`](Self::ping) it tells what there is to tell, and never fails: that there is no engine is an answer.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use clinch::LockManager;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let health = LockManager::memory().health(Duration::from_secs(1)).await;
    /// assert!(health.is_ready() && health.engine == "memory");
    /// # }
    /// ```
    ///
    /// # Cancel safety
    /// Safe: it changes nothing.
    pub async fn health(&self, limit: Duration) -> Health {
        let store = &self.core.store;
        let held_back = self.core.breaker.is_open();
        let answer = timeout(limit, self.core.once_more(|| store.about())).await;
        let mut health = Health {
            up: false,
            engine: store.engine(),
            server: None,
            version: None,
            latency: None,
            degraded: None,
            error: None,
        };
        match answer {
            Err(_) => health.error = Some(format!("no answer within {limit:?}")),
            Ok(Err(error)) => health.error = Some(error.to_string()),
            Ok(Ok(about)) => {
                health.up = true;
                (health.server, health.version) = (about.server, about.version);
                health.latency = Some(about.latency);
                let held_back = held_back
                    .then_some("the engine did not answer a moment ago, and attempts are not asked yet");
                health.degraded = about.degraded.or_else(|| held_back.map(str::to_owned));
            }
        }
        health
    }
}
