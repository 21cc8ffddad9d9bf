//! A configuration before it has types: values, each with where it came from.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::error::ConfigError;
use super::source::Source;

/// A value, and where it came from.
#[derive(Debug, Clone)]
pub(super) struct Node {
    pub(super) value: Value,
    pub(super) source: Source,
}

#[derive(Debug, Clone)]
pub(super) enum Value {
    Null,
    Bool(bool),
    /// Wider than what any field takes, so that one that is too large is told so by the field.
    Integer(i128),
    Float(f64),
    String(String),
    /// From the environment or a flag: it is read as what the field wants.
    Text(String),
    Array(Vec<Node>),
    Table(Table),
}

/// Fields in their order.
#[derive(Debug, Clone, Default)]
pub(super) struct Table(pub(super) Vec<Entry>);

#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub(super) name: String,
    /// Where the name stands.
    pub(super) source: Source,
    pub(super) node: Node,
}

impl Table {
    pub(super) fn get(&self, name: &str) -> Option<&Node> {
        self.0.iter().find(|entry| entry.name == name).map(|entry| &entry.node)
    }

    /// Sets the field of this dotted path. Where a table should be and something else is, nothing is set: that is a
    /// mistake of its own, which is told when the whole is read.
    pub(super) fn set(&mut self, path: &str, node: Node) {
        let (name, rest) = path.split_once('.').map_or((path, None), |(name, rest)| (name, Some(rest)));
        let at = self.0.iter().position(|entry| entry.name == name).unwrap_or_else(|| {
            let empty = Node { value: Value::Table(Self::default()), source: node.source.clone() };
            self.0.push(Entry { name: name.to_owned(), source: node.source.clone(), node: empty });
            self.0.len() - 1
        });
        let Some(entry) = self.0.get_mut(at) else { return };
        match (rest, &mut entry.node.value) {
            (None, _) => {
                entry.source = node.source.clone();
                entry.node = node;
            }
            (Some(rest), Value::Table(table)) => table.set(rest, node),
            (Some(_), _) => {}
        }
    }
}

/// Reads a file's text.
///
/// # Errors
/// It is no TOML.
pub(super) fn parse(text: &str, path: &Arc<Path>) -> Result<Table, ConfigError> {
    let lines = Lines::new(text, path);
    let table = DeTable::parse(text).map_err(|error| {
        // Not its `Display`, which shows the line: there may be a secret in it.
        let at = error.span().map_or(0, |span| span.start);
        ConfigError::new(lines.source(at), None, format!("this is no TOML: {}", error.message()))
    })?;
    Ok(lines.table(table.into_inner()))
}

/// Reads one value, written as in a file.
pub(super) fn parse_value(text: &str, source: &Source) -> Result<Value, String> {
    let value = DeValue::parse(text).map_err(|error| error.message().to_owned())?;
    let lines = Lines { starts: Vec::new(), text, source: Origin::All(source.clone()) };
    Ok(lines.value(value.into_inner()))
}

/// Tells lines and columns.
struct Lines<'a> {
    text: &'a str,
    starts: Vec<usize>,
    source: Origin,
}

enum Origin {
    File(Arc<Path>),
    All(Source),
}

impl<'a> Lines<'a> {
    fn new(text: &'a str, path: &Arc<Path>) -> Self {
        let ends = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(at, _)| at + 1);
        Self { text, starts: std::iter::once(0).chain(ends).collect(), source: Origin::File(path.clone()) }
    }

    fn source(&self, at: usize) -> Source {
        match &self.source {
            Origin::All(source) => source.clone(),
            Origin::File(path) => {
                let line = self.starts.partition_point(|start| *start <= at).max(1);
                let start = self.starts.get(line - 1).copied().unwrap_or_default();
                let column = self.text.get(start..at).map_or(at - start, |before| before.chars().count()) + 1;
                Source::File { path: path.clone(), line, column }
            }
        }
    }

    fn node(&self, value: Spanned<DeValue<'_>>) -> Node {
        let source = self.source(value.span().start);
        Node { value: self.value(value.into_inner()), source }
    }

    fn table(&self, table: DeTable<'_>) -> Table {
        let entry = |(name, value): (Spanned<_>, _)| Entry {
            source: self.source(name.span().start),
            name: String::from(name.into_inner()),
            node: self.node(value),
        };
        Table(table.into_iter().map(entry).collect())
    }

    fn value(&self, value: DeValue<'_>) -> Value {
        match value {
            DeValue::String(text) => Value::String(text.into_owned()),
            DeValue::Boolean(value) => Value::Bool(value),
            DeValue::Integer(number) => i128::from_str_radix(number.as_str(), number.radix())
                .map_or_else(|_| Value::String(number.to_string()), Value::Integer),
            DeValue::Float(number) => number.as_str().parse().map_or(Value::Null, Value::Float),
            // No field takes one.
            DeValue::Datetime(time) => Value::String(time.to_string()),
            DeValue::Array(values) => {
                Value::Array(values.into_iter().map(|value| self.node(value)).collect())
            }
            DeValue::Table(table) => Value::Table(self.table(table)),
        }
    }
}

/// What a type is serialised to, in the order of its fields.
impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self { value: deserializer.deserialize_any(Anything)?, source: Source::Default })
    }
}

struct Anything;

impl<'de> Visitor<'de> for Anything {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Integer(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Integer(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Value::Float(value))
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(Value::String(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut values: A) -> Result<Value, A::Error> {
        let mut array = Vec::new();
        while let Some(value) = values.next_element()? {
            array.push(value);
        }
        Ok(Value::Array(array))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let mut table = Table::default();
        while let Some((name, node)) = fields.next_entry()? {
            table.0.push(Entry { name, source: Source::Default, node });
        }
        Ok(Value::Table(table))
    }
}
