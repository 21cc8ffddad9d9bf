//! Measurements and checks that need more than one process, or more time than a test.
//!
//! `cargo run --release -p clinch-testkit -- help` lists them. Each starts its own Redis unless it is given a store, prints
//! what it saw, and exits with 1 if what it checks does not hold.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program that talks to a person")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a check stops at the first surprise"
)]

mod commands;

use std::process::ExitCode;

use clap::Parser;

/// Measurements and checks of Clinch on real engines.
#[derive(Debug, Parser)]
#[command(name = "clinch-testkit")]
enum Args {
    /// Hand-overs of one lock between two processes, woken by push.
    Handover(commands::handover::Args),
    /// Processes increment a number in a file with nothing but one lock between them.
    Counter(commands::counter::Args),
    /// Takes and gives back locks in a loop and watches the memory of the process.
    Cycles(commands::cycles::Args),
    /// One limit, processes that are killed and stopped while they hold permits of it.
    Permits(commands::permits::Args),
    /// Two processes with many waiting tasks each fight over one key.
    Contend(commands::contend::Args),
    /// Order across processes on a fair key, and what a death at the head of its queue costs.
    Fair(commands::fair::Args),
    /// Many waiters of one fair key, and what their turns cost.
    Queue(commands::queue::Args),
    /// Tries that go on without an engine that is stopped or killed.
    Breaker(commands::breaker::Args),
    /// Many leases that are renewed on one manager.
    Renewals(commands::renewals::Args),
    /// The real manager on a simulated engine with seeded faults, checked against its history.
    Simulate(commands::simulate::Args),
    /// Real processes on real deployments while both are killed, stopped and cut off.
    Torture(commands::torture::Args),
    /// Fences in great numbers on the simulated engine, while it restarts and forgets.
    Fences(commands::fences::Args),
    /// Sends submissions to the example shop at a steady rate, a tenth of them duplicates.
    Load(commands::load::Args),
    /// Takes the pictures of the console that are in `docs/`.
    Screenshots(commands::screenshots::Args),
    /// Runs a command with a Redis server of its own, whose address it finds in `CLINCH_STORE`.
    WithRedis(commands::with_redis::Args),
    /// The other process of `handover`.
    #[command(hide = true)]
    HandoverWaiter(commands::handover::WaiterArgs),
    /// One of the processes of `counter`.
    #[command(hide = true)]
    CounterWorker(commands::counter::WorkerArgs),
    /// One of the processes of `permits`.
    #[command(hide = true)]
    PermitsHolder(commands::permits::HolderArgs),
    /// One of the processes of `contend`.
    #[command(hide = true)]
    ContendFighter(commands::contend::FighterArgs),
    /// One of the processes of `torture`.
    #[command(hide = true)]
    TortureClient(commands::torture::client::ClientArgs),
    /// One of the processes of `fair`.
    #[command(hide = true)]
    FairWaiter(commands::fair::WaiterArgs),
}

fn main() -> ExitCode {
    let holds = match Args::parse() {
        Args::Simulate(args) => commands::simulate::run(&args),
        Args::Torture(args) => commands::torture::run(&args),
        Args::TortureClient(args) => on_a_runtime(commands::torture::client::work(args)),
        Args::Fences(args) => commands::fences::run(&args),
        Args::WithRedis(args) => commands::with_redis::run(&args),
        Args::Screenshots(args) => on_a_runtime(commands::screenshots::run(&args)),
        Args::Load(args) => on_a_runtime(commands::load::run(&args)),
        Args::Handover(args) => on_a_runtime(commands::handover::run(&args)),
        Args::Counter(args) => commands::counter::run(&args),
        Args::Cycles(args) => on_a_runtime(commands::cycles::run(&args)),
        Args::Permits(args) => on_a_runtime(commands::permits::run(&args)),
        Args::Contend(args) => commands::contend::run(&args),
        Args::Fair(args) => on_a_runtime(commands::fair::run(&args)),
        Args::Queue(args) => on_a_runtime(commands::queue::run(&args)),
        Args::Breaker(args) => on_a_runtime(commands::breaker::run(&args)),
        Args::Renewals(args) => on_a_runtime(commands::renewals::run(&args)),
        Args::HandoverWaiter(args) => on_a_runtime(commands::handover::wait(&args)),
        Args::CounterWorker(args) => on_a_runtime(commands::counter::work(&args)),
        Args::PermitsHolder(args) => on_a_runtime(commands::permits::hold(args)),
        Args::ContendFighter(args) => on_a_runtime(commands::contend::fight(args)),
        Args::FairWaiter(args) => on_a_runtime(commands::fair::wait(args)),
    };
    if holds { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn on_a_runtime(command: impl Future<Output = bool>) -> bool {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime").block_on(command)
}
