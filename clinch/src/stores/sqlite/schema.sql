-- What a file of Clinch holds. Times are microseconds on the machine's clock (clock.rs), unless they say `wall`.
-- Keys are found by a hash of prefix and key: short to compare, and a number that a listing and a sweep can go on from.

-- One row. `boot` is the boot of the machine to which all times below belong.
CREATE TABLE machine (
    id         INTEGER PRIMARY KEY CHECK (id = 1),
    boot       TEXT    NOT NULL,
    fence      INTEGER NOT NULL,             -- the last one that was given, on whatever key
    swept      INTEGER NOT NULL,             -- when somebody looked for what has expired
    sweep_from INTEGER NOT NULL              -- the hash at which the next one goes on
);

-- Places that are taken: by holders, or by what a finished lease left.
CREATE TABLE places (
    hash    INTEGER NOT NULL,
    prefix  TEXT    NOT NULL,
    key     TEXT    NOT NULL,                -- with its space: lock:order:42
    token   TEXT    NOT NULL,
    mode    INTEGER NOT NULL,                -- 0 exclusive, -1 shared, n > 0: one of n permits
    expires INTEGER NOT NULL,
    fence   INTEGER,
    footing INTEGER NOT NULL,                -- 0 plain, 1 fair, 2 kept for the first in the queue
    done    INTEGER,                         -- the record; then nobody holds the place
    PRIMARY KEY (hash, prefix, key, token)
) WITHOUT ROWID;

-- Records of finished leases. They outlive the machine's boot, so they also know when they end by the wall clock.
CREATE TABLE records (
    id           INTEGER PRIMARY KEY,
    content      BLOB    NOT NULL,
    wall_expires INTEGER NOT NULL,
    kept_for     INTEGER NOT NULL
);

CREATE TRIGGER record_goes_with_its_place AFTER DELETE ON places WHEN old.done IS NOT NULL
BEGIN
    DELETE FROM records WHERE id = old.done;
END;

-- Those who hold nothing yet. Turn 0 is the writer that new readers let go first; from 1 on it is the key's queue.
CREATE TABLE waiting (
    hash    INTEGER NOT NULL,
    prefix  TEXT    NOT NULL,
    key     TEXT    NOT NULL,
    turn    INTEGER NOT NULL,
    token   TEXT    NOT NULL,
    until   INTEGER NOT NULL,
    confirm INTEGER NOT NULL,                -- a duration
    PRIMARY KEY (hash, prefix, key, turn)
) WITHOUT ROWID;

-- Stores that want to hear of a key, or of revocations (an empty key). One that has died is forgotten after `until`.
CREATE TABLE listeners (
    hash   INTEGER NOT NULL,
    prefix TEXT    NOT NULL,
    key    TEXT    NOT NULL,
    store  INTEGER NOT NULL,
    until  INTEGER NOT NULL,
    PRIMARY KEY (hash, prefix, key, store)
) WITHOUT ROWID;

-- What they are told. Numbers are without gaps; the last row always stays, so that they go on rising.
CREATE TABLE events (
    id     INTEGER PRIMARY KEY,
    at     INTEGER NOT NULL,
    store  INTEGER NOT NULL,                 -- by whom; that one knows already
    kind   INTEGER NOT NULL,                 -- 0 the key may be free, 1 it is this token's turn, 2 revoked
    prefix TEXT    NOT NULL,
    key    TEXT    NOT NULL,
    token  TEXT    NOT NULL
);
