//! A run of everything with secrets in every place that has room for one, told in all detail; none of them is in the log.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::extract::State;
use axum::routing::post;
use axum::{Json, Router};
use bytes::Bytes;
use clinch::http::{IdentityChain, SessionCookie, Web};
use clinch::store::Cursor;
use clinch::submit::{DuplicatePolicy, Guards, IdempotencyPolicy, LimitPolicy, LockPolicy};
use clinch::{Error, LockManager, LockOptions, Strategy};
use clinch_testkit::proxy::{Action, FaultProxy, Rule};
use clinch_testkit::server::RedisServer;
use http::Request;
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use tokio::net::TcpListener;
use tokio::time::{sleep, timeout};

use crate::common::{LONG, Log, TTL};

const PASSWORD: &str = "p4ss-of-the-engine";
const DEFAULT_PASSWORD: &str = "p4ss-of-the-default-user";
const BEARER: &str = "b34r3r-credential";
const BASIC: &str = "YW5uOnMzY3IzdA";
const SESSION: &str = "s3ss10n-cookie";
const FLEET: &str = "fl33t-key";
const IDEMPOTENCY: &str = "1d3mp0t3ncy-key";

/// Tokens that were seen: the beginning of the random part is enough to know them by.
#[derive(Clone, Default)]
struct Tokens(Arc<Mutex<BTreeSet<String>>>);

impl Tokens {
    fn see(&self, token: &str) {
        assert!(token.split('@').next().unwrap().len() == 32, "{token}");
        self.0.lock().unwrap().insert(token[..16].to_owned());
    }

    /// Of everybody who holds anything now.
    async fn look(&self, locks: &LockManager) {
        let mut cursor = Some(Cursor::START);
        while let Some(at) = cursor {
            let page = locks.list(at).await.unwrap();
            page.holders.iter().for_each(|holder| self.see(holder.token().as_str()));
            cursor = page.next;
        }
    }
}

#[derive(Clone)]
struct Shop {
    locks: LockManager,
    tokens: Tokens,
}

async fn handler(State(shop): State<Shop>) -> Result<Json<bool>, Error> {
    shop.tokens.look(&shop.locks).await;
    guarded(shop).await.map(Json)
}

#[clinch::lock(key = "nested", reentrant, fenced, manager = shop.locks, lease = lease)]
async fn guarded(shop: Shop) -> Result<bool, Error> {
    shop.tokens.look(&shop.locks).await;
    Ok(lease.is_some())
}

/// A service with every guard there is, on a real socket, asked over HTTP/1.1 and HTTP/2.
async fn over_http(locks: &LockManager, tokens: &Tokens) {
    let guards = Guards::new(locks.clone()).with_fleet_key(FLEET.as_bytes());
    let identity = IdentityChain::default().first(SessionCookie::named(["session"]));
    let by_session = Web::new(guards.clone()).with_identity(identity);
    let web = Web::new(guards);
    let never = DuplicatePolicy::new().release(clinch::submit::ReleaseWhen::Never);
    let app = Router::new()
        .route("/orders", post(handler).layer(web.duplicate(never.clone()).unwrap()))
        .route("/sessions", post(handler).layer(by_session.duplicate(never).unwrap()))
        .route("/locked/{id}", post(handler).layer(web.lock(LockPolicy::new("item:{id}")).unwrap()))
        .route("/limited", post(handler).layer(web.limit(LimitPolicy::new("export", 1)).unwrap()))
        .route("/paid", post(handler).layer(web.idempotency(IdempotencyPolicy::new()).unwrap()))
        .layer(web.layer())
        .with_state(Shop { locks: locks.clone(), tokens: tokens.clone() });
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let serving = tokio::spawn(async move { axum::serve(listener, app).await });
    for http2 in [false, true] {
        let client: Client<_, Full<Bytes>> =
            Client::builder(TokioExecutor::new()).http2_only(http2).build_http();
        for (path, again) in
            [("/orders", 429), ("/sessions", 429), ("/locked/7", 200), ("/limited", 200), ("/paid", 200)]
        {
            for (authorization, statuses) in [
                (format!("Bearer {BEARER}-{http2}"), [200, again]),
                (format!("Basic {BASIC}{http2}"), [200, again]),
            ] {
                for status in statuses {
                    let request = Request::post(format!("http://{address}{path}"))
                        .header("authorization", &authorization)
                        .header("cookie", format!("session={SESSION}-{authorization}").replace(' ', ""))
                        .header("idempotency-key", format!("\"{IDEMPOTENCY}\""))
                        .header("user-agent", "Browser/7")
                        .body(Full::new(Bytes::from_static(b"{}")));
                    let answer = client.request(request.unwrap()).await.unwrap();
                    assert_eq!(answer.status(), status, "{path} {authorization}");
                    answer.into_body().collect().await.unwrap();
                }
            }
        }
    }
    serving.abort();
}

/// Locks of every kind, waited for, renewed, lost, revoked.
async fn plainly(locks: &LockManager, server: &RedisServer, tokens: &Tokens) {
    let waits = LockOptions::new(TTL).wait(LONG).label("nightly");
    let other = waits.clone().no_local_pass();
    for options in
        [waits.clone(), other, waits.clone().shared(), waits.clone().fenced(), waits.clone().fair()]
    {
        let first = locks.lock("a", options.clone()).await.unwrap();
        tokens.see(first.token().as_str());
        let end = async {
            tokens.look(locks).await;
            drop(first);
        };
        let (second, ()) = tokio::join!(locks.lock("a", options), end);
        let second = second.unwrap();
        tokens.see(second.token().as_str());
        second.release().await.unwrap();
    }
    let limit = locks.limit("exports", 1).unwrap();
    let permit = limit.acquire(TTL).await.unwrap();
    tokens.see(permit.token().as_str());
    let denied = limit.acquire(TTL).await.unwrap_err();
    tracing::error!(error = %denied, debug = ?denied, "an application logs what it was told");
    drop(permit);
    let both = locks.lock_all(["x", "y"], waits).await.unwrap();
    tokens.see(both.token().as_str());
    tracing::error!(guard = ?both, lease = ?both.lease(), manager = ?locks, "an application logs what it has");
    let holder = locks.inspect("x").await.unwrap().remove(0);
    tracing::error!(?holder, "and whom it sees");
    assert!(locks.force_release(&holder).await.unwrap());
    assert!(!both.release().await.unwrap());
    let renewed = LockOptions::new(TTL).renew_every(Duration::from_millis(20));
    let lost = locks.lock("lost", renewed).await.unwrap();
    tokens.see(lost.token().as_str());
    server.command(&["AUTH", DEFAULT_PASSWORD]);
    server.command(&["DEL", "clinch:lock:lost"]);
    timeout(LONG, lost.lost()).await.unwrap();
    drop(lost);
}

/// What is said when the engine fails in every way it can.
async fn failing(locks: &LockManager, proxy: &FaultProxy, tokens: &Tokens) {
    let held = locks.lock("held", Duration::from_millis(1_500)).await.unwrap();
    tokens.see(held.token().as_str());
    for action in [
        Action::CutAfterRequest,
        Action::CutMidReply(3),
        Action::CutBeforeRequest,
        Action::ReplaceReply(b"-NOAUTH Authentication required.\r\n".to_vec()),
        Action::ReplaceReply(b"-MISCONF Errors writing to the AOF file\r\n".to_vec()),
        Action::ReplaceReply(b"+what?\r\n".to_vec()),
    ] {
        proxy.add(Rule::new(action).lease_only());
        match locks.attempt("b", LockOptions::new(TTL).strategy(Strategy::Proceed)).await.unwrap().guard() {
            Some(guard) => {
                tokens.see(guard.token().as_str());
                let _ = guard.release().await;
            }
            None => sleep(Duration::from_millis(10)).await,
        }
    }
    proxy.stall();
    let error = locks.lock("c", TTL).await.unwrap_err();
    tracing::error!(%error, ?error, "an application logs what it was told");
    drop(held);
    sleep(Duration::from_millis(1_600)).await;
    proxy.resume();
}

/// Proves: O3
#[tokio::test]
async fn nothing_that_is_secret_is_ever_logged() {
    let log = Log::new();
    let server = RedisServer::builder()
        .password(DEFAULT_PASSWORD)
        .acl_user("app", &format!("on >{PASSWORD} ~* &* +@all"))
        .start();
    let proxy = FaultProxy::start(server.addr()).await;
    let tokens = Tokens::default();
    // Those who may not come in, first.
    for (user, password) in [(Some("app"), "wr0ng-password"), (None, "wr0ng-password")] {
        let error = LockManager::connect(&proxy.url_with(0, user, Some(password))).await.unwrap_err();
        tracing::error!(%error, ?error, "an application logs what it was told");
    }
    for url in [format!("redis://app:{PASSWORD}@:nowhere"), format!("redis://app:{PASSWORD}@127.0.0.1:1/0")] {
        let error = LockManager::connect(&url).await.unwrap_err();
        tracing::error!(%error, ?error, "an application logs what it was told");
    }
    let locks = LockManager::connect(&proxy.url_with(0, Some("app"), Some(PASSWORD))).await.unwrap();
    plainly(&locks, &server, &tokens).await;
    over_http(&locks, &tokens).await;
    failing(&locks, &proxy, &tokens).await;
    locks.shutdown(LONG).await;

    // What is said in whatever detail is heard here.
    tracing::trace!(decoy = "d3c0y", "a detail");
    let text = log.text();
    assert!(text.contains("d3c0y"));
    let tokens = tokens.0.lock().unwrap().clone();
    assert!(tokens.len() > 30, "{} tokens", tokens.len());
    for word in [
        "acquired",
        "released",
        "duplicate submission",
        "engine failure",
        "lease lost",
        "h2::",
        "hyper_util::",
    ] {
        assert!(text.contains(word), "it was not told of: {word}");
    }
    let secrets = [PASSWORD, DEFAULT_PASSWORD, "wr0ng-password", BEARER, BASIC, SESSION, FLEET, IDEMPOTENCY];
    for secret in secrets.into_iter().chain(tokens.iter().map(String::as_str)) {
        let told: Vec<_> = text.lines().filter(|line| line.contains(secret)).take(3).collect();
        assert!(told.is_empty(), "{secret} in {told:#?}");
    }
}
