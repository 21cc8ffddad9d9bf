//! Duplicate windows that the engine has just called closed, and that nobody can open before they end.
//!
//! Where a finished submission left a record ([`Denial::done`]), no step of anybody takes it away: it goes when its time is over.
//! So whoever comes next to the same window need not ask again, and a storm of repetitions costs the engine a call now and then.
//! A lease that is held, which may be given back at any moment, is never remembered, and nothing for long, so that a record that
//! the engine lost all the same (deleted by hand, forgotten in a restart) is not missed for longer than that.

use std::hash::{DefaultHasher, Hasher};
use std::sync::OnceLock;
use std::time::Duration;

use tokio::time::Instant;

use crate::key::Key;
use crate::lease::{ClaimKey, Record, Space};
use crate::store::Denial;
use crate::sync::{Mutex, PoisonError};

/// How long an answer counts at most.
const AT_MOST: Duration = Duration::from_millis(100);
/// By how much sooner than the window an answer ends: engines count in milliseconds, and their clock may be a little fast.
const SOONER: Duration = Duration::from_millis(2);
/// A power of two. Of two windows in one place the later one is remembered.
const PLACES: usize = 1_024;

/// What is remembered. No memory is taken before there is something.
#[derive(Debug, Default)]
pub(super) struct Closed(OnceLock<Box<[Mutex<Option<Window>>]>>);

#[derive(Debug)]
struct Window {
    key: Key,
    /// When the window ends, as it was told.
    ends: Instant,
    /// Until when that is believed.
    until: Instant,
}

impl Closed {
    /// The engine denied this, when it was asked then.
    pub(super) fn denied(&self, on: &ClaimKey, denial: &Denial, asked: Instant) {
        let (Some(record), Some(left)) = (&denial.done, denial.retry_after) else { return };
        // What has a result is told by the engine: it may be large, and nobody storms it.
        if on.space != Space::Duplicate || !record.as_bytes().is_empty() {
            return;
        }
        let now = Instant::now();
        // From before the engine looked, so that it never outlasts the window.
        let until = asked + left.saturating_sub(SOONER).min(AT_MOST);
        if until <= now {
            return;
        }
        let places = self.0.get_or_init(|| (0..PLACES).map(|_| Mutex::new(None)).collect());
        let window = Window { key: on.key.clone(), ends: now + left, until };
        *places[place(&on.key)].lock().unwrap_or_else(PoisonError::into_inner) = Some(window);
    }

    /// What the engine would say to this now, if that is known.
    pub(super) fn denial(&self, on: &ClaimKey) -> Option<Denial> {
        if on.space != Space::Duplicate {
            return None;
        }
        let places = self.0.get()?;
        let known = places[place(&on.key)].lock().unwrap_or_else(PoisonError::into_inner);
        let window = known.as_ref().filter(|window| window.key == on.key)?;
        let now = Instant::now();
        (now < window.until).then(|| Denial {
            retry_after: Some(window.ends - now),
            done: Some(Record::default()),
            ..Denial::default()
        })
    }
}

/// By a hash that is the same in every run, so that what is simulated repeats itself.
fn place(key: &Key) -> usize {
    let mut hasher = DefaultHasher::new();
    hasher.write(key.as_str().as_bytes());
    #[expect(clippy::cast_possible_truncation, reason = "only a few bits are wanted")]
    let hash = hasher.finish() as usize;
    hash & (PLACES - 1)
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    const MILLISECOND: Duration = Duration::from_millis(1);

    fn window(key: &str) -> ClaimKey {
        ClaimKey { space: Space::Duplicate, key: Key::new(key).unwrap() }
    }

    fn done(left: Duration) -> Denial {
        Denial { retry_after: Some(left), done: Some(Record::default()), ..Denial::default() }
    }

    /// Proves: D5
    #[tokio::test(start_paused = true)]
    async fn a_closed_window_is_believed_for_a_while_with_its_time_counted_down() {
        let (closed, on) = (Closed::default(), window("a"));
        assert_eq!(closed.denial(&on), None);
        let asked = Instant::now();
        advance(10 * MILLISECOND).await;
        closed.denied(&on, &done(5_000 * MILLISECOND), asked);
        advance(89 * MILLISECOND).await;
        assert_eq!(closed.denial(&on), Some(done(4_911 * MILLISECOND)));
        assert_eq!(closed.denial(&window("b")), None);
        advance(MILLISECOND).await;
        assert_eq!(closed.denial(&on), None, "a tenth of a second after it was asked for");
    }

    /// Proves: D5
    #[tokio::test(start_paused = true)]
    async fn it_is_not_believed_to_its_end_and_the_time_left_is_never_nothing() {
        let (closed, on) = (Closed::default(), window("a"));
        closed.denied(&on, &done(10 * MILLISECOND), Instant::now());
        for left in (3..=10).rev() {
            assert_eq!(closed.denial(&on), Some(done(left * MILLISECOND)));
            advance(MILLISECOND).await;
        }
        assert_eq!(closed.denial(&on), None);
        for left in [2, 1] {
            closed.denied(&on, &done(left * MILLISECOND), Instant::now());
            assert_eq!(closed.denial(&on), None);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_may_open_at_any_time_or_has_a_result_is_not_remembered() {
        let closed = Closed::default();
        let (on, left) = (window("a"), Duration::from_secs(5));
        let key = ClaimKey { space: Space::Idempotency, ..on.clone() };
        let result = Some(Record::new(&b"result"[..]));
        for (on, denial) in [
            (&on, Denial { done: None, ..done(left) }),
            (&on, Denial { done: result, ..done(left) }),
            (&on, Denial { retry_after: None, ..done(left) }),
            (&key, done(left)),
        ] {
            closed.denied(on, &denial, Instant::now());
            assert_eq!(closed.denial(on), None);
        }
        assert!(closed.0.get().is_none(), "no memory was taken");
    }

    /// Whatever comes, it takes no more than its places.
    #[tokio::test(start_paused = true)]
    async fn of_many_windows_some_are_remembered_and_none_is_taken_for_another() {
        let closed = Closed::default();
        let all: Vec<_> = (0..10 * PLACES).map(|n| window(&format!("window {n}"))).collect();
        for (n, on) in (1_000..).zip(&all) {
            closed.denied(on, &done(n * MILLISECOND), Instant::now());
        }
        let known: Vec<_> = (1_000..).zip(&all).filter_map(|(n, on)| Some((n, closed.denial(on)?))).collect();
        assert!(known.len() > PLACES / 2 && known.len() <= PLACES, "{}", known.len());
        assert!(known.iter().all(|(n, denial)| *denial == done(*n * MILLISECOND)));
    }
}
