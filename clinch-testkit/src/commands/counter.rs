//! Processes increment a number in a file with nothing but one lock between them: the sum is exact.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clinch::{LockManager, LockOptions};

use super::engine::{Engine, StoreArg};

/// What to run.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// How many processes.
    #[arg(long, default_value_t = 4)]
    processes: u64,
    /// How many tasks in each; every task increments once.
    #[arg(long, default_value_t = 250)]
    tasks: u64,
    #[command(flatten)]
    store: StoreArg,
}

/// What one process does.
#[derive(Debug, clap::Args)]
pub(crate) struct WorkerArgs {
    url: String,
    file: PathBuf,
    tasks: u64,
}

pub(crate) fn run(args: &Args) -> bool {
    let engine = Engine::of(&args.store);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("number");
    std::fs::write(&file, "0").unwrap();

    let started = Instant::now();
    let worker = |_| {
        let file = file.to_str().unwrap().to_owned();
        super::another(&["counter-worker".to_owned(), engine.url(), file, args.tasks.to_string()])
    };
    let workers: Vec<_> = (0..args.processes).map(worker).collect();
    let mut all_well = true;
    for mut worker in workers {
        all_well &= worker.wait().unwrap().success();
    }
    let (sum, expected) = (std::fs::read_to_string(&file).unwrap(), args.processes * args.tasks);
    let (processes, tasks, elapsed) = (args.processes, args.tasks, started.elapsed());
    println!(
        "{processes} processes x {tasks} tasks on {}: {sum} of {expected} in {elapsed:.1?}; keys left: {:?}",
        engine.name(),
        engine.left()
    );
    all_well && sum == expected.to_string() && engine.left().is_empty()
}

pub(crate) async fn work(args: &WorkerArgs) -> bool {
    let manager = LockManager::connect(&args.url).await.unwrap();
    let increment = || {
        let (manager, file) = (manager.clone(), args.file.clone());
        tokio::spawn(async move {
            let options = LockOptions::new(Duration::from_secs(60)).wait(Duration::from_secs(300));
            let guard = manager.lock("number", options).await.unwrap();
            let number: u64 = std::fs::read_to_string(&file).unwrap().parse().unwrap();
            // An invitation to everybody else to get in between.
            tokio::task::yield_now().await;
            std::fs::write(&file, (number + 1).to_string()).unwrap();
            guard.release().await.unwrap()
        })
    };
    let tasks: Vec<_> = (0..args.tasks).map(|_| increment()).collect();
    let mut all_well = true;
    for task in tasks {
        all_well &= task.await.unwrap();
    }
    all_well && manager.shutdown(Duration::from_secs(10)).await.is_clean()
}
