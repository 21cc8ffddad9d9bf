//! The steps of the memory store itself, from several threads at once.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use clinch::lease::{Attempt, Claim};
use clinch::store::{Store, Verdict};
use clinch::stores::memory::MemoryStore;
use clinch::{Fence, Key, Token};
use clinch_shuttle::{Room, TTL, advance, block_on, check, join, spawn};
use shuttle::sync::Mutex;

fn key(text: &str) -> Key {
    Key::new(text).unwrap()
}

fn attempt(token: impl Into<Arc<str>>, claims: Vec<Claim>) -> Attempt {
    Attempt::new(Token::from_text(token), claims).unwrap()
}

/// Proves: L7, D13
#[test]
fn steps_on_several_keys_exclude_each_other_and_never_lock_up() {
    check(|| {
        let store = MemoryStore::new();
        let rooms = [Room::new(1), Room::new(1), Room::new(1)];
        join([[0, 1], [1, 2], [2, 0]].map(|wanted| {
            let (store, rooms) = (store.clone(), rooms.clone());
            spawn(async move {
                for round in 0..2 {
                    let claims = wanted.map(|i| Claim::exclusive(key(["a", "b", "c"][i]), TTL)).to_vec();
                    let attempt = attempt(format!("{wanted:?} {round}"), claims);
                    if let Verdict::Granted(_) = store.acquire(&attempt).await.unwrap() {
                        wanted.iter().for_each(|i| rooms[*i].visit());
                        assert!(store.release(&attempt).await.unwrap().held);
                    }
                }
            })
        }));
        assert!(rooms.iter().any(|room| room.visits() > 0), "the first one finds all of it free");
        assert!(store.is_empty());
    });
}

/// Proves: T4
#[test]
fn permits_are_never_more_than_there_are() {
    check(|| {
        let store = MemoryStore::new();
        let (room, two) = (Room::new(2), NonZeroU32::new(2).unwrap());
        join((0..4).map(|i| {
            let (store, room) = (store.clone(), room.clone());
            spawn(async move {
                for round in 0..2 {
                    let claim = Claim::permit(key("a"), two, TTL);
                    let attempt = attempt(format!("{i} {round}"), vec![claim]);
                    if let Verdict::Granted(_) = store.acquire(&attempt).await.unwrap() {
                        room.visit();
                        assert!(store.renew(&attempt).await.is_ok());
                        assert!(store.release(&attempt).await.unwrap().held);
                        assert!(!store.release(&attempt).await.unwrap().held, "given back twice");
                    }
                }
            })
        }));
        assert!(store.is_empty());
    });
}

/// Proves: B2
/// Fault: 3
#[test]
fn an_attempt_that_is_sent_twice_at_once_is_one_grant() {
    check(|| {
        let store = MemoryStore::new();
        let fences = Arc::new(Mutex::new(Vec::new()));
        let fenced = |token: &str| {
            let claim = Claim::exclusive(key(token), TTL).fenced(Fence::new(0));
            Arc::new(attempt(token, vec![claim]))
        };
        let attempts = [fenced("a"), fenced("b")];
        join((0..4).map(|i| {
            let (store, attempt, fences) = (store.clone(), attempts[i % 2].clone(), fences.clone());
            spawn(async move {
                let Verdict::Granted(grant) = store.acquire(&attempt).await.unwrap() else {
                    panic!("denied by itself")
                };
                fences.lock().unwrap().push((i % 2, grant.fences[0].unwrap()));
            })
        }));
        let mut fences = fences.lock().unwrap().clone();
        fences.sort_unstable();
        assert_eq!(fences[0], fences[1]);
        assert_eq!(fences[2], fences[3]);
        assert_ne!(fences[0].1, fences[2].1, "two keys, two grants");
        assert_eq!(store.len(), 2);
    });
}

/// A bound of two, leases that run out while others come: what is counted is what is there.
///
/// Proves: T4
#[test]
fn what_has_run_out_is_swept_once() {
    check(|| {
        let store = MemoryStore::new().with_max_leases(2);
        let short = Duration::from_millis(500);
        let users = (0..3).map(|i| {
            let store = store.clone();
            spawn(async move {
                for round in 0..2 {
                    let name = format!("{i} {round}");
                    let attempt = attempt(name.as_str(), vec![Claim::exclusive(key(&name), short)]);
                    // The bound may be reached, and a lease may have run out before it is renewed or given back.
                    if store.acquire(&attempt).await.is_ok() {
                        let _ = store.renew(&attempt).await.unwrap();
                        if round == 0 {
                            let _ = store.release(&attempt).await.unwrap();
                        }
                    }
                    assert!(store.len() <= 2 + 3, "{}", store.len());
                }
            })
        });
        let users: Vec<_> = users.collect();
        let clock = shuttle::thread::spawn(|| (0..3).for_each(|_| advance(Duration::from_millis(700))));
        join(users.into_iter().chain([clock]));
        advance(Duration::from_secs(2));
        // Only what is looked at is swept here and now: two new ones fit, so nothing old counts any more.
        for name in ["x", "y"] {
            let attempt = attempt(name, vec![Claim::exclusive(key(name), TTL)]);
            assert!(matches!(block_on(store.acquire(&attempt)).unwrap(), Verdict::Granted(_)));
        }
        let third = attempt("z", vec![Claim::exclusive(key("z"), TTL)]);
        assert!(block_on(store.acquire(&third)).is_err(), "over the bound");
        assert_eq!(store.len(), 2);
    });
}

/// Proves: L9
#[test]
fn who_listens_before_it_asks_again_is_woken() {
    check(|| {
        let store = MemoryStore::new();
        let held = attempt("held", vec![Claim::exclusive(key("a"), TTL)]);
        assert_eq!(block_on(store.acquire(&held)).unwrap(), Verdict::granted());
        let waiters = (0..2).map(|i| {
            let store = store.clone();
            spawn(async move {
                let attempt = attempt(i.to_string(), vec![Claim::exclusive(key("a"), TTL)]);
                let mut wakeups = store.wakeups(attempt.claims()[0].on(), None);
                loop {
                    wakeups.next().await;
                    if let Verdict::Granted(_) = store.acquire(&attempt).await.unwrap() {
                        break;
                    }
                }
                store.release(&attempt).await.unwrap();
            })
        });
        let waiters: Vec<_> = waiters.collect();
        assert!(block_on(store.release(&held)).unwrap().held);
        join(waiters);
        assert!(store.is_empty());
    });
}
