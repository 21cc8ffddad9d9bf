//! What `clinch ls` is told.

use std::io::IsTerminal as _;
use std::time::Duration;

use clap::Args;

use super::engine::RawEngine;
use super::output::RawOutput;
use super::values::duration_in;
use crate::failure::Failure;
use crate::ls::Ls;
use crate::pattern::Pattern;

/// The pause between two looks.
const PAUSE: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(3600)];

const HELP: &str = "\
Examples:
  clinch ls                    everything that is held
  clinch ls order              keys that have `order` in them
  clinch ls 'order:*'          keys that begin with `order:`
  clinch ls --watch            the same, again every second
  clinch ls --json | jq -r 'select(.kind == \"permit\") | .host'

Kinds: lock, shared (one of its readers), permit (of a limit), duplicate (a
submission that is being handled), idempotency (a request with such a key).

JSON: one object a line and holder, with key, kind, id, host, pid, task, label,
since (UTC, by the holder's clock), remaining_ms, fence. What is not known is
null: host, pid and label of another client's value; remaining_ms of a value
that never expires. A holder that comes or goes meanwhile may be missed, or
seen twice.

Exit status:
    0  listed, whether or not anything is held
   64  bad usage
   69  engine unavailable
   74  stdout cannot be written
   78  the configuration file cannot be used";

/// Show who holds what
///
/// Lists all holders under the prefix: key, kind, host and process, label, since when, time left.
#[derive(Debug, Args)]
#[command(after_long_help = HELP)]
pub(super) struct RawLs {
    /// Only keys that match: with `*` or `?` the whole key, otherwise any part of it
    pattern: Option<String>,

    /// Look again and again, with this pause
    #[arg(
        long,
        value_name = "DURATION",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "1s",
        value_parser = |text: &str| duration_in(text, PAUSE),
        conflicts_with = "json"
    )]
    watch: Option<Duration>,

    #[command(flatten)]
    output: RawOutput,

    #[command(flatten)]
    engine: RawEngine,
}

impl RawLs {
    pub(super) fn checked(self) -> Result<Ls, Failure> {
        Ok(Ls {
            engine: self.engine.checked()?,
            output: self.output.checked(),
            pattern: self.pattern.as_deref().map(Pattern::new),
            watch: self.watch,
            clear: self.watch.is_some() && std::io::stdout().is_terminal(),
        })
    }
}
