//! A server that evicts keys can evict a lease that is held: that is warned of when it is connected to, found on a close look,
//! and really happens.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use clinch::LockManager;
use clinch::store::Severity;
use clinch_testkit::proxy::{Action, FaultProxy, Rule};
use clinch_testkit::server::RedisServer;
use tracing::field::{Field, Visit};
use tracing::span;

const TTL: Duration = Duration::from_secs(300);

/// The warnings of this thread.
#[derive(Clone, Default)]
struct Warnings(Arc<Mutex<Vec<String>>>);

impl Warnings {
    fn all(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

impl tracing::Subscriber for Warnings {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() <= tracing::Level::WARN && metadata.target().starts_with("clinch")
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        struct Text(String);
        impl Visit for Text {
            fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
                self.0 += &format!("{field}={value:?} ");
            }
        }
        let mut text = Text(String::new());
        event.record(&mut text);
        self.0.lock().unwrap().push(text.0);
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

/// Writes keys that expire until the key is gone.
fn evict(server: &RedisServer, key: &str) {
    let used: u64 = server.info("memory")["used_memory"].parse().unwrap();
    server.config_set("maxmemory", &(used + (2 << 20)).to_string());
    let value = "x".repeat(10_000);
    for i in 0..100_000 {
        server.command(&["SET", &format!("cache:{i}"), &value, "PX", "600000"]);
        if !server.exists(key) {
            // What is put there from now on stays.
            server.config_set("maxmemory", "0");
            return;
        }
    }
    panic!("`{key}` was not evicted");
}

/// Fault: 25
#[tokio::test]
async fn a_server_that_evicts_is_warned_of_and_takes_a_lock_from_its_holder() {
    let warnings = Warnings::default();
    let _logging = tracing::subscriber::set_default(warnings.clone());
    // While there is only one subscriber, a thread without it decides for all whether an event is of interest.
    let _second = tracing::Dispatch::new(Warnings::default());
    let server = RedisServer::builder().arg("maxmemory-policy", "volatile-lru").start();
    let locks = LockManager::connect(&server.url()).await.unwrap();

    // At the start: once, with the policy and what to do.
    let [warning] = warnings.all().try_into().unwrap();
    assert!(warning.contains("policy=\"volatile-lru\""), "{warning}");
    assert!(
        warning.contains("leases that are held may be among them: set `maxmemory-policy noeviction`"),
        "{warning}"
    );

    // On a close look: so that a person can change it.
    let diagnosis = locks.diagnose(Duration::from_secs(20)).await;
    assert_eq!(diagnosis.value("maxmemory_policy"), Some("volatile-lru"));
    let finding = diagnosis.findings.iter().find(|finding| finding.name == "eviction").unwrap();
    assert_eq!(finding.severity, Severity::Warning);
    assert!(finding.problem.contains("`volatile-lru`"), "{finding:?}");
    assert!(finding.remedy.contains("`maxmemory-policy noeviction`"), "{finding:?}");

    // And it is true: somebody else gets what is held.
    let held = locks.lock("order:42", TTL).await.unwrap();
    evict(&server, "clinch:lock:order:42");
    let other = LockManager::connect(&server.url()).await.unwrap();
    let second = other.try_lock("order:42", TTL).await.unwrap();
    assert!(second.is_some() && held.is_valid(), "neither knows of the other");
    // The first one learns it at the latest when it gives it back, and takes nothing from the second.
    assert!(!held.release().await.unwrap());
    assert!(second.unwrap().release().await.unwrap());
}

/// Nothing is warned of where nothing is evicted, or where the server does not tell; and no start is held up by it.
#[tokio::test]
async fn nothing_else_is_warned_of() {
    let warnings = Warnings::default();
    let _logging = tracing::subscriber::set_default(warnings.clone());
    let server = RedisServer::builder()
        .arg("maxmemory", "100mb")
        .acl_user("app", "on >hunter2 ~* &* +@all -info")
        .start();
    LockManager::connect(&server.url()).await.unwrap();
    server.config_set("maxmemory-policy", "allkeys-lru");
    let locks = LockManager::connect(&server.url_with(0, Some("app"), Some("hunter2"))).await.unwrap();
    assert!(locks.try_lock("a", TTL).await.unwrap().is_some());
    assert_eq!(warnings.all(), [] as [String; 0]);
}

/// A server that answers that question with an error, or with nonsense, is connected to all the same.
#[tokio::test]
async fn a_question_that_is_not_answered_keeps_nobody_from_starting() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.addr()).await;
    for reply in ["-ERR unknown command 'INFO'\r\n", "*2\r\n:1\r\n:2\r\n", "$-1\r\n", "+\r\n"] {
        proxy.add(Rule::new(Action::ReplaceReply(reply.into())).named("INFO"));
        let locks = LockManager::connect(&proxy.url()).await.unwrap();
        assert_eq!(proxy.rules_left(), 0);
        assert!(locks.try_lock("a", TTL).await.unwrap().is_some());
    }
}
