//! Taking, denying, inspecting and giving back, on both engines.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use clinch::stores::memory::MemoryStore;
use clinch::{DeniedBy, Error, LockManager, LockOptions, Loss, Outcome};
use clinch_testkit::hears;
use clinch_testkit::proxy::Action;
use clinch_testkit::server::RedisServer;
use futures_util::future::join_all;
use tokio::sync::Barrier;
use tokio::time::timeout;

use crate::common::{Bench, LONG, Step, TTL, both, eventually, list_all, take, waiting};

/// Proves: L1, L3
#[tokio::test]
async fn try_lock_gives_a_lock_or_nothing_and_release_says_whether_it_was_held() {
    for (manager, _server) in both().await {
        let guard = take(&manager, "order:42").await;
        assert_eq!(guard.key().as_str(), "order:42");
        assert!(guard.token().as_str().len() >= 32);
        assert!(manager.try_lock("order:42", TTL).await.unwrap().is_none());
        assert!(guard.release().await.unwrap());
        // Ended behind its back: the release says that it no longer held it.
        let guard = take(&manager, "order:42").await;
        let holder = manager.inspect("order:42").await.unwrap().remove(0);
        assert!(manager.force_release(&holder).await.unwrap());
        assert!(!guard.release().await.unwrap());
    }
}

/// Proves: L2
#[tokio::test]
async fn with_lock_releases_on_every_way_out() {
    for (manager, _server) in both().await {
        let free = async || manager.inspect("k").await.unwrap().is_empty();

        assert_eq!(manager.with_lock("k", TTL, async |_| 42).await.unwrap(), 42);
        assert!(free().await, "after a value");

        let failed: Result<Result<(), String>, Error> =
            manager.with_lock("k", TTL, async |_| Err("the block's own".to_owned())).await;
        assert_eq!(failed.unwrap(), Err("the block's own".to_owned()), "untouched");
        assert!(free().await, "after an error");

        let panicking = tokio::spawn({
            let manager = manager.clone();
            async move { manager.with_lock("k", TTL, async |_| panic!("on purpose")).await }
        });
        assert!(panicking.await.unwrap_err().is_panic());
        let guard = manager.lock("k", waiting(TTL, LONG)).await.expect("after a panic");
        guard.release().await.unwrap();

        let cancelled = manager.with_lock("k", TTL, async |_| std::future::pending::<()>().await);
        assert!(timeout(Duration::from_millis(50), cancelled).await.is_err());
        let guard = manager.lock("k", waiting(TTL, LONG)).await.expect("after a dropped future");

        match manager.with_lock("k", TTL, async |_| unreachable!("the block must not run")).await {
            Err(Error::LockNotAcquired { key, denied }) => {
                assert_eq!(key.as_str(), "k");
                assert!(denied.holder.is_some());
            }
            other => panic!("{other:?}"),
        }
        guard.release().await.unwrap();
    }
}

/// Proves: L2
/// A release that fails is logged, and never takes the place of the block's value.
#[tokio::test]
async fn a_failed_release_does_not_take_the_place_of_the_value() {
    let bench = Bench::start().await;
    let manager = bench.manager().await;
    let value = manager.with_lock("k", TTL, async |_| {
        bench.server.kill();
        "the value"
    });
    assert_eq!(value.await.unwrap(), "the value");
}

/// Proves: L5
#[tokio::test]
async fn tokens_are_new_random_and_whole_and_carry_a_readable_owner() {
    let server = RedisServer::start();
    let manager = LockManager::connect(&server.url()).await.unwrap();
    let mut seen = HashSet::new();
    for _ in 0..200 {
        let options = LockOptions::new(TTL).label("nightly job");
        let guard = manager.try_lock("k", options).await.unwrap().unwrap();
        let token = guard.token().as_str().to_owned();
        assert_eq!(
            server.get("clinch:lock:k").as_deref(),
            Some(token.as_str()),
            "the whole token is the value"
        );
        let (random, owner) = token.split_once('@').unwrap();
        assert_eq!(random.len(), 32, "128 bits as hex digits");
        assert!(random.bytes().all(|b| b.is_ascii_hexdigit()));
        assert!(owner.contains(&format!(":{}:nightly%20job", std::process::id())), "{owner}");
        assert!(seen.insert(random.to_owned()), "never twice");
        guard.release().await.unwrap();
    }
    // Every bit of the random part takes both values.
    let numbers: Vec<u128> = seen.iter().map(|random| u128::from_str_radix(random, 16).unwrap()).collect();
    let ones = numbers.iter().fold(0, |all, n| all | n);
    let zeros = numbers.iter().fold(0, |all, n| all | !n);
    assert_eq!((ones, zeros), (u128::MAX, u128::MAX));
}

/// Proves: L6
#[tokio::test]
async fn the_prefix_is_set_once_and_may_be_empty() {
    let server = RedisServer::start();
    for (prefix, key) in
        [(Some("shop"), "shop:lock:order:42"), (Some(""), "lock:order:42"), (None, "clinch:lock:order:42")]
    {
        let builder = LockManager::builder();
        let builder = match prefix {
            Some(prefix) => builder.prefix(prefix),
            None => builder,
        };
        let manager = builder.connect(&server.url()).await.unwrap();
        let guard = take(&manager, "order:42").await;
        assert_eq!(server.keys("*"), [key]);
        assert_eq!(list_all(&manager).await.len(), 1);
        guard.release().await.unwrap();
    }
}

/// Proves: L7, L8, T7
/// One command takes, one gives back, and nothing else goes over the wire.
#[tokio::test]
async fn a_pair_is_two_commands_and_nothing_is_released_that_was_not_held() {
    let bench = Bench::start().await;
    let manager = bench.manager().await;
    let guard = take(&manager, "k").await;
    assert!(guard.release().await.unwrap());
    assert_eq!(bench.proxy.lease_commands(), 2);
    assert_eq!((bench.count(Step::Acquire), bench.count(Step::Release)), (1, 1));

    // Denied by somebody else: nothing to give back. The first time it is also asked who that is.
    let stranger = take(&bench.outsider().await, "k").await;
    for commands in [2, 1, 1] {
        bench.proxy.reset_counts();
        assert!(manager.try_lock("k", TTL).await.unwrap().is_none());
        assert_eq!(bench.proxy.lease_commands(), commands);
    }

    // Denied by this very process: not even asked.
    stranger.release().await.unwrap();
    hears(&manager, &bench.outsider().await).await;
    let guard = take(&manager, "k").await;
    bench.proxy.reset_counts();
    assert!(manager.try_lock("k", TTL).await.unwrap().is_none());
    assert_eq!(bench.proxy.lease_commands(), 0);

    // Lost to a force-release that was noticed: not released either.
    let holder = manager.inspect("k").await.unwrap().remove(0);
    manager.force_release(&holder).await.unwrap();
    bench.proxy.reset_counts();
    assert!(!guard.release().await.unwrap());
    manager.shutdown(LONG).await;
    assert_eq!(bench.proxy.lease_commands(), 0);
}

/// Fault: 30
/// Proves: L8
#[tokio::test]
async fn a_server_that_forgot_the_scripts_gets_them_again_once() {
    let bench = Bench::start().await;
    let manager = bench.manager().await;
    bench.server.script_flush();
    // One that waits is remembered where readers are in its way: it always asks with a script.
    let pair = async || {
        let guard = manager.lock("k", waiting(TTL, LONG)).await.unwrap();
        assert!(guard.release().await.unwrap());
    };
    pair().await;
    assert_eq!(bench.proxy.commands_named("EVAL"), 2, "one for each script");
    bench.proxy.reset_counts();
    pair().await;
    assert_eq!((bench.proxy.commands_named("EVAL"), bench.proxy.commands_named("EVALSHA")), (0, 2));
    assert_eq!(
        bench.server.command_calls().get("del"),
        Some(&2),
        "the key, inside the script that compares it; there is no note on who comes next"
    );
}

/// Proves: T1
#[tokio::test]
async fn an_attempt_tells_its_outcomes_apart() {
    let bench = Bench::start().await;
    let manager = bench.manager().await;
    let Outcome::Acquired(guard) = manager.attempt("k", TTL).await.unwrap() else { panic!("free") };
    match bench.outsider().await.attempt("k", TTL).await.unwrap() {
        Outcome::DeniedByLock(denied) => {
            assert_eq!((denied.key.as_str(), denied.cause), ("k", DeniedBy::Lock));
            assert!(denied.retry_after.unwrap() <= TTL);
        }
        other => panic!("{other:?}"),
    }
    drop(guard);
    bench.free("k").await;
    bench.server.kill();
    match manager.attempt("k", TTL).await.unwrap() {
        Outcome::EngineFailed(Error::Engine { key, cause: source, .. }) => {
            assert_eq!(key.unwrap().as_str(), "k");
            assert!(source.is_retryable());
        }
        other => panic!("{other:?}"),
    }
}

/// Proves: T2
#[tokio::test]
async fn inspect_and_denials_tell_who_holds_it() {
    for (manager, server) in both().await {
        let before = SystemTime::now();
        let options = LockOptions::new(TTL).label("report");
        let asked = tokio::spawn({
            let manager = manager.clone();
            async move { manager.try_lock("k", options).await.unwrap().unwrap() }
        });
        let guard = asked.await.unwrap();

        let inspected = manager.inspect("k").await.unwrap().remove(0);
        let denied = match manager.lock("k", TTL).await {
            Err(Error::LockNotAcquired { denied, .. }) => denied,
            other => panic!("{other:?}"),
        };
        for holder in [inspected, denied.holder.clone().unwrap()] {
            let owner = holder.owner().unwrap();
            assert_eq!(owner.pid, std::process::id());
            assert!(!owner.host.is_empty());
            assert!(owner.task.is_some(), "which task");
            assert_eq!(owner.label.as_deref(), Some("report"));
            let millisecond = Duration::from_millis(1);
            assert!(
                holder.since().unwrap() + millisecond >= before
                    && holder.since().unwrap() <= SystemTime::now()
            );
            let left = holder.remaining().unwrap();
            assert!(left <= TTL && left > TTL / 2);
        }
        assert!(denied.to_string().contains("(report)"), "{denied}");
        assert_eq!(list_all(&manager).await.len(), 1);
        guard.release().await.unwrap();
        assert!(manager.inspect("k").await.unwrap().is_empty());

        // Another client's plain value is shown as such.
        if let Some(server) = server {
            server.set("clinch:lock:plain", "some other client");
            let holder = manager.inspect("plain").await.unwrap().remove(0);
            assert_eq!((holder.owner(), holder.remaining()), (None, None));
            let error = manager.lock("plain", TTL).await.unwrap_err();
            assert!(error.to_string().contains("an unknown client, without expiry"), "{error}");
        }
    }
}

/// Proves: L4
#[tokio::test]
async fn every_lock_expires_on_its_own() {
    let server = RedisServer::start();
    let manager = LockManager::connect(&server.url()).await.unwrap();
    let ttl = Duration::from_secs(2);
    let guard = manager.try_lock("k", ttl).await.unwrap().unwrap();
    let left = server.pttl("clinch:lock:k");
    assert!(left > 0 && left <= 2_000, "{left}");
    assert_eq!(guard.lost().await, Loss::Expired);
    assert!(!guard.is_valid());
    eventually("the key is gone", || !server.exists("clinch:lock:k")).await;
}

/// A storm of 1,000 tries on one key, the winner holding until all have answered.
async fn storm(managers: Vec<LockManager>) -> (usize, usize) {
    let gate = Arc::new(Barrier::new(1_000));
    let tries: Vec<_> = (0..1_000)
        .map(|i| {
            let (manager, gate) = (managers[i % managers.len()].clone(), gate.clone());
            tokio::spawn(async move {
                gate.wait().await;
                let guard = manager.try_lock("storm", TTL).await.unwrap();
                // The winner holds until all have answered.
                gate.wait().await;
                guard.is_some()
            })
        })
        .collect();
    let mut winners = 0;
    for one in tries {
        winners += usize::from(one.await.unwrap());
    }
    (winners, 1_000 - winners)
}

/// Proves: L7, T7
#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_tries_have_one_winner_and_three_commands_at_most() {
    let bench = Bench::start().await;
    let manager = bench.manager().await;
    hears(&manager, &bench.outsider().await).await;
    bench.proxy.reset_counts();
    assert_eq!(storm(vec![manager.clone()]).await, (1, 999));
    eventually("the winner's lock is given back", || bench.count(Step::Release) == 1).await;
    let acquires = bench.count(Step::Acquire);
    println!("1,000 tries from one manager: {acquires} acquire(s) and 1 release over the wire");
    assert!(acquires <= 2, "{acquires}");
    assert!(bench.proxy.lease_commands() <= 3, "{:#?}", bench.proxy.log());

    let four = [bench.manager().await, bench.manager().await, bench.manager().await, bench.manager().await];
    assert_eq!(storm(four.to_vec()).await, (1, 999));
}

/// Proves: T7
/// Tries that come while a call is in flight share the next one: a storm is two calls, however large. None of them is
/// answered by the call that was sent before it came.
#[tokio::test]
async fn a_thousand_tries_on_a_key_held_elsewhere_are_two_calls() {
    let bench = Bench::start().await;
    let manager = bench.manager().await;
    let stranger = take(&bench.outsider().await, "storm").await;
    // From here on it is known that others want it, too.
    assert!(manager.try_lock("storm", TTL).await.unwrap().is_none());
    bench.proxy.reset_counts();
    bench.strike(Step::Acquire, Action::HoldReply);

    // Polled in turn by one task: the first one asks, and the others come while it waits.
    let tries = join_all((0..1_000).map(|_| manager.try_lock("storm", TTL)));
    let (answers, ()) = tokio::join!(tries, async {
        bench.proxy.wait_until_held().await;
        // The answer on its way says "held", and is stale from here on.
        assert!(stranger.release().await.unwrap());
        bench.proxy.release_held();
    });
    let winners = answers.iter().filter(|answer| answer.as_ref().unwrap().is_some()).count();
    assert_eq!(winners, 1, "the key was free when the second call was sent");
    assert!(answers[0].as_ref().unwrap().is_none(), "the first one was answered by the first call");
    assert_eq!(bench.count(Step::Acquire), 2);
}

/// Proves: T7
/// Also where nobody has asked for the key before: the first one learns that it is held, and by whom, and the others share one call.
#[tokio::test]
async fn a_thousand_tries_on_a_key_held_elsewhere_are_three_commands_at_most() {
    let bench = Bench::start().await;
    let manager = bench.manager().await;
    let _stranger = take(&bench.outsider().await, "storm").await;
    bench.proxy.reset_counts();
    let answers = join_all((0..1_000).map(|_| manager.try_lock("storm", TTL))).await;
    assert!(answers.iter().all(|answer| answer.as_ref().unwrap().is_none()));
    assert!(bench.proxy.lease_commands() <= 3, "{:#?}", bench.proxy.log());
}

/// Proves: L1
/// The memory store is bounded: over the bound a clear error, and a live lease is never evicted.
#[tokio::test]
async fn the_memory_store_is_bounded() {
    let store = MemoryStore::new().with_max_leases(3);
    let manager = LockManager::builder().store(Arc::new(store.clone())).build().unwrap();
    let guards = [take(&manager, "a").await, take(&manager, "b").await, take(&manager, "c").await];
    let error = manager.try_lock("d", TTL).await.unwrap_err();
    assert!(error.to_string().contains("its bound is 3"), "{error}");
    assert!(manager.try_lock("a", TTL).await.unwrap().is_none(), "nothing was evicted");
    for guard in guards {
        assert!(guard.release().await.unwrap());
    }
    take(&manager, "d").await.release().await.unwrap();
    assert!(store.is_empty());
}

/// Expired leases leave memory by a timer, without anybody looking.
#[tokio::test(start_paused = true)]
async fn the_memory_store_forgets_expired_leases_by_itself() {
    let store = MemoryStore::new();
    let manager = LockManager::builder().store(Arc::new(store.clone())).build().unwrap();
    let guard = manager.try_lock("k", Duration::from_secs(5)).await.unwrap().unwrap();
    tokio::time::advance(Duration::from_secs(4)).await;
    assert_eq!(store.len(), 1);
    guard.lost().await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(store.is_empty());
}
