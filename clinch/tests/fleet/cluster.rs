//! A Cluster: redirects are followed, slots move under load, shards fail over, and one that is ill delays no other.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use clinch::lease::{Attempt, Claim, ClaimKey, Fence, Patience, Record};
use clinch::store::{Cursor, Effect, ErrorKind, Renewal, Store, Verdict};
use clinch::stores::redis::RedisClusterStore;
use clinch::{LockManager, LockOptions, Loss};
use clinch_testkit::deployment::RedisCluster;
use clinch_testkit::server::{RedisServer, Reply};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use super::common::{
    LONG, TTL, aside, connections, denied, eventually, granted, key, lock, options, subscribers, take, token,
};

async fn start(primaries: usize, replicas: usize) -> Arc<RedisCluster> {
    let cluster = tokio::task::spawn_blocking(move || RedisCluster::start_with(primaries, replicas));
    Arc::new(cluster.await.unwrap())
}

async fn store(cluster: &RedisCluster) -> RedisClusterStore {
    RedisClusterStore::connect(&cluster.url(), &options()).await.unwrap()
}

fn engine_key(name: &str) -> String {
    format!("clinch:lock:{name}")
}

/// How often a server answered with this error.
fn errors(server: &RedisServer, code: &str) -> u64 {
    let stats = server.info("errorstats");
    let count =
        stats.get(&format!("errorstat_{code}")).and_then(|stat| stat.strip_prefix("count=")?.parse().ok());
    count.unwrap_or(0)
}

fn keys_left(cluster: &RedisCluster) -> usize {
    let left = |node: &RedisServer| match node.try_command(&["KEYS", "clinch:*"]) {
        Ok(Reply::Array(keys)) => keys.len(),
        _ => usize::MAX / 64,
    };
    cluster.nodes().iter().filter(|node| node.is_running()).map(left).sum()
}

/// A slot that has moved, one that is moving, one that is moving and of which a script needs more than is there, and one that
/// nobody serves: each step is followed or asked again, with its token, within its limit.
///
/// Proves: O6
/// Fault: 31
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redirects_are_followed_with_the_same_token() {
    let cluster = start(3, 0).await;
    let store = store(&cluster).await;

    // MOVED: the store's map is old.
    let moved = lock("moved");
    let slot = cluster.slot(&engine_key("moved"));
    let to = (cluster.owner(slot) + 1) % 3;
    aside(&cluster, move |cluster| cluster.move_slot(slot, to)).await;
    granted(store.acquire(&moved).await);
    assert_eq!(cluster.nodes()[to].get(&engine_key("moved")).as_deref(), Some(moved.token().as_str()));
    assert!(store.release(&moved).await.unwrap().held);

    // ASK: the key is not where the slot is, and may be made where the slot goes. The server there knows no scripts.
    let asked = lock("asked");
    let slot = cluster.slot(&engine_key("asked"));
    let to = (cluster.owner(slot) + 1) % 3;
    let from = aside(&cluster, move |cluster| cluster.begin_move(slot, to)).await;
    cluster.nodes()[to].script_flush();
    granted(store.acquire(&asked).await);
    let count =
        |node: usize| cluster.nodes()[node].command(&["CLUSTER", "COUNTKEYSINSLOT", &slot.to_string()]).int();
    assert_eq!((count(from), count(to)), (Some(0), Some(1)));
    granted(store.acquire(&asked).await);
    assert!(matches!(store.renew(&asked).await.unwrap(), Renewal::Extended { .. }));
    denied(store.acquire(&lock("asked")).await);
    let released = store.release(&asked).await.unwrap();
    assert!(released.held && released.conclusive, "{released:?}");
    assert!(errors(&cluster.nodes()[from], "ASK") > 0, "the fault did not happen");

    // TRYAGAIN: a fenced lock has several keys, and not all are on one side.
    let fenced = Attempt::one(token(), Claim::exclusive(key("asked"), TTL).fenced(Fence::new(0)));
    let again = async {
        let refused =
            || errors(&cluster.nodes()[to], "TRYAGAIN") + errors(&cluster.nodes()[from], "TRYAGAIN") > 2;
        eventually("it is told to try again", refused).await;
        aside(&cluster, move |cluster| cluster.end_move(slot, from, to)).await;
    };
    let (answer, ()) = tokio::join!(store.acquire(&fenced), again);
    assert_eq!(granted(answer).fences.len(), 1);
    assert!(store.release(&fenced).await.unwrap().held);

    // CLUSTERDOWN: nobody serves the slot for a while.
    let down = lock("down");
    let slot = cluster.slot(&engine_key("down")).to_string();
    let owner = cluster.owner(cluster.slot(&engine_key("down")));
    let ask = |command: &[&str]| {
        let reply = cluster.nodes()[owner].command(command);
        assert!(!reply.is_error(), "{reply:?}");
    };
    ask(&["CLUSTER", "DELSLOTS", &slot]);
    let mut hasty = options();
    hasty.call_timeout = Duration::from_secs(2);
    let hasty = RedisClusterStore::connect(&cluster.url(), &hasty).await.unwrap();
    let error = hasty.acquire(&lock("down")).await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Busy, Effect::NotApplied), "{error}");
    let refused = errors(&cluster.nodes()[owner], "CLUSTERDOWN");
    let again = async {
        eventually("it is refused", || errors(&cluster.nodes()[owner], "CLUSTERDOWN") > refused).await;
        ask(&["CLUSTER", "ADDSLOTS", &slot]);
    };
    let (answer, ()) = tokio::join!(store.acquire(&down), again);
    granted(answer);
    assert!(store.release(&down).await.unwrap().held);
}

/// All spaces and features, with hash tags and without, over all slots: no script ever touches two slots.
///
/// Fault: 32
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_step_ever_crosses_slots() {
    let cluster = start(3, 0).await;
    let store = store(&cluster).await;
    let n = NonZeroU32::new(2).unwrap();
    let crossed = || cluster.nodes().iter().map(|node| errors(node, "CROSSSLOT")).sum::<u64>();
    for i in 0..40 {
        for name in [format!("k{i}"), format!("{{tag{i}}}:k"), format!("a:{{tag{i}}}")] {
            let key = || key(&name);
            let soon = Instant::now() + LONG;
            let waits =
                Patience::Wait { until: soon, again_within: Duration::from_secs(1), confirm: Duration::ZERO };
            let queues = Patience::Queue { until: soon, confirm: Duration::from_secs(1) };
            let exclusive = || Claim::exclusive(key(), TTL);
            let attempts = [
                Attempt::one(token(), exclusive()),
                Attempt::one(token(), exclusive()).with_patience(waits),
                Attempt::one(token(), exclusive()).with_patience(queues),
                Attempt::one(token(), exclusive().fenced(Fence::new(0))).with_patience(waits),
                Attempt::one(token(), exclusive().fenced(Fence::new(0))).with_patience(queues),
                Attempt::one(token(), Claim::shared(key(), TTL)),
                Attempt::one(token(), Claim::permit(key(), n, TTL)),
                Attempt::one(token(), Claim::duplicate(key(), TTL)),
                // A lock with a limit, on a key of another slot and in another space of the same text.
                Attempt::new(token(), vec![exclusive().fenced(Fence::new(0)), Claim::permit(key(), n, TTL)])
                    .unwrap(),
                Attempt::new(
                    token(),
                    vec![exclusive(), Claim::shared(super::common::key(&format!("{name}2")), TTL)],
                )
                .unwrap()
                .with_patience(waits),
            ];
            for attempt in attempts.map(Arc::new) {
                granted(store.acquire(&attempt).await);
                denied_or_joined(&store, &attempt).await;
                assert!(
                    matches!(store.renew(&attempt).await.unwrap(), Renewal::Extended { .. }),
                    "{attempt:?}"
                );
                let many = [attempt.clone(), Arc::new(lock(&format!("{name}3")))];
                assert!(matches!(store.renew_each(&many).await[0], Ok(Renewal::Extended { .. })));
                assert!(matches!(
                    store.acquire_each(&many).await[..],
                    [Ok(Verdict::Granted(_)), Ok(Verdict::Granted(_))]
                ));
                assert!(store.release(&many[1]).await.unwrap().held);
                for claim in attempt.claims() {
                    assert_eq!(store.inspect(claim.on()).await.unwrap().len(), 1);
                }
                assert!(store.release(&attempt).await.unwrap().held);
            }
            let done = Attempt::one(token(), Claim::idempotent(key(), TTL));
            granted(store.acquire(&done).await);
            assert!(store.complete(&done, &Record::new("result"), None).await.unwrap().held);
            let forced = lock(&name);
            granted(store.acquire(&forced).await);
            assert!(store.revoke(&ClaimKey::lock(key()), forced.token()).await.unwrap());
        }
    }
    let mut cursor = Some(Cursor::START);
    while let Some(at) = cursor {
        cursor = store.list(at).await.unwrap().next;
    }
    assert_eq!(crossed(), 0);
    // The count counts.
    assert!(cluster.nodes()[0].command(&["MGET", "a", "b"]).is_error());
    assert_eq!(crossed(), 1);
}

/// A second one that asks is denied, or let in where there is room.
async fn denied_or_joined(store: &RedisClusterStore, like: &Attempt) {
    let second = Attempt::new(token(), like.claims().to_vec()).unwrap();
    store.acquire(&second).await.unwrap();
    store.release(&second).await.unwrap();
}

/// Whoever waits for a key is woken by push, before and after its slot has moved; and nothing is left behind.
///
/// Proves: O6, B5
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn subscriptions_move_with_their_slot() {
    let cluster = start(3, 0).await;
    let (holder, waiter) = (
        LockManager::builder().call_timeout(LONG).connect(&cluster.url()).await.unwrap(),
        LockManager::builder().call_timeout(LONG).connect(&cluster.url()).await.unwrap(),
    );
    let sharded = cluster.nodes()[0].version().has_redis(7, 0);
    let how = if sharded { "SHARDNUMSUB" } else { "NUMSUB" };
    let channel = "clinch:wake:{clinch:lock:k}";
    let slot = cluster.slot(&engine_key("k"));
    assert_eq!(cluster.slot(channel), slot, "a channel has the slot of its key");
    for round in 0..3 {
        let guard = take(&holder, "k").await;
        let waiting = tokio::spawn({
            let waiter = waiter.clone();
            async move {
                // Nothing but a push wakes it in time.
                let options = LockOptions::new(TTL).wait(LONG * 2).retry_interval(LONG * 2);
                drop(waiter.lock("k", options).await.unwrap());
            }
        });
        let listens = |owner: usize| subscribers(&cluster.nodes()[owner], how, channel) == 1;
        let owner = cluster.owner(slot);
        eventually("the waiter listens", || listens(owner)).await;
        if round > 0 {
            let to = (owner + 1) % 3;
            aside(&cluster, move |cluster| cluster.move_slot(slot, to)).await;
            eventually("the waiter listens at the new owner", || listens(to)).await;
        }
        assert!(guard.release().await.unwrap());
        timeout(LONG, waiting).await.expect("woken by push").unwrap();
    }
    drop((holder, waiter));
    eventually("no connection is left behind", || cluster.nodes().iter().all(|node| connections(node) == 0))
        .await;
}

/// A force-release reaches its holder by push, whichever server has the key, and also while servers have lost their links to each
/// other: what the Cluster's own bus is told then, it drops.
///
/// Proves: O6
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_force_release_reaches_its_holder_without_the_bus() {
    let cluster = start(3, 0).await;
    let url = cluster.url();
    let connect = || LockManager::builder().call_timeout(LONG).connect(&url);
    let (holder, other) = (connect().await.unwrap(), connect().await.unwrap());
    drop(take(&holder, "warm-up").await);
    let at = cluster.owner(cluster.slot("clinch:revoked"));
    let listens = || subscribers(&cluster.nodes()[at], "NUMSUB", "clinch:revoked") == 1;
    eventually("the holder listens for force-releases", listens).await;
    let links_end = cluster.nodes()[0].version().has_redis(7, 0);
    let listener = cluster.id(at);
    for i in 0..12 {
        let name = format!("revoked{i}");
        let guard = take(&holder, &name).await;
        let seen = other.inspect(name.as_str()).await.unwrap().remove(0);
        for node in (0..3).filter(|node| links_end && i % 2 == 1 && *node != at) {
            let node = &cluster.nodes()[node];
            // It is made anew within a tenth of a second; a server that is to end one that it has not yet does not bear that.
            let linked = || {
                let nodes = node.command(&["CLUSTER", "NODES"]).text().unwrap();
                nodes.lines().any(|line| line.starts_with(&listener) && line.contains(" connected"))
            };
            eventually("it has a link", linked).await;
            node.command(&["DEBUG", "CLUSTERLINK", "KILL", "TO", &listener]);
        }
        assert!(other.force_release(&seen).await.unwrap());
        assert_eq!(timeout(LONG, guard.lost()).await.expect("told by push"), Loss::Revoked, "{name}");
    }
}

/// A shard fails over: its leases live on under the same token, are renewed at the new primary, and waiters wake again.
///
/// Proves: O6
/// Fault: 31
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shard_that_fails_over_is_followed() {
    let cluster = start(3, 1).await;
    let url = cluster.url();
    let connect = || LockManager::builder().call_timeout(Duration::from_secs(2)).connect(&url);
    let (manager, waiter) = (connect().await.unwrap(), connect().await.unwrap());
    let slot = cluster.slot(&engine_key("k"));
    let before = cluster.owner(slot);
    let renewed = LockOptions::new(Duration::from_secs(30)).renew_every(Duration::from_millis(200));
    let guard = manager.lock("k", renewed).await.unwrap();
    let waiting = tokio::spawn(async move {
        let options = LockOptions::new(TTL).wait(LONG * 2).retry_interval(LONG * 2);
        drop(waiter.lock("k", options).await.unwrap());
    });
    let how = if cluster.nodes()[0].version().has_redis(7, 0) { "SHARDNUMSUB" } else { "NUMSUB" };
    let listens = |node: usize| subscribers(&cluster.nodes()[node], how, "clinch:wake:{clinch:lock:k}") == 1;
    eventually("the waiter listens", || listens(before)).await;
    // A replica of a Cluster answers about keys only to those who say that they read.
    let copy = &cluster.nodes()[before + 3];
    copy.command(&["READONLY"]);
    eventually("it is copied", || copy.exists(&engine_key("k"))).await;
    copy.command(&["READWRITE"]);
    let now = aside(&cluster, move |cluster| {
        cluster.nodes()[before].kill();
        cluster.wait_for_other_than(before, slot)
    })
    .await;
    let primary = &cluster.nodes()[now];
    let left = primary.pttl(&engine_key("k"));
    eventually("renewed at the new primary", || primary.pttl(&engine_key("k")) > left).await;
    assert!(guard.is_valid());
    assert_eq!(primary.get(&engine_key("k")).as_deref(), Some(guard.token().as_str()));
    eventually("the waiter listens at the new primary", || listens(now)).await;
    assert!(guard.release().await.unwrap());
    timeout(LONG, waiting).await.expect("woken by push").unwrap();
}

/// A server that falls silent costs the leases that it keeps, and no others: those are renewed on time, and new ones granted.
///
/// Proves: B3
/// Fault: 33
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sick_server_delays_no_other() {
    let cluster = start(3, 0).await;
    for node in cluster.nodes() {
        node.config_set("cluster-require-full-coverage", "no");
    }
    let manager =
        LockManager::builder().call_timeout(Duration::from_secs(1)).connect(&cluster.url()).await.unwrap();
    let options = || LockOptions::new(Duration::from_secs(6)).renew_every(Duration::from_millis(500));
    let mut guards = Vec::new();
    for i in 0..60 {
        let name = format!("k{i}");
        let owner = cluster.owner(cluster.slot(&engine_key(&name)));
        guards.push((owner, manager.lock(name, options()).await.unwrap()));
    }
    cluster.nodes()[0].stop();
    for (_, guard) in guards.iter().filter(|(owner, _)| *owner == 0) {
        timeout(LONG, guard.lost()).await.expect("what the silent server kept is lost in time");
    }
    // Taken at the same time and for as long: without renewals they would be lost too.
    let (well, others): (Vec<_>, Vec<_>) =
        guards.iter().filter(|(owner, _)| *owner != 0).partition(|(_, guard)| guard.is_valid());
    assert!(
        others.is_empty() && well.len() > 20,
        "{} of {} are lost",
        others.len(),
        well.len() + others.len()
    );
    let mut granted = 0;
    for i in 0..30 {
        let name = format!("new{i}");
        let slot = clinch_slot(&cluster, &name);
        if slot != 0 {
            drop(manager.lock(name, options()).await.unwrap());
            granted += 1;
        }
    }
    assert!(granted > 5);
    cluster.nodes()[0].cont();
}

/// Which server a key is at, asked of one that answers.
fn clinch_slot(cluster: &RedisCluster, name: &str) -> usize {
    let slot = cluster.nodes()[1].command(&["CLUSTER", "KEYSLOT", &engine_key(name)]).int().unwrap();
    // As it was laid out at the start: nothing has moved.
    usize::try_from(slot).unwrap() * 3 / 16384
}

/// Slots move to and fro while many take and give back locks in them: nobody is let in beside another, every call is answered,
/// and nothing stays behind.
///
/// Fault: 31
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn resharding_under_load_keeps_every_promise() {
    const KEYS: usize = 4;
    let cluster = start(3, 0).await;
    let slots: Vec<_> = (0..KEYS).map(|i| cluster.slot(&engine_key(&format!("k{i}")))).collect();
    let inside: Arc<Vec<AtomicUsize>> = Arc::new((0..KEYS).map(|_| AtomicUsize::new(0)).collect());
    let (stop, cycles) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let mut tasks = JoinSet::new();
    for task in 0..12 {
        let manager = LockManager::builder()
            .call_timeout(Duration::from_secs(10))
            .connect(&cluster.url())
            .await
            .unwrap();
        let (inside, stop, cycles) = (inside.clone(), stop.clone(), cycles.clone());
        tasks.spawn(async move {
            for turn in task.. {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                let at = turn % KEYS;
                let options = LockOptions::new(TTL).wait(LONG);
                let options = if task % 3 == 0 { options.fenced() } else { options };
                let guard = manager.lock(format!("k{at}"), options).await.unwrap();
                assert_eq!(inside[at].fetch_add(1, Ordering::SeqCst), 0, "two are inside");
                tokio::task::yield_now().await;
                inside[at].fetch_sub(1, Ordering::SeqCst);
                assert!(guard.release().await.unwrap());
                cycles.fetch_add(1, Ordering::Relaxed);
            }
            manager.shutdown(LONG).await;
        });
    }
    for round in 0..4 {
        for slot in slots.clone() {
            let before = cycles.load(Ordering::Relaxed);
            aside(&cluster, move |cluster| {
                let to = (cluster.owner(slot) + 1 + round % 2) % 3;
                cluster.move_slot(slot, to);
            })
            .await;
            eventually("work goes on", || cycles.load(Ordering::Relaxed) > before).await;
        }
    }
    stop.store(true, Ordering::Relaxed);
    while let Some(ended) = tasks.join_next().await {
        ended.unwrap();
    }
    let left = || cluster.nodes().iter().map(|node| node.keys("clinch:lock:*").len()).sum::<usize>();
    eventually("no lock is left behind", || left() == 0).await;
    let redirects: u64 = cluster.nodes().iter().map(|node| errors(node, "MOVED") + errors(node, "ASK")).sum();
    assert!(redirects > 0, "the fault did not happen");
}

/// Several keys over several slots: all or none, also when one of the servers falls silent in the middle.
///
/// Proves: B7, D13
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_keys_in_several_slots_are_all_or_none() {
    let cluster = start(3, 0).await;
    let manager =
        LockManager::builder().call_timeout(Duration::from_secs(2)).connect(&cluster.url()).await.unwrap();
    let names: Vec<_> = (0..12).map(|i| format!("k{i}")).collect();
    let several = || names.iter().map(String::as_str);
    let options = || LockOptions::new(Duration::from_secs(20));
    let guard = manager.lock_all(several(), options()).await.unwrap();
    assert_eq!(keys_left(&cluster), 12);
    assert!(manager.try_lock(names[7].as_str(), TTL).await.unwrap().is_none());
    assert!(guard.release().await.unwrap());
    assert_eq!(keys_left(&cluster), 0);

    cluster.nodes()[2].stop();
    let error = timeout(LONG, manager.lock_all(several(), options())).await.unwrap().unwrap_err();
    assert!(matches!(super::common::kind(&error).0, ErrorKind::Timeout | ErrorKind::Unavailable), "{error}");
    cluster.nodes()[2].cont();
    eventually("what was taken is given back", || keys_left(&cluster) == 0).await;
    aside(&cluster, RedisCluster::wait_until_healthy).await;

    let diagnosis = manager.diagnose(LONG).await;
    let fact = |name: &str| {
        diagnosis.facts.iter().find(|fact| fact.name == name).and_then(|fact| fact.value.clone())
    };
    assert_eq!(fact("cluster_primaries").as_deref(), Some("3"));
    assert_eq!(fact("cluster_slots_uncovered").as_deref(), Some("0"));
}
