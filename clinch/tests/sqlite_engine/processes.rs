//! Processes that die at any moment, and others that go on.

use std::time::{Duration, Instant};

use clinch::store::{ErrorKind, Store};
use clinch::stores::StoreOptions;
use clinch::stores::sqlite::SqliteStore;
use rand::RngExt;
use rustix::process::Signal;

use crate::common::{Folder, LONG, MOMENT, denied, granted, holder, holders, lock, locks, not_applied};
use crate::kid::Kid;

/// Fault: 11
/// A killed process's lock is denied to others until its TTL is over, and not longer.
#[tokio::test]
async fn a_killed_holders_lock_is_free_within_its_ttl() {
    let folder = Folder::new();
    let store = folder.store().await;
    let mut kid = Kid::new("holds for a moment", &folder.file());
    assert_eq!(kid.hear(), "held");
    kid.kill();
    let left = denied(&store, &lock("k", LONG)).await.retry_after.unwrap();
    assert!(left <= MOMENT + Duration::from_millis(1), "{left:?}");
    tokio::time::sleep(left).await;
    granted(&store, &lock("k", LONG)).await;
}

/// Fault: 46
/// A process is killed in the middle of a transaction that has already changed leases and fences: all of it is rolled back,
/// the lock on the file is free at once, and whoever comes next finds everything as it was.
#[tokio::test]
async fn killed_in_mid_transaction_is_rolled_back() {
    let folder = Folder::new();
    let store = folder.store().await;
    let lease = locks(&["a", "b"], LONG);
    granted(&store, &lease).await;
    for _ in 0..3 {
        let mut kid = Kid::new("stops in the middle", &folder.file());
        assert_eq!(kid.hear(), "in the middle");
        for text in ["a", "b"] {
            assert_eq!(
                holder(&store, text).await.as_ref(),
                Some(lease.token()),
                "nobody sees the half of it"
            );
        }
        kid.kill();
        let started = Instant::now();
        granted(&store, &lock("c", Duration::from_millis(1))).await;
        assert!(started.elapsed() < LONG / 4, "the dead one's lock was waited for");
    }
    for text in ["a", "b"] {
        assert_eq!(holders(&store, text).await.len(), 1);
        assert_eq!(holder(&store, text).await.as_ref(), Some(lease.token()));
    }
    let fence: i64 = folder.look().query_row("SELECT fence FROM machine", [], |row| row.get(0)).unwrap();
    assert_eq!(fence, 0, "no fence was given");
    let check: String = folder.look().query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(check, "ok");
    assert!(store.release(&lease).await.unwrap().held);
}

/// Fault: 46
/// A process that is stopped, not dead, in the middle of a transaction keeps the write lock: steps of others fail within their
/// limit as not applied, and go on when it does.
#[tokio::test]
async fn stopped_in_mid_transaction_is_busy_and_goes_on() {
    let folder = Folder::new();
    let mut options = StoreOptions::default();
    options.call_timeout = Duration::from_secs(2);
    let store = SqliteStore::open(folder.file(), &options).await.unwrap();
    let kid = {
        let mut kid = Kid::new("stops in the middle", &folder.file());
        assert_eq!(kid.hear(), "in the middle");
        kid.signal(Signal::STOP);
        kid
    };
    not_applied(store.acquire(&lock("k", LONG)).await, ErrorKind::Busy, true);
    kid.signal(Signal::CONT);
    kid.end();
    granted(&store, &lock("k", LONG)).await;
}

/// Fault: 46
/// Proves: B7
/// A process that takes and gives back three locks at a time, killed at random moments: always all three are its, or none.
#[tokio::test]
async fn killed_at_random_leaves_all_or_nothing() {
    let folder = Folder::new();
    let store = folder.store().await;
    let (mut whole, mut none) = (0, 0);
    for _ in 0..25 {
        let mut kid = Kid::new("takes three at a time", &folder.file());
        assert_eq!(kid.hear(), "begins");
        std::thread::sleep(Duration::from_micros(rand::rng().random_range(0..20_000)));
        kid.kill();
        let mut owners = Vec::new();
        for text in ["a", "b", "c"] {
            let holders = holders(&store, text).await;
            assert!(holders.len() <= 1);
            owners.push(holder(&store, text).await);
        }
        assert!(owners.iter().all(|owner| *owner == owners[0]), "a part of a lease: {owners:?}");
        match owners[0].take() {
            None => none += 1,
            Some(token) => {
                whole += 1;
                for text in ["a", "b", "c"] {
                    assert!(store.revoke(&crate::common::on(text), &token).await.unwrap());
                }
            }
        }
    }
    println!("killed holding all three {whole} times, holding nothing {none} times");
    let check: String = folder.look().query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(check, "ok");
}
