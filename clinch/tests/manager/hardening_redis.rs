//! What once broke, on real Redis: connections that die, crowds, a shutdown that forgets. Each test is a promise that
//! did not hold.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use clinch::store::{Cursor, Effect, ErrorKind};
use clinch::stores::StoreOptions;
use clinch::stores::redis::RedisStore;
use clinch::{Error, LockManager, LockOptions};
use clinch_testkit::proxy::{Action, Rule};
use clinch_testkit::server::{RedisServer, Reply};
use tokio::time::{Instant, sleep, timeout};

use crate::common::{Bench, LONG, StandingClock, Step, TTL, eventually, poll_once, take, waiting};

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Proves: B3, B4
/// Releases that cannot be conclusive, because the connection was cut under their acquires, are repeated until their
/// leases are over; renewals and other releases do not wait for them.
#[tokio::test]
async fn releases_in_doubt_starve_neither_renewals_nor_other_releases() {
    let bench = Bench::start().await;
    let manager = bench.manager().await;
    bench.strike(Step::Acquire, Action::HoldReply);
    let tries = (0..64).map(|i| {
        let manager = manager.clone();
        tokio::spawn(async move { take(&manager, &format!("k{i}")).await })
    });
    let tries: Vec<_> = tries.collect();
    eventually("all are on their way", || bench.count(Step::Acquire) == 64).await;
    bench.proxy.cut_all().await;
    for one in tries {
        assert!(one.await.unwrap().release().await.unwrap());
    }
    eventually("each release is repeated", || bench.count(Step::Release) >= 2 * 64).await;

    drop(take(&manager, "dropped").await);
    bench.free("dropped").await;
    let options = LockOptions::new(ms(3_000)).renew_every(ms(200));
    let kept = manager.try_lock("kept", options).await.unwrap().unwrap();
    tokio::select! {
        loss = kept.lost() => panic!("{loss:?} after {} renewals", bench.count(Step::Renew)),
        () = eventually("it is renewed past its TTL", || bench.count(Step::Renew) > 15) => {}
    }
    assert!(kept.release().await.unwrap());
}

/// Proves: B3, T6
/// Callers at the bound on calls in flight are turned away; the renewals of what is held find a place.
#[tokio::test]
async fn callers_at_the_bound_do_not_starve_renewals() {
    let bench = Bench::start().await;
    let builder = LockManager::builder().call_timeout(ms(1_000)).max_in_flight(4);
    let manager = builder.connect(&bench.proxy.url()).await.unwrap();
    let options = LockOptions::new(ms(4_000)).renew_every(ms(300));
    let kept = manager.try_lock("kept", options).await.unwrap().unwrap();
    // One answer in 20 ms for 200 callers, who come again when they are turned away.
    bench.proxy.add(Rule::new(Action::DelayReply(ms(20))).matching(bench.is(Step::Acquire)).always());
    let turned_away = Arc::new(AtomicUsize::new(0));
    let mut callers = tokio::task::JoinSet::new();
    for i in 0..200 {
        let (manager, turned_away) = (manager.clone(), turned_away.clone());
        callers.spawn(async move {
            let mut guards = Vec::new();
            loop {
                match manager.try_lock(format!("{i}:{}", guards.len()), TTL).await {
                    Ok(guard) => guards.push(guard),
                    Err(_) => {
                        turned_away.fetch_add(1, Ordering::Relaxed);
                    }
                }
            }
        });
    }
    tokio::select! {
        loss = kept.lost() => panic!("{loss:?} after {} renewals", bench.count(Step::Renew)),
        () = eventually("it is renewed past its TTL", || bench.count(Step::Renew) > 14) => {}
    }
    assert!(turned_away.load(Ordering::Relaxed) > 0, "there was no crowd");
}

/// Proves: B4
/// An attempt whose answer is on its way is counted by a shutdown; what it is granted is given back, and its caller is
/// told.
#[tokio::test]
async fn shutdown_counts_attempts_in_flight() {
    let bench = Bench::start().await;
    let manager = bench.manager().await;
    bench.strike(Step::Acquire, Action::HoldReply);
    let caller = tokio::spawn({
        let manager = manager.clone();
        async move { manager.try_lock("k", TTL).await }
    });
    bench.proxy.wait_until_held().await;
    let left = manager.shutdown(ms(20)).await;
    assert_eq!((left.unsettled, left.is_clean()), (1, false), "{left:?}");

    bench.proxy.release_held();
    assert!(matches!(caller.await.unwrap(), Err(Error::ShutDown { .. })));
    let left = manager.shutdown(LONG).await;
    assert!(left.is_clean(), "{left:?}");
    assert_eq!(bench.value("k"), None);
}

/// Proves: B4
/// One cut connection does not make a shutdown wait for what nobody can settle: what was given back is clean, and what
/// may still arrive is told.
#[tokio::test]
async fn shutdown_after_a_cut_is_clean_and_does_not_wait() {
    let bench = Bench::start().await;
    let manager = bench.manager().await;
    bench.strike(Step::Acquire, Action::CutAfterRequest);
    assert!(take(&manager, "k").await.release().await.unwrap());
    assert_eq!(bench.value("k"), None);
    let started = Instant::now();
    let left = manager.shutdown(LONG).await;
    assert!(left.is_clean(), "{left:?}");
    assert_eq!(left.unconfirmed, 1);
    assert!(started.elapsed() < LONG / 2);
}

/// A store that two managers share outlives the shutdown of one.
#[tokio::test]
async fn shutdown_leaves_a_shared_store_open() {
    let server = RedisServer::start();
    let store = Arc::new(RedisStore::connect(&server.url(), &StoreOptions::default()).await.unwrap());
    let manager = || LockManager::builder().store(store.clone()).build().unwrap();
    let (one, two) = (manager(), manager());
    let guard = take(&two, "k").await;
    take(&one, "other").await.release().await.unwrap();
    assert!(one.shutdown(LONG).await.is_clean());
    assert!(guard.release().await.unwrap());
    assert!(take(&two, "other").await.release().await.unwrap());
}

/// A bench whose proxy refuses connections, and a manager on it with this many failed connects behind it.
async fn after_failures(failures: usize) -> (Bench, LockManager) {
    let bench = Bench::start().await;
    let manager = LockManager::builder().call_timeout(ms(2_000)).connect(&bench.proxy.url()).await.unwrap();
    bench.proxy.refuse(true).await;
    bench.proxy.cut_all().await;
    // Each tries twice, after the pause that the failures before it have earned.
    for _ in 0..failures / 2 {
        assert!(manager.ping().await.is_err());
    }
    (bench, manager)
}

/// A call that takes no pause: without one it needs no time to pass.
async fn connects_at_once(manager: &LockManager) {
    let _clock = StandingClock::stop();
    let before = Instant::now();
    manager.ping().await.unwrap();
    // After half a minute the clock leaps on, so that nobody waits for ever.
    assert_eq!(before.elapsed(), Duration::ZERO, "a pause was taken");
}

/// The pause after failures counts from the last one: where it is over, the first call connects at once.
#[tokio::test]
async fn a_pause_that_is_over_is_not_taken_again() {
    let (bench, manager) = after_failures(8).await;
    // Real time, because connections are: the longest pause.
    sleep(ms(1_020)).await;
    bench.proxy.refuse(false).await;
    connects_at_once(&manager).await;
}

/// The same where nobody was waiting any more when the last connect failed.
#[tokio::test]
async fn a_pause_counts_from_a_failure_that_nobody_waited_for() {
    let (bench, manager) = after_failures(6).await;
    let mut impatient = Box::pin(manager.ping());
    assert!(poll_once(impatient.as_mut()).await.is_pending());
    drop(impatient);
    // Real time: the longest pause before that connect, which fails too, the longest one after it, and a second for a busy
    // machine, on which both are late.
    sleep(ms(640 + 1_020 + 1_000)).await;
    bench.proxy.refuse(false).await;
    connects_at_once(&manager).await;
}

/// Proves: T2
/// A lease that was ended by force denies nobody in its own process, neither one who waits nor one who tries, although
/// nobody watches its guard.
#[tokio::test]
async fn a_lease_ended_by_force_does_not_deny_its_own_process() {
    let bench = Bench::start().await;
    let (stuck, operator) = (bench.manager().await, bench.outsider().await);
    let end = async |key: &str| {
        let seen = operator.inspect(key).await.unwrap().remove(0);
        assert!(operator.force_release(&seen).await.unwrap());
    };
    let first = take(&stuck, "k").await;
    let mut waiter = Box::pin(stuck.lock("k", waiting(TTL, LONG)));
    assert!(poll_once(waiter.as_mut()).await.is_pending());
    end("k").await;
    let second = waiter.await.unwrap();
    assert!(!first.is_valid() && second.is_valid());

    end("k").await;
    // The news may take a moment; without it the second one would deny it for its whole TTL.
    let third = async {
        loop {
            match stuck.try_lock("k", TTL).await.unwrap() {
                Some(guard) => break guard,
                None => sleep(ms(2)).await,
            }
        }
    };
    let third = timeout(LONG, third).await.expect("not denied by a lease that is over");
    assert!(!second.is_valid() && third.is_valid());
}

/// Fault: 33
/// The limit of a call is one limit: a connection that has to be made first is part of it.
#[tokio::test]
async fn the_limit_of_a_call_covers_its_connect() {
    let bench = Bench::start().await;
    let manager = LockManager::builder().call_timeout(ms(5_000)).connect(&bench.proxy.url()).await.unwrap();
    bench.proxy.add(Rule::new(Action::DelayReply(ms(3_000))).named("PING").always());
    bench.strike(Step::Acquire, Action::HoldReply);
    bench.proxy.cut_all().await;
    let started = Instant::now();
    let error = manager.try_lock("k", TTL).await.unwrap_err();
    let Error::Engine { cause, .. } = &error else { panic!("{error}") };
    assert_eq!((cause.kind(), cause.effect()), (ErrorKind::Timeout, Effect::Unknown), "{error}");
    // A limit for each would be 8 s.
    assert!(started.elapsed() < ms(7_900), "{:?}", started.elapsed());
}

/// Fault: 34
/// A connection that died while it was idle is no failure: what is asked next goes over a new one.
#[tokio::test]
async fn a_connection_that_died_idle_is_not_noticed_by_callers() {
    let bench = Bench::start().await;
    let manager = bench.manager().await;
    let guard = take(&manager, "k").await;
    bench.proxy.cut_all().await;
    manager.ping().await.unwrap();
    bench.proxy.cut_all().await;
    assert_eq!(manager.inspect("k").await.unwrap()[0].token(), guard.token());
    bench.proxy.cut_all().await;
    assert_eq!(manager.list(Cursor::START).await.unwrap().holders[0].token(), guard.token());
    bench.proxy.cut_all().await;
    assert!(guard.release().await.unwrap());
}

/// Fault: 34
/// The same for an operator, who looks, thinks for a while, and then ends the lease by force.
#[tokio::test]
async fn a_force_release_goes_over_a_new_connection_if_the_old_one_died_idle() {
    let bench = Bench::start().await;
    let (manager, operator) = (bench.outsider().await, bench.manager().await);
    let _guard = take(&manager, "k").await;
    let holder = operator.inspect("k").await.unwrap().remove(0);
    bench.proxy.cut_all().await;
    operator.force_release(&holder).await.unwrap();
    assert_eq!(bench.value("k"), None);
}

/// Fault: 35
/// Subscriptions that are confirmed and then cut are made again with growing pauses.
#[tokio::test]
async fn a_subscription_that_is_cut_again_and_again_is_no_storm() {
    let bench = Bench::start().await;
    let manager = bench.manager().await;
    let _held = take(&bench.outsider().await, "k").await;
    let opened = bench.proxy.connections_opened();
    let cut = async {
        loop {
            bench.proxy.wait_for(|command| command.name == "SUBSCRIBE").await;
            bench.proxy.reset_counts();
            // A moment, so that the confirmation has arrived.
            sleep(ms(3)).await;
            bench.server.command(&["CLIENT", "KILL", "TYPE", "pubsub"]);
        }
    };
    // Real time: what is to be shown is that little happens in it.
    let wait = manager.try_lock("k", waiting(TTL, ms(3_000)).retry_interval(LONG));
    tokio::select! {
        () = cut => {}
        denied = wait => assert!(denied.unwrap().is_none()),
    }
    let opened = bench.proxy.connections_opened() - opened;
    assert!((2..20).contains(&opened), "{opened} connections in 3 s");
}

/// Who stood in line and left takes the subscription along, also if he was called to its head meanwhile.
#[tokio::test]
async fn no_subscription_is_left_when_nobody_waits() {
    let bench = Bench::start().await;
    let (one, two) = (bench.outsider().await, bench.manager().await);
    let subscribed = || match bench.server.command(&["PUBSUB", "CHANNELS", "clinch:wake:*"]) {
        Reply::Array(channels) => channels.len(),
        other => panic!("{other:?}"),
    };
    let held = take(&one, "k").await;
    let first = tokio::spawn({
        let two = two.clone();
        async move { two.lock("k", waiting(TTL, LONG)).await.unwrap() }
    });
    eventually("the head has subscribed", || subscribed() == 1).await;
    let mut second = Box::pin(two.lock("k", waiting(TTL, LONG)));
    assert!(poll_once(second.as_mut()).await.is_pending());
    held.release().await.unwrap();
    let _guard = first.await.unwrap();
    drop(second);
    eventually("nothing is subscribed", || subscribed() == 0).await;
}

/// Proves: O5
/// A store that is made by hand checks its options as the builder does, and names what is wrong.
#[tokio::test]
async fn a_store_made_by_hand_checks_its_options() {
    let server = RedisServer::start();
    let options = |change: fn(&mut StoreOptions)| {
        let mut options = StoreOptions::default();
        change(&mut options);
        options
    };
    for (options, field) in [
        (options(|options| options.prefix = "a{b c\n".to_owned()), "prefix"),
        (options(|options| options.max_in_flight = 0), "max_in_flight"),
        (options(|options| options.max_in_flight = usize::MAX), "max_in_flight"),
        (options(|options| options.call_timeout = Duration::ZERO), "call_timeout"),
        (options(|options| options.connect_timeout = Duration::MAX), "connect_timeout"),
    ] {
        let error = RedisStore::connect(&server.url(), &options).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config, "{error}");
        assert!(error.to_string().contains(field) && error.to_string().contains("accepted"), "{error}");
    }
    assert!(RedisStore::connect(&server.url(), &StoreOptions::default()).await.is_ok());
}

/// Prints an error and its sources, as most programs do: nothing is to be read twice.
fn says_nothing_twice(error: &dyn std::error::Error) {
    let chain: Vec<_> =
        std::iter::successors(Some(error), |error| error.source()).map(ToString::to_string).collect();
    for (i, text) in chain.iter().enumerate() {
        let said = chain[..i].iter().any(|earlier| earlier.contains(text.as_str()));
        assert!(!said, "`{text}` is said twice: {chain:#?}");
    }
}

/// The sources of an engine's failure do not repeat its text.
#[tokio::test]
async fn an_engine_failure_and_its_sources_say_nothing_twice() {
    let server = RedisServer::start();
    let manager = LockManager::connect(&server.url()).await.unwrap();
    server.command(&["LPUSH", "clinch:lock:list", "x"]);
    says_nothing_twice(&manager.try_lock("list", TTL).await.unwrap_err());
    server.kill();
    says_nothing_twice(&manager.try_lock("k", TTL).await.unwrap_err());
    says_nothing_twice(&LockManager::connect(&server.url()).await.unwrap_err());
}

/// Nor do those of input that is refused.
#[tokio::test]
async fn bad_input_and_its_sources_say_nothing_twice() {
    let manager = LockManager::memory();
    says_nothing_twice(&manager.try_lock("k", Duration::ZERO).await.unwrap_err());
    says_nothing_twice(&LockManager::connect("nonsense").await.unwrap_err());
    says_nothing_twice(&manager.try_lock("", TTL).await.unwrap_err());
}

/// Proves: O3
/// Neither the password nor the random part of a token is in what is printed for debugging.
#[tokio::test]
async fn nothing_that_is_printed_tells_a_secret() {
    let server = RedisServer::builder().password("hunter2").start();
    let url = server.url_with(0, None, Some("hunter2"));
    let manager = LockManager::connect(&url).await.unwrap();
    let store = RedisStore::connect(&url, &StoreOptions::default()).await.unwrap();
    let guard = take(&manager, "k").await;
    let random = &guard.token().as_str()[..32];
    // With one who waits, and a release on its way.
    let mut waiter = Box::pin(manager.lock("k", waiting(TTL, LONG)));
    assert!(poll_once(waiter.as_mut()).await.is_pending());
    drop(take(&manager, "dropped").await);
    let printed = [
        format!("{manager:?} {store:?} {guard:?} {:?}", guard.lease()),
        format!("{:?}", manager.inspect("k").await.unwrap()),
        format!("{:?}", manager.attempt("k", TTL).await.unwrap()),
        format!("{:?}", manager.list(Cursor::START).await.unwrap()),
    ];
    for text in printed {
        assert!(!text.contains("hunter2") && !text.contains(random), "{text}");
    }
}

/// An address that is refused is shown without its password, also where the password itself is what breaks it.
#[tokio::test]
async fn a_password_that_breaks_its_address_is_not_shown() {
    for url in [
        "redis://:hunter2@127.0.0.1:1?password=hunter2#hunter2",
        "redis://:hunter2#@127.0.0.1:1",
        "redis://:hunter2/@127.0.0.1:1",
        "redis://:hunter2?@127.0.0.1:1",
    ] {
        let error = LockManager::connect(url).await.unwrap_err();
        assert!(!format!("{error} {error:?}").contains("hunter2"), "{error:?}");
    }
}
