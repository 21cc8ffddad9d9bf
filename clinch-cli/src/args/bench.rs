//! What `clinch bench` is told.

use std::time::Duration;

use clap::Args;

use super::engine::RawEngine;
use super::output::RawOutput;
use super::values::whole_in;
use crate::bench::Bench;
use crate::failure::Failure;

const HELP: &str = "\
Examples:
  clinch bench
  clinch bench --store redis://redis.example.com:6379 --seconds 5
  clinch bench --json | jq '.figures[] | {name, per_second, p99_us}'

Measures, from this machine, with one process and one thread:
  round trip                       a ping, one after the other
  lock and release                 one after the other, on one key
  lock and release, many at once   from many tasks, on a key each
  hand-over between two            from one's release to the other's grant
  permit                           16 tasks that want one of 4, the wait
                                   included

The keys begin with clinch-bench: and are given back; those of a bench that was
killed end within 10 s. It is a load on the engine: mind who else uses it.

JSON: one object with store, seconds, concurrency, permits, permits_held, left
(leases that could not be given back), and figures with name, count, per_second,
p50_us, p99_us, longest_us.

Exit status:
    0  measured
   64  bad usage
   69  engine unavailable
   74  stdout cannot be written
   78  the configuration file cannot be used";

/// Measure the engine: quick figures
#[derive(Debug, Args)]
#[command(after_long_help = HELP)]
pub(super) struct RawBench {
    /// How long each of the five figures is measured [1 to 60]
    #[arg(long, default_value = "1", value_parser = |text: &str| whole_in(text, 1..=60_u64), allow_negative_numbers = true)]
    seconds: u64,

    /// How many tasks are `many` [1 to 1000]
    #[arg(long, value_name = "TASKS", default_value = "32", value_parser = |text: &str| whole_in(text, 1..=1000_u32), allow_negative_numbers = true)]
    concurrency: u32,

    #[command(flatten)]
    output: RawOutput,

    #[command(flatten)]
    engine: RawEngine,
}

impl RawBench {
    pub(super) fn checked(self) -> Result<Bench, Failure> {
        let (engine, output) = (self.engine.checked_any()?, self.output.checked());
        Ok(Bench { engine, output, time: Duration::from_secs(self.seconds), concurrency: self.concurrency })
    }
}
