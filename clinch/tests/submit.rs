//! The duplicate guard by plain calls, without any web framework.
#![cfg(feature = "submit")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use clinch::lease::{Attempt, Record};
use clinch::store::{Release, Store, StoreFuture, Verdict};
use clinch::stores::memory::MemoryStore;
use clinch::submit::{
    DuplicatePolicy, Guards, Identity, LimitPolicy, LockPolicy, ReleaseWhen, Settings, Submission,
};
use clinch::{Error, LockManager, Sources, Strategy};
use clinch_testkit::server::RedisServer;
use tokio::time::Instant;

const SECOND: Duration = Duration::from_secs(1);

fn order(user: &str, item: u32) -> Submission {
    Submission::of("create_order").user(Identity::user(user)).param("item", &item).unwrap()
}

/// What a refused one is told: whether the first one is running, and the time left.
async fn refused(guards: &Guards, policy: &DuplicatePolicy, submission: &Submission) -> (bool, Duration) {
    match guards.duplicate(policy, submission).await {
        // A lease also counts by the clock that no test can stop.
        Err(Error::DuplicateSubmit { in_progress, remaining, .. }) => {
            let tenths = remaining.as_micros().div_ceil(100_000);
            let rounded = if tenths < 2 {
                remaining
            } else {
                Duration::from_millis(100) * u32::try_from(tenths).unwrap()
            };
            (in_progress, rounded)
        }
        other => panic!("not refused: {other:?}"),
    }
}

/// Proves: D2, D7
#[tokio::test(start_paused = true)]
async fn the_same_submission_is_refused_while_the_first_one_runs_and_no_longer() {
    let guards = Guards::new(LockManager::memory());
    let policy = DuplicatePolicy::new();
    let first = guards.duplicate(&policy, &order("1", 7)).await.unwrap();
    assert_eq!(refused(&guards, &policy, &order("1", 7)).await, (true, 5 * SECOND));
    for other in [order("2", 7), order("1", 8)] {
        guards.duplicate(&policy, &other).await.unwrap().finish(true).await;
    }
    tokio::time::advance(SECOND).await;
    assert_eq!(refused(&guards, &policy, &order("1", 7)).await, (true, 4 * SECOND));
    first.finish(true).await;
    let second = guards.duplicate(&policy, &order("1", 7)).await.unwrap();
    // Dropped, it is given back too.
    drop(second);
    guards.duplicate(&policy, &order("1", 7)).await.unwrap().finish(false).await;
    let counts = guards.statistics();
    assert_eq!((counts.requests, counts.admitted, counts.duplicates), (7, 5, 2));
}

/// Proves: D8
/// Fault: 41, 43
#[tokio::test(start_paused = true)]
async fn what_is_kept_after_the_end_is_a_policy_and_told_apart_from_one_that_runs() {
    for (release, after_success, after_failure) in [
        (ReleaseWhen::OnCompletion, false, false),
        (ReleaseWhen::OnFailure, true, false),
        (ReleaseWhen::Never, true, true),
    ] {
        for (success, kept) in [(true, after_success), (false, after_failure)] {
            let guards = Guards::new(LockManager::memory());
            let policy = DuplicatePolicy::new().release(release);
            let first = guards.duplicate(&policy, &order("1", 7)).await.unwrap();
            tokio::time::advance(SECOND).await;
            if success {
                first.finish(true).await;
            } else {
                drop(first);
                // Nothing else tells when the background is done.
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            if kept {
                let (in_progress, remaining) = refused(&guards, &policy, &order("1", 7)).await;
                assert!(!in_progress && remaining <= 4 * SECOND, "{release:?} {success} {remaining:?}");
                tokio::time::advance(4 * SECOND).await;
            }
            guards.duplicate(&policy, &order("1", 7)).await.unwrap().finish(true).await;
        }
    }
}

/// Proves: D8
#[tokio::test(start_paused = true)]
async fn it_is_held_for_its_least_time_however_quick_the_work_is() {
    let guards = Guards::new(LockManager::memory());
    let policy = DuplicatePolicy::new().min_hold(2 * SECOND);
    let first = guards.duplicate(&policy, &order("1", 7)).await.unwrap();
    tokio::time::advance(SECOND).await;
    first.finish(true).await;
    assert_eq!(refused(&guards, &policy, &order("1", 7)).await, (false, SECOND));
    tokio::time::advance(SECOND).await;
    let slow = guards.duplicate(&policy, &order("1", 7)).await.unwrap();
    tokio::time::advance(3 * SECOND).await;
    slow.finish(true).await;
    drop(guards.duplicate(&policy, &order("1", 7)).await.unwrap());
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert!(!refused(&guards, &policy, &order("1", 7)).await.0, "a dropped one is held for it too");
}

/// Proves: D9
#[tokio::test(start_paused = true)]
async fn intervals_are_kept_within_their_range() {
    let guards = Guards::new(LockManager::memory());
    for (interval, kept) in [(1, 1_000), (2_000, 2_000), (3_600_000, 300_000)] {
        let policy = DuplicatePolicy::new().interval(Duration::from_millis(interval));
        let first = guards.duplicate(&policy, &order("1", 7)).await.unwrap();
        assert_eq!(refused(&guards, &policy, &order("1", 7)).await.1, Duration::from_millis(kept));
        first.finish(true).await;
    }
}

/// Proves: D12, B14
#[tokio::test(start_paused = true)]
async fn guards_that_are_off_ask_nothing_and_those_in_shadow_mode_refuse_nobody() {
    let off = Settings::new().enabled(false);
    let shadow = Settings::new().shadow(true);
    for (settings, requests, shadowed) in [(off, 0, 0), (shadow, 6, 3)] {
        let guards = Guards::new(LockManager::memory()).with_settings(settings).unwrap();
        let (lock, limit) = (LockPolicy::new("k"), LimitPolicy::new("n", 1));
        let mut held = Vec::new();
        for _ in 0..2 {
            held.push(guards.duplicate(&DuplicatePolicy::new(), &order("1", 7)).await.unwrap());
            held.push(guards.lock(&lock, "k").await.unwrap());
            held.push(guards.limit(&limit, "n").await.unwrap());
        }
        let counts = guards.statistics();
        assert_eq!((counts.requests, counts.shadowed), (requests, shadowed));
        assert_eq!(
            held.iter().filter(|admission| admission.lease().is_some()).count(),
            3 * usize::from(requests > 0)
        );
    }
}

/// Proves: D5, D7
#[tokio::test]
async fn on_redis_a_kept_interval_is_a_record_with_the_rest_of_its_time() {
    let server = RedisServer::start();
    let guards = Guards::new(LockManager::connect(&server.url()).await.unwrap());
    let other = Guards::new(LockManager::connect(&server.url()).await.unwrap());
    let policy = DuplicatePolicy::new().release(ReleaseWhen::OnFailure).key_prefix("order");
    let first = guards.duplicate(&policy, &order("1", 7)).await.unwrap();
    assert!(refused(&other, &policy, &order("1", 7)).await.0);
    first.finish(true).await;
    let (in_progress, remaining) = refused(&other, &policy, &order("1", 7)).await;
    assert!(!in_progress && remaining <= 5 * SECOND && remaining >= Duration::from_millis(1));
    let keys = server.keys("clinch:dup:*");
    assert!(keys.len() == 1 && keys[0].starts_with("clinch:dup:order:create_order:"), "{keys:?}");
    // A key without expiry, which only somebody else can make, counts as 1 ms: at once for one who has not asked before, and
    // soon for all others.
    server.command(&["PERSIST", &keys[0]]);
    let third = Guards::new(LockManager::connect(&server.url()).await.unwrap());
    assert_eq!(refused(&third, &policy, &order("1", 7)).await.1, Duration::from_millis(1));
    tokio::time::sleep(Duration::from_millis(150)).await;
    assert_eq!(refused(&other, &policy, &order("1", 7)).await.1, Duration::from_millis(1));
}

/// How long the engine below has for an answer: less than a closed window is remembered, and so is twice that.
const CALL: Duration = Duration::from_millis(20);

/// An engine that is elsewhere, and counts how often it is asked.
#[derive(Debug, Default)]
struct Elsewhere {
    inner: MemoryStore,
    asked: AtomicUsize,
    silent: AtomicBool,
}

impl Elsewhere {
    /// How often it was asked since it was last looked at.
    fn asked(&self) -> usize {
        self.asked.swap(0, Ordering::Relaxed)
    }

    /// From now on nobody has an answer.
    fn fall_silent(&self) {
        self.silent.store(true, Ordering::Relaxed);
    }

    fn unless_silent<'a, T: Send + 'a>(&self, answer: StoreFuture<'a, T>) -> StoreFuture<'a, T> {
        if self.silent.load(Ordering::Relaxed) { Box::pin(pending()) } else { answer }
    }
}

impl Store for Elsewhere {
    clinch_testkit::passes_on!(
        inner: capabilities, renew, release, wakeups, revocations, inspect, list, revoke
    );

    fn acquire<'a>(&'a self, attempt: &'a Attempt) -> StoreFuture<'a, Verdict> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        self.unless_silent(self.inner.acquire(attempt))
    }

    fn ping(&self) -> StoreFuture<'_, Duration> {
        self.unless_silent(self.inner.ping())
    }

    fn complete<'a>(
        &'a self,
        lease: &'a Attempt,
        record: &'a Record,
        ttl: Option<Duration>,
    ) -> StoreFuture<'a, Release> {
        self.inner.complete(lease, record, ttl)
    }
}

fn elsewhere() -> (Arc<Elsewhere>, Guards, Guards) {
    let engine = Arc::new(Elsewhere::default());
    // Without the clock that no test can stop.
    let guards = |seed| {
        let locks = LockManager::builder().sources(Sources::seeded(seed)).call_timeout(CALL);
        Guards::new(locks.store(engine.clone()).build().unwrap())
    };
    let (here, there) = (guards(1), guards(2));
    (engine, here, there)
}

/// A window that is closed stays so until it ends, and a storm of repetitions is told so without the engine.
///
/// Proves: D5, D8
#[tokio::test(start_paused = true)]
async fn a_storm_at_a_closed_window_costs_few_calls() {
    let (engine, here, there) = elsewhere();
    let policy = DuplicatePolicy::new().release(ReleaseWhen::OnFailure);
    here.duplicate(&policy, &order("1", 7)).await.unwrap().finish(true).await;
    engine.asked();
    let mut last = 5 * SECOND;
    for _ in 0..1_000 {
        let Err(Error::DuplicateSubmit { remaining, in_progress, key, .. }) =
            there.duplicate(&policy, &order("1", 7)).await
        else {
            panic!("the window is closed")
        };
        assert!(!in_progress && key.as_str().starts_with("create_order:"));
        assert!(remaining <= last && remaining >= Duration::from_millis(1), "{remaining:?}");
        last = remaining;
        tokio::time::advance(Duration::from_millis(1)).await;
    }
    assert!(last <= 4 * SECOND + Duration::from_millis(1), "counted down: {last:?}");
    assert_eq!(engine.asked(), 10);
    let counts = there.statistics();
    assert_eq!((counts.requests, counts.duplicates), (1_000, 1_000));
    // Others are not concerned, and when it has ended it is open, for everybody.
    there.duplicate(&policy, &order("2", 7)).await.unwrap().finish(true).await;
    for _ in 0..2_000 {
        tokio::time::advance(Duration::from_millis(2)).await;
        match there.duplicate(&policy, &order("1", 7)).await {
            Err(Error::DuplicateSubmit { remaining, .. }) => last = remaining,
            other => return drop(other.unwrap()),
        }
    }
    panic!("still closed: {last:?} left");
}

/// While the engine is not asked at all, what it said a moment before is no reason to refuse anybody either.
///
/// Proves: D5, D10
#[tokio::test(start_paused = true)]
async fn what_is_remembered_of_a_window_counts_for_nothing_while_the_engine_is_not_asked() {
    let (engine, here, there) = elsewhere();
    let policy = DuplicatePolicy::new().release(ReleaseWhen::OnFailure).strategy(Strategy::FailFast);
    here.duplicate(&policy, &order("1", 7)).await.unwrap().finish(true).await;
    assert!(!refused(&there, &policy, &order("1", 7)).await.0);
    let told = Instant::now();
    engine.fall_silent();
    let [second, third] = ["2", "3"].map(|user| order(user, 7));
    let unanswered = tokio::join!(there.duplicate(&policy, &second), there.duplicate(&policy, &third));
    assert!(matches!(unanswered, (Err(Error::Engine { .. }), Err(Error::Engine { .. }))), "{unanswered:?}");

    engine.asked();
    let error = there.duplicate(&policy, &order("1", 7)).await.unwrap_err();
    assert!(matches!(error, Error::Engine { .. }), "{error}");
    let policy = policy.strategy(Strategy::Proceed);
    let admission = there.duplicate(&policy, &order("1", 7)).await.unwrap();
    assert!(admission.lease().unwrap().is_degraded());
    assert_eq!(engine.asked(), 0, "the breaker is open");
    assert!(told.elapsed() < Duration::from_millis(98), "it is still remembered: {:?}", told.elapsed());
}

/// What a window that is lost all the same, deleted by hand or forgotten by its engine, costs: a tenth of a second.
#[tokio::test]
async fn a_window_that_was_deleted_is_open_soon_after() {
    let server = RedisServer::start();
    let guards = Guards::new(LockManager::connect(&server.url()).await.unwrap());
    let policy = DuplicatePolicy::new().release(ReleaseWhen::Never);
    guards.duplicate(&policy, &order("1", 7)).await.unwrap().finish(true).await;
    assert!(!refused(&guards, &policy, &order("1", 7)).await.0);
    server.command(&["FLUSHALL"]);
    tokio::time::sleep(Duration::from_millis(150)).await;
    guards.duplicate(&policy, &order("1", 7)).await.unwrap().finish(true).await;
}

/// One that runs may end at any moment, so whoever it denies elsewhere asks each time.
///
/// Proves: D7
#[tokio::test(start_paused = true)]
async fn one_that_runs_is_never_remembered() {
    let (engine, here, there) = elsewhere();
    let policy = DuplicatePolicy::new();
    let first = here.duplicate(&policy, &order("1", 7)).await.unwrap();
    engine.asked();
    for _ in 0..10 {
        assert!(refused(&there, &policy, &order("1", 7)).await.0);
    }
    assert_eq!(engine.asked(), 10);
    first.finish(true).await;
    there.duplicate(&policy, &order("1", 7)).await.unwrap().finish(true).await;
}

/// Proves: D10
/// Fault: 42
#[tokio::test]
async fn without_its_engine_each_guard_does_what_its_strategy_says() {
    let server = RedisServer::start();
    let guards = Guards::new(LockManager::connect(&server.url()).await.unwrap());
    drop(server);
    for strategy in [Strategy::FailFast, Strategy::RetryOnce] {
        let policy = DuplicatePolicy::new().strategy(strategy);
        let error = guards.duplicate(&policy, &order("1", 7)).await.unwrap_err();
        assert!(matches!(error, Error::Engine { .. }), "{error}");
    }
    let policy = DuplicatePolicy::new().strategy(Strategy::Proceed);
    let admission = guards.duplicate(&policy, &order("1", 7)).await.unwrap();
    assert!(admission.lease().unwrap().is_degraded());
    // In this process it excludes all the same.
    assert!(refused(&guards, &policy, &order("1", 7)).await.0);
    let counts = guards.statistics();
    assert_eq!((counts.engine_failures, counts.unprotected, counts.duplicates), (2, 1, 1));
}

/// Proves: D1
#[test]
fn a_policy_says_the_same_in_a_file() {
    let policy: DuplicatePolicy = serde_json::from_str(
        r#"{"interval": "1m 30s", "include_user": false, "release": "never", "strategy": "retry_once", "disconnect": "hold"}"#,
    )
    .unwrap();
    let built = DuplicatePolicy::new()
        .interval(Duration::from_secs(90))
        .include_user(false)
        .release(ReleaseWhen::Never)
        .strategy(Strategy::RetryOnce)
        .disconnect(clinch::submit::Disconnect::Hold);
    assert_eq!(policy, built);
    assert_eq!(
        serde_json::from_value::<DuplicatePolicy>(serde_json::to_value(&built).unwrap()).unwrap(),
        built
    );
    for (bad, named) in [
        (r#"{"intervall": "5s"}"#, "intervall"),
        (r#"{"interval": "5"}"#, "accepted is a time with its unit"),
        (r#"{"interval": 5}"#, "a time with its unit"),
        (r#"{"release": "later"}"#, "on_completion"),
    ] {
        let error = serde_json::from_str::<DuplicatePolicy>(bad).unwrap_err().to_string();
        assert!(error.contains(named), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_block_runs_once_and_its_own_error_comes_back() {
    #[derive(Debug, PartialEq)]
    enum Failed {
        Mine,
        Clinch,
    }
    impl From<Error> for Failed {
        fn from(_: Error) -> Self {
            Self::Clinch
        }
    }
    let guards = Guards::new(LockManager::memory());
    let policy = DuplicatePolicy::new().release(ReleaseWhen::OnFailure);
    let submission = order("1", 7);
    let failed = guards.prevent_duplicate(&policy, &submission, async |_| Err::<(), _>(Failed::Mine)).await;
    assert_eq!(failed, Err(Failed::Mine));
    assert_eq!(guards.prevent_duplicate(&policy, &submission, async |_| Ok::<_, Failed>(1)).await, Ok(1));
    let again = guards.prevent_duplicate(&policy, &submission, async |_| Ok::<_, Failed>(2)).await;
    assert_eq!(again, Err(Failed::Clinch));
}

/// The right to release is in the value: it goes where the value goes, over threads and runtimes, and nobody else has it.
///
/// Proves: D11
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_right_to_release_goes_where_the_admission_goes() {
    let guards = Guards::new(LockManager::memory());
    let policy = DuplicatePolicy::new().interval(Duration::from_secs(60));
    let first = guards.duplicate(&policy, &order("1", 7)).await.unwrap();
    // On the thread that took it, others of the same user come and go, and take nothing along.
    guards.duplicate(&policy, &order("1", 8)).await.unwrap().finish(true).await;
    assert!(refused(&guards, &policy, &order("1", 7)).await.0);
    let elsewhere = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(first.finish(true));
    });
    tokio::task::spawn_blocking(|| elsewhere.join().unwrap()).await.unwrap();
    guards.duplicate(&policy, &order("1", 7)).await.unwrap().finish(true).await;
}
