//! Waiting in line, being woken, and not spinning.

use std::sync::Arc;
use std::time::Duration;

use clinch::store::ErrorKind;
use clinch::{Error, LockManager, LockOptions, Sources};
use clinch_testkit::proxy::{Action, Rule};
use tokio::sync::Mutex;
use tokio::time::{Instant, advance, timeout};

use crate::common::{Bench, LONG, Step, TTL, both, poll_once, take, waiting};

/// Proves: L9
/// With nothing but polls (no wake-up, a holder that never expires), at least the retry interval lies between two.
#[tokio::test]
async fn a_waiter_never_spins() {
    let bench = Bench::start().await;
    let manager = bench.manager().await;
    // Another client's value without expiry, and no wake-ups.
    bench.server.set("clinch:lock:k", "a stranger");
    let never = Action::ReplaceReply(b"-NOPERM no channels for you\r\n".to_vec());
    bench.proxy.add(Rule::new(never).named("SUBSCRIBE").always());

    let interval = Duration::from_millis(200);
    let started = Instant::now();
    let error = manager.lock("k", waiting(TTL, interval * 10).retry_interval(interval)).await.unwrap_err();
    let elapsed = started.elapsed();
    assert!(matches!(error, Error::LockNotAcquired { .. }), "{error}");
    assert!(elapsed >= interval * 10, "it waited for its whole wait");
    let most = 1 + elapsed.as_millis() / interval.as_millis();
    let asked = bench.count(Step::Acquire);
    assert!(asked >= 2 && u128::try_from(asked).unwrap() <= most, "{asked} asks in {elapsed:?}");
}

/// Proves: L9
/// Beyond the first try and the polls, a waiter asks once after it subscribed, once per wake-up, and once when the
/// holder's lease should have ended.
#[tokio::test]
async fn a_waiter_asks_again_after_subscribing_and_when_the_lease_should_have_ended() {
    let bench = Bench::start().await;
    let manager = bench.manager().await;
    let outsider = bench.outsider().await;
    let guard = outsider.try_lock("k", Duration::from_secs(2)).await.unwrap().unwrap();
    // Polls are out of the picture, and the holder only expires: nobody publishes anything.
    let options = waiting(TTL, LONG).retry_interval(LONG);
    let waiter = manager.lock("k", options).await.unwrap();
    assert!(waiter.is_valid());
    assert!(!guard.is_valid());
    let asked = bench.count(Step::Acquire);
    assert!((2..=3).contains(&asked), "first try, after subscribing, at the end of the lease: {asked}");
    assert!(waiter.release().await.unwrap());
}

/// Proves: B4
/// First come, first served inside a process, and a waiter that is dropped leaves the line.
#[tokio::test]
async fn a_line_is_first_come_first_served_and_survives_dropped_waiters() {
    for (manager, _server) in both().await {
        let order = Arc::new(Mutex::new(Vec::new()));
        let first = take(&manager, "k").await;
        let mut waiters = Vec::new();
        for i in 0..20 {
            let (manager, order) = (manager.clone(), order.clone());
            let (joined, is_in_line) = tokio::sync::oneshot::channel();
            waiters.push(tokio::spawn(async move {
                let mut lock = Box::pin(manager.lock("k", waiting(TTL, LONG)));
                // The first poll takes the place in line.
                assert!(poll_once(lock.as_mut()).await.is_pending());
                joined.send(()).unwrap();
                let guard = lock.await.unwrap();
                order.lock().await.push(i);
                guard.release().await.unwrap();
            }));
            is_in_line.await.unwrap();
        }
        // The head and one in the middle give up.
        for i in [0, 7] {
            waiters[i].abort();
            assert!((&mut waiters[i]).await.unwrap_err().is_cancelled());
        }
        first.release().await.unwrap();
        for (i, waiter) in waiters.into_iter().enumerate() {
            if ![0, 7].contains(&i) {
                waiter.await.unwrap();
            }
        }
        let expected: Vec<_> = (0..20).filter(|i| ![0, 7].contains(i)).collect();
        assert_eq!(*order.lock().await, expected);
    }
}

/// Proves: L9, B4
/// The head is dropped in mid-call: the role is handed on, and the grant that was on its way goes to the next one with
/// the same wish, under the same token.
#[tokio::test]
async fn a_head_that_is_dropped_in_mid_call_hands_its_grant_on() {
    let bench = Bench::start().await;
    let manager = bench.manager().await;
    let lock = |wait| {
        let manager = manager.clone();
        tokio::spawn(async move { manager.lock("k", waiting(TTL, wait)).await })
    };
    bench.strike(Step::Acquire, Action::HoldReply);
    let head = lock(LONG);
    bench.proxy.wait_until_held().await;
    let granted = bench.value("k").expect("the server has granted it");
    let next = lock(LONG);
    tokio::task::yield_now().await;
    head.abort();
    assert!(head.await.unwrap_err().is_cancelled());
    bench.proxy.release_held();

    let guard = next.await.unwrap().unwrap();
    assert_eq!(guard.token().as_str(), granted, "the grant was not thrown away");
    assert_eq!(bench.count(Step::Release), 0);
    assert!(guard.release().await.unwrap());
}

/// A try beside a line counts as the head's poll: a grant goes to the head.
#[tokio::test]
async fn a_try_beside_a_line_is_the_heads_poll() {
    let bench = Bench::start().await;
    let manager = bench.manager().await;
    let stranger = take(&bench.outsider().await, "k").await;
    let waiter = tokio::spawn({
        let manager = manager.clone();
        async move { manager.lock("k", waiting(TTL, LONG).retry_interval(LONG)).await }
    });
    // The head has asked, subscribed and asked again: from here on it sleeps.
    bench.proxy.wait_for(|command| command.name == "SUBSCRIBE").await;
    bench.proxy.wait_for_commands(bench.proxy.commands()).await;
    crate::common::eventually("the head has asked after subscribing", || bench.count(Step::Acquire) == 2)
        .await;
    // Gone without a publication: only a poll can find out.
    bench.server.command(&["DEL", "clinch:lock:k"]);

    assert!(manager.try_lock("k", TTL).await.unwrap().is_none(), "the grant went to the head");
    let guard = timeout(LONG, waiter).await.unwrap().unwrap().unwrap();
    assert!(guard.is_valid());
    assert_eq!(bench.count(Step::Acquire), 3);
    drop(stranger);
}

/// Proves: B1
/// On a paused clock: every wait ends by its deadline, whoever holds the lock.
#[tokio::test(start_paused = true)]
async fn a_wait_ends_by_its_deadline() {
    let manager = LockManager::builder().sources(Sources::seeded(1)).memory().build().unwrap();
    let guard = manager.try_lock("k", LockOptions::new(TTL).renew()).await.unwrap().unwrap();
    let started = Instant::now();
    let error = manager.lock("k", waiting(TTL, Duration::from_secs(200))).await.unwrap_err();
    assert_eq!(started.elapsed().as_secs(), 200);
    let Error::LockNotAcquired { denied, .. } = error else { panic!("{error}") };
    assert_eq!(denied.holder.as_ref().map(clinch::Holder::token), Some(guard.token()));
    assert!(guard.is_valid(), "renewed all the time");
    advance(Duration::from_secs(1)).await;
    assert!(guard.release().await.unwrap());
}

/// Proves: T6
/// What is over the bound waits its turn, and fails as overloaded when that takes longer than the call's limit. It
/// opens no connection of its own.
#[tokio::test]
async fn calls_in_flight_are_bounded() {
    let bench = Bench::start().await;
    // Two for whoever wants something new, one for renewals and releases.
    let bounded = |limit| LockManager::builder().max_in_flight(3).call_timeout(limit);
    let manager = bounded(LONG).connect(&bench.proxy.url()).await.unwrap();
    let tries = |manager: &LockManager, of: usize| -> Vec<_> {
        let manager = |i| (manager.clone(), format!("k{i}"));
        (0..of).map(manager).map(|(m, key)| tokio::spawn(async move { m.try_lock(key, TTL).await })).collect()
    };
    bench.strike(Step::Acquire, Action::HoldReply);
    let five = tries(&manager, 5);
    bench.proxy.wait_until_held().await;
    crate::common::eventually("two are in flight", || bench.count(Step::Acquire) == 2).await;
    assert_eq!(bench.server.keys("*").len(), 2, "the other three wait their turn");
    let data = bench
        .proxy
        .log()
        .iter()
        .filter(|command| !command.is_setup())
        .map(|command| command.connection)
        .max();
    assert_eq!(data, Some(0), "one connection for all of them");
    bench.proxy.release_held();
    for one in five {
        assert!(one.await.unwrap().unwrap().unwrap().release().await.unwrap());
    }

    // Nothing is answered any more: the first two time out, perhaps two more after them, and the rest never had a turn.
    let hasty = bounded(Duration::from_secs(2)).connect(&bench.proxy.url()).await.unwrap();
    bench.proxy.reset_counts();
    bench.proxy.add(Rule::new(Action::HoldReply).matching(bench.is(Step::Acquire)).always());
    let mut overloaded = 0;
    for one in tries(&hasty, 8) {
        match one.await.unwrap() {
            Err(Error::Engine { cause: source, .. }) => {
                overloaded += usize::from(source.kind() == ErrorKind::Overloaded);
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(overloaded >= 4, "{overloaded} of 8");
    bench.proxy.clear_rules();
    bench.proxy.release_held();

    assert_eq!(clinch::stores::StoreOptions::default().max_in_flight, 100, "unless set otherwise");
}

/// A waiter in another manager is woken by push, long before its poll and the holder's expiry.
#[tokio::test]
async fn a_waiter_is_woken_by_push() {
    let bench = Bench::start().await;
    let (holder, waiter) = (bench.outsider().await, bench.manager().await);
    for _ in 0..20 {
        let guard = take(&holder, "k").await;
        bench.proxy.reset_counts();
        let woken = tokio::spawn({
            let waiter = waiter.clone();
            async move { waiter.lock("k", waiting(TTL, LONG).retry_interval(LONG)).await.unwrap() }
        });
        crate::common::eventually("it has subscribed and asked again", || bench.count(Step::Acquire) == 2)
            .await;
        guard.release().await.unwrap();
        // Nothing else can wake it: its poll and the holder's expiry are half a minute and more away.
        let guard = timeout(LONG / 2, woken).await.expect("woken by push").unwrap();
        guard.release().await.unwrap();
    }
}

/// An attempt that was left for the head of a line goes to nobody who wants something else, also when the head's future
/// is not polled and a try asks in its place.
#[tokio::test]
async fn a_try_in_the_place_of_an_unpolled_head_gets_what_it_asked_for() {
    let bench = Bench::start().await;
    let manager = bench.manager().await;
    bench.strike(Step::Acquire, Action::HoldReply);
    let first = tokio::spawn({
        let manager = manager.clone();
        async move { manager.lock("k", waiting(TTL, LONG)).await }
    });
    bench.proxy.wait_until_held().await;
    // Polled once, so it stands in line behind the first, and never again.
    let mut parked = Box::pin(manager.lock("k", waiting(TTL, LONG)));
    assert!(poll_once(parked.as_mut()).await.is_pending());
    first.abort();
    assert!(first.await.unwrap_err().is_cancelled());
    bench.proxy.release_held();

    let ttl = TTL / 2;
    let guard =
        manager.try_lock("k", ttl).await.unwrap().expect("the key is free once the orphan is taken back");
    assert!(guard.remaining() <= ttl, "its own TTL, not that of the attempt that was left");
    assert!(bench.server.pttl("clinch:lock:k") <= i64::try_from(ttl.as_millis()).unwrap());
    assert_eq!(bench.value("k").as_deref(), Some(guard.token().as_str()));
    drop(parked);
    assert!(guard.release().await.unwrap());
}
