//! Two processes with many waiting tasks each fight over one key, doing nothing under it: both get their share.
//!
//! Inside a process a lease is passed from task to task without asking anybody, which is fast, and must not go on for so
//! long that the other process starves.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clinch::{LockManager, LockOptions};

use super::engine::{Engine, StoreArg};
use super::kid::{Kid, now, orders};
use super::spans::{Span, most_at_once};

const KEY: &str = "bone";
const PROCESSES: usize = 2;
/// The least share that is fair enough.
const SHARE: usize = 3;

/// What to run.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// For how long they fight.
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// How many tasks in each process.
    #[arg(long, default_value_t = 32)]
    tasks: usize,
    #[command(flatten)]
    store: StoreArg,
}

/// What one process does.
#[derive(Debug, clap::Args)]
pub(crate) struct FighterArgs {
    url: String,
    tenures: PathBuf,
    seconds: u64,
    tasks: usize,
}

/// One holder's time.
#[derive(Debug, Clone, Copy)]
struct Tenure {
    asked: u64,
    span: Span,
    process: usize,
}

pub(crate) fn run(args: &Args) -> bool {
    let engine = Engine::of(&args.store);
    let folder = tempfile::tempdir().unwrap();
    let file = |i: usize| folder.path().join(i.to_string());
    let fighter = |i| {
        let (file, seconds, tasks) = (file(i), args.seconds.to_string(), args.tasks.to_string());
        let arguments = ["contend-fighter", &engine.url(), file.to_str().unwrap(), &seconds, &tasks];
        Kid::new(&arguments.map(str::to_owned))
    };
    let mut fighters: Vec<_> = (0..PROCESSES).map(fighter).collect();
    fighters.iter().for_each(|fighter| assert_eq!(fighter.hear(), "ready"));
    fighters.iter_mut().for_each(|fighter| fighter.say("go"));
    let fight = Duration::from_secs(args.seconds);
    fighters.iter().for_each(|fighter| assert_eq!(fighter.hear_after(fight), "done"));

    let mut tenures: Vec<_> = (0..PROCESSES).flat_map(|i| read(&file(i), i)).collect();
    tenures.sort_unstable_by_key(|tenure| tenure.span.from);
    let together = most_at_once(tenures.iter().map(|tenure| tenure.span));
    let overlaps = tenures.windows(2).filter(|pair| pair[1].span.from < pair[0].span.until).count();
    let hand_overs = tenures.windows(2).filter(|pair| pair[0].process != pair[1].process).count();
    let counts: Vec<_> =
        (0..PROCESSES).map(|i| tenures.iter().filter(|tenure| tenure.process == i).count()).collect();
    let longest = |i| {
        let waits = tenures.iter().filter(|tenure| tenure.process == i).map(|t| t.span.from - t.asked);
        Duration::from_nanos(waits.max().unwrap_or_default())
    };
    println!(
        "{PROCESSES} processes x {} waiting tasks on one key for {} s: {counts:?} acquisitions, {hand_overs} hand-overs \
         between processes, {overlaps} overlaps, longest waits {:.1?}",
        args.tasks,
        args.seconds,
        (0..PROCESSES).map(longest).collect::<Vec<_>>()
    );
    let fair = counts.iter().all(|count| count * SHARE >= tenures.len());
    fair && overlaps == 0 && together == 1 && engine.left().is_empty()
}

/// Three numbers a tenure, as they are in memory: there may be millions.
fn read(file: &Path, process: usize) -> Vec<Tenure> {
    let bytes = std::fs::read(file).unwrap();
    let number = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap());
    let tenure = |bytes: &[u8]| Tenure {
        asked: number(&bytes[..8]),
        span: Span { from: number(&bytes[8..16]), until: number(&bytes[16..]) },
        process,
    };
    bytes.chunks_exact(24).map(tenure).collect()
}

pub(crate) async fn fight(args: FighterArgs) -> bool {
    let mut orders = orders();
    let manager = LockManager::connect(&args.url).await.unwrap();
    println!("ready");
    assert_eq!(orders.recv().await.unwrap(), "go");
    let ends = Instant::now() + Duration::from_secs(args.seconds);
    let task = |_| {
        let manager = manager.clone();
        tokio::spawn(async move {
            let (mut tenures, options) = (Vec::new(), LockOptions::new(Duration::from_secs(30)));
            let options = options.wait(Duration::from_secs(60));
            while Instant::now() < ends {
                let asked = now();
                let guard = manager.lock(KEY, options.clone()).await.unwrap();
                let from = now();
                tenures.push([asked, from, now()]);
                guard.release().await.unwrap();
            }
            tenures
        })
    };
    let tasks: Vec<_> = (0..args.tasks).map(task).collect();
    let mut file = std::io::BufWriter::new(std::fs::File::create(&args.tenures).unwrap());
    for task in tasks {
        for number in task.await.unwrap().into_iter().flatten() {
            file.write_all(&number.to_le_bytes()).unwrap();
        }
    }
    file.flush().unwrap();
    let clean = manager.shutdown(Duration::from_secs(10)).await.is_clean();
    println!("{}", if clean { "done" } else { "left something behind" });
    clean
}
