//! Records: what a finished lease leaves in its own key.

use std::time::Duration;

use clinch::lease::{Attempt, Claim, ClaimKey, Record, Space, Token};
use clinch::store::{Cursor, Denial, Effect, ErrorKind, Release, Store, StoreError, Verdict};
use clinch::stores::StoreOptions;
use clinch::stores::redis::RedisStore;
use clinch_testkit::proxy::{Action, Command, FaultProxy, Rule};
use clinch_testkit::server::{RedisServer, Reply};
use tokio::time::timeout;

use crate::common::{
    Bench, LOCK, LONG, SEM, TTL, denied, eventually, granted, holder, key, lock, of, on_lock, one, several,
};

const DUP: &str = "clinch:dup:k";
const IDEM: &str = "clinch:idem:k";

/// No text in any encoding, and everything that a protocol or a script could stumble over.
const BYTES: &[u8] = b"\0\xff\r\n$5\r\ndone:\n\xc3(%s";

fn window() -> Attempt {
    one(Claim::duplicate(key("k"), TTL))
}

fn on_window() -> ClaimKey {
    ClaimKey { space: Space::Duplicate, key: key("k") }
}

/// What stands in a key whose lease left this behind.
fn wire(lease: &Attempt, record: &[u8]) -> Vec<u8> {
    [b"done:", lease.token().as_str().as_bytes(), b"\n", record].concat()
}

/// The record with which an attempt is denied.
fn done(denial: &Denial) -> &[u8] {
    assert!(denial.holder.is_none(), "{denial:?}");
    denial.done.as_ref().unwrap().as_bytes()
}

fn held(answer: Result<Release, StoreError>) -> bool {
    answer.unwrap().held
}

impl Bench {
    fn value(&self, key: &str) -> Vec<u8> {
        let Reply::Bulk(Some(value)) = self.ask(&["GET", key]) else { panic!("there is no {key}") };
        value
    }

    fn put(&self, key: &str, value: &[u8]) {
        let reply = self.server.command(&[&b"SET"[..], key.as_bytes(), value]);
        assert!(!reply.is_error(), "{reply:?}");
    }

    async fn complete(&self, lease: &Attempt, record: &[u8], ttl: Option<Duration>) -> bool {
        held(self.store.complete(lease, &Record::new(record.to_vec()), ttl).await)
    }
}

#[tokio::test]
async fn a_record_stands_in_the_place_of_the_token() {
    let bench = Bench::start().await;
    for (claim, name) in [(Claim::duplicate(key("k"), TTL), DUP), (Claim::idempotent(key("k"), TTL), IDEM)] {
        let lease = one(claim);
        bench.granted(&lease).await;
        assert_eq!(bench.value(name), lease.token().as_str().as_bytes());
        assert!(bench.complete(&lease, BYTES, Some(TTL * 2)).await);
        assert_eq!(bench.kind_of(name), "string");
        assert_eq!(bench.value(name), wire(&lease, BYTES));
        assert!((100_000..=120_000).contains(&bench.server.pttl(name)));
        assert_eq!(done(&bench.denied(&lease).await), BYTES);
    }
    assert_eq!(bench.server.keys("*"), [DUP, IDEM], "and nothing beside it");
}

#[tokio::test]
async fn without_a_time_the_expiry_of_the_lease_is_kept() {
    let bench = Bench::start().await;
    let lease = window();
    bench.granted(&lease).await;
    bench.ask(&["PEXPIRE", DUP, "40000"]);
    assert!(bench.complete(&lease, b"x", None).await);
    assert!((30_000..=40_000).contains(&bench.server.pttl(DUP)), "{}", bench.server.pttl(DUP));

    // Nothing stays for ever because somebody took its expiry away.
    bench.ask(&["DEL", DUP]);
    bench.granted(&lease).await;
    bench.ask(&["PERSIST", DUP]);
    assert!(bench.complete(&lease, b"x", None).await);
    assert!((50_000..=60_000).contains(&bench.server.pttl(DUP)), "{}", bench.server.pttl(DUP));

    // Less than a millisecond is one, not none and not for ever.
    bench.ask(&["DEL", DUP]);
    bench.granted(&lease).await;
    assert!(bench.complete(&lease, b"x", Some(Duration::ZERO)).await);
    eventually("the record expires", || !bench.server.exists(DUP)).await;
}

#[tokio::test]
async fn only_where_records_are_kept_is_a_value_read_as_one() {
    let bench = Bench::start().await;
    for name in [LOCK, DUP, IDEM] {
        bench.put(name, b"done:somebody\nsomething");
    }
    // On a lock it is another client's value like any other.
    let foreign = Token::from_text("done:somebody\nsomething");
    assert_eq!(*holder(&bench.denied(&lock()).await), foreign);
    assert_eq!(*bench.holders(&on_lock()).await[0].token(), foreign);
    let both = several(vec![Claim::exclusive(key("k"), TTL), Claim::duplicate(key("k"), TTL)]);
    assert_eq!(*holder(&bench.denied(&both).await), foreign);
    assert!(bench.store.revoke(&on_lock(), &foreign).await.unwrap());

    let denial = bench.denied(&window()).await;
    assert_eq!((done(&denial), denial.retry_after), (&b"something"[..], None), "it has no expiry");
    assert_eq!(done(&bench.denied(&one(Claim::idempotent(key("k"), TTL))).await), b"something");
    assert!(bench.holders(&on_window()).await.is_empty());
    assert!(bench.store.list(Cursor::START).await.unwrap().holders.is_empty());
    assert!(!bench.store.revoke(&on_window(), &Token::from_text("somebody")).await.unwrap());

    // One that says nothing after its first word says nothing.
    bench.put(DUP, b"done:");
    assert_eq!(done(&bench.denied(&window()).await), b"");
    // And what does not begin like one is another client's, text or not.
    bench.put(DUP, b"\xffdone:x\n");
    let denial = bench.denied(&window()).await;
    assert!(denial.done.is_none() && denial.holder.is_some(), "{denial:?}");
    assert_eq!(bench.holders(&on_window()).await.len(), 1);
}

/// Speed: what a guard does is one short step, and what is finished costs the next one no more than to learn of it.
#[tokio::test]
async fn each_step_is_one_command() {
    let bench = Bench::start().await;
    let warm = one(Claim::duplicate(key("warm"), TTL));
    bench.granted(&warm).await;
    assert!(bench.complete(&warm, b"", None).await);
    bench.denied(&one(Claim::duplicate(key("warm"), TTL))).await;
    bench.forget_statistics();
    let lease = window();
    bench.granted(&lease).await;
    let calls = bench.server.command_calls();
    assert_eq!((calls.get("evalsha"), calls.get("set"), calls.get("get")), (None, Some(&1), None));
    assert!(bench.complete(&lease, BYTES, Some(TTL)).await);
    let calls = bench.server.command_calls();
    assert_eq!((calls.get("evalsha"), calls.get("set"), calls.get("get")), (Some(&1), Some(&2), Some(&1)));
    // The second duplicate costs less than the first. The script tries a `SET` of its own.
    for (scripts, sets) in [(2, 4), (3, 5)] {
        bench.denied(&window()).await;
        let calls = bench.server.command_calls();
        assert_eq!(
            (calls.get("evalsha"), calls.get("set"), calls.get("eval")),
            (Some(&scripts), Some(&sets), None)
        );
    }
}

#[tokio::test]
async fn a_record_denies_several_claims_as_a_whole() {
    let bench = Bench::start().await;
    let lease = window();
    bench.granted(&lease).await;
    assert!(bench.complete(&lease, BYTES, None).await);
    let (window, permit) = (lease.claims()[0].clone(), Claim::permit(key("k"), of(1), TTL));
    for (claims, at) in [(vec![window.clone(), permit.clone()], 0), (vec![permit, window], 1)] {
        let denial = bench.denied(&several(claims)).await;
        assert_eq!((done(&denial), denial.claim), (BYTES, at));
        assert!(denial.retry_after.is_some_and(|after| after > TTL / 2 && after <= TTL));
        assert!(!bench.server.exists(SEM), "a permit was taken");
    }
}

#[tokio::test]
async fn a_key_of_another_type_is_reported_and_kept() {
    let bench = Bench::start().await;
    bench.ask(&["RPUSH", DUP, "precious"]);
    let error = bench.store.complete(&window(), &Record::new("x"), Some(TTL)).await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::WrongType, Effect::NotApplied), "{error}");
    assert_eq!(bench.words(&["LRANGE", DUP, "0", "-1"]), ["precious"]);
    let looked = bench.store.inspect(&on_window()).await.unwrap_err();
    assert_eq!(looked.kind(), ErrorKind::WrongType);
}

#[tokio::test]
async fn without_memory_nothing_is_finished_and_the_lease_stays() {
    let bench = Bench::start().await;
    let (lease, before) = (window(), one(Claim::idempotent(key("k"), TTL)));
    bench.granted(&lease).await;
    bench.granted(&before).await;
    assert!(bench.complete(&before, BYTES, None).await);
    bench.out_of_memory();
    for ttl in [None, Some(TTL)] {
        let error = bench.store.complete(&lease, &Record::new("x"), ttl).await.unwrap_err();
        assert_eq!((error.kind(), error.effect()), (ErrorKind::Full, Effect::NotApplied), "{error}");
        assert_eq!(bench.value(DUP), lease.token().as_str().as_bytes());
    }
    assert!(bench.renewed(&lease).await);
    // What was finished before needs no memory to be finished again.
    assert!(bench.complete(&before, b"other", Some(TTL * 9)).await);
    assert_eq!(bench.value(IDEM), wire(&before, BYTES));
    bench.server.config_set("maxmemory", "0");
    assert!(bench.complete(&lease, b"x", None).await);
    assert_eq!(bench.value(DUP), wire(&lease, b"x"));
}

#[tokio::test]
async fn a_lost_reply_is_asked_for_again_and_changes_nothing() {
    let bench = Bench::start().await;
    let proxy = FaultProxy::start(bench.server.addr()).await;
    let store = Bench::connect_to(&proxy.url()).await;
    for fault in [Action::CutAfterRequest, Action::CutMidReply(1), Action::Duplicate] {
        bench.server.flushall();
        let lease = window();
        granted(store.acquire(&lease).await);
        // By now the server knows this script too.
        assert!(!held(store.complete(&window(), &Record::default(), None).await));
        proxy.add(Rule::new(fault.clone()).lease_only());
        match store.complete(&lease, &Record::new(BYTES), Some(TTL)).await {
            Ok(release) => assert!(release.held && fault == Action::Duplicate),
            Err(error) => assert_eq!(error.effect(), Effect::Unknown, "{fault:?}: {error}"),
        }
        assert_eq!(proxy.rules_left(), 0);
        assert_eq!(bench.value(DUP), wire(&lease, BYTES), "{fault:?}");
        bench.ask(&["PEXPIRE", DUP, "30000"]);
        let again = store.complete(&lease, &Record::new("another"), Some(TTL)).await.unwrap();
        assert!(again.held && again.conclusive, "{fault:?}: {again:?}");
        assert_eq!(bench.value(DUP), wire(&lease, BYTES), "{fault:?}");
        assert!(bench.server.pttl(DUP) <= 30_000, "{fault:?}");
    }
}

/// A completion cannot overtake the acquire that was not answered: it goes over the same connection, behind it.
#[tokio::test]
async fn a_completion_follows_its_unanswered_acquire() {
    let bench = Bench::start().await;
    let proxy = FaultProxy::start(bench.server.addr()).await;
    let mut options = StoreOptions::default();
    options.call_timeout = Duration::from_secs(2);
    let store = RedisStore::connect(&proxy.url(), &options).await.unwrap();
    bench.granted(&one(Claim::duplicate(key("warm"), TTL))).await; // the script is known
    let lease = window();
    proxy.add(Rule::new(Action::HoldRequest).named("SET"));
    let error = store.acquire(&lease).await.unwrap_err();
    assert_eq!(error.effect(), Effect::Unknown);
    assert!(!lease.route().is_answered());
    // Others have a new connection by now, and there the key is still free.
    let look = store.inspect(&on_window()).await;
    assert!(look.unwrap().is_empty());
    proxy.release_held();
    let release = store.complete(&lease, &Record::new(BYTES), None).await.unwrap();
    assert_eq!((release.held, release.conclusive), (true, true));
    assert!(lease.route().is_answered());
    assert_eq!(bench.value(DUP), wire(&lease, BYTES));
    let on_it = |command: &Command| command.name == "SET" || command.arg(2).as_deref() == Some(DUP);
    let ends: Vec<_> = proxy.log().into_iter().filter(on_it).collect();
    assert_eq!(ends.first().unwrap().connection, ends.last().unwrap().connection, "{ends:?}");
}

#[tokio::test]
async fn a_server_that_forgot_the_script_gets_it_again() {
    let bench = Bench::start().await;
    for round in 0..2 {
        let lease = one(Claim::duplicate(key(&round.to_string()), TTL));
        bench.granted(&lease).await;
        bench.server.script_flush();
        assert!(bench.complete(&lease, BYTES, None).await);
        assert_eq!(bench.value(&format!("clinch:dup:{round}")), wire(&lease, BYTES));
    }
}

#[tokio::test]
async fn a_completion_tells_how_many_streams_it_fired() {
    let bench = Bench::start().await;
    let other = Bench::connect(&bench.server).await;
    let kept = || one(Claim::idempotent(key("k"), TTL));
    let (lease, on) = (kept(), ClaimKey { space: Space::Idempotency, key: key("k") });
    bench.granted(&lease).await;
    let mut streams = vec![
        bench.store.wakeups(&on, None),
        bench.store.wakeups(&on, None),
        other.wakeups(&on, None),
        other.wakeups(&on_lock(), None),
    ];
    for stream in &mut streams {
        timeout(LONG, stream.next()).await.unwrap();
    }
    let complete =
        async |lease: &Attempt| bench.store.complete(lease, &Record::new("x"), None).await.unwrap().woken;
    assert_eq!(complete(&kept()).await, Some(0), "not its own");
    assert_eq!(complete(&lease).await, Some(3));
    assert_eq!(complete(&lease).await, Some(0), "not again");
    for stream in &mut streams[..3] {
        timeout(LONG, stream.next()).await.unwrap();
    }
}

/// Whoever finds a duplicate window taken is refused, so nobody is told when it is given back or finished.
#[tokio::test]
async fn nobody_is_told_of_a_window_that_ends() {
    let bench = Bench::start().await;
    for round in 0..2 {
        let [released, completed] =
            ["released", "completed"].map(|name| one(Claim::duplicate(key(name), TTL)));
        bench.granted(&released).await;
        bench.granted(&completed).await;
        if round == 1 {
            // By their sources, which go another way.
            bench.server.script_flush();
        }
        let release = bench.store.release(&released).await.unwrap();
        assert_eq!((release.held, release.woken), (true, Some(0)));
        assert!(bench.complete(&completed, b"", Some(Duration::from_millis(1))).await);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let published = || bench.server.command_calls().get("publish").copied().unwrap_or(0);
    assert_eq!(published(), 0);
    let lock = one(Claim::exclusive(key("k"), TTL));
    bench.granted(&lock).await;
    assert!(held(bench.store.release(&lock).await));
    assert_eq!(published(), 1, "of a lock they are");
}

/// Without the right to publish, the record is there all the same, and waiters poll.
#[tokio::test]
async fn a_user_without_channels_finishes_too() {
    let server = RedisServer::builder().acl_user("app", "on >secret ~clinch:* resetchannels +@all").start();
    let url = server.url_with(0, Some("app"), Some("secret"));
    let store = RedisStore::connect(&url, &StoreOptions::default()).await.unwrap();
    let kept = || one(Claim::idempotent(key("k"), TTL));
    let lease = kept();
    assert!(matches!(store.acquire(&lease).await.unwrap(), Verdict::Granted(_)));
    let release = store.complete(&lease, &Record::new(BYTES), None).await.unwrap();
    assert_eq!((release.held, release.woken), (true, Some(0)));
    assert_eq!(done(&denied(store.acquire(&kept()).await)), BYTES);
}
