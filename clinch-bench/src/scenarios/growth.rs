//! S8: what it costs when there is much: live leases, waiters on one key, leases that are renewed.

use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clinch::stores::memory::MemoryStore;
use clinch::{LockGuard, LockManager, LockOptions, Outcome};
use tokio::process::Command;

use super::memory::{Map, map_pair};
use crate::bench::Bench;
use crate::measure::{Spread, client_cpu, resident};
use crate::peers::{Kind, TTL, new_token};
use crate::results::{Goal, Row};

const LONG: Duration = Duration::from_secs(3600);
const SIZES: [usize; 3] = [10, 10_000, 1_000_000];
const WAITERS: usize = 10_000;
const RENEWED: usize = 10_000;
/// Renewed every third of it.
const RENEWED_TTL: Duration = Duration::from_secs(30);

pub(super) async fn run(bench: &Bench) -> (Vec<Row>, Vec<Goal>) {
    let (mut rows, mut goals) = (Vec::new(), Vec::new());
    pairs_beside_many(bench, &mut rows, &mut goals).await;
    bench.progress.now("S8", "memory of a lease", 0);
    let bytes = bytes_a_lease(bench).await;
    let mut row = Row::new("S8", "Clinch, memory of 10^6 leases and guards", Kind::Clinch, "");
    row.figures.insert("bytes a lease".to_owned(), bytes);
    rows.push(row);
    goals.push(Goal::at_most("S8", "bytes a live lease in memory", bytes, 300.0));
    bench.progress.now("S8", "10^4 waiters", 0);
    rows.push(waiters_in_line().await);
    bench.progress.now("S8", "10^4 renewed leases", 0);
    let (row, percent) = renewing(bench).await;
    rows.push(row);
    goals.push(Goal::at_most("S8", "CPU while 10^4 leases are renewed, % of a core", percent, 5.0));
    (rows, goals)
}

fn key(number: usize) -> String {
    format!("{number:016x}")
}

/// Nanoseconds of a pair beside so many live leases, ours and the map's.
async fn pairs_beside_many(bench: &Bench, rows: &mut Vec<Row>, goals: &mut Vec<Goal>) {
    let pairs = if bench.quick { 30_000 } else { 200_000 };
    let (mut over, mut figures) = (Vec::new(), Vec::new());
    for size in SIZES {
        bench.progress.now("S8", "pairs beside many leases", size);
        let store = MemoryStore::new().with_max_leases(2_000_000);
        let locks = LockManager::builder().store(Arc::new(store)).build().expect("valid");
        let map = Map::new();
        let mut guards = Vec::with_capacity(size);
        for number in 0..size {
            map.insert(key(number), new_token());
            guards.push(locks.try_lock(key(number), LONG).await.expect("memory").expect("free"));
        }
        let (mut ours, mut maps) = (Vec::new(), Vec::new());
        for _ in 0..bench.rounds() {
            // Everywhere in the map, beside those that are there.
            let others: Vec<_> = (0..pairs).map(|n| key(size + n * 7919)).collect();
            let began = Instant::now();
            for other in &others {
                map_pair(&map, other);
            }
            maps.push(began.elapsed().as_nanos() as f64 / pairs as f64);
            let began = Instant::now();
            for other in &others {
                let guard = locks.try_lock(other.as_str(), TTL).await.expect("memory").expect("free");
                guard.release().await.expect("memory");
            }
            ours.push(began.elapsed().as_nanos() as f64 / pairs as f64);
        }
        let (ours, maps) = (Spread::of(ours), Spread::of(maps));
        over.push(ours.median - maps.median);
        figures.push((size, ours, maps));
        // A million guards that are given back one by one are nobody's measurement.
        tokio::task::spawn_blocking(move || drop(guards)).await.expect("no panic");
        locks.shutdown(Duration::from_secs(60)).await;
    }
    for (size, ours, maps) in figures {
        for (name, kind, ns) in [("DashMap", Kind::Reference, maps), ("Clinch", Kind::Clinch, ours)] {
            let mut row = Row::new("S8", &format!("{name}, beside {size} live leases"), kind, "pairs/s");
            row.rate = Spread { least: 1e9 / ns.most, median: 1e9 / ns.median, most: 1e9 / ns.least };
            row.ratio = Some(maps.median / ns.median);
            row.figures.insert("ns".to_owned(), ns.median);
            rows.push(row);
        }
    }
    let flat = Spread::of(over);
    goals.push(Goal::at_most("S8", "cost over the DashMap, most of least", flat.most / flat.least, 1.5));
}

/// In a process of its own, whose memory is nothing but this.
async fn bytes_a_lease(bench: &Bench) -> f64 {
    let leases = if bench.quick { 200_000 } else { 1_000_000 };
    let program = std::env::current_exe().expect("this program");
    let child =
        Command::new(program).args(["--memory-of", &leases.to_string()]).stderr(Stdio::inherit()).output();
    let output = child.await.expect("this program starts");
    String::from_utf8_lossy(&output.stdout).trim().parse().expect("a number of bytes")
}

/// What the process of `--memory-of` does.
pub(crate) async fn memory_of(leases: usize) -> f64 {
    let locks = LockManager::memory();
    let mut guards: Vec<LockGuard> = Vec::with_capacity(leases);
    locks.try_lock("first", LONG).await.expect("memory");
    // The place for the guards themselves is theirs too: they are what a caller keeps.
    let before = resident();
    for number in 0..leases {
        guards.push(locks.try_lock(key(number), LONG).await.expect("memory").expect("free"));
    }
    (resident() - before) as f64 / leases as f64
}

/// All of them wait for one key, then it goes through all their hands.
async fn waiters_in_line() -> Row {
    let locks = LockManager::memory();
    let first = locks.try_lock("wanted", LONG).await.expect("memory").expect("free");
    let waiting = LockOptions::new(LONG).wait(LONG);
    let waiters: Vec<_> = (0..WAITERS)
        .map(|_| {
            let (locks, waiting) = (locks.clone(), waiting.clone());
            tokio::spawn(async move {
                locks.lock("wanted", waiting).await.expect("memory").release().await.expect("memory");
            })
        })
        .collect();
    while tokio::runtime::Handle::current().metrics().global_queue_depth() > 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    tokio::time::sleep(Duration::from_millis(50)).await;
    let began = Instant::now();
    first.release().await.expect("memory");
    for waiter in waiters {
        waiter.await.expect("no panic");
    }
    let took = began.elapsed();
    let mut row = Row::new("S8", "Clinch, 10^4 waiters on one key", Kind::Clinch, "turns/s");
    let rate = WAITERS as f64 / took.as_secs_f64();
    row.rate = Spread { least: rate, median: rate, most: rate };
    row
}

/// CPU of this process while leases on Redis are renewed and nothing else is done, in percent of a core.
async fn renewing(bench: &Bench) -> (Row, f64) {
    let locks = LockManager::connect(&bench.plain.url()).await.expect("the server runs");
    let keys: Vec<_> = (0..RENEWED).map(key).collect();
    let mut guards = Vec::with_capacity(RENEWED);
    for group in keys.chunks(500) {
        let group = group.iter().map(|key| (key.as_str(), LockOptions::new(RENEWED_TTL).renew()));
        for outcome in locks.attempt_each(group).await.expect("the server answers") {
            let Outcome::Acquired(guard) = outcome else { panic!("not acquired: {outcome:?}") };
            guards.push(guard);
        }
    }
    // They were taken together and so are renewed together, once an interval: a shorter look may see all of it or nothing.
    let (began, before) = (Instant::now(), client_cpu());
    tokio::time::sleep(RENEWED_TTL / 3 + Duration::from_millis(500)).await;
    let (watched, used) = (began.elapsed(), client_cpu() - before);
    let percent = used / watched.as_secs_f64() * 100.0;
    // One that was not renewed since has less left than this.
    let renewed = guards.iter().filter(|guard| guard.remaining() > RENEWED_TTL - watched).count();
    let lost = guards.iter().filter(|guard| !guard.is_valid()).count();
    // Without the renewals there is nothing to say about what they cost.
    let percent = if renewed == RENEWED { percent } else { f64::NAN };
    drop(guards);
    locks.shutdown(Duration::from_secs(30)).await;
    let mut row = Row::new("S8", "Clinch, 10^4 leases renewed every 10 s", Kind::Clinch, "");
    row.figures.insert("% of a core".to_owned(), percent);
    row.figures.insert("renewed".to_owned(), renewed as f64);
    row.figures.insert("lost".to_owned(), lost as f64);
    if lost > 0 {
        row.wrong.push(format!("{lost} leases were lost while they were renewed"));
    }
    (row, percent)
}
