//! `clinch bench`.

use clinch_testkit::server::RedisServer;
use rustix::process::Signal;
use serde_json::Value;

use crate::common::{at, eventually, plain};

#[test]
fn figures_come_and_keys_go() {
    let server = RedisServer::start();
    let bench = at(&server.url(), &["bench", "--json", "--concurrency", "4"]);
    assert_eq!((bench.code, bench.stderr.as_str()), (0, ""));
    let bench: Value = serde_json::from_str(&bench.stdout).unwrap();
    let figures = bench["figures"].as_array().unwrap();
    assert_eq!(figures.len(), 5);
    for figure in figures {
        let of = |name: &str| figure[name].as_u64().unwrap();
        assert!(
            of("count") > 0 && of("p50_us") <= of("p99_us") && of("p99_us") <= of("longest_us"),
            "{figure}"
        );
    }
    assert!(bench["permits_held"].as_u64() <= bench["permits"].as_u64(), "{bench}");
    assert_eq!(bench["left"], 0);
    assert_eq!(server.keys("*"), [""; 0]);
}

#[test]
fn a_bench_that_is_ended_gives_its_keys_back() {
    let server = RedisServer::start();
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let bench = plain(&["bench", "--seconds", "5", "--store", &server.url()]);
        eventually("it has begun", || server.command_calls().contains_key("evalsha"));
        bench.signal(signal);
        assert_eq!(bench.end().code, code);
        assert_eq!(server.keys("*"), [""; 0]);
        server.command(&["CONFIG", "RESETSTAT"]);
    }
}

#[test]
fn a_bench_without_an_engine_is_69() {
    let done = at("redis://127.0.0.1:1", &["bench"]);
    assert_eq!(
        (done.code, done.stdout.as_str(), done.stderr.lines().count()),
        (69, "", 1),
        "{}",
        done.stderr
    );
    for (args, said) in [
        (&["--seconds", "0"], "a whole number from 1 to 60"),
        (&["--seconds", "61"], "a whole number from 1 to 60"),
        (&["--concurrency", "0"], "a whole number from 1 to 1000"),
    ] {
        let done = at("memory:", &[&["bench"], &args[..]].concat());
        assert!(done.code == 64 && done.stderr.contains(said), "{}", done.stderr);
    }
}
