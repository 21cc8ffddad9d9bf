//! The rules for bodies.

use bytes::Bytes;
use clinch::submit::{Fingerprint, Params};

use crate::rules::{all_different, print};

fn body(content_type: &str, bytes: impl AsRef<[u8]>) -> Fingerprint {
    let bytes = Bytes::copy_from_slice(bytes.as_ref());
    print(Params::new().body(Some(content_type.as_bytes()), None, &bytes))
}

fn json(text: &str) -> Fingerprint {
    body("application/json", text)
}

fn form(text: &str) -> Fingerprint {
    body("application/x-www-form-urlencoded", text)
}

/// Proves: D4
#[test]
fn json_numbers_are_what_is_written() {
    let numbers = ["1", "1.0", "1e0", "1E0", "1e+0", "10e-1", "0", "-0", "0.0", "1e400"];
    all_different(&numbers, |number| json(number));
    all_different(
        &["18446744073709551615", "18446744073709551616", "18446744073709551617", "9007199254740993"],
        |number| json(&format!(r#"{{"a":[{number}]}}"#)),
    );
}

/// Proves: D4
#[test]
fn json_strings_are_what_they_say() {
    assert_eq!(json(r#""A\/\n""#), json(r#""\u0041/\u000a""#));
    assert_eq!(json(r#""😀é""#), json(r#""\ud83d\uDE00\u00e9""#));
    assert_eq!(json(r#"{"\u0061":1}"#), json(r#"{"a":1}"#));
    all_different(&["1", r#""1""#, "null", r#""null""#, "true", r#""true""#, "false"], |text| json(text));
    assert_ne!(json(r#""é""#), json("\"e\u{301}\""), "nothing is normalised");
    assert_ne!(json(r#""\\n""#), json(r#""\n""#));
}

/// Proves: D4
#[test]
fn json_objects_have_no_order_but_repeated_keys_have() {
    assert_eq!(json(r#"{"a":1,"b":{"c":2,"d":3}}"#), json("\r\n{ \"b\" :{\"d\":3,\t\"c\":2} , \"a\":1 } "));
    assert_ne!(json(r#"{"a":1,"a":2}"#), json(r#"{"a":2,"a":1}"#));
    all_different(&[r#"{"a":1,"a":2}"#, r#"{"a":1}"#, r#"{"a":2}"#, r#"{"a":[1,2]}"#], |text| json(text));
    assert_eq!(json(r#"{"a":1,"b":0,"a":2}"#), json(r#"{"a":1,"a":2,"b":0}"#));
    assert_ne!(json("[1,2]"), json("[2,1]"));
}

#[test]
fn nothing_null_and_empty_are_different() {
    all_different(
        &[
            r#"{}"#,
            r#"{"a":null}"#,
            r#"{"a":""}"#,
            r#"{"a":{}}"#,
            r#"{"a":[]}"#,
            r#"{"a":[null]}"#,
            "null",
            "[]",
            "",
        ],
        |text| json(text),
    );
    all_different(&["[[],[]]", "[[[]]]", "[[]]", "[{},[]]", "[[],{}]"], |text| json(text));
}

/// Long values are hashed by themselves; the rules are the same.
#[test]
fn long_values_keep_the_rules() {
    let long = |c: &str| c.repeat(3000);
    let (x, y) = (long("x"), long("y"));
    let object = |one: &str, two: &str| format!(r#"{{"o":{{"{one}":"{x}","{two}":"{y}"}}}}"#);
    assert_ne!(json(&object("a", "a")), json(&object("a", "a").replace('x', "z")));
    assert_ne!(json(&object("a", "b")), json(&object("b", "a")), "the values are the other way round");
    assert_eq!(
        json(&format!(r#"[{{"a":"{x}","b":"{y}"}}]"#)),
        json(&format!(r#"[{{"b":"{y}","a":"{x}"}}]"#))
    );
    assert_ne!(
        json(&format!(r#"[{{"a":"{x}","a":"{y}"}}]"#)),
        json(&format!(r#"[{{"a":"{y}","a":"{x}"}}]"#))
    );
    let digits = long("1");
    all_different(&[format!("\"{digits}\""), digits.clone(), format!("[{digits}]")], |text| json(text));
    assert_ne!(form(&format!("a={x}")), form(&format!("a={y}")));
}

#[test]
fn what_says_it_is_json_and_is_not_counts_by_its_bytes() {
    let half = r#"{"a":"\ud800"}"#;
    for broken in ["", " ", "{", r#"{"a":1,}"#, "[01]", "[1] 2", "nul", "\"\u{1}\"", "\u{feff}1", half] {
        assert_eq!(json(broken), body("text/plain", broken), "{broken:?}");
    }
    assert_ne!(json(half), json(&format!(" {half}")));
    assert_eq!(body("application/json", b"\"\xff\""), body("text/plain", b"\"\xff\""));
    assert_ne!(body("application/json", b"\"\xff\""), body("application/json", b"\"\xfe\""));
}

#[test]
fn the_content_type_only_says_how_to_read() {
    for content_type in
        ["Application/JSON", " text/json ;charset=utf-8", "application/vnd.api+json", "a/b+JSON"]
    {
        assert_eq!(body(content_type, "[1]"), json("[ 1 ]"), "{content_type}");
    }
    for content_type in ["text/plain", "application/jsonx", "application/x-ndjson", "", ";", "json"] {
        assert_eq!(body(content_type, "[1]"), body("image/png", "[1]"), "{content_type}");
        assert_ne!(body(content_type, "[1]"), json("[1]"), "{content_type}");
    }
    assert_eq!(body("APPLICATION/x-www-form-urlencoded; charset=UTF-8", "a=1&b=2"), form("b=2&a=1"));
}

#[test]
fn a_form_is_like_a_query_and_no_field_is_no_body() {
    assert_eq!(form("a=1&b=%32"), form("b=2&a=1"));
    assert_ne!(form("a=1&a=2"), form("a=2&a=1"));
    assert_ne!(
        body("application/x-www-form-urlencoded", b"a=\xff"),
        body("application/x-www-form-urlencoded", b"a=\xfe")
    );
    let none = print(Params::new());
    for empty in
        [form(""), form("&&"), json(""), body("text/plain", ""), body("multipart/form-data; boundary=b", "")]
    {
        assert_eq!(empty, none);
    }
}

/// A multipart body with these headers and contents.
fn parts(boundary: &str, parts: &[(&str, &str)]) -> Vec<u8> {
    let mut body = String::new();
    for (headers, content) in parts {
        body += &format!("--{boundary}\r\n{headers}\r\n\r\n{content}\r\n");
    }
    body += &format!("--{boundary}--\r\n");
    body.into_bytes()
}

fn multipart(list: &[(&str, &str)]) -> Fingerprint {
    body("multipart/form-data; boundary=b", parts("b", list))
}

const A: &str = "Content-Disposition: form-data; name=\"a\"";
const B: &str = "Content-Disposition: form-data; name=\"b\"";

/// Proves: D4
#[test]
fn a_part_is_its_name_file_name_and_content() {
    let file = |name: &str| format!("{A}; filename=\"{name}\"");
    assert_eq!(multipart(&[(A, "1"), (B, "2")]), multipart(&[(B, "2"), (A, "1")]));
    assert_ne!(multipart(&[(A, "1"), (A, "2")]), multipart(&[(A, "2"), (A, "1")]));
    let ext = format!("{A}; filename*=UTF-8''x");
    let (x, y, empty) = (file("x"), file("y"), file(""));
    let single = [(A, "1"), (A, "2"), (A, ""), (B, "1"), (&x, "1"), (&y, "1"), (&empty, "1"), (&ext, "1")];
    all_different(&single, |part| multipart(&[*part]));
    all_different(&[&[][..], &[(A, "1")], &[(A, "1"), (A, "1")]], |list| multipart(list));
}

#[test]
fn boundaries_and_other_headers_do_not_count() {
    let plain = multipart(&[(A, "1\r\n--2")]);
    let other = parts("--X y", &[(A, "1\r\n--2")]);
    assert_eq!(body("Multipart/Form-Data; charset=x; boundary=\"--X y\"", other), plain);
    for headers in [
        "content-disposition:FORM-DATA;NAME=a\r\nContent-Type: text/plain",
        "X-Any: 1\r\nContent-Disposition: form-data; size=5; name=\"a\"",
    ] {
        assert_eq!(multipart(&[(headers, "1\r\n--2")]), plain, "{headers}");
    }
    let around = [&b"before\r\n"[..], &parts("b", &[(A, "1\r\n--2")]), b"after"].concat();
    assert_eq!(body("multipart/form-data; boundary=b", around), plain);
}

#[test]
fn a_broken_multipart_counts_by_its_bytes() {
    let good = parts("b", &[(A, "1")]);
    let types = ["multipart/form-data; boundary=c", "multipart/form-data", "multipart/mixed; boundary=b"];
    for content_type in types {
        assert_eq!(body(content_type, &good), body("text/plain", &good), "{content_type}");
    }
    for broken in [
        good[..good.len() - 5].to_vec(),
        good[..good.len() / 2].to_vec(),
        parts("b", &[(A, "1"), ("X: 1", "2")]),
        parts("b", &[("Content-Disposition: form-data", "2")]),
        parts("b", &[("Content-Disposition: form-data; name=\"a\\\"", "2")]),
        parts("b", &[(&"A: 1\r\n".repeat(40), "2")]),
        b"--b".to_vec(),
    ] {
        assert_eq!(
            body("multipart/form-data; boundary=b", &broken),
            body("text/plain", &broken),
            "{broken:?}"
        );
    }
}

/// Proves: D4
#[test]
fn an_encoded_body_counts_as_it_came() {
    let bytes = Bytes::from_static(b"{\"a\":1}");
    let encoded = |coding: &str, content_type: &str| {
        print(Params::new().body(Some(content_type.as_bytes()), Some(coding.as_bytes()), &bytes))
    };
    let json_type = "application/json";
    assert_eq!(encoded("gzip", json_type), encoded(" GZip ", "text/plain"));
    for none in ["identity", " Identity", ""] {
        assert_eq!(encoded(none, json_type), json("{ \"a\": 1}"), "{none}");
    }
    all_different(&["gzip", "br", "identity", "gzip, br", "x-é"], |coding| encoded(coding, json_type));
    let exclude = ["a".to_owned()];
    let excluded = Params::new().exclude(&exclude).body(Some(b"application/json"), Some(b"gzip"), &bytes);
    assert_eq!(print(excluded), encoded("gzip", json_type), "nothing is found in it");
    let empty = print(Params::new().body(None, Some(b"gzip"), &Bytes::new()));
    assert_ne!(empty, print(Params::new()));
}

/// Whatever stands between two values in what is hashed, a value cannot hold it and so pass for two.
#[test]
fn no_text_can_imitate_what_separates_texts() {
    let two = (json(r#"["a","b"]"#), form("x=a&x=b"), form("x=a&b"));
    for one in 0..64_u32 {
        for other in (0..64).map(Some).chain([None]) {
            let between: Vec<u32> = [Some(one), other].into_iter().flatten().collect();
            let escaped: String = between.iter().map(|code| format!("\\u{code:04x}")).collect();
            assert_ne!(json(&format!(r#"["a{escaped}b"]"#)), two.0, "{between:?}");
            let escaped: String = between.iter().map(|code| format!("%{code:02x}")).collect();
            assert_ne!(form(&format!("x=a{escaped}b")), two.1, "{between:?}");
            assert_ne!(form(&format!("x=a{escaped}b")), two.2, "{between:?}");
        }
    }
}
