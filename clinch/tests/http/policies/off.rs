//! Guards that are off, that only look on, and that do not look at all requests.

use clinch::http::Web;
use clinch::submit::{GuardCounts, Guards, IdempotencyPolicy, LockPolicy, Settings};
use clinch::{LockManager, Strategy};
use clinch_testkit::server::RedisServer;
use http::Method;
use serde_json::json;

use super::with_settings;
use crate::common::{engines, post};
use crate::stage::{Bench, DONE, KINDS, Kind, holders, same_orders};

/// A guard that is off, by its policy or by the settings, lets everybody in, counts nobody and leaves nothing.
///
/// Proves: D12
#[tokio::test]
async fn a_guard_that_is_off_does_nothing() {
    for (engine, web, server) in engines().await {
        for (kind, _) in KINDS {
            let off = with_settings(&web, Settings::new().enabled(false));
            let by_policy = kind.bench(&web, &json!({"enabled": false})).await;
            let by_settings = kind.bench(&off, &json!({})).await;
            let by_both = kind.bench(&off, &json!({"enabled": true, "shadow": true})).await;
            for (bench, web) in [(by_policy, &web), (by_settings, &off), (by_both, &off)] {
                let order = same_orders();
                let first = bench.submit(order()).await.running();
                let second = bench.submit(order()).await.running();
                assert!(holders(web.guards().locks()).await.is_empty(), "{engine} {kind:?}");
                for running in [first, second] {
                    assert_eq!(running.finish(DONE).await.status, 200, "{engine} {kind:?}");
                }
                assert_eq!(web.guards().statistics(), GuardCounts::default(), "{engine} {kind:?}");
            }
        }
        if let Some(server) = &server {
            assert_eq!(server.keys("*"), Vec::<String>::new());
            // It does not even ask whether there is an engine.
            server.kill();
            for (kind, _) in KINDS {
                let bench = kind.bench(&web, &json!({"enabled": false, "strategy": "fail_fast"})).await;
                assert_eq!(bench.run(same_orders()()).await.status, 200, "{kind:?}");
            }
        }
    }
}

/// In shadow mode, of the policy or of the settings, nobody is refused, and who would have been is counted.
///
/// Proves: B14
#[tokio::test]
async fn in_shadow_mode_nobody_is_refused_and_who_would_be_is_counted() {
    for (engine, web, _server) in engines().await {
        for (kind, _) in KINDS {
            let own = || Web::new(Guards::new(web.guards().locks().clone()));
            let (plain, all) = (own(), with_settings(&web, Settings::new().shadow(true)));
            let by_policy = kind.bench(&plain, &json!({"shadow": true})).await;
            let by_settings = kind.bench(&all, &json!({})).await;
            for (bench, web) in [(by_policy, &plain), (by_settings, &all)] {
                let (shown, order) = (format!("{engine} {kind:?}"), same_orders());
                let first = bench.submit(order()).await.running();
                let second = bench.submit(order()).await.running();
                // The end of one that was only let through is not the end of the one who holds it.
                assert_eq!(second.finish(DONE).await.status, 200, "{shown}");
                assert_eq!(holders(web.guards().locks()).await.len(), 1, "{shown}");
                let third = bench.submit(order()).await.running();
                let counts = web.guards().statistics();
                assert_eq!((counts.requests, counts.admitted, counts.shadowed), (3, 1, 2), "{shown}");
                let refused = counts.duplicates + counts.denied_by_lock + counts.denied_by_limit;
                assert_eq!(refused + counts.engine_failures + counts.unprotected, 0, "{shown}");
                for running in [first, third] {
                    assert_eq!(running.finish(DONE).await.status, 200, "{shown}");
                }
            }
        }
    }
}

/// Nor is anybody refused in shadow mode because the engine fails, or because the request cannot be looked at.
///
/// Proves: B14
/// Fault: 42
#[tokio::test]
async fn in_shadow_mode_failures_of_the_guard_itself_refuse_nobody() {
    let server = RedisServer::start();
    let locks = LockManager::connect(&server.url()).await.unwrap();
    let own = || Web::new(Guards::new(locks.clone()));
    let limits = clinch::submit::Limits::new().body_bytes(4);
    for kind in [Kind::Duplicate, Kind::Idempotency] {
        // Too large to be looked at.
        let web = with_settings(&own(), Settings::new().limits(limits));
        let bench = kind.bench(&web, &json!({"shadow": true})).await;
        assert_eq!(bench.run(same_orders()()).await.status, 200, "{kind:?}");
        assert_eq!(web.guards().statistics().shadowed, 1, "{kind:?}");
    }
    let web = own();
    let locked = web.lock(LockPolicy::new("order:{id}").shadow(true)).unwrap();
    let required = web.idempotency(IdempotencyPolicy::new().required(true).shadow(true)).unwrap();
    let mut malformed = same_orders()();
    malformed.headers_mut().insert("idempotency-key", "k".parse().unwrap());
    let (locked, required) = (Bench::with("/orders", &locked).await, Bench::with("/orders", &required).await);
    assert_eq!(locked.run(same_orders()()).await.status, 200);
    assert_eq!(required.run(post("/orders", &json!({}))).await.status, 200);
    assert_eq!(required.run(malformed).await.status, 200);
    assert_eq!(web.guards().statistics().shadowed, 3);
    assert_eq!(server.keys("*"), Vec::<String>::new());

    server.kill();
    for strategy in [Strategy::FailFast, Strategy::RetryOnce] {
        for (kind, _) in KINDS {
            let web = with_settings(&own(), Settings::new().shadow(true).strategy(strategy));
            let bench = kind.bench(&web, &json!({})).await;
            assert_eq!(bench.run(same_orders()()).await.status, 200, "{kind:?} {strategy:?}");
            let counts = web.guards().statistics();
            assert_eq!((counts.requests, counts.shadowed, counts.engine_failures), (1, 1, 0), "{kind:?}");
        }
    }
}

/// Requests that change nothing pass every guard, unless it is told to look at them too.
#[tokio::test]
async fn safe_methods_pass_unless_they_are_guarded_too() {
    for (engine, web, _server) in engines().await {
        for (kind, status) in KINDS {
            let plain = kind.bench(&web, &json!({})).await;
            let strict = kind.bench(&web, &json!({"safe_methods": true})).await;
            for method in
                [Method::GET, Method::HEAD, Method::OPTIONS, Method::POST, Method::PUT, Method::DELETE]
            {
                let shown = format!("{engine} {kind:?} {method}");
                let same_requests = || {
                    let (order, method) = (same_orders(), method.clone());
                    move || {
                        let mut request = order();
                        *request.method_mut() = method.clone();
                        request
                    }
                };
                let request = same_requests();
                let first = plain.submit(request()).await.running();
                let second = plain.submit(request()).await;
                if method.is_safe() {
                    assert_eq!(second.running().finish(DONE).await.status, 200, "{shown}");
                } else {
                    assert_eq!(second.refused().status, status, "{shown}");
                }
                assert_eq!(first.finish(DONE).await.status, 200, "{shown}");

                let request = same_requests();
                let first = strict.submit(request()).await.running();
                assert_eq!(strict.submit(request()).await.refused().status, status, "{shown}");
                assert_eq!(first.finish(DONE).await.status, 200, "{shown}");
            }
        }
    }
}
