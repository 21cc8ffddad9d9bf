//! `clinch release`, and its audit log.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use clinch_testkit::server::RedisServer;
use serde_json::Value;

use crate::common::{Ended, at, ended, holding, home, with_env};

/// `clinch release` with this home, to its end.
fn release(home: &Path, store: &str, args: &[&str]) -> Ended {
    let env = [("XDG_STATE_HOME", home.to_str())];
    with_env(&env, &[&["release", "--store", store], args].concat()).end()
}

/// The lines of the audit log.
fn audit(home: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(home.join("clinch/audit.log")).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn a_forced_release_ends_the_command_and_is_written_down() {
    let (server, home) = (RedisServer::start(), home());
    let job = holding(&server.url(), &["--key", "deploy", "--label", "stuck"]);
    let token = server.get("clinch:lock:deploy").unwrap();

    let released = release(home.path(), &server.url(), &["deploy", "--force", "--yes"]);

    assert_eq!((released.code, released.stderr.as_str()), (0, ""));
    let said = format!(":{} (stuck) since ", job.id());
    assert!(released.stdout.starts_with("released `deploy` (lock) from "), "{}", released.stdout);
    assert!(released.stdout.contains(&said), "{} has no {said}", released.stdout);
    let id = job.id();
    let job = job.end();
    assert_eq!(job.code, 70);
    assert!(job.stderr.contains("somebody ended it by force"), "{}", job.stderr);

    let log = audit(home.path());
    assert_eq!(log.len(), 2);
    assert_eq!((&log[0]["event"], &log[1]["event"]), (&"asked".into(), &"released".into()));
    for line in &log {
        assert_eq!(line["entry"], log[0]["entry"]);
        assert_eq!((&line["via"], &line["prefix"]), (&"clinch release".into(), &"clinch".into()));
        assert_eq!((&line["holder"]["key"], &line["holder"]["pid"]), (&"deploy".into(), &id.into()));
        assert_eq!(line["uid"], rustix::process::getuid().as_raw());
        assert!(line["time"].is_string() && line["host"].is_string());
        assert!(!line.to_string().contains(&token[..32]), "{line}");
    }
    let file = std::fs::metadata(home.path().join("clinch/audit.log")).unwrap();
    assert_eq!(file.permissions().mode() & 0o777, 0o600);
    let folder = std::fs::metadata(home.path().join("clinch")).unwrap();
    assert_eq!(folder.permissions().mode() & 0o777, 0o700);

    let again = release(home.path(), &server.url(), &["deploy", "--force", "--yes"]);
    assert_eq!((again.code, again.stdout.as_str()), (1, "`deploy` is free; nothing was released\n"));
    assert_eq!(audit(home.path()).len(), 2, "nothing was done, so there is nothing to write down");
}

#[test]
fn nothing_is_released_by_mistake() {
    let (server, home) = (RedisServer::start(), home());
    let url = server.url();
    server.set("clinch:lock:k", "x");
    for (args, said) in [
        (&["k"][..], "give --force"),
        (&["k", "--force"], "give --yes"),
        (&["k", "--force", "--yes", "--holder", "x", "--all"], "cannot be used with"),
        (&["k", "--force", "--yes", "--audit-log", "x", "--no-audit"], "cannot be used with"),
        (&["--force", "--yes"], "<KEY>"),
        (&["a{b", "--force", "--yes"], "stray brace"),
    ] {
        let done = release(home.path(), &url, args);
        assert_eq!((done.code, done.stdout.as_str()), (64, ""), "{args:?}: {}", done.stderr);
        assert!(done.stderr.contains(said) && done.stderr.lines().count() == 1, "{}", done.stderr);
    }
    assert_eq!(audit(home.path()), [Value::Null; 0]);
    assert!(server.exists("clinch:lock:k"));
}

#[test]
fn of_several_holders_it_is_said_which() {
    let (server, home) = (RedisServer::start(), home());
    let url = server.url();
    let args = ["--key", "export", "--limit", "4"];
    let jobs = [holding(&url, &args), holding(&url, &args), holding(&url, &args), holding(&url, &args)];
    let force = |args: &[&str]| release(home.path(), &url, &[&["export", "--force", "--yes"], args].concat());
    let ids: Vec<(u64, String)> = {
        let answer: Value = serde_json::from_str(&at(&url, &["inspect", "export", "--json"]).stdout).unwrap();
        let holders = answer["holders"].as_array().unwrap().iter();
        holders
            .map(|holder| (holder["pid"].as_u64().unwrap(), holder["id"].as_str().unwrap().to_owned()))
            .collect()
    };
    let id_of = |job: usize| &ids.iter().find(|(pid, _)| *pid == u64::from(jobs[job].id())).unwrap().1;

    let which = force(&[]);
    assert_eq!(which.code, 64);
    assert!(which.stderr.contains("`export` has 4 holders: give --holder ID or --all"), "{}", which.stderr);
    let nobody = force(&["--holder", "nobody"]);
    assert_eq!(nobody.code, 1);
    assert!(nobody.stderr.contains("no holder of `export` is `nobody`"), "{}", nobody.stderr);
    assert_eq!(at(&url, &["ls", "--json"]).stdout.lines().count(), 4);

    assert_eq!(force(&["--holder", id_of(0)]).code, 0);
    assert_eq!(force(&["--holder", &id_of(1)[..6]]).code, 0);
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    assert_eq!(force(&["--holder", &format!("{host}:{}", jobs[2].id())]).code, 0);
    let [first, second, third, fourth] = jobs;
    for job in [first, second, third] {
        assert_eq!(job.end().code, 70);
    }
    assert_eq!(audit(home.path()).len(), 6);

    let others = [holding(&url, &args), holding(&url, &["--key", "export", "--shared"])];
    let all = force(&["--all", "--json"]);
    assert_eq!(all.code, 0);
    let all: Value = serde_json::from_str(&all.stdout).unwrap();
    assert_eq!((all["released"].as_array().unwrap().len(), &all["gone"]), (3, &serde_json::json!([])));
    for job in others.into_iter().chain([fourth]) {
        assert_eq!(job.end().code, 70);
    }
}

/// What cannot be written down is not done, unless that is said.
#[test]
fn without_its_log_nothing_is_released() {
    let (server, home) = (RedisServer::start(), home());
    let url = server.url();
    server.set("clinch:lock:k", "x");
    let nowhere = home.path().join("no/such/folder/audit.log");
    for log in ["/dev/full", nowhere.to_str().unwrap(), home.path().to_str().unwrap()] {
        let done = release(home.path(), &url, &["k", "--force", "--yes", "--audit-log", log]);
        assert_eq!((done.code, done.stdout.as_str()), (74, ""), "{}", done.stderr);
        assert!(done.stderr.contains(log) && done.stderr.contains("--no-audit"), "{}", done.stderr);
        assert_eq!(done.stderr.lines().count(), 1);
        assert!(server.exists("clinch:lock:k"));
    }
    let done = release(home.path(), &url, &["k", "--force", "--yes", "--no-audit"]);
    assert_eq!(done.code, 0, "{}", done.stderr);
    assert_eq!(audit(home.path()), [Value::Null; 0]);
}

#[test]
fn the_configuration_may_name_the_log() {
    let (server, home) = (RedisServer::start(), home());
    server.set("clinch:lock:k", "x");
    let (log, file) = (home.path().join("here.log"), home.path().join("clinch.toml"));
    std::fs::write(&file, format!("store = {:?}\n[serve]\naudit_log = {:?}\n", server.url(), log)).unwrap();
    let done =
        crate::common::plain(&["release", "k", "--force", "--yes", "--config", file.to_str().unwrap()]).end();
    assert_eq!(done, Ended { stdout: done.stdout.clone(), ..ended(0, "") });
    assert_eq!(std::fs::read_to_string(log).unwrap().lines().count(), 2);
}
