//! Duplicate windows that the engine has just called closed, and that nobody can open before they end.
//!
//! Where a finished submission left a record ([`Denial::done`]), no step of anybody takes it away: it goes when its time is over.
//! So whoever comes next to the same window need not ask again, and a storm of repetitions costs the engine a call now and then.
//! A lease that is held, which may be given back at any moment, is never remembered, and nothing for long, so that a record that
//! the engine lost all the same (deleted by hand, forgotten in a restart) is not missed for longer than that.
//!
//! However many windows there are, 1,024 ([`PLACES`]) are remembered at most, of each its key and its times: well below a
//! megabyte with the longest keys that there can be. One stays until another comes to its place or it is asked for again.

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
    /// The same by the clock that goes on while the machine sleeps, where there is one: the window's time does too.
    boot_until: Option<Duration>,
}

impl Closed {
    /// The engine denied this, when it was asked then, by both clocks.
    pub(super) fn denied(
        &self,
        on: &ClaimKey,
        denial: &Denial,
        asked: Instant,
        boot_asked: Option<Duration>,
    ) {
        let (Some(record), Some(left)) = (&denial.done, denial.retry_after) else { return };
        // What has a result is told by the engine: it may be large, and nobody storms it.
        if on.space != Space::Duplicate || denial.holder.is_some() || !record.as_bytes().is_empty() {
            return;
        }
        // Both from before the engine looked, so that neither outlasts the window. What some engine calls endless is no time.
        let Some(ends) = asked.checked_add(left) else { return };
        let believed = left.saturating_sub(SOONER).min(AT_MOST);
        let until = asked + believed;
        if until <= Instant::now() {
            return;
        }
        let boot_until = boot_asked.map(|asked| asked + believed);
        let places = self.0.get_or_init(|| (0..PLACES).map(|_| Mutex::new(None)).collect());
        let window = Window { key: on.key.clone(), ends, until, boot_until };
        *places[place(&on.key)].lock().unwrap_or_else(PoisonError::into_inner) = Some(window);
    }

    /// What the engine would say to this now, if that is known. `boot_now` is a look at the clock that does not stop.
    pub(super) fn denial(
        &self,
        on: &ClaimKey,
        boot_now: impl FnOnce() -> Option<Duration>,
    ) -> Option<Denial> {
        if on.space != Space::Duplicate {
            return None;
        }
        let places = self.0.get()?;
        let mut known = places[place(&on.key)].lock().unwrap_or_else(PoisonError::into_inner);
        let window = known.as_ref().filter(|window| window.key == on.key)?;
        let now = Instant::now();
        let slept_over = || window.boot_until.zip(boot_now()).is_some_and(|(until, now)| now >= until);
        if now >= window.until || slept_over() {
            *known = None;
            return None;
        }
        // More than `SOONER`.
        let left = window.ends - now;
        Some(Denial { retry_after: Some(left), done: Some(Record::default()), ..Denial::default() })
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
    use crate::lease::{Holder, Mode, Token};

    const MILLISECOND: Duration = Duration::from_millis(1);

    fn window(key: &str) -> ClaimKey {
        ClaimKey { space: Space::Duplicate, key: Key::new(key).unwrap() }
    }

    fn done(left: Duration) -> Denial {
        Denial { retry_after: Some(left), done: Some(Record::default()), ..Denial::default() }
    }

    /// What is known on a machine without a clock that does not stop.
    fn known(closed: &Closed, on: &ClaimKey) -> Option<Denial> {
        closed.denial(on, || None)
    }

    /// Whether anything is remembered.
    fn is_empty(closed: &Closed) -> bool {
        closed.0.get().is_none_or(|places| places.iter().all(|place| place.lock().unwrap().is_none()))
    }

    /// Proves: D5
    #[tokio::test(start_paused = true)]
    async fn a_closed_window_is_believed_for_a_while_with_its_time_counted_down() {
        let (closed, on) = (Closed::default(), window("a"));
        assert_eq!(known(&closed, &on), None);
        let asked = Instant::now();
        advance(10 * MILLISECOND).await;
        closed.denied(&on, &done(5_000 * MILLISECOND), asked, None);
        advance(89 * MILLISECOND).await;
        assert_eq!(known(&closed, &on), Some(done(4_901 * MILLISECOND)));
        assert_eq!(known(&closed, &window("b")), None);
        advance(MILLISECOND).await;
        assert_eq!(known(&closed, &on), None, "a tenth of a second after it was asked for");
        assert!(is_empty(&closed));
    }

    /// Proves: D5
    #[tokio::test(start_paused = true)]
    async fn a_machine_that_slept_asks_again() {
        let (closed, on, boot) = (Closed::default(), window("a"), Duration::from_secs(1_000));
        closed.denied(&on, &done(5_000 * MILLISECOND), Instant::now(), Some(boot));
        let known_at = |ms: u32| closed.denial(&on, || Some(boot + ms * MILLISECOND));
        assert_eq!(known_at(99), Some(done(5_000 * MILLISECOND)));
        assert_eq!(known_at(100), None, "nobody knows how long the other clock stood still");
        assert!(is_empty(&closed));
    }

    /// Proves: D5
    #[tokio::test(start_paused = true)]
    async fn it_is_not_believed_to_its_end_and_the_time_left_is_never_nothing() {
        let (closed, on) = (Closed::default(), window("a"));
        closed.denied(&on, &done(10 * MILLISECOND), Instant::now(), None);
        for left in (3..=10).rev() {
            assert_eq!(known(&closed, &on), Some(done(left * MILLISECOND)));
            advance(MILLISECOND).await;
        }
        assert_eq!(known(&closed, &on), None);
        for left in [2, 1] {
            closed.denied(&on, &done(left * MILLISECOND), Instant::now(), None);
            assert_eq!(known(&closed, &on), None);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_may_open_at_any_time_or_has_a_result_is_not_remembered() {
        let closed = Closed::default();
        let (on, left) = (window("a"), Duration::from_secs(5));
        let key = ClaimKey { space: Space::Idempotency, ..on.clone() };
        let holder = Holder::new(on.clone(), Mode::Exclusive, Token::from_text("t"), Some(left));
        let result = Some(Record::new(&b"result"[..]));
        for (on, denial) in [
            (&on, Denial { done: None, ..done(left) }),
            (&on, Denial { holder: Some(holder), ..done(left) }),
            (&on, Denial { done: result, ..done(left) }),
            (&on, Denial { retry_after: None, ..done(left) }),
            (&on, done(Duration::MAX)),
            (&key, done(left)),
        ] {
            closed.denied(on, &denial, Instant::now(), None);
            assert_eq!(known(&closed, on), None);
        }
        assert!(closed.0.get().is_none(), "no memory was taken");
    }

    /// Whatever comes, it takes no more than its places.
    #[tokio::test(start_paused = true)]
    async fn of_many_windows_some_are_remembered_and_none_is_taken_for_another() {
        let closed = Closed::default();
        let all: Vec<_> = (0..10 * PLACES).map(|n| window(&format!("window {n}"))).collect();
        for (n, on) in (1_000..).zip(&all) {
            closed.denied(on, &done(n * MILLISECOND), Instant::now(), None);
        }
        let known: Vec<_> =
            (1_000..).zip(&all).filter_map(|(n, on)| Some((n, known(&closed, on)?))).collect();
        assert!(known.len() > PLACES / 2 && known.len() <= PLACES, "{}", known.len());
        assert!(known.iter().all(|(n, denial)| *denial == done(*n * MILLISECOND)));
    }
}
