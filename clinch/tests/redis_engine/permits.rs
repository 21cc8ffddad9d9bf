//! Permits: a sorted set of tokens by when they end.

use std::time::Duration;

use clinch::lease::{Attempt, Claim, Fence, Mode};
use clinch::store::ErrorKind;

use crate::common::{Bench, LOCK, SEM, TTL, holder, key, of, on_sem, permit, several};

/// Proves: T4
#[tokio::test]
async fn permits_are_a_sorted_set_that_expires_with_its_last_member() {
    let bench = Bench::start().await;
    let (long, short) = (permit(3, TTL), permit(3, TTL / 6));
    bench.granted(&long).await;
    bench.granted(&short).await;
    assert_eq!(bench.kind_of(SEM), "zset");
    assert_eq!(bench.number(&["ZCARD", SEM]), 2);
    // Not with its newest member, which ends first.
    assert!(bench.server.pttl(SEM) > 50_000);
    assert!(bench.score(SEM, long.token()) > bench.score(SEM, short.token()));
    assert!(bench.release(&long).await);
    assert!((1..=10_000).contains(&bench.server.pttl(SEM)));
    assert!(bench.release(&short).await);
    assert_eq!(bench.server.keys("*"), [""; 0]);
    assert!(!bench.release(&short).await, "a permit was given back twice");
}

/// Proves: T4
#[tokio::test]
async fn an_expired_member_never_counts() {
    let bench = Bench::start().await;
    let (over, live) = (permit(1, TTL), permit(1, TTL));
    bench.granted(&over).await;
    bench.end(SEM, &over);
    assert!(!bench.renewed(&over).await);
    assert!(bench.holders(&on_sem()).await.is_empty());
    bench.granted(&live).await;
    assert_eq!(bench.words(&["ZRANGE", SEM, "0", "-1"]), [live.token().as_str()]);
    assert!(!bench.release(&over).await);

    // A look does not write: a denial leaves what is over for the next write.
    bench.ask(&["ZADD", SEM, "1000", over.token().as_str()]);
    bench.denied(&permit(1, TTL)).await;
    assert_eq!(bench.number(&["ZCARD", SEM]), 2);
    assert!(!bench.release(&over).await, "what was over is not given back");
    assert_eq!(bench.number(&["ZCARD", SEM]), 1, "but it goes");
}

/// Proves: T4, T5
#[tokio::test]
async fn a_claims_own_number_counts() {
    let bench = Bench::start().await;
    let held: Vec<_> = (0..3).map(|i| permit(3, TTL - Duration::from_secs(10 * i))).collect();
    for permit in &held {
        bench.granted(permit).await;
    }
    let denial = bench.denied(&permit(3, TTL)).await;
    assert_eq!(holder(&denial), held[2].token(), "the one that ends first");
    assert_eq!(denial.holder.as_ref().unwrap().mode(), Mode::Permit { of: of(3) });
    assert!(denial.retry_after.unwrap() <= TTL - Duration::from_secs(20));
    bench.denied(&permit(1, TTL)).await;
    bench.granted(&permit(4, TTL)).await;
    // What is held already is not weighed again, and nothing moves.
    let before = bench.score(SEM, held[0].token());
    let lowered = Attempt::one(held[0].token().clone(), Claim::permit(key("k"), of(1), TTL * 2));
    bench.granted(&lowered).await;
    assert_eq!(bench.score(SEM, held[0].token()), before);
}

/// Proves: T4
#[tokio::test]
async fn a_permits_renewal_only_extends() {
    let bench = Bench::start().await;
    let lease = permit(2, TTL);
    bench.granted(&lease).await;
    let before = bench.score(SEM, lease.token());
    let shorter = Attempt::one(lease.token().clone(), Claim::permit(key("k"), of(2), TTL / 2));
    assert!(bench.renewed(&shorter).await);
    assert_eq!(bench.score(SEM, lease.token()), before);
    let longer = Attempt::one(lease.token().clone(), Claim::permit(key("k"), of(2), TTL * 2));
    assert!(bench.renewed(&longer).await);
    assert!(bench.score(SEM, lease.token()) > before);
    assert!(bench.server.pttl(SEM) > 110_000);
}

/// Proves: T3
#[tokio::test]
async fn a_lock_with_a_permit_is_one_command_a_step() {
    let bench = Bench::start().await;
    let both = || several(vec![Claim::exclusive(key("k"), TTL), Claim::permit(key("k"), of(1), TTL)]);
    let warm = both();
    bench.granted(&warm).await;
    assert!(bench.renewed(&warm).await);
    assert!(bench.release(&warm).await);

    let lease = both();
    bench.forget_statistics();
    bench.granted(&lease).await;
    assert_eq!(bench.scripts_run(), 1);
    assert!(bench.renewed(&lease).await);
    assert_eq!(bench.scripts_run(), 2);
    assert!(bench.release(&lease).await);
    assert_eq!(bench.scripts_run(), 3);

    // A refused permit leaves no lock behind.
    let in_the_way = permit(1, TTL);
    bench.granted(&in_the_way).await;
    let denial = bench.denied(&both()).await;
    assert_eq!((denial.claim, holder(&denial)), (1, in_the_way.token()));
    assert!(!bench.server.exists(LOCK));
}

/// Proves: B7
#[tokio::test]
async fn claims_of_all_kinds_are_granted_renewed_and_released_together() {
    let bench = Bench::start().await;
    let lease = several(vec![
        Claim::shared(key("k"), TTL),
        Claim::exclusive(key("fenced"), TTL).fenced(Fence::new(0)),
        Claim::permit(key("k"), of(2), TTL),
        Claim::duplicate(key("k"), TTL),
        Claim::exclusive(key("plain"), TTL),
    ]);
    let grant = bench.granted(&lease).await;
    let given: Vec<_> = grant.fences.iter().map(Option::is_some).collect();
    assert_eq!(given, [false, true, false, false, false]);
    assert_eq!(bench.granted(&lease).await, grant);
    assert!(bench.renewed(&lease).await);
    bench.ask(&["DEL", "clinch:dup:k"]);
    assert!(!bench.renewed(&lease).await);
    assert_eq!(bench.granted(&lease).await, grant, "what was lost and is free comes back");
    assert!(bench.release(&lease).await);
    assert_eq!(bench.server.keys("*"), ["clinch:fence:{clinch:lock:fenced}"]);

    // Something that is no lease, wherever it stands, and nothing is written.
    bench.ask(&["SET", SEM, "no set"]);
    bench.refused(&lease, ErrorKind::WrongType).await;
    assert_eq!(bench.server.keys("*"), ["clinch:fence:{clinch:lock:fenced}", SEM]);
}
