//! Rows in a database that check fences.
//!
//! A row that is written under a fenced lock gets a column for the highest fence that wrote it, and every write asks for
//! it. A single statement compares and writes in one step. How many rows it affected tells what came of it: [`UPSERT`]
//! affects none if the write was stale; [`UPDATE`] affects none if it was stale or there is no such row. (At the stricter
//! isolation levels the one who comes second may get a serialization failure instead; nothing was written then, either.)
//!
//! Fences fit a signed 64-bit integer (`BIGINT` in most databases, `INTEGER` in SQLite): `i64::try_from(fence)`, and
//! `Fence::try_from(number)` back.
//!
//! ```
//! use clinch::Fence;
//! use clinch::fencing::sql;
//! use rusqlite::{Connection, params};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let database = Connection::open_in_memory()?;
//! database.execute(sql::CREATE, [])?;
//! // From `guard.fence()`: alice was first, bob has the lock now.
//! let (alice, bob) = (i64::try_from(Fence::new(33))?, i64::try_from(Fence::new(34))?);
//!
//! assert_eq!(database.execute(sql::UPSERT, params![200, bob, "7"])?, 1);
//! assert_eq!(database.execute(sql::UPDATE, params![100, alice, "7"])?, 0); // she is too late
//! let balance: i64 = database.query_row("SELECT balance FROM account", [], |row| row.get(0))?;
//! assert_eq!(balance, 200);
//! # Ok(())
//! # }
//! ```
//!
//! # What to watch
//! - Several rows: check the count of each, and roll the whole transaction back at the first 0.
//! - Where the old row does not matter to you, only that nobody comes in between, one row of its own per lock will do:
//!   `UPSERT` it first in the transaction, go on if it affected a row, roll back if it did not.
//! - MySQL counts the rows that *changed*, unless the connection asks for those that were found
//!   (`CLIENT_FOUND_ROWS`); without that, the second of two equal writes looks stale. Its upsert has no `WHERE`.
//! - A `DELETE` asks for the fence as well, and takes the memory of it along: where a late write could bring the row
//!   back, mark the row as deleted instead.

use std::num::TryFromIntError;

use crate::lease::Fence;

/// A table whose rows check fences: replace all but the last column by your own.
pub const CREATE: &str = "\
CREATE TABLE account (id VARCHAR(64) PRIMARY KEY, balance BIGINT NOT NULL, fence BIGINT NOT NULL DEFAULT 0)";

/// Writes a row that is there: `$1` the value, `$2` the fence, `$3` the row. Affects no row if the write is stale, or if
/// there is no such row.
///
/// As PostgreSQL and SQLite take it. (SQLite counts parameters in the order in which they are first used, so let that be
/// the order of their numbers.)
pub const UPDATE: &str = "\
UPDATE account SET balance = $1, fence = $2 WHERE id = $3 AND fence <= $2";

/// Writes a row whether it is there or not: `$1` the value, `$2` the fence, `$3` the row. Affects no row if the write is
/// stale.
///
/// As PostgreSQL and SQLite (3.24 and later) take it.
pub const UPSERT: &str = "\
INSERT INTO account (balance, fence, id) VALUES ($1, $2, $3)
ON CONFLICT (id) DO UPDATE SET balance = excluded.balance, fence = excluded.fence
WHERE account.fence <= excluded.fence";

/// As a database keeps it.
impl TryFrom<Fence> for i64 {
    type Error = TryFromIntError;

    fn try_from(fence: Fence) -> Result<Self, TryFromIntError> {
        fence.get().try_into()
    }
}

/// As a database kept it.
impl TryFrom<i64> for Fence {
    type Error = TryFromIntError;

    fn try_from(number: i64) -> Result<Self, TryFromIntError> {
        number.try_into().map(Self::new)
    }
}
