//! The real manager on a simulated engine, seed after seed: what is printed for a seed is what it will always be.

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::time::Instant;

use clinch_testkit::history::check;
use clinch_testkit::sim::workload::{Setup, run as simulate};

/// What to run.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The first seed; on its own, only this one.
    #[arg(long)]
    seed: Option<u64>,
    /// How many seeds.
    #[arg(long)]
    seeds: Option<u64>,
}

pub(crate) fn run(args: &Args) -> bool {
    let first = args.seed.unwrap_or(0);
    let seeds = args.seeds.unwrap_or(if args.seed.is_some() { 1 } else { 1_000 });
    let shown = std::io::stderr().is_terminal();
    let started = Instant::now();
    let (mut broken, mut faults) = (0_u64, BTreeMap::new());
    for seed in first..first + seeds {
        let run = simulate(seed, &Setup::of_seed(seed)).expect("a runtime");
        run.faults.iter().for_each(|(kind, times)| *faults.entry(format!("{kind:?}")).or_insert(0) += times);
        let violations = check(&run.history);
        for violation in &violations {
            println!("seed {seed}: {violation}");
        }
        if !violations.is_empty() {
            broken += 1;
            println!("repeat it with: cargo run --release -p clinch-testkit -- simulate --seed {seed}");
        }
        if args.seed.is_some() && seeds == 1 {
            print!("{}", run.history);
        }
        if shown && (seed - first).is_multiple_of(20) {
            eprint!("\r{} of {seeds} seeds, {broken} broken", seed - first);
        }
    }
    if shown {
        eprintln!();
    }
    println!("{seeds} seeds in {:.1?}: {broken} with violations; faults {faults:?}", started.elapsed());
    broken == 0
}
