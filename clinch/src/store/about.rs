//! What an engine says of itself, and what is found when it is looked at closely.

use std::fmt;
use std::time::Duration;

/// What an engine says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct About {
    /// How long a real round trip took.
    pub latency: Duration,
    /// What it calls itself, where that is more than the [engine](super::Store::engine)'s name: `valkey`.
    pub server: Option<String>,
    /// Its version, as far as it tells.
    pub version: Option<String>,
    /// Why it answers and yet does not serve as it should, if so: it is a read-only replica.
    pub degraded: Option<String>,
}

impl About {
    /// An engine that answered within this time and says nothing of itself.
    pub const fn new(latency: Duration) -> Self {
        Self { latency, server: None, version: None, degraded: None }
    }
}

/// What was found when an engine was looked at closely: facts, and what should be changed.
///
/// ```
/// use clinch::store::{Diagnosis, Severity};
///
/// let mut diagnosis = Diagnosis::default();
/// diagnosis.fact("journal_mode", "wal");
/// diagnosis.hidden("free_space", "not allowed to see");
/// diagnosis.finding("network_file_system", Severity::Error, "the file is on NFS", "move it to a local disk");
/// assert_eq!(diagnosis.worst(), Some(Severity::Error));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[cfg_attr(feature = "submit", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Diagnosis {
    /// What is so.
    pub facts: Vec<Fact>,
    /// What should be otherwise, and how.
    pub findings: Vec<Finding>,
}

/// Something that is so, or that nobody would tell.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "submit", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Fact {
    /// A word for it, for programs: `maxmemory_policy`.
    pub name: &'static str,
    /// What it is.
    pub value: Option<String>,
    /// Why that is not known, if it is not.
    pub unknown: Option<String>,
}

/// Something that should be otherwise.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "submit", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Finding {
    /// A word for it, for programs: `eviction`.
    pub name: &'static str,
    /// How bad it is.
    pub severity: Severity,
    /// What is wrong, and what can come of it.
    pub problem: String,
    /// What to change.
    pub remedy: String,
}

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "submit", derive(serde::Serialize), serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum Severity {
    /// Worth knowing.
    Note,
    /// It works, and can lose a lease one day.
    Warning,
    /// It does not work, or not as it should.
    Error,
}

impl Severity {
    /// A word for it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl Diagnosis {
    /// Adds something that is so.
    pub fn fact(&mut self, name: &'static str, value: impl fmt::Display) {
        self.facts.push(Fact { name, value: Some(value.to_string()), unknown: None });
    }

    /// Adds something that is not known, and why.
    pub fn hidden(&mut self, name: &'static str, why: impl fmt::Display) {
        self.facts.push(Fact { name, value: None, unknown: Some(why.to_string()) });
    }

    /// Adds something that should be otherwise.
    pub fn finding(
        &mut self,
        name: &'static str,
        severity: Severity,
        problem: impl Into<String>,
        remedy: impl Into<String>,
    ) {
        self.findings.push(Finding { name, severity, problem: problem.into(), remedy: remedy.into() });
    }

    /// The value of a fact, if it is known.
    pub fn value(&self, name: &str) -> Option<&str> {
        self.facts.iter().find(|fact| fact.name == name)?.value.as_deref()
    }

    /// How bad the worst finding is.
    pub fn worst(&self) -> Option<Severity> {
        self.findings.iter().map(|finding| finding.severity).max()
    }
}
