//! What all scenarios share: the servers, how much is done, and a line that says what is going on.

use std::cell::Cell;
use std::io::{IsTerminal as _, Write as _};
use std::time::Instant;

use clinch_testkit::server::RedisServer;

use crate::peers::Contender;

pub(crate) struct Bench {
    pub(crate) plain: RedisServer,
    /// The same with keyspace events, for those who need them.
    eventful: RedisServer,
    pub(crate) quick: bool,
    /// Whether peers take part.
    pub(crate) peers: bool,
    pub(crate) progress: Progress,
}

impl Bench {
    pub(crate) fn start(quick: bool, peers: bool, steps: usize) -> Self {
        let eventful = RedisServer::builder().arg("notify-keyspace-events", "KA").start();
        Self { plain: RedisServer::start(), eventful, quick, peers, progress: Progress::new(steps) }
    }

    pub(crate) fn server(&self, contender: &Contender) -> &RedisServer {
        if contender.keyspace_events { &self.eventful } else { &self.plain }
    }

    /// Rounds of the reference, of Clinch and of bounds.
    pub(crate) const fn rounds(&self) -> usize {
        if self.quick { 3 } else { 5 }
    }

    pub(crate) const fn peer_rounds(&self) -> usize {
        if self.quick { 1 } else { 2 }
    }
}

/// One line on standard error, if a person is there to see it.
pub(crate) struct Progress {
    began: Instant,
    steps: usize,
    done: Cell<usize>,
    shown: bool,
}

impl Progress {
    const WIDTH: usize = 24;

    fn new(steps: usize) -> Self {
        Self { began: Instant::now(), steps, done: Cell::new(0), shown: std::io::stderr().is_terminal() }
    }

    /// A scenario is over.
    pub(crate) fn step(&self) {
        self.done.set(self.done.get() + 1);
    }

    /// What is done now.
    pub(crate) fn now(&self, scenario: &str, what: &str, round: usize) {
        if !self.shown {
            return;
        }
        let full = Self::WIDTH * self.done.get() / self.steps.max(1);
        let bar = "█".repeat(full) + &"░".repeat(Self::WIDTH - full);
        let seconds = self.began.elapsed().as_secs();
        let text = format!("{bar} {seconds:>3} s  {scenario} {what}, {}", round + 1);
        eprint!("\r\x1b[K{text}");
        let _ = std::io::stderr().flush();
    }

    pub(crate) fn clear(&self) {
        if self.shown {
            eprint!("\r\x1b[K");
        }
    }
}
