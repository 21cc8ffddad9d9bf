//! Looking up one parameter by its name.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::body::Kind;
use super::{Params, form, json, multipart};

/// See [`Params::param`].
pub(super) fn find(params: &Params<'_>, name: &str) -> Option<String> {
    if let Some((_, value)) = params.path_params.iter().find(|(known, _)| *known == name) {
        return Some((*value).to_owned());
    }
    if let Some(value) = in_form(params.query.as_bytes(), name) {
        return text(&value);
    }
    if let Some((_, value)) = params.arguments.iter().find(|(known, _)| *known == name) {
        return scalar(json::checked(value.as_bytes())?);
    }
    if let Some(value) = params.arguments.iter().find_map(|(_, value)| in_object(value.as_bytes(), name)) {
        return scalar(value.get());
    }
    let body = params.body.bytes?;
    // A body that is too large is not looked into, whoever asks.
    params.body.check(params.limits).ok()?;
    match params.body.kind {
        Kind::Form => text(&in_form(body, name)?),
        Kind::Json => scalar(in_object(body, name)?.get()),
        Kind::Multipart(content_type) => {
            let parts = multipart::parts(content_type, body)?;
            let part = parts.iter().find(|part| part.called.is_field(name))?;
            text(&part.content)
        }
        Kind::Bytes | Kind::Encoded(_) => None,
    }
}

fn in_form(raw: &[u8], name: &str) -> Option<Vec<u8>> {
    let raw = form::blanks(raw);
    let mut fields = form::fields(&raw);
    fields.find(|(known, _)| **known == *name.as_bytes()).map(|(_, value)| value.into_owned())
}

fn text(bytes: &[u8]) -> Option<String> {
    str::from_utf8(bytes).ok().map(str::to_owned)
}

/// A string, decoded, or a number as it is written.
fn scalar(json: &str) -> Option<String> {
    match json.bytes().next()? {
        b'"' => json::decode(json).map(Cow::into_owned),
        b'-' | b'0'..=b'9' => Some(json.to_owned()),
        _ => None,
    }
}

/// The first value under that key, if the text is a JSON object.
fn in_object<'a>(text: &'a [u8], name: &str) -> Option<&'a RawValue> {
    let mut json = serde_json::Deserializer::from_slice(text);
    let found = json.deserialize_map(First(name)).ok()?;
    json.end().ok()?;
    found
}

struct First<'n>(&'n str);

impl<'de> Visitor<'de> for First<'_> {
    type Value = Option<&'de RawValue>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Self::Value, M::Error> {
        let mut first = None;
        while let Some((key, value)) = map.next_entry::<String, &RawValue>()? {
            if first.is_none() && key == self.0 {
                first = Some(value);
            }
        }
        Ok(first)
    }
}
