//! What `clinch run` is told.

use std::ffi::OsString;
use std::num::NonZeroU32;
use std::path::Path;
use std::time::Duration;

use clap::Args;
use clinch::Key;

use super::engine::RawEngine;
use super::values::{LABEL_BYTES, grace, key, label, ttl, wait, whole_in};
use crate::failure::Failure;
use crate::run::{Job, Place};

const USAGE: &str = "clinch run --key <KEY> [OPTIONS] -- <COMMAND>...";

const HELP: &str = "\
Examples:
  clinch run --key nightly -- ./job --full
      runs the job, unless this user already runs it on this machine; there is
      nothing to set up
  export CLINCH_STORE=redis://127.0.0.1:6379
  clinch run --key nightly -- ./job --full
      ... unless it already runs somewhere
  clinch run --key deploy --wait 5m -- sh -c 'make build && make deploy'
      waits its turn, for five minutes at most
  clinch run --key export --limit 3 -- ./export
      at most three at a time
  clinch run --key catalogue --shared -- ./read; clinch run --key catalogue -- ./write
      readers together, a writer alone
  CLINCH_STORE=rediss://:password@redis.example.com clinch run --key k -- ./job
      a password belongs into the environment: `ps` shows the arguments

The command:
  inherits stdin, stdout and stderr, and has the key in its environment as
  CLINCH_KEY. It gets TERM, INT, HUP, QUIT, USR1 and USR2 that are sent to
  clinch; while clinch still waits for the lock, they end clinch. The lock is
  for the command itself, not for what it leaves running in the background.
  CLINCH_FENCE is a number that rises with every holder of the key: a resource
  that refuses a number lower than the highest it has seen is safe from a
  command that writes after its lock was lost. (Not with --limit or --shared.)

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
   75  somebody else has the lock, or all permits are taken
   78  the configuration file cannot be used
  126  the command cannot be started
  127  there is no such command";

/// Run a command while holding a lock
///
/// Takes the lock, runs the command, renews the lock as long as the command runs, and gives it back.
#[derive(Debug, Args)]
#[command(after_long_help = HELP, override_usage = USAGE)]
pub(super) struct RawRun {
    /// What to lock, for instance `nightly` or `deploy:shop`
    #[arg(long, value_parser = key)]
    key: Key,

    /// Take one of N permits instead of the lock: at most N commands at a time
    ///
    /// Everybody should say the same N; it counts for one's own permit. Permits and the lock of the same key are two things.
    #[arg(long, value_name = "N", conflicts_with = "shared", value_parser = limit, allow_negative_numbers = true)]
    limit: Option<NonZeroU32>,

    /// Share the lock with others that share it; nobody has it alone meanwhile
    #[arg(long)]
    shared: bool,

    /// How long the lock outlives a clinch that died [10ms to 24h]
    ///
    /// It is renewed every third of this as long as the command runs. The longer it is, the longer an outage of the
    /// engine the command survives, and the longer others wait after a crash.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = ttl, allow_hyphen_values = true)]
    ttl: Duration,

    /// How long to wait for the lock if somebody else has it [0s: not at all]
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = wait, allow_hyphen_values = true)]
    wait: Duration,

    /// How long the command has, once the lease is lost, from TERM to KILL [0s to 24h]
    ///
    /// It runs without a lock meanwhile: keep it short.
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = grace, allow_hyphen_values = true)]
    grace: Duration,

    /// What others are told about who holds the lock [default: the command's file name]
    #[arg(long, value_parser = label)]
    label: Option<String>,

    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,

    #[command(flatten)]
    engine: RawEngine,
}

impl RawRun {
    pub(super) fn checked(self) -> Result<Job, Failure> {
        let mut command = self.command.into_iter();
        let program = command.next().ok_or_else(|| "no command: give one after `--`".to_owned())?;
        Ok(Job {
            engine: self.engine.checked()?,
            key: self.key,
            place: match (self.limit, self.shared) {
                (Some(limit), _) => Place::OneOf(limit),
                (None, true) => Place::Shared,
                (None, false) => Place::Alone,
            },
            ttl: self.ttl,
            wait: self.wait,
            grace: self.grace,
            label: self.label.unwrap_or_else(|| default_label(&program)),
            program,
            args: command.collect(),
        })
    }
}

fn limit(text: &str) -> Result<NonZeroU32, String> {
    whole_in(text, NonZeroU32::MIN..=NonZeroU32::MAX)
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

#[cfg(test)]
mod tests {
    use super::super::{Command, tests::parse};
    use super::*;

    fn job(args: &[&str]) -> Job {
        let args = [&["clinch", "run", "--key", "k", "--store", "redis://h"], args].concat();
        let Ok(Command::Run(job)) = parse(&args) else { panic!("{args:?}") };
        job
    }

    #[test]
    fn defaults() {
        let job = job(&["--", "/opt/jobs/nightly", "-x", "--key", "y"]);
        assert_eq!(job.key.as_str(), "k");
        assert_eq!([job.ttl, job.wait, job.grace].map(|time| time.as_secs()), [30, 0, 5]);
        assert_eq!((job.engine.config.prefix.as_str(), job.label.as_str()), ("clinch", "nightly"));
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
}
