//! What the suite found.

use std::error::Error;
use std::fmt;
use std::panic::Location;

use tokio::task::JoinError;

use super::Promise;
use crate::key::KeyError;
use crate::lease::AttemptError;
use crate::store::StoreError;

/// Why a promise is not kept, and where in the suite that was seen.
#[derive(Clone)]
pub struct Failure {
    message: String,
    at: &'static Location<'static>,
    source: Option<StoreError>,
}

impl Failure {
    /// A failure seen here.
    #[track_caller]
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), at: Location::caller(), source: None }
    }
}

/// A step failed that should have been answered.
impl From<StoreError> for Failure {
    #[track_caller]
    fn from(source: StoreError) -> Self {
        Self { source: Some(source), ..Self::new("a step failed that should have been answered") }
    }
}

impl From<KeyError> for Failure {
    #[track_caller]
    fn from(error: KeyError) -> Self {
        Self::new(error.to_string())
    }
}

impl From<AttemptError> for Failure {
    #[track_caller]
    fn from(error: AttemptError) -> Self {
        Self::new(error.to_string())
    }
}

/// A step panicked in a task of the suite.
impl From<JoinError> for Failure {
    #[track_caller]
    fn from(error: JoinError) -> Self {
        Self::new(error.to_string())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        if let Some(source) = &self.source {
            write!(f, ": {}: {source}", source.kind().word())?;
        }
        write!(f, " [{}:{}]", self.at.file(), self.at.line())
    }
}

/// As `Display`: this is what `cargo test` prints of a test that returned it.
impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Error for Failure {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_ref().map(|source| source as &(dyn Error + 'static))
    }
}

/// What became of one promise.
#[derive(Debug, Clone)]
pub enum Outcome {
    /// It is kept.
    Passed,
    /// It was not tested, for this reason.
    Skipped(String),
    /// It is not kept.
    Failed(Failure),
}

/// A promise and what became of it.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Checked {
    /// The promise.
    pub promise: &'static Promise,
    /// What became of it.
    pub outcome: Outcome,
}

/// What [`run`](super::run) found, promise by promise. Its `Display` is a table.
#[derive(Debug, Clone)]
#[must_use = "a report that nobody looks at proves nothing"]
pub struct Report(Vec<Checked>);

impl Report {
    pub(super) const fn new(checked: Vec<Checked>) -> Self {
        Self(checked)
    }

    /// Every promise, in the order of [`PROMISES`](super::PROMISES).
    pub fn checked(&self) -> &[Checked] {
        &self.0
    }

    /// The promises that are kept.
    pub fn passed(&self) -> impl Iterator<Item = &'static Promise> {
        self.0.iter().filter(|c| matches!(c.outcome, Outcome::Passed)).map(|c| c.promise)
    }

    /// The promises that were not tested, and why.
    pub fn skipped(&self) -> impl Iterator<Item = (&'static Promise, &str)> {
        self.0.iter().filter_map(|c| match &c.outcome {
            Outcome::Skipped(why) => Some((c.promise, why.as_str())),
            _ => None,
        })
    }

    /// The promises that are not kept, and why.
    pub fn failed(&self) -> impl Iterator<Item = (&'static Promise, &Failure)> {
        self.0.iter().filter_map(|c| match &c.outcome {
            Outcome::Failed(failure) => Some((c.promise, failure)),
            _ => None,
        })
    }

    /// Fails the test it is called in unless every promise that was tested is kept, and some were.
    ///
    /// # Panics
    /// Shows the whole report if a promise is not kept, or if none was tested.
    #[track_caller]
    #[expect(clippy::panic, reason = "panicking is how a test fails, and failing the test is the purpose")]
    pub fn assert_passed(&self) {
        if self.failed().next().is_some() || self.passed().next().is_none() {
            panic!("the store does not keep the port's promises\n{self}");
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (passed, skipped, failed) =
            (self.passed().count(), self.skipped().count(), self.failed().count());
        writeln!(f, "{passed} passed, {skipped} skipped, {failed} failed")?;
        let names: Vec<String> = self.0.iter().map(|checked| checked.promise.to_string()).collect();
        let width = names.iter().map(String::len).max().unwrap_or_default();
        for (checked, name) in self.0.iter().zip(&names) {
            match &checked.outcome {
                Outcome::Passed => writeln!(f, "passed   {name}")?,
                Outcome::Skipped(why) => writeln!(f, "skipped  {name:width$}  {why}")?,
                Outcome::Failed(failure) => writeln!(f, "FAILED   {name:width$}  {failure}")?,
            }
        }
        Ok(())
    }
}
