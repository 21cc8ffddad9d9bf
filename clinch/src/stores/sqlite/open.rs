//! Opening the file: is it ours, is it of this boot, and how SQLite is to treat it.
//!
//! A file that is not ours is not touched: everything is asked before anything is set.

use rusqlite::{Connection, ErrorCode, MAIN_DB, OpenFlags, TransactionBehavior, params};

use super::address::File;
use super::clock::wall;
use super::error::{Fault, READ_ONLY};
use super::site::Site;
use super::{address, busy};
use crate::store::{ErrorKind, StoreError};

const SCHEMA: &str = include_str!("schema.sql");
/// Marks a database as Clinch's: the letters `CLNC`.
const APPLICATION: i32 = 0x434C_4E43;
/// The version of the schema.
const VERSION: i32 = 1;

/// In WAL mode, a commit is safe from the death of its process without any sync. A loss of power may take the last commits
/// with it, never half of one: of leases, whose holders died with the machine. Records are synced (see `session.rs`).
const SETTINGS: &str = "
    PRAGMA synchronous = NORMAL;
    PRAGMA journal_size_limit = 4194304;
    PRAGMA temp_store = MEMORY;
    PRAGMA trusted_schema = OFF;
";

/// Opens the file, and makes it if there is none and none is expected. For locks it waits as long as [`busy::wait_until`] was told.
pub(super) fn open(site: &Site) -> Result<Connection, StoreError> {
    try_open(site).map_err(|fault| fault.not_applied(&site.path))
}

fn try_open(site: &Site) -> Result<Connection, Fault> {
    address::find(&site.path, site.file)?;
    address::refuse_network(&site.path)?;
    let mut flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    flags.set(OpenFlags::SQLITE_OPEN_CREATE, site.file == File::Made);
    let mut connection = Connection::open_with_flags(&site.path, flags)?;
    connection.busy_handler(Some(busy::again))?;
    if connection.is_readonly(MAIN_DB)? {
        let message = format!("SQLite at {}: {READ_ONLY}", site.path.display());
        return Err(StoreError::not_applied(ErrorKind::ReadOnly, message).into());
    }
    is_new(&connection, site)?;
    use_log(&connection, site)?;
    connection.execute_batch(SETTINGS)?;
    let boot = || connection.query_row("SELECT boot FROM machine", [], |row| row.get::<_, String>(0));
    if is_new(&connection, site)? || boot()? != site.clock.boot {
        begin_boot(&mut connection, site)?;
    }
    Ok(connection)
}

/// Whether there is nothing in it; an error if what is in it is not ours.
fn is_new(connection: &Connection, site: &Site) -> Result<bool, Fault> {
    // In one look, because others may be making the tables right now.
    let look = connection.is_autocommit().then(|| connection.unchecked_transaction()).transpose()?;
    let connection = look.as_deref().unwrap_or(connection);
    let number = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, i32>(0));
    let (application, version) = (number("PRAGMA application_id")?, number("PRAGMA user_version")?);
    let refused = |what: String| {
        let message = format!("{} {what}; it was not touched", site.path.display());
        Err(StoreError::not_applied(ErrorKind::Protocol, message).into())
    };
    match (application, version) {
        (APPLICATION, VERSION) => Ok(false),
        (APPLICATION, newer) if newer > VERSION => refused(format!(
            "was written by a newer Clinch (version {newer} of its tables, this one knows {VERSION}): use that one, or name \
             another file"
        )),
        (0, 0) if number("SELECT count(*) FROM sqlite_schema")? == 0 => Ok(true),
        _ => refused("is a database of something else: name another file".to_owned()),
    }
}

/// Switches to the write-ahead log, which lets readers and one writer go on beside each other. It stays with the file.
fn use_log(connection: &Connection, site: &Site) -> Result<(), Fault> {
    let switched = || connection.query_row("PRAGMA journal_mode = WAL", [], |row| row.get::<_, String>(0));
    let mut tries = 0;
    let mode = loop {
        match switched() {
            // SQLite does not ask its handler here if two switch at the same time.
            Err(error)
                if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) && busy::again(tries) =>
            {
                tries += 1;
            }
            mode => break mode?,
        }
    };
    if mode.eq_ignore_ascii_case("wal") {
        return Ok(());
    }
    let message = format!(
        "SQLite at {}: this file system does not let processes share memory, which the log needs; name a file on another one",
        site.path.display()
    );
    Err(StoreError::not_applied(ErrorKind::Config, message).into())
}

/// Makes the tables, or takes over those of another boot of the machine: whoever held a lease then is dead, and what
/// records have left is known by the wall clock.
fn begin_boot(connection: &mut Connection, site: &Site) -> Result<(), Fault> {
    let step = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let (boot, now, wall) = (&site.clock.boot, site.clock.now(), wall());
    // Somebody else may have been faster.
    if is_new(&step, site)? {
        step.execute_batch(SCHEMA)?;
        step.pragma_update(None, "application_id", APPLICATION)?;
        step.pragma_update(None, "user_version", VERSION)?;
        step.execute(
            "INSERT INTO machine (id, boot, fence, swept, sweep_from) VALUES (1, ?1, 0, ?2, 0)",
            params![boot, now.0],
        )?;
    } else if step
        .execute("UPDATE machine SET boot = ?1, swept = ?2 WHERE boot <> ?1", params![boot, now.0])?
        > 0
    {
        let void = step.execute("DELETE FROM places WHERE done IS NULL", [])?;
        step.execute_batch("DELETE FROM waiting; DELETE FROM listeners; DELETE FROM events;")?;
        // Never longer than it was to be kept, whatever became of the wall clock.
        step.execute(
            "UPDATE places SET expires = ?1 + (SELECT min(wall_expires - ?2, kept_for) FROM records WHERE id = places.done)",
            params![now.0, wall],
        )?;
        step.execute("DELETE FROM places WHERE expires <= ?1", [now.0])?;
        tracing::info!(file = %site.path.display(), leases = void, "the machine was started anew; the leases of before are over");
    }
    step.commit()?;
    // What there always is has its place in the file itself from here on: the log can then be emptied also on a full disk.
    checkpoint(connection)?;
    Ok(())
}

/// Moves what is in the log into the file, and gives its room back, unless somebody reads it just now.
pub(super) fn checkpoint(connection: &Connection) -> rusqlite::Result<()> {
    connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
}
