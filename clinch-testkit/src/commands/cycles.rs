//! Takes and gives back locks in a loop and watches the memory of the process.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use clinch::{LockManager, LockOptions};

use super::engine::Engine;

/// What to run.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// How many cycles.
    #[arg(long, default_value_t = 5_000_000)]
    count: u64,
    /// On which engine: `memory`, `redis` or `sqlite` of its own, or a URL.
    #[arg(long, value_name = "ENGINE", default_value = "memory")]
    store: String,
    /// How much the process may grow after the first tenth, in KiB.
    #[arg(long, default_value_t = 4_096)]
    allowed_kib: u64,
}

pub(crate) async fn run(args: &Args) -> bool {
    let engine = Engine::named(if args.store == "memory" { "memory:" } else { &args.store });
    let url = engine.url();
    let manager = LockManager::connect(&url).await.unwrap();
    let shown = std::io::stderr().is_terminal();
    let started = Instant::now();
    let mut after_a_tenth = 0;
    for i in 0..args.count {
        cycle(&manager, i).await;
        if i == args.count / 10 {
            after_a_tenth = resident_kib();
        }
        if shown && i.is_multiple_of((args.count / 100).max(1)) {
            eprint!("\r{:>3} %  {} KiB", i * 100 / args.count, resident_kib());
        }
    }
    let (elapsed, left) = (started.elapsed(), manager.shutdown(Duration::from_secs(30)).await);
    let now = resident_kib();
    let grown = now.saturating_sub(after_a_tenth);
    if shown {
        eprintln!("\r100 %");
    }
    println!(
        "{} cycles on {} in {elapsed:.1?} ({:.0} a second): {after_a_tenth} KiB after a tenth, {now} KiB at the end, grown by {grown} KiB; \
         left behind: {left:?}",
        args.count,
        args.store,
        args.count as f64 / elapsed.as_secs_f64(),
    );
    left.is_clean() && grown <= args.allowed_kib
}

/// One lock, in one of the ways in which it can come and go.
async fn cycle(manager: &LockManager, i: u64) {
    let ttl = Duration::from_secs(30);
    let key = format!("cycle:{}", i % 1_000);
    let options = if i.is_multiple_of(5) { LockOptions::new(ttl).renew() } else { LockOptions::new(ttl) };
    let guard = manager.lock(&key, options.wait(ttl)).await.unwrap();
    match i % 4 {
        0 => drop(guard),
        1 => {
            assert!(manager.try_lock(&key, ttl).await.unwrap().is_none());
            assert!(guard.release().await.unwrap());
        }
        _ => assert!(guard.release().await.unwrap()),
    }
}

/// What of the process is in memory.
fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}
