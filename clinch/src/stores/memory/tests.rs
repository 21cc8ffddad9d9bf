//! What only this store promises: its bound, that nothing stays behind, and what it counts. The rest is the conformance
//! suite's.

use std::num::NonZeroU32;
use std::time::Duration;

use futures_util::FutureExt;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::time::Instant;

use super::*;
use crate::key::Key;
use crate::lease::{Claim, Fence, Mode, Patience, Record};

const TTL: Duration = Duration::from_secs(10);

fn key() -> Key {
    Key::new("k").unwrap()
}

fn token(name: &str) -> Token {
    Token::from_text(name)
}

fn writer(name: &str) -> Attempt {
    Attempt::one(token(name), Claim::exclusive(key(), TTL))
}

fn reader(name: &str) -> Attempt {
    Attempt::one(token(name), Claim::shared(key(), TTL))
}

fn permit(name: &str) -> Attempt {
    Attempt::one(token(name), Claim::permit(key(), NonZeroU32::new(3).unwrap(), TTL))
}

fn window(name: &str, key: &str) -> Attempt {
    Attempt::one(token(name), Claim::duplicate(Key::new(key).unwrap(), TTL))
}

fn waiting(name: &str) -> Attempt {
    writer(name).with_patience(Patience::Wait {
        until: Instant::now() + TTL,
        again_within: TTL,
        confirm: Duration::ZERO,
    })
}

fn queued(name: &str) -> Attempt {
    let confirm = Duration::from_secs(1);
    writer(name).with_patience(Patience::Queue { until: Instant::now() + TTL, confirm })
}

async fn granted(store: &MemoryStore, attempt: &Attempt) -> Vec<Option<Fence>> {
    match store.acquire(attempt).await.unwrap() {
        Verdict::Granted(grant) => grant.fences,
        Verdict::Denied(denial) => panic!("denied: {denial:?}"),
    }
}

async fn denied(store: &MemoryStore, attempt: &Attempt) {
    assert!(matches!(store.acquire(attempt).await.unwrap(), Verdict::Denied(_)));
}

/// Nothing is counted, and nothing is there that is not counted.
fn assert_empty(store: &MemoryStore) {
    assert_eq!(store.len(), 0);
    store.shared.gather_room();
    let entries: Vec<String> = store
        .shared
        .shards
        .iter()
        .map(|shard| locked(shard))
        .filter(|shard| !shard.is_empty())
        .map(|shard| format!("{shard:?}"))
        .collect();
    assert_eq!((store.len(), store.record_bytes(), entries), (0, 0, Vec::new()));
}

/// A sweep looks at plain holders only when the first of them may be over, whatever became of it meanwhile.
#[tokio::test(start_paused = true)]
async fn what_expires_is_swept_whoever_else_was_there() {
    let store = MemoryStore::new();
    let ask = |key: &str, token: &str, ttl: u64| {
        let claim = Claim::exclusive(Key::new(key).unwrap(), Duration::from_secs(ttl));
        Arc::new(Attempt::one(Token::from_text(token), claim))
    };
    let (short, renewed) = (ask("a", "short", 2), ask("b", "renewed", 2));
    let long = ask("c", "long", 60);
    for attempt in [&short, &renewed, &long] {
        let now = Instant::now();
        let verdict = store.acquire_now(Asks::Attempt(attempt.clone()), now).unwrap();
        assert_eq!(verdict, Verdict::granted());
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(matches!(store.shared.renew(&renewed), Renewal::Extended { .. }));
    tokio::time::sleep(Duration::from_millis(1500)).await;
    for shard in &store.shared.shards {
        locked(shard).sweep(Instant::now());
    }
    let left = |attempt: &Arc<Attempt>| {
        let on = attempt.claims()[0].on();
        store.shared.shard(on).holders_on(on, Instant::now()).len()
    };
    assert_eq!((left(&short), left(&renewed), left(&long)), (0, 1, 1));
    let size: usize = store.shared.shards.iter().map(|shard| locked(shard).size()).sum();
    assert_eq!(size, 2);
}

#[tokio::test(start_paused = true)]
async fn releases_leave_nothing_behind() {
    let store = MemoryStore::new();
    let attempts =
        [reader("r1"), reader("r2"), waiting("w"), queued("q1"), queued("q2"), permit("p1"), permit("p2")];
    for attempt in &attempts {
        store.acquire(attempt).await.unwrap();
    }
    assert_eq!(store.len(), attempts.len());
    let streams =
        [store.wakeups(&ClaimKey::lock(key()), None), store.wakeups(permit("p").claims()[0].on(), None)];
    // Twice: the first in the queue may have become the heir of the readers.
    for attempt in attempts.iter().chain(&attempts) {
        store.release(attempt).await.unwrap();
    }
    drop(streams);
    assert_empty(&store);
}

#[tokio::test(start_paused = true)]
async fn what_has_expired_is_swept() {
    let store = MemoryStore::new();
    for attempt in
        [reader("r1"), reader("r2"), waiting("w"), queued("q1"), queued("q2"), permit("p1"), permit("p2")]
    {
        store.acquire(&attempt).await.unwrap();
    }
    // Nobody looks at the keys again, and the writer's note outlives every reader.
    tokio::time::sleep(TTL / 2).await;
    denied(&store, &waiting("w")).await;
    tokio::time::sleep(TTL * 2).await;
    assert_empty(&store);
}

#[tokio::test(start_paused = true)]
async fn a_note_alone_is_swept() {
    let store = MemoryStore::new();
    granted(&store, &reader("r")).await;
    denied(&store, &waiting("w")).await;
    store.release(&reader("r")).await.unwrap();
    assert_eq!(store.len(), 1);
    tokio::time::sleep(TTL + Duration::from_secs(2)).await;
    assert_empty(&store);
}

#[tokio::test(start_paused = true)]
async fn heirs_that_never_come_leave_nothing_behind() {
    let store = MemoryStore::new();
    granted(&store, &queued("a")).await;
    denied(&store, &queued("b")).await;
    assert_eq!(store.len(), 2);
    assert!(store.release(&queued("a")).await.unwrap().held);
    assert_eq!(store.len(), 1);
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_empty(&store);
}

#[tokio::test(start_paused = true)]
async fn the_bound_counts_all_who_hold_or_wait() {
    let store = MemoryStore::new().with_max_leases(3);
    let full = async |attempt: &Attempt| {
        let error = store.acquire(attempt).await.unwrap_err();
        assert_eq!((error.kind(), error.effect()), (ErrorKind::Full, crate::store::Effect::NotApplied));
    };
    granted(&store, &permit("p1")).await;
    granted(&store, &permit("p2")).await;
    granted(&store, &queued("q1")).await;
    full(&permit("p3")).await;
    full(&queued("q2")).await;
    assert!(store.release(&permit("p1")).await.unwrap().held);
    denied(&store, &queued("q2")).await;
    full(&permit("p3")).await;
    // A place in the queue becomes a place on the key: that needs no room.
    assert!(store.release(&queued("q1")).await.unwrap().held);
    granted(&store, &permit("p3")).await;
    granted(&store, &queued("q2")).await;
    assert_eq!(store.len(), 3);
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_finds_no_room_hands_nothing_over() {
    let store = MemoryStore::new().with_max_leases(2);
    granted(&store, &queued("a")).await;
    let late = writer("b")
        .with_patience(Patience::Queue { until: Instant::now() + TTL * 3, confirm: Duration::from_secs(1) });
    denied(&store, &late).await;
    tokio::time::sleep(TTL).await;
    granted(&store, &permit("p")).await;
    assert_eq!(store.acquire(&queued("c")).await.unwrap_err().kind(), ErrorKind::Full);
    assert!(store.inspect(&ClaimKey::lock(key())).await.unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_writer_without_room_for_its_note_is_denied_all_the_same() {
    let store = MemoryStore::new().with_max_leases(1);
    granted(&store, &reader("r")).await;
    denied(&store, &waiting("w")).await;
    assert_eq!(store.len(), 1);
    assert!(store.release(&reader("r")).await.unwrap().held);
    granted(&store, &reader("r2")).await;
}

/// Whether a record of this many bytes was taken. One that was not leaves the lease as it is.
async fn completed(store: &MemoryStore, lease: &Attempt, bytes: usize, ttl: Option<Duration>) -> bool {
    granted(store, lease).await;
    match store.complete(lease, &Record::new(vec![7; bytes]), ttl).await {
        Ok(release) => {
            assert!(release.held);
            true
        }
        Err(error) => {
            assert_eq!((error.kind(), error.effect()), (ErrorKind::Full, crate::store::Effect::NotApplied));
            assert!(error.is_retryable());
            let holders = store.inspect(lease.claims()[0].on()).await.unwrap();
            assert_eq!(holders.iter().map(Holder::token).collect::<Vec<_>>(), [lease.token()]);
            assert!(matches!(store.renew(lease).await.unwrap(), Renewal::Extended { .. }));
            false
        }
    }
}

#[tokio::test(start_paused = true)]
async fn records_take_no_more_memory_than_they_may() {
    let store = MemoryStore::new().with_max_record_bytes(1_000).with_max_leases(100);
    assert!(completed(&store, &window("a", "a"), 600, None).await);
    assert!(completed(&store, &window("b", "b"), 400, Some(TTL * 3)).await);
    assert_eq!((store.record_bytes(), store.len()), (1_000, 2));
    assert!(!completed(&store, &window("c", "c"), 1, None).await);
    assert!(!completed(&store, &window("d", "d"), 1 << 20, None).await);
    assert!(completed(&store, &window("e", "e"), 0, None).await, "nothing needs no room");
    // Sent again, it needs no room, nor does it give any back.
    assert!(store.complete(&window("a", "a"), &Record::new(vec![7; 600]), None).await.unwrap().held);
    assert_eq!(store.record_bytes(), 1_000);
    // What has expired makes room, swept or not.
    tokio::time::sleep(TTL).await;
    assert!(completed(&store, &window("f", "f"), 600, None).await);
    assert_eq!(store.record_bytes(), 1_000);
    store.forget_everything();
    assert_empty(&store);
    assert!(completed(&store, &window("a", "a"), 1_000, None).await);
}

#[tokio::test(start_paused = true)]
async fn a_record_has_the_place_of_its_lease() {
    let store = MemoryStore::new().with_max_leases(1);
    assert!(completed(&store, &window("a", "a"), 10, Some(TTL * 2)).await);
    assert_eq!(store.acquire(&window("b", "b")).await.unwrap_err().kind(), ErrorKind::Full);
    tokio::time::sleep(TTL + TTL / 2).await;
    assert_eq!((store.len(), store.record_bytes()), (1, 10), "it outlives the lease");
    tokio::time::sleep(TTL).await;
    assert_empty(&store);
}

#[tokio::test(start_paused = true)]
async fn a_small_part_of_something_large_does_not_keep_it_alive() {
    let store = MemoryStore::new();
    let large = bytes::Bytes::from(vec![7; 1 << 20]);
    granted(&store, &window("a", "a")).await;
    let record = Record::new(large.slice(..3));
    assert!(store.complete(&window("a", "a"), &record, None).await.unwrap().held);
    drop(record);
    assert!(large.is_unique());
}

#[tokio::test(start_paused = true)]
async fn a_completion_counts_whom_it_wakes() {
    let store = MemoryStore::new();
    let lease = window("a", "a");
    let streams = [store.wakeups(lease.claims()[0].on(), None), store.wakeups(lease.claims()[0].on(), None)];
    granted(&store, &lease).await;
    assert_eq!(store.complete(&window("b", "a"), &Record::default(), None).await.unwrap().woken, Some(0));
    assert_eq!(store.complete(&lease, &Record::default(), None).await.unwrap().woken, Some(2));
    assert_eq!(store.complete(&lease, &Record::default(), None).await.unwrap().woken, Some(0));
    drop(streams);
}

#[tokio::test(start_paused = true)]
async fn a_release_counts_whom_it_wakes() {
    let store = MemoryStore::new();
    let on = ClaimKey::lock(key());
    let mut streams: Vec<_> =
        [None, Some("b"), Some("c")].map(|name| store.wakeups(&on, name.map(token).as_ref())).into();
    for stream in &mut streams {
        stream.next().await;
    }
    granted(&store, &writer("a")).await;
    assert_eq!(store.release(&writer("a")).await.unwrap().woken, Some(3));
    assert_eq!(store.release(&writer("a")).await.unwrap().woken, Some(0));
    for stream in &mut streams {
        stream.next().await;
    }
    granted(&store, &queued("a")).await;
    denied(&store, &queued("b")).await;
    assert_eq!(store.release(&queued("a")).await.unwrap().woken, Some(1));
    assert_eq!(
        streams.iter_mut().map(|s| s.next().now_or_never().is_some()).collect::<Vec<_>>(),
        [false, true, false]
    );
    // A reader that leaves others behind wakes nobody.
    store.forget_everything();
    granted(&store, &reader("r1")).await;
    granted(&store, &reader("r2")).await;
    assert_eq!(store.release(&reader("r1")).await.unwrap().woken, Some(0));
    assert_eq!(store.release(&reader("r2")).await.unwrap().woken, Some(3));
}

#[tokio::test(start_paused = true)]
async fn fences_rise_after_everything_was_forgotten() {
    let store = MemoryStore::new();
    let fenced =
        |name, floor| Attempt::one(token(name), Claim::exclusive(key(), TTL).fenced(Fence::new(floor)));
    let first = granted(&store, &fenced("a", 0)).await[0].unwrap();
    store.forget_everything();
    // The counter is lost, so the number is the clock's, unless the caller knows better.
    let second = granted(&store, &fenced("b", first.get() + 1)).await[0].unwrap();
    assert_eq!(second.get(), first.get() + Fence::STEP);
    store.forget_everything();
    tokio::time::sleep(Duration::from_millis(1)).await;
    let third = granted(&store, &fenced("c", 0)).await[0].unwrap();
    assert!(third > second && third.get() % Fence::STEP == 0);
}

#[tokio::test(start_paused = true)]
async fn a_floor_beyond_all_numbers_does_not_overflow() {
    let store = MemoryStore::new();
    let fenced = Attempt::one(token("a"), Claim::exclusive(key(), TTL).fenced(Fence::new(u64::MAX)));
    assert_eq!(granted(&store, &fenced).await, [Some(Fence::new(u64::MAX))]);
}

/// One of the attempts that few names on few keys can make.
fn any_attempt(rng: &mut StdRng) -> Attempt {
    let name = format!("t{}", rng.random_range(0..8));
    let ms = |rng: &mut StdRng| Duration::from_millis(rng.random_range(1..400));
    let claim = |rng: &mut StdRng, key: &str| {
        let (key, ttl) = (Key::new(key).unwrap(), ms(rng));
        match rng.random_range(0..5) {
            0 => Claim::shared(key, ttl),
            1 => Claim::permit(key, NonZeroU32::new(rng.random_range(1..4)).unwrap(), ttl),
            2 => Claim::duplicate(key, ttl),
            3 => Claim::exclusive(key, ttl).fenced(Fence::new(0)),
            _ => Claim::exclusive(key, ttl),
        }
    };
    let keys = ["a", "b", "c"];
    let patience = match rng.random_range(0..4) {
        0 => {
            Patience::Wait { until: Instant::now() + ms(rng), again_within: ms(rng), confirm: Duration::ZERO }
        }
        1 => Patience::Queue { until: Instant::now() + ms(rng), confirm: ms(rng) },
        2 => Patience::Queue { until: Instant::now(), confirm: ms(rng) },
        _ => Patience::Try,
    };
    if let Patience::Queue { .. } = patience {
        let key = Key::new(keys[rng.random_range(0..keys.len())]).unwrap();
        return Attempt::one(token(&name), Claim::exclusive(key, ms(rng))).with_patience(patience);
    }
    let first = rng.random_range(0..keys.len());
    let claims = keys[first..].iter().map(|key| claim(rng, key)).collect();
    Attempt::new(token(&name), claims).unwrap().with_patience(patience)
}

/// Whatever is done in whatever order: what is counted is what is there, no place is given twice, and time clears all.
#[tokio::test(start_paused = true)]
async fn nothing_that_is_done_breaks_the_books() {
    let mut finished = 0;
    for seed in 0..40 {
        let mut rng = StdRng::seed_from_u64(seed);
        let store = MemoryStore::new().with_max_leases(12).with_max_record_bytes(200);
        for step in 0..600 {
            let attempt = any_attempt(&mut rng);
            match rng.random_range(0..12) {
                0..=5 => drop(store.acquire(&attempt).await),
                6 | 7 => drop(store.release(&attempt).await.unwrap()),
                8 => drop(store.renew(&attempt).await.unwrap()),
                9 | 10 => {
                    // One on a key that others want too; of whatever else an attempt is made, most cannot be finished.
                    let lease = window(attempt.token().as_str(), "c");
                    let record = Record::new(vec![7; rng.random_range(0..100)]);
                    let ttl = Duration::from_millis(rng.random_range(0..400));
                    let ttl = Some(ttl).filter(|ttl| ttl.as_millis() % 2 == 0);
                    let release = store.complete(&lease, &record, ttl).await;
                    finished += usize::from(release.is_ok_and(|release| release.held));
                }
                _ => drop(store.revoke(attempt.claims()[0].on(), attempt.token()).await.unwrap()),
            }
            if rng.random_range(0..4) == 0 {
                tokio::time::sleep(Duration::from_millis(rng.random_range(1..200))).await;
            }
            let there: usize = store.shared.shards.iter().map(|shard| locked(shard).size()).sum();
            assert_eq!(store.len(), there, "seed {seed}, step {step}, {attempt:?}");
            assert!(there <= 12, "seed {seed}, step {step}: {there} in memory");
            assert!(store.record_bytes() <= 200, "seed {seed}, step {step}: {}", store.record_bytes());
            for claim in attempt.claims() {
                let holders = store.inspect(claim.on()).await.unwrap();
                let alone = holders.iter().filter(|holder| holder.mode() == Mode::Exclusive).count();
                assert!(alone == 0 || holders.len() == 1, "seed {seed}, step {step}: {holders:?}");
                let permits = holders.iter().filter(|h| matches!(h.mode(), Mode::Permit { .. })).count();
                assert!(permits <= 3, "seed {seed}, step {step}: {holders:?}");
            }
        }
        tokio::time::sleep(Duration::from_secs(3)).await;
        assert_empty(&store);
    }
    assert!(finished > 40, "{finished} leases were finished");
}
