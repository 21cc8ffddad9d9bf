//! The fair queue across processes.

use std::pin::Pin;
use std::time::Duration;

use clinch::{Error, LockManager, LockOptions, Outcome};
use tokio::time::{Instant, timeout};

use crate::common::{Bench, LONG, TTL, eventually, poll_once, take};

fn fair() -> LockOptions {
    LockOptions::new(TTL).wait(LONG).retry_interval(Duration::from_millis(20)).fair()
}

const LOCK: &str = "clinch:lock:k";
const QUEUE: &str = "clinch:queue:{clinch:lock:k}";
const QUEUED: &str = "clinch:queued:{clinch:lock:k}";

async fn queued(bench: &Bench, count: i64) {
    eventually("it stands in the queue", || bench.server.command(&["LLEN", QUEUE]).int() == Some(count))
        .await;
}

/// Polls the waiter until so many stand in the queue.
async fn joins<T>(mut waiter: Pin<&mut impl Future<Output = T>>, bench: &Bench, count: i64) {
    tokio::select! {
        _ = waiter.as_mut() => panic!("it did not wait"),
        () = queued(bench, count) => {}
    }
}

/// Proves: B7
/// First come first served over managers and inside them, in the order in which the engine heard of them.
#[tokio::test]
async fn first_come_first_served_over_managers() {
    let bench = Bench::start().await;
    let managers = [bench.outsider().await, bench.outsider().await, bench.outsider().await];
    let holder = managers[0].lock("k", fair()).await.unwrap();
    let order = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let mut tasks = Vec::new();
    for i in 0..12 {
        let (manager, order) = (managers[i % 3].clone(), order.clone());
        tasks.push(tokio::spawn(async move {
            let guard = manager.lock("k", fair()).await.unwrap();
            order.lock().unwrap().push(i);
            guard.release().await.unwrap();
        }));
        queued(&bench, i64::try_from(i + 1).unwrap()).await;
    }
    // A try overtakes nobody.
    assert!(managers[1].try_lock("k", fair().wait(Duration::ZERO)).await.unwrap().is_none());
    drop(holder);
    for task in tasks {
        timeout(LONG, task).await.unwrap().unwrap();
    }
    assert_eq!(*order.lock().unwrap(), (0..12).collect::<Vec<_>>());
    eventually("nothing is left", || bench.keys_left() == 0).await;
}

/// Proves: B7, B4
/// A waiter that is dropped or whose time is over leaves the queue; the others move up at once.
#[tokio::test]
async fn whoever_leaves_the_queue_delays_nobody() {
    let bench = Bench::start().await;
    let (one, two) = (bench.outsider().await, bench.outsider().await);
    let holder = one.lock("k", fair()).await.unwrap();
    let mut dropped = Box::pin(one.lock("k", fair()));
    joins(dropped.as_mut(), &bench, 1).await;
    let mut impatient = Box::pin(two.lock("k", fair().wait(Duration::from_secs(2))));
    joins(impatient.as_mut(), &bench, 2).await;
    drop(dropped);
    assert!(matches!(impatient.await, Err(Error::LockNotAcquired { .. })));
    queued(&bench, 0).await;
    let mut last = Box::pin(two.lock("k", fair()));
    joins(last.as_mut(), &bench, 1).await;
    drop(holder);
    assert!(timeout(LONG, last).await.unwrap().unwrap().release().await.unwrap());
}

/// Proves: B7
/// A waiter that dies in the queue delays the next one by the confirmation time, not by a TTL.
#[tokio::test]
async fn a_dead_waiter_costs_the_confirmation_time() {
    let bench = Bench::start().await;
    let (one, two) = (bench.outsider().await, bench.outsider().await);
    let confirm = Duration::from_millis(300);
    let options = || fair().fair_within(confirm);
    let holder = one.lock("k", options()).await.unwrap();
    let mut dead = Box::pin(one.lock("k", options()));
    joins(dead.as_mut(), &bench, 1).await;
    std::mem::forget(dead);
    let mut next = Box::pin(two.lock("k", options()));
    joins(next.as_mut(), &bench, 2).await;
    let began = Instant::now();
    holder.release().await.unwrap();
    let guard = timeout(LONG, next).await.unwrap().unwrap();
    println!(
        "a dead head of the queue cost {:?} (confirmation time {confirm:?}, TTL {TTL:?})",
        began.elapsed()
    );
    assert!(began.elapsed() < TTL / 4 && began.elapsed() >= confirm / 2);
    assert!(guard.remaining() > TTL / 2, "and the next one has its full TTL");
}

/// Proves: B7, B5
/// A hand-over takes no round trip: two commands for each acquisition, where somebody of the process waits already. Held for longer
/// than a moment, the lease is confirmed and has its full TTL.
#[tokio::test]
async fn a_hand_over_is_the_news_of_it() {
    let bench = Bench::start().await;
    let (one, two) = (bench.outsider().await, bench.outsider().await);
    let asked = || bench.server.command_calls().get("evalsha").copied().unwrap_or_default();
    let kept = Duration::from_secs(60);
    let options = || LockOptions::new(TTL * 10).wait(LONG).fair_within(kept);
    // Every script is known to the server by its hash.
    one.lock("other", options()).await.unwrap().release().await.unwrap();
    let before = asked();
    let holder = one.lock("k", options()).await.unwrap();
    // Once to enter the queue, and once when it is heard there.
    let mut first = Box::pin(two.lock("k", options()));
    tokio::select! {
        _ = first.as_mut() => panic!("it did not wait"),
        () = eventually("it listens", || asked() == before + 3) => {}
    }
    let mut second = Box::pin(two.lock("k", options()));
    joins(second.as_mut(), &bench, 2).await;
    assert!(holder.release().await.unwrap());
    let guard = timeout(LONG, first).await.unwrap().unwrap();
    assert_eq!(asked(), before + 5, "the second asked once, and the first has its guard by the release");
    assert!(guard.remaining() > Duration::ZERO && guard.remaining() <= kept);
    assert!(guard.release().await.unwrap());
    let guard = timeout(LONG, second).await.unwrap().unwrap();
    assert_eq!(asked(), before + 6);
    assert!(guard.release().await.unwrap());

    // One that stays has its TTL soon.
    let short = || options().fair_within(Duration::from_secs(2));
    let holder = one.lock("k", short()).await.unwrap();
    let mut waiter = Box::pin(two.lock("k", short()));
    joins(waiter.as_mut(), &bench, 1).await;
    assert!(holder.release().await.unwrap());
    let guard = timeout(LONG, waiter).await.unwrap().unwrap();
    eventually("it is confirmed", || guard.remaining() > TTL).await;
    assert!(guard.release().await.unwrap());
}

/// Proves: B7, B5
/// News that are lost cost the time until the next poll: the key is kept, and whoever asks for what is kept for it confirms.
#[tokio::test]
async fn a_turn_whose_news_are_lost_is_found_by_asking() {
    let bench = Bench::start().await;
    let (one, two) = (bench.outsider().await, bench.outsider().await);
    let holder = one.lock("k", fair()).await.unwrap();
    let mut waiter = Box::pin(two.lock("k", fair()));
    joins(waiter.as_mut(), &bench, 1).await;
    // What a release does, without telling anybody.
    let hand_over = "return redis.call('SET', KEYS[1], redis.call('LPOP', KEYS[2]), 'PX', 60000)";
    let handed_over = bench.server.command(&["EVAL", hand_over, "2", LOCK, QUEUE]);
    assert_eq!(handed_over.text().as_deref(), Some("OK"));
    let guard = timeout(LONG, waiter).await.unwrap().unwrap();
    assert!(!bench.server.exists(QUEUED), "it has confirmed");
    assert!(guard.remaining() > TTL / 2);
    assert!(!holder.release().await.unwrap());
    assert!(guard.release().await.unwrap());
}

/// Proves: B7
/// News of a turn that has passed are no grant: whoever has asked since was told that it is not its turn.
#[tokio::test]
async fn news_of_an_earlier_turn_are_no_grant() {
    let bench = Bench::start().await;
    let (one, two) = (bench.outsider().await, bench.outsider().await);
    let holder = one.lock("k", fair()).await.unwrap();
    // Kept for so long that only the moment tells that they are old.
    let mut waiter = Box::pin(two.lock("k", fair().fair_within(LONG)));
    joins(waiter.as_mut(), &bench, 1).await;
    let token = bench.server.command(&["LINDEX", QUEUE, "0"]).text().unwrap();
    // The listener and how long the key is kept, the moment at which it asked, its deadline.
    let entry = || bench.server.command(&["HGET", QUEUED, &token]).text().unwrap();
    let asked = |entry: &str| entry.split(' ').nth(1).unwrap().to_owned();
    let first = entry();
    let key_channel = "clinch:wake:{clinch:lock:k}";
    let channel = format!("{key_channel}:{}", &first[..16]);
    let mut tell = async |channel: &str, news: &str| {
        let before = entry();
        let heard = || bench.server.command(&["PUBLISH", channel, news]).int() == Some(1);
        tokio::select! {
            _ = waiter.as_mut() => panic!("the key is not kept for it"),
            () = eventually("it listens", heard) => {}
        }
        tokio::select! {
            _ = waiter.as_mut() => panic!("the key is not kept for it"),
            () = eventually("it asks", || asked(&entry()) != asked(&before)) => {}
        }
    };
    tell(key_channel, "").await;
    let old = format!("{} {}", &token[..16], asked(&first));
    for _ in 0..3 {
        tell(&channel, &old).await;
    }
    assert!(holder.release().await.unwrap(), "it was never anybody else's");
    assert!(timeout(LONG, waiter).await.unwrap().unwrap().release().await.unwrap());
}

/// Proves: B7
/// The memory engine keeps the same order, and a fair lock is an ordinary one where nobody waits.
#[tokio::test]
async fn fair_on_memory() {
    let locks = LockManager::memory();
    let holder = locks.lock("k", fair()).await.unwrap();
    assert!(matches!(
        locks.attempt("k", fair().wait(Duration::ZERO)).await.unwrap(),
        Outcome::DeniedByLock(_)
    ));
    let mut waiters: Vec<_> = (0..5).map(|_| Box::pin(locks.lock("k", fair()))).collect();
    for waiter in &mut waiters {
        assert!(poll_once(waiter.as_mut()).await.is_pending());
    }
    drop(holder);
    for waiter in waiters {
        drop(timeout(LONG, waiter).await.unwrap().unwrap());
    }
    drop(take(&locks, "k").await);
}
