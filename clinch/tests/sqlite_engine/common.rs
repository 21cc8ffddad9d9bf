//! A file of a test's own, and short ways to use it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clinch::lease::{Attempt, Claim, ClaimKey, Token};
use clinch::store::{Denial, Effect, ErrorKind, Grant, Store, StoreError, Verdict};
use clinch::stores::StoreOptions;
use clinch::stores::sqlite::SqliteStore;
use clinch::{Holder, Key};
use rusqlite::Connection;
use tempfile::TempDir;

/// Longer than any test takes.
pub(crate) const LONG: Duration = Duration::from_secs(60);
/// So long that it is not over before a busy machine has looked, and short enough to wait for.
pub(crate) const MOMENT: Duration = Duration::from_secs(3);

pub(crate) struct Folder(TempDir);

impl Folder {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn file(&self) -> PathBuf {
        self.0.path().join("locks.db")
    }

    pub(crate) async fn store(&self) -> SqliteStore {
        self.try_store().await.unwrap()
    }

    pub(crate) async fn try_store(&self) -> Result<SqliteStore, StoreError> {
        // A busy machine must not turn into time-outs.
        let mut options = StoreOptions::default();
        options.call_timeout = LONG / 2;
        SqliteStore::open(self.file(), &options).await
    }

    /// A look into the file, beside those who use it.
    pub(crate) fn look(&self) -> Connection {
        let file = Connection::open(self.file()).unwrap();
        file.busy_timeout(Duration::from_secs(10)).unwrap();
        file
    }

    /// Waits until nobody has it open any more: whoever closes it last puts the log away.
    pub(crate) fn wait_until_closed(&self) {
        let started = std::time::Instant::now();
        while self.path().join("locks.db-wal").exists() {
            assert!(started.elapsed() < LONG, "somebody still uses the file");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    pub(crate) fn count(&self, table: &str) -> u32 {
        let count = format!("SELECT count(*) FROM {table}");
        self.look().query_row(&count, [], |row| row.get(0)).unwrap()
    }
}

pub(crate) fn key(text: &str) -> Key {
    Key::new(text).unwrap()
}

pub(crate) fn token() -> Token {
    Token::from_text(format!("{:032x}@test:{}:", rand::random::<u128>(), std::process::id()))
}

pub(crate) fn lock(text: &str, ttl: Duration) -> Attempt {
    Attempt::one(token(), Claim::exclusive(key(text), ttl))
}

/// An attempt for all of these locks.
pub(crate) fn locks(texts: &[&str], ttl: Duration) -> Attempt {
    Attempt::new(token(), texts.iter().map(|text| Claim::exclusive(key(text), ttl)).collect()).unwrap()
}

pub(crate) fn on(text: &str) -> ClaimKey {
    ClaimKey::lock(key(text))
}

pub(crate) async fn granted(store: &dyn Store, attempt: &Attempt) -> Grant {
    match store.acquire(attempt).await.unwrap() {
        Verdict::Granted(grant) => grant,
        other => panic!("{other:?}"),
    }
}

pub(crate) async fn denied(store: &dyn Store, attempt: &Attempt) -> Denial {
    match store.acquire(attempt).await.unwrap() {
        Verdict::Denied(denial) => denial,
        other => panic!("{other:?}"),
    }
}

pub(crate) async fn holders(store: &dyn Store, text: &str) -> Vec<Holder> {
    store.inspect(&on(text)).await.unwrap()
}

/// Whose lock it is.
pub(crate) async fn holder(store: &dyn Store, text: &str) -> Option<Token> {
    holders(store, text).await.first().map(|holder| holder.token().clone())
}

/// What is said of an error that changed nothing, and whether a retry can help.
#[track_caller]
pub(crate) fn not_applied<T: std::fmt::Debug>(
    answer: Result<T, StoreError>,
    kind: ErrorKind,
    retry: bool,
) -> String {
    let error = answer.unwrap_err();
    assert_eq!(
        (error.kind(), error.effect(), error.is_retryable()),
        (kind, Effect::NotApplied, retry),
        "{error}"
    );
    error.to_string()
}
