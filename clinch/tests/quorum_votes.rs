//! Votes that are on their way back count for nobody, on nodes in memory and a paused clock.

#![cfg(feature = "redis")]
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clinch::lease::{Attempt, Claim, Token};
use clinch::store::{Release, Renewal, Store, StoreFuture, Verdict};
use clinch::stores::memory::MemoryStore;
use clinch::stores::quorum::QuorumStore;

const TTL: Duration = Duration::from_secs(20);

/// A node that can be told to leave releases lying: they neither arrive nor are they answered.
#[derive(Debug, Default)]
struct Node {
    inner: MemoryStore,
    leaves_releases: AtomicBool,
}

impl Store for Node {
    fn engine(&self) -> &'static str {
        "node"
    }

    clinch_testkit::passes_on!(inner: capabilities, acquire, renew, wakeups, revocations, inspect, list, revoke, ping);

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
    let nodes: Vec<_> = (0..3).map(|_| Arc::new(Node::default())).collect();
    let named = nodes.iter().enumerate().map(|(i, node)| (i.to_string(), node.clone() as Arc<dyn Store>));
    let quorum = QuorumStore::new(named.collect(), TTL, 1).unwrap();
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
