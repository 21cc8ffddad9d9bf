//! No memory; looking and ending by force; and what the common case costs.

use std::sync::Arc;
use std::time::Duration;

use clinch::lease::{Attempt, Claim, Fence, Holder, Mode, Token};
use clinch::store::{Cursor, ErrorKind, Notice, Revocation, Store};
use tokio::time::timeout;

use crate::common::{
    Bench, LOCK, LONG, SEM, TTL, key, lock, of, on_lock, on_sem, one, permit, queued, reader, several,
    waiting,
};

/// Proves: B3
#[tokio::test]
async fn without_memory_leases_are_renewed_and_released_and_new_ones_refused() {
    let bench = Bench::start().await;
    let (a, b) = (reader(TTL), reader(TTL / 2));
    let mixed = several(vec![Claim::exclusive(key("x"), TTL), Claim::permit(key("k"), of(2), TTL)]);
    let (lease, heir) =
        (queued(one(Claim::exclusive(key("q"), TTL))), queued(one(Claim::exclusive(key("q"), TTL))));
    for attempt in [&a, &b, &mixed, &lease] {
        bench.granted(attempt).await;
    }
    bench.denied(&heir).await;
    let keys = bench.server.keys("*");
    bench.out_of_memory();

    let new = [
        one(Claim::exclusive(key("new"), TTL)),
        one(Claim::exclusive(key("new"), TTL).fenced(Fence::new(0))),
        one(Claim::shared(key("new"), TTL)),
        permit(2, TTL),
        reader(TTL),
        several(vec![Claim::permit(key("k"), of(2), TTL), Claim::exclusive(key("new"), TTL)]),
        queued(one(Claim::exclusive(key("new"), TTL))),
        queued(one(Claim::exclusive(key("q"), TTL))),
    ];
    for attempt in &new {
        bench.refused(attempt, ErrorKind::Full).await;
        assert_eq!(bench.server.keys("*"), keys, "{attempt:?}");
    }
    // A denial needs no memory, and without some the writer is not remembered.
    let writer = waiting(several(vec![Claim::exclusive(key("k"), TTL), Claim::duplicate(key("k"), TTL)]));
    bench.denied(&writer).await;
    assert_eq!(bench.server.keys("*"), keys);

    for lease in [&a, &b, &mixed, &lease] {
        assert!(bench.renewed(lease).await, "{lease:?}");
    }
    let all: Vec<_> = [a.token().clone(), b.token().clone()].into();
    let longer: Vec<_> = all
        .into_iter()
        .map(|token| Arc::new(Attempt::one(token, Claim::shared(key("k"), TTL * 2))))
        .collect();
    assert!(bench.store.renew_each(&longer).await.iter().all(Result::is_ok));
    assert!(bench.server.pttl(LOCK) > 110_000);

    assert!(bench.release(&a).await);
    assert_eq!(bench.server.get(LOCK), Some(format!("shared:{}", b.token().as_str())));
    assert!(bench.release(&b).await);
    assert!(bench.release(&mixed).await);
    assert!(bench.release(&lease).await);
    assert_eq!(bench.server.get("clinch:lock:q").unwrap(), heir.token().as_str(), "handed over all the same");
    bench.granted(&heir).await;
    assert!(bench.release(&heir).await);
    assert_eq!(bench.server.keys("*"), [""; 0]);
}

/// Proves: T2
#[tokio::test]
async fn permits_and_readers_are_shown_listed_and_ended_one_by_one() {
    let bench = Bench::start().await;
    let leases = [reader(TTL), reader(TTL / 2), permit(2, TTL), permit(2, TTL / 2)];
    for lease in &leases {
        bench.granted(lease).await;
    }
    bench.ask(&["RPUSH", "clinch:lock:wrong", "precious"]);
    bench.ask(&["SET", "clinch:other:k", "not ours"]);
    let tokens = |holders: &[Holder]| {
        let mut tokens: Vec<_> = holders.iter().map(|h| h.token().as_str().to_owned()).collect();
        tokens.sort();
        tokens
    };
    let expected = |leases: &[Attempt]| {
        let mut tokens: Vec<_> = leases.iter().map(|lease| lease.token().as_str().to_owned()).collect();
        tokens.sort();
        tokens
    };
    let readers = bench.holders(&on_lock()).await;
    assert_eq!(tokens(&readers), expected(&leases[..2]));
    assert!(
        readers.iter().all(|h| h.mode() == Mode::Shared && h.remaining().unwrap() > Duration::from_secs(20))
    );
    let holders = bench.holders(&on_sem()).await;
    assert_eq!(tokens(&holders), expected(&leases[2..]));
    assert!(holders.iter().all(|h| h.mode() == Mode::Permit { of: of(2) }));
    let mut listed = Vec::new();
    let mut cursor = Some(Cursor::START);
    while let Some(at) = cursor {
        let page = bench.store.list(at).await.unwrap();
        listed.extend(page.holders);
        cursor = page.next;
    }
    assert_eq!(tokens(&listed), expected(&leases));

    let mut revocations = bench.store.revocations();
    assert_eq!(timeout(LONG, revocations.next()).await.unwrap(), Some(Notice::Listening));
    for (lease, on) in leases.iter().zip([on_lock(), on_lock(), on_sem(), on_sem()]) {
        let mut wakeups = bench.store.wakeups(&on, None);
        timeout(LONG, wakeups.next()).await.unwrap();
        assert!(bench.store.revoke(&on, lease.token()).await.unwrap());
        let told = timeout(LONG, revocations.next()).await.unwrap();
        assert_eq!(told, Some(Notice::Revoked(Revocation { on: on.clone(), token: lease.token().clone() })));
        assert!(!bench.store.revoke(&on, lease.token()).await.unwrap());
        assert!(!bench.renewed(lease).await);
        // Exactly that one: what is left expires with the last of the rest.
        if lease.token() == leases[0].token() {
            assert_eq!(bench.server.get(LOCK), Some(format!("shared:{}", leases[1].token().as_str())));
            assert!(bench.server.pttl(LOCK) <= 30_000);
            assert!(bench.renewed(&leases[1]).await);
            // A marker with readers behind it is nobody's token.
            let marker = Token::from_text(bench.server.get(LOCK).unwrap());
            assert!(!bench.store.revoke(&on, &marker).await.unwrap());
        } else {
            timeout(LONG, wakeups.next()).await.unwrap();
        }
        if lease.token() == leases[2].token() {
            assert!(bench.server.pttl(SEM) <= 30_000);
        }
    }
    assert_eq!(bench.server.keys("*"), ["clinch:lock:wrong", "clinch:other:k"]);
}

/// Speed: what most callers do is one command with one key and two arguments, whatever else the store can do.
#[tokio::test]
async fn a_plain_lock_stays_one_key_and_one_command() {
    let bench = Bench::start().await;
    for attempt in [lock(), waiting(lock())] {
        bench.granted(&attempt).await;
        bench.release(&attempt).await;
    }
    bench.forget_statistics();
    let lease = lock();
    bench.granted(&lease).await;
    let calls = bench.server.command_calls();
    assert_eq!((calls.get("evalsha"), calls.get("set"), calls.get("get")), (None, Some(&1), None));
    assert!(bench.release(&lease).await);
    let calls = bench.server.command_calls();
    assert_eq!((calls.get("evalsha"), calls.get("get"), calls.get("del")), (Some(&1), Some(&1), Some(&1)));
}
