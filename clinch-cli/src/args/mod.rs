//! Arguments: what was typed ([`Raw`]) becomes what can be carried out ([`Command`]), here and nowhere else.
//!
//! Everything that can be wrong without asking the engine is found here, so a bad call fails the same way whether the
//! engine is up or not. One file a command; what several of them have in common is in [`engine`] and [`values`].
//!
//! A new command is a file here with its `Raw…` type (what clap reads, and `checked`), its `mod` line and its line in
//! `commands!` below; what carries it out is a type with `carry_out(&self) -> Exit` in a module of its own.

mod bench;
mod completions;
mod config;
mod doctor;
mod engine;
mod inspect;
mod ls;
mod output;
mod release;
mod run;
mod serve;
mod values;

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Parser, Subcommand};

use crate::exit::Exit;
use crate::failure::Failure;

/// One line a command: its name, what was typed, what can be carried out.
macro_rules! commands {
    ($($name:ident: $raw:ty => $task:ty,)+) => {
        /// What to do, checked.
        #[derive(Debug)]
        pub(crate) enum Command {
            $($name($task),)+
        }

        #[derive(Debug, Subcommand)]
        enum RawCommand {
            $($name($raw),)+
        }

        impl RawCommand {
            fn checked(self) -> Result<Command, Failure> {
                match self {
                    $(Self::$name(raw) => Ok(Command::$name(raw.checked()?)),)+
                }
            }
        }

        impl Command {
            /// Does it, and says how it ended.
            pub(crate) fn carry_out(&self) -> Exit {
                match self {
                    $(Self::$name(task) => task.carry_out(),)+
                }
            }
        }
    };
}

commands! {
    Run: run::RawRun => crate::run::Job,
    Ls: ls::RawLs => crate::ls::Ls,
    Inspect: inspect::RawInspect => crate::inspect::Inspect,
    Release: release::RawRelease => crate::release::Release,
    Serve: serve::RawServe => crate::serve::Serve,
    Doctor: doctor::RawDoctor => crate::doctor::Doctor,
    Bench: bench::RawBench => crate::bench::Bench,
    Config: config::RawConfig => crate::config::Configuration,
    Completions: completions::RawCompletions => crate::completions::Completions,
}

/// Why there is nothing to do.
#[derive(Debug)]
pub(crate) enum Stop {
    /// A text was asked for: help, version.
    Text(String),
    /// The call makes no sense.
    Refused(Failure),
}

const HELP: &str = "\
Examples:
  clinch run --key nightly -- ./job    the job, unless it runs already
  clinch ls                            who holds what
  clinch inspect nightly && echo held
  clinch release nightly --force
  clinch doctor                        whether the engine is set up well

Exit status:
    0  done; `inspect`: held
    1  `inspect`: free; `release`: nothing was released; `doctor`: see there
   64  bad usage
   69  engine unavailable
   70  `run`: lease lost, command stopped
   71  the system refused what clinch needs
   74  stdout or the audit log cannot be written
   75  `run`: somebody else has the lock
   78  the configuration file cannot be used
  `run` otherwise ends as its command does; each command's --help says more.
  What clinch itself has to say is one line on stderr that begins with
  `clinch:`.";

/// Exactly one caller wins: commands under distributed locks, and a look at who holds what
#[derive(Debug, Parser)]
#[command(name = "clinch", version, after_long_help = HELP)]
struct Raw {
    #[command(subcommand)]
    command: RawCommand,
}

/// Reads and checks the arguments.
pub(crate) fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Command, Stop> {
    let raw = Raw::try_parse_from(args).map_err(|error| stop(&error))?;
    raw.command.checked().map_err(Stop::Refused)
}

/// What clap says, in one line and without passwords.
fn stop(error: &clap::Error) -> Stop {
    let text = error.render().to_string();
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        return Stop::Text(text);
    }
    let usage = text.lines().find_map(|line| line.strip_prefix("Usage: ")).unwrap_or("clinch --help");
    // After the problem come an empty line, tips, and the usage.
    let problem = text.strip_prefix("error: ").unwrap_or(&text);
    let problem = problem.split("\n\n").next().unwrap_or(problem);
    let words: Vec<_> = problem.split_ascii_whitespace().map(without_password).collect();
    let problem = words.join(" ");
    Stop::Refused(Failure::from(match error.kind() {
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            format!("nothing to do; usage: {usage}{}; `--help` says more", commands(&text))
        }
        ErrorKind::InvalidSubcommand => {
            format!("{problem}{}; usage: {usage}; `--help` lists them", meant(error))
        }
        ErrorKind::UnknownArgument | ErrorKind::MissingRequiredArgument => {
            format!("{problem}{}; usage: {usage}", meant(error))
        }
        _ => problem,
    }))
}

/// What was perhaps meant.
fn meant(error: &clap::Error) -> String {
    let kinds = [ContextKind::SuggestedSubcommand, ContextKind::SuggestedArg];
    let name = match kinds.into_iter().find_map(|kind| error.get(kind)) {
        Some(ContextValue::String(name)) => Some(name),
        Some(ContextValue::Strings(names)) => names.first(),
        _ => None,
    };
    name.map(|name| format!("; did you mean `{name}`?")).unwrap_or_default()
}

/// The commands that a help text lists.
fn commands(help: &str) -> String {
    let listed =
        help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    let names: Vec<_> = listed
        .filter_map(|line| line.strip_prefix("  ")?.split(' ').next())
        .filter(|name| !name.is_empty() && *name != "help")
        .collect();
    if names.is_empty() { String::new() } else { format!(", where COMMAND is {}", names.join(", ")) }
}

/// An engine's URL in the wrong place would be shown as it was typed.
fn without_password(word: &str) -> String {
    match (word.split_once("://"), word.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, host))) => format!("{scheme}://***@{host}"),
        _ => word.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn parse(args: &[&str]) -> Result<Command, Stop> {
        super::parse(args.iter().map(OsString::from))
    }

    #[test]
    fn the_definition_is_sound() {
        use clap::CommandFactory as _;
        Raw::command().debug_assert();
    }

    #[test]
    fn passwords_in_the_wrong_place_are_not_shown() {
        for args in [
            &["clinch", "redis://:secret@h"][..],
            &["clinch", "run", "redis://u:se@secret@h:1/0", "--key", "k"],
            &["clinch", "run", "--stroe", "redis://:secret@h", "--", "x"],
            &["clinch", "run", "--stroe=redis://:secret@h", "--", "x"],
            &["clinch", "run", "--key", "k", "--ttl", "redis://:secret@h", "--", "x"],
        ] {
            let Err(Stop::Refused(failure)) = parse(args) else { panic!("{args:?}") };
            let problem = format!("{failure:?}");
            assert!(!problem.contains("secret"), "{problem}");
        }
    }
}
