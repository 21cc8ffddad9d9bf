//! Reading a configuration from its sources.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::error::ConfigError;
use super::fields::{self, Field, Origins};
use super::nearest::nearest;
use super::read::read;
use super::source::Source;
use super::value::{Node, Table, Value, parse};
use super::{Config, check};

/// The variable that names the file.
const FILE_VARIABLE: &str = "CLINCH_CONFIG";
const PREFIX: &str = "CLINCH_";
/// Variables that are no fields and that all the same are ours: what `clinch run` tells its command, and what our tests use.
const OTHERS: [&str; 2] = ["CLINCH_KEY", "CLINCH_FENCE"];
const TEST_PREFIX: &str = "CLINCH_TEST_";

/// Reads a [`Config`] from its sources, in rising order: defaults, a file, variables of the environment, and what the
/// program sets itself. What a later one sets counts.
///
/// ```
/// use clinch::config::Config;
///
/// # let url = "memory:";
/// let config = Config::loader()
///     .environment()               // CLINCH_…, and the file that CLINCH_CONFIG names
///     .set("store", "--store", url) // a flag
///     .load()?;
/// # let _ = config;
/// # Ok::<(), clinch::config::ConfigError>(())
/// ```
#[derive(Debug, Clone, Default)]
#[must_use = "nothing is read before `load`"]
pub struct Loader {
    file: Option<PathBuf>,
    text: Option<String>,
    variables: Vec<(OsString, OsString)>,
    given: Vec<(String, String, String)>,
}

impl Loader {
    /// Reads this file, whatever `CLINCH_CONFIG` says.
    pub fn file(mut self, path: impl Into<PathBuf>) -> Self {
        self.file = Some(path.into());
        self
    }

    /// Reads this text instead of a file; in errors it is called `name`.
    pub fn text(mut self, name: impl Into<PathBuf>, text: impl Into<String>) -> Self {
        (self.file, self.text) = (Some(name.into()), Some(text.into()));
        self
    }

    /// Takes the variables of this process whose names begin with `CLINCH_`.
    ///
    /// A field's variable is its dotted path in capitals, dots as underscores: `CLINCH_STORE`, `CLINCH_GUARDS_SHADOW`,
    /// `CLINCH_HTTP_STATUSES_DUPLICATE`. Lists are separated by commas, switches are `true` or `false` (or 1 or 0). An empty
    /// variable counts as not set, except for `CLINCH_PREFIX`. One that is no field's changes nothing, and is
    /// [told](Config::unknown_variables): others may set such names too (Kubernetes does, for a service called `clinch`).
    pub fn environment(self) -> Self {
        self.variables(std::env::vars_os())
    }

    /// Takes these variables for those of the environment.
    pub fn variables<N: Into<OsString>, V: Into<OsString>>(
        mut self,
        variables: impl IntoIterator<Item = (N, V)>,
    ) -> Self {
        let variables = variables.into_iter().map(|(name, value)| (name.into(), value.into()));
        self.variables.extend(variables.filter(|(name, _)| is_ours(name)));
        self
    }

    /// Sets a field, by its dotted path, to a text that is read as that of a variable. `name` is what errors call it:
    /// the flag by which it came.
    pub fn set(mut self, field: impl Into<String>, name: impl Into<String>, text: impl Into<String>) -> Self {
        self.given.push((field.into(), name.into(), text.into()));
        self
    }

    /// Reads everything, and checks it.
    ///
    /// It reads files, so it blocks; call it when the program starts.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn load(self) -> Result<Config, ConfigError> {
        let file = self.file.clone().or_else(|| self.variable(FILE_VARIABLE).map(PathBuf::from));
        let mut table = match (file, &self.text) {
            (Some(path), Some(text)) => parse(text, &Arc::from(path))?,
            (Some(path), None) => parse(&text_of(&path)?, &Arc::from(path))?,
            (None, _) => Table::default(),
        };
        for field in fields::all() {
            let Some(value) = self.variable(&field.variable) else { continue };
            let source = Source::Variable(field.variable.clone());
            let Some(text) = value.to_str() else {
                return Err(ConfigError::new(source, field.path.clone(), "this is not UTF-8"));
            };
            table.set(&field.path, Node { value: Value::Text(text.to_owned()), source });
        }
        for (path, name, text) in &self.given {
            let source = Source::Given(name.clone());
            if !fields::all().iter().any(|field| field.path == *path) {
                return Err(ConfigError::new(source, path.clone(), "there is no such field"));
            }
            table.set(path, Node { value: Value::Text(text.clone()), source });
        }
        let unknown = self.unknown();
        let origins = Origins::of(&table, unknown);
        for told in &origins.unknown_variables {
            tracing::warn!("{told}");
        }
        let config = Config { origins, ..read(table)? };
        check::check(&config)?;
        Ok(config)
    }

    /// The variable of this name, unless that counts as not set.
    fn variable(&self, name: &str) -> Option<&OsStr> {
        let set =
            self.variables.iter().rev().find(|(set, _)| set == name).map(|(_, value)| value.as_os_str());
        // Of all fields only the prefix is something when it is empty.
        set.filter(|value| !value.is_empty() || name == "CLINCH_PREFIX")
    }

    /// What is to be said of variables that are no field's.
    fn unknown(&self) -> Vec<String> {
        let names = self.variables.iter().filter_map(|(name, _)| name.to_str());
        let known = |name: &&str| {
            *name == FILE_VARIABLE
                || OTHERS.contains(name)
                || name.starts_with(TEST_PREFIX)
                || fields::all().iter().any(|field| field.variable == *name)
        };
        let told = |name: &str| {
            let fields = fields::all().iter().map(|Field { variable, .. }| variable.as_str());
            // Without what they all begin with, which would make them all alike.
            let short = |name: &'static str| name.strip_prefix(PREFIX).unwrap_or(name);
            let meant = nearest(&name[PREFIX.len()..], fields.chain([FILE_VARIABLE]).map(short));
            let meant = meant.map(|meant| format!("; did you mean `{PREFIX}{meant}`?")).unwrap_or_default();
            format!("the variable `{name}` is not known and changes nothing{meant}")
        };
        names.filter(|name| !known(name)).map(told).collect()
    }
}

fn is_ours(name: &OsStr) -> bool {
    name.as_encoded_bytes().starts_with(PREFIX.as_bytes())
}

/// A file that is larger than this is not a configuration.
const MOST_BYTES: u64 = 1 << 20;

fn text_of(path: &Path) -> Result<String, ConfigError> {
    let cannot = |error: &std::io::Error| ConfigError::file(path, format!("cannot be read: {error}"));
    let file = std::fs::File::open(path).map_err(|error| cannot(&error))?;
    if file.metadata().map_err(|error| cannot(&error))?.is_dir() {
        return Err(ConfigError::file(path, "cannot be read: it is a folder; accepted is a TOML file"));
    }
    let mut bytes = Vec::new();
    std::io::Read::read_to_end(&mut std::io::Read::take(file, MOST_BYTES + 1), &mut bytes)
        .map_err(|error| cannot(&error))?;
    if bytes.len() as u64 > MOST_BYTES {
        return Err(ConfigError::file(path, "is larger than 1 MiB; accepted is a TOML file of less"));
    }
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        let line = error.as_bytes().iter().take(at).filter(|byte| **byte == b'\n').count() + 1;
        let source = Source::File { path: Arc::from(path), line, column: 1 };
        ConfigError::new(source, None, "this is not UTF-8; accepted is TOML in UTF-8")
    })
}
