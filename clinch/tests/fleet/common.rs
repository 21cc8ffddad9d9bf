//! Short ways to say what is asked and answered.

use std::sync::Arc;
use std::time::Duration;

use clinch::conformance::{self, Harness, PROMISES};
use clinch::lease::{Attempt, Claim, Token};
use clinch::store::{Denial, Effect, ErrorKind, Grant, Store, StoreError, Verdict};
use clinch::stores::StoreOptions;
use clinch::{Error, Key, LockGuard, LockManager, LockOptions};
use clinch_testkit::server::{RedisServer, Reply};
use futures_util::StreamExt;
use tokio::time::{Instant, sleep};

/// Long enough for anything that happens at all, on a busy machine too.
pub(crate) const LONG: Duration = Duration::from_secs(60);
/// A TTL that no test outlives.
pub(crate) const TTL: Duration = Duration::from_secs(120);
/// How many promises are checked at a time.
const AT_A_TIME: usize = 8;

/// Options for a busy machine.
pub(crate) fn options() -> StoreOptions {
    let mut options = StoreOptions::default();
    options.call_timeout = Duration::from_secs(10);
    options.connect_timeout = Duration::from_secs(10);
    options
}

/// Checks every promise on one deployment, several at a time.
pub(crate) async fn conforms(harness: &dyn Harness) {
    let checks = PROMISES.iter().map(|promise| async move {
        let name = promise.to_string();
        (name.clone(), conformance::run_one(harness, &name).await)
    });
    let answers: Vec<_> = futures_util::stream::iter(checks).buffer_unordered(AT_A_TIME).collect().await;
    assert_eq!(answers.len(), PROMISES.len());
    let broken: Vec<_> =
        answers.iter().filter_map(|(name, answer)| Some((name, answer.as_ref().err()?))).collect();
    assert!(broken.is_empty(), "{} of {} promises are broken: {broken:#?}", broken.len(), PROMISES.len());
}

/// Waits until something that only the servers can tell is true; the pause is not what makes it so.
pub(crate) async fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + LONG;
    while !tokio::task::block_in_place(&mut is_so) {
        assert!(Instant::now() < deadline, "{what}: not within {LONG:?}");
        sleep(Duration::from_millis(5)).await;
    }
}

/// Does what takes its time without holding up the runtime.
pub(crate) async fn aside<T: Send + 'static, D: Send + Sync + 'static>(
    with: &Arc<D>,
    act: impl FnOnce(&D) -> T + Send + 'static,
) -> T {
    let with = with.clone();
    tokio::task::spawn_blocking(move || act(&with)).await.unwrap()
}

pub(crate) fn token() -> Token {
    Token::from_text(format!("{:032x}@fleet:{}:", rand::random::<u128>(), std::process::id()))
}

pub(crate) fn key(name: &str) -> Key {
    Key::new(name).unwrap()
}

pub(crate) fn lock(name: &str) -> Attempt {
    Attempt::one(token(), Claim::exclusive(key(name), TTL))
}

pub(crate) fn granted(answer: Result<Verdict, StoreError>) -> Grant {
    match answer.unwrap() {
        Verdict::Granted(grant) => grant,
        other => panic!("{other:?} where it had to be granted"),
    }
}

pub(crate) fn denied(answer: Result<Verdict, StoreError>) -> Denial {
    match answer.unwrap() {
        Verdict::Denied(denial) => denial,
        other => panic!("{other:?} where it had to be denied"),
    }
}

pub(crate) async fn take(manager: &LockManager, name: &str) -> LockGuard {
    manager.lock(name, LockOptions::new(TTL).wait(LONG)).await.unwrap()
}

/// Asks until there is an answer, as long as what fails is worth a retry.
pub(crate) async fn acquire(store: &dyn Store, attempt: &Attempt) -> Verdict {
    let deadline = Instant::now() + LONG;
    loop {
        match store.acquire(attempt).await {
            Ok(verdict) => return verdict,
            Err(error) => assert!(error.is_retryable() && Instant::now() < deadline, "{error}"),
        }
        sleep(Duration::from_millis(20)).await;
    }
}

/// The same for giving back.
pub(crate) async fn release(store: &dyn Store, lease: &Attempt) -> bool {
    let deadline = Instant::now() + LONG;
    loop {
        match store.release(lease).await {
            Ok(release) => return release.held,
            Err(error) => assert!(error.is_retryable() && Instant::now() < deadline, "{error}"),
        }
        sleep(Duration::from_millis(20)).await;
    }
}

pub(crate) fn kind(error: &Error) -> (ErrorKind, Effect) {
    match error {
        Error::Engine { cause: source, .. } => (source.kind(), source.effect()),
        other => panic!("{other}"),
    }
}

/// How many subscribers a channel has.
pub(crate) fn subscribers(server: &RedisServer, how: &str, channel: &str) -> i64 {
    match server.try_command(&["PUBSUB", how, channel]) {
        Ok(Reply::Array(words)) => words.get(1).and_then(Reply::int).unwrap_or(0),
        _ => 0,
    }
}

/// How many connections of ours a server has: all but those of the test itself and of servers to each other (a `MIGRATE` keeps
/// its own for ten seconds).
pub(crate) fn connections(server: &RedisServer) -> usize {
    let list = server.try_command(&["CLIENT", "LIST"]).ok().and_then(|list| list.text()).unwrap_or_default();
    let inside = ["cmd=client", "cmd=restore", "flags=S", "flags=M", "user=watcher", "user=copier"];
    list.lines().filter(|line| !inside.iter().any(|word| line.contains(word))).count()
}
