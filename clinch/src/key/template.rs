//! Key templates: `order:{order_id}`.

use std::fmt::{Display, Write};

use super::escape::Escaped;
use super::{Key, KeyError};

/// A key with placeholders, `order:{order_id}`, parsed once and filled many times.
///
/// Values are percent-escaped for `%`, `:`, `{`, `}`, blanks and control characters; plain values stay readable. So no
/// value can imitate the structure of another key or choose a Cluster slot. Two placeholders must have a `:` between
/// them, because only an escaped separator tells where one value ends and the next begins.
///
/// ```
/// use clinch::KeyTemplate;
///
/// let template = KeyTemplate::new("a:{x}:{y}")?;
/// let one = template.key(&[("x", &"1:2"), ("y", &3)])?;
/// let two = template.key(&[("x", &1), ("y", &"2:3")])?;
/// assert_eq!(one.as_str(), "a:1%3A2:3");
/// assert_ne!(one, two);
/// # Ok::<(), clinch::KeyError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyTemplate {
    source: String,
    parts: Vec<Part>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Literal(String),
    Placeholder(String),
}

impl KeyTemplate {
    /// Parses a template. `{name}` and `{path.to.field}` are placeholders; everything else is taken literally.
    ///
    /// # Errors
    /// [`KeyError::Template`] for a stray brace, an empty or malformed name, or two placeholders without a `:` between
    /// them; [`KeyError::Control`] for a control character; [`KeyError::Empty`] for an empty template.
    pub fn new(template: &str) -> Result<Self, KeyError> {
        if template.is_empty() {
            return Err(KeyError::Empty);
        }
        if let Some((at, c)) = template.char_indices().find(|(_, c)| c.is_control()) {
            return Err(KeyError::Control { at, code: c.into() });
        }
        let mut parts = Vec::new();
        let mut rest = template;
        let at = |rest: &str| template.len() - rest.len();
        while !rest.is_empty() {
            let literal = rest.split(['{', '}']).next().unwrap_or_default();
            if !literal.is_empty() {
                parts.push(Part::Literal(literal.to_owned()));
                rest = &rest[literal.len()..];
                continue;
            }
            let inside = rest.strip_prefix('{').ok_or_else(|| TemplateError::StrayBrace { at: at(rest) })?;
            let (name, after) =
                inside.split_once('}').ok_or_else(|| TemplateError::StrayBrace { at: at(rest) })?;
            check_name(name, at(rest))?;
            check_separated(&parts, name)?;
            parts.push(Part::Placeholder(name.to_owned()));
            rest = after;
        }
        Ok(Self { source: template.to_owned(), parts })
    }

    /// The names of the placeholders, in the order in which they stand.
    pub fn placeholders(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().filter_map(|part| match part {
            Part::Literal(_) => None,
            Part::Placeholder(name) => Some(name.as_str()),
        })
    }

    /// Fills the placeholders and makes the key.
    ///
    /// # Errors
    /// [`TemplateError::Missing`] and [`TemplateError::Unknown`] where the names do not fit the template, and
    /// [`KeyError::TooLong`] where the values make too long a key.
    pub fn key(&self, values: &[(&str, &dyn Display)]) -> Result<Key, KeyError> {
        if let Some((name, _)) = values.iter().find(|(name, _)| !self.placeholders().any(|p| p == *name)) {
            return Err(
                TemplateError::Unknown { name: (*name).to_owned(), template: self.source.clone() }.into()
            );
        }
        let mut text = String::with_capacity(self.source.len() + 16);
        for part in &self.parts {
            match part {
                Part::Literal(literal) => text.push_str(literal),
                Part::Placeholder(name) => {
                    let (_, value) = values.iter().find(|(n, _)| n == name).ok_or_else(|| {
                        TemplateError::Missing { name: name.clone(), template: self.source.clone() }
                    })?;
                    write!(Escaped(&mut text), "{value}")
                        .map_err(|_| TemplateError::Unprintable { name: name.clone() })?;
                }
            }
        }
        Key::new(text)
    }
}

/// A name is one or more identifiers joined by dots.
fn check_name(name: &str, at: usize) -> Result<(), TemplateError> {
    let identifier = |part: &str| {
        part.starts_with(|c: char| c.is_alphabetic() || c == '_')
            && part.chars().all(|c| c.is_alphanumeric() || c == '_')
    };
    if name.split('.').all(identifier) {
        Ok(())
    } else {
        Err(TemplateError::BadName { name: name.to_owned(), at })
    }
}

fn check_separated(parts: &[Part], next: &str) -> Result<(), TemplateError> {
    let between = parts.iter().rev().take_while(|part| matches!(part, Part::Literal(_)));
    let separated = between.clone().any(|part| matches!(part, Part::Literal(text) if text.contains(':')));
    match parts.iter().rev().nth(between.count()) {
        Some(Part::Placeholder(first)) if !separated => {
            Err(TemplateError::NotSeparated { first: first.clone(), second: next.to_owned() })
        }
        _ => Ok(()),
    }
}

/// Why a template, or the values for it, cannot make a key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TemplateError {
    /// A brace without its partner.
    #[error("the template has a stray brace at byte {at}; placeholders are written `{{name}}`")]
    StrayBrace {
        /// The byte at which it stands.
        at: usize,
    },
    /// What stands between the braces is no name.
    #[error(
        "`{{{name}}}` at byte {at} is not a placeholder; write a name or a field path such as `{{order.id}}`"
    )]
    BadName {
        /// What stands there.
        name: String,
        /// The byte at which it stands.
        at: usize,
    },
    /// Two placeholders could run into each other.
    #[error(
        "`{{{first}}}` and `{{{second}}}` need a `:` between them, or two different lists of values could make the same key"
    )]
    NotSeparated {
        /// The placeholder before.
        first: String,
        /// The placeholder after.
        second: String,
    },
    /// No value was given for a placeholder.
    #[error("no value for `{{{name}}}` of the template `{template}`")]
    Missing {
        /// The placeholder.
        name: String,
        /// The template.
        template: String,
    },
    /// A value was given that the template does not use.
    #[error("the template `{template}` has no placeholder `{{{name}}}`")]
    Unknown {
        /// The name that was given.
        name: String,
        /// The template.
        template: String,
    },
    /// The value's own `Display` reported an error.
    #[error("the value for `{{{name}}}` could not be formatted")]
    Unprintable {
        /// The placeholder.
        name: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn key(template: &str, values: &[(&str, &str)]) -> Result<String, KeyError> {
        let values: Vec<(&str, &dyn Display)> = values.iter().map(|(n, v)| (*n, v as &dyn Display)).collect();
        KeyTemplate::new(template)?.key(&values).map(|k| k.to_string())
    }

    #[test]
    fn plain_values_stay_readable() {
        assert_eq!(key("order:{id}", &[("id", "42-é_日.x@y/z")]).as_deref(), Ok("order:42-é_日.x@y/z"));
    }

    #[test]
    fn a_value_cannot_imitate_structure_or_choose_a_slot() {
        assert_eq!(key("order:{id}", &[("id", "1:2 {x}%\n")]).as_deref(), Ok("order:1%3A2%20%7Bx%7D%25%0A"));
    }

    #[test]
    fn bad_templates_name_what_is_wrong() {
        let template = |text: &str| match KeyTemplate::new(text) {
            Err(KeyError::Template(error)) => error,
            other => panic!("{other:?}"),
        };
        assert_eq!(template("a:{x"), TemplateError::StrayBrace { at: 2 });
        assert_eq!(template("a:x}"), TemplateError::StrayBrace { at: 3 });
        assert_eq!(template("a:{}"), TemplateError::BadName { name: String::new(), at: 2 });
        assert_eq!(template("a:{1x}"), TemplateError::BadName { name: "1x".into(), at: 2 });
        assert!(matches!(template("{x}-{y}"), TemplateError::NotSeparated { .. }));
        assert!(matches!(template("{x}{y}"), TemplateError::NotSeparated { .. }));
        assert!(KeyTemplate::new("{x}-:-{y.z_1}").is_ok());
    }

    #[test]
    fn names_must_fit() {
        assert!(matches!(key("a:{x}", &[]), Err(KeyError::Template(TemplateError::Missing { .. }))));
        assert!(matches!(
            key("a:{x}", &[("x", "1"), ("y", "2")]),
            Err(KeyError::Template(TemplateError::Unknown { .. }))
        ));
    }

    proptest! {
        /// Two lists of values make the same key exactly when they are the same list.
        #[test]
        fn different_values_make_different_keys(
            a in proptest::collection::vec("[%:{} a-c\\-\\n]{0,4}", 3),
            b in proptest::collection::vec("[%:{} a-c\\-\\n]{0,4}", 3),
        ) {
            let fill = |v: &[String]| key("k:{x}:-{y}-:{z}", &[("x", &v[0]), ("y", &v[1]), ("z", &v[2])]);
            let (one, two) = (fill(&a).unwrap(), fill(&b).unwrap());
            prop_assert_eq!(one == two, a == b);
            let raw = one.contains(['{', '}', '\n', ' ']);
            prop_assert!(!raw);
        }
    }
}
