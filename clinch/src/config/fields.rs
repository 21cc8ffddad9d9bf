//! Which fields a configuration has, taken from the type itself: what it is serialised to.

use std::sync::LazyLock;

use super::Config;
use super::source::Source;
use super::value::{Node, Table, Value};

/// What a guard is about, and what it is called, is said where it stands, so it has no default.
const NOT_CONFIGURED: [&str; 7] =
    ["duplicate.name", "lock.key", "lock.name", "limit.key", "limit.limit", "limit.name", "idempotency.name"];

/// The fields that hold secrets.
pub(super) const SECRETS: [&str; 2] = ["fleet_key", "serve.token"];

/// A field by its dotted path.
#[derive(Debug)]
pub(super) struct Field {
    pub(super) path: String,
    /// `CLINCH_` and the path in capitals, its dots as underscores.
    pub(super) variable: String,
}

/// All fields, in their order.
pub(super) fn all() -> &'static [Field] {
    static ALL: LazyLock<Vec<Field>> = LazyLock::new(|| {
        let mut fields = Vec::new();
        collect(&table_of(&Config::default()), "", &mut fields);
        fields
    });
    &ALL
}

fn collect(table: &Table, under: &str, into: &mut Vec<Field>) {
    for entry in &table.0 {
        let path = format!("{under}{}", entry.name);
        match &entry.node.value {
            Value::Table(table) => collect(table, &format!("{path}."), into),
            _ if NOT_CONFIGURED.contains(&path.as_str()) => {}
            _ => {
                let variable = format!("CLINCH_{}", path.replace('.', "_").to_ascii_uppercase());
                into.push(Field { path, variable });
            }
        }
    }
}

/// What a configuration is serialised to.
pub(super) fn table_of(config: &Config) -> Table {
    // All of its types write themselves as JSON, and what they write is JSON.
    let written = serde_json::to_string(config).and_then(|text| serde_json::from_str::<Node>(&text));
    match written.map(|node| node.value) {
        Ok(Value::Table(table)) => table,
        _ => Table::default(),
    }
}

/// The value of a field.
pub(super) fn value<'a>(table: &'a Table, path: &str) -> Option<&'a Node> {
    let mut parts = path.split('.');
    let mut node = table.get(parts.next()?)?;
    for part in parts {
        let Value::Table(table) = &node.value else { return None };
        node = table.get(part)?;
    }
    Some(node)
}

/// Where the values of a configuration came from, and what was found beside them. Two configurations of the same values
/// are the same wherever those came from.
#[derive(Debug, Clone, Default)]
pub(super) struct Origins {
    /// Only what was set.
    pub(super) set: Vec<(String, Source)>,
    pub(super) unknown_variables: Vec<String>,
}

impl Origins {
    pub(super) fn of(table: &Table, unknown_variables: Vec<String>) -> Self {
        // Those that should not be set are: whoever does is told where.
        let paths = all().iter().map(|field| field.path.as_str()).chain(NOT_CONFIGURED);
        let set = |path: &str| Some((path.to_owned(), value(table, path)?.source.clone()));
        Self { set: paths.filter_map(set).collect(), unknown_variables }
    }

    pub(super) fn source(&self, path: &str) -> &Source {
        self.set.iter().find(|(set, _)| set == path).map_or(&Source::Default, |(_, source)| source)
    }
}

impl PartialEq for Origins {
    fn eq(&self, _other: &Self) -> bool {
        true
    }
}

impl Eq for Origins {}
