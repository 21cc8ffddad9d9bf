//! Percent-escaping of values, so that a value can imitate neither a key's structure nor a hash tag.

use std::fmt::{self, Write};

use crate::hex;

/// Whether a character of a value must be escaped: the escape sign itself, the separator, braces, blanks and control
/// characters. Everything else stays readable.
fn needs_escape(c: char) -> bool {
    matches!(c, '%' | ':' | '{' | '}') || c.is_whitespace() || c.is_control()
}

/// The bytes that are characters which stay as they are, but for those beyond ASCII.
const PLAIN: [bool; 256] = {
    let mut plain = [false; 256];
    let mut byte = b'!';
    while byte <= b'~' {
        plain[byte as usize] = !matches!(byte, b'%' | b':' | b'{' | b'}');
        byte += 1;
    }
    plain
};

/// The first character that must be escaped, and where it stands.
fn first_to_escape(text: &str) -> Option<(usize, char)> {
    // Most have none, and then it is enough to look at their bytes.
    let at = text.bytes().position(|byte| !PLAIN[usize::from(byte)])?;
    text[at..].char_indices().find(|(_, c)| needs_escape(*c)).map(|(further, c)| (at + further, c))
}

/// Writes into `out` whatever is formatted into it, escaped.
pub(crate) struct Escaped<'a>(pub(crate) &'a mut String);

impl Write for Escaped<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut rest = text;
        while let Some((at, c)) = first_to_escape(rest) {
            let (before, after) = rest.split_at(at);
            let (escaped, after) = after.split_at(c.len_utf8());
            self.0.push_str(before);
            for byte in escaped.bytes() {
                self.0.push('%');
                self.0.extend(hex::digits(byte).map(|digit| char::from(digit.to_ascii_uppercase())));
            }
            rest = after;
        }
        self.0.push_str(rest);
        Ok(())
    }
}

/// Undoes [`Escaped`]; `None` where `text` is not something it could have written.
pub(crate) fn unescape(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let digit = |b: Option<u8>| b.and_then(|b| char::from(b).to_digit(16));
            let (high, low) = (digit(rest.next())?, digit(rest.next())?);
            bytes.push(u8::try_from(high * 16 + low).ok()?);
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).ok()
}
