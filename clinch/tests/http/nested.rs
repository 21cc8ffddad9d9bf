//! Guards in guards: what the innermost finishes, the outer ones stand by; and one request has one scope.

use std::sync::Arc;

use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::routing::{MethodRouter, post as on_post};
use clinch::http::Web;
use clinch::submit::{Disconnect, DuplicatePolicy, Guards, LockPolicy};
use clinch::{LockManager, LockOptions, Outcome};
use clinch_testkit::hears;
use clinch_testkit::proxy::FaultProxy;
use clinch_testkit::server::RedisServer;
use serde_json::json;
use tokio::sync::Notify;
use tokio::time::timeout;

use crate::bench::{Engine, HELD, Kind, Probe};
use crate::common::{LONG, Service, gives_up, post_as};
use crate::wire::{Client, Way};

/// A lock releases and a duplicate guard finishes, unless told otherwise. Around a handler that runs on, the lock must not be
/// given to somebody else.
/// Proves: D7, L2
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outer_guard_holds_while_an_inner_one_finishes() {
    for engine in Engine::both() {
        for outer in [None, Some(Disconnect::Release), Some(Disconnect::Hold)] {
            for way in Way::ALL {
                let what = format!("{}, {outer:?}, {way:?}", engine.name());
                let (case, probe) = (engine.case().await, Probe::new());
                let finishing = Kind::Duplicate.guard(&case.web, probe.handler(), None);
                let guarded = Kind::Lock.guard(&case.web, finishing, outer);
                let service = Service::start(probe.watch(Router::new().route("/orders", guarded))).await;

                let first = post_as("alice", "/orders", &json!({"item": 7}));
                let client = Client::send(way, service.address, first).await;
                probe.until("the handler runs", |seen| seen.entered == 1).await;
                let _kept = client.leave(way).await;
                probe.until("the request is given up", |seen| seen.left == 1).await;
                // Somebody else with something else, so that it is the lock that refuses.
                let other = || service.send(post_as("bob", "/orders", &json!({"item": 8})));
                for _ in 0..5 {
                    assert_eq!(other().await.status, 409, "{what}");
                }

                probe.open(1);
                let seen = probe.until("the handler ends", |seen| seen.finished + seen.dropped == 1).await;
                assert_eq!(seen.finished, 1, "{what}");
                case.free().await;
                probe.open(1);
                assert_eq!(other().await.status, 200, "{what}");
                case.settle().await;
            }
        }
    }
}

/// What runs on for a client that went away still runs in its request: in its scope, and with its guards.
/// Proves: B6
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_that_runs_on_keeps_the_context_of_its_request() {
    for engine in Engine::both() {
        let (case, probe) = (engine.case().await, Probe::new());
        let (say, mut said) = tokio::sync::mpsc::unbounded_channel();
        let handler = {
            let (probe, locks) = (probe.clone(), case.locks.clone());
            move || async move {
                let done = probe.run().await;
                let again = locks.attempt("order", LockOptions::new(HELD).reentrant()).await;
                let entered = matches!(again, Ok(Outcome::Reentered(_)));
                say.send((entered, Guards::current().is_some(), locks.current_scope().is_some())).unwrap();
                done
            }
        };
        let finishing: MethodRouter =
            on_post(handler).layer(case.web.duplicate(DuplicatePolicy::new()).unwrap());
        let locked = finishing.layer(case.web.lock(LockPolicy::new("order").reentrant(true)).unwrap());
        let app = Router::new().route("/orders", locked).layer(case.web.layer());
        let service = Service::start(probe.watch(app)).await;

        let client = Client::send(Way::Http1, service.address, post_as("alice", "/orders", &json!({}))).await;
        probe.until("the handler runs", |seen| seen.entered == 1).await;
        client.leave(Way::Http1).await;
        probe.until("the request is given up", |seen| seen.left == 1).await;
        probe.open(1);
        assert_eq!(timeout(LONG, said.recv()).await.unwrap(), Some((true, true, true)), "{}", engine.name());
        case.free().await;
    }
}

/// A layer in between that gives up, as one with a time limit does, is no client that goes away: what is inside of it goes
/// by its own policy, and what is outside of it has an answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_layer_in_between_may_give_up() {
    for (inner, runs_on) in [(Disconnect::Finish, true), (Disconnect::Release, false)] {
        for outer in [Disconnect::Finish, Disconnect::Release] {
            let engine = Engine::Memory;
            let (case, probe, limit) = (engine.case().await, Probe::new(), Arc::new(Notify::new()));
            let guarded = Kind::Duplicate.guard(&case.web, probe.handler(), Some(inner));
            let guarded = Kind::Lock.guard(
                &case.web,
                guarded.layer(from_fn_with_state(limit.clone(), gives_up)),
                Some(outer),
            );
            let service = Service::start(probe.watch(Router::new().route("/orders", guarded))).await;
            let send = || service.send(post_as("alice", "/orders", &json!({})));
            let giving_up = async {
                probe.until("the handler runs", |seen| seen.entered == 1).await;
                limit.notify_one();
            };
            let (answer, ()) = tokio::join!(send(), giving_up);
            assert_eq!(answer.status, 504);
            if runs_on {
                // The lock is free, the duplicate guard is not.
                assert_eq!(send().await.status, 429, "{outer:?}");
                probe.open(1);
                probe.until("the handler ends", |seen| seen.finished == 1).await;
            } else {
                let seen = probe.until("the handler ends", |seen| seen.finished + seen.dropped == 1).await;
                assert_eq!(seen.dropped, 1, "{outer:?}");
            }
            case.free().await;
        }
    }
}

/// The layer opens the request's scope, so that the handler can lock what the layer has locked.
/// Proves: B6
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_enters_again_what_its_layer_holds() {
    let server = RedisServer::start();
    let proxy = Arc::new(FaultProxy::start(server.addr()).await);
    let locks = LockManager::connect(&proxy.url()).await.unwrap();
    hears(&locks, &LockManager::connect(&server.url()).await.unwrap()).await;
    let web = Web::new(Guards::new(locks.clone()));
    let (say, mut said) = tokio::sync::mpsc::unbounded_channel();
    let handler = move || {
        let (locks, proxy, say) = (locks.clone(), proxy.clone(), say.clone());
        async move {
            let sent = proxy.lease_commands();
            let again = locks.attempt("order:7", LockOptions::new(HELD).reentrant()).await.unwrap();
            let entered = matches!(again, Outcome::Reentered(_));
            drop(again);
            say.send((entered, proxy.lease_commands() - sent)).unwrap();
            let plain = locks.attempt("order:7", HELD).await.unwrap();
            assert!(matches!(plain, Outcome::DeniedByLock(_)), "{plain:?}");
        }
    };
    for reentrant in [true, false] {
        let policy = LockPolicy::new("order:{id}").ttl(HELD).reentrant(reentrant);
        let locked = on_post(handler.clone()).layer(web.lock(policy).unwrap());
        let service = Service::start(Router::new().route("/orders/{id}", locked)).await;
        assert_eq!(service.send(post_as("alice", "/orders/7", &json!({}))).await.status, 200);
        let (entered, sent) = timeout(LONG, said.recv()).await.unwrap().unwrap();
        assert!(entered && sent == 0, "{reentrant}: {entered}, {sent} commands");
        assert_eq!(server.keys("clinch:*"), [""; 0]);
    }
}

/// Two layers on the same lock are one lock, if they say so; if not, the inner one is refused.
/// Proves: B6
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_layers_on_one_lock() {
    for engine in Engine::both() {
        for (reentrant, status) in [(true, 200), (false, 409)] {
            let (case, probe) = (engine.case().await, Probe::new());
            let policy = || LockPolicy::new("order").ttl(HELD).reentrant(reentrant);
            let inner: MethodRouter = probe.handler().layer(case.web.lock(policy()).unwrap());
            let outer = inner.layer(case.web.lock(policy()).unwrap());
            let service = Service::start(Router::new().route("/orders", outer)).await;
            probe.open(1);
            let answer = service.send(post_as("alice", "/orders", &json!({}))).await;
            assert_eq!(answer.status, status, "{}", engine.name());
            case.free().await;
        }
    }
}

/// A lock that is taken in a request is not another request's.
/// Proves: B6
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_request_is_another_scope() {
    for engine in Engine::both() {
        let (case, probe) = (engine.case().await, Probe::new());
        let policy = LockPolicy::new("order").ttl(HELD).reentrant(true);
        let locked = probe.handler().layer(case.web.lock(policy).unwrap());
        let app = Router::new().route("/orders", locked).layer(case.web.layer());
        let service = Service::start(app).await;
        let send = || service.send_http2(post_as("alice", "/orders", &json!({})));
        let second = async {
            probe.until("the first one runs", |seen| seen.entered == 1).await;
            let second = send().await;
            probe.open(1);
            second
        };
        let (first, second) = tokio::join!(send(), second);
        assert_eq!((first.status.as_u16(), second.status.as_u16()), (200, 409), "{}", engine.name());
        case.free().await;
    }
}
