//! Runs a command with a Redis server of its own, whose address it finds in `CLINCH_STORE`.

use std::process::Command;

use clinch_testkit::server::RedisServer;

/// What to run.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The command and its arguments.
    #[arg(required = true, last = true)]
    command: Vec<String>,
}

pub(crate) fn run(args: &Args) -> bool {
    let server = RedisServer::start();
    let status =
        Command::new(&args.command[0]).args(&args.command[1..]).env("CLINCH_STORE", server.url()).status();
    status.expect("the command can be started").success()
}
