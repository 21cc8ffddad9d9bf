//! Grants that replicas must confirm.

use std::sync::Arc;

use clinch::lease::{Attempt, Claim};
use clinch::store::{Effect, ErrorKind, Store, StoreError, Verdict};
use clinch::stores::redis::{RedisClusterStore, RedisStore};
use clinch::{LockManager, LockOptions};
use clinch_testkit::deployment::{RedisCluster, SentinelDeployment};
use clinch_testkit::proxy::{Action, FaultProxy, Rule};
use clinch_testkit::server::RedisServer;
use futures_util::future::join_all;

use super::common::{LONG, TTL, acquire, aside, eventually, granted, key, lock, options, release, token};

fn too_few(answer: Result<Verdict, StoreError>) {
    let error = answer.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Refused, Effect::NotApplied), "{error}");
    assert!(error.is_retryable() && error.message().contains("too few replicas confirmed it"), "{error}");
}

/// What no replica has confirmed is given back and reported: so a failover does not forget it, because nobody holds it.
///
/// Fault: 20
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_that_no_replica_confirmed_is_given_back() {
    let deployment = Arc::new(tokio::task::spawn_blocking(SentinelDeployment::start).await.unwrap());
    let within = |limit: &str| format!("{}?replicas=1&replicas_timeout={limit}", deployment.url());
    let store = RedisStore::connect(&within("9s"), &options()).await.unwrap();
    let strict = RedisStore::connect(&within("1s"), &options()).await.unwrap();
    let primary = aside(&deployment, SentinelDeployment::primary).await;
    let (kept, lost) = (lock("kept"), lock("lost"));
    granted(store.acquire(&kept).await);
    deployment.stop_copying(primary);
    too_few(strict.acquire(&lost).await);
    assert!(!deployment.servers()[primary].exists("clinch:lock:lost"), "it was given back");
    deployment.servers()[primary].kill();
    let now = aside(&deployment, move |deployment| deployment.wait_for_other_than(primary)).await;
    let primary = &deployment.servers()[now];
    assert_eq!(
        primary.get("clinch:lock:kept").as_deref(),
        Some(kept.token().as_str()),
        "what was granted is there"
    );
    // The other replica follows the new primary and confirms what that grants.
    assert!(matches!(acquire(&store, &lost).await, Verdict::Granted(_)));
    assert!(release(&store, &kept).await);
}

/// A replica that is connected and does not keep up confirms nothing, also of what was granted before over another connection.
/// A call that waits for replicas keeps nobody else waiting, and a limit that no call could keep is refused.
///
/// Fault: 20
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_does_not_keep_up_confirms_nothing() {
    let primary = RedisServer::start();
    let replica = RedisServer::builder().replica_of(&primary).start();
    let url = |rest: &str| format!("{}?{rest}", primary.url());
    // What has to be confirmed has all the time of a busy machine; what never will be, only a moment.
    let patient = RedisStore::connect(&url("replicas=1&replicas_timeout=9s"), &options()).await.unwrap();
    let strict = RedisStore::connect(&url("replicas=1&replicas_timeout=300ms"), &options()).await.unwrap();
    let plain = RedisStore::connect(&primary.url(), &options()).await.unwrap();
    let many: Vec<_> = (0..40).map(|i| Arc::new(lock(&format!("many{i}")))).collect();
    for verdict in patient.acquire_each(&many).await {
        granted(verdict);
    }
    primary.script_flush();
    granted(patient.acquire(&lock("without-scripts")).await);
    let before = lock("before");
    granted(plain.acquire(&before).await);
    granted(patient.acquire(&before).await);

    replica.stop();
    let attempt = lock("k");
    granted(plain.acquire(&attempt).await);
    too_few(strict.acquire(&attempt).await);
    assert!(!primary.exists("clinch:lock:k"));
    let waiting = join_all((0..20).map(|_| strict.ping()));
    let (answer, pings) = tokio::join!(async { strict.acquire(&lock("k")).await }, waiting);
    too_few(answer);
    assert!(pings.iter().all(Result::is_ok));
    replica.cont();
    eventually("in step", || {
        primary.info("replication").get("slave0").is_some_and(|line| line.contains("online"))
    })
    .await;
    let manager = LockManager::connect(&url("replicas=1&replicas_timeout=900ms")).await.unwrap();
    let guard = manager.lock("k", LockOptions::new(TTL).wait(LONG)).await.unwrap();
    eventually("copied", || replica.get("clinch:lock:k").as_deref() == Some(guard.token().as_str())).await;
    let error = LockManager::connect(&url("replicas=1&replicas_timeout=1s")).await.unwrap_err();
    assert!(error.to_string().contains("replicas_timeout"), "{error}");
}

/// A user who may not wait for replicas, or a primary that ends all waiting because it is demoted: the grant is there all the
/// same, and is given back.
///
/// Fault: 20
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_that_fails_leaves_nothing_behind() {
    let primary = RedisServer::start();
    primary.command(&["ACL", "SETUSER", "app", "on", ">secret", "~*", "&*", "+@all", "-wait"]);
    let url = format!("redis://app:secret@{}?replicas=1&replicas_timeout=300ms", primary.addr());
    let store = RedisStore::connect(&url, &options()).await.unwrap();
    for name in ["k", "again"] {
        let error = store.acquire(&lock(name)).await.unwrap_err();
        assert_eq!((error.kind(), error.effect()), (ErrorKind::Refused, Effect::NotApplied), "{error}");
        assert!(error.message().contains("wait"), "it says why: {error}");
        assert!(!primary.exists(&format!("clinch:lock:{name}")), "it was given back");
    }
}

/// What is being given back cannot be asked for again: the release might arrive after the next grant, and take that away.
///
/// Fault: 20
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_being_given_back_is_not_granted_again() {
    let primary = RedisServer::start();
    let proxy = FaultProxy::start(primary.addr()).await;
    let url = format!("{}?replicas=1&replicas_timeout=100ms", proxy.url());
    let store = Arc::new(RedisStore::connect(&url, &options()).await.unwrap());
    too_few(store.acquire(&lock("scripts-are-known")).await);
    let attempt = Arc::new(lock("k"));
    proxy.add(Rule::new(Action::HoldRequest).named("EVALSHA").nth(2));
    let giving_back = tokio::spawn({
        let (store, attempt) = (store.clone(), attempt.clone());
        async move { store.acquire(&attempt).await }
    });
    proxy.wait_until_held().await;
    // Its caller goes away in the middle.
    giving_back.abort();
    assert!(giving_back.await.unwrap_err().is_cancelled());
    assert!(primary.exists("clinch:lock:k") && attempt.route().is_taking_back());
    let error = store.acquire(&attempt).await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Busy, Effect::Unknown), "{error}");
    proxy.release_held();
    eventually("it arrives", || !primary.exists("clinch:lock:k")).await;
}

/// The same on a Cluster, in one slot and in several.
///
/// Fault: 20
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_of_a_cluster_confirm_too() {
    let cluster = Arc::new(tokio::task::spawn_blocking(|| RedisCluster::start_with(3, 1)).await.unwrap());
    let within = |limit: &str| format!("{}?replicas=1&replicas_timeout={limit}", cluster.url());
    let store = RedisClusterStore::connect(&within("9s"), &options()).await.unwrap();
    let strict = RedisClusterStore::connect(&within("2s"), &options()).await.unwrap();
    let several = || {
        let claims = (0..8).map(|i| Claim::exclusive(key(&format!("s{i}")), TTL)).collect();
        Attempt::new(token(), claims).unwrap()
    };
    let (one, all) = (lock("k"), several());
    granted(store.acquire(&one).await);
    granted(store.acquire(&all).await);
    assert!(store.release(&one).await.unwrap().held && store.release(&all).await.unwrap().held);
    cluster.nodes()[3..].iter().for_each(RedisServer::kill);
    too_few(strict.acquire(&one).await);
    too_few(strict.acquire(&several()).await);
    let left: usize = cluster.nodes()[..3].iter().map(|node| node.keys("clinch:lock:*").len()).sum();
    assert_eq!(left, 0, "all was given back");
}
