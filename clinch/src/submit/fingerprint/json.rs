//! JSON, read in one pass.
//!
//! serde_json decides whether a text is JSON, and decodes its strings. Its own data model is of no use here, because it
//! parses numbers and forgets what was written, and reading level by level through `RawValue` scans everything again at
//! every level. So the text, once it is known to be JSON, is walked token by token; a walk over valid text has no errors
//! of its own, and its stack is a `Vec`.

use std::borrow::Cow;

use serde_json::value::RawValue;

use super::canon::{Canon, Mark, Tag};
use super::exclude::{Place, Trail};

/// Why a text was not written as JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unfit {
    NotJson,
    TooDeep,
}

/// The text without the white space around it, if it is JSON.
pub(super) fn checked(text: &[u8]) -> Option<&str> {
    serde_json::from_slice::<&RawValue>(text).ok().map(RawValue::get)
}

/// The value of a string, given with its quotation marks. `None` for half of a surrogate pair, which is no text.
pub(super) fn decode(quoted: &str) -> Option<Cow<'_, str>> {
    if quoted.contains('\\') {
        serde_json::from_str(quoted).ok().map(Cow::Owned)
    } else {
        quoted.get(1..quoted.len() - 1).map(Cow::Borrowed)
    }
}

/// Writes the value of a JSON text. Where that fails, nothing is left written.
pub(super) fn write(canon: &mut Canon, text: &[u8], trail: Trail<'_>, depth: usize) -> Result<(), Unfit> {
    let text = checked(text).ok_or(Unfit::NotJson)?;
    let mark = canon.mark();
    let result = Walk { canon, trail, depth, open: Vec::new() }.run(text);
    if result.is_err() {
        canon.rewind(mark);
    }
    result
}

struct Walk<'w, 'a> {
    canon: &'w mut Canon,
    trail: Trail<'a>,
    depth: usize,
    /// The objects and arrays around the current token, the innermost last.
    open: Vec<Open>,
}

struct Open {
    group: Mark,
    is_object: bool,
    place: Place,
    /// Whether the field of this object that is being read is excluded.
    excluded: bool,
}

impl Walk<'_, '_> {
    fn run(mut self, text: &str) -> Result<(), Unfit> {
        let bytes = text.as_bytes();
        let mut at = 0;
        let mut is_key = false;
        while let Some(byte) = bytes.get(at) {
            let start = at;
            at += 1;
            match byte {
                b' ' | b'\t' | b'\n' | b'\r' => {}
                b',' => is_key = self.open.last().is_some_and(|open| open.is_object),
                b':' => is_key = false,
                b'{' | b'[' => {
                    is_key = *byte == b'{';
                    self.open(is_key)?;
                }
                b'}' | b']' => self.close(),
                b'"' => {
                    let (end, escaped) = string_end(bytes, at);
                    let decoded;
                    let string = if escaped {
                        decoded = decode(&text[start..end]).ok_or(Unfit::NotJson)?;
                        decoded.as_bytes()
                    } else {
                        &bytes[at..end - 1]
                    };
                    at = end;
                    if is_key {
                        self.key(string);
                    } else {
                        self.canon.blob(Tag::Text, string);
                        self.end_value();
                    }
                }
                _ => {
                    // A number, `null`, `true` or `false`: whatever stands before the next sign.
                    let rest = &bytes[start..];
                    let length = rest.iter().position(ends_scalar).unwrap_or(rest.len());
                    at = start + length;
                    match byte {
                        b'n' => self.canon.tag(Tag::Null),
                        b't' => self.canon.tag(Tag::True),
                        b'f' => self.canon.tag(Tag::False),
                        _ => self.canon.blob(Tag::Number, &rest[..length]),
                    }
                    self.end_value();
                }
            }
        }
        Ok(())
    }

    fn open(&mut self, is_object: bool) -> Result<(), Unfit> {
        if self.open.len() >= self.depth {
            return Err(Unfit::TooDeep);
        }
        let group = self.canon.open(if is_object { Tag::Object } else { Tag::Array });
        self.open.push(Open { group, is_object, place: self.trail.place(), excluded: false });
        Ok(())
    }

    fn close(&mut self) {
        if let Some(open) = self.open.pop() {
            self.canon.close(open.group);
            self.end_value();
        }
    }

    fn key(&mut self, key: &[u8]) {
        self.canon.begin_field(key);
        let excluded = self.trail.enter(key);
        if let Some(object) = self.open.last_mut() {
            object.excluded = excluded;
        }
    }

    /// After every value: if it is that of a field, the field ends here.
    fn end_value(&mut self) {
        if let Some(object) = self.open.last().filter(|open| open.is_object) {
            if object.excluded {
                self.canon.drop_field();
            } else {
                self.canon.end_field();
            }
            self.trail.leave(object.place);
        }
    }
}

fn ends_scalar(byte: &u8) -> bool {
    matches!(byte, b',' | b']' | b'}' | b' ' | b'\t' | b'\n' | b'\r')
}

/// The place after the quotation mark that ends the string whose content starts at `at`, and whether something in it is
/// escaped.
fn string_end(bytes: &[u8], mut at: usize) -> (usize, bool) {
    let mut escaped = false;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'"' => return (at + 1, escaped),
            b'\\' => {
                escaped = true;
                at += 2;
            }
            _ => at += 1,
        }
    }
    (bytes.len(), escaped)
}
