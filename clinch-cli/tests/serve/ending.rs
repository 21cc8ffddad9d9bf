//! How it ends, and why it does not begin.

use std::net::TcpStream;
use std::time::{Duration, Instant};

use clinch_testkit::http::{self, Response};
use clinch_testkit::server::RedisServer;
use rustix::process::Signal;

use crate::common::{event, eventually, refused, row, serve, serve_with, watch_until};

/// What is held, without the records of the last fences.
fn held(server: &RedisServer) -> Vec<String> {
    let mut keys = server.keys("clinch:*");
    keys.retain(|key| !key.contains(":fence:{"));
    keys
}

/// Proves: B13
#[test]
fn on_a_signal_what_runs_is_finished_and_nothing_new_is_accepted() {
    for signal in [Signal::TERM, Signal::INT] {
        let server = RedisServer::start();
        let mut serve = serve(&["--store", &server.url(), "--playground"]);
        let addr = serve.addr;
        let running = std::thread::spawn(move || {
            let answer = http::post(addr, "/demo/orders/1/pay?work_ms=4000").send();
            (answer.status, answer.text())
        });
        let mut stream = serve.get("/console/events").send();
        event(&mut stream, "hello");
        watch_until(&serve, "", |state| row(state, "order:1").is_some());

        serve.signal(signal);

        eventually("nobody is let in any more", || TcpStream::connect(addr).is_err());
        assert!(serve.is_running(), "it waits for what runs");
        assert_eq!(held(&server), ["clinch:lock:order:1"]);
        while stream.piece().expect("the stream ends as it should").is_some() {}
        let (status, paid) = running.join().unwrap();
        assert_eq!((status, paid.contains("\"paid\":\"1\"")), (200, true));
        let ended = serve.end();
        assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
        assert_eq!(held(&server), [""; 0]);
    }
}

/// Proves: B13
#[test]
fn what_does_not_finish_in_time_is_given_back() {
    let server = RedisServer::start();
    let limit = [("CLINCH_SERVE_DRAIN_TIMEOUT", "200ms")];
    let serve = serve_with(&limit, &["--store", &server.url(), "--playground"]);
    let addr = serve.addr;
    let running = [
        std::thread::spawn(move || http::post(addr, "/demo/orders/1/pay?work_ms=10000").try_send()),
        std::thread::spawn(move || http::post(addr, "/demo/orders?work_ms=10000").json("{}").try_send()),
        std::thread::spawn(move || http::post(addr, "/demo/reports?work_ms=10000").json("{}").try_send()),
    ];
    eventually("all of them are held", || held(&server).len() >= 3);
    let began = Instant::now();
    serve.signal(Signal::TERM);
    let ended = serve.end();
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
    assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
    assert_eq!(held(&server), [""; 0]);
    for running in running {
        let _ = running.join().unwrap();
    }
}

#[test]
fn a_second_signal_ends_it_at_once() {
    let server = RedisServer::start();
    let serve = serve(&["--store", &server.url(), "--playground"]);
    let addr = serve.addr;
    let running =
        std::thread::spawn(move || http::post(addr, "/demo/orders/1/pay?work_ms=9000").try_send().is_ok());
    eventually("it is held", || held(&server).len() == 1);
    let began = Instant::now();
    serve.signal(Signal::INT);
    eventually("nobody is let in any more", || TcpStream::connect(addr).is_err());
    serve.signal(Signal::INT);
    assert_eq!(serve.end().code, Some(0));
    assert!(began.elapsed() < Duration::from_secs(7), "{:?}", began.elapsed());
    assert_eq!(held(&server), [""; 0]);
    let _ = running.join().unwrap();
}

#[test]
fn a_signal_ends_it_although_clients_keep_their_connections() {
    let serve = serve(&[]);
    let idle = TcpStream::connect(serve.addr).unwrap();
    let mut kept = TcpStream::connect(serve.addr).unwrap();
    std::io::Write::write_all(
        &mut kept,
        format!("GET /healthz HTTP/1.1\r\nHost: {}\r\n\r\n", serve.addr).as_bytes(),
    )
    .unwrap();
    assert_eq!(Response::read(kept.try_clone().unwrap()).unwrap().status, 200);
    let began = Instant::now();
    serve.signal(Signal::TERM);
    assert_eq!(serve.end().code, Some(0));
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    drop((idle, kept));
}

/// Quiet unless told: a storm of duplicates is no error.
#[test]
fn what_the_library_logs_is_said_from_the_level_that_is_wanted() {
    for (args, lines) in [(&[][..], 0), (&["--log", "warn"], 4), (&["--log", "off"], 0)] {
        let serve = serve(args);
        let _ = serve.post("/demo/storm?target=orders&count=5&work_ms=3000").send().text();
        serve.signal(Signal::TERM);
        let ended = serve.end();
        assert_eq!(ended.stderr.matches("duplicate submission").count(), lines, "{}", ended.stderr);
        assert_eq!(ended.stderr.is_empty(), lines == 0, "{}", ended.stderr);
    }
    assert_eq!(refused(&[], &["--log", "loud"]).code, Some(64));
}

#[test]
fn a_port_that_is_taken_is_said() {
    let first = serve(&[]);
    let taken = first.addr.to_string();
    let ended = refused(&[], &["--listen", &taken]);
    assert_eq!(ended.code, Some(71));
    assert_eq!(
        ended.stderr,
        format!(
            "clinch: cannot listen on {taken}: another program does already; give another --listen, or end that one\n"
        )
    );
}

#[test]
fn an_address_of_another_machine_is_said() {
    let ended = refused(&[("CLINCH_SERVE_TOKEN", crate::common::TOKEN)], &["--listen", "192.0.2.1:4747"]);
    assert_eq!(ended.code, Some(71));
    assert!(ended.stderr.contains("192.0.2.1:4747: this machine has no such address"), "{}", ended.stderr);
}

#[test]
fn a_configuration_that_cannot_be_used_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("clinch.toml");
    std::fs::write(&file, "[serve]\nlisten = \"127.0.0.1:0\"\nplaygruond = false\n").unwrap();
    let ended = refused(&[], &["--config", file.to_str().unwrap()]);
    assert_eq!(ended.code, Some(78));
    assert!(
        ended.stderr.contains("clinch.toml:3") && ended.stderr.contains("playgruond"),
        "{}",
        ended.stderr
    );

    std::fs::write(&file, "[serve]\nlisten = \"127.0.0.1:0\"\nplayground = false\n").unwrap();
    let serve = serve(&["--config", file.to_str().unwrap()]);
    assert_eq!(serve.post("/demo/orders").json("{}").send().status, 404, "the file counts");

    let ended = refused(&[], &["--listen", "127.0.0.1:0", "--audit-log", "/nowhere/at/all/audit.log"]);
    assert_eq!(ended.code, Some(74));
    assert!(ended.stderr.contains("/nowhere/at/all/audit.log"), "{}", ended.stderr);
}

/// The console only looks, so it makes no file; the playground takes locks.
#[test]
fn a_file_that_is_not_there_is_made_for_the_playground_only() {
    let folder = tempfile::tempdir().unwrap();
    let store = format!("sqlite://{}/clinch.db", folder.path().display());
    let ended = refused(&[], &["--listen", "127.0.0.1:0", "--store", &store]);
    assert_eq!(ended.code, Some(69), "{}", ended.stderr);
    let said = "there is no such file, and none was made; see whether the path from --store is right";
    assert!(ended.stderr.contains(said), "{}", ended.stderr);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    drop(serve(&["--store", &store, "--playground"]));
    drop(serve(&["--store", &store]));
}
