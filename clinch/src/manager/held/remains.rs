//! What a lease whose work is done leaves behind in the engine.

use std::time::Duration;

use tokio::time::Instant;

use crate::lease::Record;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Mutex, MutexGuard, PoisonError};

/// What is left in the engine of a lease whose work is done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Remains {
    pub(crate) record: Record,
    pub(crate) stay: Stay,
}

/// How long something stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stay {
    /// Until then; if that is over, there is nothing to leave.
    Until(Instant),
    /// As long as the lease would have lived.
    Rest,
    For(Duration),
}

impl Stay {
    /// Whether it is at least as long as the other, for a lease that lives until `end`. A time of its own is a stored result,
    /// for which there is one guard only.
    fn outlasts(self, other: Self, end: Instant) -> bool {
        let until = |stay| match stay {
            Self::Until(until) => Ok(until),
            Self::Rest => Ok(end),
            Self::For(time) => Err(time),
        };
        match (until(self), until(other)) {
            (Ok(one), Ok(other)) => one >= other,
            (Err(one), Err(other)) => one >= other,
            (one, _) => one.is_err(),
        }
    }
}

/// What the guards of a lease said so far.
#[derive(Debug, Default)]
pub(super) struct Left {
    /// Whether anything was said: mostly nothing is.
    some: AtomicBool,
    /// Boxed, because it is larger than all else that is known of a lease.
    said: Mutex<Option<Box<Remains>>>,
}

impl Left {
    fn get(&self) -> MutexGuard<'_, Option<Box<Remains>>> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A guard of a lease that lives until `end` says what it leaves; what stays longest counts.
    pub(super) fn add(&self, remains: Remains, end: Instant) {
        let mut left = self.get();
        if left.as_ref().is_none_or(|left| remains.stay.outlasts(left.stay, end)) {
            *left = Some(Box::new(remains));
            self.some.store(true, Ordering::Release);
        }
    }

    pub(super) fn is_some(&self) -> bool {
        self.some.load(Ordering::Acquire)
    }

    /// Whether it stays as long as the lease would have lived.
    pub(super) fn is_the_rest(&self) -> bool {
        self.is_some() && self.get().as_ref().is_some_and(|left| left.stay == Stay::Rest)
    }

    /// The record, and for how long from now on; no time means the rest of the lease.
    pub(super) fn now(&self) -> Option<(Record, Option<Duration>)> {
        if !self.is_some() {
            return None;
        }
        let left = self.get();
        let left = left.as_ref()?;
        let ttl = match left.stay {
            Stay::Until(until) => Some(until.saturating_duration_since(Instant::now()))
                .filter(|left| !left.is_zero())
                .map(Some)?,
            Stay::Rest => None,
            Stay::For(ttl) => Some(ttl),
        };
        Some((left.record.clone(), ttl))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_stays_longest_counts_whoever_says_it_first() {
        let now = Instant::now();
        let second = Duration::from_secs(1);
        let rising = [
            Stay::Until(now),
            Stay::Until(now + second),
            Stay::Rest,
            // Of a guard that was meant for longer than the lease that it entered.
            Stay::Until(now + 3 * second),
            Stay::For(second),
            Stay::For(2 * second),
        ];
        let remains = |stay| Remains { record: Record::default(), stay };
        for (i, one) in rising.into_iter().enumerate() {
            for other in rising[i..].iter().copied() {
                for order in [[one, other], [other, one]] {
                    let left = Left::default();
                    order.into_iter().for_each(|stay| left.add(remains(stay), now + 2 * second));
                    assert_eq!(left.get().as_deref(), Some(&remains(other)), "{order:?}");
                }
            }
        }
    }
}
