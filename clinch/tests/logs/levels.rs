//! Who is told what, and how loudly.

use std::time::Duration;

use axum::Router;
use axum::routing::post;
use clinch::http::Web;
use clinch::submit::{DuplicatePolicy, Guards, Identity, ReleaseWhen, Submission};
use clinch::{Error, LockManager, LockOptions, Strategy};
use clinch_testkit::server::RedisServer;
use http::Request;
use tokio::time::{sleep, timeout};
use tower::ServiceExt;

use crate::common::{LONG, Log, TTL};

/// Proves: O3
#[tokio::test(start_paused = true)]
async fn acquired_and_released_are_details_with_key_guard_and_times() {
    let log = Log::new();
    let locks = LockManager::memory();
    let named = LockOptions::new(TTL).wait(TTL).named("orders");
    let first = locks.lock("order:42", named.clone()).await.unwrap();
    let next = async {
        sleep(Duration::from_secs(2)).await;
        first.release().await.unwrap();
    };
    let (second, ()) = tokio::join!(locks.lock("order:42", named), next);
    drop(second);
    locks.shutdown(LONG).await;
    let acquired = log.lines("DEBUG", &["acquired", "key=lock:order:42"]);
    assert!(acquired.iter().any(|line| line.contains("waited_ms=0")), "{acquired:#?}");
    assert!(acquired.iter().any(|line| line.contains("waited_ms=2000")), "{acquired:#?}");
    let released = log.lines("DEBUG", &["released", "key=lock:order:42", "outcome=\"released\""]);
    assert_eq!(released.len(), 2, "{released:#?}");
    assert!(released[0].contains("held_ms=2000"), "{released:#?}");
    // The span of an attempt says all of it when it closes.
    let spans =
        log.lines("DEBUG", &["attempt{key=lock:order:42 guard=\"orders\"", "outcome=\"acquired\"", "close"]);
    assert_eq!(spans.len(), 2, "{spans:#?}");
    assert!(spans[1].contains("waited_ms=2000"), "{spans:#?}");
    for level in ["WARN", "ERROR"] {
        assert_eq!(log.lines(level, &[]), Vec::<String>::new());
    }
}

/// Proves: O3
#[tokio::test]
async fn a_release_that_did_not_match_is_a_warning_with_its_reason() {
    let log = Log::new();
    let server = RedisServer::start();
    let locks = LockManager::builder().call_timeout(LONG).connect(&server.url()).await.unwrap();
    // In place, and in the background.
    let forgotten = locks.lock("a", TTL).await.unwrap();
    server.command(&["DEL", "clinch:lock:a"]);
    assert!(!forgotten.release().await.unwrap());
    let dropped = locks.lock("b", TTL).await.unwrap();
    server.command(&["DEL", "clinch:lock:b"]);
    drop(dropped);
    let forced = locks.lock("c", TTL).await.unwrap();
    let holder = locks.inspect("c").await.unwrap().remove(0);
    assert!(locks.force_release(&holder).await.unwrap());
    drop(forced);
    let late = locks.lock("d", Duration::from_millis(1_500)).await.unwrap();
    late.lost().await;
    while server.exists("clinch:lock:d") {
        sleep(Duration::from_millis(1)).await;
    }
    drop(late);
    locks.shutdown(LONG).await;
    for (key, reason) in [("a", "taken_over"), ("b", "taken_over"), ("c", "revoked"), ("d", "expired")] {
        let (key, reason) = (format!("key=lock:{key}"), format!("reason=\"{reason}\""));
        let warned = log.lines("WARN", &["a release did not match", &key, &reason]);
        assert_eq!(warned.len(), 1, "{key} {reason}: {:#?}", log.lines("WARN", &[]));
    }
    // The losses that were seen before are told too.
    for (key, why) in [("c", "it was ended by force"), ("d", "its validity ended")] {
        let lost = log.lines("WARN", &["lease lost", &format!("key=lock:{key}"), why]);
        assert_eq!(lost.len(), 1, "{:#?}", log.lines("WARN", &[]));
    }
}

#[clinch::prevent_duplicate(release = "never")]
async fn create() -> Result<&'static str, Error> {
    Ok("done")
}

/// By a layer, by an attribute, and without any web.
///
/// Proves: O3
#[tokio::test]
async fn a_duplicate_is_a_warning_with_key_time_left_and_user_agent() {
    let log = Log::new();
    let guards = Guards::new(LockManager::memory());
    let web = Web::new(guards.clone());
    let never = DuplicatePolicy::new().release(ReleaseWhen::Never);
    let app = Router::new()
        .route("/layer", post(async || "done").layer(web.duplicate(never.clone()).unwrap()))
        .route("/attribute", post(create))
        .layer(web.layer());
    for path in ["/layer", "/attribute"] {
        for status in [200, 429] {
            let request = Request::post(path).header("user-agent", "Browser/7 (of\u{fc} somebody)");
            let answer = app.clone().oneshot(request.body(axum::body::Body::empty()).unwrap()).await.unwrap();
            assert_eq!(answer.status(), status, "{path}");
        }
        let key = format!("key=POST%20{path}:");
        let told =
            log.lines("WARN", &["duplicate submission", &key, "remaining=", "user_agent=\"Browser/7 (of"]);
        assert_eq!(told.len(), 1, "{path}: {:#?}", log.lines("WARN", &[]));
    }
    let submission = Submission::of("f").user(Identity::user("ann"));
    guards.duplicate(&never, &submission).await.unwrap().finish(true).await;
    guards.duplicate(&never, &submission).await.unwrap_err();
    assert_eq!(log.lines("WARN", &["duplicate submission", "key=f:"]).len(), 1);
}

/// An engine that is down is an error in the log, and not one for each who finds out.
///
/// Proves: O3
#[tokio::test]
async fn an_engine_failure_is_an_error_that_is_not_said_over_and_over() {
    let log = Log::new();
    let server = RedisServer::start();
    let locks = LockManager::connect(&server.url()).await.unwrap();
    let held = locks.lock("held", Duration::from_millis(1_500)).await.unwrap();
    server.kill();
    drop(held);
    let began = tokio::time::Instant::now();
    let goes_on = LockOptions::new(TTL).strategy(Strategy::Proceed);
    let crowd = async {
        for n in 0..500 {
            assert!(locks.attempt(format!("a{n}"), TTL).await.unwrap().guard().is_none());
            assert!(locks.attempt(format!("b{n}"), goes_on.clone()).await.unwrap().guard().is_some());
        }
    };
    timeout(LONG, crowd).await.unwrap();
    // One a second, and one besides, for each operation and kind of failure.
    let most = usize::try_from(2 * (began.elapsed().as_secs() + 2)).unwrap();
    let errors = log.lines("ERROR", &["engine failure", "operation=\"acquire\"", "error="]);
    assert!((1..=most).contains(&errors.len()), "{errors:#?}");
    let errors = log.lines("ERROR", &["engine failure", "operation=\"release\""]);
    assert!((1..=most).contains(&errors.len()), "{errors:#?}");
    assert_eq!(log.lines("ERROR", &["the engine does not answer"]).len(), 1);
    let warned = log.lines("WARN", &["going on unprotected"]);
    assert!((1..=most).contains(&warned.len()), "{warned:#?}");
    // Those who listen for details have them all.
    let told = log.lines("DEBUG", &["going on unprotected"]).len() + warned.len();
    assert_eq!(told, 500);
    while log.lines("WARN", &["a lease was not given back", "key=lock:held"]).is_empty() {
        assert!(began.elapsed() < LONG, "{}", log.text());
        sleep(Duration::from_millis(10)).await;
    }
    server.restart();
    while log.lines("INFO", &["the engine answers again"]).is_empty() {
        assert!(began.elapsed() < LONG, "{}", log.text());
        sleep(Duration::from_millis(10)).await;
    }
}

/// Every line that the manual lists is one that the library has.
#[test]
fn the_manual_lists_what_is_said() {
    let manual = include_str!("../../../docs/operations.md");
    let mut said = Vec::new();
    let mut folders = vec![std::path::PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/src"))];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                said.extend(messages(&std::fs::read_to_string(path).unwrap()));
            }
        }
    }
    assert!(said.len() > 15, "{said:?}");
    let missing: Vec<_> = said.iter().filter(|message| !manual.contains(*message)).collect();
    assert!(missing.is_empty(), "not in docs/operations.md: {missing:#?}");
}

/// The messages of all events above `debug` in a source: the last string of each.
fn messages(source: &str) -> Vec<String> {
    let mut found = Vec::new();
    for level in ["info", "warn", "error"] {
        for call in source.split(&format!("tracing::{level}!(")).skip(1) {
            let call = call.split_once(");").map_or(call, |(call, _)| call);
            let message = call.rsplit('"').nth(1).unwrap_or_default();
            // What is filled in is not part of it.
            found.push(message.split('{').next().unwrap_or_default().to_owned());
        }
    }
    found
}
