//! `Idempotency-Key`: what the draft says, and who and what is told apart.

use std::time::Duration;

use bytes::Bytes;
use clinch::http::Web;
use clinch::submit::{Guards, IdempotencyPolicy, InFlight, Limits, Settings, StoredStatuses};
use http::{Method, Request};
use http_body_util::Full;
use serde_json::json;
use tokio::time::Instant;

use crate::common::{LONG, engines, post, post_as};
use crate::keyed::{From, Work, eventually, from, keyed, of, problem, send, serve, with, with_key};

/// What came before the request that a rule is about.
enum Before {
    Nothing,
    /// This one, which has its answer.
    Done(Request<Full<Bytes>>),
    /// This one, which is still running.
    Running(Request<Full<Bytes>>),
}

/// A rule: what came before, what comes now, and how that is answered.
struct Rule {
    name: &'static str,
    before: Before,
    now: Request<Full<Bytes>>,
    status: u16,
    from: From,
    /// How often the handler has run by then.
    ran: usize,
}

/// The rules of the draft, each with a key of its own.
fn rules() -> Vec<Rule> {
    let (one, two) = (json!({"item": 1}), json!({"item": 2}));
    let rule = |name, before, now, status, from, ran| Rule { name, before, now, status, from, ran };
    let done = |key: &str| Before::Done(keyed(key, "/orders", &one));
    let running = |key: &str| Before::Running(keyed(key, "/orders", &one));
    let failed =
        |key: &str, status: &str| Before::Done(with("x-status", status, keyed(key, "/orders", &one)));
    let line = |line: &str| with_key(line, post_as("alice", "/orders", &one));
    let put = |key: &str| {
        let mut request = keyed(key, "/orders", &one);
        *request.method_mut() = Method::PUT;
        request
    };
    let missing = || problem("idempotency-key-missing");
    let malformed = || problem("idempotency-key-malformed");
    let reused = || problem("idempotency-key-reused");
    let first = || Before::Nothing;
    vec![
        rule("the first one runs", first(), keyed("a", "/orders", &one), 201, From::Run(1), 1),
        rule(
            "a repetition is answered again",
            done("b"),
            keyed("b", "/orders", &one),
            201,
            From::Replay(1),
            1,
        ),
        rule("another payload", done("c"), keyed("c", "/orders", &two), 422, reused(), 1),
        rule("another path", done("d"), keyed("d", "/payments", &one), 422, reused(), 1),
        rule("another query", done("e"), keyed("e", "/orders?dry=1", &one), 422, reused(), 1),
        rule("another verb", done("f"), put("f"), 422, reused(), 1),
        rule("another key", done("g"), keyed("G", "/orders", &one), 201, From::Run(2), 2),
        rule(
            "in flight",
            running("h"),
            keyed("h", "/orders", &one),
            409,
            problem("idempotency-in-flight"),
            1,
        ),
        rule("another payload in flight", running("i"), keyed("i", "/orders", &two), 422, reused(), 1),
        rule("another path in flight", running("j"), keyed("j", "/payments", &one), 422, reused(), 1),
        rule("a refusal stays one", failed("k", "404"), keyed("k", "/orders", &one), 404, From::Replay(1), 1),
        rule(
            "a failure is tried again",
            failed("l", "500"),
            keyed("l", "/orders", &one),
            201,
            From::Run(2),
            2,
        ),
        rule(
            "a failure frees the key",
            failed("m", "503"),
            keyed("m", "/orders", &two),
            201,
            From::Run(2),
            2,
        ),
        rule("missing", first(), post_as("alice", "/orders", &one), 400, missing(), 0),
        rule("no string", first(), line("8e03978e"), 400, malformed(), 0),
        rule("empty", first(), line(""), 400, malformed(), 0),
        rule("an empty string", first(), line("\"\""), 400, malformed(), 0),
        rule("not closed", first(), line("\"n"), 400, malformed(), 0),
        rule("a list", first(), line("\"n\", \"m\""), 400, malformed(), 0),
        rule("a number", first(), line("42"), 400, malformed(), 0),
        rule("bytes", first(), line(":bm8=:"), 400, malformed(), 0),
        rule("twice", first(), with_key("\"o\"", line("\"o\"")), 400, malformed(), 0),
        rule("256 characters", first(), line(&format!("\"{}\"", "x".repeat(256))), 400, malformed(), 0),
        rule("10,000 characters", first(), line(&format!("\"{}\"", "x".repeat(10_000))), 400, malformed(), 0),
        rule("255 characters", first(), line(&format!("\"{}\"", "x".repeat(255))), 201, From::Run(1), 1),
        rule("a parameter", done("p"), line("\"p\";at=1"), 201, From::Replay(1), 1),
        rule("escapes", Before::Done(line(r#""q\"\\""#)), line(r#""q\"\\""#), 201, From::Replay(1), 1),
    ]
}

/// The draft, rule by rule.
///
/// Proves: B9
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_rules_of_the_draft_hold() {
    for (engine, web, _server) in engines().await {
        for Rule { name, before, now, status, from: expected, ran } in rules() {
            let (work, label) = (Work::gated(), format!("{engine}: {name}"));
            let service = serve(&web, IdempotencyPolicy::new().required(true), &work).await;
            let running = match before {
                Before::Nothing => None,
                Before::Done(first) => {
                    work.let_go();
                    assert_eq!(from(&service.send(first).await), From::Run(1), "{label}");
                    None
                }
                Before::Running(first) => {
                    let first = send(&service, first);
                    work.has_begun().await;
                    Some(first)
                }
            };
            if running.is_none() {
                work.let_go();
            }
            let answer = service.send(now).await;
            assert_eq!((answer.status.as_u16(), from(&answer)), (status, expected), "{label}");
            assert_eq!(work.ran(), ran, "{label}");
            let waits = answer.status == 409;
            assert_eq!(answer.header("retry-after"), waits.then_some("1"), "{label}");
            if let Some(first) = running {
                work.let_go();
                assert_eq!(from(&of(first).await), From::Run(1), "{label}");
            }
        }
    }
}

/// Without a key, where none is required, and for verbs that change nothing, the guard does nothing at all.
///
/// Proves: B9
#[tokio::test]
async fn what_has_no_key_or_changes_nothing_passes_unguarded() {
    for (engine, web, server) in engines().await {
        let work = Work::open();
        let service = serve(&web, IdempotencyPolicy::new(), &work).await;
        let body = json!({"item": 1});
        let get = |method: Method| {
            let mut request = keyed("get", "/orders", &body);
            *request.method_mut() = method;
            request
        };
        for run in [1, 2] {
            assert_eq!(from(&service.send(post("/orders", &body)).await), From::Run(run), "{engine}");
        }
        for run in [3, 4] {
            assert_eq!(from(&service.send(get(Method::GET)).await), From::Run(run), "{engine}");
        }
        assert_eq!(service.send(get(Method::OPTIONS)).await.header("x-run"), Some("5"), "{engine}");
        assert_eq!(web.guards().statistics().requests, 0, "{engine}");
        if let Some(server) = &server {
            assert_eq!(server.keys("*"), [""; 0]);
        }
        // They are guarded where that is asked for.
        let service = serve(&web, IdempotencyPolicy::new().safe_methods(true), &work).await;
        assert_eq!(from(&service.send(get(Method::GET)).await), From::Run(6), "{engine}");
        assert_eq!(from(&service.send(get(Method::GET)).await), From::Replay(6), "{engine}");
    }
}

/// Lenient, a bare word is taken too, and is the same key as the quoted one.
///
/// Proves: B9
#[tokio::test]
async fn lenient_mode_takes_bare_words() {
    for (engine, web, _server) in engines().await {
        let work = Work::open();
        let service = serve(&web, IdempotencyPolicy::new().lenient(true), &work).await;
        let request = |line: &str| with_key(line, post_as("alice", "/orders", &json!({})));
        assert_eq!(from(&service.send(request("8e03978e")).await), From::Run(1), "{engine}");
        assert_eq!(from(&service.send(request("8e03978e")).await), From::Replay(1), "{engine}");
        assert_eq!(from(&service.send(request("\"8e03978e\"")).await), From::Replay(1), "{engine}");
        for line in ["two words", "a,b", "\"open", ""] {
            let answer = service.send(request(line)).await;
            assert_eq!((answer.status.as_u16(), from(&answer)), (400, problem("idempotency-key-malformed")));
        }
        assert_eq!(work.ran(), 1, "{engine}");
    }
}

/// The same key of another user is another key, and no key shows who it belongs to, or what it is.
///
/// Proves: B9
#[tokio::test]
async fn keys_of_one_user_are_nothing_to_another() {
    for (engine, web, server) in engines().await {
        let work = Work::gated();
        let service = serve(&web, IdempotencyPolicy::new(), &work).await;
        let as_user = |user: &str| with_key("\"sesame\"", post_as(user, "/orders", &json!({"pin": "4711"})));
        let alice = send(&service, as_user("alice"));
        work.has_begun().await;
        // Not even while it runs.
        let bob = send(&service, as_user("bob"));
        work.has_begun().await;
        if let Some(server) = &server {
            let held = server.keys("*");
            assert_eq!(held.len(), 2);
            for key in held {
                let shown = format!("{key} {}", server.get(&key).unwrap());
                for secret in ["alice", "bob", "sesame", "4711", "orders"] {
                    assert!(!shown.contains(secret), "{shown}");
                }
            }
        }
        work.let_go();
        work.let_go();
        let (alice, bob) = (from(&of(alice).await), from(&of(bob).await));
        let replay = |from: &From| match from {
            From::Run(run) => From::Replay(*run),
            other => panic!("{other:?}"),
        };
        assert_ne!(alice, bob, "{engine}");
        assert_eq!(from(&service.send(as_user("alice")).await), replay(&alice), "{engine}");
        assert_eq!(from(&service.send(as_user("bob")).await), replay(&bob), "{engine}");
    }
}

/// The same key under another word is another key.
#[tokio::test]
async fn a_prefix_keeps_keys_apart() {
    for (engine, web, _server) in engines().await {
        let work = Work::open();
        let orders = serve(&web, IdempotencyPolicy::new().key_prefix("orders"), &work).await;
        let refunds = serve(&web, IdempotencyPolicy::new().key_prefix("refunds"), &work).await;
        let request = || keyed("k", "/orders", &json!({}));
        assert_eq!(from(&orders.send(request()).await), From::Run(1), "{engine}");
        assert_eq!(from(&refunds.send(request()).await), From::Run(2), "{engine}");
        assert_eq!(from(&orders.send(request()).await), From::Replay(1), "{engine}");
    }
}

/// What is excluded may differ, and so may what says the same in other words; all else is another request.
///
/// Proves: B9
#[tokio::test]
async fn excluded_parameters_may_differ() {
    for (engine, web, _server) in engines().await {
        let work = Work::open();
        let policy = IdempotencyPolicy::new().exclude_params(["sentAt", "trace"]);
        let service = serve(&web, policy, &work).await;
        let request = |path: &str, body: &'static str| {
            let mut request = keyed("k", path, &json!(null));
            *request.body_mut() = Full::new(Bytes::from_static(body.as_bytes()));
            request
        };
        let first = request("/orders?trace=1", r#"{"item": 7, "of": 2, "sentAt": 1}"#);
        assert_eq!(from(&service.send(first).await), From::Run(1), "{engine}");
        let again = request("/orders?trace=2", r#"{"sentAt":2,"of":2,"item":7}"#);
        assert_eq!(from(&service.send(again).await), From::Replay(1), "{engine}");
        for (path, body) in [
            ("/orders?trace=1", r#"{"item": 7, "of": 3, "sentAt": 1}"#),
            ("/orders?trace=1", r#"{"item": 7, "of": 2, "sentAt": 1, "more": null}"#),
            ("/orders?trac=1", r#"{"item": 7, "of": 2, "sentAt": 1}"#),
        ] {
            let answer = service.send(request(path, body)).await;
            assert_eq!(from(&answer), problem("idempotency-key-reused"), "{engine}: {path} {body}");
        }
        assert_eq!(work.ran(), 1, "{engine}");
    }
}

/// Which statuses are stored is a policy; what is not stored is carried out again.
///
/// Proves: B9
#[tokio::test]
async fn which_statuses_are_stored_is_a_policy() {
    let statuses = [200, 201, 204, 299, 302, 304, 400, 404, 409, 422, 499, 500, 503];
    for (engine, web, _server) in engines().await {
        for (stored, is_stored) in [
            (None, (|status| status < 300 || (400..500).contains(&status)) as fn(u16) -> bool),
            (Some(StoredStatuses::Success), |status| status < 300),
            (Some(StoredStatuses::SuccessAndClientError), |status| {
                status < 300 || (400..500).contains(&status)
            }),
            (Some(StoredStatuses::All), |_| true),
        ] {
            let policy = IdempotencyPolicy::new().key_prefix(format!("{stored:?}"));
            let policy = stored.into_iter().fold(policy, IdempotencyPolicy::stored);
            let work = Work::open();
            let service = serve(&web, policy, &work).await;
            for status in statuses {
                let (key, text) = (format!("k{status}"), status.to_string());
                let request = || with("x-status", &text, keyed(&key, "/orders", &json!({})));
                let (first, second) = (service.send(request()).await, service.send(request()).await);
                let label = format!("{engine}: {stored:?} {status}");
                assert_eq!((first.status.as_u16(), second.status.as_u16()), (status, status), "{label}");
                assert_eq!(first.header("idempotency-replayed"), None, "{label}");
                let replayed = is_stored(status).then_some("true");
                assert_eq!(second.header("idempotency-replayed"), replayed, "{label}");
                assert_eq!(first.header("x-run") == second.header("x-run"), is_stored(status), "{label}");
                assert!(second.body == first.body || !is_stored(status), "{label}");
            }
        }
    }
}

/// When the time of a result is over, and not before, the same is carried out again.
///
/// Proves: B9
#[tokio::test]
async fn after_its_retention_a_key_is_new() {
    for (engine, web, _server) in engines().await {
        let work = Work::open();
        let retention = Duration::from_millis(300);
        let service = serve(&web, IdempotencyPolicy::new().retention(retention), &work).await;
        let request = || keyed("k", "/orders", &json!({"item": 1}));
        let began = Instant::now();
        assert_eq!(from(&service.send(request()).await), From::Run(1), "{engine}");
        eventually("the key is new", async || match from(&service.send(request()).await) {
            From::Replay(1) => false,
            From::Run(2) => true,
            other => panic!("{engine}: {other:?}"),
        })
        .await;
        assert!(began.elapsed() >= retention, "{engine}: {:?}", began.elapsed());
        assert_eq!(work.ran(), 2, "{engine}");
    }
}

/// In shadow mode everybody is let through, every time, and what would have happened is counted.
///
/// Proves: B9, B14
#[tokio::test]
async fn shadow_mode_counts_and_lets_everybody_through() {
    for (engine, web, _server) in engines().await {
        let work = Work::gated();
        // Nobody waits either.
        let policy = IdempotencyPolicy::new().required(true).shadow(true).in_flight(InFlight::Wait(LONG * 2));
        let service = serve(&web, policy, &work).await;
        let (one, two) = (json!({"item": 1}), json!({"item": 2}));
        let requests = [
            keyed("k", "/orders", &one),
            // In flight, with another payload, missing, malformed.
            keyed("k", "/orders", &one),
            keyed("k", "/orders", &two),
            post_as("alice", "/orders", &one),
            with_key("k", post_as("alice", "/orders", &one)),
        ];
        let mut running = Vec::new();
        for request in requests {
            running.push(send(&service, request));
            work.has_begun().await;
        }
        for (run, answer) in (1..).zip(running) {
            work.let_go();
            assert_eq!(from(&of(answer).await), From::Run(run), "{engine}");
        }
        // What would be answered from the store is carried out as well, or the guard would not only look on.
        work.let_go();
        assert_eq!(from(&service.send(keyed("k", "/orders", &one)).await), From::Run(6), "{engine}");
        let counted = web.guards().statistics();
        assert_eq!((counted.admitted, counted.shadowed), (1, 5), "{engine}: {counted:?}");
        assert_eq!((counted.duplicates, counted.replayed), (0, 0), "{engine}: {counted:?}");
    }
}

/// Who came is counted by what became of them; a bad request is nobody's duplicate.
#[tokio::test]
async fn what_became_of_whom_is_counted() {
    for (engine, web, _server) in engines().await {
        let work = Work::gated();
        let service = serve(&web, IdempotencyPolicy::new().required(true), &work).await;
        let (one, two) = (json!({"item": 1}), json!({"item": 2}));
        let first = send(&service, keyed("k", "/orders", &one));
        work.has_begun().await;
        assert_eq!(service.send(keyed("k", "/orders", &one)).await.status, 409, "{engine}");
        work.let_go();
        of(first).await;
        assert_eq!(from(&service.send(keyed("k", "/orders", &one)).await), From::Replay(1), "{engine}");
        assert_eq!(service.send(keyed("k", "/orders", &two)).await.status, 422, "{engine}");
        assert_eq!(service.send(post("/orders", &one)).await.status, 400, "{engine}");
        assert_eq!(service.send(with_key("k", post("/orders", &one))).await.status, 400, "{engine}");
        let counted = web.guards().statistics();
        assert_eq!(
            (counted.requests, counted.admitted, counted.replayed),
            (6, 1, 1),
            "{engine}: {counted:?}"
        );
        assert_eq!(counted.duplicates, 2, "{engine}: {counted:?}");
    }
}

/// What is too large to be told apart from another request is refused, and not carried out.
///
/// Proves: B9
#[tokio::test]
async fn what_cannot_be_looked_at_is_refused() {
    for (engine, web, _server) in engines().await {
        let limits = Settings::new().limits(Limits::new().body_bytes(32));
        let web = Web::new(Guards::new(web.guards().locks().clone()).with_settings(limits).unwrap());
        let work = Work::open();
        let service = serve(&web, IdempotencyPolicy::new(), &work).await;
        let answer = service.send(keyed("k", "/orders", &json!({"note": "x".repeat(32)}))).await;
        assert_eq!((answer.status.as_u16(), from(&answer)), (413, problem("too-large")), "{engine}");
        assert_eq!(work.ran(), 0, "{engine}");
        assert_eq!(from(&service.send(keyed("k", "/orders", &json!({"note": "x"}))).await), From::Run(1));
    }
}

/// A guard that is switched off does nothing at all.
///
/// Proves: B9
#[tokio::test]
async fn a_guard_that_is_switched_off_does_nothing() {
    for (engine, web, _server) in engines().await {
        let off = Settings::new().enabled(false);
        let all_off = Web::new(Guards::new(web.guards().locks().clone()).with_settings(off).unwrap());
        let policy = IdempotencyPolicy::new().required(true);
        for (web, policy) in [(&web, policy.clone().enabled(false)), (&all_off, policy)] {
            let work = Work::open();
            let service = serve(web, policy, &work).await;
            let body = json!({"item": 1});
            for run in [1, 2] {
                assert_eq!(
                    from(&service.send(keyed("k", "/orders", &body)).await),
                    From::Run(run),
                    "{engine}"
                );
            }
            assert_eq!(from(&service.send(post("/orders", &body)).await), From::Run(3), "{engine}");
            assert_eq!(web.guards().statistics().requests, 0, "{engine}");
        }
    }
}
