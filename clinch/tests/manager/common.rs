//! A server, a fault proxy before it, and managers on both.

use std::pin::Pin;
use std::sync::mpsc;
use std::task::Poll;
use std::time::Duration;

use clinch::store::Cursor;
use clinch::{Holder, LockGuard, LockManager, LockOptions};
use clinch_testkit::proxy::{Action, Command, FaultProxy, Rule};
use clinch_testkit::server::{RedisServer, Reply};

/// Long enough for anything that happens at all, on a busy machine too.
pub(crate) const LONG: Duration = Duration::from_secs(30);
/// A TTL that no test outlives.
pub(crate) const TTL: Duration = Duration::from_secs(60);

/// A Redis server with a fault proxy before it.
pub(crate) struct Bench {
    pub(crate) server: RedisServer,
    pub(crate) proxy: FaultProxy,
    hashes: [String; 3],
}

/// The steps that a rule can strike at.
#[derive(Clone, Copy)]
pub(crate) enum Step {
    Acquire,
    Renew,
    Release,
}

impl Bench {
    pub(crate) async fn start() -> Self {
        Self::with(RedisServer::start()).await
    }

    pub(crate) async fn with(server: RedisServer) -> Self {
        // Loading them tells their hashes, and saves the first calls from asking twice.
        let load = |source: &str| server.command(&["SCRIPT", "LOAD", source]).text().unwrap();
        let hashes = [
            load(include_str!("../../src/stores/redis/lua/acquire.lua")),
            load(include_str!("../../src/stores/redis/lua/renew.lua")),
            load(include_str!("../../src/stores/redis/lua/release.lua")),
        ];
        let proxy = FaultProxy::start(server.addr()).await;
        Self { server, proxy, hashes }
    }

    /// A manager whose connections go through the proxy. Its calls have more time than they need on a busy machine.
    pub(crate) async fn manager(&self) -> LockManager {
        let builder = LockManager::builder().call_timeout(Duration::from_secs(5));
        builder.connect(&self.proxy.url()).await.unwrap()
    }

    /// A manager with the time limits that there are unless others are set: for tests that wait for their end.
    pub(crate) async fn hasty(&self) -> LockManager {
        LockManager::connect(&self.proxy.url()).await.unwrap()
    }

    /// A manager whose calls may take as long as a busy machine likes: for tests in which time limits are not what is tested.
    pub(crate) async fn patient(&self) -> LockManager {
        LockManager::builder().call_timeout(LONG).connect(&self.proxy.url()).await.unwrap()
    }

    /// A manager that the proxy does not see, and whose calls may take as long as a busy machine likes.
    pub(crate) async fn outsider(&self) -> LockManager {
        patient(&self.server).await
    }

    /// Whether a command is this step.
    pub(crate) fn is(&self, step: Step) -> impl Fn(&Command) -> bool + Send + Sync + 'static {
        let hash = self.hashes[step as usize].clone();
        move |command| match command.name.as_str() {
            "EVALSHA" => command.arg(0).as_ref() == Some(&hash),
            // What is probably free is taken without a script.
            "SET" => matches!(step, Step::Acquire),
            _ => false,
        }
    }

    /// The tokens with which this step was asked for, in order.
    pub(crate) fn tokens(&self, step: Step) -> Vec<Option<String>> {
        let asked = self.proxy.log().into_iter().filter(|command| self.is(step)(command));
        asked.map(|command| command.arg(if command.name == "SET" { 1 } else { 3 })).collect()
    }

    /// Strikes the next such step.
    pub(crate) fn strike(&self, step: Step, action: Action) {
        self.proxy.add(Rule::new(action).matching(self.is(step)));
    }

    /// How many such steps went over the wire since the last reset.
    pub(crate) fn count(&self, step: Step) -> usize {
        self.proxy.log().iter().filter(|command| self.is(step)(command)).count()
    }

    /// Waits until the next such step has been seen.
    pub(crate) async fn seen(&self, step: Step) {
        self.proxy.wait_for(self.is(step)).await;
    }

    pub(crate) fn value(&self, key: &str) -> Option<String> {
        self.server.get(&format!("clinch:lock:{key}"))
    }

    /// How many keys under the prefix are left in the server, of whatever kind.
    pub(crate) fn keys_left(&self) -> usize {
        match self.server.command(&["KEYS", "clinch:*"]) {
            Reply::Array(keys) => keys.len(),
            other => panic!("{other:?}"),
        }
    }

    /// Waits until the key is free, by watching the server.
    pub(crate) async fn free(&self, key: &str) {
        eventually("the key is free", || self.value(key).is_none()).await;
    }
}

async fn patient(server: &RedisServer) -> LockManager {
    LockManager::builder().call_timeout(LONG).connect(&server.url()).await.unwrap()
}

/// The clock of this runtime stands still, while connections go on: what happens meanwhile needs no pause to pass, and is not too
/// late however slow the machine is. Dropped, it goes on; and after [`LONG`] it leaps to its timers, so that nobody waits for ever.
/// For a runtime with a single thread.
pub(crate) struct StandingClock(#[expect(dead_code, reason = "its end is what is heard")] mpsc::Sender<()>);

impl StandingClock {
    pub(crate) fn stop() -> Self {
        tokio::time::pause();
        let (stands, ended) = mpsc::channel();
        // When there is nothing to do, a paused clock leaps to its next timer, but not while a blocking task runs.
        tokio::task::spawn_blocking(move || ended.recv_timeout(LONG));
        Self(stands)
    }
}

impl Drop for StandingClock {
    fn drop(&mut self) {
        tokio::time::resume();
    }
}

/// Waits until something that only the server can tell is true; the pause is not what makes it so.
pub(crate) async fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = tokio::time::Instant::now() + LONG;
    while !is_so() {
        assert!(tokio::time::Instant::now() < deadline, "{what}: not within {LONG:?}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Polls a future once.
pub(crate) async fn poll_once<F: Future>(mut future: Pin<&mut F>) -> Poll<F::Output> {
    std::future::poll_fn(|context| Poll::Ready(future.as_mut().poll(context))).await
}

/// Polls a writer that waits behind a reader until a new reader is held back for it.
pub(crate) async fn holds_back<T>(
    mut writer: Pin<&mut impl Future<Output = T>>,
    readers: &LockManager,
    key: &str,
) {
    let reading = LockOptions::new(TTL).shared();
    let held_back = async {
        while let Some(guard) = readers.try_lock(key, reading.clone()).await.unwrap() {
            guard.release().await.unwrap();
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        _ = writer.as_mut() => panic!("it writes while it is read"),
        held_back = tokio::time::timeout(LONG, held_back) => held_back.expect("a writer waits"),
    }
}

/// A TTL and a wait.
pub(crate) fn waiting(ttl: Duration, wait: Duration) -> LockOptions {
    LockOptions::new(ttl).wait(wait)
}

/// Takes a lock that must be free.
pub(crate) async fn take(manager: &LockManager, key: &str) -> LockGuard {
    manager.try_lock(key, TTL).await.unwrap().expect("the key is free")
}

/// All holders that a manager can list.
pub(crate) async fn list_all(manager: &LockManager) -> Vec<Holder> {
    let mut holders = Vec::new();
    let mut cursor = Some(Cursor::START);
    while let Some(at) = cursor {
        let page = manager.list(at).await.unwrap();
        holders.extend(page.holders);
        cursor = page.next;
    }
    holders
}

/// The two engines on which a promise is shown.
pub(crate) async fn both() -> [(LockManager, Option<RedisServer>); 2] {
    let server = RedisServer::start();
    let redis = patient(&server).await;
    [(LockManager::connect("memory:").await.unwrap(), None), (redis, Some(server))]
}
