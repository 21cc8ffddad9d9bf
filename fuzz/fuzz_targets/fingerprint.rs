//! Fingerprints of whatever is sent: the same twice, another with one more parameter, never a panic.
#![no_main]

use arbitrary::Arbitrary;
use clinch::submit::{Limits, Params};
use libfuzzer_sys::fuzz_target;

#[derive(Debug, Arbitrary)]
struct Input<'a> {
    kind: u8,
    query: &'a str,
    exclude: Vec<&'a str>,
    body: &'a [u8],
}

fuzz_target!(|input: Input<'_>| {
    let kinds: [&[u8]; 6] = [
        b"application/json",
        b"application/problem+json; charset=utf-8",
        b"application/x-www-form-urlencoded",
        b"multipart/form-data; boundary=b",
        b"multipart/form-data",
        b"text/plain",
    ];
    let kind = kinds[usize::from(input.kind) % kinds.len()];
    let body = input.body.to_vec().into();
    let exclude: Vec<String> = input.exclude.iter().map(|name| (*name).to_owned()).collect();
    let params = || Params::new().query(input.query).body(Some(kind), None, &body).exclude(&exclude).limits(Limits::default());
    let (one, same) = (params().fingerprint(), params().fingerprint());
    assert_eq!(one.is_ok(), same.is_ok());
    if let (Ok(one), Ok(same)) = (one, same) {
        assert!(one == same);
        // A name that nobody excludes.
        if let Ok(other) = params().path_param("one more that nobody excludes", "x").fingerprint()
            && !exclude.iter().any(|name| name == "one more that nobody excludes")
        {
            assert!(one != other);
        }
    }
});
