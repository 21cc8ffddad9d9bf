//! A real Prometheus scrapes a real `clinch serve`.

use std::net::SocketAddr;
use std::path::Path;

use clinch_testkit::http;
use clinch_testkit::prometheus::Prometheus;
use clinch_testkit::serve::ClinchServe;

use crate::common::{TOKEN, row, serve, serve_with, watch_until};

fn order(serve: &ClinchServe, item: u32, work_ms: u32) -> u16 {
    let body = format!("{{\"item\": {item}}}");
    serve.post(&format!("/demo/orders?work_ms={work_ms}")).json(&body).send().status
}

fn storm(addr: SocketAddr, query: &str) {
    let told = http::post(addr, &format!("/demo/storm?{query}")).send().text();
    assert!(told.contains("\"done\""), "{told}");
}

/// Ends the lease on this key by force.
fn release(serve: &ClinchServe, key: &str) {
    let state = watch_until(serve, "", |state| row(state, key).is_some());
    let body = format!("{{\"id\": {}}}", row(&state, key).unwrap()["id"]);
    assert_eq!(serve.post("/console/release").bearer(serve.token().unwrap()).json(&body).send().status, 200);
}

/// Twice the same: once so that every series is there, and once to be measured.
fn load(serve: &ClinchServe, first_item: u32) {
    // 24 orders, and one that came with 5 of its like: 30 requests, 25 taken, 5 duplicates.
    for item in 0..24 {
        assert_eq!(order(serve, first_item + item, 20), 201);
    }
    // One of five pays, and one more whose lease is ended by force: 6 attempts, 2 acquired, 1 of 2 released. There is one storm
    // at a time; that one goes beside them.
    std::thread::scope(|together| {
        let addr = serve.addr;
        together.spawn(move || {
            storm(addr, "target=orders&count=6&work_ms=4000");
            storm(addr, "target=pay&count=5&work_ms=4000");
        });
        let held = together.spawn(move || http::post(addr, "/demo/orders/9/pay?work_ms=4000").send().status);
        release(serve, "order:9");
        assert_eq!(held.join().unwrap(), 200);
    });
}

/// Proves: O1, B13
#[test]
fn the_four_rates_come_out_right_for_a_known_load() {
    let serve = serve(&[]);
    load(&serve, 0);
    let rules = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/prometheus/clinch.rules.yml");
    let prometheus = Prometheus::start(serve.addr, None, Some(&rules));
    prometheus.wait_for("up{job=\"clinch\"}", 1.0);
    prometheus.wait_for("clinch_requests_total{guard=\"orders\"}", 30.0);
    let read =
        |expression: &str| prometheus.query(expression).unwrap_or_else(|| panic!("no value: {expression}"));
    let (sum, count) = ("clinch_hold_seconds_sum{guard=\"pay\"}", "clinch_hold_seconds_count{guard=\"pay\"}");
    let before = (read(sum), read(count));

    load(&serve, 1000);

    prometheus.wait_for("clinch_requests_total{guard=\"orders\"}", 60.0);
    prometheus.wait_for(count, before.1 + 2.0);
    for (expression, value) in [
        ("clinch_duplicates_total{guard=\"orders\"}", 10.0),
        ("clinch_attempts_total{guard=\"orders\", outcome=\"acquired\"}", 50.0),
        ("clinch_attempts_total{guard=\"orders\", outcome=\"duplicate\"}", 10.0),
        ("clinch_attempts_total{guard=\"pay\", outcome=\"acquired\"}", 4.0),
        ("clinch_attempts_total{guard=\"pay\", outcome=\"denied_by_lock\"}", 8.0),
        ("clinch_releases_total{guard=\"pay\", outcome=\"released\"}", 2.0),
        ("clinch_releases_total{guard=\"pay\", outcome=\"revoked\"}", 2.0),
        ("sum(clinch_attempts_total{guard=\"pay\"})", 12.0),
    ] {
        prometheus.wait_for(expression, value);
    }
    // The four rates as the manual has them. Prometheus extrapolates each series to the ends of the range, so they are
    // near what was sent; the counters above are exact.
    let good = "released|completed|kept|passed";
    for (name, expression, value) in [
        (
            "acquire success rate",
            "sum by (guard) (rate(clinch_attempts_total{guard=\"pay\", outcome=~\"acquired|reentered\"}[5m])) / sum by \
             (guard) (rate(clinch_attempts_total{guard=\"pay\", outcome!~\"cancelled|invalid|shut_down\"}[5m]))"
                .to_owned(),
            2.0 / 6.0,
        ),
        (
            "release success rate",
            format!(
                "sum by (guard) (rate(clinch_releases_total{{guard=\"pay\", outcome=~\"{good}\"}}[5m])) / sum by (guard) \
                 (rate(clinch_releases_total{{guard=\"pay\"}}[5m]))"
            ),
            1.0 / 2.0,
        ),
        (
            "duplicate rate",
            "sum by (guard) (rate(clinch_duplicates_total{guard=\"orders\"}[5m])) / sum by (guard) \
             (rate(clinch_requests_total{guard=\"orders\"}[5m]))"
                .to_owned(),
            5.0 / 30.0,
        ),
    ] {
        let found = read(&expression);
        assert!((found / value - 1.0).abs() < 0.1, "{name}: {found}, not {value}");
    }
    // The mean of the two holds: 4 s of work each.
    let mean = (read(sum) - before.0) / (read(count) - before.1);
    let rate = read(
        "sum by (guard) (rate(clinch_hold_seconds_sum{guard=\"pay\"}[5m])) / sum by (guard) (rate(clinch_hold_seconds_count{guard=\"pay\"}[5m]))",
    );
    assert!(
        (4.0..8.0).contains(&mean) && (rate / mean - 1.0).abs() < 0.1,
        "mean hold time: {mean}, by rate {rate}"
    );
}

/// Proves: B13
#[test]
fn where_reading_needs_the_token_prometheus_shows_it() {
    let mut serve = serve_with(&[("CLINCH_SERVE_TOKEN", TOKEN)], &["--listen", "0.0.0.0:0"]);
    serve.addr = ([127, 0, 0, 1], serve.addr.port()).into();
    Prometheus::start(serve.addr, Some(TOKEN), None).wait_for("up{job=\"clinch\"}", 1.0);
    Prometheus::start(serve.addr, None, None).wait_for("up{job=\"clinch\"}", 0.0);
}
