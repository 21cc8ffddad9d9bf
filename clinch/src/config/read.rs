//! From values to types. An error knows the field and where its value stands.

use std::fmt;

use serde::de::value::{MapAccessDeserializer, StringDeserializer};
use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, Error as _, Expected, IntoDeserializer, MapAccess,
    SeqAccess, Unexpected, Visitor,
};
use serde::forward_to_deserialize_any;

use super::error::ConfigError;
use super::nearest::nearest;
use super::source::Source;
use super::value::{Entry, Node, Table, Value, parse_value};

/// Makes a type of a table.
///
/// # Errors
/// The first field that is wrong.
pub(super) fn read<T: DeserializeOwned>(table: Table) -> Result<T, ConfigError> {
    let whole = Node { value: Value::Table(table), source: Source::Default };
    T::deserialize(whole).map_err(|error: Failure| {
        let path: Vec<_> = error.path.into_iter().rev().collect();
        let field = Some(path.join(".")).filter(|path| !path.is_empty());
        ConfigError::new(error.source.unwrap_or(Source::Default), field, error.problem)
    })
}

/// What is wrong, as far as it is known on the way out.
#[derive(Debug)]
pub(super) struct Failure {
    problem: String,
    source: Option<Source>,
    /// From the inside to the outside.
    path: Vec<String>,
}

impl Failure {
    /// In the field of this name, the innermost of which says where.
    fn within(mut self, name: &str, source: &Source) -> Self {
        self.source.get_or_insert_with(|| source.clone());
        self.path.push(name.to_owned());
        self
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.problem)
    }
}

impl std::error::Error for Failure {}

impl serde::de::Error for Failure {
    fn custom<T: fmt::Display>(problem: T) -> Self {
        Self { problem: problem.to_string(), source: None, path: Vec::new() }
    }

    fn invalid_type(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::custom(format!("{found} is not accepted; accepted is {}", plainly(&expected.to_string())))
    }

    fn invalid_value(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::invalid_type(found, expected)
    }

    fn unknown_variant(found: &str, expected: &'static [&'static str]) -> Self {
        Self::custom(format!("`{found}` is not accepted; accepted is {}", list(expected, "or")))
    }

    fn unknown_field(found: &str, expected: &'static [&'static str]) -> Self {
        let meant = nearest(found, expected.iter().copied());
        let meant = meant.map_or_else(|| ".".to_owned(), |name| format!("; did you mean `{name}`?"));
        Self::custom(format!("there is no such field{meant} Accepted are {}", list(expected, "and")))
    }
}

/// What serde expects, in words.
fn plainly(expected: &str) -> &str {
    match expected {
        "u8" | "u16" | "u32" | "u64" | "usize" => "a whole number from 0",
        "i8" | "i16" | "i32" | "i64" => "a whole number",
        "a boolean" => "true or false",
        "a string" => "a text",
        "a sequence" => "a list",
        other if other.starts_with("struct ") => "a table",
        other if other.starts_with("enum ") || other.contains("variant") => "one of its words",
        other => other,
    }
}

/// `a`, `b` or `c`.
fn list(names: &[&str], last: &str) -> String {
    let quoted: Vec<_> = names.iter().map(|name| format!("`{name}`")).collect();
    match quoted.split_last() {
        Some((end, before)) if !before.is_empty() => format!("{} {last} {end}", before.join(", ")),
        _ => quoted.concat(),
    }
}

/// A text from the environment or a flag, read as what is wanted.
macro_rules! from_text {
    ($($method:ident)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failure> {
            match self.value {
                Value::Text(text) => match text.trim().parse() {
                    Ok(number) => whole(number, visitor),
                    Err(_) => Err(Failure::invalid_value(Unexpected::Str(&text), &visitor)),
                },
                _ => self.deserialize_any(visitor),
            }
        }
    )*};
}

fn whole<'de, V: Visitor<'de>>(number: i128, visitor: V) -> Result<V::Value, Failure> {
    match (i64::try_from(number), u64::try_from(number)) {
        (Ok(number), _) => visitor.visit_i64(number),
        (_, Ok(number)) => visitor.visit_u64(number),
        _ => Err(Failure::invalid_value(Unexpected::Other(&format!("`{number}`")), &visitor)),
    }
}

impl<'de> Deserializer<'de> for Node {
    type Error = Failure;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failure> {
        match self.value {
            Value::Null => visitor.visit_unit(),
            Value::Bool(value) => visitor.visit_bool(value),
            Value::Integer(number) => whole(number, visitor),
            Value::Float(number) => visitor.visit_f64(number),
            Value::String(text) | Value::Text(text) => visitor.visit_string(text),
            Value::Array(nodes) => visitor.visit_seq(Elements(nodes.into_iter())),
            Value::Table(table) => visitor.visit_map(Fields { rest: table.0.into_iter(), value: None }),
        }
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failure> {
        match self.value {
            Value::Text(text) => match text.trim() {
                "true" | "1" => visitor.visit_bool(true),
                "false" | "0" => visitor.visit_bool(false),
                _ => Err(Failure::invalid_value(Unexpected::Str(&text), &visitor)),
            },
            _ => self.deserialize_any(visitor),
        }
    }

    from_text! {
        deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64
        deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failure> {
        match self.value {
            Value::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    /// A text is a list by its commas, or as it is written in a file.
    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failure> {
        match self.value {
            Value::Text(text) if text.trim_start().starts_with('[') => {
                let value = written(&text, &self.source)?;
                Self { value, ..self }.deserialize_any(visitor)
            }
            Value::Text(text) => {
                let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
                let node =
                    |part: &str| Self { value: Value::Text(part.to_owned()), source: self.source.clone() };
                visitor.visit_seq(Elements(parts.map(node).collect::<Vec<_>>().into_iter()))
            }
            _ => self.deserialize_any(visitor),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Failure> {
        match self.value {
            Value::Text(text) if text.trim_start().starts_with('{') => {
                let value = written(&text, &self.source)?;
                Self { value, ..self }.deserialize_enum(name, variants, visitor)
            }
            Value::String(word) | Value::Text(word) => {
                let word: StringDeserializer<Failure> = word.into_deserializer();
                visitor.visit_enum(word)
            }
            Value::Table(table) => {
                let fields = Fields { rest: table.0.into_iter(), value: None };
                visitor.visit_enum(MapAccessDeserializer::new(fields))
            }
            other => {
                let found = Self { value: other, source: self.source };
                found.deserialize_any(Word(variants)).and_then(|()| Err(Failure::custom("not accepted")))
            }
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Failure> {
        visitor.visit_newtype_struct(self)
    }

    forward_to_deserialize_any! {
        i128 u128 f32 f64 char str string bytes byte_buf unit unit_struct tuple tuple_struct map struct identifier
        ignored_any
    }
}

/// A value as it is written in a file.
fn written(text: &str, source: &Source) -> Result<Value, Failure> {
    parse_value(text, source).map_err(|problem| Failure::custom(format!("this is no TOML: {problem}")))
}

/// Expects one of these, to say so.
struct Word(&'static [&'static str]);

impl Visitor<'_> for Word {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&list(self.0, "or"))
    }
}

struct Elements(std::vec::IntoIter<Node>);

impl<'de> SeqAccess<'de> for Elements {
    type Error = Failure;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Failure> {
        let Some(node) = self.0.next() else { return Ok(None) };
        let source = node.source.clone();
        seed.deserialize(node).map(Some).map_err(|mut error| {
            error.source.get_or_insert(source);
            error
        })
    }
}

struct Fields {
    rest: std::vec::IntoIter<Entry>,
    value: Option<(String, Node)>,
}

impl<'de> MapAccess<'de> for Fields {
    type Error = Failure;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Failure> {
        let Some(Entry { name, source, node }) = self.rest.next() else { return Ok(None) };
        let key: StringDeserializer<Failure> = name.clone().into_deserializer();
        let key = seed.deserialize(key).map_err(|error| error.within(&name, &source))?;
        self.value = Some((name, node));
        Ok(Some(key))
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, Failure> {
        let Some((name, node)) = self.value.take() else {
            return Err(Failure::custom("a value was asked for before its name"));
        };
        let source = node.source.clone();
        seed.deserialize(node).map_err(|error| error.within(&name, &source))
    }
}
