//! What the words of the port mean, written once as data: the rules of one key ([`entry`], [`queue`]), and the steps that
//! are made of them ([`steps`]).
//!
//! They are for engines that can look at what they know of a key and write it back in one piece: memory does so under the
//! locks of its shards, SQLite in a transaction. Nothing here looks at a clock, blocks, or does I/O.

pub(super) mod entry;
pub(super) mod queue;
pub(super) mod steps;

use std::fmt;
use std::time::Duration;

use tokio::time::Instant;

/// A moment on the engine's clock.
pub(super) trait Moment: Copy + Ord + fmt::Debug {
    /// So much later, or the last moment there is.
    fn after(self, time: Duration) -> Self;

    /// The time that passed since then; none if that is yet to come.
    fn since(self, earlier: Self) -> Duration;

    /// What this instant of the process is on the engine's clock, on which it is `now`.
    fn at(instant: Instant, now: Self) -> Self;
}
