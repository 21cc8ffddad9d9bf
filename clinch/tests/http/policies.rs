//! What a policy says: when a guard opens again, within which bounds it keeps its interval. Below, for all guards: what happens
//! without an engine, whether they work at all, how they refuse, whom they tell apart.

mod engine;
mod identity;
mod locked;
mod off;
mod refusals;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use clinch::http::Web;
use clinch::submit::{Disconnect, DuplicatePolicy, Guards, ReleaseWhen, Settings};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};
use tracing::field::{Field, Visit};
use tracing::span;

use crate::common::{Answer, LONG, engines, post_as};
use crate::stage::{Bench, DONE, End, POLL, Running};

/// Web with these settings on the same engine, and counts of its own.
pub(crate) fn with_settings(web: &Web, settings: Settings) -> Web {
    Web::new(Guards::new(web.guards().locks().clone()).with_settings(settings).unwrap())
}

/// What a refused one is told of the first one: whether it runs, and the milliseconds that are left.
fn told(refused: &Answer) -> (bool, u64) {
    let body = refused.json();
    assert_eq!(refused.status, 429, "{body}");
    (body["inProgress"].as_bool().unwrap(), body["remainingTime"].as_u64().unwrap())
}

/// How a handler can end, and whether that is a failure. None: its client goes away, and it is dropped.
const ENDS: [(Option<End>, bool); 9] = [
    (Some(End::Status(200)), false),
    (Some(End::Status(204)), false),
    (Some(End::Status(303)), false),
    (Some(End::Status(400)), true),
    (Some(End::Status(404)), true),
    (Some(End::Status(503)), true),
    (Some(End::Error), true),
    (Some(End::Panic), true),
    (None, true),
];

async fn end(running: Running, end: Option<End>) {
    match end {
        Some(end) => drop(running.end_by(end).await),
        None => running.leave().await,
    }
}

/// After each end each policy keeps the rest of the interval, or does not; a kept interval is told apart from one whose
/// handler runs.
///
/// Proves: D8
/// Fault: 41, 43
#[tokio::test]
async fn what_is_kept_after_each_end_is_as_the_release_policy_says() {
    for (engine, web, _server) in engines().await {
        for (release, after_success, after_failure) in [
            (ReleaseWhen::OnCompletion, false, false),
            (ReleaseWhen::OnFailure, true, false),
            (ReleaseWhen::Never, true, true),
        ] {
            let policy = DuplicatePolicy::new().interval(2 * LONG).release(release);
            let policy = policy.key_prefix(format!("{release:?}")).disconnect(Disconnect::Release);
            let bench = Bench::duplicate("/orders", &web, policy).await;
            for (n, (how, failed)) in ENDS.into_iter().enumerate() {
                let shown = format!("{engine}: {release:?} after {how:?}");
                let order = || post_as("alice", "/orders", &json!({"item": n}));
                let first = bench.submit(order()).await.running();
                let (in_progress, left) = told(&bench.submit(order()).await.refused());
                assert!(in_progress && left > 1_000, "{shown}");
                end(first, how).await;
                let kept = if failed { after_failure } else { after_success };
                let after = async {
                    loop {
                        match bench.run(order()).await {
                            answer if answer.status == 200 => return false,
                            // Of a handler that was dropped nobody hears when its guard is.
                            answer if how.is_none() && told(&answer).0 => sleep(POLL).await,
                            answer => {
                                let (in_progress, left) = told(&answer);
                                assert!(!in_progress && (1_000..=60_000).contains(&left), "{shown}");
                                return true;
                            }
                        }
                    }
                };
                assert_eq!(timeout(LONG, after).await.unwrap(), kept, "{shown}");
            }
        }
    }
}

/// However quickly a handler ends, and however, the guard stays closed for its least time; one that takes longer is not held
/// up by it.
///
/// Proves: D8
/// Fault: 41
#[tokio::test]
async fn min_hold_keeps_it_closed_however_quickly_the_handler_ends() {
    let order = |n: usize| post_as("alice", "/orders", &json!({"item": n}));
    for (engine, web, _server) in engines().await {
        let policy = DuplicatePolicy::new().interval(4 * LONG).disconnect(Disconnect::Release);
        let bench = Bench::duplicate("/orders", &web, policy.clone().min_hold(2 * LONG)).await;
        for (n, (how, _)) in ENDS.into_iter().enumerate() {
            let first = bench.submit(order(n)).await.running();
            let (in_progress, left) = told(&bench.submit(order(n)).await.refused());
            assert!(in_progress && left > 60_000, "{engine} {how:?}: {left}");
            end(first, how).await;
            let ended = async {
                loop {
                    match told(&bench.submit(order(n)).await.refused()) {
                        (true, _) if how.is_none() => sleep(POLL).await,
                        (in_progress, left) => break (in_progress, left),
                    }
                }
            };
            let (in_progress, left) = timeout(LONG, ended).await.unwrap();
            assert!(!in_progress && (1_000..=60_000).contains(&left), "{engine} {how:?}: {left}");
        }

        // It ends, long before the interval does.
        let least = Duration::from_millis(100);
        let bench = Bench::duplicate("/orders", &web, policy.min_hold(least).key_prefix("short")).await;
        let first = bench.submit(order(0)).await.running();
        let began = Instant::now();
        assert_eq!(first.finish(DONE).await.status, 200, "{engine}");
        let second = bench.submit_until_let_in(|| order(0)).await;
        assert!(began.elapsed() < 2 * LONG, "{engine}");
        // Whoever takes longer than that has been held for it already.
        sleep(least).await;
        assert_eq!(second.finish(DONE).await.status, 200, "{engine}");
        assert_eq!(bench.run(order(0)).await.status, 200, "{engine}");
    }
}

/// A least time that is longer than the longest interval is cut with the interval.
///
/// Proves: D8, D9
#[tokio::test]
async fn min_hold_is_no_way_around_the_longest_interval() {
    for (engine, web, _server) in engines().await {
        let web = with_settings(&web, Settings::new().intervals(LONG, 2 * LONG));
        let policy = DuplicatePolicy::new().interval(100 * LONG).min_hold(100 * LONG);
        let bench = Bench::duplicate("/orders", &web, policy).await;
        let order = || post_as("alice", "/orders", &json!({"item": 7}));
        assert_eq!(bench.run(order()).await.status, 200);
        let (in_progress, left) = told(&bench.submit(order()).await.refused());
        assert!(!in_progress && (1_000..=60_000).contains(&left), "{engine}: {left}");
    }
}

/// The messages of warnings on this thread.
#[derive(Clone, Default)]
struct Warnings(Arc<Mutex<Vec<String>>>);

impl Warnings {
    fn of_clamps(&self) -> Vec<String> {
        let warnings = self.0.lock().unwrap();
        warnings.iter().filter(|warning| warning.contains("outside of its range")).cloned().collect()
    }
}

impl tracing::Subscriber for Warnings {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() == tracing::Level::WARN
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        struct Text(String);
        impl Visit for Text {
            fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
                self.0 += &format!("{field}={value:?} ");
            }
        }
        let mut text = Text(String::new());
        event.record(&mut text);
        self.0.lock().unwrap().push(text.0);
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

/// An interval outside of the range of the settings is moved to its end, up or down, and that is logged once.
///
/// Proves: D9
#[tokio::test]
async fn an_interval_outside_of_its_range_is_clamped_and_that_is_logged_once() {
    // The runtime has one thread, this one.
    let warnings = Warnings::default();
    let _logging = tracing::subscriber::set_default(warnings.clone());
    // Once in the whole process, so each engine has a range of its own.
    for (n, (engine, web, server)) in (0..).zip(engines().await) {
        let n = Duration::from_millis(n);
        let web = with_settings(&web, Settings::new().intervals(2 * LONG - n, 4 * LONG - n));
        let (mut logged, order) = (0, || post_as("alice", "/orders", &json!({"item": 7})));
        for (interval, least, most, clamped) in [
            (Duration::from_millis(1), 1_000, 60_000, true),
            (3 * LONG, 60_001, 90_000, false),
            (Duration::from_secs(86_400), 90_001, 120_000, true),
        ] {
            let bench = Bench::duplicate("/orders", &web, DuplicatePolicy::new().interval(interval)).await;
            for _ in 0..3 {
                let first = bench.submit(order()).await.running();
                if let Some(server) = &server {
                    let left = server.pttl(&server.keys("*")[0]);
                    assert!((least..=most).contains(&left), "{interval:?} is {left}");
                }
                let (_, left) = told(&bench.submit(order()).await.refused());
                assert!((least..=most).contains(&i64::try_from(left).unwrap()), "{engine} {interval:?}");
                assert_eq!(first.finish(DONE).await.status, 200);
            }
            logged += usize::from(clamped);
            let clamps = warnings.of_clamps();
            assert_eq!(clamps.len(), logged, "{engine} {interval:?}: {clamps:?}");
            assert!(
                !clamped || clamps[logged - 1].contains(&format!("interval={interval:?} ")),
                "{clamps:?}"
            );
        }
        warnings.0.lock().unwrap().clear();
    }
}

/// What a policy cannot mean is refused when the layer is made, not when the first request comes.
#[tokio::test]
async fn a_policy_that_cannot_work_makes_no_layer() {
    let web = Web::new(Guards::new(clinch::LockManager::memory()));
    let refused = |policy: Value| {
        let policy: DuplicatePolicy = serde_json::from_value(policy).unwrap();
        web.duplicate(policy).unwrap_err().to_string()
    };
    for (policy, named) in [
        (json!({"interval": "0s"}), "interval"),
        (json!({"interval": "5s", "min_hold": "6s"}), "min_hold"),
        (json!({"status": 200}), "status"),
    ] {
        let error = refused(policy);
        assert!(error.starts_with(&format!("invalid {named}: ")), "{error}");
    }
}
