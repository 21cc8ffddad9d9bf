//! Readers: a sorted set, and a marker on the lock itself that keeps everybody else out.

use std::time::Duration;

use clinch::lease::{Attempt, Claim, Mode};
use clinch::store::Store;
use clinch_testkit::server::Reply;
use tokio::time::timeout;

use crate::common::{
    Bench, LOCK, LONG, READERS, TTL, WRITER, fenced, holder, key, lock, on_lock, reader, several, waiting,
};

/// Proves: B7, L12
#[tokio::test]
async fn while_readers_live_the_key_holds_a_marker() {
    let bench = Bench::start().await;
    let (short, long) = (reader(TTL / 2), reader(TTL));
    bench.granted(&short).await;
    assert_eq!(bench.server.get(LOCK), Some(format!("shared:{}", short.token().as_str())));
    bench.granted(&long).await;
    assert_eq!(bench.kind_of(READERS), "zset");
    assert_eq!(bench.server.get(LOCK), Some(format!("shared:{}", long.token().as_str())));
    assert!(bench.server.pttl(LOCK) > 50_000, "it expires with the last of them");
    assert!(bench.server.pttl(READERS) > 50_000);
    // A plain client is kept out.
    assert_eq!(bench.ask(&["SET", LOCK, "plain", "NX", "PX", "1000"]), Reply::Bulk(None));
    let denial = bench.denied(&lock()).await;
    assert_eq!(holder(&denial), long.token());
    assert_eq!(denial.holder.unwrap().mode(), Mode::Shared);
    // When the one that it names leaves, it names another and ends with that one.
    assert!(bench.release(&long).await);
    assert_eq!(bench.server.get(LOCK), Some(format!("shared:{}", short.token().as_str())));
    assert!(bench.server.pttl(LOCK) <= 30_000);
    assert!(bench.renewed(&short).await);
    // The last one out takes everything along, and wakes.
    let mut wakeups = bench.store.wakeups(&on_lock(), None);
    timeout(LONG, wakeups.next()).await.unwrap();
    assert!(bench.release(&short).await);
    timeout(LONG, wakeups.next()).await.unwrap();
    assert_eq!(bench.server.keys("*"), [""; 0]);
    assert!(!bench.release(&short).await);
}

#[tokio::test]
async fn a_renewal_can_make_another_reader_the_last() {
    let bench = Bench::start().await;
    let (a, b) = (reader(TTL), reader(TTL + Duration::from_secs(5)));
    bench.granted(&a).await;
    bench.granted(&b).await;
    // The one that the marker names, first: the marker must last as long as it does.
    let longest = Attempt::one(b.token().clone(), Claim::shared(key("k"), TTL * 2 - Duration::from_secs(10)));
    assert!(bench.renewed(&longest).await);
    assert!(bench.server.pttl(LOCK) > 100_000);
    let longer = Attempt::one(a.token().clone(), Claim::shared(key("k"), TTL * 2));
    assert!(bench.renewed(&longer).await);
    assert_eq!(bench.server.get(LOCK), Some(format!("shared:{}", a.token().as_str())));
    assert!(bench.server.pttl(LOCK) > 110_000);
    assert!(bench.server.pttl(READERS) > 110_000);
    // Asked again, nothing moves.
    let before = bench.score(READERS, b.token());
    bench.granted(&b).await;
    assert_eq!(bench.score(READERS, b.token()), before);
}

#[tokio::test]
async fn readers_without_their_marker_are_stale() {
    let bench = Bench::start().await;
    let (old, new) = (reader(TTL), reader(TTL));
    bench.granted(&old).await;
    bench.ask(&["DEL", LOCK]);
    assert!(!bench.renewed(&old).await);
    assert!(bench.holders(&on_lock()).await.is_empty());
    let writer = lock();
    bench.granted(&writer).await;
    assert!(bench.release(&writer).await);
    bench.granted(&new).await;
    assert_eq!(bench.words(&["ZRANGE", READERS, "0", "-1"]), [new.token().as_str()]);
    assert!(!bench.release(&old).await);
    assert!(bench.release(&new).await);
}

#[tokio::test]
async fn an_expired_reader_does_not_count_among_the_others() {
    let bench = Bench::start().await;
    let (over, live) = (reader(TTL), reader(TTL / 2));
    bench.granted(&over).await;
    bench.granted(&live).await;
    bench.end(READERS, &over);
    assert!(!bench.renewed(&over).await);
    let shown: Vec<_> = bench.holders(&on_lock()).await.iter().map(|h| h.token().clone()).collect();
    assert_eq!(shown, [live.token().clone()]);
    assert!(!bench.release(&over).await);
    assert!(bench.renewed(&live).await, "the others are not its concern");
    assert!(bench.release(&live).await);
    assert_eq!(bench.server.keys("*"), [""; 0]);
}

#[tokio::test]
async fn another_clients_value_that_looks_like_a_marker_is_kept() {
    let bench = Bench::start().await;
    bench.ask(&["SET", LOCK, "shared:by somebody else", "PX", "60000"]);
    for attempt in [reader(TTL), lock()] {
        let denial = bench.denied(&attempt).await;
        assert_eq!(holder(&denial).as_str(), "shared:by somebody else");
        assert!(!bench.release(&attempt).await);
    }
    let shown = bench.holders(&on_lock()).await;
    assert_eq!(shown[0].mode(), Mode::Exclusive);
    assert_eq!(bench.server.get(LOCK).unwrap(), "shared:by somebody else");
    assert!(bench.store.revoke(&on_lock(), shown[0].token()).await.unwrap());
}

/// Proves: B7
#[tokio::test]
async fn new_readers_let_a_waiting_writer_go_first() {
    let bench = Bench::start().await;
    let (old, new) = (reader(TTL), reader(TTL));
    bench.granted(&old).await;
    bench.denied(&lock()).await;
    assert!(!bench.server.exists(WRITER), "one that does not wait is not remembered");
    let writer = waiting(lock());
    bench.denied(&writer).await;
    assert_eq!(bench.server.get(WRITER).unwrap(), writer.token().as_str());
    assert!((1..=5_000).contains(&bench.server.pttl(WRITER)));

    let denial = bench.denied(&new).await;
    assert_eq!(holder(&denial), old.token());
    assert!(denial.retry_after.unwrap() <= Duration::from_secs(5));
    bench.granted(&old).await;
    assert!(bench.renewed(&old).await);
    // The key is free, but promised.
    assert!(bench.release(&old).await);
    let denial = bench.denied(&new).await;
    assert_eq!(denial.holder, None);
    assert!(denial.retry_after.unwrap() <= Duration::from_secs(5));
    bench.granted(&writer).await;
    assert!(!bench.server.exists(WRITER), "a grant ends the promise");
    assert!(bench.release(&writer).await);
    bench.granted(&new).await;

    // A writer that gives up lets the readers in, and tells them.
    let writers = [
        waiting(lock()),
        waiting(several(vec![Claim::exclusive(key("k"), TTL), Claim::duplicate(key("k"), TTL)])),
    ];
    for writer in writers {
        bench.denied(&writer).await;
        bench.denied(&reader(TTL)).await;
        let mut wakeups = bench.store.wakeups(&on_lock(), None);
        timeout(LONG, wakeups.next()).await.unwrap();
        assert!(!bench.release(&writer).await);
        timeout(LONG, wakeups.next()).await.unwrap();
        bench.granted(&reader(TTL)).await;
    }
}

/// Proves: B7
#[tokio::test]
async fn a_later_writer_takes_the_note_over_and_the_earlier_one_leaves_it() {
    let bench = Bench::start().await;
    let (old, first, second) = (reader(TTL), waiting(lock()), waiting(fenced(0)));
    bench.granted(&old).await;
    bench.denied(&first).await;
    bench.denied(&second).await;
    assert!(!bench.release(&first).await);
    assert_eq!(bench.server.get(WRITER).unwrap(), second.token().as_str());
    assert!(bench.release(&old).await);
    bench.granted(&second).await;
    assert!(!bench.server.exists(WRITER));
}
