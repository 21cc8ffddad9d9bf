//! What `clinch doctor` is told.

use std::time::Duration;

use clap::Args;

use super::engine::RawEngine;
use super::output::RawOutput;
use super::values::duration_in;
use crate::doctor::Doctor;
use crate::failure::Failure;

const PATIENCE: [Duration; 2] = [Duration::from_millis(1), Duration::from_secs(60)];

const HELP: &str = "\
Examples:
  clinch doctor
  clinch doctor --store redis://redis.example.com:6379
  clinch doctor --json | jq -r '.findings[] | \"\\(.severity) \\(.name)\"'

Looks at what can cost a lease: whether the engine answers and how fast, its
version, whether it evicts keys, whether it keeps them over a restart, its
replicas, what its user may do, and how far its clock is from this machine's.
Each finding says what to change. What the user may not see is shown as not
known. Nothing is changed, and no SQLite file is made: before the first lock on
the user's own file, that it is not there yet is a note.

JSON: one object with store, prefix, reachable, facts (name, value, unknown) and
findings (name, severity: error, warning or note, problem, remedy).

Exit status:
    0  nothing to change, or only notes
    1  there are warnings or errors
   64  bad usage
   69  engine unavailable
   74  stdout cannot be written
   78  the configuration file cannot be used";

/// Look closely at the engine, and say what to change
#[derive(Debug, Args)]
#[command(after_long_help = HELP)]
pub(super) struct RawDoctor {
    /// How long the engine has to answer at all
    #[arg(long, value_name = "DURATION", default_value = "1500ms", value_parser = |text: &str| duration_in(text, PATIENCE), allow_hyphen_values = true)]
    timeout: Duration,

    #[command(flatten)]
    output: RawOutput,

    #[command(flatten)]
    engine: RawEngine,
}

impl RawDoctor {
    pub(super) fn checked(self) -> Result<Doctor, Failure> {
        let (engine, output) = (self.engine.checked_any()?, self.output.checked());
        Ok(Doctor { engine, output, patience: self.timeout })
    }
}
