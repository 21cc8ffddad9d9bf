//! `clinch doctor`.

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use clinch_testkit::server::RedisServer;
use rusqlite::Connection;
use serde_json::Value;

use crate::common::{Ended, PATIENT, at, holding, home, with_env};

/// Looks at an engine that is well, however long that takes on a busy machine.
fn doctor(store: &str, args: &[&str]) -> Ended {
    let doctor = ["doctor", "--timeout", "20s", "--store", store];
    with_env(&PATIENT, &[&doctor, args].concat()).end()
}

/// A port that nobody listens on, and one that takes connections and says nothing.
#[test]
fn an_engine_that_is_not_there_is_told_soon() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let dead = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    for (address, args) in
        [(dead, &["doctor"][..]), (silent.local_addr().unwrap(), &["doctor", "--timeout", "500ms"])]
    {
        let url = format!("redis://user:secret@{address}");
        let began = Instant::now();
        let done = at(&url, args);
        assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
        assert_eq!(done.code, 69, "{}", done.stdout);
        assert!(done.stdout.contains("error: unreachable: "), "{}", done.stdout);
        assert!(
            done.stdout.contains("to change: ") && done.stdout.contains(&address.to_string()),
            "{}",
            done.stdout
        );
        assert!(!done.stdout.contains("secret"), "{}", done.stdout);
        let json = at(&url, &[args, &["--json"]].concat());
        assert_eq!(json.code, 69);
        let json: Value = serde_json::from_str(&json.stdout).unwrap();
        assert_eq!(
            (&json["reachable"], &json["findings"][0]["name"]),
            (&false.into(), &"unreachable".into())
        );
    }
}

#[test]
fn what_is_no_engine_is_64() {
    let done = at("ftp://x", &["doctor"]);
    assert_eq!((done.code, done.stdout.as_str()), (64, ""), "{}", done.stderr);
    let done = with_env(&[("CLINCH_PREFX", Some("x"))], &["doctor", "--store", "memory:"]).end();
    assert_eq!(done.code, 0, "{}", done.stdout);
    assert!(done.stdout.contains("did you mean `CLINCH_PREFIX`?"), "{}", done.stdout);
}

/// A Redis that evicts what has an expiry, which is every lease, and forgets everything when it restarts.
///
/// Fault: 25
#[test]
fn a_redis_that_evicts_and_forgets_is_told_what_to_change() {
    let server = RedisServer::builder().arg("maxmemory-policy", "volatile-lru").arg("save", "").start();
    let told = doctor(&server.url(), &[]);
    assert_eq!((told.code, told.stderr.as_str()), (1, ""), "{}", told.stdout);
    for said in [
        "warning: eviction: `maxmemory-policy` is `volatile-lru`",
        "to change: set `maxmemory-policy noeviction`",
        "warning: persistence: nothing is persisted",
        "to change: set `appendonly yes`",
    ] {
        assert!(told.stdout.contains(said), "no {said} in {}", told.stdout);
    }
    for fact in ["store", "engine", "version", "round_trip_ms", "clock_skew_ms", "replicas"] {
        assert!(told.stdout.lines().any(|line| line.starts_with(fact)), "no {fact} in {}", told.stdout);
    }
    let told = doctor(&server.url(), &["--json"]);
    assert_eq!(told.code, 1);
    let told: Value = serde_json::from_str(&told.stdout).unwrap();
    let names: Vec<_> = told["findings"].as_array().unwrap().iter().map(|finding| &finding["name"]).collect();
    assert_eq!(names, ["eviction", "persistence"]);
    assert_eq!(told["reachable"], true);

    let server = RedisServer::builder().arg("maxmemory-policy", "noeviction").appendonly(true).start();
    let told = doctor(&server.url(), &[]);
    assert_eq!(told.code, 0, "{}", told.stdout);
    assert!(told.stdout.ends_with("\nnothing to change\n"), "{}", told.stdout);
}

/// What the user may not do is found before it is needed; what it may not see is no reason to fail.
#[test]
fn rights_that_are_missing_are_told() {
    let rules = "on >secret ~clinch:* resetchannels -@all +@read +@write +@connection +time";
    let server = RedisServer::builder().acl_user("app", rules).appendonly(true).start();
    let told = at(&server.url_with(0, Some("app"), Some("secret")), &["doctor"]);
    assert_eq!(told.code, 1, "{}", told.stdout);
    assert!(told.stdout.contains("eval") && told.stdout.contains("not known: "), "{}", told.stdout);
    assert!(!told.stdout.contains("secret"), "{}", told.stdout);
}

/// A file, with nothing to change; then one that every user may write, has a second name, and is damaged.
#[test]
fn a_file_is_looked_at_closely() {
    let home = home();
    let path = home.path().join("state/clinch.db");
    let url = format!("sqlite://{}", path.display());
    let job = holding(&url, &["--key", "deploy"]);
    let told = doctor(&url, &["--json"]);
    assert_eq!((told.code, told.stderr.as_str()), (0, ""), "{}", told.stdout);
    let told: Value = serde_json::from_str(&told.stdout).unwrap();
    let fact = |name: &str| {
        let facts = told["facts"].as_array().unwrap();
        facts.iter().find(|fact| fact["name"] == name).unwrap_or_else(|| panic!("no {name}"))["value"].clone()
    };
    for (name, value) in [
        ("engine", "sqlite"),
        ("file_mode", "0600"),
        ("directory_mode", "0700"),
        ("journal_mode", "wal"),
        ("integrity", "ok"),
        ("leases", "1"),
    ] {
        assert_eq!(fact(name), value, "{name}");
    }
    for name in ["version", "file", "file_bytes", "log_bytes", "file_system", "free_bytes", "listeners"] {
        assert!(fact(name).is_string(), "{name}");
    }
    assert_eq!(job.finish().code, 0);

    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o666)).unwrap();
    std::fs::hard_link(&path, path.with_file_name("other.db")).unwrap();
    let told = doctor(&url, &[]);
    assert_eq!((told.code, told.stderr.as_str()), (1, ""), "{}", told.stdout);
    for said in [
        "error: several_names: the file has 2 names",
        "warning: others_write: every user of this machine can write the file",
        &format!("to change: `chmod o-rwx {}`", path.display()),
    ] {
        assert!(told.stdout.contains(said), "no {said} in {}", told.stdout);
    }

    damage(&path);
    let told = at(&url, &["doctor"]);
    assert_eq!((told.code, told.stderr.as_str()), (1, ""), "{}", told.stdout);
    for said in [
        "error: damage: the file is damaged: ",
        "to change: stop all that use it and move the file away",
        "error: step: `lock`, `renew`, ",
    ] {
        assert!(told.stdout.contains(said), "no {said} in {}", told.stdout);
    }
}

/// Damages all pages but the first, which says what the file is, and that of the table which is read to open it.
fn damage(path: &Path) {
    let file = Connection::open(path).unwrap();
    let read = |sql: &str| file.query_row(sql, [], |row| row.get::<_, u32>(0)).unwrap() as usize;
    let (size, kept) =
        (read("PRAGMA page_size"), read("SELECT rootpage FROM sqlite_schema WHERE name = 'machine'"));
    // Programs that end leave their log or not: whatever is in it now goes into the file, and it goes away.
    file.close().unwrap();
    assert!(!path.with_extension("db-wal").exists());
    let mut bytes = std::fs::read(path).unwrap();
    let pages = bytes.chunks_mut(size).enumerate().skip(1);
    pages.filter(|(at, _)| at + 1 != kept).for_each(|(_, page)| page.fill(0xA5));
    std::fs::write(path, bytes).unwrap();
}
