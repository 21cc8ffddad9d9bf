//! Calls of many callers, which go out together over one connection.

use std::sync::Arc;
use std::time::Duration;

use clinch::lease::{Attempt, Claim};
use clinch::store::{Effect, ErrorKind, Store, StoreError, Verdict};
use clinch::stores::StoreOptions;
use clinch::stores::redis::RedisStore;
use clinch_testkit::proxy::{Action, FaultProxy, Rule};
use futures_util::future::join_all;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::common::{Bench, LONG, TTL, eventually, granted, key, one};

/// A server, the way to it, and a store with so many places.
async fn bounded(places: usize, limit: Duration) -> (Bench, FaultProxy, Arc<RedisStore>) {
    let bench = Bench::start().await;
    let proxy = FaultProxy::start(bench.server.addr()).await;
    let mut options = StoreOptions::default();
    (options.max_in_flight, options.call_timeout) = (places, limit);
    let store = RedisStore::connect(&proxy.url(), &options).await.unwrap();
    (bench, proxy, Arc::new(store))
}

fn attempts(of: usize) -> Vec<Arc<Attempt>> {
    (0..of).map(|i| Arc::new(one(Claim::exclusive(key(&format!("k{i}")), TTL)))).collect()
}

type Asking = JoinHandle<Result<Verdict, StoreError>>;

/// Each asked for by a task of its own, one after the other.
fn ask(store: &Arc<RedisStore>, attempts: &[Arc<Attempt>]) -> Vec<Asking> {
    let asking = |attempt: &Arc<Attempt>| {
        let (store, attempt) = (store.clone(), attempt.clone());
        tokio::spawn(async move { store.acquire(&attempt).await })
    };
    attempts.iter().map(asking).collect()
}

/// Proves: T6
#[tokio::test]
async fn each_of_many_callers_has_his_own_answer() {
    let (bench, proxy, store) = bounded(100, LONG).await;
    let attempts = attempts(300);
    bench.ask(&["SET", "clinch:lock:k7", "another"]);
    bench.ask(&["RPUSH", "clinch:lock:k77", "precious"]);
    proxy.add(Rule::new(Action::HoldReply).named("SET"));
    let asking = ask(&store, &attempts);
    // An eighth of the places is kept for renewals and releases.
    eventually("as many go out as there are places", || proxy.commands_named("SET") == 88).await;
    proxy.wait_until_held().await;
    proxy.release_held();
    for (i, asking) in asking.into_iter().enumerate() {
        match (i, asking.await.unwrap()) {
            (7, Ok(Verdict::Denied(denial))) => {
                assert_eq!(denial.holder.unwrap().token().as_str(), "another");
            }
            (77, Err(error)) => {
                assert_eq!((error.kind(), error.effect()), (ErrorKind::WrongType, Effect::NotApplied));
            }
            (7 | 77, other) => panic!("{i}: {other:?}"),
            (_, answer) => drop(granted(answer)),
        }
    }
    assert_eq!(bench.server.keys("clinch:lock:*").len(), 300);

    // Each of them finds that the server does not know the script.
    bench.server.script_flush();
    let released = join_all(attempts.iter().map(|attempt| store.release(attempt))).await;
    for (i, released) in released.into_iter().enumerate() {
        let released = released.unwrap();
        assert_eq!((released.held, released.conclusive), (!matches!(i, 7 | 77), true), "{i}");
    }
    assert_eq!(bench.server.keys("clinch:lock:*").len(), 2);
}

/// Proves: T6
/// Fault: 13
#[tokio::test]
async fn a_caller_who_is_gone_takes_nobody_with_him_and_does_not_go_out() {
    let (bench, proxy, store) = bounded(4, LONG).await;
    let attempts = attempts(12);
    proxy.add(Rule::new(Action::HoldReply).named("SET"));
    let mut asking = ask(&store, &attempts);
    eventually("three go out", || proxy.commands_named("SET") == 3).await;
    for gone in asking.drain(3..6) {
        gone.abort();
        assert!(gone.await.unwrap_err().is_cancelled());
    }
    proxy.wait_until_held().await;
    proxy.release_held();
    for asking in asking {
        granted(timeout(LONG, asking).await.unwrap().unwrap());
    }
    assert_eq!(proxy.commands_named("SET"), 9);
    assert_eq!(bench.server.keys("*").len(), 9);
}

/// Fault: 13
#[tokio::test]
async fn a_release_does_not_overtake_what_it_takes_back() {
    let (bench, proxy, store) = bounded(100, LONG).await;
    for round in 0..5 {
        let attempts = attempts(200);
        proxy.add(Rule::new(Action::HoldRequest).named("SET"));
        let asking = ask(&store, &attempts);
        proxy.wait_until_held().await;
        // They are on their way, or wait to be; and then their callers are gone.
        eventually("all were asked for", || attempts.iter().all(|attempt| attempt.sent_at().is_some())).await;
        for gone in asking {
            gone.abort();
            _ = gone.await;
        }
        let releasing = join_all(attempts.iter().map(|attempt| store.release(attempt)));
        let (released, ()) = tokio::join!(releasing, async {
            tokio::task::yield_now().await;
            proxy.release_held();
        });
        assert!(released.iter().all(|released| released.as_ref().unwrap().conclusive), "{round}");
        assert_eq!(bench.server.keys("clinch:lock:*"), Vec::<String>::new(), "{round}");
    }
}

/// Fault: 13
#[tokio::test]
async fn when_the_connection_breaks_everybody_is_told() {
    let (bench, proxy, store) = bounded(100, LONG).await;
    let attempts = attempts(200);
    proxy.add(Rule::new(Action::CutAfterRequest).named("SET").nth(50));
    let answers = join_all(ask(&store, &attempts)).await;
    let mut unknown = 0;
    for (attempt, answer) in attempts.iter().zip(answers) {
        match answer.unwrap() {
            Err(error) => {
                assert_eq!(error.effect(), Effect::Unknown, "{error}");
                unknown += 1;
            }
            answer => drop(granted(answer)),
        }
        timeout(LONG, store.release(attempt)).await.unwrap().unwrap();
    }
    assert!(unknown > 0);
    assert_eq!(bench.server.keys("clinch:lock:*"), Vec::<String>::new());
}
