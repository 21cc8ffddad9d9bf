//! Lost, late and doubled messages, on real Redis through the proxy.

use std::time::Duration;

use clinch::store::{Effect, ErrorKind};
use clinch::{DeniedBy, Error, LockManager, LockOptions, Loss, Outcome};
use clinch_testkit::proxy::{Action, Rule};
use tokio::time::{Instant, timeout};

use crate::common::{Bench, LONG, Step, TTL, eventually, take, waiting};

/// Fault: 1
/// The reply to the grant is lost: asked again with the same token, it is ours, and the validity counts from the first
/// send.
#[tokio::test]
async fn a_lost_reply_is_asked_again_and_the_grant_is_ours() {
    let bench = Bench::start().await;
    let manager = bench.manager().await;
    bench.strike(Step::Acquire, Action::CutAfterRequest);

    let before = Instant::now();
    let guard = take(&manager, "k").await;

    assert_eq!(bench.value("k").as_deref(), Some(guard.token().as_str()));
    assert_eq!(bench.count(Step::Acquire), 2, "the reply was lost once, and asked for once more");
    let since = before.elapsed();
    assert!(guard.remaining() < TTL - since, "validity counts from before the first send");
    let tokens = bench.tokens(Step::Acquire);
    assert_eq!(tokens[0], tokens[1], "the same token both times");
    assert!(guard.release().await.unwrap());
}

/// Fault: 2
#[tokio::test]
async fn a_lost_request_is_simply_sent_again() {
    let bench = Bench::start().await;
    let manager = bench.manager().await;
    bench.strike(Step::Acquire, Action::DropRequestThenCut);

    let guard = take(&manager, "k").await;

    assert_eq!(bench.count(Step::Acquire), 2);
    assert!(guard.release().await.unwrap());
    assert_eq!(bench.value("k"), None);
}

/// Fault: 3
/// Every step may arrive twice: it changes nothing the second time.
#[tokio::test]
async fn doubled_steps_change_nothing() {
    let bench = Bench::start().await;
    let manager = bench.manager().await;
    for step in [Step::Acquire, Step::Renew, Step::Release] {
        bench.strike(step, Action::Duplicate);
    }

    let options = LockOptions::new(TTL).renew_every(Duration::from_millis(50));
    let guard = manager.try_lock("k", options).await.unwrap().unwrap();
    bench.seen(Step::Renew).await;
    assert!(guard.is_valid());
    assert!(
        guard.release().await.unwrap(),
        "the first of the two deletes, and its answer is the one that counts"
    );
    assert_eq!(bench.proxy.rules_left(), 0, "all three were doubled");
    assert_eq!(bench.value("k"), None);
}

/// Fault: 4
/// The release's reply is lost: the retry does nothing, and never removes a successor.
#[tokio::test]
async fn a_release_whose_reply_is_lost_never_removes_a_successor() {
    let bench = Bench::start().await;
    let manager = bench.patient().await;
    let guard = take(&manager, "k").await;
    // The retry is held until a successor has the key.
    bench.strike(Step::Release, Action::CutAfterRequest);
    bench.proxy.add(Rule::new(Action::HoldRequest).matching(bench.is(Step::Release)));

    let releasing = tokio::spawn(guard.release());
    bench.proxy.wait_until_held().await;
    let successor = take(&bench.outsider().await, "k").await;
    bench.proxy.release_held();

    assert!(!releasing.await.unwrap().unwrap(), "who removed it cannot be known any more");
    assert_eq!(bench.value("k").as_deref(), Some(successor.token().as_str()));
}

/// Fault: 5
/// The grant lands after the caller has timed out: it is released in the background by its token.
#[tokio::test]
async fn a_grant_that_lands_after_the_time_out_is_released() {
    let bench = Bench::start().await;
    let manager = LockManager::builder()
        .call_timeout(Duration::from_secs(1))
        .connect(&bench.proxy.url())
        .await
        .unwrap();
    bench.strike(Step::Acquire, Action::HoldRequest);

    let error = manager.try_lock("k", TTL).await.unwrap_err();
    let Error::Engine { cause: source, .. } = &error else { panic!("{error}") };
    assert_eq!((source.kind(), source.effect()), (ErrorKind::Timeout, Effect::Unknown));
    assert_eq!(bench.value("k"), None, "the request is still on its way");

    bench.proxy.release_held();
    eventually("the grant was taken back", || bench.count(Step::Release) > 0 && bench.value("k").is_none())
        .await;
    let left = manager.shutdown(LONG).await;
    assert!(left.is_clean(), "{left:?}");
    assert_eq!(bench.value("k"), None);
}

/// Fault: 6
/// A renewal's reply is lost: the old deadline counts until a later one is answered.
#[tokio::test]
async fn a_renewal_whose_reply_is_lost_does_not_move_the_deadline() {
    let bench = Bench::start().await;
    let manager = LockManager::builder()
        .call_timeout(Duration::from_secs(1))
        .connect(&bench.proxy.url())
        .await
        .unwrap();
    // All renewals are carried out by the server, and none is answered.
    bench.proxy.add(Rule::new(Action::CutAfterRequest).matching(bench.is(Step::Renew)).always());
    let ttl = Duration::from_secs(3);
    let guard =
        manager.try_lock("k", LockOptions::new(ttl).renew_every(Duration::from_millis(300))).await.unwrap();
    let guard = guard.unwrap();
    let left = guard.remaining();
    let deadline = Instant::now() + left;
    eventually("it was tried again", || bench.count(Step::Renew) >= 2).await;
    let now = Instant::now();
    assert!(now + guard.remaining() <= deadline, "the deadline of the only answered step counts");

    assert_eq!(timeout(LONG, guard.lost()).await.unwrap(), Loss::Expired);
    assert!(bench.server.pttl("clinch:lock:k") > 0, "the server did extend it; the holder cannot know");
}

/// Fault: 7
/// Acquiring took longer than the validity: the grant is given back and reported as not acquired.
#[tokio::test]
async fn a_grant_that_arrives_after_its_validity_is_given_back() {
    let bench = Bench::start().await;
    let manager = bench.manager().await;
    let ttl = Duration::from_millis(50);
    bench.strike(Step::Acquire, Action::DelayReply(ttl * 2));

    match manager.attempt("k", ttl).await.unwrap() {
        Outcome::DeniedByLock(denied) => assert_eq!(denied.cause, DeniedBy::TooLate, "{denied}"),
        other => panic!("{other:?}"),
    }
    bench.seen(Step::Release).await;
    bench.free("k").await;
}

/// Fault: 8
/// A waiter's lease counts from its own request, not from when it joined the line; one that ran out before it could be
/// handed out is not handed out.
#[tokio::test]
async fn a_lease_that_ran_out_while_its_waiter_stood_in_line_is_not_handed_out() {
    let bench = Bench::start().await;
    let manager = bench.patient().await;
    let ttl = Duration::from_millis(1_500);
    let first = take(&manager, "k").await;
    let waiter = tokio::spawn({
        let manager = manager.clone();
        async move { manager.lock("k", waiting(ttl, LONG)).await }
    });
    // The waiter's first grant comes back too late; the second one is good.
    bench.strike(Step::Acquire, Action::DelayReply(ttl * 5 / 4));
    first.release().await.unwrap();

    let guard = waiter.await.unwrap().unwrap();
    assert!(guard.is_valid());
    assert!(guard.remaining() <= ttl);
    assert!(bench.count(Step::Acquire) >= 3, "the late grant was given back and asked for again");
}

/// Fault: 13
/// An acquire future that is dropped leaves nothing behind: before it was sent, in flight, and while it waits.
#[tokio::test]
async fn a_dropped_acquire_leaves_nothing_behind() {
    let bench = Bench::start().await;
    let manager = bench.manager().await;
    drop(manager.try_lock("never-polled", TTL));

    // In flight: the server executes it, and nobody is there for the reply.
    bench.strike(Step::Acquire, Action::HoldReply);
    let caller = tokio::spawn({
        let manager = manager.clone();
        async move { manager.try_lock("in-flight", TTL).await }
    });
    bench.proxy.wait_until_held().await;
    caller.abort();
    assert!(caller.await.unwrap_err().is_cancelled());
    bench.proxy.release_held();
    bench.seen(Step::Release).await;
    bench.free("in-flight").await;

    // In line.
    let holder = take(&manager, "in-line").await;
    let acquires = bench.count(Step::Acquire);
    assert!(timeout(Duration::from_millis(20), manager.lock("in-line", waiting(TTL, LONG))).await.is_err());
    assert!(holder.release().await.unwrap());
    assert!(manager.shutdown(LONG).await.is_clean());
    assert_eq!(bench.server.keys("*"), Vec::<String>::new());
    assert_eq!(bench.count(Step::Acquire), acquires, "a waiter behind a local holder never had to ask");
}

/// Fault: 33
/// A black hole: packets vanish. Every call keeps its deadline, and afterwards everything works again.
#[tokio::test]
async fn in_a_black_hole_every_call_keeps_its_deadline() {
    let bench = Bench::start().await;
    let limit = Duration::from_secs(1);
    let manager = LockManager::builder()
        .call_timeout(limit)
        .connect_timeout(limit)
        .connect(&bench.proxy.url())
        .await
        .unwrap();
    let guard = take(&manager, "held").await;
    let other = take(&manager, "other").await;
    bench.proxy.stall();

    // Each ends by itself: the outer limit only stops a test that would hang.
    let kind = |error: &Error| match error {
        Error::Engine { cause: source, .. } => source.kind(),
        other => panic!("{other}"),
    };
    let error = timeout(LONG, manager.try_lock("k", TTL)).await.unwrap().unwrap_err();
    assert!(matches!(kind(&error), ErrorKind::Timeout | ErrorKind::Unavailable), "{error}");
    let error = timeout(LONG, guard.release()).await.unwrap().unwrap_err();
    assert!(matches!(kind(&error), ErrorKind::Timeout | ErrorKind::Unavailable), "{error}");
    assert!(timeout(LONG, manager.inspect("k")).await.unwrap().is_err());
    assert!(timeout(LONG, manager.ping()).await.unwrap().is_err());
    drop(other);

    bench.proxy.resume();
    bench.free("held").await;
    bench.free("other").await;
    bench.free("k").await;
    let again = timeout(LONG, manager.lock("k", waiting(TTL, LONG))).await.unwrap().unwrap();
    assert!(again.release().await.unwrap());
    assert!(manager.shutdown(LONG).await.is_clean());
}

/// Fault: 34
/// A connection is reset in the middle of a reply, or half open: as a lost reply. A stale reply is never read as
/// another call's.
#[tokio::test]
async fn a_reset_in_mid_reply_is_a_lost_reply_and_replies_are_never_mixed_up() {
    let bench = Bench::start().await;
    let manager = bench.manager().await;
    let stranger = take(&bench.outsider().await, "foreign").await;
    bench.strike(Step::Acquire, Action::CutMidReply(1));
    let guard = take(&manager, "k").await;
    assert_eq!(bench.value("k").as_deref(), Some(guard.token().as_str()));

    // The reply to a call that was given up arrives later, while another call waits for its own.
    let hasty = LockManager::builder()
        .call_timeout(Duration::from_secs(1))
        .connect(&bench.proxy.url())
        .await
        .unwrap();
    bench.strike(Step::Acquire, Action::HoldReply);
    let error = hasty.try_lock("late", TTL).await.unwrap_err();
    assert!(matches!(error, Error::Engine { .. }), "{error}");
    let denied = tokio::spawn({
        let hasty = hasty.clone();
        async move { hasty.lock("foreign", waiting(TTL, Duration::from_secs(2))).await }
    });
    bench.proxy.release_held();
    let error = denied.await.unwrap().unwrap_err();
    assert!(
        matches!(error, Error::LockNotAcquired { .. }),
        "a grant for `late` was not taken for `foreign`: {error}"
    );
    bench.free("late").await;
    drop(stranger);

    // Half open: the request vanishes, the connection stays. The call ends by its limit and the next one works.
    bench.strike(Step::Acquire, Action::DropRequestThenStall);
    assert!(hasty.try_lock("half-open", TTL).await.is_err());
    let guard = hasty.lock("half-open", waiting(TTL, LONG)).await.unwrap();
    assert!(guard.release().await.unwrap());
}

/// Fault: 35
/// The server takes no more connections, then does: a pause with jitter between tries, a bounded number of calls, and
/// no connection without end.
#[tokio::test]
async fn a_connection_storm_is_bounded() {
    let bench = Bench::start().await;
    let manager = bench.manager().await;
    bench.server.config_set("maxclients", "1");
    bench.proxy.cut_all().await;
    let opened = bench.proxy.connections_opened();

    let keys: Vec<_> = (0..500).map(|i| format!("k{i}")).collect();
    let storm = keys.iter().map(|key| {
        let (manager, key) = (manager.clone(), key.clone());
        tokio::spawn(async move { manager.try_lock(key, TTL).await })
    });
    for try_lock in storm.collect::<Vec<_>>() {
        let error = try_lock.await.unwrap().unwrap_err();
        assert!(matches!(error, Error::Engine { .. }), "{error}");
    }
    let tried = bench.proxy.connections_opened() - opened;
    assert!(tried < 50, "500 callers shared {tried} tries to connect");

    bench.server.config_set("maxclients", "1000");
    let guard = manager.lock("k", waiting(TTL, LONG)).await.unwrap();
    assert!(guard.release().await.unwrap());
    assert!(bench.proxy.connections_open() <= 2);
}

/// Fault: 36
/// The wake-up is lost: the waiter finds out at its next poll.
#[tokio::test]
async fn a_lost_wake_up_costs_one_poll() {
    let bench = Bench::start().await;
    let manager = bench.manager().await;
    let holder = take(&bench.outsider().await, "k").await;
    // No subscription ever gets through, so no wake-up can.
    let never = Action::ReplaceReply(b"-NOPERM no channels for you\r\n".to_vec());
    bench.proxy.add(Rule::new(never).named("SUBSCRIBE").always());

    let interval = Duration::from_millis(100);
    let waiter = tokio::spawn({
        let options = waiting(TTL, LONG).retry_interval(interval);
        async move { manager.lock("k", options).await }
    });
    bench.seen(Step::Acquire).await;
    let polls_before = bench.count(Step::Acquire);
    let started = Instant::now();
    assert!(holder.release().await.unwrap());
    let _guard = waiter.await.unwrap().unwrap();
    // How many polls it took is what is promised; how long they take is up to the machine.
    let polls = bench.count(Step::Acquire) - polls_before;
    assert!(
        polls <= 1 + usize::try_from(started.elapsed().as_millis() / interval.as_millis()).unwrap(),
        "{polls}"
    );
}
