//! The names of all metrics, and what each one means.

use metrics::{KeyName, SharedString, Unit, with_recorder};

/// Who came to a guard that is enabled, by `guard`.
pub const REQUESTS: &str = "clinch_requests_total";
/// Who was refused as a duplicate, by `guard`.
pub const DUPLICATES: &str = "clinch_duplicates_total";
/// Who would have been refused, and was let through because of shadow mode, by `guard`.
pub const SHADOWED: &str = "clinch_shadowed_total";
/// Who was answered with a stored result, by `guard`.
pub const REPLAYS: &str = "clinch_replays_total";
/// Releases that the work's caller did not wait for any longer, by `guard`.
pub const LATE_RELEASES: &str = "clinch_late_releases_total";
/// Attempts, by `guard` and `outcome`; each has exactly one.
pub const ATTEMPTS: &str = "clinch_attempts_total";
/// The time from the beginning of an attempt to its outcome, by `guard`.
pub const WAIT_SECONDS: &str = "clinch_wait_seconds";
/// The time for which a guard was held, by `guard`.
pub const HOLD_SECONDS: &str = "clinch_hold_seconds";
/// Ends of leases, by `guard` and `outcome`; each lease, or each holder's time with it, has exactly one.
pub const RELEASES: &str = "clinch_releases_total";
/// Which part of its validity was left when a guard was given up, by `guard`; 0 if it had ended.
pub const VALIDITY_LEFT_RATIO: &str = "clinch_validity_left_ratio";
/// Renewals, by `guard` and `outcome`.
pub const RENEWALS: &str = "clinch_renewals_total";
/// Leases that were lost while their guards were alive, by `guard` and `cause`.
pub const LEASES_LOST: &str = "clinch_leases_lost_total";
/// Guards that outlived a lease which nobody renews, by `guard`.
pub const GUARDS_LEAKED: &str = "clinch_guards_leaked_total";
/// Polls that found what a push should have told, by `guard`.
pub const WAKEUPS_MISSED: &str = "clinch_wakeups_missed_total";
/// The time that the guard itself added to a request, by `guard`.
pub const GUARD_OVERHEAD_SECONDS: &str = "clinch_guard_overhead_seconds";
/// The time of a request from its coming to the guard to the guard's end, by `guard`.
pub const GUARDED_REQUEST_SECONDS: &str = "clinch_guarded_request_seconds";
/// Calls to the engine that came to an end, by `operation`.
pub const ENGINE_CALLS: &str = "clinch_engine_calls_total";
/// Calls to the engine that failed, by `operation` and `kind`.
pub const ENGINE_FAILURES: &str = "clinch_engine_failures_total";
/// The time of a call to the engine, by `operation`.
pub const ENGINE_CALL_SECONDS: &str = "clinch_engine_call_seconds";
/// Guards that are alive now, by `guard`.
pub const GUARDS_HELD: &str = "clinch_guards_held";
/// Attempts with a wait that are under way now, by `guard`.
pub const WAITERS: &str = "clinch_waiters";
/// Calls to the engine that are under way now.
pub const ENGINE_CALLS_IN_FLIGHT: &str = "clinch_engine_calls_in_flight";
/// How many managers do not ask their engine now, because it does not answer.
pub const BREAKER_OPEN: &str = "clinch_breaker_open";

/// Bounds for histograms of seconds, in exporters that need some.
pub const SECONDS_BUCKETS: &[f64] = &[
    0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0,
    10.0, 30.0, 60.0, 300.0,
];
/// Bounds for histograms of ratios, in exporters that need some.
pub const RATIO_BUCKETS: &[f64] = &[0.0, 0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0];

/// What a metric is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricKind {
    /// Only ever rises.
    Counter,
    /// Rises and falls.
    Gauge,
    /// Values in buckets.
    Histogram,
}

/// One metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Metric {
    /// Its name.
    pub name: &'static str,
    /// What it is.
    pub kind: MetricKind,
    /// Its labels. None of them ever has a key, a token or a user.
    pub labels: &'static [&'static str],
    /// What it means.
    pub help: &'static str,
}

const fn counter(name: &'static str, labels: &'static [&'static str], help: &'static str) -> Metric {
    Metric { name, kind: MetricKind::Counter, labels, help }
}

const fn gauge(name: &'static str, labels: &'static [&'static str], help: &'static str) -> Metric {
    Metric { name, kind: MetricKind::Gauge, labels, help }
}

const fn histogram(name: &'static str, labels: &'static [&'static str], help: &'static str) -> Metric {
    Metric { name, kind: MetricKind::Histogram, labels, help }
}

/// All metrics.
pub const METRICS: &[Metric] = &[
    counter(REQUESTS, &["guard"], "Who came to a guard that is enabled."),
    counter(DUPLICATES, &["guard"], "Who was refused as a duplicate."),
    counter(SHADOWED, &["guard"], "Who would have been refused, and was let through by shadow mode."),
    counter(REPLAYS, &["guard"], "Who was answered with a stored result."),
    counter(
        LATE_RELEASES,
        &["guard"],
        "Releases that were not answered in time and went on in the background.",
    ),
    counter(ATTEMPTS, &["guard", "outcome"], "Attempts, by what came of them."),
    histogram(WAIT_SECONDS, &["guard"], "Time from the beginning of an attempt to its outcome."),
    histogram(HOLD_SECONDS, &["guard"], "Time for which a guard was held."),
    counter(RELEASES, &["guard", "outcome"], "Ends of leases, by what came of giving them back."),
    histogram(
        VALIDITY_LEFT_RATIO,
        &["guard"],
        "Part of its TTL for which a lease was still valid when its guard was given up; 0: it had ended.",
    ),
    counter(RENEWALS, &["guard", "outcome"], "Renewals, by what came of them."),
    counter(LEASES_LOST, &["guard", "cause"], "Leases that were lost while their guards were alive."),
    counter(GUARDS_LEAKED, &["guard"], "Guards that outlived a lease which nobody renews."),
    counter(WAKEUPS_MISSED, &["guard"], "Polls that found what a push should have told."),
    histogram(GUARD_OVERHEAD_SECONDS, &["guard"], "Time that the guard itself added to a request."),
    histogram(
        GUARDED_REQUEST_SECONDS,
        &["guard"],
        "Time of a request from its guard's beginning to its end.",
    ),
    counter(ENGINE_CALLS, &["operation"], "Calls to the engine that came to an end."),
    counter(ENGINE_FAILURES, &["operation", "kind"], "Calls to the engine that failed."),
    histogram(ENGINE_CALL_SECONDS, &["operation"], "Time of a call to the engine."),
    gauge(GUARDS_HELD, &["guard"], "Guards that are alive now."),
    gauge(WAITERS, &["guard"], "Attempts with a wait that are under way now."),
    gauge(ENGINE_CALLS_IN_FLIGHT, &[], "Calls to the engine that are under way now."),
    gauge(BREAKER_OPEN, &[], "Managers that do not ask their engine now, because it does not answer."),
];

/// Describes all metrics to the recorder that is installed. Call it once, after installing one.
pub fn describe() {
    for Metric { name, kind, help, .. } in METRICS {
        let (key, help) = (KeyName::from(*name), SharedString::from(*help));
        let unit = if name.ends_with("_seconds") {
            Some(Unit::Seconds)
        } else if name.ends_with("_ratio") {
            // There is none for a part of one; a percentage is something else.
            None
        } else {
            Some(Unit::Count)
        };
        with_recorder(|recorder| match kind {
            MetricKind::Counter => recorder.describe_counter(key, unit, help),
            MetricKind::Gauge => recorder.describe_gauge(key, unit, help),
            MetricKind::Histogram => recorder.describe_histogram(key, unit, help),
        });
    }
}
