//! What has expired leaves the file, so that it does not grow: looked for once a second, by whichever process comes by.
//!
//! Keys that are asked for are tidied by the way. The others are swept a part at a time, from hash to hash, so that a file
//! with many leases is not kept locked for long.

use std::time::{Duration, Instant};

use rusqlite::params;

use super::busy;
use super::clock::{At, micros};
use super::error::Fault;
use super::session::{Kind, Session, Tx, Undone};
use super::ticket::Ticket;
use crate::stores::rules::Moment as _;

const EVERY: Duration = Duration::from_secs(1);
/// When a good part of what was looked at had expired.
const SOON: Duration = Duration::from_millis(50);
/// How many places are looked at.
const PART: u32 = 2_000;
const MANY: usize = 500;
/// How long a sweep waits for the write lock: there will be another one.
const PATIENCE: Duration = Duration::from_millis(20);
/// For how long, and how many, messages are kept for slow listeners.
const KEPT: Duration = Duration::from_secs(60);
const MESSAGES: u32 = 10_000;

/// Whether it is time, if it was done last then.
pub(super) fn is_due(now: At, swept: i64) -> bool {
    now.since(At(swept)) >= EVERY
}

/// Sweeps, if it is time; `false` if the connection is no good any more.
pub(super) fn sweep_if_due(session: &mut Session<'_>) -> bool {
    if !std::mem::take(&mut session.is_unswept) {
        return true;
    }
    busy::wait_until(Instant::now() + PATIENCE, None);
    match session.carry_out(Kind::Write, &Ticket::default(), sweep) {
        Ok(_) => {
            session.is_unswept = false;
            true
        }
        Err(Undone::Failed { error, reconnect, .. }) => {
            tracing::debug!(%error, "could not sweep what has expired; the next one does");
            !reconnect
        }
        Err(Undone::GivenUp) => true,
    }
}

fn sweep(tx: &mut Tx<'_, '_>) -> Result<(), Fault> {
    let now = tx.now;
    let (from, swept): (i64, i64) = tx.sql.sweep_from.query_row([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    // Another process may have been faster.
    if !is_due(now, swept) {
        return Ok(());
    }
    let until = tx.sql.sweep_until.query_row(params![from, PART], |row| row.get(0));
    let until: i64 = match until {
        Err(rusqlite::Error::QueryReturnedNoRows) => i64::MAX,
        until => until?,
    };
    let gone = tx.sql.sweep_places.execute(params![from, until, now.0])?;
    tx.sql.sweep_waiting.execute([now.0])?;
    tx.sql.sweep_listeners.execute([now.0])?;
    tx.sql.sweep_events.execute(params![now.0.saturating_sub(micros(KEPT)), MESSAGES])?;
    let rest = if gone > MANY { EVERY - SOON } else { Duration::ZERO };
    let next = until.checked_add(1).unwrap_or(0);
    tx.sql.set_swept.execute(params![now.0.saturating_sub(micros(rest)), next])?;
    Ok(())
}
