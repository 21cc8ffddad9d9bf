//! Values that are not for every eye.

use std::fmt;

use serde::de::{Error, Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::stores::without_password;

/// What is shown in the place of a secret.
pub(super) const HIDDEN: &str = "***";

/// A secret: neither its `Debug` nor what it is serialised to tells it. Only [`expose`](Self::expose) does.
///
/// ```
/// use clinch::config::Secret;
///
/// let token = Secret::new("correct horse battery");
/// assert_eq!(format!("{token:?}"), "***");
/// assert_eq!(token.expose(), "correct horse battery");
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// This text is a secret from now on.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The secret itself. Do not log it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(HIDDEN)
    }
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(HIDDEN)
    }
}

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = deserializer.deserialize_str(Hidden { expected: "a text" })?;
        if text == HIDDEN {
            return Err(Error::custom("this is a secret that was hidden; accepted is the secret itself"));
        }
        Ok(Self(text))
    }
}

/// The address of an engine. Shown without its password; [`expose`](Self::expose) tells it whole.
///
/// ```
/// use clinch::config::StoreUrl;
///
/// let url = StoreUrl::new("redis://app:secret@redis.example.com/2");
/// assert_eq!(url.to_string(), "redis://app:***@redis.example.com/2");
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct StoreUrl(String);

impl StoreUrl {
    /// This address; it is checked when the configuration is.
    pub fn new(url: impl Into<String>) -> Self {
        Self(url.into())
    }

    /// The address with its password. Do not log it.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// What stands before the colon: `memory`, `redis`.
    pub fn scheme(&self) -> &str {
        self.0.split_once(':').map_or("", |(scheme, _)| scheme)
    }
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&without_password(&self.0))
    }
}

impl fmt::Debug for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl Serialize for StoreUrl {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for StoreUrl {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(Hidden { expected: "the URL of an engine" }).map(Self)
    }
}

/// Reads a text, and says of anything else what it is, but not its value.
struct Hidden {
    expected: &'static str,
}

impl Visitor<'_> for Hidden {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.expected)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<String, E> {
        Ok(text.to_owned())
    }

    fn visit_string<E: Error>(self, text: String) -> Result<String, E> {
        Ok(text)
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<String, E> {
        Err(E::invalid_type(Unexpected::Other("a boolean"), &self))
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<String, E> {
        Err(E::invalid_type(Unexpected::Other("a number"), &self))
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<String, E> {
        Err(E::invalid_type(Unexpected::Other("a number"), &self))
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<String, E> {
        Err(E::invalid_type(Unexpected::Other("a number"), &self))
    }
}
