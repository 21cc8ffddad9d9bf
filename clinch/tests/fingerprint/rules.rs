//! The rules for paths and queries, the errors, and the value itself.

use bytes::Bytes;
use clinch::submit::{Fingerprint, FingerprintError, Limits, Params};

/// The fingerprint of what must have one.
pub(crate) fn print(params: Params<'_>) -> Fingerprint {
    params.fingerprint().unwrap()
}

fn query(raw: &str) -> Fingerprint {
    print(Params::new().query(raw))
}

/// Checks that all are different from each other.
pub(crate) fn all_different<T: std::fmt::Debug>(items: &[T], print: impl Fn(&T) -> Fingerprint) {
    for (number, one) in items.iter().enumerate() {
        for two in &items[..number] {
            assert_ne!(print(one), print(two), "{one:?} and {two:?}");
        }
    }
}

/// Proves: D4
#[test]
fn fields_in_another_order_are_the_same_and_values_in_another_order_are_not() {
    assert_eq!(query("a=1&b=2"), query("b=2&a=1"));
    assert_ne!(query("a=1&a=2"), query("a=2&a=1"));
    assert_eq!(query("a=1&b=3&a=2"), query("b=3&a=1&a=2"));
    all_different(&["", "a=1", "a=1&a=1", "a=2", "b=1", "a=1&b=1", "a=&b=1"], |raw| query(raw));

    let path = |params: &[(&'static str, &'static str)]| {
        print(params.iter().fold(Params::new(), |all, (name, value)| all.path_param(name, value)))
    };
    assert_eq!(path(&[("a", "1"), ("b", "2")]), path(&[("b", "2"), ("a", "1")]));
    assert_ne!(path(&[("a", "1"), ("a", "2")]), path(&[("a", "2"), ("a", "1")]));
}

#[test]
fn a_query_is_decoded_to_bytes() {
    assert_eq!(query("a=%41%2b"), query("%61=A%2B"));
    assert_eq!(query("a+b=c+d"), query("a%20b=c%20d"));
    all_different(&["a=%FF", "a=%FE", "a=%EF%BF%BD", "a=%C3%BF"], |raw| query(raw));
    all_different(&["a=+", "a=%2B", "a="], |raw| query(raw));
    assert_eq!(query("a=%zz%"), query("a=%25zz%25"), "a percent sign that starts no escape");
    assert_eq!(query("a=%+1"), query("a=%25%201"), "a plus sign is no hex digit");
}

#[test]
fn a_name_without_a_value_and_empty_pieces() {
    assert_eq!(query("a"), query("a="));
    assert_eq!(query("&&a=1&&&b=2&"), query("a=1&b=2"));
    assert_eq!(query("&"), print(Params::new()));
    assert_ne!(query("="), query(""), "an empty name is a name");
    assert_eq!(query("a==b=c"), query("a=%3Db%3Dc"), "only the first sign separates");
}

/// Proves: D4
#[test]
fn no_parameter_can_stand_for_another() {
    all_different(&["a=bc", "ab=c", "abc=", "=abc", "a=b&c=", "a=&b=c"], |raw| query(raw));
    let (form, form_body) = (Some(&b"application/x-www-form-urlencoded"[..]), Bytes::from("a=1"));
    let (json, json_body) = (Some(&b"application/json"[..]), Bytes::from(r#"{"a":"1"}"#));
    let elsewhere = [
        Params::new(),
        Params::new().path(""),
        Params::new().path("a=1"),
        Params::new().path_param("a", "1"),
        Params::new().query("a=1"),
        Params::new().json("a", "1"),
        Params::new().json("a", r#""1""#),
        Params::new().body(form, None, &form_body),
        Params::new().body(json, None, &json_body),
        Params::new().body(None, None, &form_body),
        Params::new().body(None, None, &json_body),
    ];
    all_different(&elsewhere, |params| print(params.clone()));
}

#[test]
fn a_path_counts_as_it_is_written() {
    all_different(&["/a", "/a/", "/A", "/%61", "//a"], |path| print(Params::new().path(path)));
}

#[test]
fn limits_are_kept_and_named() {
    let body = Bytes::from_static(b"[[0]]");
    let of = |limits| {
        Params::new().limits(limits).body(Some(b"application/json"), None, &body).fingerprint().map(|_| ())
    };
    assert_eq!(of(Limits::new().body_bytes(5).depth(2)), Ok(()));
    let large = of(Limits::new().body_bytes(4)).unwrap_err();
    assert_eq!(large, FingerprintError::TooLarge { bytes: 5, limit: 4 });
    assert_eq!(large.to_string(), "the body has 5 bytes; the limit `body_bytes` accepts at most 4");
    let deep = of(Limits::new().depth(1)).unwrap_err();
    assert_eq!(deep, FingerprintError::TooDeep { limit: 1 });
    assert!(deep.to_string().contains("the limit `depth` accepts at most 1 "), "{deep}");

    let argument = |json: &str| Params::new().limits(Limits::new().depth(1)).json("a", json).fingerprint();
    assert_eq!(argument("[{}]"), Err(FingerprintError::TooDeep { limit: 1 }));
    assert!(argument("[0]").is_ok());
}

#[test]
fn limits_are_read_from_configuration() {
    let read = |text: &str| serde_json::from_str::<Limits>(text);
    assert_eq!(read("{}").unwrap(), Limits::new());
    assert_eq!(Limits::new(), Limits::new().body_bytes(2 * 1024 * 1024).depth(64));
    assert_eq!(read(r#"{"depth":3}"#).unwrap(), Limits::new().depth(3));
    assert!(read(r#"{"dept":3}"#).unwrap_err().to_string().contains("dept"));
    let written = serde_json::to_string(&Limits::new().depth(3)).unwrap();
    assert_eq!(read(&written).unwrap(), Limits::new().depth(3));
}

#[test]
fn a_fingerprint_is_written_in_hex() {
    let print = query("a=1");
    let hex = print.to_hex();
    assert!(hex.len() == 64 && hex.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')), "{hex}");
    assert_eq!((print.short(), print.to_string()), (hex[..32].to_owned(), hex.clone()));
    assert_eq!(format!("{print:?}"), format!("Fingerprint({hex})"));
    assert_eq!(u8::from_str_radix(&hex[..2], 16).unwrap(), print.as_bytes()[0]);
}

/// Two versions of a service must know each other's submissions again while one replaces the other.
#[test]
fn a_fingerprint_stays_what_it_is() {
    let body = Bytes::from(format!(r#"{{"b":[1,null,true,{{}}],"a":"{}"}}"#, "é".repeat(1000)));
    let params = Params::new().path("/p").path_param("id", "7").query("x=1&x=2").json("n", "-0.5");
    assert_eq!(
        print(params.body(Some(b"application/json"), None, &body)).to_hex(),
        "fdc853e8c35166efdc33329010d99c85cdaeecb77175beee621926114bc69624"
    );
}

#[test]
fn debug_shows_no_values() {
    let body = Bytes::from_static(b"secret");
    let params = Params::new().path("/secret").path_param("id", "secret").query("a=secret");
    let shown = format!("{:?}", params.json("b", "\"secret\"").body(None, None, &body));
    assert!(!shown.contains("secret") && shown.contains("body_bytes: 6"), "{shown}");
}
