//! How results are wanted: the options that every command which writes some has.

use clap::{Args, ValueEnum};

use crate::output::{Output, colour_by_default};

#[derive(Debug, Args)]
pub(super) struct RawOutput {
    /// Writes JSON, for machines
    #[arg(long)]
    json: bool,

    /// Whether to use colours; `auto`: on a terminal, unless NO_COLOR is set
    #[arg(long, value_name = "WHEN", default_value = "auto", hide_possible_values = true)]
    color: When,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum When {
    Auto,
    Always,
    Never,
}

impl RawOutput {
    pub(super) fn checked(&self) -> Output {
        let colour = match self.color {
            When::Auto => colour_by_default(),
            When::Always => true,
            When::Never => false,
        };
        Output { json: self.json, colour }
    }
}
