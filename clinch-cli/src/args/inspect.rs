//! What `clinch inspect` is told.

use clap::Args;
use clinch::Key;

use super::engine::RawEngine;
use super::output::RawOutput;
use super::values::key;
use crate::failure::Failure;
use crate::inspect::Inspect;

const HELP: &str = "\
Examples:
  clinch inspect nightly
  if clinch inspect deploy >/dev/null; then echo 'a deployment is running'; fi
  clinch inspect export --json | jq '.holders | length'

Looks at everything that the key can name: a lock, held by one or shared by
several, the permits of a limit, a duplicate window, an idempotency key.

JSON: one object with key, held, and holders as in `clinch ls --help`.

Exit status:
    0  held
    1  free
   64  bad usage
   69  engine unavailable
   74  stdout cannot be written
   78  the configuration file cannot be used";

/// Show who holds a key
///
/// The answer is already old when it arrives: to act on it, take the lock.
#[derive(Debug, Args)]
#[command(after_long_help = HELP)]
pub(super) struct RawInspect {
    /// The key
    #[arg(value_parser = key)]
    key: Key,

    #[command(flatten)]
    output: RawOutput,

    #[command(flatten)]
    engine: RawEngine,
}

impl RawInspect {
    pub(super) fn checked(self) -> Result<Inspect, Failure> {
        Ok(Inspect { engine: self.engine.checked()?, output: self.output.checked(), key: self.key })
    }
}
