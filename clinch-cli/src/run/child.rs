//! The command's process, and signals to it.
//!
//! Where the command stands decides who gets a signal:
//!
//! - **In the foreground of a terminal** the command stays in clinch's process group. It must: from another group it
//!   could not read from the terminal, and Ctrl-Z would stop clinch, which renews, but not the command. The terminal
//!   sends Ctrl-C and Ctrl-\ to the whole group, the command included, so clinch does not send INT and QUIT a second
//!   time; other signals go to the command alone, because the group holds more than the command.
//! - **Anywhere else** (cron, a service, CI, `&`) the command leads a process group of its own, and signals go to the
//!   group: what `sh -c` started is reached too, above all when the lease is lost.
//!
//! What moves to yet another group or session is not reached.

use std::fs::File;
use std::io;
use std::process::ExitStatus;
use std::time::Duration;

use clinch::Fence;
use rustix::process::{Pid, Signal, getpgrp, kill_process, kill_process_group, test_kill_process_group};
use rustix::termios::tcgetpgrp;
use tokio::process::Command;
use tokio::time::sleep;

use super::Job;

/// How the command finds what it holds.
const KEY_ENV: &str = "CLINCH_KEY";
const FENCE_ENV: &str = "CLINCH_FENCE";

/// Pause between two looks at whether a process group is empty, which no event tells.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// The command's process. It is not killed when this is dropped.
#[derive(Debug)]
pub(super) struct Child {
    process: tokio::process::Child,
    /// Its process id, and that of its group if it has one of its own.
    pid: Pid,
    /// The terminal in whose foreground it is; `None` if it has a group of its own.
    terminal: Option<File>,
    /// After its end its process id may be somebody else's.
    ended: bool,
}

impl Child {
    /// Starts the command. It inherits everything, and gets its key and the fence.
    pub(super) fn start(job: &Job, fence: Option<Fence>) -> io::Result<Self> {
        let terminal = foreground_terminal();
        let mut command = Command::new(&job.program);
        command.args(&job.args).env(KEY_ENV, job.key.as_str());
        match fence {
            Some(fence) => command.env(FENCE_ENV, fence.to_string()),
            // Not that of another clinch, under which this one runs.
            None => command.env_remove(FENCE_ENV),
        };
        if terminal.is_none() {
            command.process_group(0);
        }
        let process = command.spawn()?;
        let pid = process.id().and_then(|id| Pid::from_raw(id.try_into().ok()?));
        let pid = pid.ok_or_else(|| io::Error::other("it has no process id"))?;
        Ok(Self { process, pid, terminal, ended: false })
    }

    /// Waits for the end of the command itself; what it started may still run.
    ///
    /// Cancel safe: call it again.
    pub(super) async fn wait(&mut self) -> io::Result<ExitStatus> {
        let status = self.process.wait().await;
        self.ended = true;
        status
    }

    /// Whether the end of the command itself is known.
    pub(super) const fn has_ended(&self) -> bool {
        self.ended
    }

    /// Waits until nobody is left whom [`send`](Self::send) would reach.
    ///
    /// Cancel safe: call it again.
    pub(super) async fn gone(&mut self) {
        // An error can only mean that there is nothing to wait for.
        let _ = self.wait().await;
        while self.terminal.is_none() && test_kill_process_group(self.pid).is_ok() {
            sleep(LOOK_AGAIN).await;
        }
    }

    /// Sends a signal to the command, and to its group if it has one of its own.
    pub(super) fn send(&self, signal: Signal) {
        // It fails if they have all ended, which is as good, or if they became another user's, which we cannot help.
        let _ = match self.terminal {
            None => kill_process_group(self.pid, signal),
            Some(_) if self.ended => Ok(()),
            Some(_) => kill_process(self.pid, signal),
        };
    }

    /// Passes on a signal that clinch got, unless the terminal has sent it to the command as well.
    pub(super) fn pass_on(&self, signal: Signal) {
        let from_keyboard = matches!(signal, Signal::INT | Signal::QUIT);
        if from_keyboard && self.terminal.as_ref().is_some_and(in_foreground) {
            return;
        }
        self.send(signal);
    }
}

/// The terminal, if clinch is in its foreground. Not stdin: that may be a pipe or a file in an interactive session too.
fn foreground_terminal() -> Option<File> {
    File::open("/dev/tty").ok().filter(in_foreground)
}

fn in_foreground(terminal: &File) -> bool {
    tcgetpgrp(terminal).is_ok_and(|foreground| foreground == getpgrp())
}
