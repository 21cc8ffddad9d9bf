//! The console's data and its one act.

use std::time::Duration;

use clinch::{LockManager, LockOptions, Loss};
use clinch_testkit::http;
use clinch_testkit::server::RedisServer;
use serde_json::Value;

use crate::common::{event, eventually, row, serve, watch_until};

const TTL: Duration = Duration::from_secs(60);

fn audit(path: &std::path::Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Proves: B13, T2
#[tokio::test(flavor = "multi_thread")]
async fn it_shows_who_holds_what_in_other_processes() {
    let server = RedisServer::start();
    let serve = serve(&["--store", &server.url()]);
    let locks = LockManager::builder().host("web-3").connect(&server.url()).await.unwrap();
    let options = LockOptions::new(TTL).label("<img src=x onerror=alert(1)>").fenced();
    let guard = locks.lock("order:42", options).await.unwrap();
    let permit = locks.limit("export", 3).unwrap().acquire(TTL).await.unwrap();
    let reader = locks.lock("report", LockOptions::new(TTL).shared()).await.unwrap();
    server.set("clinch:lock:foreign", "somebody else's value");

    let state = watch_until(&serve, "", |state| state["held"] == 4);

    let held = row(&state, "order:42").unwrap();
    assert_eq!(
        (&held["kind"], &held["host"], held["pid"].as_u64()),
        (&"lock".into(), &"web-3".into(), Some(std::process::id().into()))
    );
    assert_eq!(held["label"], "<img src=x onerror=alert(1)>", "as it is; the page makes text of it");
    assert_eq!(held["fence"], guard.fence().unwrap().to_string());
    assert!((50_000..=60_000).contains(&held["left_ms"].as_u64().unwrap()) && held["since"].is_u64());
    assert_eq!(row(&state, "export").unwrap()["kind"], "permit");
    assert_eq!(row(&state, "report").unwrap()["kind"], "shared");
    let foreign = row(&state, "foreign").unwrap();
    assert_eq!((&foreign["host"], &foreign["left_ms"]), (&Value::Null, &Value::Null));

    for (query, keys) in [
        ("q=ORDER", vec!["order:42"]),
        ("q=web-3", vec!["export", "order:42", "report"]),
        ("kind=permit", vec!["export"]),
        ("q=nothing+like+it", vec![]),
        ("sort=key&kind=all", vec!["export", "foreign", "order:42", "report"]),
    ] {
        let state = watch_until(&serve, query, |_| true);
        let mut found: Vec<_> =
            state["rows"].as_array().unwrap().iter().map(|row| row["key"].as_str().unwrap()).collect();
        if !query.contains("sort") {
            found.sort_unstable();
        }
        assert_eq!(found, keys, "{query}");
    }
    drop((guard, permit, reader));
    watch_until(&serve, "", |state| state["held"] == 1);
}

/// Proves: B13
#[tokio::test(flavor = "multi_thread")]
async fn a_lease_is_ended_by_force_and_it_is_written_down() {
    let server = RedisServer::start();
    let serve = serve(&["--store", &server.url()]);
    let locks = LockManager::connect(&server.url()).await.unwrap();
    let guard = locks.lock("nightly", LockOptions::new(TTL).renew().label("the job")).await.unwrap();
    let state = watch_until(&serve, "", |state| row(state, "nightly").is_some());
    let body = format!("{{\"id\": {}}}", row(&state, "nightly").unwrap()["id"]);
    let token = serve.token().unwrap();

    let answer = serve.post("/console/release").bearer(token).json(&body).send();

    assert_eq!(answer.status, 200);
    let answer = answer.json();
    assert_eq!((&answer["released"], &answer["logged"]), (&true.into(), &true.into()));
    assert_eq!(guard.lost().await, Loss::Revoked);
    assert!(server.keys("clinch:lock:*").is_empty());

    let successor = locks.lock("nightly", TTL).await.unwrap();
    let again = serve.post("/console/release").bearer(token).json(&body).send();
    assert_eq!(again.status, 404, "that one is gone, and a successor is never touched");
    assert!(successor.is_valid() && !server.keys("clinch:lock:*").is_empty());

    let path = serve.home().join(".local/state/clinch/audit.log");
    let lines = audit(&path);
    let events: Vec<_> = lines.iter().map(|line| line["event"].as_str().unwrap()).collect();
    assert_eq!(events[..2], ["asked", "released"]);
    assert_eq!((&lines[0]["via"], &lines[1]["holder"]["label"]), (&"clinch serve".into(), &"the job".into()));
    assert!(lines[0]["from"].as_str().unwrap().starts_with("127.0.0.1:"), "{}", lines[0]);
    let text = std::fs::read_to_string(path).unwrap();
    assert!(!text.contains(token) && !text.contains(guard.token().as_str()));
}

/// A script that nobody watches beside: the holder's name is the one that `clinch ls` tells.
#[tokio::test(flavor = "multi_thread")]
async fn a_lease_that_nobody_has_watched_can_be_ended() {
    let server = RedisServer::start();
    let serve = serve(&["--store", &server.url()]);
    let locks = LockManager::connect(&server.url()).await.unwrap();
    let guard = locks.lock("nightly", TTL).await.unwrap();
    let listed = std::process::Command::new(env!("CARGO_BIN_EXE_clinch"))
        .args(["ls", "--json", "--store", &server.url()])
        .env("CLINCH_CALL_TIMEOUT", "20s")
        .output()
        .unwrap();
    let listed: Value = serde_json::from_slice(&listed.stdout).unwrap();
    let release = |id: &Value| {
        let body = format!("{{\"id\": {id}}}");
        serve.post("/console/release").bearer(serve.token().unwrap()).json(&body).send().status
    };
    assert_eq!(release(&"0123456789ab".into()), 404);
    assert!(guard.is_valid());
    assert_eq!(release(&listed["id"]), 200);
    assert_eq!(guard.lost().await, Loss::Revoked);
    assert_eq!(release(&listed["id"]), 404);
}

/// Whatever is shown can be ended: permits, readers, duplicate windows, idempotency keys, and other clients' values.
#[tokio::test(flavor = "multi_thread")]
async fn every_kind_can_be_ended() {
    let server = RedisServer::start();
    let serve = serve(&["--store", &server.url(), "--playground"]);
    let locks = LockManager::connect(&server.url()).await.unwrap();
    let permit = locks.limit("export", 3).unwrap().acquire(TTL).await.unwrap();
    let reader = locks.lock("report", LockOptions::new(TTL).shared()).await.unwrap();
    server.set("clinch:lock:foreign", "somebody else's value");
    let addr = serve.addr;
    let order =
        std::thread::spawn(move || http::post(addr, "/demo/orders?work_ms=8000").json("{}").send().status);
    let pay = http::post(addr, "/demo/payments?work_ms=8000").header("Idempotency-Key", "\"k\"").json("{}");
    let payment = std::thread::spawn(move || pay.send().status);
    let state = watch_until(&serve, "", |state| state["held"] == 5);
    let mut kinds: Vec<_> =
        state["rows"].as_array().unwrap().iter().map(|row| row["kind"].as_str().unwrap()).collect();
    kinds.sort_unstable();
    assert_eq!(kinds, ["duplicate", "idempotency", "lock", "permit", "shared"]);
    for row in state["rows"].as_array().unwrap() {
        let body = format!("{{\"id\": {}}}", row["id"]);
        let answer = serve.post("/console/release").bearer(serve.token().unwrap()).json(&body).send();
        assert_eq!(answer.status, 200, "{row}");
    }
    watch_until(&serve, "", |state| state["held"] == 0);
    assert_eq!((permit.lost().await, reader.lost().await), (Loss::Revoked, Loss::Revoked));
    // Their work goes on for long, and nobody waits for its end: the server's end is theirs.
    drop((order, payment));
}

/// Proves: B13
#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_written_down_is_not_done() {
    let server = RedisServer::start();
    let serve = serve(&["--store", &server.url(), "--audit-log", "/dev/full"]);
    let locks = LockManager::connect(&server.url()).await.unwrap();
    let guard = locks.lock("nightly", TTL).await.unwrap();
    let state = watch_until(&serve, "", |state| row(state, "nightly").is_some());
    let body = format!("{{\"id\": {}}}", row(&state, "nightly").unwrap()["id"]);
    let answer = serve.post("/console/release").bearer(serve.token().unwrap()).json(&body).send();
    assert_eq!(
        (answer.status, answer.json()["type"].as_str().unwrap()),
        (500, "urn:clinch:problem:not-logged")
    );
    assert!(guard.is_valid() && server.keys("clinch:lock:*").len() == 1, "nothing was released");
}

/// A great number of holders is counted; a page of them is shown.
#[test]
fn twelve_thousand_holders_are_a_page_and_a_number() {
    let server = RedisServer::start();
    let script = "for i = 1, 12000 do redis.call('SET', 'clinch:lock:job:' .. i, '00112233445566778899aabbccddeeff@web:' .. i .. ':', 'PX', 600000) end";
    server.command(&["EVAL", script, "0"]);
    let serve = serve(&["--store", &server.url()]);
    let mut stream = serve.get("/console/events?sort=key&page=3").send();
    let state = loop {
        let state = event(&mut stream, "state");
        if state["complete"] == true {
            break state;
        }
    };
    assert_eq!((&state["held"], &state["kept"]), (&12_000.into(), &10_000.into()));
    assert_eq!(state["rows"].as_array().unwrap().len(), 50);
    assert_eq!((&state["page"], &state["pages"]), (&3.into(), &200.into()));
    assert!(state.to_string().len() < 40_000, "an event is small: {} bytes", state.to_string().len());
    let last = watch_until(&serve, "page=100000", |state| state["complete"] == true);
    assert_eq!(last["page"], 199, "there is no page after the last");
}

/// The engine is asked only while somebody watches, and once for all of them.
#[test]
fn nobody_watching_costs_the_engine_nothing() {
    let server = RedisServer::start();
    let serve = serve(&["--store", &server.url()]);
    let scans = || {
        let info = server.info("commandstats");
        let calls = info
            .get("cmdstat_scan")
            .and_then(|stat| stat.split(',').next()?.strip_prefix("calls=")?.parse().ok());
        calls.unwrap_or(0_u64)
    };
    assert_eq!(scans(), 0);
    let mut streams: Vec<_> = (0..8).map(|_| serve.get("/console/events").send()).collect();
    for _ in 0..4 {
        for stream in &mut streams {
            event(stream, "state");
        }
    }
    let seen = scans();
    assert!((4..=16).contains(&seen), "eight watchers share a listing: {seen}");
    drop(streams);
    let mut before = scans();
    eventually("it is left alone", || {
        std::thread::sleep(Duration::from_millis(1200));
        let now = scans();
        let alone = now == before;
        before = now;
        alone
    });
}

/// Proves: B13
#[test]
fn an_engine_that_goes_away_is_shown_as_such_and_comes_back() {
    let server = RedisServer::start();
    let serve = serve(&["--store", &server.url()]);
    watch_until(&serve, "", |state| state["engine"]["up"] == true);
    server.stop();
    let down = watch_until(&serve, "", |state| state["engine"]["up"] == false);
    assert!(down["engine"]["problem"].is_string() && down["complete"] == false, "{down}");
    server.cont();
    watch_until(&serve, "", |state| state["engine"]["up"] == true);
}
