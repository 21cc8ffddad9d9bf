//! The playground: real guards, seen from outside.

use std::time::Duration;

use clinch_testkit::http::{self, Request};
use clinch_testkit::serve::ClinchServe;
use clinch_testkit::server::RedisServer;

use crate::common::{eventually, row, serve, watch_until};

/// Runs a test on memory, in a file, and on Redis.
fn on_each_engine(test: impl Fn(&ClinchServe)) {
    test(&serve(&[]));
    let folder = tempfile::tempdir().unwrap();
    test(&serve(&["--store", &format!("sqlite://{}/clinch.db", folder.path().display()), "--playground"]));
    let server = RedisServer::start();
    test(&serve(&["--store", &server.url(), "--playground"]));
    eventually("nothing is left", || server.keys("clinch:*").iter().all(|key| is_record(key)));
}

/// What outlives leases: the last fences, and stored answers.
fn is_record(key: &str) -> bool {
    key.contains(":fence:{") || key.contains(":idem:")
}

/// Sends it from another thread.
fn sent(request: Request) -> std::thread::JoinHandle<(u16, serde_json::Value)> {
    std::thread::spawn(move || {
        let answer = request.send();
        (answer.status, answer.json())
    })
}

/// How often each status is in what a storm tells.
fn count(storm: &str, status: u16) -> usize {
    storm.matches(&format!("\"status\":{status},")).count()
}

/// Proves: B13, D6
#[test]
fn of_a_hundred_submissions_at_once_one_is_taken() {
    on_each_engine(|serve| {
        let storm = serve.post("/demo/storm?target=orders&work_ms=4500").send().text();
        assert_eq!((count(&storm, 201), count(&storm, 429)), (1, 99), "{storm}");
        assert!(storm.trim_end().lines().last().unwrap().contains("\"event\":\"done\""), "{storm}");
    });
}

/// Proves: D1, D6, D7
#[test]
fn the_same_order_is_refused_while_it_is_taken_whatever_its_timestamp_says() {
    on_each_engine(|serve| {
        let order = |timestamp: u32| {
            serve
                .post("/demo/orders?work_ms=3000")
                .json(&format!("{{\"item\": 1, \"timestamp\": {timestamp}}}"))
        };
        let first = sent(order(1));
        watch_until(serve, "kind=duplicate", |state| state["matching"] == 1);
        let second = order(2).send();
        assert_eq!(second.status, 429);
        let retry_after: u64 = second.header("retry-after").unwrap().parse().unwrap();
        assert!((1..=5).contains(&retry_after));
        assert!(second.json()["remainingTime"].as_u64().unwrap() <= 5000);
        let other = serve.post("/demo/orders?work_ms=0").json("{\"item\": 2}").send();
        assert_eq!(other.status, 201, "another order is another order");
        assert_eq!(first.join().unwrap().0, 201);
        assert_eq!(order(3).send().status, 201, "it was done, so it may come again");
    });
}

/// Proves: L10
#[test]
fn one_at_a_time_pays_an_order() {
    on_each_engine(|serve| {
        let first = sent(serve.post("/demo/orders/42/pay?work_ms=4000"));
        let state = watch_until(serve, "q=order:42", |state| state["matching"] == 1);
        let held = row(&state, "order:42").unwrap();
        assert_eq!((&held["kind"], held["fence"].is_string()), (&"lock".into(), true));
        assert!((10_000..=15_000).contains(&held["left_ms"].as_u64().unwrap()), "{held}");
        assert_eq!(serve.post("/demo/orders/42/pay").send().status, 409);
        assert_eq!(serve.post("/demo/orders/43/pay?work_ms=0").send().status, 200);
        let (status, paid) = first.join().unwrap();
        assert_eq!((status, &paid["fence"]), (200, &held["fence"]));
    });
}

#[test]
fn the_gate_is_for_everybody_and_the_limit_for_two() {
    on_each_engine(|serve| {
        let storm = serve.post("/demo/storm?target=export&count=50&work_ms=3500").send().text();
        assert_eq!((count(&storm, 200), count(&storm, 429)), (1, 49), "{storm}");
        let storm = serve.post("/demo/storm?target=reports&count=50&work_ms=3500").send().text();
        assert_eq!((count(&storm, 200), count(&storm, 503)), (2, 48), "{storm}");
    });
}

/// Proves: B9
#[test]
fn a_payment_is_carried_out_once_and_answered_again() {
    on_each_engine(|serve| {
        let missing = serve.post("/demo/payments").json("{\"amount\": 1}").send();
        assert_eq!(missing.status, 400);
        let storm = || serve.post("/demo/storm?target=payments&count=30&work_ms=4000&number=7").send().text();
        let first = storm();
        assert_eq!((count(&first, 201), count(&first, 409)), (1, 29), "{first}");
        let again = storm();
        assert_eq!(count(&again, 201), 30, "all get the stored answer: {again}");
        let number = first.split("\"status\":201").nth(1).unwrap().split("\"number\":").nth(1).unwrap();
        let number = number.split('}').next().unwrap();
        assert_eq!(again.matches(&format!("\"number\":{number}}}")).count(), 30, "of one payment: {again}");
        assert_eq!(first.matches("\"replayed\":true").count(), 0, "{first}");
        assert_eq!(again.matches("\"replayed\":true").count(), 30, "{again}");
        // How long it takes is no part of what is paid; the amount is.
        let payment = |work_ms: u32, amount: u32| {
            serve
                .post(&format!("/demo/payments?work_ms={work_ms}"))
                .header("Idempotency-Key", "\"form-7\"")
                .json(&format!("{{\"amount\": {amount}, \"form\": 7}}"))
                .send()
        };
        let alone = payment(1, 100);
        assert_eq!((alone.status, alone.header("idempotency-replayed")), (201, Some("true")));
        assert_eq!(alone.json()["payment"].to_string(), number);
        assert_eq!(payment(1, 200).status, 422, "another payment under the same key");
    });
}

/// Those who wait are seen, and all get their turn.
#[test]
fn who_waits_is_let_in_one_after_the_other() {
    on_each_engine(|serve| {
        let addr = serve.addr;
        let storm = std::thread::spawn(move || {
            http::post(addr, "/demo/storm?target=seats&count=5&work_ms=1200").send().text()
        });
        let state = watch_until(serve, "q=seat:7", |state| {
            row(state, "seat:7").is_some_and(|row| row["waiters"].as_u64().unwrap() >= 2)
        });
        assert_eq!(state["waiting"], row(&state, "seat:7").unwrap()["waiters"]);
        let storm = storm.join().unwrap();
        assert_eq!(count(&storm, 200), 5, "{storm}");
    });
}

/// Two servers on one engine exclude each other.
#[test]
fn two_servers_share_a_limit() {
    let server = RedisServer::start();
    let [one, other] = [(); 2].map(|()| serve(&["--store", &server.url(), "--playground"]));
    let first = [&one, &other].map(|serve| sent(serve.post("/demo/reports?work_ms=5000").json("{}")));
    watch_until(&other, "kind=permit", |state| state["matching"] == 2);
    assert_eq!(one.post("/demo/reports").json("{}").send().status, 503);
    assert_eq!(other.post("/demo/reports").json("{}").send().status, 503);
    for first in first {
        assert_eq!(first.join().unwrap().0, 200);
    }
}

#[test]
fn there_is_none_unless_it_is_wanted() {
    let server = RedisServer::start();
    for serve in [serve(&["--no-playground"]), serve(&["--store", &server.url()])] {
        assert_eq!(serve.post("/demo/orders").json("{}").send().status, 404);
        assert_eq!(serve.post("/demo/storm?target=orders").send().status, 404);
    }
}

#[test]
fn storms_are_bounded() {
    let serve = serve(&[]);
    for query in ["target=orders&count=0", "target=orders&count=101", "target=nowhere", "count=3"] {
        assert_eq!(serve.post(&format!("/demo/storm?{query}")).send().status, 400, "{query}");
    }
    let addr = serve.addr;
    let first = std::thread::spawn(move || {
        http::post(addr, "/demo/storm?target=pay&count=3&work_ms=4000").send().text()
    });
    watch_until(&serve, "", |state| row(state, "order:42").is_some());
    eventually("one storm at a time", || {
        serve.post("/demo/storm?target=seats&count=1&work_ms=0").send().status == 429
    });
    assert_eq!(count(&first.join().unwrap(), 200), 1);
    // One whose client goes away ends with it.
    drop(serve.post("/demo/storm?target=pay&count=3&work_ms=10000").send());
    let within = std::time::Instant::now() + Duration::from_secs(8);
    eventually("the next one can come", || {
        serve.post("/demo/storm?target=seats&count=1&work_ms=0").send().status == 200
    });
    assert!(std::time::Instant::now() < within, "it was waited for all the same");
}
