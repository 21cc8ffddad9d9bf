//! A child process that is talked to in lines, and that never outlives the command.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use rustix::time::{ClockId, clock_gettime};

/// How long a child may take for a line that is expected of it: far longer than anything measured here.
const PATIENCE: Duration = Duration::from_secs(120);

/// Killed and waited for when it is dropped, stopped or not.
pub(super) struct Kid {
    child: Child,
    to: ChildStdin,
    from: Receiver<String>,
}

impl Kid {
    pub(super) fn new(arguments: &[String]) -> Self {
        let mut child = super::another(arguments);
        let (to, from) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let (sender, receiver) = channel();
        // A thread, so that a child that hangs is found out instead of waited for.
        std::thread::spawn(move || {
            for line in BufReader::new(from).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Self { child, to, from: receiver }
    }

    pub(super) fn say(&mut self, line: &str) {
        writeln!(self.to, "{line}").unwrap();
    }

    pub(super) fn hear(&self) -> String {
        self.hear_after(Duration::ZERO)
    }

    /// What it says once it has worked for that long.
    pub(super) fn hear_after(&self, work: Duration) -> String {
        self.from.recv_timeout(work + PATIENCE).expect("the child ended, or said nothing in time")
    }

    /// What it has said by now.
    pub(super) fn heard(&self) -> Vec<String> {
        self.from.try_iter().collect()
    }

    /// The next that it says which is not a number.
    pub(super) fn last_word(&self) -> String {
        loop {
            match self.from.recv_timeout(PATIENCE) {
                Ok(line) if line.parse::<u64>().is_ok() => {}
                Ok(line) => return line,
                Err(_) => return "it ended, or said nothing in time".to_owned(),
            }
        }
    }

    pub(super) fn stop(&self) {
        self.signal(Signal::STOP);
    }

    pub(super) fn cont(&self) {
        self.signal(Signal::CONT);
    }

    // It is waited for only when it is dropped, so its id cannot have come to mean another process.
    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("the child can be signalled");
    }
}

impl Drop for Kid {
    fn drop(&mut self) {
        // Errors mean that it has ended already. SIGKILL ends a stopped process too.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// In a child: what the parent says, line by line. When the parent is gone, so is the child.
pub(super) fn orders() -> tokio::sync::mpsc::UnboundedReceiver<String> {
    let (sender, receiver) = tokio::sync::mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
        std::process::exit(1);
    });
    receiver
}

/// Nanoseconds on the one clock that all processes of a machine share, and that nobody sets.
pub(super) fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    nanos(Duration::new(now.tv_sec.try_into().unwrap(), now.tv_nsec.try_into().unwrap()))
}

pub(super) fn nanos(duration: Duration) -> u64 {
    duration.as_nanos().try_into().unwrap()
}
