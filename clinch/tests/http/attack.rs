//! What a second attack found: on requests inside of requests, on guards that say different things of one submission, and on
//! what a body's readers do to each other.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::routing::{MethodRouter, post};
use bytes::Bytes;
use clinch::Error;
use clinch::LockOptions;
use clinch::submit::{
    Disconnect, DuplicatePolicy, IdempotencyPolicy, Identity, LockPolicy, ReleaseWhen, Submission,
};
use http_body::Frame;
use http_body_util::StreamBody;

use crate::hardening::{req, send, web};

/// A handler that sends requests of its own to the router, as a batch does, submits each of them.
/// Proves: D2, D7
#[tokio::test(start_paused = true)]
async fn two_equal_requests_in_one_batch_are_duplicates() {
    let web = web();
    let ran = Arc::new(AtomicUsize::new(0));
    let order = {
        let ran = ran.clone();
        move || async move {
            ran.fetch_add(1, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    let orders = Router::new()
        .route("/layer", post(order).layer(web.duplicate(DuplicatePolicy::new()).unwrap()))
        .route("/attribute", post(slow))
        .layer(web.layer());
    let inner = orders.clone();
    let batch = move |path: String| async move {
        let one = || req(&path, &[], "{}");
        let (a, b) = tokio::join!(send(&inner, one()), send(&inner, one()));
        format!("{} {}", a.0, b.0)
    };
    let app = orders.merge(Router::new().route("/batch", post(batch)).layer(web.layer()));
    for path in ["/layer", "/attribute"] {
        assert_eq!(send(&app, req("/batch", &[], path)).await.2, "200 429", "{path}");
    }
    assert_eq!(ran.load(Ordering::SeqCst), 1);
}

#[clinch::prevent_duplicate]
async fn slow() -> Result<&'static str, Error> {
    tokio::time::sleep(Duration::from_secs(1)).await;
    Ok("done")
}

/// A key that a layer outside has for this request is no other request's.
/// Proves: B9
#[tokio::test]
async fn a_request_is_not_in_flight_for_itself() {
    let web = web();
    let ran = Arc::new(AtomicUsize::new(0));
    let layer = || web.idempotency(IdempotencyPolicy::new()).unwrap();
    let handler = {
        let ran = ran.clone();
        move || async move { ran.fetch_add(1, Ordering::SeqCst).to_string() }
    };
    let route: MethodRouter = post(handler).layer(layer());
    let app = Router::new().route("/pay", route).layer(layer());
    let request = || req("/pay", &[("idempotency-key", "\"k\""), ("authorization", "a")], "{}");
    let (status, headers, body) = send(&app, request()).await;
    assert_eq!((status, &*body, headers.get("idempotency-replayed")), (200, "0", None));
    let (status, headers, body) = send(&app, request()).await;
    assert_eq!((status, &*body), (200, "0"));
    assert!(headers.contains_key("idempotency-replayed"));
    assert_eq!(ran.load(Ordering::SeqCst), 1);
}

#[clinch::prevent_duplicate(interval = "60s", release = "never")]
async fn a_minute() -> Result<&'static str, Error> {
    Ok("kept")
}

#[clinch::prevent_duplicate(interval = "60s", min_hold = "30s")]
async fn half_a_minute() -> Result<&'static str, Error> {
    Ok("held")
}

#[clinch::prevent_duplicate(interval = "60s")]
async fn long() -> Result<&'static str, Error> {
    tokio::time::sleep(Duration::from_secs(20)).await;
    Ok("long")
}

#[clinch::prevent_duplicate(interval = "5s", renew)]
async fn renewed() -> Result<&'static str, Error> {
    tokio::time::sleep(Duration::from_secs(20)).await;
    Ok("renewed")
}

/// An attribute's own interval counts, also under a layer for the whole router that has a shorter one.
/// Proves: D8
#[tokio::test(start_paused = true)]
async fn the_longer_interval_of_an_inner_guard_counts() {
    let web = web();
    for (release, path, kept) in [
        (ReleaseWhen::OnCompletion, "/a_minute", 60),
        (ReleaseWhen::Never, "/a_minute", 60),
        (ReleaseWhen::OnCompletion, "/half_a_minute", 30),
        (ReleaseWhen::Never, "/half_a_minute", 30),
    ] {
        let outer = web.duplicate(DuplicatePolicy::new().release(release)).unwrap();
        let app = Router::new()
            .route("/a_minute", post(a_minute))
            .route("/half_a_minute", post(half_a_minute))
            .layer(outer)
            .layer(web.layer());
        let who = format!("{release:?} {path}");
        let sent = || req(path, &[("authorization", &who)], "{}");
        assert_eq!(send(&app, sent()).await.0, 200, "{who}");
        tokio::time::advance(Duration::from_millis(kept * 1000 - 200)).await;
        assert_eq!(send(&app, sent()).await.0, 429, "{who}");
        tokio::time::advance(Duration::from_millis(300)).await;
        assert_eq!(send(&app, sent()).await.0, 200, "{who}");
    }
}

/// An attribute that renews, or has the longer interval, protects for as long as it says, also under a layer that does not.
/// Proves: D2, B3
#[tokio::test(start_paused = true)]
async fn an_inner_guard_protects_for_as_long_as_it_says() {
    let web = web();
    let outer = web.duplicate(DuplicatePolicy::new()).unwrap();
    let app = Router::new()
        .route("/renewed", post(renewed))
        .route("/long", post(long))
        .layer(outer)
        .layer(web.layer());
    for path in ["/renewed", "/long"] {
        let (first, (second, third)) = tokio::join!(send(&app, req(path, &[], "{}")), async {
            tokio::time::sleep(Duration::from_secs(7)).await;
            let second = send(&app, req(path, &[], "{}")).await;
            tokio::time::sleep(Duration::from_secs(12)).await;
            (second, send(&app, req(path, &[], "{}")).await)
        });
        assert_eq!((first.0, second.0, third.0), (200, 429, 429), "{path}");
    }
}

/// What is no text in a path is not the text that spells it.
/// Proves: D4
#[tokio::test(start_paused = true)]
async fn a_path_that_is_no_text_is_not_the_one_that_spells_it() {
    let web = web();
    let layer = web.duplicate(DuplicatePolicy::new().release(ReleaseWhen::Never)).unwrap();
    let app = Router::new().route("/o/{id}", post(|| async {}).layer(layer));
    assert_eq!(send(&app, req("/o/%25ff", &[], "{}")).await.0, 200);
    assert_eq!(send(&app, req("/o/%25ff", &[], "{}")).await.0, 429);
    assert_eq!(send(&app, req("/o/%ff", &[], "{}")).await.0, 200);
    assert_eq!(send(&app, req("/o/%fe", &[], "{}")).await.0, 200);
    assert_eq!(send(&app, req("/o/%ff", &[], "{}")).await.0, 429);
}

#[clinch::prevent_duplicate]
async fn looked_at() -> Result<(), Error> {
    Ok(())
}

/// A task that reads the body and a guard that looks at it do not take each other's wake-ups.
/// Proves: D4
#[tokio::test(start_paused = true)]
async fn a_guard_that_looks_at_a_body_does_not_leave_its_reader_asleep() {
    let web = web();
    let handler = |body: Body| async move {
        let reader = tokio::spawn(to_bytes(body, usize::MAX));
        // The reader waits for the client before the guard does.
        tokio::task::yield_now().await;
        looked_at().await.unwrap();
        let read = tokio::time::timeout(Duration::from_secs(10), reader).await;
        read.map_or("asleep".to_owned(), |read| format!("{:?}", read.unwrap().unwrap()))
    };
    let app = Router::new().route("/orders", post(handler)).layer(web.layer());
    let (client, mut sent) = tokio::sync::mpsc::unbounded_channel();
    let body =
        Body::new(StreamBody::new(futures_util::stream::poll_fn(move |context| sent.poll_recv(context))));
    let (answer, ()) = tokio::join!(send(&app, req("/orders", &[], body)), async move {
        tokio::time::sleep(Duration::from_millis(10)).await;
        client.send(Ok::<_, Error>(Frame::data(Bytes::from_static(b"{}")))).unwrap();
    });
    assert_eq!(answer.2, r#"b"{}""#);
}

/// A guard that only looks on keeps nobody waiting.
/// Proves: B14
#[tokio::test(start_paused = true)]
async fn shadow_mode_keeps_nobody_waiting() {
    let web = web();
    let lock = web.lock(LockPolicy::new("k").wait(Duration::from_secs(5)).shadow(true)).unwrap();
    let app = Router::new().route("/pay", post(|| async {}).layer(lock));
    let _held = web.guards().locks().lock("k", LockOptions::new(Duration::from_secs(60))).await.unwrap();
    let before = tokio::time::Instant::now();
    assert_eq!(send(&app, req("/pay", &[], "{}")).await.0, 200);
    assert_eq!(before.elapsed(), Duration::ZERO);
}

/// What a user sent is not shown.
#[test]
fn the_debug_of_a_submission_shows_nothing_of_its_parameters() {
    let submission = Submission::of("pay").user(Identity::user("alice")).param("card", &"4111 1111").unwrap();
    let shown = format!("{submission:?}");
    assert!(shown.contains("pay") && !shown.contains("4111") && !shown.contains("alice"), "{shown}");
}

/// What was carried out is stored, also if the client goes away before that is done, and whatever then becomes of handlers that
/// are not done.
/// Proves: B9
#[tokio::test(start_paused = true)]
async fn a_result_is_stored_also_if_its_client_is_gone_by_then() {
    for disconnect in [Disconnect::Release, Disconnect::Hold, Disconnect::Finish] {
        let web = web();
        let ran = Arc::new(AtomicUsize::new(0));
        let handler = {
            let ran = ran.clone();
            move || async move {
                ran.fetch_add(1, Ordering::SeqCst);
                // It takes a moment until the body is whole.
                Body::from_stream(futures_util::stream::once(async {
                    tokio::time::sleep(Duration::from_secs(1)).await;
                    Ok::<_, Error>("paid")
                }))
            }
        };
        let policy = IdempotencyPolicy::new().disconnect(disconnect);
        let app = Router::new().route("/pay", post(handler).layer(web.idempotency(policy).unwrap()));
        let request = || req("/pay", &[("idempotency-key", "\"k\""), ("authorization", "a")], "{}");
        let gone = tokio::time::timeout(Duration::from_millis(500), send(&app, request())).await;
        assert!(gone.is_err());
        tokio::time::sleep(Duration::from_secs(3600)).await;
        let (status, _, body) = send(&app, request()).await;
        assert_eq!((status, &*body, ran.load(Ordering::SeqCst)), (200, "paid", 1), "{disconnect:?}");
    }
}
