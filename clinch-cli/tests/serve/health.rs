//! Health: alive, and ready.

use std::time::{Duration, Instant};

use clinch_testkit::server::RedisServer;

use crate::common::{eventually, refused, serve};

/// Proves: O4
#[test]
fn on_memory_it_is_alive_and_ready() {
    let serve = serve(&[]);
    let alive = serve.get("/healthz").send();
    assert_eq!((alive.status, alive.json()), (200, serde_json::json!({"status": "up"})));
    let ready = serve.get("/readyz").send();
    assert_eq!(ready.status, 200);
    let ready = ready.json();
    assert_eq!(
        (&ready["status"], &ready["engine"], &ready["degraded"]),
        (&"up".into(), &"memory".into(), &().into())
    );
    assert!(ready["latency_ms"].is_number());
    // By whatever name it is asked; but then it tells no more than a word.
    let other = serve.get("/readyz").header("Host", "10.0.0.7:4747").send();
    assert_eq!((other.status, other.json()), (200, serde_json::json!({"status": "up"})));
}

/// Proves: O4
#[test]
fn ready_is_a_round_trip_to_redis_with_a_limit() {
    let server = RedisServer::start();
    let serve = serve(&["--store", &server.url()]);
    let ready = serve.get("/readyz").send();
    assert_eq!(ready.status, 200);
    let ready = ready.json();
    assert_eq!(ready["engine"], "redis");
    assert!(ready["version"].as_str().unwrap().starts_with(|c: char| c.is_ascii_digit()), "{ready}");
    assert!(ready["latency_ms"].as_f64().unwrap() > 0.0, "{ready}");

    server.stop();
    let asked = Instant::now();
    let down = serve.get("/readyz").send();
    assert_eq!(down.status, 503);
    assert!(asked.elapsed() < Duration::from_secs(10), "it has a limit: {:?}", asked.elapsed());
    let down = down.json();
    assert_eq!((&down["status"], &down["latency_ms"]), (&"down".into(), &().into()));
    assert!(down["error"].is_string(), "{down}");
    assert_eq!(serve.get("/healthz").send().status, 200, "the process lives all the same");

    server.cont();
    eventually("it is ready again", || serve.get("/readyz").send().status == 200);
}

#[test]
fn without_an_engine_it_does_not_start() {
    let ended = refused(&[], &["--listen", "127.0.0.1:0", "--store", "redis://127.0.0.1:1"]);
    assert_eq!(ended.code, Some(69), "{ended:?}");
    assert!(ended.stderr.starts_with("clinch: "), "{ended:?}");
}
