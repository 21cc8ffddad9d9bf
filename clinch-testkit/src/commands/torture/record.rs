//! What a client writes down of its operations, one line each, and reading it back.
//!
//! Times are nanoseconds on the clock that all processes of the machine share. A line is one write, so that a process that
//! is killed leaves whole lines.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::Path;

/// As what a key is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Role {
    Exclusive,
    Shared,
    Permit,
}

impl Role {
    const ALL: [Self; 3] = [Self::Exclusive, Self::Shared, Self::Permit];

    const fn word(self) -> &'static str {
        match self {
            Self::Exclusive => "exclusive",
            Self::Shared => "shared",
            Self::Permit => "permit",
        }
    }
}

/// What a holder believes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Belief {
    /// When the engine said so last, or before that.
    pub(super) said: u64,
    /// How long that is good for.
    pub(super) until: u64,
}

/// Writes a client's history.
#[derive(Debug)]
pub(super) struct Writer(File);

impl Writer {
    pub(super) fn append_to(path: &Path) -> Self {
        Self(File::options().append(true).open(path).unwrap())
    }

    fn line(&self, line: &str) {
        (&self.0).write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    /// An operation begins, which may wait for so long.
    pub(super) fn begin(&self, op: u64, at: u64, wait: u64) {
        self.line(&format!("begin {op} {at} {wait}"));
    }

    /// It ended in this way.
    pub(super) fn done(&self, op: u64, at: u64, outcome: &str) {
        self.line(&format!("done {op} {at} {outcome}"));
    }

    /// From now on its caller believes to hold the key, until then unless it is told otherwise. The engine said so at `said`
    /// or later: a lease that another task of the process passed on was granted before.
    pub(super) fn held(&self, op: u64, at: u64, belief: Belief, key: &str, role: Role, fence: u64) {
        let Belief { said, until } = belief;
        self.line(&format!("held {op} {at} {said} {until} {key} {} {fence}", role.word()));
    }

    /// It looked again, and believes this now.
    pub(super) fn still(&self, op: u64, at: u64, Belief { said, until }: Belief) {
        self.line(&format!("still {op} {at} {said} {until}"));
    }

    /// It lets go of it; whether it believed in it until now.
    pub(super) fn ended(&self, op: u64, at: u64, valid: bool) {
        self.line(&format!("ended {op} {at} {}", u8::from(valid)));
    }

    /// The engine did not have what the client believed to hold, had been granted then, and wanted to give back since then.
    pub(super) fn refuted(&self, op: u64, at: u64, granted: u64, asked: u64) {
        self.line(&format!("refuted {op} {at} {granted} {asked}"));
    }
}

/// An operation of a client.
#[derive(Debug, Clone)]
pub(super) struct Operation {
    pub(super) began: u64,
    pub(super) wait: u64,
    /// When it ended, if it did while its process lived.
    pub(super) done: Option<u64>,
    pub(super) outcome: String,
}

/// Somebody's time with a key, by its own belief.
#[derive(Debug, Clone)]
pub(super) struct Tenure {
    pub(super) process: usize,
    pub(super) key: String,
    pub(super) role: Role,
    pub(super) fence: u64,
    pub(super) from: u64,
    /// When the engine said so last, as was known at these times.
    said: Vec<(u64, u64)>,
    /// Until when it was believed in.
    pub(super) until: u64,
    ended: bool,
}

impl Tenure {
    /// When the engine had said last that it is good, as was known then: what it lost since may have been this.
    pub(super) fn said_before(&self, at: u64) -> u64 {
        let known = self.said.iter().rev().find(|(known, _)| *known <= at);
        known.or(self.said.first()).map_or(self.from, |(_, said)| *said)
    }
}

/// A release that found nothing to give back.
#[derive(Debug, Clone, Copy)]
pub(super) struct Refuted {
    /// When the engine had said last that the lease is good, or before that.
    pub(super) granted: u64,
    pub(super) asked: u64,
    pub(super) answered: u64,
}

/// What one life of a process tells.
#[derive(Debug, Default)]
pub(super) struct Life {
    pub(super) operations: BTreeMap<u64, Operation>,
    pub(super) tenures: Vec<Tenure>,
    /// Leases that the engine did not have although they were believed in.
    pub(super) refuted: Vec<Refuted>,
}

impl Life {
    /// Reads the history of a process, which was killed then if it was.
    pub(super) fn read(path: &Path, process: usize, killed: Option<u64>) -> Self {
        let text = std::fs::read_to_string(path).unwrap();
        let (mut life, mut open) = (Self::default(), BTreeMap::<u64, Tenure>::new());
        // A line that was cut in the middle by a kill has no end.
        for line in text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n')) {
            life.take(&mut open, process, line);
        }
        for mut tenure in open.into_values() {
            tenure.until = tenure.until.min(killed.unwrap_or(u64::MAX));
            life.tenures.push(tenure);
        }
        life
    }

    fn take(&mut self, open: &mut BTreeMap<u64, Tenure>, process: usize, line: &str) {
        let mut words = line.split(' ');
        let mut word = || words.next().unwrap_or_else(|| panic!("`{line}` breaks off"));
        let number = |word: &str| word.parse::<u64>().unwrap_or_else(|_| panic!("`{word}` in `{line}`"));
        let (what, op, at) = (word(), number(word()), number(word()));
        match what {
            "begin" => {
                let operation =
                    Operation { began: at, wait: number(word()), done: None, outcome: String::new() };
                self.operations.insert(op, operation);
            }
            "done" => {
                let operation = self.operations.get_mut(&op).expect("it has begun");
                (operation.done, operation.outcome) = (Some(at), word().to_owned());
            }
            "held" => {
                let (said, until) = (number(word()), number(word()));
                let (key, role) = (word().to_owned(), word());
                let role = Role::ALL.into_iter().find(|known| known.word() == role).expect("a known role");
                let fence = number(word());
                let said = vec![(at, said)];
                let tenure = Tenure { process, key, role, fence, from: at, said, until, ended: false };
                open.insert(op, tenure);
            }
            "still" => {
                let tenure = open.get_mut(&op).expect("it is held");
                tenure.said.push((at, number(word())));
                tenure.until = number(word());
            }
            "ended" => {
                let mut tenure = open.remove(&op).expect("it is held");
                // What is valid now was valid all the time, whatever was known of it before.
                let valid = word() == "1";
                tenure.until = if valid { at } else { tenure.until.min(at) };
                tenure.ended = true;
                self.tenures.push(tenure);
            }
            "refuted" => {
                let (granted, asked) = (number(word()), number(word()));
                self.refuted.push(Refuted { granted, asked, answered: at });
            }
            _ => panic!("`{line}` says nothing"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beliefs_end_when_they_are_known_to() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let writer = Writer::append_to(file.path());
        writer.begin(1, 10, 0);
        writer.done(1, 20, "granted");
        let belief = |said, until| Belief { said, until };
        writer.held(1, 21, belief(20, 100), "k", Role::Exclusive, 7);
        writer.ended(1, 50, true);
        writer.held(2, 60, belief(20, 100), "k", Role::Exclusive, 8);
        writer.ended(2, 150, false);
        writer.held(3, 160, belief(155, 300), "k", Role::Exclusive, 9);
        writer.still(3, 200, belief(195, 400));
        writer.begin(4, 210, 5);
        let life = Life::read(file.path(), 0, Some(350));
        let spans: Vec<_> = life.tenures.iter().map(|tenure| (tenure.from, tenure.until)).collect();
        assert_eq!(spans, [(21, 50), (60, 100), (160, 350)]);
        let said = [100, 160, 199, 200, 500].map(|at| life.tenures[2].said_before(at));
        assert_eq!(said, [155, 155, 155, 195, 195]);
        assert_eq!((life.operations[&1].done, life.operations[&4].done), (Some(20), None));
    }
}
