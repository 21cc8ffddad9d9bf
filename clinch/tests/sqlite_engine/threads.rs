//! The thread of a store: there while the store is, and no longer.

use std::path::Path;
use std::time::{Duration, Instant};

use clinch::store::{ErrorKind, Store};
use clinch::stores::StoreOptions;
use clinch::stores::sqlite::SqliteStore;

use crate::common::{Folder, LONG, granted, lock, not_applied, on};
use crate::kid::{Kid, say};

/// Closing a store ends its thread, and so does dropping it, whether somebody still listens or not. In a process of its own, which
/// has no threads of other tests.
#[test]
fn the_thread_ends_with_its_store() {
    let folder = Folder::new();
    let mut kid = Kid::new("counts its threads", &folder.file());
    assert_eq!(kid.hear(), "0 1 3, 2 after one was closed, 0 after all were dropped");
    kid.end();
}

fn threads() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let name = |task: std::io::Result<std::fs::DirEntry>| {
        std::fs::read_to_string(task.ok()?.path().join("comm")).ok()
    };
    tasks.filter_map(name).filter(|name| name.trim() == "clinch-sqlite").count()
}

/// How many there are, once there are so many.
async fn settled(expected: usize) -> usize {
    let started = Instant::now();
    while threads() != expected && started.elapsed() < LONG / 2 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    threads()
}

/// What the other process does.
pub(crate) async fn count(file: &Path) {
    let options = StoreOptions::default();
    let open = || SqliteStore::open(file, &options);
    let none = threads();
    let first = open().await.unwrap();
    let one = threads();
    let (second, third) = (open().await.unwrap(), open().await.unwrap());
    let three = threads();
    let lease = lock("k", LONG);
    granted(&first, &lease).await;
    let mut stream = second.wakeups(&on("k"), None);
    let mut revocations = second.revocations();
    stream.next().await;

    first.close();
    not_applied(first.acquire(&lock("other", LONG)).await, ErrorKind::Closed, false);
    let two = settled(2).await;
    // The lease outlives the store that took it.
    assert!(second.release(&lease).await.unwrap().held);
    stream.next().await;
    drop((first, second, third));
    let end = settled(0).await;
    drop(stream);
    while revocations.next().await.is_some() {}
    say(&format!("{none} {one} {three}, {two} after one was closed, {end} after all were dropped"));
}
