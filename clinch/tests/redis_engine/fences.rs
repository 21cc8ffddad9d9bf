//! Fences: a record beside the lock, and the server's clock.

use clinch::lease::{Claim, Fence};
use clinch::store::{ErrorKind, Store};

use crate::common::{
    Bench, FENCE, TTL, fence, fenced, key, lock, of, on_lock, one, permit, queued, reader, several,
};

/// Proves: B2
#[tokio::test]
async fn fences_rise_after_the_counter_or_the_server_was_lost() {
    let bench = Bench::start().await;
    let mut last = 0;
    for meddle in ["", "DEL", "garbage", "garbled", "restart", "expired", "floor"] {
        let lease = fenced(0);
        let grant = bench.granted(&lease).await;
        assert!(fence(&grant) > last, "{meddle}");
        assert_eq!(fence(&grant) % Fence::STEP, 0);
        assert_eq!(bench.granted(&lease).await, grant, "the same token has the same fence");
        let shown = bench.holders(&on_lock()).await;
        assert_eq!(shown[0].fence(), grant.fences[0]);
        last = fence(&grant);
        let record = format!("{} {}", last / Fence::STEP, lease.token().as_str());
        assert_eq!(bench.server.get(FENCE).unwrap(), record);
        assert!(bench.server.pttl(FENCE) > 86_300_000);
        assert!(bench.release(&lease).await);
        assert_eq!(bench.server.get(FENCE).unwrap(), record, "a release keeps the counter");
        match meddle {
            "DEL" => drop(bench.ask(&["DEL", FENCE])),
            "garbage" => drop(bench.ask(&["SET", FENCE, "no number at all"])),
            "garbled" => drop(bench.ask(&["SET", FENCE, "99999999999999999999 x"])),
            "restart" => {
                bench.server.restart();
                // The old connection finds out that it is dead.
                while bench.store.ping().await.is_err() {}
            }
            _ => {}
        }
    }
    let high = last + 1_000 * Fence::STEP * Fence::STEP + 7;
    let above = fenced(high);
    let given = fence(&bench.granted(&above).await);
    assert!(given > high && given - high < Fence::STEP);
    assert!(bench.release(&above).await);
    assert_eq!(fence(&bench.granted(&fenced(0)).await), given + Fence::STEP, "the counter, not the clock");
}

#[tokio::test]
async fn a_lost_record_of_a_held_lease_gives_a_higher_fence() {
    let bench = Bench::start().await;
    let lease = fenced(0);
    let first = fence(&bench.granted(&lease).await);
    bench.ask(&["SET", FENCE, &format!("{} somebody", first / Fence::STEP + 1_000_000_000)]);
    let second = fence(&bench.granted(&lease).await);
    assert_eq!(second, first + 1_000_000_001 * Fence::STEP);
    assert_eq!(fence(&bench.granted(&lease).await), second);
    assert!(bench.release(&lease).await);
    assert!(fence(&bench.granted(&lease).await) > second, "a new grant has a new number, whoever gets it");
}

#[tokio::test]
async fn leases_without_fences_leave_the_counter_alone() {
    let bench = Bench::start().await;
    let lease = fenced(0);
    bench.granted(&lease).await;
    assert!(bench.release(&lease).await);
    let record = bench.server.get(FENCE);
    for lease in [lock(), several(vec![Claim::exclusive(key("k"), TTL), Claim::duplicate(key("k"), TTL)])] {
        assert!(bench.granted(&lease).await.fences.is_empty());
        assert_eq!(bench.server.get(FENCE), record);
        assert_eq!(bench.holders(&on_lock()).await[0].fence(), None);
        assert!(bench.release(&lease).await);
    }
}

#[tokio::test]
async fn a_counter_that_is_none_is_reported_before_anything_is_written() {
    let bench = Bench::start().await;
    bench.ask(&["RPUSH", FENCE, "precious"]);
    for attempt in [fenced(0), queued(fenced(0))] {
        bench.refused(&attempt, ErrorKind::WrongType).await;
        assert_eq!(bench.server.keys("*"), [FENCE]);
    }
}

#[tokio::test]
async fn what_cannot_be_served_is_refused_and_never_sent() {
    let bench = Bench::start().await;
    bench.forget_statistics();
    let refused = [
        one(Claim::permit(key("k"), of(1), TTL).fenced(Fence::new(0))),
        one(Claim::shared(key("k"), TTL).fenced(Fence::new(0))),
        fenced(u64::MAX),
        queued(reader(TTL)),
        queued(permit(1, TTL)),
        queued(one(Claim::duplicate(key("k"), TTL))),
        queued(several(vec![Claim::exclusive(key("a"), TTL), Claim::exclusive(key("b"), TTL)])),
    ];
    for attempt in &refused {
        bench.refused(attempt, ErrorKind::Unsupported).await;
        assert_eq!(attempt.sent_at(), None);
    }
    assert_eq!(bench.scripts_run(), 0);
}
