//! Time: the machine's own clock, its boots, and the wall clock, which takes no part while the machine runs.

use std::process::Command;
use std::time::Duration;

use clinch::Record;
use clinch::lease::{Attempt, Claim, Patience};
use clinch::store::{Denial, ErrorKind, Store};

use crate::common::{Folder, LONG, denied, granted, holder, key, lock, not_applied, token};
use crate::kid::{Kid, command};

const HOUR_US: i64 = 3_600_000_000;

fn idempotent(text: &str) -> Attempt {
    Attempt::one(token(), Claim::idempotent(key(text), LONG))
}

/// A finished lease, and what is left of it for so long.
async fn finished(store: &dyn Store, text: &str, ttl: Option<Duration>) {
    let lease = idempotent(text);
    granted(store, &lease).await;
    assert!(store.complete(&lease, &Record::new(text.as_bytes().to_vec()), ttl).await.unwrap().held);
}

/// As if the file came from another boot, whose clock was an hour further than this one's is.
fn reboot(folder: &Folder) {
    let file = folder.look();
    file.execute("UPDATE places SET expires = expires + ?1", [HOUR_US]).unwrap();
    file.execute("UPDATE waiting SET until = until + ?1", [HOUR_US]).unwrap();
    file.execute("UPDATE machine SET boot = 'another boot', swept = swept + ?1", [HOUR_US]).unwrap();
}

/// After a boot of the machine every holder is dead, so its lease is over at once, and so is every wait. What finished leases left
/// stays for the rest of its time, by the wall clock, and never for longer than it was to be kept.
#[tokio::test]
async fn leases_end_with_the_boot_and_records_do_not() {
    let folder = Folder::new();
    let store = folder.store().await;
    let day = Duration::from_secs(86_400);
    granted(&store, &lock("held", day)).await;
    let patience = Patience::Queue { until: tokio::time::Instant::now() + day, confirm: day };
    denied(&store, &lock("held", day).with_patience(patience)).await;
    let fenced = Attempt::one(token(), Claim::exclusive(key("fenced"), day).fenced(clinch::Fence::new(0)));
    let before = granted(&store, &fenced).await.fences;
    finished(&store, "kept for a day", Some(day)).await;
    finished(&store, "kept for its lease", None).await;
    finished(&store, "over meanwhile", Some(day)).await;
    finished(&store, "of a wall clock that was ahead", Some(day)).await;
    drop(store);

    reboot(&folder);
    let file = folder.look();
    let shift = "UPDATE records SET wall_expires = wall_expires + ?1 WHERE cast(content AS TEXT) = ?2";
    file.execute(shift, rusqlite::params![-25 * HOUR_US, "over meanwhile"]).unwrap();
    file.execute(shift, rusqlite::params![1_000 * HOUR_US, "of a wall clock that was ahead"]).unwrap();
    drop(file);

    let store = folder.store().await;
    for free in ["held", "fenced"] {
        assert_eq!(holder(&store, free).await, None);
    }
    assert_eq!(folder.count("waiting"), 0);
    granted(&store, &lock("held", LONG)).await;
    let again = Attempt::one(token(), Claim::exclusive(key("fenced"), day).fenced(clinch::Fence::new(0)));
    assert!(granted(&store, &again).await.fences > before, "fences rise over the boot");

    let left =
        |denial: Denial| (denial.done.map(|record| record.as_bytes().to_vec()), denial.retry_after.unwrap());
    for (text, most) in
        [("kept for a day", day), ("kept for its lease", LONG), ("of a wall clock that was ahead", day)]
    {
        let (record, time) = left(denied(&store, &idempotent(text)).await);
        assert_eq!(record.as_deref(), Some(text.as_bytes()));
        assert!(time <= most + Duration::from_millis(1) && time > most - LONG, "{text}: {time:?}");
    }
    granted(&store, &idempotent("over meanwhile")).await;
    assert_eq!(folder.count("records"), 3);
}

/// A file that another machine, or another boot, has taken over under a store that is open: times in it mean nothing to this one,
/// and it says so instead of deciding by them.
#[tokio::test]
async fn a_file_that_was_taken_over_is_used_no_more() {
    let folder = Folder::new();
    let store = folder.store().await;
    granted(&store, &lock("k", LONG)).await;
    folder.look().execute_batch("UPDATE machine SET boot = 'of another machine'").unwrap();
    let said = not_applied(store.acquire(&lock("k", LONG)).await, ErrorKind::Protocol, false);
    assert!(said.contains("another machine") && said.contains("one file serves one machine"), "{said}");
    assert_eq!(folder.count("places"), 1);
}

/// Whether the system lets us start a program in a time namespace of its own.
fn has_time_namespaces() -> bool {
    Command::new("unshare")
        .args(["--time", "--boottime", "1", "true"])
        .status()
        .is_ok_and(|status| status.success())
}

fn ms(heard: &str) -> u64 {
    heard.parse().unwrap_or_else(|_| panic!("{heard}"))
}

/// A process in a time namespace of its own reads another time since boot, and still agrees on who holds what for how long.
#[tokio::test]
async fn a_time_namespace_makes_no_difference() {
    if !has_time_namespaces() {
        println!("skipped: no right to make a time namespace");
        return;
    }
    let folder = Folder::new();
    let store = folder.store().await;
    let lease = lock("k", LONG);
    granted(&store, &lease).await;
    let apart = ["unshare", "--time", "--boottime", "1000000"];
    let left = ms(&Kid::under(&apart, "looks", &folder.file()).hear());
    assert!((30_000..=60_001).contains(&left), "{left} ms left");
    assert!(store.release(&lease).await.unwrap().held);

    let mut kid = Kid::under(&apart, "holds", &folder.file());
    assert_eq!(kid.hear(), "held");
    let left = denied(&store, &lock("k", LONG)).await.retry_after.unwrap();
    assert!((LONG / 2..=LONG + Duration::from_millis(1)).contains(&left), "{left:?}");
}

/// Fault: 18
/// A process whose wall clock is an hour off, either way, agrees on who holds what for how long.
#[tokio::test]
async fn the_wall_clock_takes_no_part() {
    let folder = Folder::new();
    let store = folder.store().await;
    let lease = lock("k", LONG);
    granted(&store, &lease).await;
    for seconds in [3_600, -3_600] {
        let off = |part: &str| {
            let mut command = command(&[], part, &folder.file());
            clinch_testkit::server::move_wall_clock(&mut command, folder.path(), seconds);
            Kid::of(&mut command)
        };
        let left = ms(&off("looks").hear());
        assert!((20_000..=60_001).contains(&left), "{left} ms left");
        assert!(store.release(&lease).await.unwrap().held);
        let mut kid = off("holds");
        assert_eq!(kid.hear(), "held");
        let denial = denied(&store, &lease).await;
        let left = denial.retry_after.unwrap();
        assert!((LONG / 2..=LONG + Duration::from_millis(1)).contains(&left), "{left:?}");
        kid.kill();
        assert!(store.revoke(&crate::common::on("k"), denial.holder.unwrap().token()).await.unwrap());
        granted(&store, &lease).await;
    }
}
