//! A renewal that arrives late.

use std::time::Duration;

use clinch::lease::{Attempt, Claim};
use clinch::store::{Renewal, Store};
use clinch_testkit::proxy::{Action, FaultProxy, Rule};
use tokio::time::timeout;

use crate::common::{Bench, LOCK, LONG, SEM, TTL, key, of, several};

/// How a lease of a kind is asked for.
type Kind = fn(Duration) -> Claim;

/// Proves: B3
/// A late renewal that arrives after a longer one does not shorten the lease: two connections, the first one's request is
/// held back until the second one's is answered.
#[tokio::test]
async fn a_late_renewal_does_not_shorten_what_a_longer_one_gave() {
    let bench = Bench::start().await;
    let proxy = FaultProxy::start(bench.server.addr()).await;
    let slow = Bench::connect_to(&proxy.url()).await;
    let short = Duration::from_secs(5);
    let kinds: [(Kind, &str); 3] = [
        (|ttl| Claim::exclusive(key("k"), ttl), LOCK),
        (|ttl| Claim::shared(key("k"), ttl), LOCK),
        (|ttl| Claim::permit(key("k"), of(2), ttl), SEM),
    ];
    for (claim, name) in kinds {
        let lease = several(vec![claim(short)]);
        bench.granted(&lease).await;
        // The same lease with a longer TTL, as a later renewal would ask for it.
        let longer = Attempt::new(lease.token().clone(), vec![claim(TTL)]).unwrap();
        proxy.add(Rule::new(Action::HoldRequest).lease_only());
        let late = slow.renew(&lease);
        let sooner = async {
            proxy.wait_until_held().await;
            assert!(bench.renewed(&longer).await);
            proxy.release_held();
        };
        let (late, ()) = timeout(LONG, async { tokio::join!(late, sooner) }).await.unwrap();
        assert!(matches!(late.unwrap(), Renewal::Extended { .. }));
        let left = bench.number(&["PTTL", name]);
        println!("{name}: {left} ms left after a late renewal for {short:?}");
        assert!(left > 30_000, "{name}: {left} ms");
        assert!(bench.release(&lease).await);
    }
}
