//! `#[clinch::lock]` and `#[clinch::limit]`.

use std::sync::Arc;
use std::time::Duration;

use clinch::submit::Guards;
use clinch::{DeniedBy, Error, Lease, LockManager, LockOptions};
use tokio::time::Instant;

use crate::common::{Failed, Gate, Inside, Outcome};

const LONG: Duration = Duration::from_secs(10);

#[clinch::lock(key = "order:{id}", manager = locks)]
async fn pay(locks: LockManager, id: u64, gate: Gate) -> Outcome {
    let paid = gate.pass().await?;
    if paid > 1 {
        return Ok(paid);
    }
    Ok(paid + 1)
}

/// The key that a call was refused on.
#[track_caller]
fn refused_on<T: std::fmt::Debug>(outcome: Result<T, Failed>) -> String {
    match outcome.unwrap_err().guard() {
        Error::LockNotAcquired { key, .. } => key.to_string(),
        other => panic!("{other}"),
    }
}

/// Proves: L11
#[tokio::test(start_paused = true)]
async fn one_at_a_time_and_the_lock_is_given_back_however_the_body_ends() {
    let locks = LockManager::memory();
    for how in ["value", "return", "error", "panic", "drop"] {
        let inside = Inside::enter(|gate| pay(locks.clone(), 42, gate)).await;
        assert_eq!(refused_on(pay(locks.clone(), 42, Gate::open()).await), "order:42");
        assert_eq!(pay(locks.clone(), 43, Gate::open()).await.unwrap(), 1, "another order");
        match how {
            "value" => assert_eq!(inside.end(Ok(1)).await.unwrap(), 2),
            "return" => assert_eq!(inside.end(Ok(7)).await.unwrap(), 7),
            "error" => {
                let error = inside.end(Err(Failed::Own("no money"))).await.unwrap_err();
                assert!(
                    matches!(error, Failed::Own("no money")),
                    "the body's own error comes back untouched"
                );
            }
            "panic" => inside.panic().await,
            _ => inside.abort().await,
        }
        // After a panic or a drop it is given back in the background; long before the TTL of 10 s in any case.
        let (before, options) = (Instant::now(), LockOptions::new(LONG).wait(LONG));
        locks.lock("order:42", options).await.unwrap().release().await.unwrap();
        assert!(before.elapsed() < Duration::from_secs(1), "{how}");
    }
}

#[clinch::lock(key = "defaults", manager = locks, lease = lease)]
async fn defaults(locks: &LockManager) -> Result<Lease, Failed> {
    lease.ok_or(Failed::Own("no lease"))
}

/// Proves: L11
#[tokio::test(start_paused = true)]
async fn by_default_a_lock_is_for_ten_seconds_and_is_not_waited_for() {
    let locks = LockManager::memory();
    let held = locks.lock("defaults", LONG).await.unwrap();
    let before = Instant::now();
    assert_eq!(refused_on(defaults(&locks).await), "defaults");
    assert_eq!(before.elapsed(), Duration::ZERO);
    held.release().await.unwrap();

    #[clinch::lock(key = "defaults", manager = locks, lease = lease)]
    async fn remaining(locks: &LockManager) -> Result<Duration, Failed> {
        Ok(lease.map(|lease| lease.remaining()).unwrap_or_default())
    }
    let left = remaining(&locks).await.unwrap();
    assert!((LONG - Duration::from_secs(1)..=LONG).contains(&left), "{left:?}");
    // The lease of a call that is over is over.
    assert!(!defaults(&locks).await.unwrap().is_valid());
}

struct Customer {
    id: String,
}

struct Request {
    customer: Arc<Customer>,
}

struct Path<T>(T);

#[clinch::lock(key = "{tenant}:order:{req.customer.id}:{line}", manager = locks)]
async fn by_fields(
    locks: &LockManager,
    Path((tenant, line)): Path<(&str, u64)>,
    req: Arc<Request>,
) -> Result<usize, Failed> {
    Ok(tenant.len() + req.customer.id.len() + usize::try_from(line).unwrap_or_default())
}

/// Proves: L11
#[tokio::test]
async fn placeholders_are_bindings_and_fields_and_no_value_imitates_another_key() {
    let locks = LockManager::memory();
    let call = |tenant, id: &str, line| {
        let req = Arc::new(Request { customer: Arc::new(Customer { id: id.to_owned() }) });
        by_fields(&locks, Path((tenant, line)), req)
    };
    let key = "a:order:c%3A1:2";
    let held = locks.lock(key, LONG).await.unwrap();
    assert_eq!(refused_on(call("a", "c:1", 2).await), key);
    assert_eq!(call("a", "c", 2).await.unwrap(), 4);
    held.release().await.unwrap();
    assert_eq!(call("a", "c:1", 2).await.unwrap(), 6);
}

struct Shop {
    locks: LockManager,
    tenant: String,
    sold: u64,
}

impl Shop {
    #[clinch::lock(key = "shop:{self.tenant}:{item}", manager = self.locks)]
    async fn sell(&mut self, item: u64) -> Outcome {
        self.sold += 1;
        Ok(self.sold)
    }

    #[clinch::lock(key = "shop:{self.tenant}", reentrant, manager = self.locks)]
    async fn close(&self) -> Outcome {
        self.count().await
    }

    #[clinch::lock(key = "shop:{self.tenant}", reentrant, manager = self.locks)]
    async fn count(&self) -> Outcome {
        Ok(self.sold)
    }
}

#[tokio::test]
async fn methods_lock_by_their_own_fields_and_manager() {
    let mut shop = Shop { locks: LockManager::memory(), tenant: "x".to_owned(), sold: 0 };
    let held = shop.locks.lock("shop:x:7", LONG).await.unwrap();
    assert_eq!(refused_on(shop.sell(7).await), "shop:x:7");
    assert_eq!(shop.sell(8).await.unwrap(), 1);
    drop(held);
}

/// Proves: B6
#[tokio::test]
async fn a_function_under_a_lock_may_call_another_under_the_same_one_in_a_scope() {
    let shop = Shop { locks: LockManager::memory(), tenant: "x".to_owned(), sold: 5 };
    assert_eq!(
        refused_on(shop.close().await),
        "shop:x",
        "without a scope nobody knows that it is the same one"
    );
    assert_eq!(shop.locks.scope(Box::pin(shop.close())).await.unwrap(), 5);
}

#[clinch::limit(key = "export:{tenant}", limit = 2, ttl = "30s", manager = locks)]
async fn export(locks: LockManager, tenant: &'static str, gate: Gate) -> Outcome {
    gate.pass().await
}

#[tokio::test(start_paused = true)]
async fn a_limit_lets_so_many_in_and_each_gives_its_permit_back() {
    let locks = LockManager::memory();
    let enter = || Inside::enter(|gate| export(locks.clone(), "a", gate));
    for _ in 0..3 {
        let (one, two) = (enter().await, enter().await);
        match export(locks.clone(), "a", Gate::open()).await.unwrap_err().guard() {
            Error::LockNotAcquired { denied, .. } => assert_eq!(denied.cause, DeniedBy::Limit),
            other => panic!("{other}"),
        }
        export(locks.clone(), "b", Gate::open()).await.unwrap();
        one.end(Ok(1)).await.unwrap();
        let three = enter().await;
        two.end(Err(Failed::Own("x"))).await.unwrap_err();
        three.end(Ok(1)).await.unwrap();
    }
}

#[clinch::lock(key = "k", wait = "5s", manager = locks)]
async fn waits(locks: LockManager, gate: Gate) -> Outcome {
    gate.pass().await
}

#[tokio::test(start_paused = true)]
async fn a_wait_is_waited() {
    let locks = LockManager::memory();
    let first = Inside::enter(|gate| waits(locks.clone(), gate)).await;
    let second = tokio::spawn(waits(locks.clone(), Gate::open()));
    // The clock goes on only when everybody waits.
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!second.is_finished());
    first.end(Ok(1)).await.unwrap();
    second.await.unwrap().unwrap();

    let _held = locks.lock("k", LockOptions::new(LONG).renew()).await.unwrap();
    let before = Instant::now();
    assert_eq!(refused_on(waits(locks.clone(), Gate::open()).await), "k");
    assert!(before.elapsed() >= Duration::from_secs(5));
}

#[clinch::lock(key = "k", enabled = false, manager = locks, lease = lease)]
async fn disabled(locks: &LockManager) -> Result<bool, Failed> {
    Ok(lease.is_none())
}

#[clinch::lock(key = "k", shadow, manager = locks, lease = lease)]
async fn shadowed(locks: &LockManager) -> Result<bool, Failed> {
    Ok(lease.is_none())
}

#[clinch::lock(key = "k", fenced, manager = locks, lease = lease)]
async fn fenced(locks: &LockManager) -> Result<bool, Failed> {
    Ok(lease.as_ref().and_then(Lease::fence).is_some())
}

#[tokio::test]
async fn the_lease_is_there_unless_the_guard_let_the_call_through_without_one() {
    let locks = LockManager::memory();
    assert!(fenced(&locks).await.unwrap());
    assert!(!shadowed(&locks).await.unwrap());
    assert!(disabled(&locks).await.unwrap());
    let held = locks.lock("k", LONG).await.unwrap();
    assert!(shadowed(&locks).await.unwrap());
    assert!(disabled(&locks).await.unwrap());
    assert_eq!(refused_on(fenced(&locks).await), "k");
    drop(held);
}

#[clinch::lock(key = "outer")]
#[clinch::limit(key = "inner", limit = 1)]
async fn both() -> Result<(), Failed> {
    Ok(())
}

#[tokio::test]
async fn without_a_manager_of_its_own_an_attribute_takes_that_of_the_task() {
    let locks = LockManager::memory();
    let guards = Guards::new(locks.clone());
    assert!(matches!(both().await.unwrap_err().guard(), Error::Missing { .. }));
    guards.enter(both()).await.unwrap();

    // The lower one is entered first.
    let lock = locks.lock("outer", LONG).await.unwrap();
    assert_eq!(refused_on(guards.enter(both()).await), "outer");
    let permit = locks.limit("inner", 1).unwrap().acquire(LONG).await.unwrap();
    assert_eq!(refused_on(guards.enter(both()).await), "inner");
    drop((lock, permit));
}
