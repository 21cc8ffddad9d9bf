//! One connection at work: steps as transactions.
//!
//! A step is `BEGIN IMMEDIATE`, a look at everything, the writes, and `COMMIT`: all of it or nothing, whenever the process
//! dies. `sync` is left to SQLite's checkpoints, so a lock cycle waits for no disk; but what leaves a record does.

use std::path::Path;

use rusqlite::{Connection, params};
use tokio::time::Instant;

use super::address::{self, Identity};
use super::clock::{At, micros};
use super::error::Fault;
use super::open;
use super::site::{Name, Site};
use super::statements::Statements;
use super::sweep;
use super::ticket::Ticket;
use crate::lease::ClaimKey;
use crate::store::{ErrorKind, Revocation, StoreError};
use crate::stores::rules::entry::Call;

/// What a step is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Read,
    Write,
    /// What it writes is on the disk when it is answered.
    Durable,
}

/// So much of the disk is left for renewing and giving back: some ten steps, and the log that they share.
pub(super) const RESERVE: u64 = 256 << 10;

/// What others are told, by its number in the file.
pub(super) const FREE: i64 = 0;
pub(super) const TURN: i64 = 1;
pub(super) const REVOKED: i64 = 2;

#[derive(Debug)]
pub(super) struct Session<'c> {
    site: &'c Site,
    connection: &'c Connection,
    pub(super) sql: Statements<'c>,
    identity: Option<Identity>,
    /// Nobody has looked for what has expired for a while.
    pub(super) is_unswept: bool,
}

/// A step at work.
#[derive(Debug)]
pub(super) struct Tx<'s, 'c> {
    pub(super) site: &'c Site,
    pub(super) sql: &'s mut Statements<'c>,
    pub(super) connection: &'c Connection,
    /// Read after the write lock was got, so it rises from step to step over all processes.
    pub(super) now: At,
    /// The last fence that was given.
    pub(super) fence: i64,
    pub(super) effects: Effects,
}

/// What is to follow once the step is committed.
#[derive(Debug, Default)]
pub(super) struct Effects {
    /// Whom to wake in this process.
    pub(super) calls: Vec<(ClaimKey, Call)>,
    pub(super) revoked: Vec<Revocation>,
    /// How many other stores will be woken.
    pub(super) told: u32,
}

/// A step that was carried out.
#[derive(Debug)]
pub(super) struct Done<T> {
    pub(super) answer: T,
    pub(super) effects: Effects,
    /// Just before its first look at anything.
    pub(super) began: Instant,
}

/// A step that was not.
#[derive(Debug)]
pub(super) enum Undone {
    /// Its caller has given up.
    GivenUp,
    Failed {
        error: StoreError,
        /// A new connection may do better.
        reconnect: bool,
        /// There was no room on the disk.
        full: bool,
    },
}

/// The connection, and which file it is to.
#[derive(Debug)]
pub(super) struct Connected {
    connection: Connection,
    identity: Option<Identity>,
}

impl Connected {
    pub(super) fn to(site: &Site) -> Result<Self, StoreError> {
        // Asked before the file is opened: should it be replaced in between, that is noticed before the first step.
        address::find(&site.path, site.file)?;
        let identity = Identity::of(&site.path);
        Ok(Self { connection: open::open(site)?, identity })
    }
}

impl<'c> Session<'c> {
    pub(super) fn new(site: &'c Site, connected: &'c Connected) -> Result<Self, StoreError> {
        let sql = Statements::prepare(&connected.connection);
        let sql = sql.map_err(|error| Fault::from(error).not_applied(&site.path))?;
        let (connection, identity) = (&connected.connection, connected.identity);
        Ok(Self { site, connection, sql, identity, is_unswept: false })
    }

    pub(super) fn path(&self) -> &Path {
        self.site.path.as_path()
    }

    /// Whether the path names another file by now, or none: then we would go on in one that nobody else sees.
    pub(super) fn has_moved(&self) -> bool {
        Identity::of(self.path()) != self.identity
    }

    /// Whether there is room for something new, and still for those who have something to renew it and to give it back.
    pub(super) fn has_room(&self) -> Result<(), StoreError> {
        let free = || address::free_bytes(self.path()).filter(|free| *free < RESERVE);
        // While there is room for what is in the log to go into the file, and not only when there is none.
        let still = free().and_then(|_| {
            self.empty_log();
            // What was swept is room inside the file.
            let inside = "SELECT freelist_count * page_size FROM pragma_freelist_count, pragma_page_size";
            let inside: u32 = self.connection.query_row(inside, [], |row| row.get(0)).unwrap_or(0);
            free().filter(|free| free + u64::from(inside) < RESERVE)
        });
        match still {
            None => Ok(()),
            Some(free) => {
                let message = format!(
                    "SQLite at {}: only {free} bytes are free on its file system, and the last {RESERVE} are for renewing and \
                     giving back what is held; free some space",
                    self.path().display()
                );
                Err(StoreError::not_applied(ErrorKind::Full, message))
            }
        }
    }

    /// Carries a step out, unless its caller gives up before it begins.
    pub(super) fn carry_out<T>(
        &mut self,
        kind: Kind,
        ticket: &Ticket,
        work: impl FnOnce(&mut Tx<'_, 'c>) -> Result<T, Fault>,
    ) -> Result<Done<T>, Undone> {
        let synced = kind == Kind::Durable && self.sync_commits(true);
        let done = self.in_transaction(kind, ticket, work);
        if synced {
            self.sync_commits(false);
        }
        done
    }

    fn in_transaction<T>(
        &mut self,
        kind: Kind,
        ticket: &Ticket,
        work: impl FnOnce(&mut Tx<'_, 'c>) -> Result<T, Fault>,
    ) -> Result<Done<T>, Undone> {
        let begin = if kind == Kind::Read { &mut self.sql.begin_reading } else { &mut self.sql.begin };
        begin.execute([]).map_err(|error| self.undone(error.into()))?;
        let Some(began) = ticket.begin() else {
            self.roll_back();
            return Err(Undone::GivenUp);
        };
        let answer = self.look(kind).and_then(|(now, fence)| {
            let mut tx = Tx {
                site: self.site,
                sql: &mut self.sql,
                connection: self.connection,
                now,
                fence,
                effects: Effects::default(),
            };
            Ok((work(&mut tx)?, tx.effects))
        });
        match answer {
            Err(fault) => {
                self.roll_back();
                Err(self.undone(fault))
            }
            Ok((answer, effects)) => match self.sql.commit.execute([]) {
                Ok(_) => Ok(Done { answer, effects, began }),
                Err(error) => {
                    self.roll_back();
                    let fault = Fault::from(error);
                    let (reconnect, full) = (fault.is_of_connection(), fault.is_full());
                    Err(Undone::Failed { error: fault.of_commit(self.path()), reconnect, full })
                }
            },
        }
    }

    /// The time, and the last fence. The times in the file must be of this boot.
    fn look(&mut self, kind: Kind) -> Result<(At, i64), Fault> {
        let boot = self.site.clock.boot.as_str();
        let (ours, fence, swept): (bool, i64, i64) = self
            .sql
            .machine
            .query_row([], |row| Ok((row.get_ref(0)?.as_str()? == boot, row.get(1)?, row.get(2)?)))?;
        if !ours {
            let message = format!(
                "SQLite at {}: the file was taken over by another boot or another machine, and one file serves one machine; \
                 nothing was changed",
                self.path().display()
            );
            return Err(StoreError::not_applied(ErrorKind::Protocol, message).into());
        }
        let now = self.site.clock.now();
        self.is_unswept |= kind != Kind::Read && sweep::is_due(now, swept);
        Ok((now, fence))
    }

    fn undone(&self, fault: Fault) -> Undone {
        let (reconnect, full) = (fault.is_of_connection(), fault.is_full());
        Undone::Failed { error: fault.not_applied(self.path()), reconnect, full }
    }

    fn roll_back(&mut self) {
        // SQLite has already done so after some errors; if it cannot now, it does when the connection is closed.
        if !self.connection.is_autocommit() && self.sql.rollback.execute([]).is_err() {
            tracing::debug!(file = %self.path().display(), "a step could not be rolled back at once");
        }
    }

    /// Whether commits wait for the disk; says whether it could be set.
    fn sync_commits(&self, sync: bool) -> bool {
        let how = if sync { "PRAGMA synchronous = FULL" } else { "PRAGMA synchronous = NORMAL" };
        self.connection.execute_batch(how).is_ok()
    }

    /// Makes room: what is in the log goes into the file, where its pages mostly have their place already. Says whether it could.
    pub(super) fn empty_log(&self) -> bool {
        open::checkpoint(self.connection).is_ok()
    }
}

impl Tx<'_, '_> {
    /// The number of the row that was inserted last.
    pub(super) fn last_id(&self) -> i64 {
        self.connection.last_insert_rowid()
    }

    /// Wakes those who wait for a key, once the step is committed: here directly, elsewhere by a message.
    pub(super) fn tell(&mut self, name: &Name, call: Call) -> Result<(), Fault> {
        let (kind, token) = match &call {
            Call::Nobody => return Ok(()),
            Call::Everybody => (FREE, ""),
            Call::Heir(token) => (TURN, token.as_str()),
        };
        let others = self.message(name, kind, &name.key, token)?;
        self.effects.told += if kind == TURN { others.min(1) } else { others };
        if let Some(on) = super::site::parse(&name.key) {
            self.effects.calls.push((on, call));
        }
        Ok(())
    }

    /// Tells everybody that a lease was ended by force.
    pub(super) fn tell_revoked(&mut self, revocation: Revocation) -> Result<(), Fault> {
        let to = self.site.revocations();
        let key = revocation.on.to_string();
        self.message(&to, REVOKED, &key, revocation.token.as_str())?;
        self.effects.revoked.push(revocation);
        Ok(())
    }

    /// Leaves a message if another store listens to that name, and says how many do.
    fn message(&mut self, to: &Name, kind: i64, key: &str, token: &str) -> Result<u32, Fault> {
        let (prefix, store) = (self.site.prefix.as_str(), self.site.store);
        let listening = params![to.hash, prefix, to.key, store, self.now.0];
        let others: u32 = self.sql.listeners.query_row(listening, |row| row.get(0))?;
        if others > 0 {
            self.sql.put_event.execute(params![self.now.0, store, kind, prefix, key, token])?;
        }
        Ok(others)
    }

    /// So much later, by the file's clock.
    pub(super) fn later(&self, time: std::time::Duration) -> i64 {
        self.now.0.saturating_add(micros(time))
    }
}
