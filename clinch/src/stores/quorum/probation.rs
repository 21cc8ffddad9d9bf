//! A node that was started anew sits out: it may have forgotten leases that others still believe in.

use std::time::Duration;

use tokio::time::Instant;

use crate::store::{ErrorKind, StoreError};

/// Servers tell how long they have run in whole seconds of two clocks that were read at different times.
const COARSE: Duration = Duration::from_secs(2);

/// For how long a node grants nothing, as seen over one connection to it.
///
/// A server that was restarted may have lost its memory, however it is set up to keep it. If it granted at once, it could
/// be the one vote that two holders have in common. So it waits until every lease is over that it can have forgotten: the
/// longest TTL, and what a clock may be off. A connection ends with the process behind it, so what a server says of its age
/// when a connection is made holds for every answer over that connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Probation {
    over_at: Instant,
    max_ttl: Duration,
}

impl Probation {
    /// Of a server that says, now, that it has run for `uptime`, where no lease lives longer than `max_ttl`.
    pub fn after(uptime: Duration, max_ttl: Duration) -> Self {
        let needed = max_ttl + max_ttl / 100 + COARSE;
        Self { over_at: Instant::now() + needed.saturating_sub(uptime), max_ttl }
    }

    /// How much longer it lasts; zero once it is over.
    pub fn left(&self) -> Duration {
        self.over_at.saturating_duration_since(Instant::now())
    }

    /// What an acquire is told meanwhile.
    pub fn refusal(&self) -> Option<StoreError> {
        let left = self.left();
        if left.is_zero() {
            return None;
        }
        let message = format!(
            "it was started a short time ago and grants nothing for {} s more, until every lease is over that it may have \
             forgotten (max_ttl={:?}); a new deployment waits for that once",
            left.as_secs() + 1,
            self.max_ttl
        );
        Some(StoreError::not_applied(ErrorKind::Busy, message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn it_lasts_as_long_as_what_may_have_been_forgotten() {
        let max_ttl = Duration::from_secs(60);
        let new = Probation::after(Duration::ZERO, max_ttl);
        let message = new.refusal().map(|error| error.message().to_owned()).unwrap_or_default();
        assert!(message.contains("63 s more"), "{message}");
        let half = Probation::after(Duration::from_secs(30), max_ttl);
        assert_eq!(new.left() - half.left(), Duration::from_secs(30));
        tokio::time::advance(Duration::from_secs(62)).await;
        assert!(new.refusal().is_some() && half.refusal().is_none());
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(new.refusal().is_none());
        assert!(Probation::after(Duration::from_secs(63), max_ttl).refusal().is_none());
    }
}
