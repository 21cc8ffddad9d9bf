//! A `clinch serve` under test.

use std::path::Path;
use std::time::{Duration, Instant};

use clinch_testkit::http::Response;
use clinch_testkit::serve::{ClinchServe, Ended};
use serde_json::Value;

/// A token that is long enough.
pub(crate) const TOKEN: &str = "a-token-for-these-tests";

/// `clinch serve` on a free port.
pub(crate) fn serve(args: &[&str]) -> ClinchServe {
    serve_with(&[], args)
}

/// The same with variables.
pub(crate) fn serve_with(env: &[(&str, &str)], args: &[&str]) -> ClinchServe {
    // A busy machine must not turn into time-outs.
    let env = [&[("CLINCH_CALL_TIMEOUT", "5s")], env].concat();
    ClinchServe::start(Path::new(env!("CARGO_BIN_EXE_clinch")), args, &env)
}

/// `clinch serve` that does not come up.
pub(crate) fn refused(env: &[(&str, &str)], args: &[&str]) -> Ended {
    match ClinchServe::try_start(Path::new(env!("CARGO_BIN_EXE_clinch")), args, env) {
        Ok(serve) => panic!("it came up: {}", serve.greeting),
        Err(ended) => ended,
    }
}

/// The next event of this name on a stream of server-sent events.
pub(crate) fn event(stream: &mut Response, name: &str) -> Value {
    let wanted = format!("event: {name}\n");
    let mut text = String::new();
    loop {
        text += &stream.piece().expect("the stream goes on").expect("the stream has not ended");
        while let Some((block, rest)) = text.clone().split_once("\n\n") {
            rest.clone_into(&mut text);
            if let Some(data) = block.strip_prefix(&wanted).and_then(|data| data.strip_prefix("data: ")) {
                return serde_json::from_str(data).unwrap();
            }
        }
    }
}

/// Watches until a sample is as wanted.
pub(crate) fn watch_until(serve: &ClinchServe, query: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    let mut stream = serve.get(&format!("/console/events?{query}")).bearer(TOKEN).send();
    assert_eq!(stream.status, 200);
    let deadline = Instant::now() + Duration::from_secs(120);
    loop {
        let state = event(&mut stream, "state");
        if wanted(&state) {
            return state;
        }
        assert!(Instant::now() < deadline, "not seen: {state}");
    }
}

/// The row of a key.
pub(crate) fn row<'a>(state: &'a Value, key: &str) -> Option<&'a Value> {
    state["rows"].as_array()?.iter().find(|row| row["key"] == key)
}

/// Waits until a condition holds.
pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !holds() {
        assert!(Instant::now() < deadline, "still not: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
