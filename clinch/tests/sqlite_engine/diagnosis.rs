//! A close look at a file: facts, and findings that say what to change.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use clinch::lease::{Attempt, Claim};
use clinch::store::{Diagnosis, Finding, Severity, Store};
use clinch::stores::StoreOptions;
use clinch::stores::sqlite::SqliteStore;
use clinch::{LockManager, Record};

use crate::common::{Folder, LONG, granted, key, lock, token};

async fn diagnosed(path: &Path) -> Diagnosis {
    let locks = LockManager::connect(&format!("sqlite://{}", path.display())).await.unwrap();
    locks.diagnose(LONG).await
}

#[track_caller]
fn found<'a>(diagnosis: &'a Diagnosis, name: &str) -> &'a Finding {
    let finding = diagnosis.findings.iter().find(|finding| finding.name == name);
    finding.unwrap_or_else(|| panic!("no finding `{name}`: {diagnosis:#?}"))
}

/// Of what is wrong, what has nothing to do with the kind of file system and the room on it that a test happens to have.
fn names(diagnosis: &Diagnosis) -> Vec<&str> {
    let names = diagnosis.findings.iter().map(|finding| finding.name);
    names.filter(|name| !["file_system", "disk"].contains(name)).collect()
}

fn chmod(path: &Path, mode: u32) {
    std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
}

#[tokio::test]
async fn a_file_of_our_own_making_has_nothing_to_change() {
    let folder = Folder::new();
    let path = folder.path().join("state/locks.db");
    let diagnosis = diagnosed(&path).await;
    assert_eq!(names(&diagnosis), [] as [&str; 0], "{diagnosis:#?}");
    for (name, value) in [
        ("engine", "sqlite"),
        ("version", rusqlite::version()),
        ("file", std::fs::canonicalize(&path).unwrap().to_str().unwrap()),
        ("file_mode", "0600"),
        ("directory_mode", "0700"),
        ("clock", "of the boot"),
        ("journal_mode", "wal"),
        ("synchronous", "normal for leases, full for what finished requests leave"),
        ("integrity", "ok"),
        ("leases", "0"),
        ("steps", "lock, renew, inspect, release, fence, shared, permit, fair, record, list, wake_ups"),
    ] {
        assert_eq!(diagnosis.value(name), Some(value), "{name}: {diagnosis:#?}");
    }
    for name in ["file_bytes", "log_bytes", "free_bytes", "unused_bytes"] {
        diagnosis.value(name).unwrap_or_else(|| panic!("no {name}")).parse::<u64>().unwrap();
    }
    assert!(diagnosis.value("file_system").is_some(), "{diagnosis:#?}");
    let health = LockManager::connect(&format!("sqlite://{}", path.display())).await.unwrap();
    let health = health.health(LONG).await;
    assert_eq!((health.engine, health.version.as_deref()), ("sqlite", Some(rusqlite::version())));
}

#[tokio::test]
async fn what_is_in_the_file_is_counted() {
    let folder = Folder::new();
    let store = folder.store().await;
    for text in ["a", "b", "c"] {
        granted(&store, &lock(text, LONG)).await;
    }
    granted(&store, &lock("over", Duration::from_millis(1))).await;
    let request = Attempt::one(token(), Claim::idempotent(key("request"), LONG));
    granted(&store, &request).await;
    store.complete(&request, &Record::new("done"), Some(LONG)).await.unwrap();
    let mut options = StoreOptions::default();
    options.prefix = "other".to_owned();
    let other = SqliteStore::open(folder.file(), &options).await.unwrap();
    granted(&other, &lock("a", LONG)).await;
    // It is listened to as soon as it has fired.
    let mut wakeups = other.wakeups(&crate::common::on("a"), None);
    wakeups.next().await;

    // Until its clock has passed the millisecond, or somebody has swept.
    let counts = |diagnosis: &Diagnosis| {
        ["leases", "leases_of_other_prefixes", "records", "listeners"]
            .map(|name| diagnosis.value(name).unwrap().parse::<u32>().unwrap())
    };
    let mut diagnosis = store.diagnose().await.unwrap();
    for _ in 0..10_000 {
        if counts(&diagnosis)[0] == 3 {
            break;
        }
        diagnosis = store.diagnose().await.unwrap();
    }
    assert_eq!(counts(&diagnosis), [3, 1, 1, 1], "{diagnosis:#?}");
    assert!(["0", "1"].contains(&diagnosis.value("expired_rows").unwrap()), "{diagnosis:#?}");
    assert_eq!(diagnosis.value("waiting"), Some("0"));
}

#[tokio::test]
async fn what_other_users_may_do_is_told() {
    let folder = Folder::new();
    let store = folder.store().await;
    chmod(folder.path(), 0o700);
    let shown = std::fs::canonicalize(folder.file()).unwrap().display().to_string();
    for (file, directory, expected) in [
        (0o660, 0o770, &[][..]),
        (0o644, 0o755, &[("others_read", Severity::Note)]),
        (0o666, 0o1777, &[("others_write", Severity::Warning)]),
        (0o600, 0o777, &[("others_replace", Severity::Warning)]),
    ] {
        chmod(&folder.file(), file);
        chmod(folder.path(), directory);
        let diagnosis = store.diagnose().await.unwrap();
        assert_eq!(names(&diagnosis), expected.iter().map(|(name, _)| *name).collect::<Vec<_>>());
        assert_eq!(diagnosis.value("file_mode"), Some(format!("{file:04o}").as_str()));
        assert_eq!(diagnosis.value("directory_mode"), Some(format!("{directory:04o}").as_str()));
        for (name, severity) in expected {
            let finding = found(&diagnosis, name);
            assert_eq!(finding.severity, *severity);
            assert!(finding.remedy.contains("chmod o-"), "{finding:?}");
        }
        if file == 0o666 {
            assert_eq!(found(&diagnosis, "others_write").remedy, format!("`chmod o-rwx {shown}`"));
        }
    }
    chmod(folder.path(), 0o700);
}

/// Under each of its names a file has a log of its own, which destroys it. A symbolic link is none.
#[tokio::test]
async fn a_file_with_two_names_is_told() {
    let folder = Folder::new();
    drop(folder.store().await);
    let link = folder.path().join("link.db");
    std::os::unix::fs::symlink(folder.file(), &link).unwrap();
    let diagnosis = diagnosed(&link).await;
    assert_eq!(names(&diagnosis), [] as [&str; 0], "{diagnosis:#?}");
    assert!(diagnosis.value("file").unwrap().ends_with("/locks.db"), "{diagnosis:#?}");
    assert!(diagnosis.value("log_bytes").is_some(), "{diagnosis:#?}");

    std::fs::hard_link(folder.file(), folder.path().join("other.db")).unwrap();
    let diagnosis = diagnosed(&folder.file()).await;
    let finding = found(&diagnosis, "several_names");
    assert_eq!((finding.severity, names(&diagnosis)), (Severity::Error, vec!["several_names"]));
    assert!(finding.problem.contains("2 names") && finding.remedy.contains("-samefile"), "{finding:?}");
}

/// Somebody reads, and does not stop: what is written meanwhile stays in the log.
#[tokio::test]
async fn a_log_that_cannot_be_put_away_is_told() {
    let folder = Folder::new();
    let store = folder.store().await;
    let reader = folder.look();
    let reading = reader.unchecked_transaction().unwrap();
    reading.query_row("SELECT count(*) FROM machine", [], |row| row.get::<_, i64>(0)).unwrap();
    let writer = folder.look();
    writer
        .execute_batch(
            "INSERT INTO records (id, content, wall_expires, kept_for) VALUES (-1, zeroblob(17 << 20), 0, 0);
             DELETE FROM records",
        )
        .unwrap();
    let diagnosis = store.diagnose().await.unwrap();
    let finding = found(&diagnosis, "log");
    assert_eq!(finding.severity, Severity::Warning);
    assert!(finding.remedy.contains("fuser "), "{finding:?}");
    assert!(diagnosis.value("log_bytes").unwrap().parse::<u64>().unwrap() > 16 << 20);
    drop(reading);
}

/// A file that is damaged where no step has come to it yet.
#[tokio::test]
async fn damage_is_found_before_a_step_comes_to_it() {
    let folder = Folder::new();
    let store = folder.store().await;
    for i in 0..400 {
        granted(&store, &lock(&format!("k{i}"), LONG)).await;
    }
    drop(store);
    folder.wait_until_closed();
    let places: usize = {
        let file = folder.look();
        let root = "SELECT rootpage FROM sqlite_schema WHERE name = 'places'";
        file.query_row(root, [], |row| row.get::<_, u32>(0)).unwrap().try_into().unwrap()
    };
    folder.wait_until_closed();
    let mut bytes = std::fs::read(folder.file()).unwrap();
    bytes[(places - 1) * 4096..places * 4096].fill(0xA5);
    std::fs::write(folder.file(), bytes).unwrap();

    let diagnosis = diagnosed(&folder.file()).await;
    let finding = found(&diagnosis, "damage");
    assert_eq!((finding.severity, diagnosis.value("integrity")), (Severity::Error, Some("damaged")));
    assert!(finding.remedy.contains("move the file away"), "{finding:?}");
    assert!(!finding.problem.contains('\n'), "{finding:?}");
    // What can be told all the same is told.
    assert_eq!(diagnosis.value("journal_mode"), Some("wal"), "{diagnosis:#?}");
}

/// Checking takes the store's thread, so a large file is left to those who have time.
#[tokio::test]
async fn a_large_file_is_not_checked() {
    let folder = Folder::new();
    let store = folder.store().await;
    folder
        .look()
        .execute_batch(
            "INSERT INTO records (id, content, wall_expires, kept_for) VALUES (-1, zeroblob(33 << 20), 0, 0)",
        )
        .unwrap();
    let diagnosis = store.diagnose().await.unwrap();
    let fact = diagnosis.facts.iter().find(|fact| fact.name == "integrity").unwrap();
    assert!(fact.unknown.as_deref().unwrap().contains("PRAGMA quick_check"), "{fact:?}");
    assert_eq!(diagnosis.value("leases"), Some("0"), "{diagnosis:#?}");
}
