//! S7: the memory engine against a `DashMap` in which a token, made as the reference on Redis makes its own, is put under a
//! string and removed if it is still there. On threads of their own, each with keys of its own.

use std::sync::Arc;
use std::time::{Duration, Instant};

use clinch::{LockManager, LockOptions};
use dashmap::DashMap;

use crate::bench::Bench;
use crate::measure::Spread;
use crate::peers::{Kind, TTL, new_token};
use crate::results::{Goal, Row};

/// Keys of a thread, used one after the other.
pub(super) const KEYS: usize = 64;

pub(super) type Map = DashMap<String, String>;

pub(super) async fn run(bench: &Bench) -> (Vec<Row>, Vec<Goal>) {
    let length = if bench.quick { Duration::from_millis(300) } else { Duration::from_secs(1) };
    let locks = LockManager::memory();
    // The background task runs here, not on the threads that measure.
    locks.try_lock("first", TTL).await.expect("memory");
    let map = Arc::new(Map::new());
    let mut rates = [const { Vec::new() }; 4];
    for round in 0..bench.rounds() {
        for (place, (what, threads)) in
            [("map", 1), ("Clinch", 1), ("map", 2), ("Clinch", 2)].into_iter().enumerate()
        {
            bench.progress.now("S7", what, round);
            let (locks, map) = (locks.clone(), map.clone());
            let rate = tokio::task::spawn_blocking(move || match what {
                "map" => on_threads(threads, |number| map_loop(&map, number, length)),
                _ => on_threads(threads, |number| clinch_loop(&locks, number, length)),
            });
            rates[place].push(rate.await.expect("no panic"));
        }
    }
    let names = ["DashMap, 1 thread", "Clinch, 1 thread", "DashMap, 2 threads", "Clinch, 2 threads"];
    let mut rows = Vec::new();
    for (name, rates) in names.into_iter().zip(rates) {
        let kind = if name.starts_with("Clinch") { Kind::Clinch } else { Kind::Reference };
        let mut row = Row::new("S7", name, kind, "pairs/s");
        row.rate = Spread::of(rates);
        rows.push(row);
    }
    let rate = |place: usize| rows[place].rate.median;
    let goals = vec![
        Goal::at_least("S7", "one thread, of the DashMap loop", rate(1) / rate(0), 0.4),
        Goal::at_least("S7", "two threads, of one", rate(3) / rate(1), 1.4),
    ];
    for (row, reference) in [(0, 0), (1, 0), (2, 2), (3, 2)] {
        rows[row].ratio = Some(rows[row].rate.median / rows[reference].rate.median);
    }
    (rows, goals)
}

/// Operations a second of all threads together.
fn on_threads(threads: usize, work: impl Fn(usize) -> f64 + Sync) -> f64 {
    std::thread::scope(|scope| {
        let work = &work;
        let running: Vec<_> = (0..threads).map(|number| scope.spawn(move || work(number))).collect();
        running.into_iter().map(|thread| thread.join().expect("no panic")).sum()
    })
}

fn keys(number: usize) -> Vec<String> {
    (0..KEYS).map(|key| format!("thread:{number}:{key:06}")).collect()
}

fn map_loop(map: &Map, number: usize, length: Duration) -> f64 {
    let (keys, began, mut done) = (keys(number), Instant::now(), 0u64);
    while began.elapsed() < length {
        for key in &keys {
            map_pair(map, key);
            done += 1;
        }
    }
    done as f64 / began.elapsed().as_secs_f64()
}

/// What the map costs for a lock that is taken and given back.
pub(super) fn map_pair(map: &Map, key: &str) {
    let token = new_token();
    map.insert(key.to_owned(), token.clone());
    map.remove_if(key, |_, there| *there == token);
}

fn clinch_loop(locks: &LockManager, number: usize, length: Duration) -> f64 {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    runtime.block_on(async {
        let (keys, began, mut done) = (keys(number), Instant::now(), 0u64);
        while began.elapsed() < length {
            for key in &keys {
                let guard = locks.try_lock(key.as_str(), LockOptions::new(TTL)).await.expect("memory");
                guard.expect("nobody else wants it").release().await.expect("memory");
                done += 1;
            }
        }
        done as f64 / began.elapsed().as_secs_f64()
    })
}
