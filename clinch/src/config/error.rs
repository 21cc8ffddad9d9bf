//! What is wrong with a configuration.

use std::fmt;
use std::path::Path;

use super::source::Source;

/// What is wrong with a configuration: where (file, line and column; or variable; or flag), which field, and what is
/// accepted. Secrets are not in it.
///
/// ```
/// use clinch::config::Config;
///
/// let error = Config::from_toml("[guards]\nshadow = true\nrelease_within = 5\n").unwrap_err();
/// assert_eq!(error.field(), Some("guards.release_within"));
/// assert_eq!(
///     error.to_string(),
///     "<text>:3:18: guards.release_within: integer `5` is not accepted; \
///      accepted is a time with its unit, such as \"250ms\", \"5s\" or \"1m 30s\"",
/// );
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct ConfigError(Box<Inner>);

#[derive(Clone, PartialEq, Eq)]
struct Inner {
    place: Place,
    field: Option<String>,
    problem: String,
}

#[derive(Clone, PartialEq, Eq)]
enum Place {
    Value(Source),
    /// The file as a whole.
    File(Box<Path>),
}

impl ConfigError {
    pub(super) fn new(source: Source, field: impl Into<Option<String>>, problem: impl Into<String>) -> Self {
        let (place, field, problem) = (Place::Value(source), field.into(), problem.into());
        Self(Box::new(Inner { place, field, problem }))
    }

    pub(super) fn file(path: &Path, problem: impl Into<String>) -> Self {
        Self(Box::new(Inner { place: Place::File(path.into()), field: None, problem: problem.into() }))
    }

    /// The field, by its dotted path (`guards.max_interval`), if it is about one.
    pub fn field(&self) -> Option<&str> {
        self.0.field.as_deref()
    }

    /// Where the value came from, if it is about one and not about a file as a whole.
    pub fn place(&self) -> Option<&Source> {
        match &self.0.place {
            Place::Value(source) => Some(source),
            Place::File(_) => None,
        }
    }

    /// What is wrong, and what is accepted.
    pub fn problem(&self) -> &str {
        &self.0.problem
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0.place {
            Place::Value(source) => write!(f, "{source}: ")?,
            Place::File(path) => write!(f, "{}: ", path.display())?,
        }
        if let Some(field) = &self.0.field {
            write!(f, "{field}: ")?;
        }
        f.write_str(&self.0.problem)
    }
}

/// As its `Display`, because that is what `main` and `unwrap` print.
impl fmt::Debug for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl std::error::Error for ConfigError {}
