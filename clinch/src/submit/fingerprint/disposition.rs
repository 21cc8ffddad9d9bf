//! The header that says what a part is called: `form-data; name="a"; filename="b.txt"`.

/// What a part is called. Names are bytes, because nothing makes clients send UTF-8.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Disposition {
    pub(super) name: Vec<u8>,
    pub(super) file_name: Option<Vec<u8>>,
    /// `filename*`, as it is written.
    pub(super) ext_file_name: Option<Vec<u8>>,
}

impl Disposition {
    /// Reads the header; `None` where it has no name, says something twice, or could be read in two ways.
    pub(super) fn parse(header: &[u8]) -> Option<Self> {
        let (kind, mut rest) = until_semicolon(header);
        if !kind.eq_ignore_ascii_case(b"form-data") {
            return None;
        }
        let (mut name, mut file_name, mut ext_file_name) = (None, None, None);
        loop {
            rest = rest.trim_ascii_start();
            if rest.is_empty() {
                break;
            }
            let (parameter, value, after) = next_parameter(rest)?;
            rest = after;
            let known = match parameter.to_ascii_lowercase().as_slice() {
                b"name" => &mut name,
                b"filename" => &mut file_name,
                b"filename*" => &mut ext_file_name,
                _ => continue,
            };
            if known.replace(value).is_some() {
                return None;
            }
        }
        Some(Self { name: name?, file_name, ext_file_name })
    }

    /// Whether it is a plain field of this name, not a file.
    pub(super) fn is_field(&self, name: &str) -> bool {
        self.name == name.as_bytes() && self.file_name.is_none() && self.ext_file_name.is_none()
    }
}

/// The name and the value of the next parameter, and what stands after it.
fn next_parameter(text: &[u8]) -> Option<(&[u8], Vec<u8>, &[u8])> {
    let equals = text.iter().position(|byte| matches!(byte, b'=' | b';' | b'"'))?;
    let (name, value) = (text[..equals].trim_ascii(), text[equals..].strip_prefix(b"=")?.trim_ascii_start());
    if let Some(quoted) = value.strip_prefix(b"\"") {
        let (value, after) = unquote(quoted)?;
        let (nothing, rest) = until_semicolon(after);
        nothing.is_empty().then_some((name, value, rest))
    } else {
        let (value, rest) = until_semicolon(value);
        (!value.contains(&b'"')).then(|| (name, value.to_vec(), rest))
    }
}

/// What stands before the next semicolon, without blanks around it, and what stands after it.
fn until_semicolon(text: &[u8]) -> (&[u8], &[u8]) {
    let end = text.iter().position(|byte| *byte == b';').unwrap_or(text.len());
    (text[..end].trim_ascii(), text.get(end + 1..).unwrap_or_default())
}

/// The value up to the quotation mark that ends it, and what stands after that. Clients escape nothing but the
/// quotation mark, so any other backslash is itself: `C:\temp` is a file name.
fn unquote(quoted: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let mut value = Vec::new();
    let mut rest = quoted;
    loop {
        let (byte, after) = match rest {
            [b'"', after @ ..] => return Some((value, after)),
            [b'\\', b'"', after @ ..] => (b'"', after),
            [byte, after @ ..] => (*byte, after),
            [] => return None,
        };
        value.push(byte);
        rest = after;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(header: &str) -> Option<(String, Option<String>)> {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        Disposition::parse(header.as_bytes()).map(|called| (text(called.name), called.file_name.map(text)))
    }

    fn called(name: &str, file: Option<&str>) -> Option<(String, Option<String>)> {
        Some((name.to_owned(), file.map(str::to_owned)))
    }

    #[test]
    fn the_ways_in_which_clients_write_it() {
        assert_eq!(parse(r#"form-data; name="a""#), called("a", None));
        assert_eq!(parse(r#"Form-Data;NAME = "a" ; FileName=b.txt;"#), called("a", Some("b.txt")));
        assert_eq!(parse(r#"form-data; filename=""; name=a b"#), called("a b", Some("")));
        assert_eq!(
            parse(r#"form-data; name="C:\x\"; \"y"; size=3; filename="é;=.txt""#),
            called(r#"C:\x"; "y"#, Some("é;=.txt"))
        );
    }

    /// A parser that looks for `filename=` anywhere would find one here.
    #[test]
    fn a_name_cannot_imitate_a_file_name() {
        assert_eq!(parse(r#"form-data; name="; filename=x""#), called("; filename=x", None));
        assert_eq!(
            parse(r#"form-data; name="; filename=x"; filename="y""#),
            called("; filename=x", Some("y"))
        );
    }

    #[test]
    fn nothing_is_guessed() {
        for unclear in [
            "",
            "form-data",
            "form-data; filename=a",
            "attachment; name=a",
            "form-data; name",
            "form-data; name; filename=a",
            r#"form-data; name="a"#,
            r#"form-data; name="a\""#,
            r#"form-data; name="a"b"#,
            r#"form-data; name=a"b"#,
            r#"form-data; name="a" filename="b""#,
            "form-data; name=a; name=a",
            "form-data; name=a; filename=b; FILENAME=c",
        ] {
            assert_eq!(parse(unclear), None, "{unclear}");
        }
    }

    #[test]
    fn names_that_are_no_text_stay_apart() {
        let parse = |byte| Disposition::parse(&[&b"form-data; name=\""[..], &[byte], b"\""].concat());
        assert_eq!(parse(0xff).map(|called| called.name), Some(vec![0xff]));
        assert_ne!(parse(0xff), parse(0xfe));
        let ext =
            |header: &str| Disposition::parse(header.as_bytes()).and_then(|called| called.ext_file_name);
        assert_eq!(ext("form-data; name=a; filename*=UTF-8''%61").as_deref(), Some(&b"UTF-8''%61"[..]));
    }
}
