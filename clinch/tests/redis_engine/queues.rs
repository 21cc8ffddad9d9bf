//! Queues, and whom a release wakes.

use std::time::Duration;

use clinch::lease::{Claim, Patience};
use clinch::store::{Store, Verdict};
use tokio::time::{Instant, sleep, timeout};

use crate::common::{
    Bench, CONFIRM, LOCK, LONG, QUEUE, QUEUED, TTL, eventually, fair_try, fence, fenced, holder, key, lock,
    of, on_lock, on_sem, one, queued, several,
};

/// Proves: B7
#[tokio::test]
async fn fifty_in_the_queue_are_served_in_order() {
    let bench = Bench::start().await;
    let mut last = queued(lock());
    bench.granted(&last).await;
    assert_eq!(bench.server.keys("*"), [LOCK], "one that need not wait leaves no queue");
    let waiters: Vec<_> = (0..50).map(|_| queued(lock())).collect();
    for (before, waiter) in waiters.iter().enumerate() {
        let denial = bench.denied(waiter).await;
        assert_eq!(holder(&denial), last.token());
        // Those further back are told to ask later.
        let left = denial.holder.as_ref().unwrap().remaining().unwrap();
        assert_eq!(denial.retry_after.unwrap(), left + CONFIRM * u32::try_from(before).unwrap());
    }
    assert_eq!((bench.kind_of(QUEUE).as_str(), bench.kind_of(QUEUED).as_str()), ("list", "hash"));
    for name in [QUEUE, QUEUED] {
        let left = u128::try_from(bench.server.pttl(name)).unwrap();
        let most = LONG + CONFIRM + Duration::from_secs(1);
        assert!((LONG / 2).as_millis() < left && left <= most.as_millis(), "{name}: {left}");
    }
    for (i, waiter) in waiters.into_iter().enumerate() {
        assert!(bench.release(&last).await, "{i}");
        assert_eq!(bench.server.get(LOCK).unwrap(), waiter.token().as_str(), "{i}");
        assert!(bench.server.pttl(LOCK) <= 5_000, "kept for its confirm time");
        bench.granted(&waiter).await;
        assert!(bench.server.pttl(LOCK) > 50_000, "confirmed");
        last = waiter;
    }
    assert!(bench.release(&last).await);
    assert_eq!(bench.server.keys("*"), [""; 0]);
}

#[tokio::test]
async fn asking_again_keeps_the_place_and_moves_no_expiry() {
    let bench = Bench::start().await;
    let (lease, a, b) = (queued(fenced(0)), queued(fenced(0)), queued(lock()));
    let grant = bench.granted(&lease).await;
    bench.denied(&a).await;
    bench.denied(&b).await;
    bench.denied(&a).await;
    assert_eq!(bench.words(&["LRANGE", QUEUE, "0", "-1"]), [a.token().as_str(), b.token().as_str()]);
    assert_eq!(bench.number(&["HLEN", QUEUED]), 2);
    bench.ask(&["PEXPIRE", LOCK, "30000"]);
    assert_eq!(bench.granted(&lease).await, grant);
    assert!(bench.server.pttl(LOCK) <= 30_000);
    assert!(bench.release(&lease).await);
    // The number of the heir is given when it confirms.
    let shown = bench.holders(&on_lock()).await;
    assert_eq!((shown[0].token(), shown[0].fence()), (a.token(), None));
    let confirmed = bench.granted(&a).await;
    assert!(fence(&confirmed) > fence(&grant));
    bench.ask(&["PEXPIRE", LOCK, "30000"]);
    assert_eq!(bench.granted(&a).await, confirmed);
    assert!(bench.server.pttl(LOCK) <= 30_000);
}

/// Proves: B7
#[tokio::test]
async fn an_heir_that_died_costs_its_confirm_time_and_leaves_nothing() {
    let bench = Bench::start().await;
    let confirm = Duration::from_secs(2);
    let short = Patience::Queue { until: Instant::now() + LONG, confirm };
    let (lease, dead, next) = (queued(lock()), lock().with_patience(short), queued(lock()));
    bench.granted(&lease).await;
    bench.denied(&dead).await;
    bench.denied(&next).await;
    assert!(bench.release(&lease).await);
    let denial = bench.denied(&next).await;
    assert_eq!(holder(&denial), dead.token());
    let again = denial.retry_after.unwrap();
    assert!(again <= confirm);
    sleep(again + Duration::from_millis(5)).await;
    bench.granted(&next).await;
    assert_eq!(bench.server.keys("*"), [LOCK]);
    // It has lost its place, and may stand in line again.
    bench.denied(&dead).await;
    assert_eq!(bench.words(&["LRANGE", QUEUE, "0", "-1"]), [dead.token().as_str()]);
}

#[tokio::test]
async fn one_that_finds_the_key_free_hands_it_to_the_first_in_line() {
    let bench = Bench::start().await;
    let (lease, first, second) = (lock(), queued(lock()), queued(lock()));
    bench.granted(&lease).await;
    bench.denied(&first).await;
    bench.denied(&second).await;
    // A lease that knows of no queue is released like any other.
    assert!(bench.release(&lease).await);
    assert!(!bench.server.exists(LOCK));
    let denial = bench.denied(&second).await;
    assert_eq!(holder(&denial), first.token());
    assert!(denial.retry_after.unwrap() <= CONFIRM);
    assert_eq!(bench.server.get(LOCK).unwrap(), first.token().as_str());
    bench.granted(&first).await;
    assert!(bench.release(&first).await);

    // So does a fair try, which does not enter.
    bench.ask(&["DEL", LOCK]);
    let third = queued(lock());
    bench.granted(&second).await;
    bench.denied(&third).await;
    let tried = fair_try(lock());
    assert_eq!(holder(&bench.denied(&tried).await), second.token());
    bench.ask(&["DEL", LOCK]);
    assert_eq!(holder(&bench.denied(&tried).await), third.token());
    assert_eq!(bench.number(&["LLEN", QUEUE]), 0);
    bench.granted(&third).await;
    assert!(bench.release(&third).await);
    bench.granted(&tried).await;
    assert!(bench.release(&tried).await);
    assert_eq!(bench.server.keys("*"), [""; 0]);
}

#[tokio::test]
async fn a_withdrawn_waiter_is_out_and_a_withdrawn_heir_passes_it_on() {
    let bench = Bench::start().await;
    let (lease, a, b, c) = (queued(lock()), queued(lock()), queued(lock()), queued(lock()));
    bench.granted(&lease).await;
    for waiter in [&a, &b, &c] {
        bench.denied(waiter).await;
    }
    assert!(!bench.release(&b).await);
    assert_eq!(bench.words(&["LRANGE", QUEUE, "0", "-1"]), [a.token().as_str(), c.token().as_str()]);
    assert_eq!(bench.number(&["HLEN", QUEUED]), 2);
    assert!(bench.release(&lease).await);
    assert_eq!(bench.server.get(LOCK).unwrap(), a.token().as_str());
    assert!(!bench.release(&a).await, "what was not confirmed was not held");
    assert_eq!(bench.server.get(LOCK).unwrap(), c.token().as_str());
    bench.granted(&c).await;
    assert!(bench.release(&c).await);
    assert_eq!(bench.server.keys("*"), [""; 0]);
}

#[tokio::test]
async fn those_whose_time_is_over_are_skipped() {
    let bench = Bench::start().await;
    let lease = queued(lock());
    bench.granted(&lease).await;
    let waiters: Vec<_> = (0..40).map(|_| queued(lock())).collect();
    for waiter in &waiters {
        bench.denied(waiter).await;
    }
    for over in &waiters[..39] {
        bench.ask(&["HSET", QUEUED, over.token().as_str(), "1000 100"]);
    }
    assert!(bench.release(&lease).await);
    assert_eq!(bench.server.get(LOCK).unwrap(), waiters[39].token().as_str());
    bench.granted(&waiters[39]).await;
    assert_eq!(bench.server.keys("*"), [LOCK]);
}

/// Proves: B5
#[tokio::test]
async fn only_the_heir_is_woken() {
    let bench = Bench::start().await;
    let other = Bench::connect(&bench.server).await;
    let (lease, first, second) = (queued(lock()), queued(lock()), queued(lock()));
    bench.granted(&lease).await;
    bench.denied(&first).await;
    // Each listens where it asked.
    assert!(matches!(other.acquire(&second).await.unwrap(), Verdict::Denied(_)));
    let mut streams = [
        bench.store.wakeups(&on_lock(), Some(first.token())),
        other.wakeups(&on_lock(), Some(second.token())),
    ];
    let subscribed = || bench.words(&["PUBSUB", "CHANNELS", "*"]);
    eventually("the key's channel and one of each store are subscribed", || subscribed().len() == 3).await;
    assert!(subscribed().iter().all(|name| name.starts_with("clinch:wake:{clinch:lock:k}")));
    for stream in &mut streams {
        while timeout(Duration::from_millis(100), stream.next()).await.is_ok() {}
    }
    let release = bench.store.release(&lease).await.unwrap();
    assert_eq!((release.held, release.woken), (true, Some(1)));
    timeout(LONG, streams[0].next()).await.unwrap();
    assert!(timeout(Duration::from_millis(100), streams[1].next()).await.is_err());
    drop(streams);
    eventually("both subscriptions end", || subscribed().is_empty()).await;
}

/// Proves: B5
#[tokio::test]
async fn a_release_tells_how_many_streams_it_fired() {
    let bench = Bench::start().await;
    let other = Bench::connect(&bench.server).await;
    let leases = || {
        let (lock, sem) = (Claim::exclusive(key("k"), TTL), Claim::permit(key("k"), of(1), TTL));
        [one(lock.clone()), queued(one(lock.clone())), several(vec![lock, sem])]
    };
    for lease in leases() {
        bench.granted(&lease).await;
        assert_eq!(bench.store.release(&lease).await.unwrap().woken, Some(0));
        assert_eq!(bench.store.release(&lease).await.unwrap().woken, Some(0));
    }
    let mut streams = vec![
        bench.store.wakeups(&on_lock(), None),
        bench.store.wakeups(&on_lock(), None),
        other.wakeups(&on_lock(), None),
        bench.store.wakeups(&on_sem(), None),
    ];
    for stream in &mut streams {
        timeout(LONG, stream.next()).await.unwrap();
    }
    for (lease, fired) in leases().into_iter().zip([3, 3, 4]) {
        bench.granted(&lease).await;
        assert_eq!(bench.store.release(&lease).await.unwrap().woken, Some(fired));
        assert_eq!(bench.store.release(&lease).await.unwrap().woken, Some(0));
    }
}

/// Proves: B7, B1
/// The news tell since when the key is kept: a moment after which the heir asked, and before which nothing was kept for it. Whoever
/// takes them for its grant confirms by a renewal, and its release says that it was held, confirmed or not.
#[tokio::test]
async fn the_news_of_a_turn_are_a_grant() {
    let bench = Bench::start().await;
    let (lease, quick, slow, asks) = (queued(lock()), queued(lock()), queued(lock()), queued(fenced(0)));
    bench.granted(&lease).await;
    assert!(!bench.store.is_listening(&on_lock()));
    let mut streams = Vec::new();
    for waiter in [&quick, &slow, &asks] {
        let before = Instant::now();
        bench.denied(waiter).await;
        let mut stream = bench.store.wakeups(&on_lock(), Some(waiter.token()));
        timeout(LONG, stream.next()).await.unwrap();
        assert_eq!(stream.kept(), None, "it was told that it is heard, and nothing else");
        streams.push((stream, before, Instant::now()));
    }
    assert!(bench.store.is_listening(&on_lock()));
    let mut holder = &lease;
    for (heir, (stream, before, after)) in [&quick, &slow].into_iter().zip(&mut streams) {
        assert!(bench.release(holder).await);
        timeout(LONG, stream.next()).await.unwrap();
        let since = stream.kept().unwrap().since_for(heir.token()).unwrap() + Duration::from_micros(1);
        assert!(*before <= since && since <= *after, "{before:?} {since:?} {after:?}");
        assert_eq!(stream.kept(), None, "told once");
        assert!(!bench.renewed(heir).await, "as long as it does not take it, nothing was granted");
        heir.route().take_turn();
        holder = heir;
    }
    assert!(bench.server.pttl(LOCK) <= 5_000);
    assert!(bench.renewed(&slow).await);
    assert!(bench.server.pttl(LOCK) > 50_000, "confirmed");
    assert!(bench.release(&slow).await);
    // One that needs a number asks for it.
    let (stream, ..) = &mut streams[2];
    timeout(LONG, stream.next()).await.unwrap();
    assert_eq!(stream.kept(), None);
    assert!(fence(&bench.granted(&asks).await) > 0);
    assert!(bench.release(&asks).await);
    drop(streams);
    assert!(bench.server.keys("clinch:*").iter().all(|key| key.starts_with("clinch:fence")));
}
