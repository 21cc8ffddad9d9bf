//! What a strict reading takes, a lenient one takes too, for the same key.
#![no_main]

use http::{HeaderMap, HeaderValue};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|line: &[u8]| {
    let Ok(value) = HeaderValue::from_bytes(line) else { return };
    let headers = HeaderMap::from_iter([(http::HeaderName::from_static("idempotency-key"), value)]);
    let strict = clinch::fuzzing::idempotency_key(&headers, false);
    let lenient = clinch::fuzzing::idempotency_key(&headers, true);
    if let Ok(key) = strict {
        assert_eq!(lenient, Ok(key.clone()));
        assert!(key.is_some_and(|key| (1..=255).contains(&key.len()) && key.is_ascii()));
    }
});
