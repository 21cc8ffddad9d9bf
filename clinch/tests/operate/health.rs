//! Up or down, from a real round trip, within a limit that holds.

use std::sync::Arc;
use std::time::Duration;

use clinch::lease::{Attempt, ClaimKey, Holder, Token};
use clinch::store::{
    Capabilities, Cursor, Page, Release, Renewal, Revocations, Store, StoreFuture, Verdict, Wakeups,
};
use clinch::stores::memory::MemoryStore;
use clinch::{Health, LockManager};
use clinch_testkit::proxy::FaultProxy;
use clinch_testkit::server::{Flavor, RedisServer};
use tokio::time::Instant;

const LIMIT: Duration = Duration::from_secs(3);
/// How long an answer may take that has that limit, on a machine that has other things to do.
const AT_MOST: Duration = Duration::from_secs(15);

async fn within(locks: &LockManager) -> Health {
    let started = Instant::now();
    let health = locks.health(LIMIT).await;
    assert!(started.elapsed() < AT_MOST, "{:?}: {health:?}", started.elapsed());
    health
}

/// Proves: O4
#[tokio::test]
async fn an_engine_that_answers_is_up() {
    let health = within(&LockManager::memory()).await;
    assert!(
        health.up && health.is_ready() && health.engine == "memory" && health.error.is_none(),
        "{health:?}"
    );

    let server = RedisServer::start();
    let locks = LockManager::connect(&server.url()).await.unwrap();
    let health = within(&locks).await;
    assert!(health.is_ready() && health.engine == "redis", "{health:?}");
    let version = server.version();
    let name = if version.flavor == Flavor::Valkey { "valkey" } else { "redis" };
    assert_eq!(health.server.as_deref(), Some(name));
    let told = health.version.clone().unwrap();
    assert!(told.starts_with(&format!("{}.{}.", version.major, version.minor)), "{told} {version}");
    assert!(health.latency.unwrap() > Duration::ZERO);
    #[cfg(feature = "submit")]
    {
        let json = serde_json::to_value(&health).unwrap();
        assert_eq!((&json["up"], &json["engine"]), (&true.into(), &"redis".into()));
        assert!(json["latency_ms"].as_f64().unwrap() > 0.0 && json["error"].is_null(), "{json}");
    }
}

/// Proves: O4
#[tokio::test]
async fn an_engine_that_is_gone_is_down() {
    let server = RedisServer::builder().password("hunter2").start();
    let locks = LockManager::connect(&server.url()).await.unwrap();
    server.kill();
    let health = within(&locks).await;
    assert!(!health.up && !health.is_ready() && health.latency.is_none(), "{health:?}");
    let error = health.error.unwrap();
    assert!(error.contains("127.0.0.1") && !error.contains("hunter2"), "{error}");
    assert_eq!(health.engine, "redis");

    server.restart();
    let back = async {
        while !locks.health(LIMIT).await.is_ready() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), back).await.unwrap();
}

/// Whatever hangs (the network, the server), the limit holds, and the manager's own time limits do not matter.
///
/// Proves: O4
#[tokio::test]
async fn an_engine_that_hangs_is_down_within_the_limit() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.addr()).await;
    let builder = LockManager::builder().call_timeout(Duration::from_secs(60));
    let locks = builder.connect(&proxy.url()).await.unwrap();
    proxy.stall();
    let health = within(&locks).await;
    assert_eq!((health.up, health.error.as_deref()), (false, Some("no answer within 3s")));
    proxy.resume();
    server.stop();
    let health = within(&locks).await;
    assert!(!health.up, "{health:?}");
    server.cont();
    assert!(locks.health(Duration::from_secs(20)).await.up);
}

/// Proves: O4
#[tokio::test]
async fn credentials_that_no_longer_count_are_told_without_them() {
    let server = RedisServer::builder().acl_user("app", "on >hunter2 ~* &* +@all").start();
    let locks = LockManager::connect(&server.url_with(0, Some("app"), Some("hunter2"))).await.unwrap();
    server.command(&["ACL", "SETUSER", "app", "resetpass", ">changed"]);
    // Connections that are open stay what they are: a new one is needed.
    server.command(&["CLIENT", "KILL", "USER", "app"]);
    let health = within(&locks).await;
    let error = health.error.clone().unwrap();
    assert!(!health.up && error.contains("refused the credentials") && !error.contains("hunter2"), "{error}");
}

/// A primary that has become a replica answers, and yet serves nobody.
///
/// Proves: O4
#[tokio::test]
async fn a_replica_is_up_and_degraded() {
    let (primary, server) = (RedisServer::start(), RedisServer::start());
    let locks = LockManager::connect(&server.url()).await.unwrap();
    server.command(&["REPLICAOF", "127.0.0.1", &primary.port().to_string()]);
    server.wait_for_primary();
    let health = within(&locks).await;
    assert!(health.up && !health.is_ready(), "{health:?}");
    assert!(health.degraded.unwrap().contains("read-only replica"));
}

/// A server that is there and cannot serve says so: it is loading its data, say. Here it has lost its disk.
#[tokio::test]
async fn a_server_that_refuses_is_down() {
    let server = RedisServer::builder().arg("save", "1 1").start();
    let locks = LockManager::connect(&server.url()).await.unwrap();
    server.config_set("dir", "/proc");
    let _ = server.try_command(&["SET", "a", "b"]);
    let _ = server.try_command(&["BGSAVE"]);
    let refused = async {
        loop {
            let health = locks.health(LIMIT).await;
            if !health.up {
                return health;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let health = tokio::time::timeout(Duration::from_secs(20), refused).await.unwrap();
    assert!(health.error.clone().unwrap().contains("MISCONF"), "{health:?}");
}

/// A user with no more rights than it needs can be asked too.
#[tokio::test]
async fn a_user_with_few_rights_is_enough() {
    let server =
        RedisServer::builder().acl_user("app", "on >hunter2 ~clinch:* resetchannels &clinch:* +ping").start();
    let locks = LockManager::connect(&server.url_with(0, Some("app"), Some("hunter2"))).await.unwrap();
    let health = within(&locks).await;
    assert!(health.is_ready() && health.version.is_some(), "{health:?}");
}

/// After failures the manager does not ask for a moment, although the engine is back: that is told.
#[tokio::test]
async fn attempts_that_are_not_asked_yet_are_told() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.addr()).await;
    let locks =
        LockManager::builder().call_timeout(Duration::from_secs(1)).connect(&proxy.url()).await.unwrap();
    proxy.stall();
    let failed = async {
        loop {
            let error = locks.try_lock("a", Duration::from_secs(5)).await.unwrap_err().to_string();
            if error.contains("not asked") {
                return;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(20), failed).await.unwrap();
    // Pings hang, and so does not the close look of another connection.
    assert!(!locks.health(Duration::from_millis(50)).await.up);
    proxy.resume();
    let ready = async {
        while !locks.health(LIMIT).await.is_ready() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), ready).await.unwrap();
    assert!(locks.try_lock("a", Duration::from_secs(5)).await.unwrap().is_some());
}

/// A store that says nothing of itself has its ping asked; one whose ping hangs is down.
#[tokio::test(start_paused = true)]
async fn a_store_of_your_own_needs_only_a_ping() {
    #[derive(Debug)]
    struct Own(MemoryStore, Option<Duration>);

    impl Store for Own {
        fn capabilities(&self) -> Capabilities {
            Capabilities::default()
        }
        fn acquire<'a>(&'a self, attempt: &'a Attempt) -> StoreFuture<'a, Verdict> {
            self.0.acquire(attempt)
        }
        fn renew<'a>(&'a self, lease: &'a Attempt) -> StoreFuture<'a, Renewal> {
            self.0.renew(lease)
        }
        fn release<'a>(&'a self, lease: &'a Attempt) -> StoreFuture<'a, Release> {
            self.0.release(lease)
        }
        fn wakeups(&self, on: &ClaimKey, queued: Option<&Token>) -> Wakeups {
            self.0.wakeups(on, queued)
        }
        fn revocations(&self) -> Revocations {
            self.0.revocations()
        }
        fn inspect<'a>(&'a self, on: &'a ClaimKey) -> StoreFuture<'a, Vec<Holder>> {
            self.0.inspect(on)
        }
        fn list(&self, cursor: Cursor) -> StoreFuture<'_, Page> {
            self.0.list(cursor)
        }
        fn revoke<'a>(&'a self, on: &'a ClaimKey, token: &'a Token) -> StoreFuture<'a, bool> {
            self.0.revoke(on, token)
        }
        fn ping(&self) -> StoreFuture<'_, Duration> {
            Box::pin(async {
                match self.1 {
                    Some(time) => Ok(time),
                    None => std::future::pending().await,
                }
            })
        }
    }

    let on = |ping| {
        let store = Arc::new(Own(MemoryStore::new(), ping));
        LockManager::builder().store(store).build().unwrap()
    };
    let took = Duration::from_millis(3);
    let health = on(Some(took)).health(LIMIT).await;
    assert_eq!((health.up, health.engine, health.latency), (true, "other", Some(took)));
    let started = Instant::now();
    let health = on(None).health(LIMIT).await;
    assert_eq!((health.up, health.error.as_deref()), (false, Some("no answer within 3s")));
    assert_eq!(started.elapsed(), LIMIT);

    let diagnosis = on(Some(took)).diagnose(LIMIT).await;
    assert_eq!(diagnosis.findings, []);
    assert_eq!(diagnosis.value("steps"), Some("lock, renew, inspect, release"));
    let diagnosis = on(None).diagnose(LIMIT).await;
    assert_eq!(diagnosis.findings[0].name, "unreachable");
}
