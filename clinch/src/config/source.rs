//! Where a value came from.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

/// Where a value of a configuration came from.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Source {
    /// It was not set.
    Default,
    /// A file.
    File {
        /// Which.
        path: Arc<Path>,
        /// The line, counted from 1.
        line: usize,
        /// The character in the line, counted from 1.
        column: usize,
    },
    /// A variable of the environment.
    Variable(String),
    /// The program, by what it calls it (`--store`).
    Given(String),
}

impl Source {
    /// Whether it was not set.
    pub const fn is_default(&self) -> bool {
        matches!(self, Self::Default)
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File { path, line, column } => write!(f, "{}:{line}:{column}", path.display()),
            Self::Variable(name) | Self::Given(name) => f.write_str(name),
        }
    }
}
