//! What once broke when a runtime ended and another one went on, on real Redis. Each test is a promise that did not hold.

use std::time::Duration;

use clinch::{LockManager, LockOptions, Loss};
use clinch_testkit::proxy::Action;
use clinch_testkit::server::Reply;
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

use crate::common::{Bench, LONG, Step, TTL, eventually, poll_once, take, waiting};

/// A runtime with a thread of its own, so that what runs on it goes on between two calls.
fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

/// A lock on a new runtime, when the one that was connecting has ended.
fn works_on_a_new_runtime(manager: &LockManager) {
    runtime().block_on(async {
        let guard = manager.lock("k", waiting(TTL, LONG)).await.unwrap();
        assert!(guard.release().await.unwrap());
    });
}

/// A connect that was under way when its runtime ended fails; later calls, on another one, make their own.
#[test]
fn a_connect_that_ends_with_its_runtime_poisons_no_later_call() {
    let (keeper, first) = (runtime(), runtime());
    let bench = keeper.block_on(Bench::start());
    let manager = first.block_on(async {
        let manager = LockManager::builder()
            .call_timeout(Duration::from_secs(1))
            .connect(&bench.proxy.url())
            .await
            .unwrap();
        let opened = bench.proxy.connections_opened();
        bench.proxy.stall();
        // The first call finds the connection silent; the next one waits for a new one, which is silent too.
        let pings = async {
            loop {
                assert!(manager.ping().await.is_err());
            }
        };
        let connecting = eventually("a connect is under way", || bench.proxy.connections_opened() > opened);
        tokio::select! {
            () = pings => {}
            () = connecting => {}
        }
        manager
    });
    drop(first);
    bench.proxy.resume();
    works_on_a_new_runtime(&manager);
}

/// The same for a connect that has not begun yet, because of the pause after earlier failures.
#[test]
fn a_paused_connect_that_ends_with_its_runtime_poisons_no_later_call() {
    let (keeper, first) = (runtime(), runtime());
    let bench = keeper.block_on(Bench::start());
    let manager = first.block_on(bench.manager());
    keeper.block_on(async {
        bench.proxy.refuse(true).await;
        bench.proxy.cut_all().await;
    });
    first.block_on(async {
        // Failures in a row: the next pause is a long one.
        for _ in 0..3 {
            assert!(manager.ping().await.is_err());
        }
        let mut paused = Box::pin(manager.try_lock("k", TTL));
        assert!(poll_once(paused.as_mut()).await.is_pending());
        tokio::task::yield_now().await;
    });
    drop(first);
    keeper.block_on(bench.proxy.refuse(false));
    works_on_a_new_runtime(&manager);
}

/// Proves: B3
/// A renewal that was under way when the background task's runtime ended is taken up by the next one.
#[test]
fn a_renewal_that_ends_with_its_runtime_is_taken_up_again() {
    let (first, second) = (runtime(), runtime());
    let bench = second.block_on(Bench::start());
    let manager = first.block_on(async {
        let manager = bench.manager().await;
        // The background task runs on the runtime of the first call.
        take(&manager, "any").await.release().await.unwrap();
        manager
    });
    second.block_on(async {
        let options = LockOptions::new(TTL).renew_every(Duration::from_millis(50));
        let guard = manager.try_lock("k", options).await.unwrap().unwrap();
        bench.strike(Step::Renew, Action::HoldReply);
        bench.proxy.wait_until_held().await;
        first.shutdown_background();
        bench.proxy.release_held();
        let sent = bench.count(Step::Renew);
        let renewed = eventually("it is renewed again", || bench.count(Step::Renew) > sent + 2);
        // Any call starts the background task again, once the old one is gone.
        let calls = async {
            loop {
                take(&manager, "any").await.release().await.unwrap();
            }
        };
        tokio::select! {
            () = renewed => {}
            () = calls => {}
        }
        assert!(guard.is_valid());
        assert!(guard.release().await.unwrap());
    });
}

/// Revocations and wake-ups are heard on a runtime that lives, when the one on which hearing began has ended.
#[test]
fn pushes_are_heard_after_the_end_of_the_first_runtime() {
    let (first, second) = (runtime(), runtime());
    let bench = second.block_on(Bench::start());
    let channel = |name: &str| match bench.server.command(&["PUBSUB", "NUMSUB", name]) {
        Reply::Array(reply) => reply[1].int(),
        other => panic!("{other:?}"),
    };
    let (manager, guard) = first.block_on(async {
        let manager = bench.manager().await;
        let guard = take(&manager, "k").await;
        eventually("revocations are heard", || channel("clinch:revoked") == Some(1)).await;
        (manager, guard)
    });
    drop(first);
    second.block_on(async {
        let operator = bench.outsider().await;
        let mut lost = Box::pin(guard.lost());
        assert!(poll_once(lost.as_mut()).await.is_pending());
        let seen = operator.inspect("k").await.unwrap().remove(0);
        assert!(operator.force_release(&seen).await.unwrap());
        let loss = timeout(LONG, lost).await.unwrap();
        // By push, or by looking once after hearing began anew.
        assert!(matches!(loss, Loss::Revoked | Loss::TakenOver), "{loss:?}");

        let held = take(&operator, "k").await;
        bench.proxy.reset_counts();
        let waiter = tokio::spawn({
            let manager = manager.clone();
            async move { manager.lock("k", waiting(TTL, LONG).retry_interval(LONG)).await }
        });
        eventually("it has subscribed and asked again", || bench.count(Step::Acquire) == 2).await;
        held.release().await.unwrap();
        // Nothing else can wake it: its poll is half a minute away.
        let guard = timeout(LONG / 2, waiter).await.expect("woken by push").unwrap().unwrap();
        assert!(guard.release().await.unwrap());
    });
}
