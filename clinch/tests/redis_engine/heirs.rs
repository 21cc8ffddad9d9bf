//! Locks that are handed over: who comes next stands in the note beside the key, with a `>` before it.

use std::time::Duration;

use clinch::lease::{Attempt, Claim, Patience};
use clinch::store::{Capabilities, Store as _};
use tokio::time::{Instant, timeout};

use crate::common::{
    Bench, CONFIRM, LOCK, LONG, QUEUE, TTL, WRITER, fenced, holder, key, lock, on_lock, queued, reader,
    several, waiting,
};

/// One that can inherit.
fn inheriting(attempt: Attempt) -> Attempt {
    inheriting_for(attempt, CONFIRM)
}

fn inheriting_for(attempt: Attempt, confirm: Duration) -> Attempt {
    attempt.with_patience(Patience::Wait { until: Instant::now() + LONG, again_within: CONFIRM, confirm })
}

fn value(bench: &Bench) -> Option<String> {
    bench.server.get(LOCK)
}

/// What the note says, but for the moment at which the heir asked.
fn noted(bench: &Bench) -> Option<(String, String)> {
    let note = bench.server.get(WRITER)?;
    let mut words = note.splitn(3, ' ').map(str::to_owned);
    let (kept_for, _asked, token) = (words.next()?, words.next()?, words.next()?);
    Some((kept_for, token))
}

fn said_of(heir: &Attempt) -> Option<(String, String)> {
    Some((format!(">{}", CONFIRM.as_millis()), heir.token().as_str().to_owned()))
}

/// Proves: B5
/// The release sets the key to the heir's token, in the same step and only for its confirm time, and tells all who wait to whom and
/// since when. No client sees the key free.
#[tokio::test]
async fn a_release_hands_the_key_over_to_its_heir() {
    let bench = Bench::start().await;
    assert!(bench.store.capabilities().heirs);
    let (lease, heir, other) = (inheriting(lock()), inheriting(lock()), inheriting(lock()));
    bench.granted(&lease).await;
    bench.denied(&heir).await;
    let after = Instant::now();
    assert_eq!(noted(&bench), said_of(&heir));
    assert!(bench.server.pttl(WRITER) <= 2_500, "half of the time for which the key is kept");
    // Asked again, it is known for longer.
    bench.denied(&heir).await;
    assert_eq!(noted(&bench), said_of(&heir));
    let after_again = Instant::now();

    let mut streams = [bench.store.wakeups(&on_lock(), None), bench.store.wakeups(&on_lock(), None)];
    for stream in &mut streams {
        timeout(LONG, stream.next()).await.unwrap();
        assert_eq!(stream.kept(), None);
    }
    let release = bench.store.release(&lease).await.unwrap();
    assert!(release.held && release.woken == Some(2), "{release:?}");
    assert_eq!(value(&bench).as_deref(), Some(heir.token().as_str()));
    assert!((1..=5_000).contains(&bench.server.pttl(LOCK)));
    assert_eq!(bench.server.get(WRITER), None);
    for stream in &mut streams {
        timeout(LONG, stream.next()).await.unwrap();
        let news = stream.kept().unwrap();
        assert_eq!(news.since_for(other.token()), None);
        let since = news.since_for(heir.token()).unwrap() + Duration::from_micros(1);
        assert!(after <= since && since <= after_again, "{after:?} {since:?} {after_again:?}");
        assert_eq!(stream.kept(), None, "told once");
    }
    // Who is told that it is not the one asks, and comes next.
    assert_eq!(holder(&bench.denied(&other).await), heir.token());
    assert_eq!(noted(&bench), said_of(&other));
    assert!(bench.release(&heir).await);
    assert_eq!(value(&bench).as_deref(), Some(other.token().as_str()));
    assert!(bench.release(&other).await);
    assert!(bench.server.keys("clinch:*").is_empty());
}

/// Proves: B5
/// Where several wait nobody inherits: who comes back at once would be next before those who wait, and two could share the key for
/// ever. The first to ask has it, as long as that is remembered.
#[tokio::test]
async fn of_several_who_wait_nobody_inherits() {
    let bench = Bench::start().await;
    let (lease, one, two) = (inheriting(lock()), inheriting(lock()), inheriting(lock()));
    bench.granted(&lease).await;
    bench.denied(&one).await;
    bench.denied(&two).await;
    for waits in [&one, &two, &one] {
        bench.denied(waits).await;
        assert_eq!(bench.server.get(WRITER).as_deref(), Some("!"));
    }
    assert!((1..=5_000).contains(&bench.server.pttl(WRITER)));
    assert!(bench.release(&lease).await);
    assert_eq!(value(&bench), None);
    bench.granted(&two).await;
    bench.denied(&one).await;
    assert!(bench.release(&two).await);
    assert_eq!(value(&bench), None);
    // Once it is forgotten, one that waits alone is next again.
    bench.granted(&two).await;
    bench.ask(&["DEL", WRITER]);
    bench.denied(&one).await;
    assert_eq!(noted(&bench), said_of(&one));
}

/// A renewal gives the heir its whole time, and so does asking again: also where it does not know that it was handed the key.
#[tokio::test]
async fn an_heir_that_renews_or_asks_again_has_its_ttl() {
    let bench = Bench::start().await;
    let (lease, asks, renews) = (inheriting(lock()), inheriting(lock()), inheriting(lock()));
    bench.granted(&lease).await;
    bench.denied(&asks).await;
    assert!(bench.release(&lease).await);
    bench.granted(&asks).await;
    assert!(bench.server.pttl(LOCK) > 50_000);
    bench.denied(&renews).await;
    assert!(bench.release(&asks).await);
    assert!(bench.server.pttl(LOCK) <= 5_000);
    assert!(bench.renewed(&renews).await);
    assert!(bench.server.pttl(LOCK) > 50_000);
    // However little it waits by now: what it has was only kept for it.
    let late = inheriting(lock());
    bench.denied(&late).await;
    assert!(bench.release(&renews).await);
    let over = Patience::Wait { until: Instant::now(), again_within: CONFIRM, confirm: CONFIRM };
    let late = Attempt::one(late.token().clone(), Claim::exclusive(key("k"), TTL)).with_patience(over);
    bench.granted(&late).await;
    assert!(bench.server.pttl(LOCK) > 50_000);
}

/// Nobody inherits who has gone: a release withdraws him, and his note, and nobody else's. Whoever asks for a key that became free
/// otherwise has no note any more either.
#[tokio::test]
async fn who_leaves_or_is_granted_comes_next_no_longer() {
    let bench = Bench::start().await;
    let (lease, heir, other) = (inheriting(lock()), inheriting(lock()), inheriting(lock()));
    bench.granted(&lease).await;
    bench.denied(&heir).await;
    assert!(!bench.release(&other).await, "it waits nowhere");
    assert_eq!(noted(&bench), said_of(&heir));
    assert!(!bench.release(&heir).await);
    assert_eq!(bench.server.get(WRITER), None);
    assert_eq!(value(&bench).as_deref(), Some(lease.token().as_str()));
    bench.denied(&heir).await;
    bench.ask(&["DEL", LOCK]);
    bench.granted(&heir).await;
    assert_eq!(bench.server.get(WRITER), None);
    assert!(bench.release(&heir).await);
    assert_eq!(value(&bench), None, "it does not inherit from itself");
}

/// Proves: B7
/// Readers, attempts with a fence, in the queue or for several keys wait as well and cannot inherit. They make it open again who is
/// next, so that they come to their chance.
#[tokio::test]
async fn one_that_cannot_inherit_leaves_it_to_chance() {
    let bench = Bench::start().await;
    let two = || Claim::exclusive(key("other"), TTL);
    let others = [
        waiting(reader(TTL)),
        waiting(fenced(0)),
        waiting(lock()),
        waiting(several(vec![Claim::exclusive(key("k"), TTL), two()])),
        queued(lock()),
    ];
    for other in others {
        let (lease, heir) = (inheriting(lock()), inheriting(lock()));
        bench.granted(&lease).await;
        bench.denied(&heir).await;
        assert_eq!(noted(&bench), said_of(&heir));
        bench.denied(&other).await;
        // However often the other one asks again.
        bench.denied(&heir).await;
        assert_eq!(bench.server.get(WRITER).as_deref(), Some("!"), "{other:?}");
        assert!(bench.release(&lease).await);
        assert_eq!(value(&bench), None, "{other:?}");
        // Nor is that forgotten when a writer has its turn.
        let writer = inheriting(lock());
        bench.granted(&writer).await;
        bench.denied(&heir).await;
        assert!(bench.release(&writer).await);
        assert_eq!(value(&bench), None, "{other:?}");
        // It promises nothing to a writer: readers may come.
        let looks = reader(TTL);
        bench.granted(&looks).await;
        assert!(bench.release(&looks).await);
        assert!(!bench.release(&other).await && !bench.release(&heir).await);
        bench.ask(&["DEL", WRITER]);
    }
    // One that only tries waits for nothing, and says nothing of those who do.
    let (lease, heir) = (inheriting(lock()), inheriting(lock()));
    bench.granted(&lease).await;
    bench.denied(&heir).await;
    for one in [lock(), reader(TTL), fenced(0)] {
        bench.denied(&one).await;
    }
    assert_eq!(noted(&bench), said_of(&heir));
    assert!(!bench.server.keys("clinch:*").iter().any(|key| key == QUEUE));
}

/// A lease that nobody waited to have looks for nobody: its release is the shortest.
#[tokio::test]
async fn what_was_tried_for_is_not_handed_over() {
    let bench = Bench::start().await;
    let (lease, heir) = (lock(), inheriting(lock()));
    bench.granted(&lease).await;
    bench.denied(&heir).await;
    assert!(bench.release(&lease).await);
    assert_eq!(value(&bench), None);
    bench.granted(&heir).await;
    assert_eq!(bench.server.get(WRITER), None);
}

/// Fault: 26
/// A release that finds no memory to hand the key over deletes it, and the heir, who is woken as all are, asks.
#[tokio::test]
async fn without_memory_the_key_is_deleted() {
    let bench = Bench::start().await;
    let (lease, heir) = (inheriting(lock()), inheriting(lock()));
    bench.granted(&lease).await;
    bench.denied(&heir).await;
    let mut stream = bench.store.wakeups(&on_lock(), None);
    timeout(LONG, stream.next()).await.unwrap();
    bench.out_of_memory();
    assert!(bench.release(&lease).await);
    assert_eq!(value(&bench), None);
    timeout(LONG, stream.next()).await.unwrap();
    assert_eq!(stream.kept(), None);
}

/// Proves: L12
/// An heir's token is a plain value like any holder's, so that clients which only know `SET NX PX` are kept out; and what is no note
/// of ours is nobody's.
#[tokio::test]
async fn strangers_are_kept_out_and_strange_notes_ignored() {
    let bench = Bench::start().await;
    let (lease, heir) = (inheriting(lock()), inheriting(lock()));
    bench.granted(&lease).await;
    bench.denied(&heir).await;
    assert!(bench.release(&lease).await);
    let stranger = bench.ask(&["SET", LOCK, "stranger", "NX", "PX", "1000"]);
    assert_eq!(stranger.text(), None, "{stranger:?}");
    assert!(bench.release(&heir).await);
    for strange in [">", "> ", ">x y z", ">1000", ">1000 5", ">-1 5 t", "\u{0}"] {
        let lease = inheriting(lock());
        bench.granted(&lease).await;
        bench.ask(&["SET", WRITER, strange]);
        assert!(bench.release(&lease).await, "{strange:?}");
        assert_eq!(value(&bench), None, "{strange:?}");
    }
    let lease = inheriting(lock());
    bench.granted(&lease).await;
    bench.ask(&["RPUSH", WRITER, "a list"]);
    assert!(bench.release(&lease).await);
    assert_eq!(value(&bench), None);
}

/// Where replicas must confirm grants, none is made that they have not seen: nothing is handed over.
#[tokio::test]
async fn what_replicas_must_confirm_is_asked_for() {
    let bench = Bench::start().await;
    let without = |url: String| async move { Bench::connect_to(&url).await.capabilities() };
    let confirmed = without(format!("{}?replicas=1", bench.server.url())).await;
    let plain: Capabilities = without(bench.server.url()).await;
    assert!(plain.heirs && !confirmed.heirs);
}
