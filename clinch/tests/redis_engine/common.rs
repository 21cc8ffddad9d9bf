//! A server, a store on it, and short ways to say what is asked and answered.

use std::num::NonZeroU32;
use std::time::Duration;

use clinch::Key;
use clinch::lease::{Attempt, Claim, ClaimKey, Fence, Holder, Patience, Space, Token};
use clinch::store::{Denial, Effect, ErrorKind, Grant, Renewal, Store, StoreError, Verdict};
use clinch::stores::StoreOptions;
use clinch::stores::redis::RedisStore;
use clinch_testkit::server::{RedisServer, Reply};
use tokio::time::{Instant, sleep};

/// A TTL that no test outlives.
pub(crate) const TTL: Duration = Duration::from_secs(60);
/// Long enough for anything that happens at all, on a busy machine too.
pub(crate) const LONG: Duration = Duration::from_secs(30);
/// How long a key is kept for an heir; longer than any test takes to confirm.
pub(crate) const CONFIRM: Duration = Duration::from_secs(5);

pub(crate) const LOCK: &str = "clinch:lock:k";
pub(crate) const SEM: &str = "clinch:sem:k";
pub(crate) const READERS: &str = "clinch:shared:{clinch:lock:k}";
pub(crate) const WRITER: &str = "clinch:writer:{clinch:lock:k}";
pub(crate) const FENCE: &str = "clinch:fence:{clinch:lock:k}";
pub(crate) const QUEUE: &str = "clinch:queue:{clinch:lock:k}";
pub(crate) const QUEUED: &str = "clinch:queued:{clinch:lock:k}";

pub(crate) struct Bench {
    pub(crate) server: RedisServer,
    pub(crate) store: RedisStore,
}

impl Bench {
    pub(crate) async fn start() -> Self {
        let server = RedisServer::start();
        let store = Self::connect(&server).await;
        Self { server, store }
    }

    pub(crate) async fn connect(server: &RedisServer) -> RedisStore {
        Self::connect_to(&server.url()).await
    }

    /// A store whose calls may take as long as a busy machine likes.
    pub(crate) async fn connect_to(url: &str) -> RedisStore {
        let mut options = StoreOptions::default();
        options.call_timeout = LONG;
        RedisStore::connect(url, &options).await.unwrap()
    }

    pub(crate) async fn granted(&self, attempt: &Attempt) -> Grant {
        granted(self.store.acquire(attempt).await)
    }

    pub(crate) async fn denied(&self, attempt: &Attempt) -> Denial {
        denied(self.store.acquire(attempt).await)
    }

    pub(crate) async fn refused(&self, attempt: &Attempt, kind: ErrorKind) {
        let error = self.store.acquire(attempt).await.unwrap_err();
        assert_eq!((error.kind(), error.effect()), (kind, Effect::NotApplied), "{error}");
    }

    pub(crate) async fn release(&self, attempt: &Attempt) -> bool {
        self.store.release(attempt).await.unwrap().held
    }

    pub(crate) async fn renewed(&self, lease: &Attempt) -> bool {
        matches!(self.store.renew(lease).await.unwrap(), Renewal::Extended { .. })
    }

    pub(crate) fn ask(&self, command: &[&str]) -> Reply {
        let reply = self.server.command(command);
        assert!(!reply.is_error(), "{command:?}: {reply:?}");
        reply
    }

    pub(crate) fn number(&self, command: &[&str]) -> i64 {
        self.ask(command).int().unwrap()
    }

    pub(crate) fn words(&self, command: &[&str]) -> Vec<String> {
        let Reply::Array(words) = self.ask(command) else { panic!("{command:?} has no list for an answer") };
        words.iter().filter_map(Reply::text).collect()
    }

    pub(crate) fn kind_of(&self, key: &str) -> String {
        self.ask(&["TYPE", key]).text().unwrap()
    }

    pub(crate) fn score(&self, set: &str, token: &Token) -> Option<f64> {
        self.ask(&["ZSCORE", set, token.as_str()]).text().map(|score| score.parse().unwrap())
    }

    /// Lets a member's time be over, without waiting for it.
    pub(crate) fn end(&self, set: &str, of: &Attempt) {
        assert_eq!(self.number(&["ZADD", set, "XX", "CH", "1000", of.token().as_str()]), 1);
    }

    /// How many scripts the server was asked to run since the statistics were reset.
    pub(crate) fn scripts_run(&self) -> u64 {
        let calls = self.server.command_calls();
        ["evalsha", "eval"].iter().filter_map(|name| calls.get(*name)).sum()
    }

    pub(crate) fn forget_statistics(&self) {
        self.ask(&["CONFIG", "RESETSTAT"]);
    }

    /// Every command that may need memory is refused from here on.
    pub(crate) fn out_of_memory(&self) {
        self.server.config_set("maxmemory", "1");
    }

    pub(crate) async fn holders(&self, on: &ClaimKey) -> Vec<Holder> {
        self.store.inspect(on).await.unwrap()
    }
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

pub(crate) fn token() -> Token {
    Token::from_text(format!("{:032x}@engine:{}:", rand::random::<u128>(), std::process::id()))
}

pub(crate) fn key(name: &str) -> Key {
    Key::new(name).unwrap()
}

pub(crate) fn of(most: u32) -> NonZeroU32 {
    NonZeroU32::new(most).unwrap()
}

pub(crate) fn one(claim: Claim) -> Attempt {
    Attempt::one(token(), claim)
}

pub(crate) fn several(claims: Vec<Claim>) -> Attempt {
    Attempt::new(token(), claims).unwrap()
}

pub(crate) fn lock() -> Attempt {
    one(Claim::exclusive(key("k"), TTL))
}

pub(crate) fn fenced(floor: u64) -> Attempt {
    one(Claim::exclusive(key("k"), TTL).fenced(Fence::new(floor)))
}

pub(crate) fn reader(ttl: Duration) -> Attempt {
    one(Claim::shared(key("k"), ttl))
}

pub(crate) fn permit(most: u32, ttl: Duration) -> Attempt {
    one(Claim::permit(key("k"), of(most), ttl))
}

pub(crate) fn waiting(attempt: Attempt) -> Attempt {
    attempt.with_patience(Patience::Wait {
        until: Instant::now() + LONG,
        again_within: Duration::from_secs(5),
        confirm: Duration::ZERO,
    })
}

pub(crate) fn queued(attempt: Attempt) -> Attempt {
    attempt.with_patience(Patience::Queue { until: Instant::now() + LONG, confirm: CONFIRM })
}

pub(crate) fn fair_try(attempt: Attempt) -> Attempt {
    attempt.with_patience(Patience::Queue { until: Instant::now(), confirm: CONFIRM })
}

pub(crate) fn on_lock() -> ClaimKey {
    ClaimKey::lock(key("k"))
}

pub(crate) fn on_sem() -> ClaimKey {
    ClaimKey { space: Space::Permit, key: key("k") }
}

pub(crate) fn fence(grant: &Grant) -> u64 {
    assert_eq!(grant.fences.len(), 1, "{grant:?}");
    grant.fences[0].unwrap().get()
}

pub(crate) fn holder(denial: &Denial) -> &Token {
    denial.holder.as_ref().unwrap().token()
}

pub(crate) async fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + LONG;
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}: not within {LONG:?}");
        sleep(Duration::from_millis(2)).await;
    }
}
