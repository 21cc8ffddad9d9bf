//! What `clinch release` is told.

use std::path::PathBuf;

use clap::Args;
use clinch::Key;

use super::engine::RawEngine;
use super::output::RawOutput;
use super::values::key;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::release::{Release, Which};
use crate::state;

const HELP: &str = "\
Examples:
  clinch release deploy --force            asks first, showing who holds it
  clinch release deploy --force --yes      for scripts
  clinch release export --force --holder 3f9c21ab77de
      one of several holders, by its ID in `clinch inspect export`
  clinch release export --force --all

Ends exactly the leases that were seen, never those of successors. A holder
that uses Clinch learns it at once where the engine can push, and stops (`clinch
run` ends its command); until then, and if it is another program, it goes on
working without its lock.

The audit log has two lines of JSON for each lease: `asked` before anything is
done, then `released`, `gone` or `failed`; with time, user, host, key and
holder. It is the file of --audit-log, or the `audit_log` of `[serve]` in the
configuration, or audit.log in $XDG_STATE_HOME/clinch or ~/.local/state/clinch.
If it cannot be written, nothing is released; --no-audit goes without it.

JSON: one object with key, released and gone: holders as in `clinch ls --help`.

Exit status:
    0  released
    1  nothing was held, or nothing was released
   64  bad usage; also if it is not said which of several holders
   69  engine unavailable
   74  the audit log or stdout cannot be written
   78  the configuration file cannot be used";

/// End a lease by force
///
/// For a lock whose holder hangs. It asks first on a terminal, and needs --yes elsewhere.
#[derive(Debug, Args)]
#[command(after_long_help = HELP)]
pub(super) struct RawRelease {
    /// The key
    #[arg(value_parser = key)]
    key: Key,

    /// Yes, somebody else's lease: there is no other way to release one from here
    #[arg(long)]
    force: bool,

    /// Do not ask
    #[arg(long, short)]
    yes: bool,

    /// Which of several holders: its ID (its first 4 signs or more), or HOST:PID
    #[arg(long, value_name = "HOLDER", conflicts_with = "all")]
    holder: Option<String>,

    /// All holders of the key
    #[arg(long)]
    all: bool,

    /// Where to write down who released what
    #[arg(long, value_name = "FILE")]
    audit_log: Option<PathBuf>,

    /// Do not write it down
    #[arg(long, conflicts_with = "audit_log")]
    no_audit: bool,

    #[command(flatten)]
    output: RawOutput,

    #[command(flatten)]
    engine: RawEngine,
}

impl RawRelease {
    pub(super) fn checked(self) -> Result<Release, Failure> {
        if !self.force {
            let what = "it is somebody else's lease: give --force to end it; nothing was released";
            return Err(Failure::new(Exit::USAGE, what));
        }
        let engine = self.engine.checked()?;
        let which = match (self.holder, self.all) {
            (Some(name), _) => Which::Named(name),
            (None, true) => Which::All,
            (None, false) => Which::Only,
        };
        let audit_log = match self.audit_log.or_else(|| engine.config.serve.audit_log.clone()) {
            _ if self.no_audit => None,
            Some(path) => Some(path),
            None => Some(state::audit_log().ok_or_else(|| {
                let what =
                    "no place for the audit log: give --audit-log FILE, or set HOME; nothing was released";
                Failure::new(Exit::USAGE, what)
            })?),
        };
        Ok(Release { engine, output: self.output.checked(), key: self.key, which, yes: self.yes, audit_log })
    }
}
