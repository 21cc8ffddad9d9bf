//! `clinch doctor`.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use clinch_testkit::server::RedisServer;
use serde_json::Value;

use crate::common::{at, with_env};

/// A port that nobody listens on, and one that takes connections and says nothing.
#[test]
fn an_engine_that_is_not_there_is_told_soon() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let dead = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    for address in [dead, silent.local_addr().unwrap()] {
        let url = format!("redis://user:secret@{address}");
        let began = Instant::now();
        let done = at(&url, &["doctor"]);
        assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
        assert_eq!(done.code, 69, "{}", done.stdout);
        assert!(done.stdout.contains("error: unreachable: "), "{}", done.stdout);
        assert!(
            done.stdout.contains("to change: ") && done.stdout.contains(&address.to_string()),
            "{}",
            done.stdout
        );
        assert!(!done.stdout.contains("secret"), "{}", done.stdout);
        let json = at(&url, &["doctor", "--json"]);
        assert_eq!(json.code, 69);
        let json: Value = serde_json::from_str(&json.stdout).unwrap();
        assert_eq!(
            (&json["reachable"], &json["findings"][0]["name"]),
            (&false.into(), &"unreachable".into())
        );
    }
}

#[test]
fn what_is_no_engine_is_64() {
    let done = at("ftp://x", &["doctor"]);
    assert_eq!((done.code, done.stdout.as_str()), (64, ""), "{}", done.stderr);
    let done = with_env(&[("CLINCH_PREFX", Some("x"))], &["doctor", "--store", "memory:"]).end();
    assert_eq!(done.code, 0, "{}", done.stdout);
    assert!(done.stdout.contains("did you mean `CLINCH_PREFIX`?"), "{}", done.stdout);
}

#[test]
fn facts_are_told() {
    let server = RedisServer::start();
    let told = at(&server.url(), &["doctor"]);
    for fact in ["store", "engine", "round_trip_ms"] {
        assert!(told.stdout.lines().any(|line| line.starts_with(fact)), "no {fact} in {}", told.stdout);
    }
}
