//! A close look at a server: facts, and findings that say what to change.

use std::time::Duration;

use clinch::LockManager;
use clinch::store::{Diagnosis, Finding, Severity};
use clinch_testkit::proxy::FaultProxy;
use clinch_testkit::server::{Flavor, RedisServer};

const LIMIT: Duration = Duration::from_secs(20);

async fn diagnosed(url: &str) -> Diagnosis {
    LockManager::connect(url).await.unwrap().diagnose(LIMIT).await
}

#[track_caller]
fn found<'a>(diagnosis: &'a Diagnosis, name: &str) -> &'a Finding {
    let finding = diagnosis.findings.iter().find(|finding| finding.name == name);
    finding.unwrap_or_else(|| panic!("no finding `{name}`: {diagnosis:#?}"))
}

fn names(diagnosis: &Diagnosis) -> Vec<&str> {
    diagnosis.findings.iter().map(|finding| finding.name).collect()
}

/// Whether the server can say what its user may do.
fn tells_rights(server: &RedisServer) -> bool {
    let version = server.version();
    version.flavor == Flavor::Valkey || version.major >= 7
}

#[tokio::test]
async fn a_server_that_is_well_set_up_has_no_findings() {
    let server = RedisServer::builder().appendonly(true).start();
    let locks = LockManager::connect(&server.url()).await.unwrap();
    let diagnosis = locks.diagnose(LIMIT).await;
    assert_eq!(diagnosis.findings, [], "{diagnosis:#?}");
    assert_eq!(diagnosis.worst(), None);
    for (name, value) in [
        ("engine", "redis"),
        ("mode", "standalone"),
        ("role", "primary"),
        ("replicas", "0"),
        ("maxmemory_policy", "noeviction"),
        ("append_only_file", "yes"),
        ("appendfsync", "everysec"),
        ("user", "default"),
        ("steps", "lock, renew, inspect, release, fence, shared, permit, fair, record, list, wake_ups"),
    ] {
        assert_eq!(diagnosis.value(name), Some(value), "{name}: {diagnosis:#?}");
    }
    let rights = if tells_rights(&server) { Some("none") } else { None };
    assert_eq!(diagnosis.value("missing_rights"), rights, "{diagnosis:#?}");
    let skew: i64 = diagnosis.value("clock_skew_ms").unwrap().parse().unwrap();
    let trip: f64 = diagnosis.value("round_trip_ms").unwrap().parse().unwrap();
    assert!(skew.abs() < 1_000 && trip > 0.0, "{diagnosis:#?}");
    // It leaves nothing behind, except for the last fence of a key that is always the same.
    let fence = ["clinch:fence:{clinch:lock:clinch-doctor}"];
    let gone = async {
        while server.keys("*") != fence {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(LIMIT, gone).await.unwrap();
    #[cfg(feature = "submit")]
    assert!(serde_json::to_value(&diagnosis).unwrap()["facts"].as_array().unwrap().len() > 10);
}

/// What loses leases on a restart is named, along with what evicts them.
#[tokio::test]
async fn a_server_that_forgets_is_named() {
    let server = RedisServer::builder().arg("maxmemory-policy", "volatile-lru").start();
    let diagnosis = diagnosed(&server.url()).await;
    assert_eq!(names(&diagnosis), ["eviction", "persistence"]);
    assert_eq!(diagnosis.worst(), Some(Severity::Warning));
    let finding = found(&diagnosis, "persistence");
    assert!(
        finding.problem.starts_with("nothing is persisted") && finding.remedy.contains("`appendonly yes`"),
        "{finding:?}"
    );

    server.config_set("save", "3600 1");
    let diagnosis = diagnosed(&server.url()).await;
    assert_eq!(diagnosis.value("snapshots"), Some("3600 1"));
    assert!(found(&diagnosis, "persistence").problem.starts_with("only snapshots are persisted"));
}

#[tokio::test]
async fn what_may_not_be_seen_is_no_failure() {
    let rules = "on >hunter2 ~clinch:* resetchannels &clinch:* +@all -info -config -acl -time";
    let server = RedisServer::builder().acl_user("app", rules).start();
    let diagnosis = diagnosed(&server.url_with(0, Some("app"), Some("hunter2"))).await;
    for name in ["maxmemory_policy", "append_only_file", "replicas", "user", "clock_skew_ms"] {
        let fact = diagnosis.facts.iter().find(|fact| fact.name == name).unwrap();
        assert_eq!(
            (fact.value.as_deref(), fact.unknown.as_deref()),
            (None, Some("not allowed to see")),
            "{name}"
        );
    }
    assert!(diagnosis.value("version").is_some());
    // Only `TIME` is needed of them, by permits and fences.
    let names = names(&diagnosis);
    assert!(!names.contains(&"unreachable") && !names.contains(&"eviction"), "{diagnosis:#?}");
    if tells_rights(&server) {
        assert_eq!(diagnosis.value("missing_rights"), Some("`+time`"), "{diagnosis:#?}");
    }
    assert!(found(&diagnosis, "step").problem.contains(" fail"), "{diagnosis:#?}");
    assert!(!format!("{diagnosis:?}").contains("hunter2"));
}

#[tokio::test]
async fn missing_rights_are_named() {
    let rules = "on >hunter2 ~shop:lock:* resetchannels &shop:revoked +@all -zadd -hset -info";
    let server = RedisServer::builder().acl_user("app", rules).start();
    let url = server.url_with(0, Some("app"), Some("hunter2"));
    let locks = LockManager::builder().prefix("shop").connect(&url).await.unwrap();
    let diagnosis = locks.diagnose(LIMIT).await;
    if tells_rights(&server) {
        let finding = found(&diagnosis, "rights");
        assert_eq!(finding.severity, Severity::Error);
        let missing = "`+hset` `+zadd` `~shop:dup:*` `~shop:idem:*` `~shop:sem:*` `~shop:shared:*` `~shop:writer:*` \
                       `~shop:fence:*` `~shop:queue:*` `~shop:queued:*` `&shop:wake:*`";
        assert_eq!(diagnosis.value("missing_rights"), Some(missing));
        assert!(finding.problem.ends_with(missing) && finding.remedy.contains("clinch.acl"), "{finding:?}");
    }
    // The steps tell it on every server: a lock works, the rest does not, and nothing is pushed.
    assert_eq!(diagnosis.value("steps"), Some("lock, renew, release, list"), "{diagnosis:#?}");
    let steps: Vec<_> = diagnosis.findings.iter().filter(|finding| finding.name == "step").collect();
    // What all of them are told is told once.
    let failed = ["inspect", "fence", "shared", "permit", "fair", "record"].map(|step| format!("`{step}`"));
    let told = |step: &String| steps.iter().filter(|finding| finding.problem.contains(step)).count();
    assert!(failed.iter().all(|step| told(step) == 1), "{steps:#?}");
    assert!(steps.iter().all(|step| step.problem.to_lowercase().contains("perm")), "{steps:#?}");
    assert_eq!(found(&diagnosis, "wake_ups").severity, Severity::Warning);
}

/// The rights that are delivered as the least are enough for everything that is tried, and a look at the rest is a fact.
#[tokio::test]
async fn the_delivered_rights_are_enough() {
    let acl = include_str!("../../../deploy/redis/clinch.acl");
    let rules = acl.lines().find_map(|line| line.strip_prefix("user clinch off resetpass ")).unwrap();
    let server = RedisServer::builder()
        .appendonly(true)
        .acl_user("clinch", &format!("on >hunter2 {rules}"))
        .acl_user("blind", &format!("on >hunter2 {}", rules.replace(" +info ", " ")))
        .start();
    let diagnosis = diagnosed(&server.url_with(0, Some("clinch"), Some("hunter2"))).await;
    assert_eq!(diagnosis.findings, [], "{diagnosis:#?}");
    if tells_rights(&server) {
        assert_eq!(diagnosis.value("missing_rights"), Some("none"));
    }
    assert_eq!(diagnosis.value("maxmemory_policy"), Some("noeviction"));

    let diagnosis = diagnosed(&server.url_with(0, Some("blind"), Some("hunter2"))).await;
    assert_eq!(diagnosis.findings, [], "{diagnosis:#?}");
    let policy = diagnosis.facts.iter().find(|fact| fact.name == "maxmemory_policy").unwrap();
    assert_eq!(policy.unknown.as_deref(), Some("not allowed to see"));
}

#[tokio::test]
async fn a_user_without_scripts_is_told_so() {
    let server = RedisServer::builder().acl_user("app", "on >hunter2 ~* &* +@all -@scripting").start();
    let diagnosis = diagnosed(&server.url_with(0, Some("app"), Some("hunter2"))).await;
    let finding = found(&diagnosis, "rights");
    assert!(finding.problem.starts_with("the user may not run scripts"), "{finding:?}");
}

#[tokio::test]
async fn replicas_and_becoming_one_are_seen() {
    let server = RedisServer::builder().appendonly(true).start();
    let locks = LockManager::connect(&server.url()).await.unwrap();
    let _replica = RedisServer::builder().replica_of(&server).start();
    let diagnosis = locks.diagnose(LIMIT).await;
    assert_eq!((diagnosis.value("role"), diagnosis.value("replicas")), (Some("primary"), Some("1")));
    assert_eq!(diagnosis.worst(), Some(Severity::Note));
    assert_eq!(names(&diagnosis), ["failover"]);

    let other = RedisServer::start();
    server.command(&["REPLICAOF", "127.0.0.1", &other.port().to_string()]);
    server.wait_for_primary();
    let diagnosis = locks.diagnose(LIMIT).await;
    assert_eq!(diagnosis.value("role"), Some("replica"));
    assert_eq!(found(&diagnosis, "replica").remedy, "connect to its primary");
    assert_eq!(diagnosis.worst(), Some(Severity::Error));
}

#[tokio::test]
async fn clocks_that_are_apart_are_seen() {
    let server = RedisServer::builder().appendonly(true).movable_clock(true).start();
    let locks = LockManager::connect(&server.url()).await.unwrap();
    server.move_clock(3600);
    let diagnosis = locks.diagnose(LIMIT).await;
    let skew: i64 = diagnosis.value("clock_skew_ms").unwrap().parse().unwrap();
    assert!((3_590_000..3_610_000).contains(&skew), "{skew}");
    assert!(found(&diagnosis, "clock_skew").problem.contains("ahead of this machine's"));
    server.move_clock(-3600);
    let diagnosis = locks.diagnose(LIMIT).await;
    assert!(found(&diagnosis, "clock_skew").problem.contains("behind this machine's"));
}

#[tokio::test]
async fn an_engine_that_is_gone_or_hangs_is_a_finding_within_the_limit() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.addr()).await;
    let builder = LockManager::builder().call_timeout(Duration::from_secs(60));
    let locks = builder.connect(&proxy.url()).await.unwrap();
    proxy.stall();
    let started = std::time::Instant::now();
    let diagnosis = locks.diagnose(Duration::from_millis(300)).await;
    assert!(started.elapsed() < LIMIT);
    assert_eq!(names(&diagnosis), ["unreachable"]);
    assert_eq!(diagnosis.value("engine"), Some("redis"));
    proxy.resume();

    let locks = LockManager::connect(&server.url()).await.unwrap();
    server.kill();
    let diagnosis = locks.diagnose(LIMIT).await;
    assert_eq!(found(&diagnosis, "unreachable").severity, Severity::Error);
}
