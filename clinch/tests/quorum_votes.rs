//! Quorums on nodes in memory: votes that are on their way back, and runtimes that end.

#![cfg(feature = "redis")]
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clinch::lease::{Attempt, Claim, Token};
use clinch::store::{Notice, Release, Renewal, Store, StoreFuture, Verdict};
use clinch::stores::memory::MemoryStore;
use clinch::stores::quorum::QuorumStore;

const TTL: Duration = Duration::from_secs(20);

/// A node that can be told to leave acquires or releases lying: they neither arrive nor are they answered.
#[derive(Debug, Default)]
struct Node {
    inner: MemoryStore,
    leaves_acquires: AtomicBool,
    leaves_releases: AtomicBool,
}

fn three() -> (Vec<Arc<Node>>, QuorumStore) {
    let nodes: Vec<_> = (0..3).map(|_| Arc::new(Node::default())).collect();
    let named = nodes.iter().enumerate().map(|(i, node)| (i.to_string(), node.clone() as Arc<dyn Store>));
    let quorum = QuorumStore::new(named.collect(), TTL, 1).unwrap();
    (nodes, quorum)
}

impl Store for Node {
    fn engine(&self) -> &'static str {
        "node"
    }

    clinch_testkit::passes_on!(inner: capabilities, renew, wakeups, revocations, inspect, list, revoke, ping);

    fn acquire<'a>(&'a self, attempt: &'a Attempt) -> StoreFuture<'a, Verdict> {
        if self.leaves_acquires.load(Ordering::Relaxed) {
            return Box::pin(std::future::pending());
        }
        self.inner.acquire(attempt)
    }

    fn release<'a>(&'a self, lease: &'a Attempt) -> StoreFuture<'a, Release> {
        if self.leaves_releases.load(Ordering::Relaxed) {
            return Box::pin(std::future::pending());
        }
        self.inner.release(lease)
    }
}

fn attempt(token: &str) -> Attempt {
    let token = Token::from_text(format!("{token:0>32}@test:1:"));
    Attempt::one(token, Claim::exclusive(clinch::Key::new("k").unwrap(), TTL))
}

/// An attempt was denied and gives its vote back, which takes long; asked again, it wins by the others. What it gave back is
/// no vote for its renewal, though the node still has it: the release may arrive any time.
///
/// Proves: B10
#[tokio::test(start_paused = true)]
async fn a_vote_that_is_being_taken_back_renews_nothing() {
    let (nodes, quorum) = three();
    let (ours, theirs) = (attempt("1"), attempt("2"));
    for node in &nodes[1..] {
        assert!(matches!(node.acquire(&theirs).await.unwrap(), Verdict::Granted(_)));
    }
    nodes[0].leaves_releases.store(true, Ordering::Relaxed);
    assert!(matches!(quorum.acquire(&ours).await.unwrap(), Verdict::Denied(_)));
    assert_eq!(nodes[0].inspect(ours.claims()[0].on()).await.unwrap().len(), 1, "it is still there");

    for node in &nodes[1..] {
        assert!(node.release(&theirs).await.unwrap().held);
    }
    assert!(matches!(quorum.acquire(&ours).await.unwrap(), Verdict::Granted(_)), "two others grant it");
    assert!(matches!(quorum.renew(&ours).await.unwrap(), Renewal::Extended { .. }));
    // One of the two loses it.
    assert!(nodes[2].revoke(ours.claims()[0].on(), ours.token()).await.unwrap());
    assert_eq!(
        quorum.renew(&ours).await.unwrap(),
        Renewal::Lost,
        "one vote, and one that is on its way back"
    );
    let both = [Arc::new(ours), Arc::new(theirs)];
    assert_eq!(
        quorum.renew_each(&both).await.into_iter().map(Result::unwrap).collect::<Vec<_>>(),
        [Renewal::Lost; 2]
    );
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// The runtime on which revocations were listened to is gone; whoever listens on another one hears them.
///
/// Proves: B10
#[test]
fn revocations_are_heard_after_a_runtime_has_ended() {
    let (_nodes, quorum) = three();
    runtime().block_on(async { drop(quorum.revocations()) });
    runtime().block_on(async {
        let mut revocations = quorum.revocations();
        let lease = attempt("1");
        assert!(matches!(quorum.acquire(&lease).await.unwrap(), Verdict::Granted(_)));
        assert!(quorum.revoke(lease.claims()[0].on(), lease.token()).await.unwrap());
        let heard = async {
            while let Some(notice) = revocations.next().await {
                if matches!(&notice, Notice::Revoked(revoked) if revoked.token == *lease.token()) {
                    return;
                }
            }
            panic!("they ended");
        };
        tokio::time::timeout(TTL, heard).await.expect("it is told");
    });
}

/// A slow node's answer is waited for on a runtime that nobody drives any more; a release on another one does not wait for that.
///
/// Proves: B10
#[test]
fn a_release_does_not_wait_for_a_runtime_that_stands_still() {
    let (nodes, quorum) = three();
    nodes[2].leaves_acquires.store(true, Ordering::Relaxed);
    let (lease, stands_still) = (attempt("1"), runtime());
    assert!(matches!(stands_still.block_on(quorum.acquire(&lease)).unwrap(), Verdict::Granted(_)));
    let released = runtime().block_on(async { tokio::time::timeout(TTL, quorum.release(&lease)).await });
    assert!(released.expect("it ends").unwrap().held);
}
