//! Wake-ups and revocations from a Cluster: a connection to every server that serves the slot of a channel which is wanted.
//!
//! From 7.0 on wake-ups go over sharded channels, which only the slot's own server hears; revocations go to all servers, and
//! are heard at one. When a slot moves, its server ends the subscriptions by itself: whoever hears that makes its connection
//! anew. The channel then belongs to another server, and is subscribed there.

use std::collections::BTreeSet;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use redis::{ErrorKind, RedisError, RedisResult, ServerErrorKind};
use tokio::time::{Instant, sleep, timeout};

use super::Cluster;
use super::slots::slot;
use super::topology::Node;
use crate::stores::redis::ear::{Ear, Said};
use crate::stores::redis::link::pause_after;
use crate::stores::redis::wake::{HEARTBEAT, SETTLED, Wake, command, in_time, warn_of_refusal};

/// When it is looked again for a channel whose server is not known.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

type Listening<'a> = Pin<Box<dyn Future<Output = Arc<str>> + Send + 'a>>;

/// Listens wherever something is wanted, as long as something is.
pub(in crate::stores::redis) async fn attend(wake: &Arc<Wake>, cluster: &Arc<Cluster>) {
    let (mut changes, mut map) = (wake.changes(), cluster.changed.subscribe());
    let mut listening: FuturesUnordered<Listening<'_>> = FuturesUnordered::new();
    let mut at: BTreeSet<Arc<str>> = BTreeSet::new();
    while !wake.is_closed() {
        let mut homeless = false;
        for name in wake.wanted() {
            match cluster.owner(slot(&name)) {
                Some(node) if at.insert(node.at.clone()) => {
                    listening.push(Box::pin(listen_at(wake, cluster, node)));
                }
                Some(_) => {}
                None => homeless = true,
            }
        }
        if homeless {
            cluster.refresh_soon();
        }
        tokio::select! {
            biased;
            Some(ended) = listening.next(), if !listening.is_empty() => {
                at.remove(&ended);
            }
            _ = changes.changed() => {}
            _ = map.changed() => {}
            () = sleep(LOOK_AGAIN), if homeless => {}
        }
    }
}

/// The channels that are wanted and belong to this server.
fn wanted_at(wake: &Wake, cluster: &Cluster, node: &Node) -> BTreeSet<String> {
    let mut wanted = wake.wanted();
    wanted.retain(|name| cluster.owner(slot(name)).is_some_and(|owner| owner.at == node.at));
    wanted
}

/// Listens at one server as long as something is wanted there.
async fn listen_at(wake: &Arc<Wake>, cluster: &Arc<Cluster>, node: Arc<Node>) -> Arc<str> {
    let mut failures = 0;
    while !wanted_at(wake, cluster, &node).is_empty() {
        let began = Instant::now();
        match timeout(cluster.options.connect_timeout, connect(cluster, &node)).await {
            Ok(Ok(mut ear)) => {
                let mut subscribed = BTreeSet::new();
                let over = listen(wake, cluster, &node, &mut ear, &mut subscribed).await;
                wake.disconnected_from(&subscribed, &node.at);
                match over {
                    Ok(true) => break,
                    Ok(false) => {}
                    Err(error) => {
                        tracing::debug!(%error, at = %node.at, "the connection for wake-ups failed; waiters poll");
                    }
                }
                if began.elapsed() > SETTLED {
                    failures = 0;
                }
            }
            Ok(Err(error)) => {
                tracing::debug!(%error, at = %node.at, "no connection for wake-ups; waiters poll");
            }
            Err(_) => tracing::debug!(at = %node.at, "no connection for wake-ups in time; waiters poll"),
        }
        failures += 1;
        // The server may have gone, or the slot.
        cluster.refresh_soon();
        sleep(pause_after(failures)).await;
    }
    node.at.clone()
}

async fn connect(cluster: &Cluster, node: &Node) -> Result<Ear, String> {
    let client = cluster.opener.at(&node.place.0, node.place.1).map_err(|error| error.to_string())?;
    let roots = cluster.options.tls_root_certificates.as_deref();
    Ear::open(&client, roots).await.map_err(|error| error.to_string())
}

/// Listens on one connection until it fails; or until nothing is wanted there any more, and then it says so.
async fn listen(
    wake: &Wake,
    cluster: &Cluster,
    node: &Node,
    ear: &mut Ear,
    subscribed: &mut BTreeSet<String>,
) -> RedisResult<bool> {
    let limit = cluster.options.call_timeout;
    let (mut changes, mut map) = (wake.changes(), cluster.changed.subscribe());
    // One command for each channel: channels of one command would have to be of one slot.
    let each = |names: &[String], [plain, sharded]: [&str; 2]| {
        let is_sharded = |name: &String| cluster.sharded.load(Ordering::Acquire) && !wake.is_for_all(name);
        let one = |name: &String| {
            command(if is_sharded(name) { sharded } else { plain }, std::slice::from_ref(name))
        };
        names.iter().map(one).collect::<Vec<_>>()
    };
    while !wake.is_closed() {
        let wanted = wanted_at(wake, cluster, node);
        if wanted.is_empty() {
            return Ok(true);
        }
        let add: Vec<_> = wanted.difference(subscribed).cloned().collect();
        if !add.is_empty() {
            let commands = each(&add, ["SUBSCRIBE", "SSUBSCRIBE"]);
            let refused = in_time(limit, ear.subscribe(wake, &add, commands)).await?;
            if let Some((_, elsewhere)) = refused.iter().find(|(_, error)| is_elsewhere(error)) {
                return Err(elsewhere.clone());
            }
            refused.iter().for_each(|(_, error)| warn_of_refusal(error));
            let is_refused = |name: &&String| refused.iter().any(|(refused, _)| refused == *name);
            let confirmed: Vec<_> = add.iter().filter(|name| !is_refused(name)).cloned().collect();
            subscribed.extend(add);
            wake.confirm(&confirmed, &node.at);
        }
        let remove: Vec<_> = subscribed.difference(&wanted).cloned().collect();
        if !remove.is_empty() {
            wake.disconnected_from(&remove, &node.at);
            let commands = each(&remove, ["UNSUBSCRIBE", "SUNSUBSCRIBE"]);
            in_time(limit, ear.unsubscribe(wake, &remove, commands)).await?;
            remove.iter().for_each(|name| {
                subscribed.remove(name);
            });
        }
        tokio::select! {
            biased;
            said = ear.hear(wake) => match said? {
                // Its slot has moved.
                Said::Unsubscribed(name) if subscribed.contains(&name) => return Ok(false),
                _ => {}
            },
            _ = changes.changed() => {}
            _ = map.changed() => {}
            () = sleep(HEARTBEAT) => in_time(limit, ear.ping(wake)).await?,
        }
    }
    Ok(true)
}

/// Whether a server says that the channel is not, or not yet, its own.
fn is_elsewhere(error: &RedisError) -> bool {
    matches!(
        error.kind(),
        ErrorKind::Server(
            ServerErrorKind::Moved
                | ServerErrorKind::Ask
                | ServerErrorKind::TryAgain
                | ServerErrorKind::ClusterDown
        )
    )
}

#[cfg(test)]
mod tests {
    use clinch_testkit::deployment::RedisCluster;

    use super::*;
    use crate::key::Key;
    use crate::lease::{Attempt, Claim, ClaimKey, Token};
    use crate::store::{Notice, Store, StoreError};
    use crate::stores::StoreOptions;
    use crate::stores::redis::RedisClusterStore;

    /// Before 7.0 there are no sharded channels: what one server is told all others tell on.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn without_sharded_channels_plain_ones_do() -> Result<(), StoreError> {
        let cluster = RedisCluster::start();
        let options = StoreOptions { call_timeout: Duration::from_secs(10), ..StoreOptions::default() };
        let store = RedisClusterStore::connect(&cluster.url(), &options).await?.unsharded();
        let mut revocations = store.revocations();
        for name in ["a", "b", "c", "d", "e"] {
            let key = Key::new(name).unwrap();
            let lease = Attempt::one(
                Token::from_text(format!("{name}-token")),
                Claim::exclusive(key.clone(), HEARTBEAT),
            );
            store.acquire(&lease).await?;
            let mut wakeups = store.wakeups(&ClaimKey::lock(key.clone()), None);
            timeout(HEARTBEAT, wakeups.next()).await.unwrap();
            let released = store.release(&lease).await?;
            assert_eq!((released.held, released.woken), (true, None));
            timeout(HEARTBEAT, wakeups.next()).await.unwrap();
            store.acquire(&lease).await?;
            assert!(store.revoke(&ClaimKey::lock(key), lease.token()).await?);
            let told = async {
                loop {
                    if matches!(revocations.next().await, Some(Notice::Revoked(told)) if told.token == *lease.token())
                    {
                        break;
                    }
                }
            };
            timeout(HEARTBEAT, told).await.unwrap();
        }
        Ok(())
    }
}
