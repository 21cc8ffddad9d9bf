//! Storms of tries that are larger than one batch, or come from more than one runtime, on real Redis.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::mpsc;

use clinch::LockManager;
use clinch_testkit::proxy::Action;
use futures_util::future::join_all;
use tokio::runtime::{Builder, Runtime};

use crate::common::{Bench, Step, TTL, take};

/// More than fit in one batch.
const MANY: usize = 9_000;

fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

/// So many tries at once, polled in turn by one task; how many of them won.
async fn winners(manager: &LockManager, tries: usize) -> usize {
    let answers = join_all((0..tries).map(|_| manager.try_lock("storm", TTL))).await;
    answers.iter().filter(|answer| answer.as_ref().unwrap().is_some()).count()
}

/// Proves: T7
/// A batch has 4,096 places; whoever comes then goes into the next one, and each batch is one call.
#[tokio::test]
async fn a_storm_that_fills_several_batches_is_a_call_for_each() {
    let bench = Bench::start().await;
    let manager = bench.patient().await;
    let stranger = take(&bench.outsider().await, "storm").await;
    // From here on it is known that others want it, too.
    assert_eq!(winners(&manager, 1).await, 0);
    bench.proxy.reset_counts();
    bench.strike(Step::Acquire, Action::HoldReply);
    let (won, ()) = tokio::join!(winners(&manager, MANY), async {
        bench.proxy.wait_until_held().await;
        bench.proxy.release_held();
    });
    assert_eq!(won, 0);
    let calls = bench.count(Step::Acquire);
    assert!((2..=4).contains(&calls), "{calls} calls: the first, and one for each of three batches at most");

    // The same on a free key: exactly one wins, whichever batch it is in.
    assert!(stranger.release().await.unwrap());
    assert_eq!(winners(&manager, MANY).await, 1);
}

/// Proves: T7
/// Tries from two runtimes share a batch. Each runtime has a timer of its own for it, so one that ends takes nobody else's away, and
/// all of the other's are answered.
#[test]
fn tries_of_two_runtimes_share_a_call_and_outlive_each_other() {
    let (keeper, first, second) = (runtime(), runtime(), runtime());
    let (bench, stranger, manager) = keeper.block_on(async {
        let bench = Bench::start().await;
        let stranger = take(&bench.outsider().await, "storm").await;
        let manager = bench.patient().await;
        assert_eq!(winners(&manager, 1).await, 0);
        (bench, stranger, manager)
    });
    bench.proxy.reset_counts();
    bench.strike(Step::Acquire, Action::HoldReply);

    // One who asks, whose answer is held back; then a hundred on each runtime behind it.
    let asks = keeper.spawn({
        let manager = manager.clone();
        async move { winners(&manager, 1).await }
    });
    keeper.block_on(bench.proxy.wait_until_held());
    let rides = |runtime: &Runtime| {
        let (manager, (polled, was_polled)) = (manager.clone(), mpsc::channel());
        let riding = runtime.spawn(async move {
            let mut riding = pin!(winners(&manager, 100));
            // Told in the first poll, after everything that it does: a runtime that ends then ends between two.
            poll_fn(|context| {
                let won = riding.as_mut().poll(context);
                _ = polled.send(());
                won
            })
            .await
        });
        was_polled.recv().unwrap();
        riding
    };
    let (gone, stay) = (rides(&first), rides(&second));
    drop(first);
    assert!(keeper.block_on(gone).unwrap_err().is_cancelled(), "its tries ended with their runtime");

    bench.proxy.release_held();
    assert_eq!(keeper.block_on(asks).unwrap(), 0);
    assert_eq!(keeper.block_on(stay).unwrap(), 0);
    assert_eq!(bench.count(Step::Acquire), 2, "all of them shared one call, those that are gone included");
    assert!(keeper.block_on(stranger.release()).unwrap());
    assert_eq!(keeper.block_on(winners(&manager, 1)), 1);
}
