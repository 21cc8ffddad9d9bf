//! What is taken from clients, and what is not.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use clinch_testkit::http::{self, Response};

use crate::common::{event, serve, serve_with};

const PATIENCE: Option<Duration> = Some(Duration::from_secs(60));

fn connect(serve: &clinch_testkit::serve::ClinchServe) -> TcpStream {
    let stream = TcpStream::connect(serve.addr).unwrap();
    stream.set_read_timeout(PATIENCE).unwrap();
    stream
}

/// Reads until the server closes.
fn closed(mut stream: TcpStream) -> String {
    let mut text = Vec::new();
    // A reset is an end too.
    let _ = stream.read_to_end(&mut text);
    String::from_utf8_lossy(&text).into_owned()
}

#[test]
fn a_body_that_is_too_large_is_refused() {
    let serve = serve_with(&[("CLINCH_SERVE_MAX_REQUEST_BYTES", "1024")], &[]);
    let large = format!("{{\"item\": \"{}\"}}", "x".repeat(2000));
    for path in ["/demo/orders", "/demo/export", "/console/release", "/nowhere"] {
        assert_eq!(serve.post(path).json(&large).send().status, 413, "{path}");
    }
    // It says less than it sends: in chunks, without a length.
    let chunked = format!("{:x}\r\n{large}\r\n0\r\n\r\n", large.len());
    let request = serve.post("/demo/orders").header("Transfer-Encoding", "chunked").json(&chunked);
    assert_eq!(request.send().status, 413);
    let small = serve.post("/demo/orders?work_ms=0").json("{\"item\": 1}").send();
    assert_eq!(small.status, 201);
}

#[test]
fn a_head_that_is_too_large_is_refused() {
    let serve = serve(&[]);
    let answer = serve.get("/").header("X-Large", &"x".repeat(100_000)).send();
    assert_eq!(answer.status, 431);
}

/// A client that sends its head a byte at a time does not keep its connection.
#[test]
fn a_head_that_does_not_come_is_not_waited_for() {
    let serve = serve(&[]);
    let mut slow = connect(&serve);
    slow.write_all(b"GET / HTTP/1.1\r\nHost: loc").unwrap();
    let began = Instant::now();
    let answer = closed(slow);
    assert!(began.elapsed() > Duration::from_secs(5) && began.elapsed() < Duration::from_secs(30));
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 408"), "{answer}");
}

#[test]
fn a_body_that_does_not_come_is_not_waited_for() {
    let serve = serve_with(&[("CLINCH_SERVE_REQUEST_TIMEOUT", "300ms")], &[]);
    let mut slow = connect(&serve);
    let head = format!(
        "POST /demo/orders HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: 10\r\n\r\n{{",
        serve.addr
    );
    slow.write_all(head.as_bytes()).unwrap();
    assert_eq!(Response::read(slow).unwrap().status, 408);
}

/// Who comes on top of the connections that may be open waits until one of them has ended.
#[test]
fn connections_are_bounded() {
    let serve = serve_with(&[("CLINCH_SERVE_MAX_CONNECTIONS", "2")], &[]);
    let first = connect(&serve);
    // A connection that has answered once has its place.
    let mut second = connect(&serve);
    write!(second, "GET /healthz HTTP/1.1\r\nHost: {}\r\n\r\n", serve.addr).unwrap();
    let second = Response::read(second).unwrap();
    assert_eq!(second.status, 200);

    let mut third = connect(&serve);
    write!(third, "GET /healthz HTTP/1.1\r\nHost: {}\r\n\r\n", serve.addr).unwrap();
    third.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    let mut byte = [0];
    assert!(third.read(&mut byte).is_err(), "it was answered although there was no place");

    drop((first, second));
    third.set_read_timeout(PATIENCE).unwrap();
    assert_eq!(Response::read(third).unwrap().status, 200);
}

#[test]
fn watchers_are_bounded() {
    let serve = serve_with(&[("CLINCH_SERVE_MAX_CONNECTIONS", "6")], &[]);
    let mut streams: Vec<_> = (0..3).map(|_| serve.get("/console/events").send()).collect();
    for stream in &mut streams {
        event(stream, "state");
    }
    let refused = serve.get("/console/events").send();
    assert_eq!((refused.status, refused.header("retry-after")), (503, Some("5")));
    assert_eq!(refused.json()["type"], "urn:clinch:problem:too-many-watchers");
    streams.pop();
    crate::common::eventually("there is a place again", || serve.get("/console/events").send().status == 200);
}

#[test]
fn nonsense_is_answered_and_nothing_else_happens() {
    let serve = serve(&[]);
    assert_eq!(serve.post("/console/release").bearer(serve.token().unwrap()).json("{").send().status, 400);
    let unknown =
        serve.post("/console/release").bearer(serve.token().unwrap()).json("{\"id\": \"x\"}").send();
    assert_eq!(
        (unknown.status, unknown.json()["type"].as_str().unwrap()),
        (404, "urn:clinch:problem:holder-gone")
    );
    assert_eq!(http::request(serve.addr, "DELETE", "/console/events").send().status, 405);
    assert_eq!(serve.get("/console/../../etc/passwd").send().status, 404);
    assert_eq!(serve.get("/console/events?page=many").send().status, 400);
    let mut noise = connect(&serve);
    noise.write_all(b"\x16\x03\x01 this is not HTTP\r\n\r\n").unwrap();
    assert!(closed(noise).starts_with("HTTP/1.1 400"));
    assert_eq!(serve.get("/healthz").send().status, 200);
}
