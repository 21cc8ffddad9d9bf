//! What `deploy/` says of metrics is true: every one that it names is there.

use std::collections::BTreeSet;

use clinch::telemetry::{METRICS, MetricKind};
use serde_json::Value;

const RULES: &str = include_str!("../../../deploy/prometheus/clinch.rules.yml");
const RULES_TESTS: &str = include_str!("../../../deploy/prometheus/clinch.rules.test.yml");
const DASHBOARD: &str = include_str!("../../../deploy/grafana/clinch.json");

/// All words in a text that stand for a series: metrics, and what rules record.
fn series(text: &str) -> BTreeSet<&str> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || "_:".contains(c)));
    // The end of a sentence in a label is none of it.
    let words = words.map(|word| word.trim_matches(':'));
    words.filter(|word| word.starts_with("clinch_") || word.contains(":clinch_")).collect()
}

/// What the rules record.
fn recorded() -> BTreeSet<&'static str> {
    RULES.lines().filter_map(|line| line.trim().strip_prefix("- record: ")).collect()
}

/// The metric that a series belongs to: a histogram has several.
fn metric(series: &str) -> Option<&'static str> {
    let of = |metric: &&clinch::telemetry::Metric| match metric.kind {
        MetricKind::Histogram => {
            ["_bucket", "_sum", "_count", ""].iter().any(|end| format!("{}{end}", metric.name) == series)
        }
        MetricKind::Counter | MetricKind::Gauge => metric.name == series,
    };
    METRICS.iter().find(of).map(|metric| metric.name)
}

fn unknown(text: &str) -> Vec<&str> {
    series(text).into_iter().filter(|word| metric(word).is_none() && !recorded().contains(word)).collect()
}

/// Proves: O2
#[test]
fn every_metric_in_the_rules_is_one() {
    assert!(series(RULES).len() > 10, "{:?}", series(RULES));
    assert_eq!(unknown(RULES), Vec::<&str>::new());
    assert_eq!(unknown(RULES_TESTS), Vec::<&str>::new());
    // Every alert is tested, firing and not.
    for alert in RULES.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")) {
        assert!(RULES_TESTS.contains(&format!("alertname: {alert}")), "{alert}");
    }
    // This very check finds what is not there.
    assert_eq!(unknown("rate(clinch_no_such_total[5m])"), ["clinch_no_such_total"]);
    assert_eq!(unknown("clinch_requests_total_count"), ["clinch_requests_total_count"]);
}

/// Proves: O2
#[test]
fn the_dashboard_loads_and_shows_every_metric() {
    let dashboard: Value = serde_json::from_str(DASHBOARD).unwrap();
    assert!(dashboard["schemaVersion"].as_u64().unwrap() >= 39);
    assert!(dashboard["title"] == "Clinch" && dashboard["uid"] == "clinch" && dashboard["id"].is_null());
    let variables = dashboard["templating"]["list"].as_array().unwrap();
    assert!(
        variables
            .iter()
            .any(|variable| variable["type"] == "datasource" && variable["query"] == "prometheus")
    );

    let panels = dashboard["panels"].as_array().unwrap();
    let ids: BTreeSet<_> = panels.iter().map(|panel| panel["id"].as_u64().unwrap()).collect();
    assert_eq!(ids.len(), panels.len(), "every panel has a number of its own");
    let mut shown = BTreeSet::new();
    for panel in panels {
        let place = &panel["gridPos"];
        assert!(place["x"].as_u64().unwrap() + place["w"].as_u64().unwrap() <= 24, "{panel}");
        if panel["type"] == "row" {
            continue;
        }
        assert_eq!(panel["datasource"]["uid"], "${datasource}", "{panel}");
        let targets = panel["targets"].as_array().unwrap();
        assert!(!targets.is_empty(), "{panel}");
        for target in targets {
            let expression = target["expr"].as_str().unwrap();
            assert_eq!(expression.matches('(').count(), expression.matches(')').count(), "{expression}");
            assert_eq!(unknown(expression), Vec::<&str>::new(), "{expression}");
            shown.extend(series(expression).into_iter().filter_map(metric));
        }
    }
    let missing: Vec<_> =
        METRICS.iter().map(|metric| metric.name).filter(|name| !shown.contains(name)).collect();
    assert!(missing.is_empty(), "not on the dashboard: {missing:?}");
    assert_eq!(unknown(DASHBOARD), Vec::<&str>::new());
}
