//! Several keys: all or nothing, or each for itself.

use std::time::Duration;

use clinch::{DeniedBy, LockGuard, LockManager, LockOptions, Outcome};
use clinch_testkit::proxy::{Action, Rule};
use tokio::task::JoinSet;

use crate::common::{Bench, LONG, TTL, both, eventually, poll_once, take, waiting};

/// Proves: B7
/// All or none; whoever is refused holds nothing, and the key that was taken is named.
#[tokio::test]
async fn all_keys_or_none() {
    for (locks, _server) in both().await {
        let all = locks.lock_all(["a", "b", "c"], TTL).await.unwrap();
        assert_eq!(all.keys().map(clinch::Key::as_str).collect::<Vec<_>>(), ["a", "b", "c"]);
        assert!(locks.try_lock("b", TTL).await.unwrap().is_none());
        let Outcome::DeniedByLock(denied) = locks.attempt_all(["x", "b"], TTL).await.unwrap() else {
            panic!("one is held")
        };
        assert_eq!((denied.key.as_str(), denied.cause), ("b", DeniedBy::Lock));
        assert!(denied.holder.is_some());
        assert!(locks.try_lock("x", TTL).await.unwrap().is_some(), "nothing was left behind");
        drop(all);
        // On its way out, it stands in nobody's way.
        assert!(locks.try_lock("b", TTL).await.unwrap().is_some());
        assert!(locks.try_lock_all(["c", "b"], TTL).await.unwrap().is_some());
    }
}

/// Proves: B7
/// Opposite orders and overlapping sets, waited for by many from several managers, neither deadlock nor overlap.
#[tokio::test]
async fn overlapping_sets_neither_deadlock_nor_overlap() {
    let bench = Bench::start().await;
    let managers = [bench.outsider().await, bench.outsider().await];
    let sets = [["a", "b"], ["b", "a"], ["b", "c"], ["c", "a"]];
    let inside = std::sync::Arc::new(std::sync::Mutex::new(std::collections::HashSet::new()));
    let mut tasks = JoinSet::new();
    for i in 0..16 {
        let (manager, set, inside) = (managers[i % 2].clone(), sets[i % 4], inside.clone());
        tasks.spawn(async move {
            for _ in 0..5 {
                let options = waiting(TTL, LONG).retry_interval(Duration::from_millis(20));
                let guard = manager.lock_all(set, options).await.unwrap();
                assert!(set.iter().all(|key| inside.lock().unwrap().insert(*key)), "somebody else is in");
                tokio::task::yield_now().await;
                assert!(set.iter().all(|key| inside.lock().unwrap().remove(key)));
                guard.release().await.unwrap();
            }
        });
    }
    tokio::time::timeout(LONG, async {
        while let Some(done) = tasks.join_next().await {
            done.unwrap();
        }
    })
    .await
    .expect("no deadlock");
}

/// Proves: B7, D13
/// All keys are one command to take, one to renew and one to give back; a group of independent keys is one exchange.
#[tokio::test]
async fn many_keys_are_one_call() {
    let bench = Bench::start().await;
    let manager = bench.manager().await;
    // The server learns the scripts.
    let renewed = |every| LockOptions::new(TTL).renew_every(Duration::from_millis(every));
    let warm_up = manager.lock_all(["w", "v"], renewed(20)).await.unwrap();
    eventually("it is renewed", || bench.proxy.lease_commands() > 4).await;
    warm_up.release().await.unwrap();
    bench.proxy.reset_counts();
    let keys: Vec<_> = (0..20).map(|i| format!("k{i}")).collect();
    let guard = manager.lock_all(keys.clone(), renewed(500)).await.unwrap();
    assert_eq!(bench.proxy.lease_commands(), 1);
    eventually("all are renewed", || bench.proxy.lease_commands() == 2).await;
    assert!(guard.release().await.unwrap());
    assert_eq!(bench.proxy.lease_commands(), 3);

    // Room for one call besides upkeep, and no answer to the first until all twenty have been sent.
    let narrow = LockManager::builder().max_in_flight(2).call_timeout(Duration::from_secs(30));
    let narrow = narrow.connect(&bench.proxy.url()).await.unwrap();
    bench.proxy.reset_counts();
    bench.proxy.add(Rule::new(Action::HoldReply).lease_only());
    let group = narrow.attempt_each(keys.iter().map(|key| (key.as_str(), TTL)));
    let watch = async {
        eventually("all are sent", || bench.proxy.lease_commands() == 20).await;
        bench.proxy.wait_until_held().await;
        bench.proxy.release_held();
    };
    let (outcomes, ()) = tokio::join!(group, watch);
    assert!(outcomes.unwrap().iter().all(|outcome| matches!(outcome, Outcome::Acquired(_))));
}

/// Proves: D13
/// A group of independent keys: each with its own TTL and its own answer, in order.
#[tokio::test]
async fn a_group_has_an_answer_for_each_key() {
    for (locks, _server) in both().await {
        let held = take(&locks, "2").await;
        let limit = locks.limit("export", 1).unwrap();
        let _permit = limit.acquire(TTL).await.unwrap();
        let seconds = |n| LockOptions::new(Duration::from_secs(n));
        let outcomes = locks
            .attempt_each([
                ("1", seconds(10)),
                ("2", seconds(20)),
                ("3", seconds(30)),
                ("4", seconds(30).limited_by(&limit, TTL)),
            ])
            .await
            .unwrap();
        let [
            Outcome::Acquired(one),
            Outcome::DeniedByLock(two),
            Outcome::Acquired(three),
            Outcome::DeniedByLimit(_),
        ] = &outcomes[..]
        else {
            panic!("{outcomes:?}")
        };
        assert!(one.remaining() <= Duration::from_secs(10) && three.remaining() > Duration::from_secs(20));
        assert_eq!(two.key.as_str(), "2");
        // They are ordinary guards.
        let guards: Vec<LockGuard> = outcomes.into_iter().filter_map(Outcome::guard).collect();
        assert!(locks.try_lock("1", TTL).await.unwrap().is_none());
        drop(guards);
        assert!(locks.try_lock("1", TTL).await.unwrap().is_some());
        assert!(locks.inspect("4").await.unwrap().is_empty());
        assert!(held.release().await.unwrap());
        assert!(locks.attempt_each(Vec::<(&str, Duration)>::new()).await.unwrap().is_empty());
    }
}

/// Proves: B4
/// A wait for several keys that is dropped leaves nothing behind, in any state.
#[tokio::test]
async fn a_dropped_wait_for_several_keys_leaves_nothing() {
    for (locks, _server) in both().await {
        let held = take(&locks, "b").await;
        let other = LockManager::clone(&locks);
        let mut wait = Box::pin(other.lock_all(["a", "b"], waiting(TTL, LONG)));
        assert!(poll_once(wait.as_mut()).await.is_pending());
        tokio::time::timeout(Duration::from_millis(120), wait.as_mut()).await.unwrap_err();
        drop(wait);
        assert!(locks.try_lock("a", TTL).await.unwrap().is_some());
        assert!(held.release().await.unwrap());
        assert!(locks.try_lock_all(["a", "b"], TTL).await.unwrap().is_some());
        assert!(locks.shutdown(LONG).await.is_clean());
    }
}
