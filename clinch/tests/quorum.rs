//! The quorum on three real servers: what it bears, what it refuses, and who sits out.

#![cfg(feature = "redis")]
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::time::Duration;

use clinch::store::{Effect, ErrorKind};
use clinch::{Error, LockManager, LockOptions, Loss};
use clinch_testkit::proxy::FaultProxy;
use clinch_testkit::server::RedisServer;
use tokio::time::{Instant, timeout};

/// Long enough for anything that happens at all, on a busy machine too.
const LONG: Duration = Duration::from_secs(30);
const TTL: Duration = Duration::from_secs(20);

/// Three servers, each with a fault proxy before it.
struct Three {
    servers: Vec<RedisServer>,
    proxies: Vec<FaultProxy>,
}

impl Three {
    /// As new as they are.
    async fn new() -> Self {
        let servers: Vec<_> = (0..3).map(|_| RedisServer::builder().movable_clock(true).start()).collect();
        let mut proxies = Vec::new();
        for server in &servers {
            proxies.push(FaultProxy::start(server.addr()).await);
        }
        Self { servers, proxies }
    }

    /// By their own clocks, which were set ahead, they have run for two minutes.
    async fn start() -> Self {
        let three = Self::new().await;
        three.servers.iter().for_each(|server| server.move_clock(120));
        three
    }

    fn url(&self) -> String {
        let hosts: Vec<_> = self.proxies.iter().map(|proxy| proxy.addr().to_string()).collect();
        format!("redis+quorum://{}", hosts.join(","))
    }

    async fn manager(&self) -> LockManager {
        LockManager::builder().call_timeout(Duration::from_secs(5)).connect(&self.url()).await.unwrap()
    }

    /// How many servers have the key.
    fn holding(&self, key: &str) -> usize {
        let held = |server: &&RedisServer| {
            server.is_running() && server.get(&format!("clinch:lock:{key}")).is_some()
        };
        self.servers.iter().filter(held).count()
    }
}

async fn guard_of(locks: &LockManager, key: &str) -> clinch::LockGuard {
    timeout(LONG, locks.lock(key, LockOptions::new(TTL).wait(LONG))).await.unwrap().unwrap()
}

/// Waits until it is so.
async fn until(mut so: impl FnMut() -> bool) {
    let looks = async {
        while !so() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(LONG, looks).await.unwrap();
}

/// Proves: B10
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_is_held_on_every_server_under_one_token_and_given_back_on_all() {
    let three = Three::start().await;
    let (locks, others) = (three.manager().await, three.manager().await);
    let guard = guard_of(&locks, "k").await;
    until(|| three.holding("k") == 3).await;
    let tokens: Vec<_> = three.servers.iter().map(|server| server.get("clinch:lock:k").unwrap()).collect();
    assert!(tokens.iter().all(|token| token == guard.token().as_str()), "the same everywhere");
    assert!(guard.fence().is_none(), "there are none here");
    assert!(others.try_lock("k", TTL).await.unwrap().is_none());
    let holders = others.inspect("k").await.unwrap();
    assert_eq!(holders.len(), 1);
    assert_eq!(holders[0].token(), guard.token());
    assert!(guard.release().await.unwrap());
    until(|| three.holding("k") == 0).await;
    assert!(others.try_lock("k", TTL).await.unwrap().is_some());

    // By force, it is ended everywhere, and its holder hears of it.
    let guard = guard_of(&locks, "forced").await;
    let lost = guard.lost();
    let holder = others.inspect("forced").await.unwrap().remove(0);
    assert!(others.force_release(&holder).await.unwrap());
    assert_eq!(timeout(LONG, lost).await.unwrap(), Loss::Revoked);
    assert_eq!(three.holding("forced"), 0);
}

/// Fault: 37
/// Proves: B10
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_minority_that_is_down_changes_nothing_and_a_slow_one_delays_nobody() {
    let three = Three::start().await;
    let locks = three.manager().await;
    let options = || LockOptions::new(TTL).renew_every(Duration::from_millis(100));
    // It is down.
    three.servers[2].kill();
    let guard = timeout(LONG, locks.lock("k", options())).await.unwrap().unwrap();
    assert_eq!(three.holding("k"), 2);
    let left = guard.remaining();
    let deadline = Instant::now() + left;
    // Each look is a lower bound, however slow it is.
    until(|| Instant::now() + guard.remaining() > deadline + Duration::from_millis(50)).await;
    assert!(guard.is_valid() && guard.release().await.unwrap());
    assert_eq!(three.holding("k"), 0);
    // A new client finds the others all the same.
    let others = three.manager().await;
    assert!(others.try_lock("k", TTL).await.unwrap().unwrap().release().await.unwrap());
    let health = others.health(LONG).await;
    assert!(format!("{health:?}").contains("1 of 3 nodes do not serve"), "{health:?}");

    // It takes everything and answers nothing: nobody waits for it, though each of twenty calls may take five seconds.
    three.servers[2].restart();
    three.proxies[2].stall();
    let turns = async {
        for _ in 0..20 {
            let guard = locks.lock("slow", LockOptions::new(TTL).wait(LONG)).await.unwrap();
            assert!(guard.is_valid() && guard.release().await.unwrap());
        }
    };
    timeout(LONG, turns).await.unwrap();

    // Two are down: nothing is granted, and that is said.
    three.servers[1].kill();
    three.servers[2].kill();
    let error = locks.try_lock("k", TTL).await.unwrap_err();
    assert!(matches!(&error, Error::Engine { .. }) && error.is_retryable(), "{error}");
    assert!(error.to_string().contains("of 3 nodes answered, and 2 are needed"), "{error}");
}

/// Fault: 38
/// Proves: B10
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_split_vote_is_given_back_and_somebody_wins_before_long() {
    let three = Three::start().await;
    // With one server down, two contenders for two votes get one each, again and again, unless they keep out of each
    // other's way.
    three.servers[2].kill();
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let locks = three.manager().await;
        tasks.spawn(async move {
            for _ in 0..10 {
                let options = LockOptions::new(TTL).wait(LONG).retry_interval(Duration::from_millis(200));
                let guard = locks.lock("k", options).await.unwrap();
                assert!(guard.is_valid());
                guard.release().await.unwrap();
            }
        });
    }
    timeout(LONG * 2, async {
        while let Some(done) = tasks.join_next().await {
            done.unwrap();
        }
    })
    .await
    .unwrap();
    until(|| three.holding("k") == 0).await;

    // Votes that are split for good: somebody else has one server, the other one grants, and that vote is given back.
    let locks = three.manager().await;
    three.servers[0].command(&["SET", "clinch:lock:split", "somebody else", "PX", "60000"]);
    assert!(locks.try_lock("split", TTL).await.unwrap().is_none());
    until(|| three.servers[1].get("clinch:lock:split").is_none()).await;
    let left = locks.inspect("split").await.unwrap().len();
    assert!(left <= 1, "at most the one who may have two");
}

/// Fault: 22
/// Proves: B10
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restarted_server_sits_out_and_a_forgotten_lease_is_not_given_twice() {
    let three = Three::start().await;
    let (locks, others) = (three.manager().await, three.manager().await);
    let guard = guard_of(&locks, "k").await;
    until(|| three.holding("k") == 3).await;
    // Two of three forget it. Without sitting out, the next one who asks would have both of them.
    for server in &three.servers[..2] {
        server.kill();
        server.move_clock(0);
        server.restart();
        assert_eq!(server.get("clinch:lock:k"), None, "it is forgotten");
    }
    let error = loop {
        match others.try_lock("k", TTL).await {
            Ok(got) => assert!(got.is_none(), "given twice"),
            Err(error) => break error,
        }
        tokio::task::yield_now().await;
    };
    assert!(error.to_string().contains("grants nothing for"), "{error}");
    assert!(guard.is_valid(), "nobody else can have it");
    drop(guard);
}

/// A deployment in its first minute says so, and for how long; then it grants.
///
/// Proves: B10
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_deployment_waits_once_and_says_for_how_long() {
    let three = Three::new().await;
    let locks = three.manager().await;
    let error = locks.try_lock("k", TTL).await.unwrap_err();
    let Error::Engine { cause, .. } = &error else { panic!("{error}") };
    assert_eq!((cause.kind(), cause.effect()), (ErrorKind::Busy, Effect::NotApplied), "{error}");
    assert!(error.is_retryable());
    assert!(
        error.to_string().contains(" s more, until every lease is over that it may have forgotten"),
        "{error}"
    );
    // Whoever connects once they have grown old enough finds them so.
    three.servers.iter().for_each(|server| server.move_clock(120));
    assert!(three.manager().await.try_lock("k", TTL).await.unwrap().is_some());
    // A shorter longest TTL, a shorter wait.
    let url = format!("{}?max_ttl=5s", three.url());
    let quick = LockManager::builder().call_timeout(Duration::from_secs(5)).connect(&url).await.unwrap();
    assert!(quick.try_lock("quick", Duration::from_secs(4)).await.unwrap().is_some());
    let error = quick.try_lock("quick", TTL).await.unwrap_err();
    assert!(error.to_string().contains("longer than what a restarted node sits out here, 5s"), "{error}");
    assert!(!error.is_retryable());
}
