//! What has expired leaves the file, so that it does not grow.

use std::sync::Arc;
use std::time::{Duration, Instant};

use clinch::Record;
use clinch::lease::{Attempt, Claim};
use clinch::store::{Store, Verdict};

use crate::common::{Folder, LONG, granted, key, lock, token};

const BRIEF: Duration = Duration::from_millis(1);

fn bytes(folder: &Folder) -> u64 {
    let size = |end: &str| {
        std::fs::metadata(format!("{}{end}", folder.file().display())).map_or(0, |file| file.len())
    };
    size("") + size("-wal")
}

/// Uses the store until nothing but this is left in a table.
async fn until_left(store: &dyn Store, folder: &Folder, table: &str, left: u32) {
    let started = Instant::now();
    while folder.count(table) > left {
        assert!(started.elapsed() < LONG, "{} are left in {table}", folder.count(table));
        // Any step of anybody looks whether it is time to sweep.
        granted(store, &lock("by the way", BRIEF)).await;
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Leases on keys that nobody ever asks for again, whose holders gave nothing back.
#[tokio::test]
async fn leases_that_nobody_gives_back_leave_the_file() {
    let folder = Folder::new();
    let store = folder.store().await;
    let mut sizes = Vec::new();
    for round in 0..4 {
        for batch in 0..20 {
            let attempts: Vec<_> =
                (0..200).map(|i| Arc::new(lock(&format!("{round}:{batch}:{i}"), BRIEF))).collect();
            for verdict in store.acquire_each(&attempts).await {
                assert!(matches!(verdict, Ok(Verdict::Granted(_))));
            }
        }
        until_left(&store, &folder, "places", 2).await;
        sizes.push(bytes(&folder));
    }
    println!("{sizes:?}");
    let most = sizes[0].max(5 << 20);
    assert!(sizes.iter().all(|size| *size <= most), "the file grows: {sizes:?}");
}

/// Records go with their places.
#[tokio::test]
async fn records_leave_the_file() {
    let folder = Folder::new();
    let store = folder.store().await;
    let mut sizes = Vec::new();
    for round in 0..3 {
        for i in 0..10 {
            let lease = Attempt::one(token(), Claim::idempotent(key(&format!("{round}:{i}")), LONG));
            granted(&store, &lease).await;
            let record = Record::new(vec![7; 200_000]);
            assert!(store.complete(&lease, &record, Some(BRIEF)).await.unwrap().held);
        }
        until_left(&store, &folder, "records", 0).await;
        sizes.push(bytes(&folder));
    }
    println!("{sizes:?}");
    assert!(sizes.iter().all(|size| *size <= sizes[0] + (5 << 20)), "the file grows: {sizes:?}");
}

/// A token whose record has expired asks anew: the old record is gone, and the place is held.
#[tokio::test]
async fn a_token_may_come_again_after_its_record() {
    let folder = Folder::new();
    let store = folder.store().await;
    let lease = Attempt::one(token(), Claim::idempotent(key("k"), LONG));
    granted(&store, &lease).await;
    assert!(store.complete(&lease, &Record::new("done"), Some(BRIEF)).await.unwrap().held);
    tokio::time::sleep(BRIEF * 5).await;
    granted(&store, &lease).await;
    assert_eq!((folder.count("places"), folder.count("records")), (1, 0));
    assert_eq!(store.inspect(lease.claims()[0].on()).await.unwrap().len(), 1);
    assert!(store.complete(&lease, &Record::new("again"), Some(LONG)).await.unwrap().held);
    assert_eq!((folder.count("places"), folder.count("records")), (1, 1));
}

/// Old messages are thrown away; the last one stays, so that numbers go on rising.
#[tokio::test]
async fn messages_leave_the_file() {
    let folder = Folder::new();
    let store = folder.store().await;
    folder
        .look()
        .execute_batch(
            "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 5000)
             INSERT INTO events (id, at, store, kind, prefix, key, token)
                SELECT i, -60000000, 0, 0, 'clinch', 'lock:k', '' FROM n",
        )
        .unwrap();
    until_left(&store, &folder, "events", 1).await;
    let last: i64 = folder.look().query_row("SELECT max(id) FROM events", [], |row| row.get(0)).unwrap();
    assert_eq!(last, 5_000);
}
