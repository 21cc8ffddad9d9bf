//! What is excluded, and looking up a parameter.

use bytes::Bytes;
use clinch::submit::{Fingerprint, Limits, Params};

use crate::rules::{all_different, print};

const JSON: Option<&[u8]> = Some(b"application/json");
const FORM: Option<&[u8]> = Some(b"application/x-www-form-urlencoded");
const MULTIPART: Option<&[u8]> = Some(b"multipart/form-data; boundary=b");

fn names(exclude: &[&str]) -> Vec<String> {
    exclude.iter().map(|name| (*name).to_owned()).collect()
}

fn json(exclude: &[&str], text: &str) -> Fingerprint {
    let (exclude, body) = (names(exclude), Bytes::copy_from_slice(text.as_bytes()));
    print(Params::new().exclude(&exclude).body(JSON, None, &body))
}

fn part(name: &str, content: &str) -> String {
    format!("--b\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{content}\r\n")
}

/// Proves: D4
#[test]
fn an_excluded_name_counts_as_if_it_had_not_been_sent() {
    let exclude = names(&["at", "a.b"]);
    let without = |params: Params<'_>| params.clone().exclude(&exclude).fingerprint().unwrap();
    let new = Params::new;
    assert_eq!(without(new().query("at=1&x=1&at=2&a.b=3&a%2Eb=4")), print(new().query("x=1")));
    assert_eq!(without(new().path_param("at", "1").path_param("x", "1")), print(new().path_param("x", "1")));
    assert_eq!(without(new().body(FORM, None, &Bytes::from("at=1&a.b=2"))), print(new()));
    let (with, rest) = (part("at", "1") + &part("x", "2") + "--b--", part("x", "2") + "--b--");
    assert_eq!(
        without(new().body(MULTIPART, None, &Bytes::from(with))),
        print(new().body(MULTIPART, None, &Bytes::from(rest)))
    );
    all_different(&["at.x=1", "At=1", "a=1", "b=1", ""], |raw| without(new().query(raw)));
    assert_ne!(without(new().path("/at")), without(new().path("/")));
}

/// Proves: D4
#[test]
fn a_dotted_name_is_a_path_in_json() {
    let x = |exclude: &[&str], text: &str| assert_eq!(json(exclude, text), json(&[], r#"{"x":1}"#), "{text}");
    x(&["at"], r#"{"at":{"x":[1]},"x":1}"#);
    x(&["at"], r#"{"\u0061t":1,"x":1,"at":2}"#);
    x(&["a.b"], r#"{"x":1,"a.b":2}"#);
    x(&[""], r#"{"x":1,"":2}"#);
    let items = r#"{"items":[{"at":1,"x":2},[{"at":3}],4],"at":5}"#;
    assert_eq!(json(&["items.at"], items), json(&[], r#"{"items":[{"x":2},[{}],4],"at":5}"#));
    assert_eq!(json(&["at"], items), json(&[], r#"{"items":[{"at":1,"x":2},[{"at":3}],4]}"#));
    assert_eq!(json(&["items", "at"], items), json(&[], "{}"));
    assert_eq!(json(&["at"], r#"[{"at":1},{"x":{"at":2}}]"#), json(&[], r#"[{},{"x":{"at":2}}]"#));
    let deep = r#"{"a":{"b":{"c":1,"d":2}},"a.b":{"c":3},"b":{"c":4}}"#;
    assert_eq!(json(&["a.b.c"], deep), json(&[], r#"{"a":{"b":{"d":2}},"a.b":{},"b":{"c":4}}"#));
    let blank = r#"{"":{"a":1},"a":{"":2}}"#;
    assert_eq!(json(&[".a"], blank), json(&[], r#"{"":{},"a":{"":2}}"#));
    assert_eq!(json(&["a."], blank), json(&[], r#"{"":{"a":1},"a":{}}"#));
    for other in ["items.", ".at", "items.at.x", "items.0.at", "items[].at", "x"] {
        assert_eq!(json(&[other], items), json(&[], items), "{other}");
    }
}

/// Proves: D4
#[test]
fn a_function_excludes_a_parameter_or_a_field_of_its_request() {
    let with = |exclude: &[&str], arguments: &[(&str, &str)]| {
        let exclude = names(exclude);
        let all =
            arguments.iter().fold(Params::new().exclude(&exclude), |all, (name, text)| all.json(name, text));
        all.fingerprint().unwrap()
    };
    let order = r#"{"at":1,"sku":2,"by":{"at":3}}"#;
    let plain = |text: &str| with(&[], &[("order", text)]);
    assert_eq!(with(&["at"], &[("order", order)]), plain(r#"{"sku":2,"by":{"at":3}}"#));
    assert_eq!(with(&["at"], &[("order", order), ("at", "9")]), plain(r#"{"sku":2,"by":{"at":3}}"#));
    assert_eq!(with(&["order.at"], &[("order", order)]), plain(r#"{"sku":2,"by":{"at":3}}"#));
    assert_eq!(with(&["order.by.at"], &[("order", order)]), plain(r#"{"at":1,"sku":2,"by":{}}"#));
    assert_eq!(with(&["by.at"], &[("order", order)]), plain(order), "a path begins with the parameter");
    assert_eq!(with(&["a.b"], &[("order", r#"{"a.b":1}"#)]), plain(r#"{"a.b":1}"#));
    assert_eq!(with(&["order"], &[("order", order)]), with(&[], &[]));
    assert_eq!(with(&["at"], &[("order", r#"[{"at":1}]"#)]), plain("[{}]"), "a list of requests");
    assert_eq!(with(&["at"], &[("at", "}")]), with(&[], &[]));
    assert_eq!(with(&[], &[("a", "1"), ("b", "2")]), with(&[], &[("b", " 2"), ("a", "1 ")]));
    let texts = ["1", "1.0", r#""1""#, "null", "[]", "{}", "}", "1}", ""];
    all_different(&texts, |text| with(&[], &[("a", text)]));
}

#[test]
fn a_parameter_is_found_by_its_name() {
    let find = |params: Params<'_>, name: &str| params.param(name);
    let some = |text: &str| Some(text.to_owned());
    let new = Params::new;
    let json = Bytes::from(r#" {"id":"\u0041","n":-1.50,"id":2,"o":{"n":1},"z":null,"b":true,"h":"\ud800"}"#);
    let form = Bytes::from("%69d=a+b&id=2&bad=%FF&e");
    let parts = Bytes::from(
        part("f\"; filename=\"x", "file") + &part("id", "7") + &part("id", "8") + &part("f", "9") + "--b--",
    );

    assert_eq!(find(new().body(JSON, None, &json), "id"), some("A"));
    assert_eq!(find(new().body(JSON, None, &json), "n"), some("-1.50"));
    for name in ["o", "z", "b", "h", "o.n", "x", ""] {
        assert_eq!(find(new().body(JSON, None, &json), name), None, "{name}");
    }
    assert_eq!(find(new().body(FORM, None, &form), "id"), some("a b"));
    assert_eq!(find(new().body(FORM, None, &form), "e"), some(""));
    assert_eq!(find(new().body(FORM, None, &form), "bad"), None, "never changed to make it fit");
    assert_eq!(find(new().body(MULTIPART, None, &parts), "id"), some("7"));
    assert_eq!(find(new().body(MULTIPART, None, &parts), "f"), some("9"), "a file is no parameter");
    assert_eq!(find(new().json("o", r#"{"id":5}"#).json("id", " 6 "), "id"), some("6"));
    assert_eq!(find(new().json("n", "7").json("o", r#"{"id":5}"#), "id"), some("5"));

    let all = new().body(JSON, None, &json).json("id", "3").query("id=4&n=5").path_param("id", "6");
    assert_eq!(find(all.clone(), "id"), some("6"));
    assert_eq!(find(all.clone(), "n"), some("5"));
    let exclude = names(&["id"]);
    assert_eq!(find(all.exclude(&exclude), "id"), some("6"), "excluded or not");

    assert_eq!(find(new().body(None, None, &json), "id"), None);
    assert_eq!(find(new().body(JSON, Some(b"gzip"), &json), "id"), None);
    assert_eq!(find(new().limits(Limits::new().body_bytes(3)).body(JSON, None, &json), "id"), None);
    assert_eq!(find(new().body(JSON, None, &Bytes::from(r#"{"id":1}}"#)), "id"), None);
    assert_eq!(find(new().body(JSON, None, &Bytes::from(r#"[{"id":1}]"#)), "id"), None);
}
