//! JSON, read in one pass.
//!
//! serde_json decodes strings with escapes in them, and the tests ask it what JSON is. Its own data model is of no use here,
//! because it parses numbers and forgets what was written; reading level by level through `RawValue` scans everything again at
//! every level, and even one look at whether a text is JSON costs as much as the walk. So the text is checked while it is
//! walked, token by token, and the walk's stack is a `Vec`.

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
    let text = str::from_utf8(text).map_err(|_| Unfit::NotJson)?;
    let mark = canon.mark();
    let result = Walk { canon, trail, depth, innermost: None, around: Vec::new() }.run(text);
    match result {
        Ok(()) => return Ok(()),
        Err(_) => canon.rewind(mark),
    }
    // What breaks off further down is no JSON, however deep it is.
    if result == Err(Unfit::TooDeep) && checked(text.as_bytes()).is_none() {
        return Err(Unfit::NotJson);
    }
    result
}

struct Walk<'w, 'a> {
    canon: &'w mut Canon,
    trail: Trail<'a>,
    depth: usize,
    /// The object or array around the current token. Apart from those around it, because most texts have no more than this.
    innermost: Option<Open>,
    around: Vec<Open>,
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
        loop {
            // Here a value begins.
            at = after_blanks(bytes, at);
            let first = *bytes.get(at).ok_or(Unfit::NotJson)?;
            match first {
                b'{' | b'[' => {
                    let is_object = first == b'{';
                    self.open(is_object)?;
                    at = after_blanks(bytes, at + 1);
                    if bytes.get(at) == Some(&closing(is_object)) {
                        at += 1;
                        self.close();
                    } else {
                        if is_object {
                            at = self.key(text, at)?;
                        }
                        continue;
                    }
                }
                b'"' => at = string(text, at, |string| self.canon.blob(Tag::Text, string))?,
                b'n' => at = self.word(bytes, at, b"null", Tag::Null)?,
                b't' => at = self.word(bytes, at, b"true", Tag::True)?,
                b'f' => at = self.word(bytes, at, b"false", Tag::False)?,
                _ => {
                    let end = number_end(bytes, at).ok_or(Unfit::NotJson)?;
                    self.canon.blob(Tag::Number, &bytes[at..end]);
                    at = end;
                }
            }
            // And here it has ended, and perhaps what it stands in as well.
            loop {
                at = after_blanks(bytes, at);
                let Some(open) = self.end_value() else {
                    return if at == bytes.len() { Ok(()) } else { Err(Unfit::NotJson) };
                };
                let is_object = open.is_object;
                let sign = *bytes.get(at).ok_or(Unfit::NotJson)?;
                at += 1;
                if sign == b',' {
                    if is_object {
                        at = self.key(text, after_blanks(bytes, at))?;
                    }
                    break;
                }
                if sign != closing(is_object) {
                    return Err(Unfit::NotJson);
                }
                self.close();
            }
        }
    }

    fn open(&mut self, is_object: bool) -> Result<(), Unfit> {
        if self.around.len() + usize::from(self.innermost.is_some()) >= self.depth {
            return Err(Unfit::TooDeep);
        }
        let group = self.canon.open(if is_object { Tag::Object } else { Tag::Array });
        let open = Open { group, is_object, place: self.trail.place(), excluded: false };
        self.around.extend(self.innermost.replace(open));
        Ok(())
    }

    fn close(&mut self) {
        if let Some(open) = self.innermost.take() {
            self.canon.close(open.group);
            self.innermost = self.around.pop();
        }
    }

    /// Reads a key and its colon.
    fn key(&mut self, text: &str, at: usize) -> Result<usize, Unfit> {
        let end = string(text, at, |key| {
            self.canon.begin_field(key);
            let excluded = self.trail.enter(key);
            if let Some(object) = &mut self.innermost {
                object.excluded = excluded;
            }
        })?;
        let colon = after_blanks(text.as_bytes(), end);
        if text.as_bytes().get(colon) == Some(&b':') { Ok(colon + 1) } else { Err(Unfit::NotJson) }
    }

    fn word(&mut self, bytes: &[u8], at: usize, word: &[u8], tag: Tag) -> Result<usize, Unfit> {
        if !bytes[at..].starts_with(word) {
            return Err(Unfit::NotJson);
        }
        self.canon.tag(tag);
        Ok(at + word.len())
    }

    /// After every value: if it is that of a field, the field ends here. What it stands in.
    fn end_value(&mut self) -> Option<&Open> {
        let open = self.innermost.as_ref()?;
        if open.is_object {
            if open.excluded {
                self.canon.drop_field();
            } else {
                self.canon.end_field();
            }
            self.trail.leave(open.place);
        }
        Some(open)
    }
}

const fn closing(is_object: bool) -> u8 {
    if is_object { b'}' } else { b']' }
}

fn after_blanks(bytes: &[u8], mut at: usize) -> usize {
    while let Some(b' ' | b'\t' | b'\n' | b'\r') = bytes.get(at) {
        at += 1;
    }
    at
}

/// Hands on the value of the string that begins at `at`, and says where it ends.
fn string(text: &str, at: usize, value: impl FnOnce(&[u8])) -> Result<usize, Unfit> {
    let bytes = text.as_bytes();
    if bytes.get(at) != Some(&b'"') {
        return Err(Unfit::NotJson);
    }
    let content = &bytes[at + 1..];
    let plain = content.iter().position(|byte| matches!(byte, b'"' | b'\\' | 0..b' '));
    match plain.map(|length| (content[length], &content[..length])) {
        Some((b'"', plain)) => {
            value(plain);
            Ok(at + 1 + plain.len() + 1)
        }
        Some((b'\\', _)) => {
            let end = string_end(bytes, at + 1);
            // Which also finds what is wrong with it.
            let decoded = decode(&text[at..end]).ok_or(Unfit::NotJson)?;
            value(decoded.as_bytes());
            Ok(end)
        }
        _ => Err(Unfit::NotJson),
    }
}

/// The place after the quotation mark that ends the string whose content starts at `at`.
fn string_end(bytes: &[u8], mut at: usize) -> usize {
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'"' => return at + 1,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    bytes.len()
}

/// Where the number that begins at `at` ends. What follows it is for others to look at.
fn number_end(bytes: &[u8], at: usize) -> Option<usize> {
    let digits = |from: usize| {
        let end =
            bytes[from..].iter().position(|byte| !byte.is_ascii_digit()).map_or(bytes.len(), |n| from + n);
        (end > from).then_some(end)
    };
    let integer = at + usize::from(bytes.get(at) == Some(&b'-'));
    let mut end = if bytes.get(integer) == Some(&b'0') { integer + 1 } else { digits(integer)? };
    if bytes.get(end) == Some(&b'.') {
        end = digits(end + 1)?;
    }
    if let Some(b'e' | b'E') = bytes.get(end) {
        end += 1;
        if let Some(b'+' | b'-') = bytes.get(end) {
            end += 1;
        }
        end = digits(end)?;
    }
    Some(end)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::exclude::Exclude;
    use super::*;

    fn walked(text: &[u8]) -> Result<(), Unfit> {
        write(&mut Canon::default(), text, Exclude::new(&[]).trail(), 64)
    }

    #[test]
    fn what_is_json_is_what_serde_json_says() {
        for text in [
            "",
            " ",
            "1",
            "-",
            "-0",
            "-1",
            "00",
            "01",
            "1.",
            "1.0",
            ".1",
            "1e",
            "1e5",
            "1E+05",
            "1e-",
            "1.e1",
            "+1",
            "0x1",
            "1 1",
            "NaN",
            "null",
            "nul",
            "nulll",
            "true",
            "truefalse",
            "false ",
            "\t\n\r {} ",
            "{",
            "}",
            "{]",
            "[}",
            "[",
            "[]",
            "[1]",
            "[1,]",
            "[,1]",
            "[1 2]",
            "[[],{}]",
            "{\"a\":1}",
            "{\"a\":1,}",
            "{,}",
            "{\"a\"}",
            "{\"a\":}",
            "{\"a\" : 1 , \"b\":[ ]}",
            "{a:1}",
            "{1:1}",
            "{\"a\":1 \"b\":2}",
            "\"",
            "\"a",
            "\"a\"",
            "\"a\"b",
            "\"\n\"",
            "\"\u{7f}\"",
            "\"é\"",
            "\"\\n\"",
            "\"\\x\"",
            "\"\\",
            "\"\\\"",
            "\"\\u00e9\"",
            "\"\\u00g9\"",
            "\"\\u00",
            "\"\\n\n\"",
            "\u{feff}1",
            "{}{}",
            "[]]",
            "1,",
            ",",
            ":",
        ] {
            assert_eq!(walked(text.as_bytes()).is_ok(), checked(text.as_bytes()).is_some(), "{text}");
        }
        assert_eq!(walked(b"\"\xff\""), Err(Unfit::NotJson));
        // Half of a surrogate pair is JSON, and no text.
        assert_eq!(walked(br#""\ud800""#), Err(Unfit::NotJson));
    }

    #[test]
    fn what_breaks_off_is_no_json_however_deep_it_is() {
        assert_eq!(walked(&[b'['; 65]), Err(Unfit::NotJson));
        let deep = [[b'['; 65], [b']'; 65]].concat();
        assert_eq!((walked(&deep[1..129]), walked(&deep)), (Ok(()), Err(Unfit::TooDeep)));
    }

    proptest! {
        /// Mostly tokens, so that a good part of the texts is JSON.
        #[test]
        fn any_text_is_json_where_serde_json_says_so(
            tokens in proptest::collection::vec(
                prop_oneof![
                    "[{}\\[\\],:]", "[{}\\[\\],:]", "[ \n0-9.eE+-]", Just("\"a\":".to_owned()), Just("\"b\"".to_owned()), Just("[1,".to_owned()),
                    Just("{\"a\":".to_owned()), Just("null".to_owned()), Just("-1.5e+3".to_owned()), Just("\"\\n\"".to_owned()), "[\"\\\\a]",
                ],
                0..12,
            ),
        ) {
            let text = tokens.concat();
            prop_assert_eq!(walked(text.as_bytes()).is_ok(), checked(text.as_bytes()).is_some(), "{}", text);
        }
    }
}
