//! A failover in the middle of 10,000 guarded requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use clinch::{Error, LockManager, LockOptions, Strategy};
use clinch_testkit::deployment::SentinelDeployment;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::common::{LONG, TTL, aside, connections, eventually, subscribers, take};

const REQUESTS: usize = 10_000;
const TASKS: usize = 50;
/// How long a client waits before its next request after one that failed.
const PAUSE: Duration = Duration::from_millis(100);
const CALL: Duration = Duration::from_millis(500);
/// A try may share another's call and then need its own; `RetryOnce` does that twice, with a pause between. The rest is for a
/// busy machine.
const LIMIT: Duration = Duration::from_secs(10);

#[derive(Default)]
struct Counts {
    done: AtomicUsize,
    ran: AtomicUsize,
    unprotected: AtomicUsize,
    denied: AtomicUsize,
    failed: AtomicUsize,
    slowest_ms: AtomicUsize,
}

async fn request(manager: &LockManager, number: usize, counts: &Counts) {
    let strategy = [Strategy::FailFast, Strategy::Proceed, Strategy::RetryOnce][number % 3];
    let options = LockOptions::new(Duration::from_secs(5)).strategy(strategy);
    let began = Instant::now();
    let answer = timeout(LIMIT, manager.lock(format!("request:{}", number % 997), options)).await;
    let took = usize::try_from(began.elapsed().as_millis()).unwrap();
    counts.slowest_ms.fetch_max(took, Ordering::Relaxed);
    let count = match answer.unwrap_or_else(|_| panic!("request {number} hung for {took} ms")) {
        Ok(guard) => {
            let degraded = guard.is_degraded();
            assert!(!degraded || strategy == Strategy::Proceed, "{strategy:?} went on unprotected");
            drop(guard);
            if degraded { &counts.unprotected } else { &counts.ran }
        }
        Err(Error::LockNotAcquired { .. }) => &counts.denied,
        Err(Error::Engine { cause: source, .. }) => {
            assert!(strategy != Strategy::Proceed, "Proceed was refused: {source}");
            &counts.failed
        }
        Err(other) => panic!("{other}"),
    };
    count.fetch_add(1, Ordering::Relaxed);
    counts.done.fetch_add(1, Ordering::Relaxed);
}

/// No request hangs past its limit, each strategy does what it says, waiters wake again, and no connection or subscription is
/// left behind.
///
/// Proves: O6, D10
/// Fault: 28
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failover_amid_ten_thousand_requests_hangs_nobody() {
    let deployment = Arc::new(tokio::task::spawn_blocking(SentinelDeployment::start).await.unwrap());
    let manager = LockManager::builder().call_timeout(CALL).connect(&deployment.url()).await.unwrap();
    let counts = Arc::new(Counts::default());
    let next = Arc::new(AtomicUsize::new(0));
    let mut tasks = JoinSet::new();
    for _ in 0..TASKS {
        let (manager, counts, next) = (manager.clone(), counts.clone(), next.clone());
        tasks.spawn(async move {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= REQUESTS {
                    break;
                }
                let before = counts.ran.load(Ordering::Relaxed);
                request(&manager, number, &counts).await;
                if counts.ran.load(Ordering::Relaxed) == before {
                    sleep(PAUSE).await;
                }
            }
        });
    }
    let before = aside(&deployment, SentinelDeployment::primary).await;
    eventually("a third is done", || counts.done.load(Ordering::Relaxed) > REQUESTS / 3).await;
    deployment.servers()[before].kill();
    let now = aside(&deployment, move |deployment| deployment.wait_for_other_than(before)).await;
    let ran_before = counts.ran.load(Ordering::Relaxed);
    while let Some(ended) = tasks.join_next().await {
        ended.unwrap();
    }
    let count = |of: &AtomicUsize| of.load(Ordering::Relaxed);
    let [ran, unprotected, denied, failed] =
        [&counts.ran, &counts.unprotected, &counts.denied, &counts.failed].map(count);
    eprintln!(
        "{ran} ran, {unprotected} unprotected, {denied} denied, {failed} failed, slowest {} ms",
        count(&counts.slowest_ms)
    );
    assert_eq!(ran + unprotected + denied + failed, REQUESTS);
    assert!(unprotected > 0 && failed > 0, "the fault did not happen");
    assert!(ran > ran_before, "work goes on after the failover");

    let primary = &deployment.servers()[now];
    let guard = take(&manager, "waited-for").await;
    let waiter = LockManager::connect(&deployment.url()).await.unwrap();
    let waiting = tokio::spawn(async move {
        let options = LockOptions::new(TTL).wait(LONG * 2).retry_interval(LONG * 2);
        drop(waiter.lock("waited-for", options).await.unwrap());
    });
    let channel = "clinch:wake:{clinch:lock:waited-for}";
    eventually("the waiter listens", || subscribers(primary, "NUMSUB", channel) == 1).await;
    drop(guard);
    timeout(LONG, waiting).await.expect("woken by push").unwrap();
    manager.shutdown(LONG).await;
    drop(manager);
    eventually("no key is left behind", || primary.keys("clinch:lock:*").is_empty()).await;
    eventually("no subscription is left behind", || subscribers(primary, "NUMSUB", "clinch:revoked") == 0)
        .await;
    eventually("no connection is left behind", || connections(primary) == 0).await;
}
