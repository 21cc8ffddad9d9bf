//! The header `Idempotency-Key`, as the IETF draft has it (`draft-ietf-httpapi-idempotency-key-header`): an item of RFC 9651
//! that is a string, `Idempotency-Key: "8e03978e-40d5-43dd-bc93-6894a57f9324"`.

use http::{HeaderMap, HeaderName};

pub(crate) const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// The longest key in characters.
pub(crate) const MAX_CHARS: usize = 255;

/// The key that a request carries, without its quotation marks; `None` if it has no such header. `lenient` takes a key
/// without them as well, which is then the same as the one with them.
///
/// # Errors
/// What is wrong with the header, for the one who sent it.
pub(crate) fn idempotency_key(headers: &HeaderMap, lenient: bool) -> Result<Option<String>, &'static str> {
    let mut lines = headers.get_all(IDEMPOTENCY_KEY).iter();
    let Some(line) = lines.next() else { return Ok(None) };
    if lines.next().is_some() {
        return Err("the request has more than one Idempotency-Key header; accepted is one");
    }
    let text = trim_blanks(line.as_bytes());
    let key = match text.first() {
        None => return Err(EMPTY),
        Some(b'"') => item(text)?,
        Some(_) if lenient => bare(text)?,
        Some(_) => {
            return Err(
                "the Idempotency-Key is not a quoted string; write it in quotation marks, as in Idempotency-Key: \"8e03978e\"",
            );
        }
    };
    match key.len() {
        0 => Err(EMPTY),
        1..=MAX_CHARS => Ok(Some(key)),
        _ => Err(TOO_LONG),
    }
}

const EMPTY: &str = "the Idempotency-Key is empty; accepted are 1 to 255 characters";
const TOO_LONG: &str = "the Idempotency-Key is too long; accepted are 1 to 255 characters";
const NOT_ASCII: &str =
    "the Idempotency-Key holds a character that is not printable ASCII; accepted are U+0020 to U+007E";
const NOT_ESCAPED: &str =
    "the Idempotency-Key holds a backslash that escapes nothing; accepted are \\\" and \\\\";
const NOT_CLOSED: &str = "the Idempotency-Key has no closing quotation mark";
const NOT_THE_END: &str =
    "something follows the Idempotency-Key that is no parameter; accepted is one quoted string";
const NOT_BARE: &str =
    "the Idempotency-Key has no quotation marks, but holds blanks, commas, semicolons or quotation marks";

/// Blanks only: RFC 9651 knows no tabs there.
fn trim_blanks(text: &[u8]) -> &[u8] {
    let start = text.iter().position(|byte| *byte != b' ').unwrap_or(text.len());
    let end = text.iter().rposition(|byte| *byte != b' ').map_or(start, |last| last + 1);
    &text[start..end]
}

/// Visible ASCII that cannot be taken for anything but one word.
fn bare(text: &[u8]) -> Result<String, &'static str> {
    if !text.iter().all(|byte| matches!(byte, b' '..=b'~')) {
        return Err(NOT_ASCII);
    }
    if text.iter().any(|byte| b" \",;".contains(byte)) {
        return Err(NOT_BARE);
    }
    Ok(text.iter().map(|byte| char::from(*byte)).collect())
}

/// A string and its parameters, which must be well formed and say nothing to us.
fn item(text: &[u8]) -> Result<String, &'static str> {
    let (key, mut rest) = string(text)?;
    while let Some(parameter) = rest.strip_prefix(b";") {
        rest = skip_parameter(parameter).ok_or(NOT_THE_END)?;
    }
    if rest.is_empty() { Ok(key) } else { Err(NOT_THE_END) }
}

/// A quoted string, and what follows it.
fn string(text: &[u8]) -> Result<(String, &[u8]), &'static str> {
    let mut key = String::new();
    let mut bytes = text.iter().enumerate().skip(1);
    while let Some((at, byte)) = bytes.next() {
        match byte {
            b'"' => return Ok((key, &text[at + 1..])),
            b'\\' => match bytes.next() {
                Some((_, escaped @ (b'"' | b'\\'))) => key.push(char::from(*escaped)),
                _ => return Err(NOT_ESCAPED),
            },
            b' '..=b'~' => key.push(char::from(*byte)),
            _ => return Err(NOT_ASCII),
        }
    }
    Err(NOT_CLOSED)
}

/// What follows a parameter: `name`, or `name=value`.
fn skip_parameter(text: &[u8]) -> Option<&[u8]> {
    let name = trim_start(text);
    let first = name.first()?;
    if !(first.is_ascii_lowercase() || *first == b'*') {
        return None;
    }
    let rest = skip_while(name, |byte| {
        byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_-.*".contains(&byte)
    });
    match rest.strip_prefix(b"=") {
        Some(value) => skip_value(value),
        None => Some(rest),
    }
}

/// What follows a bare item of RFC 9651.
fn skip_value(text: &[u8]) -> Option<&[u8]> {
    match text.first()? {
        b'"' => string(text).ok().map(|(_, rest)| rest),
        b'?' => text[1..].strip_prefix(b"0").or_else(|| text[1..].strip_prefix(b"1")),
        b':' => {
            let base64 = |byte: u8| byte.is_ascii_alphanumeric() || b"+/=".contains(&byte);
            skip_while(&text[1..], base64).strip_prefix(b":")
        }
        b'@' => skip_number(&text[1..]),
        b'%' => {
            let quoted = text[1..].strip_prefix(b"\"")?;
            skip_while(quoted, |byte| matches!(byte, b' '..=b'~') && byte != b'"').strip_prefix(b"\"")
        }
        b'-' | b'0'..=b'9' => skip_number(text),
        first if first.is_ascii_alphabetic() || *first == b'*' => Some(skip_while(text, |byte| {
            byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~:/".contains(&byte)
        })),
        _ => None,
    }
}

/// At most 15 digits, or at most 12 and, after a point, 1 to 3.
fn skip_number(text: &[u8]) -> Option<&[u8]> {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    let rest = skip_while(digits, |byte| byte.is_ascii_digit());
    let whole = digits.len() - rest.len();
    let Some(fraction) = rest.strip_prefix(b".") else {
        return (1..=15).contains(&whole).then_some(rest);
    };
    let rest = skip_while(fraction, |byte| byte.is_ascii_digit());
    let decimals = fraction.len() - rest.len();
    ((1..=12).contains(&whole) && (1..=3).contains(&decimals)).then_some(rest)
}

fn trim_start(text: &[u8]) -> &[u8] {
    skip_while(text, |byte| byte == b' ')
}

fn skip_while(text: &[u8], accept: impl Fn(u8) -> bool) -> &[u8] {
    &text[text.iter().position(|byte| !accept(*byte)).unwrap_or(text.len())..]
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use proptest::prelude::*;

    use super::*;

    fn parse(line: impl AsRef<[u8]>, lenient: bool) -> Result<Option<String>, &'static str> {
        let mut headers = HeaderMap::new();
        headers.append(IDEMPOTENCY_KEY, HeaderValue::from_bytes(line.as_ref()).unwrap());
        idempotency_key(&headers, lenient)
    }

    fn serialise(key: &str) -> String {
        format!("\"{}\"", key.replace('\\', "\\\\").replace('"', "\\\""))
    }

    #[test]
    fn a_quoted_string_is_a_key_in_both_modes() {
        for (line, key) in [
            (r#""8e03978e-40d5-43dd-bc93-6894a57f9324""#, "8e03978e-40d5-43dd-bc93-6894a57f9324"),
            (r#"   "a"  "#, "a"),
            (r#"" a ""#, " a "),
            (r#""a\"b\\c""#, r#"a"b\c"#),
            (r#""a;b,c""#, "a;b,c"),
            (r#""a";b"#, "a"),
            (r#""a"; b=1;  *c-d_e.f*=-12.345;g=?0"#, "a"),
            (r#""a";b="x;\"y";c=:YWJj:;d=tok/en:x;e=@1659578233;f=%"f%c3%bc""#, "a"),
        ] {
            assert_eq!(parse(line, false).as_ref().map(Option::as_deref), Ok(Some(key)), "{line}");
            assert_eq!(parse(line, true), parse(line, false), "{line}");
        }
        assert_eq!(idempotency_key(&HeaderMap::new(), false), Ok(None));
    }

    #[test]
    fn all_else_is_malformed_and_said_to_be() {
        for (line, reason) in [
            ("", EMPTY),
            ("  ", EMPTY),
            ("\"\"", EMPTY),
            ("\"a", NOT_CLOSED),
            ("\"a\\\"", NOT_CLOSED),
            ("\"", NOT_CLOSED),
            ("\"a\\", NOT_ESCAPED),
            ("\"a\\b\"", NOT_ESCAPED),
            ("\"a\tb\"", NOT_ASCII),
            ("\"é\"", NOT_ASCII),
            ("\"a\", \"b\"", NOT_THE_END),
            ("\"a\"b", NOT_THE_END),
            ("\"a\" ;b", NOT_THE_END),
            ("\"a\";", NOT_THE_END),
            ("\"a\";B", NOT_THE_END),
            ("\"a\";b=", NOT_THE_END),
            ("\"a\";b= 1", NOT_THE_END),
            ("\"a\";b=1234567890123456", NOT_THE_END),
            ("\"a\";b=1.2345", NOT_THE_END),
            ("\"a\";b=1.", NOT_THE_END),
            ("\"a\";b=-", NOT_THE_END),
            ("\"a\";b=?2", NOT_THE_END),
            ("\"a\";b=:a", NOT_THE_END),
            ("\"a\";b=\"c", NOT_THE_END),
            ("\"a\";b=(c)", NOT_THE_END),
        ] {
            assert_eq!(parse(line, false), Err(reason), "{line}");
            assert_eq!(parse(line, true), Err(reason), "{line}");
        }
        assert_eq!(parse(b"\"\xff\xfe\"", false), Err(NOT_ASCII));
        let mut headers = HeaderMap::new();
        headers.append(IDEMPOTENCY_KEY, HeaderValue::from_static("\"a\""));
        headers.append(IDEMPOTENCY_KEY, HeaderValue::from_static("\"a\""));
        assert!(idempotency_key(&headers, true).unwrap_err().contains("more than one"));
    }

    #[test]
    fn a_bare_word_is_a_key_only_in_lenient_mode() {
        for word in ["8e03978e-40d5", "a", "a=b", "a\\b", "é"] {
            assert!(parse(word, false).unwrap_err().contains("quotation marks"), "{word}");
        }
        for word in ["8e03978e-40d5", " a ", "a=b", "a\\b", "0", "~!'"] {
            assert_eq!(parse(word, true), Ok(Some(word.trim().to_owned())), "{word}");
        }
        for (word, reason) in
            [("a b", NOT_BARE), ("a,b", NOT_BARE), ("a;b=1", NOT_BARE), ("a\"", NOT_BARE), ("é", NOT_ASCII)]
        {
            assert_eq!(parse(word, true), Err(reason), "{word}");
        }
        assert_eq!(parse("a", true), parse("\"a\"", true));
    }

    #[test]
    fn a_key_has_at_most_255_characters() {
        for (chars, accepted) in [(MAX_CHARS, true), (MAX_CHARS + 1, false), (10_000, false)] {
            for key in ["x".repeat(chars), "\\".repeat(chars)] {
                let found = parse(serialise(&key), false);
                assert_eq!(found, if accepted { Ok(Some(key)) } else { Err(TOO_LONG) });
            }
            let bare = parse("x".repeat(chars), true);
            assert_eq!(bare.is_ok(), accepted);
        }
        assert!(TOO_LONG.contains(&format!("1 to {MAX_CHARS} characters")) && EMPTY.contains("1 to 255"));
    }

    proptest! {
        #[test]
        fn every_printable_text_comes_back_as_it_was(key in "[ -~]{1,255}") {
            prop_assert_eq!(parse(serialise(&key), false), Ok(Some(key)));
        }

        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64), lenient: bool) {
            for bytes in [bytes.clone(), [b"\"a\";", bytes.as_slice()].concat()] {
                let mut headers = HeaderMap::new();
                if let Ok(value) = HeaderValue::from_bytes(&bytes) {
                    headers.append(IDEMPOTENCY_KEY, value);
                }
                let _ = idempotency_key(&headers, lenient);
                let _ = (item(&bytes), bare(&bytes), skip_parameter(&bytes));
            }
        }

        #[test]
        fn what_is_nearly_a_key_does_not_panic(text in "\"?[a\\\\\";=:?@%.*0-9 -]{0,40}") {
            for lenient in [false, true] {
                if let Ok(Some(key)) = parse(&text, lenient) {
                    prop_assert_eq!(parse(serialise(&key), false), Ok(Some(key)));
                }
            }
        }
    }
}
