//! A configuration as people and programs may see it.

use std::fmt::Write as _;

use serde_json::{Map, Value as Json, json};

use super::fields::{self, Field, SECRETS};
use super::secret::HIDDEN;
use super::value::{Node, Table, Value};
use super::{Config, Source};

/// As TOML that can be read again. Secrets are comments.
pub(super) fn toml(config: &Config) -> String {
    let table = fields::table_of(config);
    let (mut text, mut section) = (String::new(), "");
    // Fields outside of all sections first: after a section's name they would be in it.
    let (outside, inside): (Vec<_>, Vec<_>) =
        fields::all().iter().partition(|field| !field.path.contains('.'));
    for Field { path, .. } in outside.into_iter().chain(inside) {
        let (under, name) = path.rsplit_once('.').unwrap_or(("", path));
        if under != section {
            let _ = writeln!(text, "\n[{under}]");
            section = under;
        }
        let source = config.source(path);
        let value = fields::value(&table, path).map(|node| &node.value);
        // Writing into a `String` does not fail.
        let _ = match value {
            None | Some(Value::Null) => writeln!(text, "# {name} is not set"),
            Some(_) if SECRETS.contains(&path.as_str()) => {
                writeln!(text, "# {name} = \"{HIDDEN}\" # {source}; hidden")
            }
            Some(value) => writeln!(text, "{name} = {} # {source}", written(value)),
        };
    }
    text
}

/// As a list of fields with their values and where they came from.
pub(super) fn json(config: &Config) -> Json {
    let table = fields::table_of(config);
    let field = |Field { path, .. }: &Field| {
        let value = fields::value(&table, path).map_or(Json::Null, |node| plain(&node.value));
        let source = config.source(path);
        let mut told =
            Map::from_iter([("value".to_owned(), value), ("source".to_owned(), json!(source.to_string()))]);
        if let Source::File { line, .. } = source {
            told.insert("line".to_owned(), json!(line));
        }
        (path.clone(), Json::Object(told))
    };
    Json::Object(fields::all().iter().map(field).collect())
}

fn plain(value: &Value) -> Json {
    match value {
        Value::Null => Json::Null,
        Value::Bool(value) => json!(value),
        Value::Integer(number) => u64::try_from(*number).map_or(Json::Null, |number| json!(number)),
        Value::Float(number) => json!(number),
        Value::String(text) | Value::Text(text) => json!(text),
        Value::Array(nodes) => nodes.iter().map(|node| plain(&node.value)).collect(),
        Value::Table(Table(entries)) => {
            entries.iter().map(|entry| (entry.name.clone(), plain(&entry.node.value))).collect()
        }
    }
}

/// A value as TOML has it.
fn written(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::Bool(value) => value.to_string(),
        Value::Integer(number) => number.to_string(),
        Value::Float(number) => format!("{number:?}"),
        Value::String(text) | Value::Text(text) => quoted(text),
        Value::Array(nodes) => {
            let values: Vec<_> = nodes.iter().map(|Node { value, .. }| written(value)).collect();
            format!("[{}]", values.join(", "))
        }
        Value::Table(Table(entries)) => {
            let fields =
                entries.iter().map(|entry| format!("{} = {}", entry.name, written(&entry.node.value)));
            format!("{{ {} }}", fields.collect::<Vec<_>>().join(", "))
        }
    }
}

/// A text between quotation marks. JSON's escapes are among TOML's; only DEL may stand in the one and not in the other.
fn quoted(text: &str) -> String {
    serde_json::to_string(text).unwrap_or_default().replace('\u{7f}', "\\u007f")
}
