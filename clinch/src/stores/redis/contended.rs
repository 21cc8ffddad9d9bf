//! Which keys were held by others when they were asked for last, as far as that is worth knowing: what is free is taken with a plain
//! command, what is not is asked for with a script, which also tells who holds it and how long.
//!
//! It is a guess. If it is wrong, the answer is the same and costs one more round trip, or a little of the server's time.

use std::sync::atomic::{AtomicU8, Ordering};

use crate::lease::{ClaimKey, Patience, Space};
use crate::store::Verdict;

/// A power of two: two keys that are hot at once rarely share a place.
const PLACES: usize = 1_024;

/// Somebody else held it when it was asked for last.
const HELD: u8 = 1;
/// Readers did, since it was granted last: what a writer that waits has left with the key only a script takes away.
const READ: u8 = 2;
/// It was given back since.
const FREED: u8 = 4;
/// Counts how often it must be won after a wake-up until that is expected again: twice after it was lost.
const ONE_LOST: u8 = 8;
const LOST: u8 = 3 * ONE_LOST;

#[derive(Debug)]
pub(super) struct Contended(Box<[AtomicU8]>);

impl Default for Contended {
    fn default() -> Self {
        Self((0..PLACES).map(|_| AtomicU8::new(0)).collect())
    }
}

impl Contended {
    fn place(&self, on: &ClaimKey) -> &AtomicU8 {
        #[expect(clippy::cast_possible_truncation, reason = "only a few bits are wanted")]
        let place = on.hashed() as u16;
        &self.0[usize::from(place) & (PLACES - 1)]
    }

    /// Whether it is probably free. For one that waits for a lock only a wake-up says so, and only if nobody else was faster the
    /// last times.
    pub(super) fn is_free(&self, on: &ClaimKey, patience: Patience) -> bool {
        let seen = self.place(on).load(Ordering::Relaxed);
        let freed = seen & FREED != 0 && seen & (READ | LOST) == 0;
        freed || seen & HELD == 0 && (on.space != Space::Lock || matches!(patience, Patience::Try))
    }

    /// A wake-up came for it.
    pub(super) fn freed(&self, on: &ClaimKey) {
        let place = self.place(on);
        if place.load(Ordering::Relaxed) & HELD != 0 {
            place.fetch_or(FREED, Ordering::Relaxed);
        }
    }

    /// It was asked for.
    pub(super) fn answered(&self, on: &ClaimKey, verdict: &Verdict) {
        let place = self.place(on);
        let seen = place.load(Ordering::Relaxed);
        let lost = seen & LOST;
        let now = match verdict {
            Verdict::Denied(denial) => {
                let lost = if seen & FREED == 0 { lost } else { 2 * ONE_LOST };
                let read = if denial.is_by_readers() { READ } else { seen & READ };
                HELD | read | lost
            }
            Verdict::Granted(_) if seen & FREED == 0 => lost,
            Verdict::Granted(_) => lost.saturating_sub(ONE_LOST),
        };
        if now != seen {
            place.store(now, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::Instant;

    use super::*;
    use crate::key::Key;
    use crate::lease::{Holder, Mode, Token};
    use crate::store::Denial;

    fn denied(mode: Mode) -> Verdict {
        let holder = Holder::new(ClaimKey::lock(Key::new("k").unwrap()), mode, Token::from_text("t"), None);
        Verdict::Denied(Denial { holder: Some(holder), ..Denial::default() })
    }

    /// One that waits asks in the short way after a wake-up, until somebody else is faster, and again after it was first twice.
    #[test]
    fn a_wake_up_is_believed_until_others_are_faster() {
        let (contended, on) = (Contended::default(), ClaimKey::lock(Key::new("k").unwrap()));
        let waits =
            Patience::Wait { until: Instant::now(), again_within: Duration::ZERO, confirm: Duration::ZERO };
        let (held, granted) = (denied(Mode::Exclusive), Verdict::granted());
        let woken = |verdict: &Verdict| {
            contended.answered(&on, &held);
            assert!(!contended.is_free(&on, waits) && !contended.is_free(&on, Patience::Try));
            contended.freed(&on);
            let free = contended.is_free(&on, waits);
            assert_eq!(contended.is_free(&on, Patience::Try), free);
            contended.answered(&on, verdict);
            free
        };
        assert!(contended.is_free(&on, Patience::Try) && !contended.is_free(&on, waits));
        assert!(woken(&granted) && woken(&granted) && woken(&held));
        assert!(!woken(&granted) && !woken(&granted));
        assert!(woken(&granted));
    }

    /// What a writer that readers denied has left with the key is taken away when it is granted, so that takes the script.
    #[test]
    fn after_readers_the_script_is_needed_until_a_grant() {
        let (contended, on) = (Contended::default(), ClaimKey::lock(Key::new("k").unwrap()));
        let waits =
            Patience::Wait { until: Instant::now(), again_within: Duration::ZERO, confirm: Duration::ZERO };
        for denial in [denied(Mode::Shared), denied(Mode::Exclusive)] {
            contended.answered(&on, &denial);
            contended.freed(&on);
            assert!(!contended.is_free(&on, waits));
        }
        contended.answered(&on, &Verdict::granted());
        contended.answered(&on, &denied(Mode::Exclusive));
        contended.freed(&on);
        // Once more lost, in the eyes of this one: the second denial came after a wake-up.
        assert!(!contended.is_free(&on, waits));
    }
}
