//! Fences in great numbers on the simulated engine, which restarts and forgets while they are granted.

use std::io::IsTerminal;
use std::time::Instant;

use clinch_testkit::sim::{Honest, fences};

/// What to run.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// How many grants.
    #[arg(long, default_value_t = 10_000_000)]
    grants: u64,
    /// What chance goes by.
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

pub(crate) fn run(args: &Args) -> bool {
    let shown = std::io::stderr().is_terminal();
    let started = Instant::now();
    let tally = fences::run(&Honest, args.grants, args.seed, |tally| {
        if shown {
            eprint!("\r{:>3} %  {} violations", tally.grants * 100 / args.grants.max(1), tally.violations);
        }
    });
    if shown {
        eprintln!();
    }
    if let Some(first) = &tally.first {
        println!("first violation: {first}");
        println!(
            "repeat it with: cargo run --release -p clinch-testkit -- fences --grants {} --seed {}",
            args.grants, args.seed
        );
    }
    println!(
        "{} grants in {:.1?}: {} passes, {} repeats, {} restarts, {} amnesias, {} lost counters ({} losses at 50,000 \
         grants/s on one key); {} violations",
        tally.grants,
        started.elapsed(),
        tally.passes,
        tally.repeats,
        tally.restarts,
        tally.amnesias,
        tally.lost_counters,
        tally.lost_in_a_rush,
        tally.violations,
    );
    tally.violations == 0
}
