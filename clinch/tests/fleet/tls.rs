//! The same deployments with TLS everywhere: between clients and servers, and among the servers.

#![cfg(feature = "redis-tls")]

use std::sync::Arc;
use std::time::Duration;

use clinch::store::ErrorKind;
use clinch::{LockManager, LockOptions};
use clinch_testkit::deployment::{RedisCluster, SentinelDeployment};
use clinch_testkit::server::RedisServer;
use tokio::time::timeout;

use super::common::{LONG, TTL, aside, eventually, kind, subscribers, take};

/// Whether it can be shown on this server.
fn has_tls() -> bool {
    let has = RedisServer::supports_tls();
    if !has {
        eprintln!("this server was built without TLS: not shown on it");
    }
    has
}

async fn connect(url: &str, server: &RedisServer) -> LockManager {
    let builder = LockManager::builder().call_timeout(Duration::from_secs(10)).connect_timeout(LONG);
    builder.tls_root_certificates(server.ca_pem()).connect(url).await.unwrap()
}

/// Who does not know the authority is not connected: certificates are verified on the way to every server.
async fn is_verified(url: &str) {
    let error = LockManager::connect(url).await.unwrap_err();
    assert_eq!(kind(&error).0, ErrorKind::Unavailable, "{error}");
    let plain = url.replace("rediss+", "redis+");
    assert!(LockManager::connect(&plain).await.is_err(), "there is no way around TLS");
}

/// Waits for a lock for which nothing but a push can wake it in time.
fn wait_for(waiter: &LockManager, key: &'static str) -> tokio::task::JoinHandle<()> {
    let waiter = waiter.clone();
    tokio::spawn(async move {
        let options = LockOptions::new(TTL).wait(LONG * 2).retry_interval(LONG * 2);
        drop(waiter.lock(key, options).await.unwrap());
    })
}

/// Sentinels and the primary that they name are reached by TLS, before and after a failover; pushes too.
///
/// Proves: O6
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sentinels_and_their_primary_are_reached_by_tls() {
    if !has_tls() {
        return;
    }
    let deployment = Arc::new(tokio::task::spawn_blocking(SentinelDeployment::start_over_tls).await.unwrap());
    let (url, any) = (deployment.url(), &deployment.servers()[0]);
    assert!(url.starts_with("rediss+sentinel://"), "{url}");
    is_verified(&url).await;
    let (holder, waiter) = (connect(&url, any).await, connect(&url, any).await);
    let guard = take(&holder, "k").await;
    let waiting = wait_for(&waiter, "k");
    eventually("it is copied", || deployment.servers().iter().all(|one| one.exists("clinch:lock:k"))).await;
    let now = aside(&deployment, SentinelDeployment::fail_over).await;
    let primary = &deployment.servers()[now];
    let channel = "clinch:wake:{clinch:lock:k}";
    eventually("the waiter listens to the new primary", || subscribers(primary, "NUMSUB", channel) == 1)
        .await;
    assert_eq!(primary.get("clinch:lock:k").as_deref(), Some(guard.token().as_str()));
    assert!(timeout(LONG, guard.release()).await.unwrap().unwrap(), "still this token's, on the new primary");
    timeout(LONG, waiting).await.expect("woken by push").unwrap();
}

/// Every server of a Cluster is reached by TLS, those too that are only heard of by a redirect; pushes too.
///
/// Proves: O6
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_servers_of_a_cluster_are_reached_by_tls() {
    if !has_tls() {
        return;
    }
    let start = || RedisCluster::start_from(&RedisServer::builder().tls_between(true), 3, 0);
    let cluster = Arc::new(tokio::task::spawn_blocking(start).await.unwrap());
    let (url, any) = (cluster.url(), &cluster.nodes()[0]);
    assert!(url.starts_with("rediss+cluster://"), "{url}");
    is_verified(&url).await;
    let (holder, waiter) = (connect(&url, any).await, connect(&url, any).await);
    let mut guards = Vec::new();
    for i in 0..12 {
        guards.push(take(&holder, &format!("k{i}")).await);
    }
    let keys = |node: &RedisServer| node.keys("clinch:lock:*").len();
    assert!(cluster.nodes().iter().all(|node| keys(node) > 0), "all servers have some of them");
    let guard = guards.remove(0);
    let waiting = wait_for(&waiter, "k0");
    let slot = cluster.slot("clinch:lock:k0");
    let to = (cluster.owner(slot) + 1) % 3;
    aside(&cluster, move |cluster| cluster.move_slot(slot, to)).await;
    let how = if any.version().has_redis(7, 0) { "SHARDNUMSUB" } else { "NUMSUB" };
    let channel = "clinch:wake:{clinch:lock:k0}";
    eventually("the waiter listens at the new owner", || {
        subscribers(&cluster.nodes()[to], how, channel) == 1
    })
    .await;
    assert!(guard.release().await.unwrap(), "redirected, and still this token's");
    timeout(LONG, waiting).await.expect("woken by push").unwrap();
    for guard in guards {
        assert!(guard.release().await.unwrap());
    }
}

/// The servers of a quorum are reached by TLS.
///
/// Proves: B10
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_servers_of_a_quorum_are_reached_by_tls() {
    if !has_tls() {
        return;
    }
    let servers = [(); 3].map(|()| RedisServer::builder().tls_between(true).movable_clock(true).start());
    // By their own clocks they have run for two minutes.
    servers.iter().for_each(|server| server.move_clock(120));
    let places = servers.each_ref().map(|server| server.peer_addr().to_string()).join(",");
    let url = format!("rediss+quorum://{places}");
    let manager = connect(&url, &servers[0]).await;
    let guard = manager.lock("k", LockOptions::new(Duration::from_secs(60)).wait(LONG)).await.unwrap();
    let holding = servers.iter().filter(|server| server.exists("clinch:lock:k")).count();
    assert!(holding >= 2, "{holding} of 3");
    assert!(guard.release().await.unwrap());
    is_verified(&url).await;
}
