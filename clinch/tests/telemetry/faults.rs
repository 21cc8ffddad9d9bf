//! What is measured when the engine fails.

use std::time::Duration;

use clinch::submit::{DuplicatePolicy, Guards, Identity, LockPolicy, Settings, Submission};
use clinch::telemetry as t;
use clinch::{LockManager, LockOptions, Outcome, Strategy};
use clinch_testkit::proxy::{Action, FaultProxy, Rule};
use clinch_testkit::server::RedisServer;
use tokio::time::timeout;

use crate::common::{LONG, Ledger, TTL, eventually, table};

/// A server, a proxy before it, and a manager behind both.
async fn bench() -> (RedisServer, FaultProxy, LockManager) {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.addr()).await;
    let builder = LockManager::builder().call_timeout(Duration::from_secs(3));
    let locks = builder.connect(&proxy.url()).await.unwrap();
    // The server learns the scripts, so that every step is one command.
    locks.lock("warm", TTL).await.unwrap().release().await.unwrap();
    (server, proxy, locks)
}

/// An engine that is gone: attempts fail or go on unprotected, calls fail by kind, and the breaker is shown open until the
/// engine is back.
///
/// Proves: O1
#[tokio::test]
async fn an_engine_that_is_gone_is_seen_in_every_way() {
    let ledger = Ledger::new();
    let (server, _proxy, locks) = bench().await;
    // What is not known to be free is taken back until it must be.
    let short = LockOptions::new(Duration::from_millis(1_500));
    let held = locks.lock("held", short.clone().named("held")).await.unwrap();
    server.kill();
    let plain = short.named("orders");
    let goes_on = plain.clone().strategy(Strategy::Proceed).named("mail");
    let failing = async {
        while ledger.sum(t::BREAKER_OPEN, &[]) == 0.0 {
            assert!(matches!(locks.attempt("a", plain.clone()).await.unwrap(), Outcome::EngineFailed(_)));
        }
    };
    timeout(LONG, failing).await.expect("the breaker opens");
    let Outcome::Unprotected(mail) = locks.attempt("b", goes_on).await.unwrap() else {
        panic!("not let through")
    };
    drop(mail);
    // It is told until its lease has run out, and then no more.
    drop(held);
    let given_up = || ledger.by(t::RELEASES, "outcome", &[("guard", "held")]) == table([("engine", 1.0)]);
    eventually("the release is given up", given_up).await;

    let attempts = |guard| ledger.by(t::ATTEMPTS, "outcome", &[("guard", guard)]);
    assert_eq!(attempts("orders").keys().collect::<Vec<_>>(), ["engine_failed"]);
    assert_eq!(attempts("mail"), table([("unprotected", 1.0)]));
    assert_eq!(
        ledger.sum(t::RELEASES, &[("guard", "mail")]),
        0.0,
        "nothing was held, so nothing was given back"
    );
    assert_eq!(ledger.values(t::HOLD_SECONDS, &[("guard", "mail")]).len(), 1);
    let failed =
        |operation| ledger.sum(t::ENGINE_FAILURES, &[("operation", operation), ("kind", "unavailable")]);
    assert!(failed("acquire") >= 1.0 && failed("release") >= 1.0);
    let calls = ledger.sum(t::ENGINE_CALLS, &[("operation", "acquire")]);
    assert!(failed("acquire") < calls, "the first one was answered");

    server.restart();
    eventually("the breaker closes", || ledger.sum(t::BREAKER_OPEN, &[]) == 0.0).await;
    // A manager that is gone while its breaker is open shows nothing any more, once what it may hold has run out.
    server.kill();
    let failing = async {
        while ledger.sum(t::BREAKER_OPEN, &[]) == 0.0 {
            assert!(locks.attempt("a", plain.clone()).await.unwrap().guard().is_none());
        }
    };
    timeout(LONG, failing).await.expect("the breaker opens again");
    drop(locks);
    eventually("it is gone", || ledger.sum(t::BREAKER_OPEN, &[]) == 0.0).await;
}

/// A release whose answer was lost is told apart from one that found somebody else's lease.
///
/// Proves: O1
#[tokio::test]
async fn a_release_whose_answer_was_lost_is_no_failed_one() {
    let ledger = Ledger::new();
    let (server, proxy, locks) = bench().await;
    let guard = locks.lock("a", LockOptions::new(TTL).named("orders")).await.unwrap();
    proxy.add(Rule::new(Action::CutAfterRequest).lease_only());
    assert!(!guard.release().await.unwrap(), "the second time there was nothing left to give back");
    assert!(!server.exists("clinch:lock:a"));
    assert_eq!(ledger.by(t::RELEASES, "outcome", &[("guard", "orders")]), table([("unknown", 1.0)]));
}

/// Calls in flight are seen while they are, a call that nobody answers is a time-out, and one whose caller left is not.
///
/// Proves: O1
#[tokio::test]
async fn calls_are_counted_while_they_are_under_way() {
    let ledger = Ledger::new();
    let (_server, proxy, locks) = bench().await;
    let failures = || ledger.by(t::ENGINE_FAILURES, "kind", &[("operation", "acquire")]);
    let in_flight = || ledger.sum(t::ENGINE_CALLS_IN_FLIGHT, &[]);

    proxy.add(Rule::new(Action::HoldReply).lease_only());
    let mut left = Box::pin(locks.try_lock("a", LockOptions::new(TTL).named("left")));
    tokio::select! {
        _ = &mut left => panic!("answered"),
        () = eventually("it is sent", || proxy.held() == 1) => {}
    }
    assert_eq!(in_flight(), 1.0);
    drop(left);
    assert_eq!((in_flight(), failures()), (0.0, table([])));
    assert_eq!(ledger.by(t::ATTEMPTS, "outcome", &[("guard", "left")]), table([("cancelled", 1.0)]));
    proxy.release_held();
    eventually("it is taken back", || ledger.sum(t::ENGINE_CALLS, &[("operation", "release")]) >= 2.0).await;
    assert_eq!(ledger.sum(t::RELEASES, &[("guard", "left")]), 0.0, "nobody had it");

    proxy.add(Rule::new(Action::HoldReply).lease_only());
    let named = LockOptions::new(TTL).named("slow");
    assert!(matches!(locks.attempt("b", named).await.unwrap(), Outcome::EngineFailed(_)));
    assert_eq!(failures(), table([("timeout", 1.0)]));
    proxy.release_held();
}

/// What comes too late, to an end, or from nowhere.
///
/// Proves: O1
#[tokio::test]
async fn attempts_that_end_in_other_ways_have_their_outcomes() {
    let ledger = Ledger::new();
    let (_server, proxy, locks) = bench().await;
    let outcome = |guard| ledger.by(t::ATTEMPTS, "outcome", &[("guard", guard)]);

    proxy.add(Rule::new(Action::DelayReply(Duration::from_millis(150))).lease_only());
    let short = LockOptions::new(Duration::from_millis(100)).named("late");
    assert!(locks.try_lock("a", short).await.unwrap().is_none());
    assert_eq!(outcome("late"), table([("too_late", 1.0)]));

    locks
        .scope(async {
            let _reading = locks.lock("b", LockOptions::new(TTL).shared()).await.unwrap();
            locks.attempt("b", LockOptions::new(TTL).named("upgrade")).await.unwrap_err();
        })
        .await;
    assert_eq!(outcome("upgrade"), table([("invalid", 1.0)]));

    let keeps = LockPolicy::new("c").disconnect(clinch::submit::Disconnect::Hold).name("kept");
    drop(Guards::new(locks.clone()).lock(&keeps, "c").await.unwrap());
    let kept = || ledger.by(t::RELEASES, "outcome", &[("guard", "kept")]) == table([("kept", 1.0)]);
    eventually("it is kept", kept).await;

    timeout(LONG, locks.shutdown(LONG)).await.unwrap();
    locks.attempt("d", LockOptions::new(TTL).named("closed")).await.unwrap_err();
    assert_eq!(outcome("closed"), table([("shut_down", 1.0)]));
}

/// A release that its caller does not wait for any longer is counted, and ends well in the background.
///
/// Proves: O1
#[tokio::test]
async fn a_release_that_is_not_waited_for_is_counted() {
    let ledger = Ledger::new();
    let (_server, proxy, locks) = bench().await;
    let settings = Settings::new().release_within(Duration::from_millis(20));
    let guards = Guards::new(locks).with_settings(settings).unwrap();
    let submission = Submission::of("f").user(Identity::user("ann"));
    let policy = DuplicatePolicy::new().name("orders");
    let admission = guards.duplicate(&policy, &submission).await.unwrap();
    proxy.add(Rule::new(Action::HoldReply).lease_only());
    admission.finish(true).await;
    assert_eq!(ledger.sum(t::LATE_RELEASES, &[("guard", "orders")]), 1.0);
    assert_eq!(guards.statistics().late_releases, 1, "the same");
    proxy.release_held();
    // The answer was for nobody; the next one finds nothing left, and so nobody knows.
    eventually("it is given back", || ledger.sum(t::RELEASES, &[("guard", "orders")]) == 1.0).await;
}
