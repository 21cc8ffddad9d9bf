//! Readers and writers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use clinch::lease::Mode;
use clinch::stores::memory::MemoryStore;
use clinch::{LockManager, LockOptions, Outcome};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use crate::common::{Bench, LONG, TTL, both, eventually, holds_back, poll_once, take, waiting};

fn reading() -> LockOptions {
    LockOptions::new(TTL).shared()
}

/// Proves: B7
/// Many readers or one writer, and neither stands in the way when it is on its way out.
#[tokio::test]
async fn many_readers_or_one_writer() {
    for (locks, _server) in both().await {
        let (one, two) =
            (locks.lock("k", reading()).await.unwrap(), locks.lock("k", reading()).await.unwrap());
        assert_eq!(locks.inspect("k").await.unwrap().len(), 2);
        let Outcome::DeniedByLock(denied) = locks.attempt("k", TTL).await.unwrap() else { panic!("readers") };
        assert_eq!(denied.holder.unwrap().mode(), Mode::Shared);
        drop(one);
        assert!(locks.try_lock("k", TTL).await.unwrap().is_none());
        drop(two);
        let writer = take(&locks, "k").await;
        assert!(locks.try_lock("k", reading()).await.unwrap().is_none());
        drop(writer);
        assert!(locks.try_lock("k", reading()).await.unwrap().is_some());
    }
}

/// Proves: B7
/// A stream of readers that always overlap does not starve a writer that waits.
#[tokio::test]
async fn a_waiting_writer_is_not_starved() {
    let bench = Bench::start().await;
    let (readers, writers) = (bench.outsider().await, bench.outsider().await);
    let (stop, reads) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let mut tasks = JoinSet::new();
    for i in 0..4_u64 {
        let (readers, stop, reads) = (readers.clone(), stop.clone(), reads.clone());
        tasks.spawn(async move {
            while !stop.load(Ordering::Relaxed) {
                let options = reading().wait(LONG).retry_interval(Duration::from_millis(5));
                let guard = readers.lock("k", options).await.unwrap();
                reads.fetch_add(1, Ordering::Relaxed);
                // What a reader does: long enough that another is always in.
                tokio::time::sleep(Duration::from_millis(15 + i)).await;
                guard.release().await.unwrap();
            }
        });
    }
    eventually("the stream flows", || reads.load(Ordering::Relaxed) > 8).await;
    for _ in 0..3 {
        let writer = timeout(LONG, writers.lock("k", waiting(TTL, LONG))).await.unwrap().unwrap();
        let before = reads.load(Ordering::Relaxed);
        tokio::task::yield_now().await;
        assert_eq!(reads.load(Ordering::Relaxed), before, "nobody reads while it is written");
        writer.release().await.unwrap();
        eventually("the stream flows on", || reads.load(Ordering::Relaxed) > before).await;
    }
    stop.store(true, Ordering::Relaxed);
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
}

/// Proves: B7
/// A writer that gave up keeps no reader out: it is withdrawn. One that died keeps them out for a second at most.
#[tokio::test]
async fn a_writer_that_is_gone_keeps_nobody_out() {
    for (locks, server) in both().await {
        // On Redis the writer is another process's.
        let writers = match &server {
            Some(server) => LockManager::connect(&server.url()).await.unwrap(),
            None => locks.clone(),
        };
        let reader = locks.lock("k", reading()).await.unwrap();
        let mut writer = Box::pin(writers.lock("k", waiting(TTL, LONG)));
        holds_back(writer.as_mut(), &locks, "k").await;
        drop(writer);
        let again = reading().wait(LONG).retry_interval(LONG);
        let next = timeout(LONG, locks.lock("k", again)).await.unwrap().unwrap();
        drop((reader, next));

        if server.is_some() {
            let reader = locks.lock("k", reading()).await.unwrap();
            let mut dying = Box::pin(writers.lock("k", waiting(TTL, LONG)));
            holds_back(dying.as_mut(), &locks, "k").await;
            std::mem::forget(dying);
            let began = Instant::now();
            let again = reading().wait(LONG).retry_interval(Duration::from_millis(20));
            let _next = timeout(LONG, locks.lock("k", again)).await.unwrap().unwrap();
            assert!(began.elapsed() < LONG / 3, "{:?}", began.elapsed());
            drop(reader);
        }
    }
}

/// Proves: L12, B7
/// While readers hold a key, a plain `SET NX` of another client is refused, and a plain value keeps readers out.
#[tokio::test]
async fn plain_clients_are_excluded_by_readers_and_exclude_them() {
    let bench = Bench::start().await;
    let locks = bench.outsider().await;
    let reader = locks.lock("k", reading()).await.unwrap();
    let set = || bench.server.command(&["SET", "clinch:lock:k", "plain", "NX", "PX", "60000"]).text();
    assert_eq!(set(), None);
    assert!(reader.release().await.unwrap());
    assert_eq!(set().as_deref(), Some("OK"));
    assert!(locks.try_lock("k", reading()).await.unwrap().is_none());
    bench.server.command(&["DEL", "clinch:lock:k"]);
    assert!(locks.try_lock("k", reading()).await.unwrap().is_some());
}

/// Proves: B7, B3
/// Readers are renewed, each for itself, and expire each for itself.
#[tokio::test]
async fn readers_live_and_end_each_for_itself() {
    for (locks, _server) in both().await {
        let ttl = Duration::from_secs(2);
        let short = locks.lock("k", LockOptions::new(ttl).shared()).await.unwrap();
        let renewed = locks.lock("k", LockOptions::new(ttl).shared().renew()).await.unwrap();
        assert_eq!(short.lost().await, clinch::Loss::Expired);
        tokio::time::sleep(ttl / 2).await;
        assert!(renewed.is_valid());
        assert_eq!(locks.inspect("k").await.unwrap().len(), 1);
        let mut writer = Box::pin(locks.lock("k", waiting(TTL, LONG)));
        assert!(poll_once(writer.as_mut()).await.is_pending());
        drop(renewed);
        assert!(timeout(LONG, writer).await.unwrap().unwrap().is_valid());
    }
}

/// Proves: B5, B7
/// Readers and writers of one process have a line each. Those do not take each other for another process, and step back for it.
#[tokio::test(start_paused = true)]
async fn lines_of_one_process_do_not_step_back_for_each_other() {
    let store = Arc::new(MemoryStore::new());
    let manager = || LockManager::builder().store(store.clone()).build().unwrap();
    let (other, locks) = (manager(), manager());
    let held = take(&other, "k").await;
    let mut tasks = JoinSet::new();
    for options in [LockOptions::new(TTL), LockOptions::new(TTL), reading(), reading()] {
        let locks = locks.clone();
        tasks.spawn(async move {
            // It goes back to the engine, which wakes both lines.
            let guard = locks.lock("k", options.wait(TTL).no_local_pass()).await.unwrap();
            assert!(guard.release().await.unwrap());
        });
    }
    // Both lines have asked, and listen.
    tokio::time::sleep(Duration::from_millis(1)).await;
    let began = Instant::now();
    assert!(held.release().await.unwrap());
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    assert_eq!(began.elapsed(), Duration::ZERO);
}
