//! Fences.

use std::sync::Arc;

use clinch::stores::memory::MemoryStore;
use clinch::{Error, Fence, LockManager, LockOptions};
use clinch_testkit::proxy::{Action, Rule};
use clinch_testkit::server::RedisServer;

use crate::common::{Bench, LONG, TTL, both, poll_once};

fn fenced() -> LockOptions {
    LockOptions::new(TTL).fenced()
}

async fn next(locks: &LockManager) -> Fence {
    let guard = locks.lock("k", fenced()).await.unwrap();
    let fence = guard.fence().unwrap();
    guard.release().await.unwrap();
    fence
}

/// Proves: B2
/// Rising over releases, over passes, over force-releases, over managers; none where none was asked for; shown by `inspect`.
#[tokio::test]
async fn fences_rise_over_everything_that_ends_a_lease() {
    for (locks, _server) in both().await {
        let mut last = next(&locks).await;
        let mut rises = |fence: Fence| {
            assert!(fence > last, "{fence} after {last}");
            last = fence;
        };
        rises(next(&locks).await);
        let first = locks.lock("k", fenced()).await.unwrap();
        rises(first.fence().unwrap());
        let mut second = Box::pin(locks.lock("k", fenced().wait(LONG)));
        assert!(poll_once(second.as_mut()).await.is_pending());
        let token = first.token().clone();
        drop(first);
        let second = second.await.unwrap();
        assert_eq!(second.token(), &token, "passed on");
        rises(second.fence().unwrap());
        let holder = locks.inspect("k").await.unwrap().remove(0);
        assert!(holder.fence().is_some());
        assert!(locks.force_release(&holder).await.unwrap());
        drop(second);
        rises(next(&locks).await);
        let plain = locks.lock("k", TTL).await.unwrap();
        assert_eq!(plain.fence(), None);
        drop(plain);
        rises(next(&locks).await);
        let all = locks.lock_all(["x", "y"], fenced()).await.unwrap();
        assert!(all.keys().all(|key| all.fence_of(key).is_some()));
        assert!(all.fence_of(&"z".parse().unwrap()).is_none());
    }
}

/// Proves: B2
/// Fault: 24
/// The counter is lost: the fence still rises, by the server's clock. So it does when the server restarts without its memory.
#[tokio::test]
async fn fences_rise_after_the_counter_or_the_server_was_lost() {
    let server = RedisServer::start();
    let locks = LockManager::connect(&server.url()).await.unwrap();
    let first = next(&locks).await;
    server.command(&["FLUSHALL"]);
    // Another process, which has seen no fence yet.
    let other = LockManager::connect(&server.url()).await.unwrap();
    let second = next(&other).await;
    assert!(second > first, "{second} after {first}");
    server.restart();
    let third = next(&LockManager::connect(&server.url()).await.unwrap()).await;
    assert!(third > second, "{third} after {second}");

    let store = Arc::new(MemoryStore::new());
    let locks = LockManager::builder().store(store.clone()).build().unwrap();
    let first = next(&locks).await;
    store.forget_everything();
    assert!(next(&LockManager::builder().store(store).build().unwrap()).await > first);
}

/// Proves: B2
/// What a manager has seen is a floor: even where the engine's clock went back and its counter was lost, its next fence is
/// higher.
#[tokio::test]
async fn what_was_seen_is_a_floor() {
    let bench = Bench::start().await;
    let locks = bench.outsider().await;
    // As if the clock had been an hour ahead when the last fence was given.
    let ahead = next(&locks).await.get() / Fence::STEP + 3_600_000_000;
    let stored = bench.server.get("clinch:fence:{clinch:lock:k}").unwrap();
    let token = stored.split_once(' ').unwrap().1;
    bench.server.command(&["SET", "clinch:fence:{clinch:lock:k}", &format!("{ahead} {token}")]);
    let high = next(&locks).await;
    assert!(high.get() / Fence::STEP > ahead);
    bench.server.command(&["DEL", "clinch:fence:{clinch:lock:k}"]);
    let higher = next(&locks).await;
    assert!(higher > high, "{higher} after {high}");
}

/// Proves: B2
/// Fault: 3
/// The same fence when a lost reply is asked for again.
#[tokio::test]
async fn a_lost_reply_asked_for_again_has_the_same_fence() {
    let bench = Bench::start().await;
    let locks = bench.manager().await;
    next(&locks).await;
    bench.proxy.add(Rule::new(Action::CutAfterRequest).matching(|command| command.name == "EVALSHA"));
    let guard = locks.lock("k", fenced()).await.unwrap();
    let stored = bench.server.get("clinch:fence:{clinch:lock:k}").unwrap();
    let minted: u64 = stored.split_once(' ').unwrap().0.parse().unwrap();
    assert_eq!(guard.fence().unwrap().get(), minted * Fence::STEP, "minted once");
}

/// Proves: B2
/// A fence where there is none is refused before anything is sent.
#[tokio::test]
async fn a_fence_that_cannot_be_is_refused() {
    let locks = LockManager::memory();
    let error = locks.lock("k", fenced().shared()).await.unwrap_err();
    assert!(matches!(error, Error::InvalidOption { field: "fenced", .. }), "{error}");
    let limit = locks.limit("export", 2).unwrap();
    assert!(matches!(limit.acquire(fenced()).await, Err(Error::InvalidOption { field: "fenced", .. })));
}
