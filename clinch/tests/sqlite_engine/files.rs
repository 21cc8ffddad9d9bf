//! Files that are no good: a clear word on what and what to do, and nothing of them touched.

use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::time::Duration;

use clinch::store::{ErrorKind, Store};
use clinch::stores::StoreOptions;
use clinch::stores::sqlite::SqliteStore;
use clinch::{Error, LockManager};
use rusqlite::Connection;

use crate::common::{Folder, LONG, granted, holder, lock, not_applied};
use crate::kid::Kid;

/// The files of a folder, with their content.
fn content(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> =
        files.map(|path| (path.display().to_string(), std::fs::read(path).unwrap())).collect();
    files.sort();
    files
}

#[tokio::test]
async fn a_file_that_is_no_database_is_refused_and_not_touched() {
    let folder = Folder::new();
    for text in ["precious\n".repeat(200), "x".to_owned()] {
        std::fs::write(folder.file(), &text).unwrap();
        let said = not_applied(folder.try_store().await, ErrorKind::Protocol, false);
        assert!(said.contains("no SQLite database") && said.contains("not touched"), "{said}");
        assert_eq!(content(folder.path()), [(folder.file().display().to_string(), text.into_bytes())]);
    }
}

#[tokio::test]
async fn a_database_of_something_else_is_refused_and_not_touched() {
    let folder = Folder::new();
    let theirs = folder.look();
    theirs.execute_batch("CREATE TABLE places (name TEXT); INSERT INTO places VALUES ('precious')").unwrap();
    drop(theirs);
    let before = content(folder.path());
    let said = not_applied(folder.try_store().await, ErrorKind::Protocol, false);
    assert!(said.contains("database of something else") && said.contains("not touched"), "{said}");
    assert_eq!(content(folder.path()), before);
}

#[tokio::test]
async fn a_file_of_a_newer_version_is_refused_and_not_touched() {
    let folder = Folder::new();
    drop(folder.store().await);
    folder.wait_until_closed();
    let file = folder.look();
    file.execute_batch("PRAGMA journal_mode = DELETE; PRAGMA user_version = 7").unwrap();
    drop(file);
    let before = content(folder.path());
    let said = not_applied(folder.try_store().await, ErrorKind::Protocol, false);
    assert!(said.contains("newer Clinch (version 7") && said.contains("knows 1"), "{said}");
    assert_eq!(content(folder.path()), before);
}

/// A damaged file says so, whether that shows when it is opened or when a step comes to the damage; and nothing is granted on it.
#[tokio::test]
async fn a_damaged_file_says_so() {
    let folder = Folder::new();
    let store = folder.store().await;
    for i in 0..200 {
        granted(&store, &lock(&format!("k{i}"), LONG)).await;
    }
    drop(store);
    folder.wait_until_closed();
    let mut bytes = std::fs::read(folder.file()).unwrap();
    // Everything after the first page.
    for byte in bytes.iter_mut().skip(4096) {
        *byte = 0xA5;
    }
    std::fs::write(folder.file(), bytes).unwrap();
    let said = match folder.try_store().await {
        Err(error) => not_applied::<()>(Err(error), ErrorKind::Protocol, false),
        Ok(store) => not_applied(store.acquire(&lock("k1", LONG)).await, ErrorKind::Protocol, false),
    };
    assert!(said.contains("damaged") && said.contains("move the file away"), "{said}");
}

/// A file that this user may only read, and one that it may not even read.
#[tokio::test]
async fn a_file_that_cannot_be_written_says_so() {
    let folder = Folder::new();
    let store = folder.store().await;
    granted(&store, &lock("k", LONG)).await;
    drop(store);
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
    for (mode, kind, said) in
        [(0o444, "ReadOnly", "can only be read"), (0o400, "Unavailable", "must be able to read and write")]
    {
        std::fs::set_permissions(folder.file(), PermissionsExt::from_mode(mode)).unwrap();
        // The owner of this test may do anything.
        let wrapper = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];
        let wrapper = if rustix::process::geteuid().is_root() { &wrapper[..] } else { &[] };
        // Below a home that only its owner may enter, nobody else can start this program.
        if let [program, arguments @ ..] = wrapper {
            let mut reaches = std::process::Command::new(program);
            reaches.args(arguments).args(["test", "-x"]).arg(std::env::current_exe().unwrap());
            if !reaches.status().unwrap().success() {
                eprintln!("not shown: another user cannot reach this program");
                return;
            }
        }
        // To an owner who may read it is the same file.
        if mode == 0o400 && wrapper.is_empty() {
            continue;
        }
        let heard = Kid::under(wrapper, "tries to open", &folder.file()).hear();
        assert!(heard.starts_with(kind) && heard.contains(said) && heard.contains("not applied"), "{heard}");
    }
    std::fs::set_permissions(folder.file(), PermissionsExt::from_mode(0o600)).unwrap();
    assert!(holder(&folder.store().await, "k").await.is_some(), "nothing was lost");
}

#[tokio::test]
async fn a_directory_that_cannot_be_made_says_so() {
    let folder = Folder::new();
    std::fs::write(folder.path().join("file"), "").unwrap();
    let below_a_file = folder.path().join("file/state/locks.db");
    let said = not_applied(
        SqliteStore::open(below_a_file, &StoreOptions::default()).await,
        ErrorKind::Config,
        false,
    );
    assert!(said.contains("cannot make the directory") && said.contains("file/state"), "{said}");
    let a_directory = SqliteStore::open(folder.path(), &StoreOptions::default()).await;
    assert!(not_applied(a_directory, ErrorKind::Config, false).contains("is a directory"));
}

#[tokio::test]
async fn a_new_file_is_its_owners_alone_and_so_is_its_log() {
    let folder = Folder::new();
    let path = folder.path().join("state/clinch/locks.db");
    let url = format!("sqlite://{}", path.display());
    let locks = LockManager::connect(&url).await.unwrap();
    let guard = locks.lock("k", LONG).await.unwrap();
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&folder.path().join("state")), 0o700);
    for end in ["", "-wal", "-shm"] {
        assert_eq!(mode(Path::new(&format!("{}{end}", path.display()))), 0o600, "{end}");
    }
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_bad_address_is_an_invalid_url_with_what_is_accepted() {
    for url in
        ["sqlite:", "sqlite://host/locks.db", "sqlite::memory:", "sqlite:locks.db?mode=ro", "sqlite:/tmp/"]
    {
        match LockManager::connect(url).await {
            Err(Error::InvalidUrl { url: shown, reason }) => {
                assert_eq!(shown, url);
                assert!(reason.contains("accepted is `sqlite:///absolute/path.db`"), "{reason}");
            }
            other => panic!("{url}: {other:?}"),
        }
    }
}

/// Two prefixes in one file know nothing of each other, also where one could be part of the other's keys.
#[tokio::test]
async fn prefixes_keep_their_keys_apart() {
    let folder = Folder::new();
    let mut stores = Vec::new();
    for prefix in ["a", "a:lock", ""] {
        let mut options = StoreOptions::default();
        options.prefix = prefix.to_owned();
        stores.push(SqliteStore::open(folder.file(), &options).await.unwrap());
    }
    for store in &stores {
        granted(store, &lock("x", LONG)).await;
        granted(store, &lock("lock:x", LONG)).await;
    }
    for store in &stores {
        assert_eq!(store.list(clinch::store::Cursor::START).await.unwrap().holders.len(), 2);
    }
}

/// A file that was deleted, or replaced, while it was in use: its leases are lost, which the holder sees at its next renewal;
/// nobody goes on alone in a file that nobody else sees. Fences rise all the same.
#[tokio::test]
async fn a_file_that_was_deleted_is_noticed_at_the_next_step() {
    let folder = Folder::new();
    let (first, fence) = (folder.store().await, clinch::Fence::new(0));
    let fenced = |text: &str| {
        let claim = clinch::lease::Claim::exclusive(crate::common::key(text), LONG).fenced(fence);
        clinch::lease::Attempt::one(crate::common::token(), claim)
    };
    let lease = fenced("k");
    let before = granted(&first, &lease).await.fences;
    for end in ["", "-wal", "-shm"] {
        std::fs::remove_file(format!("{}{end}", folder.file().display())).unwrap();
    }
    let second = folder.store().await;
    let successor = fenced("k");
    let after = granted(&second, &successor).await.fences;
    assert!(after > before, "{before:?} {after:?}");
    assert_eq!(first.renew(&lease).await.unwrap(), clinch::store::Renewal::Lost);
    assert!(!first.release(&lease).await.unwrap().held);
    assert_eq!(holder(&first, "k").await.as_ref(), Some(successor.token()));
}

/// Where the file must be there, none is made: neither at the start nor in the place of one that was deleted.
#[tokio::test]
async fn a_file_that_must_be_there_is_never_made() {
    let folder = Folder::new();
    let url = format!("sqlite://{}?mode=rw", folder.file().display());
    let mut options = StoreOptions::default();
    options.call_timeout = LONG / 2;
    let said = not_applied(SqliteStore::connect(&url, &options).await, ErrorKind::Unavailable, true);
    assert!(said.contains("locks.db: there is no such file, and none was made"), "{said}");
    assert_eq!(content(folder.path()), []);
    drop(folder.store().await);
    folder.wait_until_closed();
    let store = SqliteStore::connect(&url, &options).await.unwrap();
    granted(&store, &lock("k", LONG)).await;
    for end in ["", "-wal", "-shm"] {
        std::fs::remove_file(format!("{}{end}", folder.file().display())).unwrap();
    }
    not_applied(store.acquire(&lock("k", LONG)).await, ErrorKind::Unavailable, true);
    assert_eq!(content(folder.path()), []);
}

/// Something else that writes into our file leaves rows that make no sense: that is said, and nothing is changed.
#[tokio::test]
async fn rows_that_make_no_sense_are_an_error_and_stay() {
    let folder = Folder::new();
    let store = folder.store().await;
    granted(&store, &lock("k", LONG)).await;
    folder.look().execute_batch("UPDATE places SET mode = -9").unwrap();
    for _ in 0..2 {
        let said = not_applied(store.acquire(&lock("k", LONG)).await, ErrorKind::Protocol, false);
        assert!(said.contains("mode"), "{said}");
    }
    assert_eq!(folder.count("places"), 1);
    granted(&store, &lock("other", Duration::from_secs(1))).await;
}

/// A database that is opened for the first time by many at once is made once.
#[tokio::test(flavor = "multi_thread")]
async fn many_make_one_file() {
    for _ in 0..5 {
        let folder = Folder::new();
        let mut opening = tokio::task::JoinSet::new();
        for _ in 0..20 {
            let file = folder.file();
            opening.spawn(async move { SqliteStore::open(file, &StoreOptions::default()).await });
        }
        let stores: Vec<_> = opening.join_all().await.into_iter().map(Result::unwrap).collect();
        let lease = lock("k", LONG);
        granted(&stores[0], &lease).await;
        for store in &stores {
            assert_eq!(holder(store, "k").await.as_ref(), Some(lease.token()));
        }
        assert_eq!(folder.count("machine"), 1);
    }
}

/// What is a good file for SQLite but was left empty, for instance by a process that died while it made it, is taken.
#[tokio::test]
async fn an_empty_file_becomes_ours() {
    let folder = Folder::new();
    std::fs::OpenOptions::new().write(true).create_new(true).mode(0o640).open(folder.file()).unwrap();
    granted(&folder.store().await, &lock("k", LONG)).await;
    let other = Connection::open(folder.path().join("other.db")).unwrap();
    other.execute_batch("PRAGMA journal_mode = WAL").unwrap();
    drop(other);
    let store = SqliteStore::open(folder.path().join("other.db"), &StoreOptions::default()).await.unwrap();
    granted(&store, &lock("k", LONG)).await;
}
