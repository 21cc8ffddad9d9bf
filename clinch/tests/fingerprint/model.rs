//! Submissions as plain data, and what it means that two are the same.
//!
//! This is the definition that fingerprints are checked against. It shares nothing with them: it does not sort, encode
//! or hash, it looks at the values under every name.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

pub(crate) type Bin = Vec<u8>;

/// A JSON value as its writer means it; a number is its spelling.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Json {
    Null,
    Bool(bool),
    Number(String),
    Text(String),
    Array(Vec<Json>),
    Object(Vec<(String, Json)>),
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Part {
    pub(crate) file: Option<String>,
    pub(crate) content: Bin,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Body {
    None,
    Bytes(Bin),
    Form(Vec<(Bin, Bin)>),
    Json(Json),
    Multipart(Vec<(String, Part)>),
    /// The name of the coding in lower case, and what came.
    Encoded(String, Bin),
}

#[derive(Debug, Clone)]
pub(crate) struct Submission {
    pub(crate) path: Option<String>,
    pub(crate) path_params: Vec<(String, String)>,
    pub(crate) query: Vec<(Bin, Bin)>,
    pub(crate) arguments: Vec<(String, Json)>,
    pub(crate) body: Body,
}

/// Whether two submissions are the same if these names do not count.
pub(crate) fn same(one: &Submission, two: &Submission, exclude: &[String]) -> bool {
    let excluded = |name: &[u8]| exclude.iter().any(|text| text.as_bytes() == name);
    let counts = |name: &String| !excluded(name.as_bytes());
    let text = |a: &String, b: &String| a == b;
    let bin = |fields: &[(Bin, Bin)], others: &[(Bin, Bin)]| {
        same_fields(fields, others, |name| !excluded(name), |_, a, b| a == b)
    };
    one.path == two.path
        && same_fields(&one.path_params, &two.path_params, counts, |_, a, b| text(a, b))
        && bin(&one.query, &two.query)
        && same_fields(&one.arguments, &two.arguments, counts, |name, a, b| {
            same_json(a, b, &[], &|path| {
                let whole = format!("{name}.{}", path.join("."));
                exclude.contains(&whole)
                    || matches!(path, [field] if !field.contains('.') && excluded(field.as_bytes()))
            })
        })
        && match (nothing(&one.body, exclude), nothing(&two.body, exclude)) {
            (true, true) => true,
            (false, false) => match (&one.body, &two.body) {
                (Body::Bytes(a), Body::Bytes(b)) => a == b,
                (Body::Form(a), Body::Form(b)) => bin(a, b),
                (Body::Json(a), Body::Json(b)) => {
                    same_json(a, b, &[], &|path| exclude.contains(&path.join(".")))
                }
                (Body::Multipart(a), Body::Multipart(b)) => same_fields(a, b, counts, |_, a, b| a == b),
                (Body::Encoded(a, x), Body::Encoded(b, y)) => a == b && x == y,
                _ => false,
            },
            _ => false,
        }
}

/// Whether there is as good as no body.
fn nothing(body: &Body, exclude: &[String]) -> bool {
    match body {
        Body::None => true,
        Body::Bytes(bytes) => bytes.is_empty(),
        Body::Form(fields) => {
            fields.iter().all(|(name, _)| exclude.iter().any(|text| text.as_bytes() == name.as_slice()))
        }
        _ => false,
    }
}

/// Whether every name that counts has the same values in the same order on both sides.
fn same_fields<N: PartialEq, V>(
    one: &[(N, V)],
    two: &[(N, V)],
    counts: impl Fn(&N) -> bool,
    same: impl Fn(&N, &V, &V) -> bool,
) -> bool {
    one.iter().chain(two).map(|(name, _)| name).filter(|name| counts(name)).all(|name| {
        let values = |list: &'_ [(N, V)]| -> Vec<usize> {
            (0..list.len()).filter(|at| list[*at].0 == *name).collect()
        };
        let (a, b) = (values(one), values(two));
        a.len() == b.len() && a.iter().zip(&b).all(|(a, b)| same(name, &one[*a].1, &two[*b].1))
    })
}

fn same_json(one: &Json, two: &Json, path: &[&str], excluded: &dyn Fn(&[&str]) -> bool) -> bool {
    let below = |key: &String| -> Vec<String> {
        path.iter().map(|key| (*key).to_owned()).chain([key.clone()]).collect()
    };
    let borrowed = |path: &[String]| excluded(&path.iter().map(String::as_str).collect::<Vec<_>>());
    match (one, two) {
        (Json::Array(a), Json::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same_json(a, b, path, excluded))
        }
        (Json::Object(a), Json::Object(b)) => same_fields(
            a,
            b,
            |key| !borrowed(&below(key)),
            |key, a, b| {
                let below = below(key);
                same_json(a, b, &below.iter().map(String::as_str).collect::<Vec<_>>(), excluded)
            },
        ),
        (one, two) => one == two,
    }
}

/// Few different names, so that they meet, and some that imitate the syntax around them. The common ones come first.
pub(crate) const NAMES: [&str; 15] = [
    "a",
    "b",
    "ab",
    "a.b",
    "items",
    "at",
    "timestamp1",
    "timestamp2",
    "",
    "é",
    "a=",
    "; filename=x",
    "&b",
    "\"",
    "C:\\x",
];
const COMMON: usize = 8;

/// What is excluded, if anything is.
const EXCLUDED: [&str; 13] =
    ["a", "a", "b", "b", "at", "at", "a.b", "items.at", "items.a.b", "a.a", "", ".a", "order.at"];

pub(crate) const NUMBERS: [&str; 16] = [
    "0",
    "-0",
    "0.0",
    "1",
    "1.0",
    "1.00",
    "1e0",
    "1E0",
    "1e+0",
    "10e-1",
    "-1",
    "12",
    "1e400",
    "18446744073709551616",
    "18446744073709551617",
    "0.1",
];

pub(crate) const CODINGS: [&str; 3] = ["gzip", "br", "x-é"];

fn name() -> impl Strategy<Value = String> {
    prop_oneof![
        8 => select(&NAMES[..COMMON]).prop_map(str::to_owned),
        1 => select(&NAMES[..]).prop_map(str::to_owned),
    ]
}

/// Mostly short; now and then long enough that a fingerprint hashes it apart.
fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        6 => "[a-b1]{0,3}",
        3 => "[a\"\\\\/\u{1}\n\té😀\u{301}&=%+.{}\\[\\]:,]{0,5}",
        1 => (900_usize..1300, select(&["x", "y", "é"][..])).prop_map(|(n, c)| c.repeat(n)),
    ]
}

fn bin() -> impl Strategy<Value = Bin> {
    prop_oneof![
        6 => "[a-b1]{0,3}".prop_map(String::into_bytes),
        3 => vec(select(&b"a&=+% ;\xff\xfe\xc3\r\n-\x00"[..]), 0..5),
        1 => (900_usize..1300).prop_map(|n| vec![b'x'; n]),
    ]
}

fn json() -> impl Strategy<Value = Json> {
    let leaf = prop_oneof![
        4 => Just(Json::Null),
        4 => any::<bool>().prop_map(Json::Bool),
        4 => select(&NUMBERS[..]).prop_map(|number| Json::Number(number.to_owned())),
        1 => (1000_usize..1100).prop_map(|digits| Json::Number("1".repeat(digits))),
        6 => text().prop_map(Json::Text),
    ];
    leaf.prop_recursive(4, 24, 5, |inner| {
        prop_oneof![
            2 => vec(inner.clone(), 0..4).prop_map(Json::Array),
            3 => vec((name(), inner), 0..6).prop_map(Json::Object),
        ]
    })
}

fn body() -> impl Strategy<Value = Body> {
    let part = (proptest::option::of(name()), bin()).prop_map(|(file, content)| Part { file, content });
    prop_oneof![
        1 => Just(Body::None),
        1 => bin().prop_map(Body::Bytes),
        3 => vec((bin_name(), bin()), 0..6).prop_map(Body::Form),
        6 => json().prop_map(Body::Json),
        4 => vec((name(), part), 0..5).prop_map(Body::Multipart),
        1 => (select(&CODINGS[..]), bin()).prop_map(|(coding, bytes)| Body::Encoded(coding.to_owned(), bytes)),
    ]
}

fn bin_name() -> impl Strategy<Value = Bin> {
    prop_oneof![6 => name().prop_map(String::into_bytes), 1 => bin()]
}

/// So that a change meets what is there.
fn often_empty<T: std::fmt::Debug + Clone>(
    list: impl Strategy<Value = Vec<T>>,
) -> impl Strategy<Value = Vec<T>> {
    prop_oneof![1 => Just(Vec::new()), 1 => list]
}

pub(crate) fn submission() -> impl Strategy<Value = Submission> {
    let argument = prop_oneof![2 => Just("order".to_owned()), 1 => name()];
    (
        proptest::option::of(text()),
        often_empty(vec((name(), text()), 1..3)),
        often_empty(vec((bin_name(), bin()), 1..5)),
        often_empty(vec((argument, json()), 1..3)),
        body(),
    )
        .prop_map(|(path, path_params, query, arguments, body)| Submission {
            path,
            path_params,
            query,
            arguments,
            body,
        })
}

pub(crate) fn exclude() -> impl Strategy<Value = Vec<String>> {
    prop_oneof![1 => Just(Vec::new()), 2 => vec(select(&EXCLUDED[..]).prop_map(str::to_owned), 1..4)]
}
