//! What SQLite's errors, and those of the file system, mean for a step.

use std::io;
use std::path::Path;

use rusqlite::{Error, ErrorCode};

use crate::store::{ErrorKind, StoreError};

/// Why a step was not carried out.
#[derive(Debug)]
pub(super) enum Fault {
    Sqlite(Error),
    /// It was refused before SQLite was asked.
    Refused(StoreError),
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Self::Sqlite(error)
    }
}

impl From<StoreError> for Fault {
    fn from(error: StoreError) -> Self {
        Self::Refused(error)
    }
}

impl Fault {
    /// Whether another connection may do better.
    pub(super) fn is_of_connection(&self) -> bool {
        let Self::Sqlite(error) = self else { return false };
        !matches!(
            error.sqlite_error_code(),
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked | ErrorCode::DiskFull)
        )
    }

    pub(super) fn is_full(&self) -> bool {
        matches!(self, Self::Sqlite(error) if error.sqlite_error_code() == Some(ErrorCode::DiskFull))
    }

    /// What it means while nothing is written that was not rolled back.
    pub(super) fn not_applied(self, path: &Path) -> StoreError {
        match self {
            Self::Refused(error) => error,
            Self::Sqlite(error) => {
                let (kind, message) = meaning(&error, path);
                StoreError::not_applied(kind, message).with_source(error)
            }
        }
    }

    /// What it means when it came from the commit. A write that failed is not there, but after a failed sync it may be.
    pub(super) fn of_commit(self, path: &Path) -> StoreError {
        match self {
            Self::Sqlite(error) if error.sqlite_error_code() == Some(ErrorCode::SystemIoFailure) => {
                let (kind, message) = meaning(&error, path);
                StoreError::unknown(kind, message).with_source(error)
            }
            fault => fault.not_applied(path),
        }
    }
}

/// The kind of an error, and what happened, with what to do about it.
fn meaning(error: &Error, path: &Path) -> (ErrorKind, String) {
    let file = path.display();
    let (kind, what) = match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            (ErrorKind::Busy, "other processes kept it locked for the whole time limit")
        }
        Some(ErrorCode::DiskFull) => {
            (ErrorKind::Full, "there is no room for what is new; free some space on its file system")
        }
        Some(ErrorCode::OutOfMemory) => (ErrorKind::Full, "the process is out of memory"),
        Some(ErrorCode::ReadOnly) => (ErrorKind::ReadOnly, READ_ONLY),
        Some(ErrorCode::PermissionDenied | ErrorCode::AuthorizationForStatementDenied) => {
            (ErrorKind::Auth, "this user may not use it; change its owner or mode, or name another file")
        }
        Some(ErrorCode::CannotOpen) => (
            ErrorKind::Unavailable,
            "it cannot be opened; this user must be able to read and write the file and its directory",
        ),
        Some(ErrorCode::NotADatabase) => {
            (ErrorKind::Protocol, "it is no SQLite database; it was not touched: name another file")
        }
        Some(ErrorCode::DatabaseCorrupt) => {
            let message = format!("SQLite at {file}: the database is damaged; {MOVE_AWAY} ({error})");
            return (ErrorKind::Protocol, message);
        }
        Some(ErrorCode::SystemIoFailure) => {
            (ErrorKind::Unavailable, "reading or writing it failed; look at the disk and its file system")
        }
        Some(ErrorCode::FileLockingProtocolFailed) => {
            (ErrorKind::Busy, "other processes came in between again and again")
        }
        _ => (ErrorKind::Protocol, "it gave an answer that makes no sense"),
    };
    (kind, format!("SQLite at {file}: {what} ({error})"))
}

pub(super) const READ_ONLY: &str = "it can only be read; this user must be able to write the file and its directory, on a file system that is mounted for writing";

/// What to do about damage.
pub(super) const MOVE_AWAY: &str = "stop all that use it and move the file away with its `-wal` and `-shm`: a new one is made, without the leases and records of the old one";

/// A file that is expected, and is not there.
pub(super) fn not_there(path: &Path, error: io::Error) -> StoreError {
    let message = format!("SQLite at {}: there is no such file, and none was made", path.display());
    StoreError::not_applied(ErrorKind::Unavailable, message).with_source(error)
}

/// A file that was expected to be a database, and has not become one.
pub(super) fn empty(path: &Path) -> StoreError {
    let message = format!("SQLite at {}: the file is empty, and no database was made of it", path.display());
    StoreError::not_applied(ErrorKind::Unavailable, message)
        .with_source(io::Error::from(io::ErrorKind::NotFound))
}

/// A file or directory that could not be made.
pub(super) fn not_created(what: &str, path: &Path, error: io::Error) -> StoreError {
    let kind = match error.kind() {
        io::ErrorKind::PermissionDenied => ErrorKind::Auth,
        io::ErrorKind::ReadOnlyFilesystem => ErrorKind::ReadOnly,
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => ErrorKind::Full,
        // Something else stands where a directory should be: no retry makes one of it.
        io::ErrorKind::NotADirectory | io::ErrorKind::AlreadyExists | io::ErrorKind::InvalidFilename => {
            ErrorKind::Config
        }
        _ => ErrorKind::Unavailable,
    };
    let message =
        format!("cannot make {what} {}: {error}; make it yourself, or name another file", path.display());
    StoreError::not_applied(kind, message).with_source(error)
}
