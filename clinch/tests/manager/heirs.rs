//! Locks that are handed over from one process to the next, without the next one asking for them.

use std::pin::Pin;
use std::time::Duration;

use clinch::lease::{Attempt, Claim, Patience, Token};
use clinch::store::Store as _;
use clinch::stores::StoreOptions;
use clinch::stores::redis::RedisStore;
use clinch::{Key, LockGuard, LockManager};
use clinch_testkit::proxy::{Action, Rule};
use tokio::time::{Instant, timeout};

use crate::common::{Bench, LONG, Step, TTL, eventually, waiting};

const NOTE: &str = "clinch:writer:{clinch:lock:k}";
/// How often it is tried what can only succeed if the machine does not stop for half a second.
const TRIES: usize = 40;

/// A lock that was waited for, as those are that are handed over.
async fn held(manager: &LockManager) -> LockGuard {
    manager.lock("k", waiting(TTL, LONG)).await.unwrap()
}

/// Polls one who waits until that is true.
async fn meanwhile<T>(mut waits: Pin<&mut impl Future<Output = T>>, what: &str, is_so: impl FnMut() -> bool) {
    tokio::select! {
        biased;
        () = eventually(what, is_so) => {}
        _ = waits.as_mut() => panic!("{what}: it waits no longer"),
    }
}

/// Whether it stands in the note that this one comes next.
fn comes_next(bench: &Bench) -> bool {
    bench.server.get(NOTE).is_some_and(|note| note.starts_with('>'))
}

/// Proves: B1, B5
/// The waiter has the lock by the news of its hand-over and asks nothing. What it has then is what was kept for it, and says so;
/// a moment later it has its whole time.
#[tokio::test]
async fn a_waiter_has_what_it_is_handed_without_asking() {
    let bench = Bench::start().await;
    let (manager, outsider) = (bench.manager().await, bench.outsider().await);
    let mut without_asking = false;
    for _ in 0..TRIES {
        let holder = held(&outsider).await;
        let mut waiter = Box::pin(manager.lock("k", waiting(TTL, LONG).retry_interval(LONG)));
        bench.proxy.reset_counts();
        // Once at first, and once when it hears what is published.
        meanwhile(waiter.as_mut(), "it has asked twice", || bench.count(Step::Acquire) == 2).await;
        let next = comes_next(&bench);
        assert!(holder.release().await.unwrap());
        let guard = timeout(LONG, waiter).await.unwrap().unwrap();
        let asked = bench.count(Step::Acquire);
        assert!(guard.is_valid() && guard.remaining() <= TTL);
        if next && asked == 2 {
            without_asking = true;
            let long = || guard.remaining() > Duration::from_secs(50);
            eventually("it is confirmed", long).await;
            assert_eq!(bench.count(Step::Renew), 1);
            assert!(bench.server.pttl("clinch:lock:k") > 50_000);
        }
        assert!(guard.release().await.unwrap());
        if without_asking {
            break;
        }
    }
    assert!(without_asking, "it was never handed over in time");
    assert_eq!(bench.keys_left(), 0);
}

/// Proves: B5
/// A key that is handed to and fro a hundred times is never held by two, and nothing is left of it.
#[tokio::test]
async fn hand_overs_exclude_each_other() {
    let bench = Bench::start().await;
    let managers = [bench.outsider().await, bench.manager().await, bench.outsider().await];
    let (inside, turns) = (std::sync::atomic::AtomicUsize::new(0), std::sync::atomic::AtomicUsize::new(0));
    let work = |manager: LockManager| {
        let (inside, turns) = (&inside, &turns);
        async move {
            for _ in 0..50 {
                let guard = held(&manager).await;
                assert_eq!(inside.fetch_add(1, std::sync::atomic::Ordering::SeqCst), 0);
                tokio::task::yield_now().await;
                assert!(guard.is_valid());
                turns.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                inside.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
                assert!(guard.release().await.unwrap());
            }
        }
    };
    let [one, two, three] = managers.clone();
    timeout(LONG * 2, async { tokio::join!(work(one), work(two), work(three)) }).await.unwrap();
    assert_eq!(turns.into_inner(), 150);
    for manager in managers {
        assert!(manager.shutdown(LONG).await.is_clean());
    }
    assert_eq!(bench.value("k"), None);
    eventually("that several waited is forgotten", || bench.keys_left() == 0).await;
}

/// Proves: B4
/// Fault: 13
/// Who stops waiting is withdrawn; and what he was handed meanwhile is given back, although he never knew.
#[tokio::test]
async fn a_dropped_waiter_leaves_neither_its_note_nor_what_it_was_handed() {
    let bench = Bench::start().await;
    let (manager, outsider) = (bench.manager().await, bench.outsider().await);
    for handed_over in [false, true] {
        let holder = held(&outsider).await;
        let token = bench.value("k");
        let mut waiter = Box::pin(manager.lock("k", waiting(TTL, LONG)));
        meanwhile(waiter.as_mut(), "it comes next", || comes_next(&bench)).await;
        if handed_over {
            // Nobody polls it.
            assert!(holder.release().await.unwrap());
            assert_ne!(bench.value("k"), token);
            drop(waiter);
        } else {
            drop(waiter);
            eventually("it is withdrawn", || bench.server.get(NOTE).is_none()).await;
            assert_eq!(bench.value("k"), token);
            assert!(holder.release().await.unwrap());
        }
        bench.free("k").await;
    }
    assert!(manager.shutdown(LONG).await.is_clean());
    assert_eq!(bench.keys_left(), 0);
}

/// Proves: B4
/// A waiter whose time is over goes home, and is withdrawn too.
#[tokio::test]
async fn a_waiter_that_gives_up_is_withdrawn() {
    let bench = Bench::start().await;
    let (manager, outsider) = (bench.manager().await, bench.outsider().await);
    let holder = held(&outsider).await;
    let wait = Duration::from_millis(200);
    assert!(manager.try_lock("k", waiting(TTL, wait)).await.unwrap().is_none());
    eventually("it is withdrawn", || bench.server.get(NOTE).is_none()).await;
    assert!(holder.release().await.unwrap());
    assert_eq!(bench.value("k"), None);
}

/// Who comes next in a line goes on with what the engine knows of the line; one that wants something else does not, and the key goes
/// to neither of them twice.
#[tokio::test]
async fn the_next_head_goes_on_for_its_line() {
    let bench = Bench::start().await;
    for other_ttl in [TTL, TTL * 2] {
        let (manager, outsider) = (bench.manager().await, bench.outsider().await);
        let holder = held(&outsider).await;
        let mut first = Box::pin(manager.lock("k", waiting(TTL, LONG)));
        meanwhile(first.as_mut(), "the first comes next", || comes_next(&bench)).await;
        let mut second = Box::pin(manager.lock("k", waiting(other_ttl, LONG)));
        assert!(crate::common::poll_once(second.as_mut()).await.is_pending());
        drop(first);
        let ttl = other_ttl.as_millis();
        meanwhile(second.as_mut(), "the second comes next", || comes_next(&bench)).await;
        assert!(holder.release().await.unwrap());
        let guard = timeout(LONG, second).await.unwrap().unwrap();
        let confirmed = || u128::try_from(bench.server.pttl("clinch:lock:k")).unwrap() + 10_000 > ttl;
        eventually("it is confirmed for its own time", confirmed).await;
        assert!(guard.release().await.unwrap());
        assert!(manager.shutdown(LONG).await.is_clean());
        assert_eq!(bench.keys_left(), 0);
    }
}

/// Proves: L9
/// Fault: 36
/// An heir that is not told finds it out at its next poll, and then has its whole time.
#[tokio::test]
async fn an_heir_that_hears_nothing_finds_out_by_a_poll() {
    let bench = Bench::start().await;
    let (manager, outsider) = (bench.manager().await, bench.outsider().await);
    let never = Action::ReplaceReply(b"-NOPERM no channels for you\r\n".to_vec());
    bench.proxy.add(Rule::new(never).named("SUBSCRIBE").always());
    let holder = held(&outsider).await;
    let mut waiter = Box::pin(manager.lock("k", waiting(TTL, LONG)));
    meanwhile(waiter.as_mut(), "it comes next", || comes_next(&bench)).await;
    assert!(holder.release().await.unwrap());
    let guard = timeout(LONG, waiter).await.unwrap().unwrap();
    assert!(guard.remaining() > Duration::from_secs(50));
    assert!(bench.server.pttl("clinch:lock:k") > 50_000);
    assert!(guard.release().await.unwrap());
}

/// Fault: 11
/// An heir that is dead costs the time for which the key is kept for it, and not its TTL.
#[tokio::test]
async fn a_dead_heir_costs_less_than_its_ttl() {
    let bench = Bench::start().await;
    let (manager, outsider) = (bench.manager().await, bench.outsider().await);
    let options = StoreOptions::default();
    let dead = RedisStore::connect(&bench.server.url(), &options).await.unwrap();
    let claim = Claim::exclusive(Key::new("k").unwrap(), TTL);
    let confirm = Duration::from_secs(1);
    let patience = Patience::Wait { until: Instant::now() + LONG, again_within: LONG, confirm };
    let token = Token::from_text("00112233445566778899aabbccddeeff@dead:1:");
    let attempt = Attempt::one(token.clone(), claim).with_patience(patience);
    let mut inherited = false;
    for _ in 0..TRIES {
        let holder = held(&outsider).await;
        dead.acquire(&attempt).await.unwrap();
        assert!(holder.release().await.unwrap());
        inherited = bench.value("k").as_deref() == Some(token.as_str());
        if inherited {
            break;
        }
    }
    assert!(inherited, "it was never handed over in time");
    let began = Instant::now();
    let guard = timeout(LONG, held(&manager)).await.unwrap();
    assert!(began.elapsed() < TTL / 2);
    assert!(guard.release().await.unwrap());
}

/// Proves: B13
/// What is ended by force before the heir has noticed that it was handed the key: it waits on, under another token, or learns it
/// when it confirms, which is at once.
#[tokio::test]
async fn an_heir_whose_lease_was_ended_by_force_learns_it() {
    let bench = Bench::start().await;
    let (manager, outsider) = (bench.manager().await, bench.outsider().await);
    let holder = held(&outsider).await;
    let mut waiter = Box::pin(manager.lock("k", waiting(TTL, LONG)));
    meanwhile(waiter.as_mut(), "it comes next", || comes_next(&bench)).await;
    assert!(holder.release().await.unwrap());
    let heir = outsider.inspect("k").await.unwrap().pop().unwrap();
    assert!(outsider.force_release(&heir).await.unwrap());
    bench.free("k").await;
    let guard = timeout(LONG, waiter).await.unwrap().unwrap();
    if guard.token() == heir.token() {
        timeout(LONG, guard.lost()).await.unwrap();
        assert!(!guard.release().await.unwrap());
    } else {
        assert_eq!(bench.value("k").as_deref(), Some(guard.token().as_str()));
        assert!(guard.release().await.unwrap());
    }
}
