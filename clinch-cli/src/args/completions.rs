//! What `clinch completions` is told.

use clap::{Args, CommandFactory as _};
use clap_complete::Shell;

use crate::completions::Completions;

const HELP: &str = "\
Examples:
  clinch completions bash > ~/.local/share/bash-completion/completions/clinch
  clinch completions zsh > ~/.zfunc/_clinch
  clinch completions fish > ~/.config/fish/completions/clinch.fish";

/// Write the completion script for a shell
#[derive(Debug, Args)]
#[command(after_long_help = HELP)]
pub(super) struct RawCompletions {
    /// The shell
    shell: Shell,
}

impl RawCompletions {
    pub(super) fn checked(self) -> Result<Completions, String> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut super::Raw::command(), "clinch", &mut script);
        Ok(Completions { script: String::from_utf8_lossy(&script).into_owned() })
    }
}
