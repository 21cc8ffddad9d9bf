//! Clinch, its peers, and what one would write by hand, measured side by side in one run.
//!
//! `cargo run --release -p clinch-bench [-- --quick] [--only S3] [--json FILE]`. `docs/benchmarks.md` says what each row means.
//! Nothing is asserted about speed: every goal is printed as *reached* or *short*. The exit code is 1 only if two held one lock,
//! or a storm did not have its one winner.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program that talks to a person")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a benchmark stops at the first surprise"
)]
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "numbers for people"
)]

mod bench;
mod bounds;
mod chart;
mod measure;
mod one_cpu;
mod peers;
mod race;
mod report;
mod results;
mod scenarios;
mod together;
mod wire;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

use self::bench::Bench;
use self::results::Results;

/// Measures Clinch, its peers and the hand-written reference side by side.
#[derive(Debug, Parser)]
#[command(name = "clinch-bench")]
struct Args {
    /// About four minutes: fewer and shorter rounds, and so wider spreads.
    #[arg(long)]
    quick: bool,
    /// Only this scenario (S1, S2, S3, S3f, S4, S5, S6, S7, S8, S9); may be given several times.
    #[arg(long, value_name = "SCENARIO", value_parser = scenarios::ALL)]
    only: Vec<String>,
    /// Leaves the peers out: for those who work on Clinch itself.
    #[arg(long)]
    without_peers: bool,
    /// Writes all numbers into this file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Where the charts go.
    #[arg(long, value_name = "FOLDER", default_value = "docs/benchmarks")]
    charts: PathBuf,
    /// Prints the bytes that each of so many leases takes, and nothing else.
    #[arg(long, hide = true)]
    memory_of: Option<usize>,
}

#[tokio::main]
async fn main() -> ExitCode {
    let args = Args::parse();
    if let Some(leases) = args.memory_of {
        println!("{}", scenarios::memory_of(leases).await);
        return ExitCode::SUCCESS;
    }
    let wanted: Vec<_> = scenarios::ALL
        .into_iter()
        .filter(|id| args.only.is_empty() || args.only.iter().any(|only| only == id))
        .collect();
    let bench = Bench::start(args.quick, !args.without_peers, wanted.len());
    let mut results = Results::default();
    for id in wanted {
        scenarios::run(id, &bench, &mut results).await;
        bench.progress.step();
    }
    bench.progress.clear();
    report::print(&results);
    for written in [chart::write(&results, &args.charts), write_json(&results, args.json)] {
        if let Err(error) = written {
            eprintln!("clinch-bench: {error}");
        }
    }
    if results.wrong().is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn write_json(results: &Results, file: Option<PathBuf>) -> std::io::Result<()> {
    match file {
        Some(file) => std::fs::write(file, format!("{:#}\n", results.to_json())),
        None => Ok(()),
    }
}
