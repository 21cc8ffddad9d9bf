//! Blocks that are dropped when their lease is lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clinch::{Error, LockManager, LockOptions, Loss};
use clinch_testkit::proxy::{Action, Rule};
use tokio::time::{Instant, sleep};

use crate::common::{Bench, LONG, Step, TTL};

/// Says when it was dropped.
struct Dropped(Arc<std::sync::Mutex<Option<Instant>>>);

impl Drop for Dropped {
    fn drop(&mut self) {
        *self.0.lock().unwrap() = Some(Instant::now());
    }
}

/// Proves: B1, L2
/// The block is dropped no later than the validity ends, and the caller is told why; a block that is done in time is not.
#[tokio::test(start_paused = true)]
async fn the_block_is_dropped_when_its_lease_ends() {
    let locks = LockManager::memory();
    let at = Arc::new(std::sync::Mutex::new(None));
    let seen = Dropped(at.clone());
    let ttl = Duration::from_secs(5);
    let began = Instant::now();
    let lost = locks
        .with_lock("k", ttl, async move |_| {
            let _seen = seen;
            sleep(LONG).await;
        })
        .cancel_on_loss()
        .await;
    assert!(matches!(lost, Err(Error::LeaseLost { loss: Loss::Expired, .. })), "{lost:?}");
    assert!(at.lock().unwrap().unwrap() <= began + ttl);
    let done = locks.with_lock("k", ttl, async |_| 42).cancel_on_loss().await;
    assert_eq!(done.unwrap(), 42);
    let limit = locks.limit("export", 1).unwrap();
    let lost = limit.with_permit(ttl, async |_| sleep(LONG).await).cancel_on_loss().await;
    assert!(matches!(lost, Err(Error::LeaseLost { .. })));
}

/// Proves: B1
/// Also while a renewal hangs, and at once when the lease is ended by force.
#[tokio::test]
async fn a_hanging_renewal_does_not_keep_the_block_alive() {
    let bench = Bench::start().await;
    let locks = bench.manager().await;
    bench.proxy.add(Rule::new(Action::HoldReply).matching(bench.is(Step::Renew)).always());
    let ttl = Duration::from_millis(900);
    let began = Instant::now();
    let options = LockOptions::new(ttl).renew();
    let lost = locks.with_lock("k", options, async |_| sleep(LONG).await).cancel_on_loss().await;
    assert!(matches!(lost, Err(Error::LeaseLost { .. })), "{lost:?}");
    assert!(bench.count(Step::Renew) > 0, "a renewal hangs");
    // Not by an assertion on speed: the block was to sleep far longer.
    assert!(began.elapsed() < LONG);

    // At once, too, when it is ended by force.
    let bench = Bench::start().await;
    let locks = bench.manager().await;
    let other = bench.outsider().await;
    let running = Arc::new(AtomicBool::new(false));
    let block = locks
        .with_lock("forced", TTL, {
            let running = running.clone();
            async move |_| {
                running.store(true, Ordering::SeqCst);
                sleep(LONG).await;
            }
        })
        .cancel_on_loss();
    let force = async {
        crate::common::eventually("the block runs", || running.load(Ordering::SeqCst)).await;
        let holder = other.inspect("forced").await.unwrap().remove(0);
        assert!(other.force_release(&holder).await.unwrap());
    };
    let (lost, ()) = tokio::join!(block, force);
    assert!(matches!(lost, Err(Error::LeaseLost { .. })), "{lost:?}");
}
