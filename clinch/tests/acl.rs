//! `deploy/redis/clinch.acl` is enough for everything that the store does, and nothing in it is too much.

#![cfg(all(feature = "redis", feature = "conformance", feature = "submit"))]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::large_futures,
    reason = "a test stops at the first surprise, and its stack is large enough"
)]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use clinch::conformance::{self, Harness, Pace, Staged};
use clinch::lease::ClaimKey;
use clinch::store::{Cursor, Store, StoreFuture};
use clinch::stores::StoreOptions;
use clinch::stores::redis::RedisStore;
use clinch::submit::{DuplicatePolicy, Guards, Identity, ReleaseWhen, Submission};
use clinch::{Key, LockManager, LockOptions};
use clinch_testkit::server::{RedisServer, Reply};
use futures_util::future::join_all;
use tokio::time::timeout;

/// As it is shipped: nobody can log in.
const ACL: &str = include_str!("../../deploy/redis/clinch.acl");
const PASSWORD: &str = "secret";

/// The commands that it allows.
fn allowed() -> Vec<&'static str> {
    ACL.split_whitespace().filter_map(|word| word.strip_prefix('+')).collect()
}

/// A server that has loaded the file, with a password set, as an operator would. The tests themselves are its default user.
fn server() -> RedisServer {
    let folder = std::env::temp_dir().join(format!(
        "clinch-acl-{}-{:?}",
        std::process::id(),
        std::thread::current().id()
    ));
    let file = folder.with_extension("acl");
    std::fs::write(&file, ACL.replace(" off resetpass ", &format!(" on >{PASSWORD} "))).unwrap();
    let server = RedisServer::builder().arg("aclfile", file.to_str().unwrap()).start();
    std::fs::remove_file(file).unwrap();
    server
}

struct UnderAcl(RedisServer);

impl Harness for UnderAcl {
    fn pace(&self) -> Pace {
        let mut pace = Pace::default();
        pace.at_once = 16;
        pace.patience = Duration::from_secs(30);
        pace
    }

    fn connect(&self) -> StoreFuture<'_, Arc<dyn Store>> {
        Box::pin(async {
            let url = self.0.url_with(0, Some("clinch"), Some(PASSWORD));
            // Time limits are not what is tested.
            let mut options = StoreOptions::default();
            options.call_timeout = Duration::from_secs(10);
            let store = RedisStore::connect(&url, &options).await?;
            Ok(Arc::new(store) as Arc<dyn Store>)
        })
    }

    fn put_foreign<'a>(&'a self, on: &'a ClaimKey, value: &'a str, ttl: Option<Duration>) -> Staged<'a> {
        Some(Box::pin(async move {
            let key = format!("clinch:{on}");
            let millis = ttl.map(|ttl| ttl.as_millis().to_string());
            let mut command = vec!["SET", &key, value, "NX"];
            command.extend(millis.iter().flat_map(|millis| ["PX", millis.as_str()]));
            self.0.command(&command);
            Ok(())
        }))
    }

    fn put_wrong_type<'a>(&'a self, on: &'a ClaimKey) -> Staged<'a> {
        Some(Box::pin(async move {
            self.0.command(&["RPUSH", &format!("clinch:{on}"), "precious"]);
            Ok(())
        }))
    }
}

/// Proves: O2
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_whole_suite_passes_under_the_acl() {
    let redis = UnderAcl(server());
    let report = conformance::run(&redis).await;
    report.assert_passed();
    let skipped: Vec<_> = report
        .skipped()
        // What it does better than refusing.
        .filter(|(promise, _)| promise.group() != "refusal")
        .map(|(promise, _)| promise.to_string())
        .collect();
    assert!(skipped.is_empty(), "skipped: {skipped:?}");
    assert_eq!(denied(&redis.0, "clinch"), BTreeSet::new());
}

/// As it is shipped it lets nobody in, and with a password it lets nobody out of its prefix.
#[tokio::test]
async fn it_reaches_nothing_else() {
    assert!(ACL.starts_with("user clinch off resetpass "), "{ACL}");
    assert!(!ACL.contains('>') && !ACL.contains("nopass") && ACL.lines().count() == 1, "{ACL}");
    let server = server();
    let url = server.url_with(0, Some("clinch"), Some(PASSWORD));
    LockManager::connect(&url).await.unwrap();
    let other = LockManager::builder().prefix("other").connect(&url).await.unwrap();
    let error = other.lock("a", Duration::from_secs(1)).await.unwrap_err();
    assert!(
        error.to_string().contains("NOPERM") || error.to_string().to_lowercase().contains("permission"),
        "{error}"
    );
}

/// What was denied to a user, and is not the client's own chatter.
fn denied(server: &RedisServer, user: &str) -> BTreeSet<String> {
    let Reply::Array(entries) = server.command(&["ACL", "LOG", "10000"]) else { panic!("no log") };
    let mut denied = BTreeSet::new();
    for entry in entries {
        let Reply::Array(fields) = entry else { panic!("{entry:?}") };
        let field = |name: &str| {
            let at = fields.iter().position(|field| field.text().as_deref() == Some(name)).unwrap();
            fields[at + 1].text().unwrap()
        };
        // It says which library it is, where the server wants to know; nothing depends on that.
        if field("username") == user && !field("object").starts_with("client") {
            denied.insert(field("object"));
        }
    }
    denied
}

/// Does everything that a manager can do, as this user, whatever becomes of it.
async fn do_everything(server: &RedisServer, user: &str) {
    // A busy machine has the time for every step; what is refused is refused at once.
    const BRIEF: Duration = Duration::from_millis(1_500);
    const SOON: Duration = Duration::from_millis(600);
    let url = server.url_with(1, Some(user), Some(PASSWORD));
    let connect = || LockManager::builder().call_timeout(BRIEF).connect(&url);
    let (Ok(locks), Ok(other)) = (connect().await, connect().await) else { return };
    let key = |name: &str| format!("{user}:{name}");
    let ttl = Duration::from_secs(2);
    let named = |name: &str| (key(name), LockOptions::new(ttl).wait(SOON));

    // A lock that is renewed, waited for by another process, and passed on by push.
    let plain = async {
        let (name, options) = named("plain");
        let every = Duration::from_millis(30);
        let held = locks.lock(name.clone(), LockOptions::new(ttl).renew_every(every)).await;
        let both = async {
            let _ = tokio::join!(other.lock(name, options), async {
                tokio::time::sleep(every * 8).await;
                drop(held);
            });
        };
        let _ = timeout(BRIEF * 2, both).await;
    };
    // Readers, a writer that waits for them, fences, several keys with a limit, renewed together.
    let several = async {
        let (name, options) = named("shared");
        let every = Duration::from_millis(30);
        let reading = LockOptions::new(ttl).shared().renew_every(every);
        let readers =
            [locks.lock(name.clone(), reading.clone()).await, other.lock(name.clone(), reading).await];
        let _ = other.lock(name.clone(), options.clone().fenced()).await;
        drop(readers);
        let _ = locks.lock(name, options.fenced()).await;
        let limit = locks.limit(key("limit"), 1).unwrap();
        let permit = limit.acquire(LockOptions::new(ttl).renew_every(every)).await;
        let _ = other.limit(key("limit"), 1).unwrap().try_acquire(ttl).await;
        tokio::time::sleep(every * 8).await;
        drop(permit);
        let _ = locks.lock_all([key("x"), key("y")], LockOptions::new(ttl).limited_by(&limit, ttl)).await;
    };
    // A queue with two in it, one of whom gives up, and with something left over in it.
    let fair = async {
        let (name, options) = named("fair");
        let queued = format!("clinch:queued:{{clinch:lock:{name}}}");
        let in_turn = options.fair_within(Duration::from_millis(100));
        let first = locks.lock(name.clone(), in_turn.clone().renew_every(Duration::from_millis(30))).await;
        let left_over = async {
            tokio::time::sleep(Duration::from_millis(240)).await;
            server.command(&["SELECT", "1"]);
            server.command(&["HSET", &queued, "left over", "1 1"]);
            drop(first);
        };
        let (second, third) =
            (other.lock(name.clone(), in_turn.clone()), locks.lock(name.clone(), in_turn.clone()));
        let _ = timeout(BRIEF * 3, async { tokio::join!(second, third, left_over) }).await;
        // Whoever finds the key free tidies up.
        server.command(&[
            "DEL",
            &format!("clinch:lock:{name}"),
            &format!("clinch:queue:{{clinch:lock:{name}}}"),
        ]);
        server.command(&["HSET", &queued, "left over", "1 1"]);
        let held = locks.lock(name.clone(), in_turn.clone()).await;
        // One that gives up while another holds it.
        let _ = timeout(BRIEF / 5, other.lock(name, in_turn)).await;
        tokio::time::sleep(BRIEF / 5).await;
        drop(held);
    };
    tokio::join!(plain, several);
    // By itself, so that its renewals go out alone.
    fair.await;
    // A record, a look at everything, and an end by force.
    let guards = Guards::new(locks.clone());
    let policy = DuplicatePolicy::new().release(ReleaseWhen::Never);
    let submission = Submission::of(key("f")).user(Identity::user("ann"));
    if let Ok(admission) = guards.duplicate(&policy, &submission).await {
        admission.finish(true).await;
    }
    let _ = guards.duplicate(&policy, &submission).await;
    let held = locks.lock(key("forced"), ttl).await;
    let mut cursor = Some(Cursor::START);
    while let Some(at) = cursor {
        cursor = locks.list(at).await.ok().and_then(|page| page.next);
    }
    if let Ok(holders) = locks.inspect(Key::new(key("forced")).unwrap()).await {
        for holder in holders {
            let _ = locks.force_release(&holder).await;
        }
    }
    drop(held);
    for manager in [locks, other] {
        manager.shutdown(BRIEF).await;
    }
}

/// Each command that is left out is missed.
///
/// Proves: O2
#[tokio::test]
async fn nothing_in_the_acl_is_too_much() {
    let server = server();
    server.config_set("acllog-max-len", "10000");
    let user_without = |left_out: &str| {
        let user = format!("without-{left_out}");
        let password = format!(">{PASSWORD}");
        let rules = ACL.split_whitespace().skip(2).filter(|rule| *rule != "off" && *rule != "resetpass");
        let rules = rules.filter(|rule| rule.strip_prefix('+') != Some(left_out));
        let mut command = vec!["ACL", "SETUSER", &user, "on", &password];
        command.extend(rules);
        assert!(!server.command(&command).is_error());
        user
    };
    // Before the server knows any script by its hash.
    let missed = |command: &str, user: &str| {
        assert_eq!(denied(&server, user), BTreeSet::from([command.to_owned()]), "as {user}");
    };
    let first = user_without("eval");
    do_everything(&server, &first).await;
    missed("eval", &first);
    // The scripts are known from here on.
    let complete = user_without("nothing");
    do_everything(&server, &complete).await;
    assert_eq!(denied(&server, &complete), BTreeSet::new());
    let others: Vec<_> = allowed().into_iter().filter(|command| *command != "eval").collect();
    for some in others.chunks(12) {
        let users: Vec<_> = some.iter().map(|command| user_without(command)).collect();
        join_all(users.iter().map(|user| do_everything(&server, user))).await;
        for (command, user) in some.iter().zip(&users) {
            missed(command, user);
        }
    }
}
