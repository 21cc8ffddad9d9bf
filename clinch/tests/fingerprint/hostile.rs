//! What nobody means well by: nothing here may panic, overflow the stack or take long.

use std::time::{Duration, Instant};

use bytes::Bytes;
use clinch::submit::{FingerprintError, Limits, Params};
use proptest::prelude::*;

const JSON: &str = "application/json";
const FORM: &str = "application/x-www-form-urlencoded";
const MULTIPART: &str = "multipart/form-data; boundary=b";
/// The default limit of a body.
const LIMIT: usize = 2 * 1024 * 1024;
/// As much as is sent: less in a debug build, which is twenty times slower.
const MOST: usize = if cfg!(debug_assertions) { LIMIT / 4 } else { LIMIT };

/// `unit` as often as a body of the largest size has room for it.
fn full_of(open: &str, unit: &str, close: &str) -> String {
    let units = unit.repeat((MOST - open.len() - close.len()) / unit.len());
    format!("{open}{}{close}", units.strip_suffix(',').unwrap_or(&units))
}

fn nested(levels: usize, open: &str, inside: &str, close: &str) -> String {
    format!("{}{inside}{}", open.repeat(levels), close.repeat(levels))
}

/// An object of the largest size whose keys come in a wild order.
fn wild_keys(beginning: &str) -> String {
    let room = MOST / (beginning.len() + 12) - 1;
    let fields: Vec<String> = (0..u64::try_from(room).unwrap())
        .map(|n| format!("\"{beginning}{:06x}\":0", n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40))
        .collect();
    format!("{{{}}}", fields.join(","))
}

/// The worst that fits: a name, the content type and the body.
fn worst() -> Vec<(&'static str, &'static str, String)> {
    vec![
        ("one long string", JSON, full_of("\"", "x", "\"")),
        ("one string of escapes", JSON, full_of("\"", "\\n", "\"")),
        ("empty strings", JSON, full_of("[", "\"\",", "]")),
        ("escaped strings", JSON, full_of("[", "\"\\n\",", "]")),
        ("numbers", JSON, full_of("[", "0,", "]")),
        ("empty arrays", JSON, full_of("[", "[],", "]")),
        ("empty objects", JSON, full_of("[", "{},", "]")),
        ("small objects out of order", JSON, full_of("[", "{\"b\":0,\"a\":0},", "]")),
        ("one key", JSON, full_of("{", "\"\":0,", "}")),
        ("escaped keys", JSON, full_of("{", "\"\\n\":0,", "}")),
        ("wild keys", JSON, wild_keys("")),
        ("wild keys that begin alike", JSON, wild_keys("aaaaaaaaaa")),
        ("wild long keys", JSON, wild_keys(&"a".repeat(1000))),
        (
            "deep and heavy",
            JSON,
            nested(64, "{\"b\":0,\"a\":", &format!("\"{}\"", "x".repeat(MOST - 2000)), "}"),
        ),
        ("many deep", JSON, full_of("[", &(nested(63, "{\"b\":0,\"a\":", "0", "}") + ","), "]")),
        ("open brackets", JSON, "[".repeat(MOST)),
        ("fields without a value", FORM, full_of("", "a&", "")),
        ("blanks", FORM, full_of("", "+&", "")),
        ("escaped fields", FORM, full_of("", "%61=%62&", "")),
        ("separators", FORM, full_of("", "&", "")),
        ("parts", MULTIPART, full_of("", "--b\r\ncontent-disposition:form-data;name=a\r\n\r\n\r\n", "--b--")),
        ("parts without headers", MULTIPART, full_of("", "--b\r\n\r\n\r\n\r\n", "--b--")),
        ("boundaries", MULTIPART, full_of("", "\r\n--b", "")),
        (
            "almost boundaries",
            MULTIPART,
            full_of("--b\r\ncontent-disposition:form-data;name=a\r\n\r\n", "\r\n--", "\r\n--b--"),
        ),
        (
            "a long header",
            MULTIPART,
            full_of("--b\r\ncontent-disposition:form-data", ";x=\"\\\"\"", "\r\n\r\n\r\n--b--"),
        ),
    ]
}

/// On a busy machine; `worst_case_times` tells what it really takes. What was quadratic would take minutes.
const BOUND: Duration = Duration::from_secs(10);

/// Proves: D4
#[test]
fn the_worst_bodies_take_bounded_time() {
    let exclude: Vec<String> = (0..10).map(|number| format!("a.b{number}")).collect();
    for (what, content_type, body) in worst() {
        assert!(body.len() <= MOST && body.len() > MOST / 2, "{what}: {} bytes", body.len());
        let body = Bytes::from(body);
        let before = Instant::now();
        let params = Params::new().exclude(&exclude).body(Some(content_type.as_bytes()), None, &body);
        assert_eq!(params.param("none"), None, "{what}");
        assert!(params.fingerprint().is_ok(), "{what}");
        assert!(before.elapsed() < BOUND, "{what} took {:?}", before.elapsed());
    }
}

/// `cargo test --release -p clinch --test fingerprint -- --ignored --nocapture worst_case_times`
#[test]
#[ignore = "a measurement, not a check"]
fn worst_case_times() {
    for (what, content_type, body) in worst() {
        let body = Bytes::from(body);
        let once = || {
            let before = Instant::now();
            let params = Params::new().body(Some(content_type.as_bytes()), None, &body);
            assert!(params.fingerprint().is_ok());
            before.elapsed()
        };
        let best = (0..5).map(|_| once()).min().unwrap();
        println!("{what:32} {:7} bytes {:6.1} ms", body.len(), best.as_secs_f64() * 1e3);
    }
}

/// Proves: D4
#[test]
fn depth_is_an_error_and_never_a_stack_overflow() {
    let read = |text: String, limits: Limits| {
        let body = Bytes::from(text);
        Params::new().limits(limits).body(Some(JSON.as_bytes()), None, &body).fingerprint()
    };
    let limits = Limits::new();
    for (open, inside, close) in [("[", "", "]"), ("{\"a\":", "0", "}"), ("[{\"a\":", "0", "}]")] {
        let levels = |number: usize| number / open.matches(['[', '{']).count();
        assert!(read(nested(levels(64), open, inside, close), limits).is_ok());
        assert!(read(nested(levels(64) + 1, open, inside, close), limits).is_err());
        for number in [1000, LIMIT / (open.len() + close.len()) - 1] {
            let deep = nested(levels(number), open, inside, close);
            assert_eq!(read(deep.clone(), limits), Err(FingerprintError::TooDeep { limit: 64 }));
            assert!(read(deep.clone(), limits.depth(usize::MAX)).is_ok(), "memory, but no stack");
            // Never closed: no JSON, so its bytes.
            assert!(read(deep[..deep.len() / 2].to_owned(), limits).is_ok());
            let argument = Params::new().json("a", &deep).fingerprint();
            assert_eq!(argument, Err(FingerprintError::TooDeep { limit: 64 }));
        }
    }
    let nothing = Limits::new().depth(0);
    assert!(read("1".to_owned(), nothing).is_ok() && read("[]".to_owned(), nothing).is_err());
}

#[test]
fn many_parameters_are_just_many() {
    let fields: Vec<String> = (0..10_000).map(|number| format!("a{}={number}", number % 100)).collect();
    let names: Vec<String> = (0..10_000).map(|number| format!("a{number}")).collect();
    let query = fields.join("&");
    let plain = Params::new().query(&query).fingerprint().unwrap();
    let empty = Params::new().fingerprint().unwrap();
    assert_ne!(plain, empty);
    assert_eq!(Params::new().query(&query).exclude(&names).fingerprint().unwrap(), empty);
    let path = names.iter().fold(Params::new(), |all, name| all.path_param(name, name));
    let back = names.iter().rev().fold(Params::new(), |all, name| all.path_param(name, name));
    assert_eq!(path.fingerprint(), back.fingerprint());
}

proptest! {
    /// Whatever is sent under whatever type, there is a fingerprint, it is the same again, and nothing panics.
    #[test]
    fn any_bytes_have_a_fingerprint(
        content_type in prop_oneof![
            Just(JSON.to_owned()), Just(FORM.to_owned()), Just(MULTIPART.to_owned()), "[a-z/;=+ \"]{0,20}",
        ],
        coding in proptest::option::of("[ a-z,]{0,8}"),
        body in prop_oneof![
            proptest::collection::vec(any::<u8>(), 0..64),
            "[\\[\\]{}\",:\\\\u0-9a-f. \n-]{0,40}".prop_map(String::into_bytes),
            "(--b|\r\n|\r\n\r\n|content-disposition:form-data;|name=a|name=\"|\"|;|a){0,20}(--b--)?"
                .prop_map(String::into_bytes),
        ],
        query in "[a&=%+0-9F]{0,20}",
        exclude in proptest::collection::vec("[a.]{0,3}", 0..3),
    ) {
        let body = Bytes::from(body);
        let coding = coding.as_deref().map(str::as_bytes);
        let params = Params::new().query(&query).exclude(&exclude)
            .body(Some(content_type.as_bytes()), coding, &body).json("a", &query);
        let _ = params.param("a");
        prop_assert_eq!(params.clone().fingerprint().unwrap(), params.fingerprint().unwrap());
    }
}
