//! The one wait that a step may make: for the write lock, which SQLite gives to one connection of the machine at a time.
//!
//! SQLite asks its handler whether to try again. The pauses are short, because the lock is held for some ten microseconds
//! mostly; random, so that many processes do not come back all at once; and over at the limit that was set before the step.

use std::cell::RefCell;
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rand::RngExt;

use super::ticket::Ticket;

const SHORTEST: Duration = Duration::from_micros(50);
/// The longest pause is the shortest, doubled so often: 3.2 ms.
const DOUBLINGS: u32 = 6;

#[derive(Debug)]
struct Limit {
    until: Instant,
    ticket: Option<Arc<Ticket>>,
}

thread_local! {
    /// The handler is a plain function; the connection is used by its own thread only.
    static LIMIT: RefCell<Option<Limit>> = const { RefCell::new(None) };
}

/// From here on this thread waits for locks until then, or until the caller of the step has given up.
pub(super) fn wait_until(until: Instant, ticket: Option<Arc<Ticket>>) {
    LIMIT.set(Some(Limit { until, ticket }));
}

/// SQLite's question: the lock was not free for the `count`th time; try again?
pub(super) fn again(count: i32) -> bool {
    let left = LIMIT.with_borrow(|limit| {
        let limit = limit.as_ref()?;
        let wanted = limit.ticket.as_ref().is_none_or(|ticket| ticket.is_wanted());
        limit.until.checked_duration_since(Instant::now()).filter(|_| wanted)
    });
    let Some(left) = left.filter(|left| !left.is_zero()) else { return false };
    let doublings = u32::try_from(count).unwrap_or(0).min(DOUBLINGS);
    let longest = SHORTEST * 2_u32.pow(doublings);
    sleep(rand::rng().random_range(SHORTEST..=longest).min(left));
    true
}
