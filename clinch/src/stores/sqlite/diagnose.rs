//! What a file, the file system under it and the rows in it say, and what of that can cost a lease.
//!
//! The file is only ever looked at from outside (`stat`) or through the store's own connection: whoever opened and closed it
//! beside SQLite would give up the locks of this process on it.

use std::path::{Path, PathBuf};

use rusqlite::params;
use rusqlite::types::FromSql;

use super::address::{self, FUSE, OVERLAY, TMPFS};
use super::error::{Fault, MOVE_AWAY};
use super::session::{RESERVE, Tx};
use crate::store::{Diagnosis, ErrorKind, Severity, StoreError};

/// With less room than this somebody should know, long before nothing new is granted.
const LITTLE_ROOM: u64 = 64 * RESERVE;
/// The log is put away at 4 MiB; it can be so much larger only if somebody keeps that from happening.
const LONG_LOG: u64 = 16 << 20;
/// Up to so many bytes the file is checked, which keeps the store's thread for some tenths of a second.
const CHECKED: i64 = 32 << 20;

/// A step that looks at the file from outside, and at how SQLite treats it.
pub(super) fn look(tx: &mut Tx<'_, '_>) -> Result<Diagnosis, Fault> {
    let mut diagnosis = Diagnosis::default();
    diagnosis.fact("version", rusqlite::version());
    // SQLite keeps the log beside the file itself, and not beside a link to it.
    let path = std::fs::canonicalize(&tx.site.path).unwrap_or_else(|_| tx.site.path.clone());
    of_file(&path, &mut diagnosis);
    of_file_system(&path, &mut diagnosis);
    room(address::free_bytes(&path), &mut diagnosis);
    of_clock(tx.site.clock.is_of_boot(), &mut diagnosis);
    settings(tx, &mut diagnosis)?;
    Ok(diagnosis)
}

/// Live places of ours and of other prefixes, what finished requests left, what is to be swept, those in queues, stores that
/// listen.
const COUNTS: &str = "
    SELECT (SELECT count(*) FROM places WHERE done IS NULL AND expires > ?1 AND prefix = ?2),
           (SELECT count(*) FROM places WHERE done IS NULL AND expires > ?1 AND prefix <> ?2),
           (SELECT count(*) FROM places WHERE done IS NOT NULL AND expires > ?1),
           (SELECT count(*) FROM places WHERE expires <= ?1),
           (SELECT count(*) FROM waiting WHERE until > ?1),
           (SELECT count(DISTINCT store) FROM listeners WHERE until > ?1)
";
const COUNTED: [&str; 6] =
    ["leases", "leases_of_other_prefixes", "records", "expired_rows", "waiting", "listeners"];

/// A step that counts what is in the file.
pub(super) fn count(tx: &mut Tx<'_, '_>) -> Result<[i64; COUNTED.len()], Fault> {
    let counts = tx.connection.query_row(COUNTS, params![tx.now.0, tx.site.prefix], |row| {
        let mut counts = [0; COUNTED.len()];
        for (column, count) in counts.iter_mut().enumerate() {
            *count = row.get(column)?;
        }
        Ok(counts)
    });
    Ok(counts?)
}

/// What came of counting.
pub(super) fn counted(
    counts: Result<[i64; COUNTED.len()], StoreError>,
    diagnosis: &mut Diagnosis,
) -> Result<(), StoreError> {
    match counts {
        Ok(counts) => COUNTED.into_iter().zip(counts).for_each(|(name, count)| diagnosis.fact(name, count)),
        // The check that follows says what and where.
        Err(error) if error.kind() == ErrorKind::Protocol => {
            COUNTED.into_iter().for_each(|name| diagnosis.hidden(name, "the file is damaged"));
        }
        Err(error) if is_of_time(&error) => {
            COUNTED.into_iter().for_each(|name| diagnosis.hidden(name, NO_TIME));
        }
        Err(error) => return Err(error),
    }
    Ok(())
}

/// A step that checks the structure of the file: `ok`, or what is wrong first; nothing if it is too large for that.
pub(super) fn check(tx: &mut Tx<'_, '_>) -> Result<Option<String>, Fault> {
    let bytes: i64 = ask(tx, "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size")?;
    if bytes > CHECKED {
        return Ok(None);
    }
    Ok(Some(ask(tx, "PRAGMA quick_check(1)")?))
}

/// What came of the check.
pub(super) fn checked(
    outcome: Result<Option<String>, StoreError>,
    diagnosis: &mut Diagnosis,
) -> Result<(), StoreError> {
    let damage = match outcome {
        Ok(Some(told)) if told == "ok" => {
            diagnosis.fact("integrity", "ok");
            return Ok(());
        }
        Ok(None) => {
            let why = format!(
                "only files of up to {CHECKED} bytes are checked here; `sqlite3 FILE 'PRAGMA quick_check'` checks any"
            );
            diagnosis.hidden("integrity", why);
            return Ok(());
        }
        Err(error) if is_of_time(&error) => {
            diagnosis.hidden("integrity", NO_TIME);
            return Ok(());
        }
        // SQLite breaks its lines.
        Ok(Some(damage)) => format!("the file is damaged: {}", damage.replace('\n', " ")),
        Err(error) if error.kind() == ErrorKind::Protocol => error.message().to_owned(),
        Err(error) => return Err(error),
    };
    diagnosis.fact("integrity", "damaged");
    diagnosis.finding("damage", Severity::Error, damage, MOVE_AWAY);
    Ok(())
}

const NO_TIME: &str = "not found out within the time limit of a call";

fn is_of_time(error: &StoreError) -> bool {
    matches!(error.kind(), ErrorKind::Timeout | ErrorKind::Overloaded | ErrorKind::Busy)
}

fn of_file(path: &Path, diagnosis: &mut Diagnosis) {
    diagnosis.fact("file", path.display());
    let log = beside(path, "-wal");
    for (name, path) in [("file_bytes", path), ("log_bytes", &log)] {
        match std::fs::metadata(path) {
            Ok(file) => diagnosis.fact(name, file.len()),
            Err(error) => diagnosis.hidden(name, error),
        }
    }
    let log = std::fs::metadata(log).map_or(0, |log| log.len());
    if log > LONG_LOG {
        let problem = format!(
            "the log beside the file has {log} bytes, and is to be put away at 4 MiB: either something very large was written just \
             now, or somebody has been reading the file for long; then it grows on, and makes every step slower"
        );
        let remedy = format!(
            "if it does not shrink, find who has the file open (`fuser {}`), like a forgotten `sqlite3` or a backup, and end that",
            path.display()
        );
        diagnosis.finding("log", Severity::Warning, problem, remedy);
    }
    of_modes(path, diagnosis);
}

/// Beside a file SQLite keeps others, under its name with an end.
fn beside(path: &Path, end: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(end);
    name.into()
}

/// Who else may read it, change it, or put another one in its place; and whether it has other names.
#[cfg(unix)]
fn of_modes(path: &Path, diagnosis: &mut Diagnosis) {
    use std::os::unix::fs::MetadataExt as _;
    const OTHERS_WRITE: u32 = 0o002;
    const OTHERS_READ: u32 = 0o004;
    /// Only owners remove what is in such a directory.
    const STICKY: u32 = 0o1000;
    let Ok(file) = std::fs::metadata(path) else { return };
    let mode = file.mode() & 0o7777;
    diagnosis.fact("file_mode", format!("{mode:04o}"));
    let shown = path.display();
    if mode & OTHERS_WRITE != 0 {
        let problem = "every user of this machine can write the file, and so take, end and forge leases";
        diagnosis.finding("others_write", Severity::Warning, problem, format!("`chmod o-rwx {shown}`"));
    } else if mode & OTHERS_READ != 0 {
        let problem = "every user of this machine can read the file: keys, holders, and the stored responses of requests";
        diagnosis.finding("others_read", Severity::Note, problem, format!("`chmod o-rwx {shown}`"));
    }
    if let Some((directory, entry)) = path.parent().and_then(|up| Some((up, std::fs::metadata(up).ok()?))) {
        let mode = entry.mode() & 0o7777;
        diagnosis.fact("directory_mode", format!("{mode:04o}"));
        if mode & OTHERS_WRITE != 0 && mode & STICKY == 0 {
            let problem = "every user of this machine can remove the file, or put another one in its place: all leases are then \
                           forgotten, and others can take what is still held";
            let remedy = format!("`chmod o-w {}`", directory.display());
            diagnosis.finding("others_replace", Severity::Warning, problem, remedy);
        }
    }
    if file.nlink() > 1 {
        let problem = format!(
            "the file has {} names (hard links): who uses it under another one has another log beside it, and both destroy what \
             the other writes",
            file.nlink()
        );
        let remedy = format!(
            "stop all that use it, and remove the other names (`find -samefile {shown}` lists them); a symbolic link does no harm"
        );
        diagnosis.finding("several_names", Severity::Error, problem, remedy);
    }
}

#[cfg(not(unix))]
fn of_modes(_path: &Path, diagnosis: &mut Diagnosis) {
    diagnosis.hidden("file_mode", "this system has none");
}

fn of_file_system(path: &Path, diagnosis: &mut Diagnosis) {
    let Some(kind) = address::kind_of_file_system(path) else {
        return diagnosis.hidden("file_system", "not told");
    };
    diagnosis.fact("file_system", &kind);
    let (severity, problem, remedy) = match kind.as_ref() {
        FUSE => (
            Severity::Warning,
            "the file is on a FUSE file system, which may be shared with other machines: SQLite cannot keep those apart",
            "unless all who use it are on this machine, put the file on a local disk",
        ),
        TMPFS => (
            Severity::Note,
            "the file is in memory and ends with the machine: so do leases anyway, but what is kept of finished requests is lost too",
            "where idempotency keys must outlive a restart of the machine, put the file on a disk",
        ),
        OVERLAY => (
            Severity::Note,
            "the file is in a layer of a container: other containers have one of their own, and it ends with the container",
            "where others are to be kept out, put the file on a volume that all of them mount",
        ),
        _ => return,
    };
    diagnosis.finding("file_system", severity, problem, remedy);
}

fn room(free: Option<u64>, diagnosis: &mut Diagnosis) {
    let Some(free) = free else { return diagnosis.hidden("free_bytes", "not told") };
    diagnosis.fact("free_bytes", free);
    let remedy = "free some space on its file system";
    if free < RESERVE {
        let problem = format!(
            "only {free} bytes are free, and the last {RESERVE} are for renewing and giving back what is held: nothing new is granted"
        );
        diagnosis.finding("disk", Severity::Error, problem, remedy);
    } else if free < LITTLE_ROOM {
        let problem = format!("only {free} bytes are free; with less than {RESERVE} nothing new is granted");
        diagnosis.finding("disk", Severity::Warning, problem, remedy);
    }
}

fn of_clock(of_boot: bool, diagnosis: &mut Diagnosis) {
    diagnosis.fact("clock", if of_boot { "of the boot" } else { "wall clock" });
    if !of_boot {
        let problem = "leases are counted by the wall clock, because this system does not tell which boot it is: when that is set, they \
                       end early or late";
        let remedy = "on Linux, let the process read `/proc/sys/kernel/random/boot_id`; elsewhere, do not let the clock be set in leaps";
        diagnosis.finding("clock", Severity::Warning, problem, remedy);
    }
}

/// How SQLite treats the file. The log is a condition for opening it, so there is nothing to find here.
fn settings(tx: &Tx<'_, '_>, diagnosis: &mut Diagnosis) -> Result<(), Fault> {
    diagnosis.fact("journal_mode", ask::<String>(tx, "PRAGMA journal_mode")?);
    let synchronous: u8 = ask(tx, "PRAGMA synchronous")?;
    let names = ["off", "normal", "full", "extra"];
    let name = names.get(usize::from(synchronous)).copied().unwrap_or("unknown");
    diagnosis.fact("synchronous", format!("{name} for leases, full for what finished requests leave"));
    let unused: i64 =
        ask(tx, "SELECT freelist_count * page_size FROM pragma_freelist_count, pragma_page_size")?;
    diagnosis.fact("unused_bytes", unused);
    Ok(())
}

/// The answer to a question that has one.
fn ask<T: FromSql>(tx: &Tx<'_, '_>, sql: &str) -> rusqlite::Result<T> {
    tx.connection.query_row(sql, [], |row| row.get(0))
}
