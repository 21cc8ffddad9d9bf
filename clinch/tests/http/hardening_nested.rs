//! What an attack found on guards in guards, and on what belongs to one request.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::routing::{MethodRouter, post};
use clinch::Error;
use clinch::submit::{DuplicatePolicy, IdempotencyPolicy, ReleaseWhen};
use tokio::sync::Notify;
use tower::ServiceExt;

use crate::common::gives_up;
use crate::hardening::{req, send, web};

/// Whatever a client writes into its request, it is not somebody else's session, also where the guard does not know the name
/// of the session's cookie.
/// Proves: B9, D3
#[tokio::test]
async fn a_forged_user_id_opens_nothing_where_the_session_is_unknown() {
    let web = web();
    let handler = |headers: http::HeaderMap| async move {
        format!("secret of {}", headers["cookie"].to_str().unwrap())
    };
    let guarded = post(handler).layer(web.idempotency(IdempotencyPolicy::new()).unwrap());
    let app = Router::new().route("/refunds", guarded);
    let of = |cookie: &str, peer: [u8; 4]| {
        let headers = [("idempotency-key", "\"1\""), ("cookie", cookie)];
        let mut request = req("/refunds", &headers, r#"{"userId":42}"#);
        request.extensions_mut().insert(clinch::http::PeerAddress((peer, 4000).into()));
        request
    };
    // `id` is what tower-sessions calls it; the other one is nobody's default.
    for name in ["id", "shop_session"] {
        let (alice, mallory) = (format!("{name}=alice"), format!("{name}=mallory"));
        assert_eq!(send(&app, of(&alice, [192, 0, 2, 1])).await.2, format!("secret of {alice}"));
        assert_eq!(send(&app, of(&mallory, [192, 0, 2, 2])).await.2, format!("secret of {mallory}"));
        let (_, headers, again) = send(&app, of(&alice, [192, 0, 2, 1])).await;
        assert_eq!(again, format!("secret of {alice}"));
        assert!(headers.contains_key("idempotency-replayed"));
    }
}

#[clinch::prevent_duplicate(interval = "5s", release = "never")]
async fn kept() -> Result<&'static str, Error> {
    Ok("kept")
}

#[clinch::prevent_duplicate(interval = "5s", min_hold = "3s")]
async fn held() -> Result<&'static str, Error> {
    Ok("held")
}

/// Of two guards on one submission the one decides that keeps it longer, wherever it stands.
/// Proves: D8
#[tokio::test(start_paused = true)]
async fn what_an_inner_guard_keeps_an_outer_one_does_not_give_away() {
    let web = web();
    let outer = |release| web.duplicate(DuplicatePolicy::new().release(release)).unwrap();
    let app = Router::new()
        .route("/kept", post(kept).layer(outer(ReleaseWhen::OnCompletion)))
        .route("/held", post(held).layer(outer(ReleaseWhen::OnCompletion)))
        .route("/outer", post(held).layer(outer(ReleaseWhen::Never)))
        .layer(web.layer());
    for (path, kept) in [("/kept", 5), ("/held", 3), ("/outer", 5)] {
        assert_eq!(send(&app, req(path, &[], "{}")).await.0, 200, "{path}");
        tokio::time::advance(Duration::from_millis(kept * 1000 - 100)).await;
        assert_eq!(send(&app, req(path, &[], "{}")).await.0, 429, "{path}");
        tokio::time::advance(Duration::from_millis(100)).await;
        assert_eq!(send(&app, req(path, &[], "{}")).await.0, 200, "{path}");
    }
}

#[clinch::lock(key = "ledger", reentrant)]
async fn book(go: Arc<Notify>) -> Result<(), Error> {
    go.notified().await;
    entry().await
}

#[clinch::lock(key = "ledger", reentrant)]
async fn entry() -> Result<(), Error> {
    Ok(())
}

/// A handler that runs on after a layer around it gave up is still in its request's scope, which lasts until it is done.
/// Proves: B6
#[tokio::test(start_paused = true)]
async fn what_runs_on_enters_again_what_it_holds() {
    let web = web();
    let (inside, go, give_up) = (Arc::new(Notify::new()), Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (say, mut said) = tokio::sync::mpsc::unbounded_channel();
    let handler = {
        let (inside, go) = (inside.clone(), go.clone());
        move || async move {
            inside.notify_one();
            say.send(book(go).await.map_err(|error| error.to_string())).unwrap();
        }
    };
    let limit = from_fn_with_state(give_up.clone(), gives_up);
    let guarded: MethodRouter = post(handler).layer(web.duplicate(DuplicatePolicy::new()).unwrap());
    let app = Router::new().route("/orders", guarded.layer(limit)).layer(web.layer());
    let (answer, ()) = tokio::join!(send(&app, req("/orders", &[], "{}")), async {
        inside.notified().await;
        give_up.notify_one();
    });
    assert_eq!(answer.0, 504);
    go.notify_one();
    assert_eq!(said.recv().await.unwrap(), Ok(()));
}

#[clinch::lock(key = "finish", disconnect = "finish")]
async fn lock_finishes(axum::Extension(go): axum::Extension<Arc<Notify>>) -> Result<&'static str, Error> {
    go.notified().await;
    Ok("done")
}

#[clinch::lock(key = "release")]
async fn lock_releases(axum::Extension(go): axum::Extension<Arc<Notify>>) -> Result<&'static str, Error> {
    go.notified().await;
    Ok("done")
}

#[clinch::limit(key = "hold", limit = 1, ttl = "10s", disconnect = "hold")]
async fn limit_holds(axum::Extension(go): axum::Extension<Arc<Notify>>) -> Result<&'static str, Error> {
    go.notified().await;
    Ok("done")
}

/// What happens when the client goes away is also said by attributes of locks and limits.
/// Proves: L11
#[tokio::test(start_paused = true)]
async fn attributes_of_locks_and_limits_have_disconnect_policies() {
    let web = web();
    let go = Arc::new(Notify::new());
    let app = Router::new()
        .route("/finish", post(lock_finishes))
        .route("/release", post(lock_releases))
        .route("/hold", post(limit_holds))
        .layer(web.layer())
        .layer(axum::Extension(go.clone()));
    // The clock stands still until nothing is left to do: whoever has not answered by then waits inside.
    let sent = |path: &'static str| {
        let answer = app.clone().oneshot(req(path, &[], "{}"));
        async move {
            let answer = tokio::time::timeout(Duration::from_millis(50), answer).await;
            answer.ok().map(|answer| answer.unwrap().status().as_u16())
        }
    };
    for path in ["/finish", "/release", "/hold"] {
        assert_eq!(sent(path).await, None, "{path}");
    }
    assert_eq!(sent("/finish").await, Some(409));
    assert_eq!(sent("/release").await, None);
    assert_eq!(sent("/hold").await, Some(503));
    go.notify_one();
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(sent("/finish").await, None, "its handler has ended");
    tokio::time::advance(Duration::from_secs(10)).await;
    assert_eq!(sent("/hold").await, None, "its lease has ended");
}
