//! Arguments: what was typed ([`Raw`]) becomes what can be carried out ([`Command`]), here and nowhere else.
//!
//! Everything that can be wrong without asking the engine is found here, so a bad call fails the same way whether the
//! engine is up or not.

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use clap::error::ErrorKind;
use clap::{Args, Parser, Subcommand};
use clinch::{Key, KeyError, LockOptions};
use humantime::format_duration;

use crate::run::Job;

const TTL: [Duration; 2] = [LockOptions::MIN_TTL, LockOptions::MAX_TTL];
const WAIT: [Duration; 2] = [Duration::ZERO, LockOptions::MAX_WAIT];
const LABEL_BYTES: usize = LockOptions::MAX_LABEL_BYTES;

/// What to do, checked.
#[derive(Debug)]
pub(crate) enum Command {
    Run(Job),
}

/// Why there is nothing to do.
#[derive(Debug)]
pub(crate) enum Stop {
    /// A text was asked for: help, version.
    Text(String),
    /// The call makes no sense.
    Usage(String),
}

/// Exactly one caller wins: any command under a distributed lock.
#[derive(Debug, Parser)]
#[command(name = "clinch", version)]
struct Raw {
    #[command(subcommand)]
    command: RawCommand,
}

#[derive(Debug, Subcommand)]
enum RawCommand {
    Run(RawRun),
}

const RUN_USAGE: &str = "clinch run --key <KEY> [OPTIONS] -- <COMMAND>...";

const RUN_HELP: &str = "\
Examples:
  export CLINCH_STORE=redis://127.0.0.1:6379
  clinch run --key nightly -- ./job --full
      runs the job, unless it already runs somewhere
  clinch run --key deploy --wait 5m -- sh -c 'make build && make deploy'
      waits its turn, for five minutes at most
  CLINCH_STORE=rediss://:password@redis.example.com clinch run --key k -- ./job
      a password belongs into the environment: `ps` shows the arguments

The command:
  inherits stdin, stdout and stderr, and has the key in its environment as
  CLINCH_KEY. It gets TERM, INT, HUP, QUIT, USR1 and USR2 that are sent to
  clinch; while clinch still waits for the lock, they end clinch. The lock is
  for the command itself, not for what it leaves running in the background.
  CLINCH_FENCE is a number that rises with every holder of the key: a resource
  that refuses a number lower than the highest it has seen is safe from a
  command that writes after its lock was lost.

When the lease is lost (no engine for too long, or ended by force):
  The command gets TERM, and KILL after the grace; so do the processes that it
  started, unless clinch is in the foreground of a terminal. If clinch itself
  is killed with KILL, or stopped, it can do nothing: the lock is free after
  its TTL, and the command goes on without it.

Exit status:
  The command's own, or 128 + n if signal n ended it; else
   64  bad usage
   69  engine unavailable
   70  lease lost, command stopped
   71  the system refused what clinch needs
   75  somebody else has the lock
  126  the command cannot be started
  127  there is no such command";

/// Run a command while holding a lock
///
/// Takes the lock, runs the command, renews the lock as long as the command runs, and gives it back.
#[derive(Debug, Args)]
#[command(after_long_help = RUN_HELP, override_usage = RUN_USAGE)]
struct RawRun {
    /// What to lock, for instance `nightly` or `deploy:shop`
    #[arg(long, value_parser = key)]
    key: Key,

    /// How long the lock outlives a clinch that died [10ms to 24h]
    ///
    /// It is renewed every third of this as long as the command runs. The longer it is, the longer an outage of the
    /// engine the command survives, and the longer others wait after a crash.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = ttl)]
    ttl: Duration,

    /// How long to wait for the lock if somebody else has it [0s: not at all]
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = wait)]
    wait: Duration,

    /// How long the command has, once the lease is lost, from TERM to KILL
    ///
    /// It runs without a lock meanwhile: keep it short.
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = humantime::parse_duration)]
    grace: Duration,

    /// The engine: redis://host:6379, rediss://user:password@host/0 (TLS), redis+unix:///path
    ///
    /// Other users of this machine can see it in the process list: give a password by CLINCH_STORE.
    #[arg(long, value_name = "URL", env = "CLINCH_STORE", hide_env_values = true)]
    store: Option<String>,

    /// What the engine's keys begin with: PREFIX:lock:KEY
    #[arg(long, env = "CLINCH_PREFIX", default_value = "clinch", value_parser = prefix)]
    prefix: String,

    /// What others are told about who holds the lock [default: the command's file name]
    #[arg(long, value_parser = label)]
    label: Option<String>,

    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// Reads and checks the arguments.
pub(crate) fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Command, Stop> {
    match Raw::try_parse_from(args).map_err(|error| stop(&error))?.command {
        RawCommand::Run(raw) => raw.checked().map(Command::Run).map_err(Stop::Usage),
    }
}

impl RawRun {
    fn checked(self) -> Result<Job, String> {
        let mut command = self.command.into_iter();
        let program = command.next().ok_or("no command: give one after `--`")?;
        Ok(Job {
            store: store(self.store)?,
            prefix: self.prefix,
            key: self.key,
            ttl: self.ttl,
            wait: self.wait,
            grace: self.grace,
            label: self.label.unwrap_or_else(|| default_label(&program)),
            program,
            args: command.collect(),
        })
    }
}

fn store(url: Option<String>) -> Result<String, String> {
    let url = url
        .filter(|url| !url.is_empty())
        .ok_or("no engine: give --store URL or set CLINCH_STORE, for instance to redis://127.0.0.1:6379")?;
    if url.split(':').next() == Some("memory") {
        return Err(
            "`memory:` protects nothing between processes; give --store or CLINCH_STORE the URL of an \
                    engine that they share, for instance redis://127.0.0.1:6379"
                .to_owned(),
        );
    }
    Ok(url)
}

fn key(text: &str) -> Result<Key, KeyError> {
    Key::new(text)
}

fn prefix(text: &str) -> Result<String, clinch::Error> {
    clinch::stores::check_prefix(text).map(|()| text.to_owned())
}

fn label(text: &str) -> Result<String, String> {
    if text.len() > LABEL_BYTES || text.contains(char::is_control) {
        return Err(format!("accepted is at most {LABEL_BYTES} bytes without control characters"));
    }
    Ok(text.to_owned())
}

fn ttl(text: &str) -> Result<Duration, String> {
    duration_in(text, TTL)
}

fn wait(text: &str) -> Result<Duration, String> {
    duration_in(text, WAIT)
}

fn duration_in(text: &str, [least, most]: [Duration; 2]) -> Result<Duration, String> {
    let duration = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    if duration < least || duration > most {
        return Err(format!("accepted is {} to {}", format_duration(least), format_duration(most)));
    }
    Ok(duration)
}

/// The command's file name, cut to what a label may be.
fn default_label(program: &OsString) -> String {
    let name = Path::new(program).file_name().unwrap_or(program).to_string_lossy();
    let mut label = name.replace(char::is_control, "?");
    while label.len() > LABEL_BYTES {
        label.pop();
    }
    label
}

/// What clap says, in one line and without passwords.
fn stop(error: &clap::Error) -> Stop {
    let text = error.render().to_string();
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        return Stop::Text(text);
    }
    // After the problem come an empty line, tips, and the usage.
    let text = text.strip_prefix("error: ").unwrap_or(&text);
    let problem = text.split("\n\n").next().unwrap_or(text);
    let words: Vec<_> = problem.split_ascii_whitespace().map(without_password).collect();
    let problem = words.join(" ");
    Stop::Usage(match error.kind() {
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => format!("nothing to do; usage: {RUN_USAGE}"),
        ErrorKind::UnknownArgument | ErrorKind::MissingRequiredArgument | ErrorKind::InvalidSubcommand => {
            format!("{problem}; usage: {RUN_USAGE}")
        }
        _ => problem,
    })
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

    fn parse(args: &[&str]) -> Result<Command, Stop> {
        super::parse(args.iter().map(OsString::from))
    }

    fn job(args: &[&str]) -> Job {
        let args = [&["clinch", "run", "--key", "k", "--store", "redis://h"], args].concat();
        let Ok(Command::Run(job)) = parse(&args) else { panic!("{args:?}") };
        job
    }

    #[test]
    fn the_definition_is_sound() {
        use clap::CommandFactory as _;
        Raw::command().debug_assert();
    }

    #[test]
    fn defaults() {
        let job = job(&["--", "/opt/jobs/nightly", "-x", "--key", "y"]);
        assert_eq!(job.key.as_str(), "k");
        assert_eq!([job.ttl, job.wait, job.grace].map(|time| time.as_secs()), [30, 0, 5]);
        assert_eq!((job.prefix.as_str(), job.label.as_str()), ("clinch", "nightly"));
        assert_eq!(job.program, "/opt/jobs/nightly");
        assert_eq!(job.args, ["-x", "--key", "y"]);
    }

    #[test]
    fn durations_are_written_for_people() {
        let job = job(&["--ttl", "5m", "--wait", "1h 30m", "--grace", "250ms", "--", "x"]);
        assert_eq!([job.ttl, job.wait, job.grace].map(|time| time.as_millis()), [300_000, 5_400_000, 250]);
    }

    #[test]
    fn a_default_label_is_always_a_label() {
        assert_eq!(default_label(&"..".into()), "..");
        assert_eq!(default_label(&"a\nb".into()), "a?b");
        let long = default_label(&"ü".repeat(40).into());
        assert_eq!(long, "ü".repeat(32));
        assert!(label(&long).is_ok());
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
            let Err(Stop::Usage(problem)) = parse(args) else { panic!("{args:?}") };
            assert!(!problem.contains("secret"), "{problem}");
        }
    }
}
