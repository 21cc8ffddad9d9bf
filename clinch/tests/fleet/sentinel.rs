//! A primary under Sentinels: found, followed over failovers, and what that cannot save.

use std::sync::Arc;
use std::time::Duration;

use clinch::store::{ErrorKind, Renewal, Store, Verdict};
use clinch::stores::redis::RedisStore;
use clinch::{LockManager, LockOptions, Loss};
use clinch_testkit::deployment::SentinelDeployment;
use clinch_testkit::server::{RedisServer, Reply};
use tokio::time::timeout;

use super::common::{
    LONG, TTL, acquire, aside, connections, eventually, granted, kind, lock, options, subscribers, take,
};

async fn start() -> Arc<SentinelDeployment> {
    Arc::new(tokio::task::spawn_blocking(SentinelDeployment::start).await.unwrap())
}

async fn connect(deployment: &SentinelDeployment) -> LockManager {
    LockManager::builder().call_timeout(options().call_timeout).connect(&deployment.url()).await.unwrap()
}

/// Waits until all servers have a key.
async fn copied(deployment: &SentinelDeployment, key: &str) {
    eventually("it is copied", || deployment.servers().iter().all(|one| one.exists(key))).await;
}

/// A lease lives on over a failover, under the same token; whoever waits is woken by push again, and a force-release reaches
/// its holder again.
///
/// Proves: O6
/// Fault: 28
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failover_is_followed_and_waiters_wake_again() {
    let deployment = start().await;
    let (holder, waiter) = (connect(&deployment).await, connect(&deployment).await);
    let guard = take(&holder, "k").await;
    let revoked = holder.lock("revoked", LockOptions::new(TTL)).await.unwrap();
    let token = guard.token().clone();
    let waiting = tokio::spawn(async move {
        // Nothing but a push wakes it in time.
        let options = LockOptions::new(TTL).wait(LONG * 2).retry_interval(LONG * 2);
        (waiter.lock("k", options).await.unwrap(), waiter)
    });
    let channel = "clinch:wake:{clinch:lock:k}";
    eventually("the waiter listens", || subscribers(&deployment.servers()[0], "NUMSUB", channel) == 1).await;

    copied(&deployment, "clinch:lock:k").await;
    let now = aside(&deployment, SentinelDeployment::fail_over).await;
    let primary = &deployment.servers()[now];
    assert_eq!(primary.get("clinch:lock:k").as_deref(), Some(token.as_str()), "it was copied in time");
    eventually("the waiter listens to the new primary", || subscribers(primary, "NUMSUB", channel) == 1)
        .await;
    eventually("both hear of force-releases there", || subscribers(primary, "NUMSUB", "clinch:revoked") == 2)
        .await;
    assert!(guard.is_valid());
    let released = timeout(LONG, guard.release()).await.unwrap();
    assert!(released.unwrap(), "still this token's, on the new primary");
    let (woken, waiter) = timeout(LONG, waiting).await.expect("woken by push").unwrap();
    assert_eq!(primary.get("clinch:lock:k").as_deref(), Some(woken.token().as_str()));

    let seen = waiter.inspect("revoked").await.unwrap().remove(0);
    let looks = || primary.command_calls().get("evalsha").copied();
    let before = looks();
    let lost = tokio::spawn(async move { (revoked.lost().await, revoked) });
    // It may have been ended in the gap, so it is looked up once; after that only the news can tell.
    eventually("the lease that lived through the gap is looked up", || looks() != before).await;
    assert!(waiter.force_release(&seen).await.unwrap());
    let (loss, revoked) = timeout(LONG, lost).await.unwrap().unwrap();
    assert_eq!(loss, Loss::Revoked);
    drop((woken, revoked, waiter, holder));
    eventually("no connection is left behind", || {
        deployment.servers().iter().all(|one| connections(one) == 0)
    })
    .await;
}

/// The primary dies; the lease is renewed at the next one, with the same token.
///
/// Fault: 28
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_primary_that_dies_or_falls_silent_is_looked_for_again() {
    let deployment = start().await;
    let manager = LockManager::builder().call_timeout(Duration::from_secs(2));
    let manager = manager.connect(&deployment.url()).await.unwrap();
    let ttl = Duration::from_secs(20);
    let guard =
        manager.lock("k", LockOptions::new(ttl).renew_every(Duration::from_millis(200))).await.unwrap();
    for how in ["stopped", "killed"] {
        let before = aside(&deployment, SentinelDeployment::primary).await;
        copied(&deployment, "clinch:lock:k").await;
        let now = aside(&deployment, move |deployment| {
            match how {
                "stopped" => deployment.servers()[before].stop(),
                _ => deployment.servers()[before].kill(),
            }
            deployment.wait_for_other_than(before)
        });
        let primary = &deployment.servers()[now.await];
        // A renewal: what is left is more than it was.
        let left = primary.pttl("clinch:lock:k");
        eventually("renewed at the new primary", || primary.pttl("clinch:lock:k") > left).await;
        assert!(guard.is_valid(), "{how}");
        assert_eq!(primary.get("clinch:lock:k").as_deref(), Some(guard.token().as_str()));
        aside(&deployment, move |deployment| {
            match how {
                "stopped" => deployment.servers()[before].cont(),
                _ => deployment.servers()[before].restart(),
            }
            deployment.wait_until_healthy();
        })
        .await;
    }
    assert!(guard.release().await.unwrap());
}

/// What a primary granted and had not copied is forgotten by the next one: another gets the lock, and its first holder
/// learns that when it renews. The fence tells the two apart.
///
/// Fault: 20
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failover_before_replication_forgets_the_lock() {
    let deployment = start().await;
    let before = aside(&deployment, SentinelDeployment::primary).await;
    let store = RedisStore::connect(&deployment.url(), &options()).await.unwrap();
    deployment.stop_copying(before);
    let first = lock("k");
    granted(store.acquire(&first).await);
    deployment.servers()[before].kill();
    aside(&deployment, move |deployment| deployment.wait_for_other_than(before)).await;
    let second = lock("k");
    assert!(matches!(acquire(&store, &second).await, Verdict::Granted(_)), "two hold it now");
    assert!(matches!(store.renew(&first).await.unwrap(), Renewal::Lost), "and the first one learns it");
    assert!(store.release(&second).await.unwrap().held);
}

/// A primary that the Sentinels cannot see goes on granting to those who still reach it, while another grants too: both hold
/// for a moment. When the first one is back under its Sentinels, its holder learns the loss at the next renewal.
///
/// Fault: 19
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_split_brain_lets_two_hold_until_the_next_renewal() {
    let deployment = start().await;
    let before = aside(&deployment, SentinelDeployment::primary).await;
    let left_behind = RedisStore::connect(&deployment.url(), &options()).await.unwrap();
    granted(left_behind.acquire(&lock("warm-up")).await);
    deployment.stop_copying(before);
    deployment.hide(before);
    aside(&deployment, move |deployment| deployment.wait_for_other_than(before)).await;
    // Whichever Sentinel the newcomer asks.
    let old = deployment.servers()[before].peer_port().to_string();
    let names_another = |sentinel: &RedisServer| {
        let named = sentinel.try_command(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", "mymaster"]);
        matches!(named, Ok(Reply::Array(words)) if words.get(1).and_then(Reply::text).is_some_and(|port| port != old))
    };
    eventually("all Sentinels name another", || deployment.sentinels().iter().all(names_another)).await;
    let newcomer = RedisStore::connect(&deployment.url(), &options()).await.unwrap();
    let (first, second) = (lock("k"), lock("k"));
    granted(left_behind.acquire(&first).await);
    granted(newcomer.acquire(&second).await);
    assert!(
        matches!(left_behind.renew(&first).await.unwrap(), Renewal::Extended { .. }),
        "both hold, and both renew"
    );
    assert!(matches!(newcomer.renew(&second).await.unwrap(), Renewal::Extended { .. }));

    deployment.copy_again(before);
    deployment.show(before);
    aside(&deployment, SentinelDeployment::wait_until_healthy).await;
    let mut renewal = left_behind.renew(&first).await;
    for _ in 0..1000 {
        if renewal.is_ok() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
        renewal = left_behind.renew(&first).await;
    }
    assert!(matches!(renewal.unwrap(), Renewal::Lost), "seen at the next renewal");
    assert!(
        newcomer.release(&second).await.unwrap().held,
        "the one that the majority knows was never touched"
    );
}

/// Sentinels and data have credentials of their own, and Sentinels that the address does not name are learnt.
///
/// Proves: O6
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sentinels_have_their_own_password_and_are_learnt() {
    let deployment =
        tokio::task::spawn_blocking(|| SentinelDeployment::start_with(Some("data:1"), Some("watch/2")));
    let deployment = Arc::new(deployment.await.unwrap());
    let known = [deployment.sentinels()[0].addr().to_string()];
    let url = deployment.url_by(&known);
    let manager = LockManager::builder().call_timeout(options().call_timeout).connect(&url).await.unwrap();
    let diagnosis = manager.diagnose(LONG).await;
    let fact = |name: &str| {
        diagnosis.facts.iter().find(|fact| fact.name == name).and_then(|fact| fact.value.clone())
    };
    assert_eq!(fact("sentinels").as_deref(), Some("3"));
    assert_eq!(fact("sentinel_quorum").as_deref(), Some("2"));
    assert_eq!(fact("replicas").as_deref(), Some("2"));
    let guard = take(&manager, "k").await;
    copied(&deployment, "clinch:lock:k").await;

    deployment.sentinels()[0].kill();
    aside(&deployment, SentinelDeployment::fail_over).await;
    let release = timeout(LONG, guard.release()).await.unwrap();
    assert!(release.unwrap(), "found by the Sentinels that were learnt");

    let known = [deployment.sentinels()[1].addr().to_string()];
    let wrong = deployment.url_by(&known).replace("watch/2", "wrong");
    let error = LockManager::connect(&wrong).await.unwrap_err();
    assert_eq!(kind(&error).0, ErrorKind::Auth, "{error}");
    assert!(!error.to_string().contains("wrong") && error.to_string().contains("Sentinel"), "{error}");
    let unknown = deployment.url_by(&known).replace("mymaster", "nobody");
    let error = LockManager::connect(&unknown).await.unwrap_err();
    assert!(error.to_string().contains("knows no primary `nobody`"), "{error}");
}
