//! The engine that a command runs on: one of its own, started for it, or one that is there.

use std::path::PathBuf;

use clinch_testkit::server::{RedisServer, Reply};
use rusqlite::{Connection, OpenFlags};
use tempfile::TempDir;

/// Which engine.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct StoreArg {
    /// `redis` for a server of its own, `sqlite` for a file of its own, or the URL of an engine that is there and that nobody
    /// else uses.
    #[arg(long, value_name = "ENGINE", default_value = "redis")]
    store: String,
}

pub(super) enum Engine {
    Redis(RedisServer),
    Sqlite(PathBuf, #[expect(dead_code, reason = "removed when it is dropped")] Option<TempDir>),
    Other(String),
}

impl Engine {
    pub(super) fn of(arg: &StoreArg) -> Self {
        Self::named(&arg.store)
    }

    pub(super) fn named(store: &str) -> Self {
        match store {
            "redis" => Self::Redis(RedisServer::start()),
            "sqlite" => {
                let folder = tempfile::tempdir().unwrap();
                Self::Sqlite(folder.path().join("locks.db"), Some(folder))
            }
            url => match url.strip_prefix("sqlite:") {
                Some(path) => Self::Sqlite(path.strip_prefix("//").unwrap_or(path).into(), None),
                None => Self::Other(url.to_owned()),
            },
        }
    }

    pub(super) fn url(&self) -> String {
        match self {
            Self::Redis(server) => server.url(),
            Self::Sqlite(path, _) => format!("sqlite:{}", path.display()),
            Self::Other(url) => url.clone(),
        }
    }

    pub(super) const fn name(&self) -> &'static str {
        match self {
            Self::Redis(_) => "Redis",
            Self::Sqlite(..) => "SQLite",
            Self::Other(_) => "the given engine",
        }
    }

    pub(super) const fn redis(&self) -> Option<&RedisServer> {
        match self {
            Self::Redis(server) => Some(server),
            _ => None,
        }
    }

    /// The keys of which something is left; of an engine that is not the command's own, nobody knows.
    pub(super) fn left(&self) -> Vec<String> {
        match self {
            Self::Redis(server) => {
                let mut keys = server.keys("*");
                // That several waited is remembered for a second after them.
                keys.retain(|key| !key.contains("writer:{"));
                keys
            }
            Self::Sqlite(path, _) => {
                let file = look(path);
                let mut keys = file.prepare("SELECT key FROM places UNION SELECT key FROM waiting").unwrap();
                let keys = keys.query_map([], |row| row.get(0)).unwrap();
                keys.collect::<Result<_, _>>().unwrap()
            }
            Self::Other(_) => Vec::new(),
        }
    }

    /// How many stand in the queue for this lock.
    pub(super) fn queue_length(&self, key: &str) -> usize {
        let length = match self {
            Self::Redis(server) => {
                server.command(&["LLEN", &format!("clinch:queue:{{clinch:lock:{key}}}")]).int().unwrap()
            }
            Self::Sqlite(path, _) => {
                count(path, "SELECT count(*) FROM waiting WHERE key = ?1 AND turn > 0", key)
            }
            Self::Other(_) => panic!("nobody knows how to look into the queues of that engine"),
        };
        length.try_into().unwrap()
    }

    /// How many connections want to hear of this lock.
    pub(super) fn listeners(&self, key: &str) -> i64 {
        match self {
            Self::Redis(server) => {
                let channel = format!("clinch:wake:{{clinch:lock:{key}}}");
                match server.command(&["PUBSUB", "NUMSUB", &channel]) {
                    Reply::Array(answer) => answer[1].int().unwrap(),
                    other => panic!("{other:?}"),
                }
            }
            Self::Sqlite(path, _) => count(path, "SELECT count(*) FROM listeners WHERE key = ?1", key),
            Self::Other(_) => panic!("nobody knows how to look into that engine"),
        }
    }
}

/// Looks at the file beside those who use it.
fn look(path: &PathBuf) -> Connection {
    let file = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE).unwrap();
    file.busy_timeout(std::time::Duration::from_secs(5)).unwrap();
    file
}

fn count(path: &PathBuf, sql: &str, key: &str) -> i64 {
    look(path).query_row(sql, [format!("lock:{key}")], |row| row.get(0)).unwrap()
}
