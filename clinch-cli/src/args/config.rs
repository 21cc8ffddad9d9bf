//! What `clinch config` is told.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::engine::RawEngine;
use super::output::RawOutput;
use crate::config::Configuration;
use crate::failure::Failure;

const CHECK_HELP: &str = "\
Examples:
  clinch config check clinch.toml
  clinch config check --json clinch.toml | jq -r .problem

Reads the file alone, without the environment, and checks every value. An error
is one line on stderr: file, line, column, field, and what is accepted.

JSON: one object with file, ok, and if it is not: place, field, problem.

Exit status:
    0  nothing is wrong
   64  bad usage
   74  stdout cannot be written
   78  it cannot be used";

const SHOW_HELP: &str = "\
Examples:
  clinch config show
  CLINCH_CONFIG=clinch.toml clinch config show
  clinch config show --json | jq -r '.store.source'

What clinch would use now: the defaults, the file, variables of the environment
(CLINCH_STORE, CLINCH_GUARDS_SHADOW, ...) and options, later ones before earlier
ones, and where each value came from. As TOML that can be read again, but for
secrets, which are hidden.

JSON: one object with every field by its name with dots, each with value,
source, and line if it came from a file.

Exit status:
    0  shown
   64  bad usage
   74  stdout cannot be written
   78  the configuration file cannot be used";

/// Check a configuration file, or show what is in effect
#[derive(Debug, Args)]
pub(super) struct RawConfig {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Check a configuration file
    #[command(after_long_help = CHECK_HELP)]
    Check {
        /// The file
        file: PathBuf,

        #[command(flatten)]
        output: RawOutput,
    },
    /// Show the values in effect, and where they came from
    #[command(after_long_help = SHOW_HELP)]
    Show {
        #[command(flatten)]
        output: RawOutput,

        #[command(flatten)]
        engine: RawEngine,
    },
}

impl RawConfig {
    pub(super) fn checked(self) -> Result<Configuration, Failure> {
        Ok(match self.what {
            What::Check { file, output } => Configuration::Check { file, output: output.checked() },
            What::Show { output, engine } => {
                let config = Box::new(engine.checked_any()?.config);
                Configuration::Show { config, output: output.checked() }
            }
        })
    }
}
