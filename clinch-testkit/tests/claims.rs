//! Every kind of claim on the simulated engine, through the port: what each fault does to it.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use clinch::key::Key;
use clinch::lease::{Attempt, Claim, Fence, Patience, Record, Token};
use clinch::store::{Denial, Renewal, Store, Verdict};
use clinch::{LockManager, Sources};
use clinch_testkit::history::{Call, FaultKind};
use clinch_testkit::sim::workload::on_paused_clock;
use clinch_testkit::sim::{Faults, Gate, Register, Sim, SimStore};
use tokio::time::{Instant, sleep, timeout};

/// Longer than any request and its reply are on their way where no fault strikes.
const ROUND_TRIP: Duration = Duration::from_millis(410);
const LONG: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_secs(5);

static TOKENS: AtomicU64 = AtomicU64::new(0);

fn token() -> Token {
    Token::from_text(format!("{:032x}@test:1:", TOKENS.fetch_add(1, Ordering::Relaxed)))
}

fn key(name: &str) -> Key {
    Key::new(name).unwrap()
}

fn one(claim: Claim) -> Attempt {
    Attempt::one(token(), claim)
}

fn permit(of: u32, ttl: Duration) -> Attempt {
    one(Claim::permit(key("p"), NonZeroU32::new(of).unwrap(), ttl))
}

fn waiting(claim: Claim, wait: Duration) -> Attempt {
    let until = Instant::now() + wait;
    one(claim).with_patience(Patience::Wait { until, again_within: wait, confirm: Duration::ZERO })
}

fn queueing(wait: Duration, confirm: Duration) -> Attempt {
    let until = Instant::now() + wait;
    one(Claim::exclusive(key("k"), LONG)).with_patience(Patience::Queue { until, confirm })
}

async fn granted(store: &SimStore, attempt: &Attempt) -> Vec<Option<Fence>> {
    match store.acquire(attempt).await.unwrap() {
        Verdict::Granted(grant) => grant.fences,
        other => panic!("{other:?}"),
    }
}

async fn denied(store: &SimStore, attempt: &Attempt) -> Denial {
    match store.acquire(attempt).await.unwrap() {
        Verdict::Denied(denial) => denial,
        other => panic!("{other:?}"),
    }
}

fn in_a_world<F: Future>(test: impl FnOnce(Sim, [Arc<SimStore>; 3]) -> F) {
    on_paused_clock(async {
        let sim = Sim::new(1, Faults::NONE);
        let stores = [sim.store(0), sim.store(1), sim.store(2)];
        test(sim, stores).await;
    })
    .unwrap();
}

/// Fault: 39
#[test]
fn a_dead_holders_permit_comes_back_with_its_own_ttl_and_no_other_with_it() {
    in_a_world(async |sim, [a, b, c]| {
        let (dead, alive, next) = (permit(2, SHORT), permit(2, LONG), permit(2, LONG));
        granted(&a, &dead).await;
        granted(&b, &alive).await;
        let denial = denied(&c, &next).await;
        assert_eq!(denial.holder.unwrap().token(), dead.token(), "the one that ends first");
        sleep(SHORT).await;
        granted(&c, &next).await;
        assert!(matches!(b.renew(&alive).await.unwrap(), Renewal::Extended { .. }), "the other lives on");

        // Given back twice, and once by one who has nothing any more: nobody else's is gone.
        assert!(c.release(&next).await.unwrap().held);
        for _ in 0..2 {
            assert!(!c.release(&next).await.unwrap().held);
            assert!(!a.release(&dead).await.unwrap().held);
        }
        assert_eq!(sim.live().len(), 1);
    });
}

/// Fault: 40
#[test]
fn a_limit_that_was_lowered_grants_nothing_over_it() {
    in_a_world(async |_, [a, b, c]| {
        let (first, second) = (permit(3, LONG), permit(3, LONG));
        granted(&a, &first).await;
        granted(&b, &second).await;
        denied(&c, &permit(2, LONG)).await;
        assert!(a.release(&first).await.unwrap().held);
        denied(&c, &permit(1, LONG)).await;
        granted(&c, &permit(2, LONG)).await;
    });
}

#[test]
fn several_claims_are_taken_together_or_not_at_all() {
    in_a_world(async |sim, [a, b, c]| {
        let lock = |name| Claim::exclusive(key(name), LONG);
        granted(&a, &one(lock("y"))).await;
        let of = NonZeroU32::new(2).unwrap();
        let claims = vec![lock("x"), Claim::permit(key("p"), of, LONG), lock("y")];
        let both = Attempt::new(token(), claims).unwrap();
        assert_eq!(denied(&b, &both).await.claim, 2);
        assert_eq!(sim.live().len(), 1, "a refused claim leaves nothing behind");
        granted(&c, &one(lock("x"))).await;
    });
}

#[test]
fn readers_share_and_a_writer_that_waits_goes_first() {
    in_a_world(async |sim, [a, b, c]| {
        let reader = || one(Claim::shared(key("k"), SHORT));
        let (first, second) = (reader(), reader());
        granted(&a, &first).await;
        granted(&b, &second).await;
        let writer = waiting(Claim::exclusive(key("k"), LONG), LONG);
        denied(&c, &writer).await;
        denied(&a, &reader()).await;
        granted(&a, &first).await;
        // Withdrawn, it holds nobody up.
        assert!(!c.release(&writer).await.unwrap().held);
        granted(&a, &reader()).await;

        let writer = waiting(Claim::exclusive(key("k"), LONG), LONG);
        denied(&c, &writer).await;
        sleep(SHORT).await;
        denied(&b, &reader()).await;
        granted(&c, &writer).await;
        assert!(c.release(&writer).await.unwrap().held);
        granted(&b, &reader()).await;
        sleep(LONG).await;
        assert!(sim.live().is_empty());
    });
}

#[test]
fn a_queue_is_first_come_first_served_and_a_dead_heir_costs_its_time_to_confirm() {
    in_a_world(async |sim, [a, b, c]| {
        let confirm = Duration::from_secs(2);
        let holder = queueing(LONG, confirm);
        granted(&a, &holder).await;
        let (dead, next, last) = (queueing(LONG, confirm), queueing(LONG, confirm), queueing(LONG, confirm));
        denied(&b, &dead).await;
        denied(&c, &next).await;
        denied(&a, &last).await;
        let mut turn = b.wakeups(dead.claims()[0].on(), Some(dead.token()));
        turn.next().await;
        assert_eq!(a.release(&holder).await.unwrap().woken, Some(1), "only the heir is woken");
        timeout(ROUND_TRIP, turn.next()).await.expect("its turn has come");
        let denial = denied(&c, &next).await;
        assert_eq!(denial.holder.unwrap().token(), dead.token(), "the key is kept for it");

        sleep(confirm).await;
        // Whoever finds the key free hands it over to the first one, and that is not the last.
        assert_eq!(denied(&a, &last).await.holder.unwrap().token(), next.token());
        granted(&c, &next).await;
        let heir = denied(&b, &dead).await.holder.unwrap();
        assert_eq!(heir.token(), next.token(), "the dead one stands at the end again");
        assert!(heir.remaining().unwrap() > confirm, "an heir that asked again has its full TTL");
        c.release(&next).await.unwrap();
        granted(&a, &last).await;
        sleep(LONG * 2).await;
        assert!(sim.live().is_empty());
    });
}

/// Fault: 3
/// Fault: 24
/// Proves: B2
#[test]
fn fences_rise_whatever_the_engine_loses_and_are_given_once_a_grant() {
    in_a_world(async |sim, [a, b, _]| {
        let mut last = 0;
        for round in 0..30 {
            let attempt = one(Claim::exclusive(key("k"), LONG).fenced(Fence::new(0)));
            if round % 2 == 0 {
                sim.order(Call::Acquire, FaultKind::Duplicate);
            }
            let fences = granted(&a, &attempt).await;
            assert_eq!(granted(&a, &attempt).await, fences, "asked again, it is the same");
            let fence = fences[0].unwrap().get();
            assert!(fence > last && fence.is_multiple_of(Fence::STEP), "{fence} after {last}");
            last = fence;
            match round % 3 {
                0 => sim.lose_counters(),
                1 => {
                    sim.restart(false);
                    sleep(ROUND_TRIP).await;
                }
                _ => {}
            }
            a.release(&attempt).await.unwrap();
        }
        let above = Fence::new(last * 2);
        let fenced = one(Claim::exclusive(key("k"), LONG).fenced(above));
        assert!(granted(&b, &fenced).await[0] > Some(above));
    });
}

/// Fault: 9
#[test]
fn a_process_that_was_stopped_finds_its_lock_lost_and_its_write_refused() {
    in_a_world(async |sim, [a, b, _]| {
        let locks = LockManager::builder().sources(Sources::seeded(1)).store(sim.store(3)).build().unwrap();
        let (gate, register) = (Gate::default(), Register::new(true));
        let resource = register.clone();
        let stopped = tokio::spawn(gate.behind(async move {
            let lock = locks.lock("other", SHORT).await.unwrap();
            let mine = one(Claim::exclusive(key("k"), SHORT).fenced(Fence::new(0)));
            let fence = granted(&a, &mine).await[0].unwrap().get();
            assert!(lock.is_valid() && resource.write("k", fence));
            sleep(SHORT / 5).await;
            (lock.is_valid(), resource.write("k", fence))
        }));
        while sim.live().len() < 2 {
            sleep(Duration::from_millis(1)).await;
        }
        sleep(ROUND_TRIP).await;
        sim.stop(0, &gate, SHORT * 2);
        sleep(SHORT).await;
        let next = one(Claim::exclusive(key("k"), LONG).fenced(Fence::new(0)));
        assert!(register.write("k", granted(&b, &next).await[0].unwrap().get()));
        assert!(!stopped.is_finished(), "it does not run");

        let (first_check, late_write) = stopped.await.unwrap();
        assert!(!first_check, "it sees at its first check that the lock is lost");
        assert!(!late_write, "and its fence is too low by now");
    });
}

#[test]
fn a_stopped_process_does_not_run_though_time_passes() {
    on_paused_clock(async {
        let gate = Gate::default();
        let task = tokio::spawn(gate.behind(async {
            sleep(Duration::from_secs(1)).await;
            Instant::now()
        }));
        sleep(Duration::from_millis(500)).await;
        let opens = Instant::now() + Duration::from_secs(3);
        gate.stop_until(opens);
        assert_eq!(task.await.unwrap(), opens);
    })
    .unwrap();
}

/// Whatever becomes of a completion on its way, the record is the one that arrived first, and the work is done once.
#[test]
fn a_completion_that_is_lost_or_comes_twice_leaves_one_record() {
    for fault in [FaultKind::LostReply, FaultKind::LostRequest, FaultKind::Duplicate, FaultKind::Late] {
        in_a_world(async |sim, [a, b, _]| {
            let lease = one(Claim::idempotent(key("k"), LONG));
            granted(&a, &lease).await;
            sim.order(Call::Complete, fault);
            let first = a.complete(&lease, &Record::new("first"), Some(SHORT)).await;
            assert_eq!(first.is_ok(), fault == FaultKind::Duplicate, "{fault:?}: {first:?}");
            // A late one arrives before what follows it on its connection.
            sleep(SHORT / 2).await;
            let again = a.complete(&lease, &Record::new("again"), Some(SHORT)).await.unwrap();
            assert!(again.held && again.conclusive, "{fault:?}: {again:?}");
            let left = if fault == FaultKind::LostRequest { "again" } else { "first" };
            let denial = denied(&b, &one(lease.claims()[0].clone())).await;
            assert_eq!(denial.done.unwrap().as_bytes(), left.as_bytes(), "{fault:?}");
            assert!(denial.holder.is_none());
            assert!(sim.live().is_empty(), "{fault:?}: nobody holds it");
            sleep(SHORT).await;
            granted(&b, &one(lease.claims()[0].clone())).await;
        });
    }
}
