//! The statements, each prepared once a connection.

use rusqlite::{Connection, Statement};

macro_rules! statements {
    ($($(#[$meta:meta])* $name:ident: $sql:expr,)*) => {
        /// Prepared statements of one connection.
        pub(super) struct Statements<'c> {
            $($(#[$meta])* pub(super) $name: Statement<'c>,)*
        }

        impl<'c> Statements<'c> {
            pub(super) fn prepare(connection: &'c Connection) -> rusqlite::Result<Self> {
                Ok(Self { $($name: connection.prepare($sql)?,)* })
            }
        }
    };
}

statements! {
    begin: "BEGIN IMMEDIATE",
    begin_reading: "BEGIN DEFERRED",
    commit: "COMMIT",
    rollback: "ROLLBACK",
    machine: "SELECT boot, fence, swept FROM machine",
    set_fence: "UPDATE machine SET fence = ?1",

    places: "SELECT token, mode, expires, fence, footing, done FROM places WHERE hash = ?1 AND prefix = ?2 AND key = ?3",
    put_place: "INSERT INTO places (hash, prefix, key, token, mode, expires, fence, footing, done)
                VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
                ON CONFLICT (hash, prefix, key, token) DO UPDATE SET
                    mode = excluded.mode, expires = excluded.expires, fence = excluded.fence,
                    footing = excluded.footing, done = excluded.done",
    drop_place: "DELETE FROM places WHERE hash = ?1 AND prefix = ?2 AND key = ?3 AND token = ?4",
    page: "SELECT hash, key, token, mode, expires, fence FROM places
           WHERE hash >= ?1 AND prefix = ?2 AND expires > ?3 AND done IS NULL ORDER BY hash",

    record: "SELECT content FROM records WHERE id = ?1",
    put_record: "INSERT INTO records (content, wall_expires, kept_for) VALUES (?1, ?2, ?3)",

    waiting: "SELECT turn, token, until, confirm FROM waiting WHERE hash = ?1 AND prefix = ?2 AND key = ?3 ORDER BY turn",
    put_waiting: "INSERT INTO waiting (hash, prefix, key, turn, token, until, confirm) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
                  ON CONFLICT (hash, prefix, key, turn) DO UPDATE SET
                    token = excluded.token, until = excluded.until, confirm = excluded.confirm",
    drop_waiting: "DELETE FROM waiting WHERE hash = ?1 AND prefix = ?2 AND key = ?3 AND turn = ?4",

    listeners: "SELECT count(*) FROM listeners WHERE hash = ?1 AND prefix = ?2 AND key = ?3 AND store <> ?4 AND until > ?5",
    put_listener: "INSERT INTO listeners (hash, prefix, key, store, until) VALUES (?1, ?2, ?3, ?4, ?5)
                   ON CONFLICT (hash, prefix, key, store) DO UPDATE SET until = excluded.until",
    keep_listeners: "UPDATE listeners SET until = ?2 WHERE store = ?1",
    drop_listener: "DELETE FROM listeners WHERE hash = ?1 AND prefix = ?2 AND key = ?3 AND store = ?4",
    drop_listeners: "DELETE FROM listeners WHERE store = ?1",

    put_event: "INSERT INTO events (at, store, kind, prefix, key, token) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
    last_event: "SELECT coalesce(max(id), 0) FROM events",
    events: "SELECT id, store, kind, prefix, key, token FROM events WHERE id > ?1 ORDER BY id",
    /// Changes whenever another connection has committed something.
    data_version: "PRAGMA data_version",

    sweep_from: "SELECT sweep_from, swept FROM machine",
    sweep_until: "SELECT hash FROM places WHERE hash >= ?1 ORDER BY hash LIMIT 1 OFFSET ?2",
    sweep_places: "DELETE FROM places WHERE hash BETWEEN ?1 AND ?2 AND expires <= ?3",
    sweep_waiting: "DELETE FROM waiting WHERE until <= ?1",
    sweep_listeners: "DELETE FROM listeners WHERE until <= ?1",
    /// From the beginning, and never the last one: numbers stay without gaps and go on rising.
    sweep_events: "DELETE FROM events WHERE id < (SELECT max(id) FROM events) AND id <= max(
                       (SELECT coalesce(max(id), 0) FROM events WHERE at <= ?1), (SELECT max(id) FROM events) - ?2)",
    set_swept: "UPDATE machine SET swept = ?1, sweep_from = ?2",
}

impl std::fmt::Debug for Statements<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Statements")
    }
}
