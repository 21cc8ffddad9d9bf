//! A known load gives exactly the known numbers, on every engine.

use std::num::NonZeroU32;
use std::time::Duration;

use clinch::submit::{DuplicatePolicy, Guards, Identity, LimitPolicy, LockPolicy, ReleaseWhen, Submission};
use clinch::telemetry as t;
use clinch::{LockManager, LockOptions, Outcome};

use crate::common::{Ledger, TTL, engines, eventually, table};

fn submission(user: &str) -> Submission {
    Submission::of("shop::create_order").user(Identity::user(user)).param("item", &7).unwrap()
}

/// Plain locks, permits, several keys, re-entry, and one that waits and is given the lease.
async fn locks(locks: &LockManager) {
    let named = LockOptions::new(TTL).named("orders");
    for n in 0..3 {
        let held = locks.lock(format!("order:{n}"), named.clone()).await.unwrap();
        assert!(locks.try_lock(format!("order:{n}"), named.clone()).await.unwrap().is_none());
        assert!(held.release().await.unwrap());
    }
    let waits = LockOptions::new(TTL).wait(TTL).named("line");
    let first = locks.lock("line", waits.clone()).await.unwrap();
    let (next, ()) = tokio::join!(locks.lock("line", waits), async { drop(first) });
    assert!(next.unwrap().release().await.unwrap());

    let limit = locks.limit("export", 1).unwrap();
    let permit = limit.acquire(TTL).await.unwrap();
    assert!(matches!(limit.attempt(TTL).await.unwrap(), Outcome::DeniedByLimit(_)));
    assert!(permit.release().await.unwrap());

    let both = locks.lock_all(["x", "y"], TTL).await.unwrap();
    assert!(both.release().await.unwrap());
    let group = [("e:1", LockOptions::new(TTL)), ("e:2", LockOptions::new(TTL))];
    for outcome in locks.attempt_each(group).await.unwrap() {
        assert!(outcome.guard().unwrap().release().await.unwrap());
    }

    let again = LockOptions::new(TTL).reentrant().named("again");
    locks
        .scope(async {
            let outer = locks.lock("again", again.clone()).await.unwrap();
            let inner = locks.attempt("again", again.clone()).await.unwrap();
            assert!(matches!(inner, Outcome::Reentered(_)));
            drop(inner);
            assert!(outer.release().await.unwrap());
        })
        .await;
}

/// Guards: one submission and three duplicates of it, an interval that is kept, a lock, a limit, and shadow mode.
async fn guards(guards: &Guards) {
    let policy = DuplicatePolicy::new();
    let first = guards.duplicate(&policy, &submission("ann")).await.unwrap();
    for _ in 0..3 {
        guards.duplicate(&policy, &submission("ann")).await.unwrap_err();
    }
    let looks_on = policy.clone().shadow(true);
    let shadowed = guards.duplicate(&looks_on, &submission("ann")).await.unwrap();
    shadowed.finish(true).await;
    first.finish(true).await;

    let kept = DuplicatePolicy::new().release(ReleaseWhen::Never).name("kept");
    guards.duplicate(&kept, &submission("ann")).await.unwrap().finish(true).await;
    guards.duplicate(&kept, &submission("ann")).await.unwrap_err();

    let lock = LockPolicy::new("stock:{id}");
    let held = guards.lock(&lock, "stock:1").await.unwrap();
    guards.lock(&lock, "stock:1").await.unwrap_err();
    held.finish(true).await;
    let limit = LimitPolicy::new("reports", NonZeroU32::MIN.get()).name("reports, at most one");
    let held = guards.limit(&limit, "reports").await.unwrap();
    guards.limit(&limit, "reports").await.unwrap_err();
    held.finish(true).await;
}

/// Proves: O1
#[tokio::test]
async fn a_known_load_gives_exactly_the_known_numbers() {
    for (engine, manager, _server) in engines().await {
        let ledger = Ledger::new();
        locks(&manager).await;
        let attempts = |guard| ledger.by(t::ATTEMPTS, "outcome", &[("guard", guard)]);
        let releases = |guard| ledger.by(t::RELEASES, "outcome", &[("guard", guard)]);
        assert_eq!(attempts("orders"), table([("acquired", 3.0), ("denied_by_lock", 3.0)]), "{engine}");
        assert_eq!(releases("orders"), table([("released", 3.0)]), "{engine}");
        assert_eq!(attempts("line"), table([("acquired", 2.0)]), "{engine}");
        assert_eq!(releases("line"), table([("passed", 1.0), ("released", 1.0)]), "{engine}");
        assert_eq!(attempts("limit"), table([("acquired", 1.0), ("denied_by_limit", 1.0)]), "{engine}");
        assert_eq!(attempts("several"), table([("acquired", 1.0)]), "{engine}");
        assert_eq!(attempts("lock"), table([("acquired", 2.0)]), "{engine}: a group is several locks");
        assert_eq!(attempts("again"), table([("acquired", 1.0), ("reentered", 1.0)]), "{engine}");
        assert_eq!(releases("again"), table([("released", 1.0)]), "{engine}: one lease, one end");

        guards(&Guards::new(manager.clone())).await;
        let of = |metric, guard| ledger.sum(metric, &[("guard", guard)]);
        let orders = "shop::create_order";
        assert_eq!(attempts(orders), table([("acquired", 1.0), ("duplicate", 4.0)]), "{engine}");
        assert_eq!((of(t::REQUESTS, orders), of(t::DUPLICATES, orders)), (5.0, 3.0), "{engine}");
        assert_eq!(of(t::SHADOWED, orders), 1.0, "{engine}");
        assert_eq!((of(t::REQUESTS, "kept"), of(t::DUPLICATES, "kept")), (2.0, 1.0), "{engine}");
        assert_eq!(releases("kept"), table([("completed", 1.0)]), "{engine}");
        assert_eq!(attempts("stock:{id}"), table([("acquired", 1.0), ("denied_by_lock", 1.0)]), "{engine}");
        assert_eq!(of(t::REQUESTS, "stock:{id}"), 2.0, "{engine}");
        let reports = attempts("reports, at most one");
        assert_eq!(reports, table([("acquired", 1.0), ("denied_by_limit", 1.0)]), "{engine}");

        // Every attempt has one outcome and one wait, every lease one end, one hold, and so much of its validity left.
        let acquired = ledger.sum(t::ATTEMPTS, &[("outcome", "acquired")]);
        assert_eq!(acquired, 14.0, "{engine}");
        assert_eq!(ledger.sum(t::RELEASES, &[]), acquired, "{engine}");
        let count = |metric| ledger.values(metric, &[]).len() as f64;
        assert_eq!(count(t::WAIT_SECONDS), ledger.sum(t::ATTEMPTS, &[]), "{engine}");
        assert_eq!((count(t::HOLD_SECONDS), count(t::VALIDITY_LEFT_RATIO)), (acquired, acquired), "{engine}");
        assert!(ledger.values(t::VALIDITY_LEFT_RATIO, &[]).iter().all(|left| (0.5..=1.0).contains(left)));
        assert_eq!(ledger.sum(t::GUARDS_HELD, &[]), 0.0, "{engine}");
        assert_eq!(ledger.sum(t::WAITERS, &[]), 0.0, "{engine}");
        // Every request has its time, and the guard's part of it.
        let requests = ledger.sum(t::REQUESTS, &[]);
        assert_eq!(requests, 11.0, "{engine}");
        assert_eq!(count(t::GUARDED_REQUEST_SECONDS), requests, "{engine}");
        assert_eq!(count(t::GUARD_OVERHEAD_SECONDS), requests, "{engine}");
        // The engine was asked, and never failed.
        let calls = ledger.by(t::ENGINE_CALLS, "operation", &[]);
        assert_eq!(count(t::ENGINE_CALL_SECONDS), calls.values().sum::<f64>(), "{engine}");
        assert_eq!((calls["acquire_each"], calls["complete"]), (1.0, 1.0), "{engine}: {calls:?}");
        assert_eq!(ledger.sum(t::ENGINE_FAILURES, &[]), 0.0, "{engine}");
        assert_eq!(ledger.sum(t::ENGINE_CALLS_IN_FLIGHT, &[]), 0.0, "{engine}");
        assert_eq!(ledger.sum(t::WAKEUPS_MISSED, &[]), 0.0, "{engine}");
    }
}

/// The four rates that everything is measured for.
///
/// Proves: O1
#[tokio::test(start_paused = true)]
async fn the_four_rates_come_out_right() {
    let ledger = Ledger::new();
    let guards = Guards::new(LockManager::memory());
    let policy = DuplicatePolicy::new().interval(Duration::from_secs(60)).name("orders");
    for held_for in [1, 2, 6] {
        let first = guards.duplicate(&policy, &submission("ann")).await.unwrap();
        guards.duplicate(&policy, &submission("ann")).await.unwrap_err();
        tokio::time::sleep(Duration::from_secs(held_for)).await;
        first.finish(true).await;
    }
    // One that outlives its interval: its release finds nothing.
    let last = guards.duplicate(&policy, &submission("ann")).await.unwrap();
    tokio::time::sleep(Duration::from_secs(61)).await;
    last.finish(true).await;
    eventually("it is given back in the background", || ledger.sum(t::RELEASES, &[]) == 4.0).await;

    let attempts = ledger.by(t::ATTEMPTS, "outcome", &[]);
    assert_eq!(attempts["acquired"] / attempts.values().sum::<f64>(), 4.0 / 7.0, "acquire success rate");
    let releases = ledger.by(t::RELEASES, "outcome", &[]);
    assert_eq!(releases, table([("released", 3.0), ("expired", 1.0)]));
    assert_eq!(releases["released"] / ledger.sum(t::RELEASES, &[]), 0.75, "release success rate");
    let holds = ledger.values(t::HOLD_SECONDS, &[("guard", "orders")]);
    assert_eq!(holds, [1.0, 2.0, 6.0, 61.0]);
    assert_eq!(holds.iter().sum::<f64>() / holds.len() as f64, 17.5, "mean hold time");
    assert_eq!(ledger.sum(t::DUPLICATES, &[]) / ledger.sum(t::REQUESTS, &[]), 3.0 / 7.0, "duplicate rate");
    assert_eq!(ledger.values(t::GUARDED_REQUEST_SECONDS, &[]), [0.0, 1.0, 0.0, 2.0, 0.0, 6.0, 61.0]);
}

/// What the guard adds to a request is told apart from what the work takes.
///
/// Proves: O1
#[tokio::test(start_paused = true)]
async fn overhead_is_the_time_of_the_guard_and_not_of_the_work() {
    let ledger = Ledger::new();
    let guards = Guards::new(LockManager::memory());
    let policy = LockPolicy::new("stock:{id}").wait(TTL).name("stock");
    let first = guards.lock(&policy, "stock:1").await.unwrap();
    let next = guards.lock(&policy, "stock:1");
    let work = async {
        tokio::time::sleep(Duration::from_secs(3)).await;
        first.finish(true).await;
    };
    let (next, ()) = tokio::join!(next, work);
    tokio::time::sleep(Duration::from_secs(2)).await;
    drop(next);
    let of = |metric| ledger.values(metric, &[("guard", "stock")]);
    assert_eq!(of(t::GUARDED_REQUEST_SECONDS), [3.0, 5.0]);
    assert_eq!(of(t::GUARD_OVERHEAD_SECONDS), [0.0, 3.0]);
    assert_eq!(of(t::WAIT_SECONDS), [0.0, 3.0]);
}
