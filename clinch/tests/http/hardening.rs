//! What an attack on the guards over HTTP found: what they must not mix up, and what must not get around them.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Query, Request};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use bytes::Bytes;
use clinch::http::{VerifiedUser, Web};
use clinch::submit::{
    Disconnect, DuplicatePolicy, Guards, IdempotencyPolicy, Limits, LockPolicy, ReleaseWhen, Settings,
    Streaming,
};
use clinch::{Error, LockManager, LockOptions};
use http::StatusCode;
use http_body::Frame;
use tokio::sync::Notify;
use tower::ServiceExt;

use crate::common::gives_up;

pub(crate) fn web() -> Web {
    Web::new(Guards::new(LockManager::memory()))
}

pub(crate) fn req(path: &str, headers: &[(&str, &str)], body: impl Into<Body>) -> Request {
    let mut builder = Request::builder().method("POST").uri(path).header("content-type", "application/json");
    for (name, value) in headers {
        builder = builder.header(*name, *value);
    }
    builder.body(body.into()).unwrap()
}

pub(crate) async fn send(app: &Router, request: Request) -> (u16, http::HeaderMap, String) {
    let response: Response = app.clone().oneshot(request).await.unwrap_or_else(|e: Infallible| match e {});
    let (parts, body) = response.into_parts();
    let body = to_bytes(body, usize::MAX).await.unwrap();
    (parts.status.as_u16(), parts.headers, String::from_utf8_lossy(&body).into_owned())
}

// Idempotency outside of a lock: the refusal of the lock is stored for a day.
#[tokio::test]
async fn a_refusal_of_an_inner_guard_is_not_the_result_of_the_request() {
    let web = web();
    let handler: axum::routing::MethodRouter =
        post(|| async { "paid" }).layer(web.lock(LockPolicy::new("order")).unwrap());
    let app = Router::new().route("/pay", handler.layer(web.idempotency(IdempotencyPolicy::new()).unwrap()));
    let held = web.guards().locks().lock("order", LockOptions::new(Duration::from_secs(5))).await.unwrap();
    let request = || req("/pay", &[("idempotency-key", "\"k\""), ("authorization", "a")], "{}");
    let (status, ..) = send(&app, request()).await;
    assert_eq!(status, 409);
    held.release().await.unwrap();
    let (status, headers, body) = send(&app, request()).await;
    assert_eq!((status, headers.get("idempotency-replayed")), (200, None), "{body}");
}

#[clinch::lock(key = "order")]
async fn pay() -> Result<&'static str, Error> {
    Ok("paid")
}

#[tokio::test]
async fn a_refusal_of_an_attribute_is_not_the_result_of_the_request() {
    let web = web();
    let app = Router::new()
        .route("/pay", post(pay).layer(web.idempotency(IdempotencyPolicy::new()).unwrap()))
        .layer(web.layer());
    let held = web.guards().locks().lock("order", LockOptions::new(Duration::from_secs(5))).await.unwrap();
    let request = || req("/pay", &[("idempotency-key", "\"k\""), ("authorization", "a")], "{}");
    assert_eq!(send(&app, request()).await.0, 409);
    held.release().await.unwrap();
    let (status, headers, body) = send(&app, request()).await;
    assert_eq!((status, headers.get("idempotency-replayed")), (200, None), "{body}");
}

// Replay across principals: `userId` is forgeable and beats the session.
#[tokio::test]
async fn a_forged_user_id_does_not_get_another_sessions_stored_response() {
    let web = web();
    let app = Router::new().route(
        "/refunds",
        post(|headers: http::HeaderMap| async move {
            // What the application authenticates by.
            format!("secret of {}", headers["cookie"].to_str().unwrap())
        })
        .layer(web.idempotency(IdempotencyPolicy::new()).unwrap()),
    );
    let of =
        |cookie| req("/refunds", &[("idempotency-key", "\"1\""), ("cookie", cookie)], r#"{"userId":42}"#);
    assert_eq!(send(&app, of("sid=alice")).await.2, "secret of sid=alice");
    assert_eq!(send(&app, of("sid=mallory")).await.2, "secret of sid=mallory");
}

// Shadow mode: errors of the manager itself still refuse.
#[tokio::test]
async fn in_shadow_mode_a_manager_that_is_shut_down_refuses_nobody() {
    let web = web();
    let app = Router::new()
        .route(
            "/dup",
            post(|| async { "ok" }).layer(web.duplicate(DuplicatePolicy::new().shadow(true)).unwrap()),
        )
        .route("/lock", post(|| async { "ok" }).layer(web.lock(LockPolicy::new("k").shadow(true)).unwrap()))
        .route(
            "/idem",
            post(|| async { "ok" }).layer(web.idempotency(IdempotencyPolicy::new().shadow(true)).unwrap()),
        );
    web.guards().locks().shutdown(Duration::from_secs(1)).await;
    for path in ["/idem", "/dup", "/lock"] {
        assert_eq!(send(&app, req(path, &[("idempotency-key", "\"k\"")], "{}")).await.0, 200, "{path}");
    }
}

// Shadow mode: a body that breaks off looks whole to the handler.
struct Breaks(usize);
impl http_body::Body for Breaks {
    type Data = Bytes;
    type Error = std::io::Error;
    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        self.0 += 1;
        Poll::Ready(match self.0 {
            1 => Some(Ok(Frame::data(Bytes::from_static(b"half")))),
            2 => Some(Err(std::io::Error::other("connection reset"))),
            _ => None,
        })
    }
}

#[tokio::test]
async fn in_shadow_mode_a_handler_sees_that_its_body_broke_off() {
    let web = web();
    let app = Router::new().route(
        "/upload",
        post(
            |body: Body| async move { format!("{:?}", to_bytes(body, 1000).await.map_err(|_| "broke off")) },
        )
        .layer(web.duplicate(DuplicatePolicy::new().shadow(true)).unwrap()),
    );
    let (status, _, seen) = send(&app, req("/upload", &[], Body::new(Breaks(0)))).await;
    assert_eq!((status, seen.as_str()), (200, r#"Err("broke off")"#));
}

#[clinch::prevent_duplicate(shadow)]
async fn upload(body: Body) -> Result<String, Error> {
    Ok(format!("{:?}", to_bytes(body, 1000).await.map_err(|_| "broke off")))
}

#[tokio::test]
async fn in_shadow_mode_a_handler_with_an_attribute_sees_that_its_body_broke_off() {
    let web = web();
    let app = Router::new().route("/upload", post(upload)).layer(web.layer());
    let (status, _, seen) = send(&app, req("/upload", &[], Body::new(Breaks(0)))).await;
    assert_eq!((status, seen.as_str()), (200, r#"Err("broke off")"#));
}

// The same submission looked at twice in one request.
#[clinch::prevent_duplicate]
async fn create() -> Result<&'static str, Error> {
    charge().await?;
    Ok("created")
}
#[clinch::prevent_duplicate]
async fn charge() -> Result<(), Error> {
    Ok(())
}

#[tokio::test]
async fn a_request_is_no_duplicate_of_itself() {
    let web = web();
    let app = Router::new().route("/orders", post(create)).layer(web.layer());
    let (status, _, body) = send(&app, req("/orders", &[], "{}")).await;
    assert_eq!(status, 200, "{body}");
}

#[clinch::prevent_duplicate]
async fn only() -> Result<&'static str, Error> {
    Ok("created")
}

#[tokio::test]
async fn a_layer_and_an_attribute_on_one_route_do_not_refuse_each_other() {
    let web = web();
    let app = Router::new()
        .route("/orders", post(only))
        .layer(web.duplicate(DuplicatePolicy::new()).unwrap())
        .layer(web.layer());
    let (status, _, body) = send(&app, req("/orders", &[], "{}")).await;
    assert_eq!(status, 200, "{body}");
}

/// A verified user is seen by attributes if authentication stands outside of the router's layer, as its documentation says.
///
/// Proves: D3
#[tokio::test]
async fn an_attribute_knows_the_verified_user_of_a_layer_outside_of_the_routers() {
    #[clinch::prevent_duplicate(release = "never")]
    async fn order() -> Result<&'static str, Error> {
        Ok("ok")
    }
    async fn authenticate(mut request: Request, next: Next) -> Response {
        let id = request.headers()["x-session"].to_str().unwrap().to_owned();
        request.extensions_mut().insert(VerifiedUser(id));
        next.run(request).await
    }
    let web = web();
    let app = Router::new().route("/orders", post(order)).layer(web.layer()).layer(from_fn(authenticate));
    for (user, status) in [("alice", 200), ("bob", 200), ("alice", 429)] {
        assert_eq!(send(&app, req("/orders", &[("x-session", user)], "{}")).await.0, status, "{user}");
    }
}

// A stale answer.
#[clinch::lock(key = "a", status = 423, message = "A is busy")]
async fn take_a() -> Result<(), Error> {
    Ok(())
}

#[tokio::test]
async fn a_refusal_that_was_handled_does_not_colour_the_next_one() {
    let web = web();
    let locks = web.guards().locks().clone();
    let _a = locks.lock("a", LockOptions::new(Duration::from_secs(5))).await.unwrap();
    let _b = locks.lock("b", LockOptions::new(Duration::from_secs(5))).await.unwrap();
    let handler = move || {
        let locks = locks.clone();
        async move {
            // Goes on without it.
            let _ = take_a().await;
            let _b = locks.lock("b", LockOptions::new(Duration::from_secs(5))).await?;
            Ok::<_, Error>("done")
        }
    };
    let app = Router::new().route("/x", post(handler)).layer(web.layer());
    let (status, _, body) = send(&app, req("/x", &[], "{}")).await;
    assert!(!body.contains("A is busy"), "{body}");
    assert_eq!(status, 409);
}

// A layer that gives up between the router's layer and a guard that finishes.
#[clinch::lock(key = "ledger")]
async fn note() -> Result<(), Error> {
    Ok(())
}

// The clock stands still until nothing is left to do.
#[tokio::test(start_paused = true)]
async fn what_a_layer_in_between_gave_up_runs_on_in_its_request() {
    let web = web();
    let (go, give_up) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (say, mut said) = tokio::sync::mpsc::unbounded_channel();
    let handler = {
        let go = go.clone();
        move || async move {
            go.notified().await;
            say.send(note().await.map_err(|e| e.to_string())).unwrap();
            "done"
        }
    };
    let limit = from_fn_with_state(give_up.clone(), gives_up);
    let guarded: axum::routing::MethodRouter =
        post(handler).layer(web.duplicate(DuplicatePolicy::new()).unwrap());
    let app = Router::new().route("/orders", guarded.layer(limit)).layer(web.layer());
    let (answer, ()) = tokio::join!(send(&app, req("/orders", &[], "{}")), async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        give_up.notify_one();
    });
    assert_eq!(answer.0, 504);
    go.notify_one();
    assert_eq!(said.recv().await.unwrap(), Ok(()));
}

// Until_end and finish: a success in the background counts as a failure.
// The clock stands still until nothing is left to do.
#[tokio::test(start_paused = true)]
async fn a_success_in_the_background_is_one_also_if_it_is_held_until_the_end_of_the_body() {
    for streaming in [Streaming::UntilHead, Streaming::UntilEnd] {
        let web = web();
        let go = Arc::new(Notify::new());
        let ran = Arc::new(AtomicUsize::new(0));
        let handler = {
            let (go, ran) = (go.clone(), ran.clone());
            move || async move {
                ran.fetch_add(1, Ordering::SeqCst);
                go.notified().await;
                "charged"
            }
        };
        let policy = DuplicatePolicy::new().release(ReleaseWhen::OnFailure).streaming(streaming);
        let app = Router::new().route("/orders", post(handler).layer(web.duplicate(policy).unwrap()));
        let gone = app.clone().oneshot(req("/orders", &[], "{}"));
        let _ = tokio::time::timeout(Duration::from_millis(50), gone).await.unwrap_err();
        assert_eq!(ran.load(Ordering::SeqCst), 1);
        go.notify_one();
        tokio::time::sleep(Duration::from_millis(100)).await;
        go.notify_one();
        // It was carried out with success, so the rest of the interval is kept.
        let (status, ..) = send(&app, req("/orders", &[], "{}")).await;
        assert_eq!(status, 429, "{streaming:?}");
    }
}

// A body that fails by itself is no client that goes away.
// The clock stands still until nothing is left to do.
#[tokio::test(start_paused = true)]
async fn a_response_body_that_fails_is_a_failure_and_no_disconnect() {
    let web = web();
    let policy = DuplicatePolicy::new().streaming(Streaming::UntilEnd).disconnect(Disconnect::Hold);
    let app = Router::new()
        .route("/orders", post(|| async { Body::new(Breaks(0)) }).layer(web.duplicate(policy).unwrap()));
    let response = app.clone().oneshot(req("/orders", &[], "{}")).await.unwrap();
    assert!(to_bytes(response.into_body(), 100).await.is_err());
    tokio::time::sleep(Duration::from_millis(50)).await;
    let response = app.clone().oneshot(req("/orders", &[], "{}")).await.unwrap();
    assert_eq!(response.status(), 200);
}

// Limits of the settings do not reach the identity.
#[tokio::test]
async fn a_user_in_a_large_body_is_found_within_the_limits_of_the_settings() {
    let settings = Settings::new().limits(Limits::new().body_bytes(10 << 20));
    let guards = Guards::new(LockManager::memory()).with_settings(settings).unwrap();
    let web = Web::new(guards);
    let policy = DuplicatePolicy::new().include_params(false).release(ReleaseWhen::Never);
    let app = Router::new().route("/orders", post(|| async { "ok" }).layer(web.duplicate(policy).unwrap()));
    let body = |user: &str| format!(r#"{{"userId":"{user}","text":"{}"}}"#, "x".repeat(3 << 20));
    assert_eq!(send(&app, req("/orders", &[], body("alice"))).await.0, 200);
    assert_eq!(send(&app, req("/orders", &[], body("bob"))).await.0, 200);
}

// Repeated parameters in a lock's key.
#[tokio::test]
async fn a_parameter_that_is_there_twice_is_no_way_around_a_lock() {
    let web = web();
    let app = Router::new().route(
        "/pay",
        post(|Query(q): Query<std::collections::HashMap<String, String>>| async move { q["id"].clone() })
            .layer(web.lock(LockPolicy::new("order:{id}")).unwrap()),
    );
    let _held =
        web.guards().locks().lock("order:42", LockOptions::new(Duration::from_secs(5))).await.unwrap();
    assert_eq!(send(&app, req("/pay?id=42", &[], "{}")).await.0, 409);
    let (status, _, worked_on) = send(&app, req("/pay?id=1&id=42", &[], "{}")).await;
    assert_ne!((status, worked_on.as_str()), (200, "42"), "worked on 42 without its lock");
}

// Policies that cannot work.
#[tokio::test]
async fn a_layer_whose_policy_cannot_work_is_not_made() {
    let web = web();
    let mut made = Vec::new();
    for (what, policy) in [
        ("ttl 0", LockPolicy::new("k").ttl(Duration::ZERO)),
        ("ttl 10 years", LockPolicy::new("k").ttl(Duration::from_secs(86_400 * 3650))),
        ("retry 0", LockPolicy::new("k").wait(Duration::from_secs(1)).retry_interval(Duration::ZERO)),
        ("shared and fenced", LockPolicy::new("k").shared(true).fenced(true)),
        ("label", LockPolicy::new("k").label("x".repeat(1000))),
    ] {
        if web.lock(policy).is_ok() {
            made.push(what);
        }
    }
    if web.idempotency(IdempotencyPolicy::new().lease(Duration::from_secs(86_400 * 3650))).is_ok() {
        made.push("idempotency lease 10 years");
    }
    if Guards::new(LockManager::memory())
        .with_settings(Settings::new().intervals(Duration::from_millis(1), Duration::from_secs(86_400 * 30)))
        .is_ok()
    {
        made.push("intervals of 1 ms to 30 days");
    }
    assert!(made.is_empty(), "{made:?}");
}

// Ok with a status that is none of the known shapes.
#[clinch::prevent_duplicate(release = "on_failure")]
async fn four() -> Result<impl IntoResponse, Error> {
    Ok((StatusCode::BAD_REQUEST, [("x-a", "1")], [("x-b", "2")], "no"))
}
#[tokio::test]
async fn an_ok_that_begins_with_a_status_of_400_is_a_failure() {
    let web = web();
    let app = Router::new().route("/four", post(four)).layer(web.layer());
    for _ in 0..2 {
        assert_eq!(send(&app, req("/four", &[], "{}")).await.0, 400);
    }
}

// A key of the fleet hides users, but not parameters.
#[tokio::test]
async fn with_a_fleet_key_parameters_cannot_be_guessed_from_keys() {
    let key = |secret: &'static [u8]| async move {
        let locks = LockManager::memory();
        let guards = Guards::new(locks.clone()).with_fleet_key(secret);
        let submission = clinch::submit::Submission::of("login")
            .user(clinch::submit::Identity::user("42"))
            .param("password", &"hunter2")
            .unwrap();
        let policy = DuplicatePolicy::new();
        let _first = guards.duplicate(&policy, &submission).await.unwrap();
        match guards.duplicate(&policy, &submission).await {
            Err(Error::DuplicateSubmit { key, .. }) => key.to_string(),
            _ => panic!(),
        }
    };
    let (one, two) = (key(b"one").await, key(b"two").await);
    assert_ne!(one.rsplit(':').next(), two.rsplit(':').next(), "{one} {two}");
}
