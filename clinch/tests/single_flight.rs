//! Many callers, one of whom computes.

#![cfg(feature = "redis")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test stops at the first surprise"
)]

use std::convert::Infallible;
use std::future::{pending, ready};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use clinch::stores::memory::MemoryStore;
use clinch::{Error, Lease, LockManager, LockOptions, SingleFlightError, Strategy};
use clinch_testkit::server::RedisServer;
use futures_util::future::join_all;
use tokio::sync::watch;
use tokio::task::JoinHandle;

const LONG: Duration = Duration::from_secs(60);

fn options() -> LockOptions {
    LockOptions::new(LONG).wait(LONG)
}

/// A cache that callers share, and what happened to it.
struct Cache {
    value: watch::Sender<Option<u32>>,
    reads: watch::Sender<usize>,
    computed: AtomicUsize,
}

impl Cache {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            value: watch::channel(None).0,
            reads: watch::channel(0).0,
            computed: AtomicUsize::new(0),
        })
    }

    fn read(&self) -> Option<u32> {
        self.reads.send_modify(|reads| *reads += 1);
        *self.value.borrow()
    }

    fn fill(&self, value: u32) -> u32 {
        self.computed.fetch_add(1, Ordering::Relaxed);
        self.value.send_replace(Some(value));
        value
    }

    async fn was_read(&self, times: usize) {
        self.reads.subscribe().wait_for(|reads| *reads >= times).await.unwrap();
    }

    /// Asks for the value in a task of its own.
    fn ask<F>(
        self: &Arc<Self>,
        locks: &LockManager,
        compute: impl FnOnce(Lease) -> F + Send + 'static,
    ) -> Asked
    where
        F: Future<Output = Result<u32, &'static str>> + Send,
    {
        let (cache, locks) = (self.clone(), locks.clone());
        tokio::spawn(async move {
            locks.single_flight("fill", options(), async || Ok(cache.read()), compute).await
        })
    }
}

type Asked = JoinHandle<Result<u32, SingleFlightError<&'static str>>>;

/// Two managers on one engine, on either engine.
async fn pairs() -> [([LockManager; 2], Option<RedisServer>); 2] {
    let store = Arc::new(MemoryStore::new());
    let memory = || LockManager::builder().store(store.clone()).build().unwrap();
    let server = RedisServer::start();
    let redis = async || LockManager::builder().call_timeout(LONG).connect(&server.url()).await.unwrap();
    let redis = [redis().await, redis().await];
    [([memory(), memory()], None), (redis, Some(server))]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_fifty_callers_on_two_managers_one_computes() {
    for (managers, _server) in pairs().await {
        let cache = Cache::new();
        let callers = (0..50).map(|caller| {
            let mine = cache.clone();
            cache.ask(&managers[caller % 2], async move |lease: Lease| {
                assert!(lease.is_valid());
                // All have looked, and found nothing; this one has looked again under the lock.
                mine.was_read(51).await;
                Ok(mine.fill(42))
            })
        });
        let values: Vec<_> = join_all(callers.collect::<Vec<_>>()).await;
        assert!(values.into_iter().all(|value| value.unwrap().unwrap() == 42));
        assert_eq!(cache.computed.load(Ordering::Relaxed), 1);
        // And nobody asks for a lock when there is a value.
        managers[0].shutdown(LONG).await;
        assert_eq!(cache.ask(&managers[0], async |_| Err("not needed")).await.unwrap().unwrap(), 42);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_computing_fails_the_next_one_computes() {
    for (managers, _server) in pairs().await {
        let cache = Cache::new();
        let seen = cache.clone();
        let first = cache.ask(&managers[0], async move |_| {
            // Read twice by this one, once by the other.
            seen.was_read(3).await;
            Err("no flour")
        });
        cache.was_read(2).await;
        let mine = cache.clone();
        let second = cache.ask(&managers[1], async move |_| Ok(mine.fill(7)));
        let failed = first.await.unwrap();
        assert!(matches!(failed, Err(SingleFlightError::Inner("no flour"))), "{failed:?}");
        assert_eq!(second.await.unwrap().unwrap(), 7);
        assert_eq!(cache.computed.load(Ordering::Relaxed), 1);
    }
}

/// Proves: B4
/// Fault: 13
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_the_one_who_computes_is_dropped_the_next_one_computes() {
    for (managers, _server) in pairs().await {
        let cache = Cache::new();
        let first = cache.ask(&managers[0], async |_| pending().await);
        cache.was_read(2).await;
        let mine = cache.clone();
        let second = cache.ask(&managers[1], async move |_| Ok(mine.fill(7)));
        cache.was_read(3).await;
        first.abort();
        assert_eq!(second.await.unwrap().unwrap(), 7);
    }
}

#[tokio::test]
async fn whoever_is_denied_reads_once_more_before_it_gives_up() {
    for ([one, other], _server) in pairs().await {
        let _held = one.lock("fill", LONG).await.unwrap();
        let flight = async |found_at: usize| {
            let mut reads = 0;
            let read = || {
                reads += 1;
                ready(Ok::<_, Infallible>((reads == found_at).then_some(7)))
            };
            let flight = other.single_flight("fill", LockOptions::new(LONG), read, async |_| panic!("held"));
            (flight.await, reads)
        };
        assert!(matches!(flight(2).await, (Ok(7), 2)));
        let (denied, reads) = flight(usize::MAX).await;
        let denied = denied.unwrap_err();
        assert!(matches!(denied, SingleFlightError::Lock(Error::LockNotAcquired { .. })), "{denied}");
        assert_eq!(reads, 2);
    }
}

#[tokio::test]
async fn an_error_of_reading_comes_back_untouched() {
    let locks = LockManager::memory();
    for failing in [1, 2] {
        let mut reads = 0;
        let read = || {
            reads += 1;
            ready(if reads == failing { Err("no cache") } else { Ok(None::<u32>) })
        };
        let failed = locks.single_flight("fill", LONG, read, async |_| Ok(7)).await;
        assert!(matches!(failed, Err(SingleFlightError::Inner("no cache"))), "{failed:?}");
        // And nothing is held any more.
        assert!(locks.try_lock("fill", LONG).await.unwrap().is_some());
    }
}

/// Proves: D10
#[tokio::test]
async fn without_the_engine_it_computes_unprotected_if_told_to_go_on() {
    let server = RedisServer::start();
    let locks = LockManager::builder().call_timeout(Duration::from_secs(1));
    let locks = locks.connect(&server.url()).await.unwrap();
    server.stop();
    let flight = async |options| {
        let read = async || Ok::<_, Infallible>(None);
        locks.single_flight("fill", options, read, async |lease| Ok(lease.is_degraded())).await
    };
    let options = LockOptions::new(LONG);
    assert!(flight(options.clone().strategy(Strategy::Proceed)).await.unwrap());
    let failed = flight(options).await.unwrap_err();
    assert!(matches!(failed, SingleFlightError::Lock(Error::Engine { .. })), "{failed}");
}

#[tokio::test]
async fn bad_input_is_found_before_anything_is_read() {
    let locks = LockManager::memory();
    let flight = async |key: &str, options: LockOptions| {
        let read = async || -> Result<Option<u32>, Infallible> { panic!("read") };
        let failed = locks.single_flight(key, options, read, async |_| panic!("computed")).await;
        let SingleFlightError::Lock(error) = failed.unwrap_err() else { panic!("not of the lock") };
        error
    };
    assert!(matches!(flight("", options()).await, Error::InvalidKey(_)));
    let no_ttl = LockOptions::new(Duration::ZERO);
    assert!(matches!(flight("fill", no_ttl).await, Error::InvalidOption { field: "ttl", .. }));
    assert!(matches!(flight("fill", options().shared()).await, Error::InvalidOption { field: "shared", .. }));
}
