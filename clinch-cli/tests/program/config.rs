//! `clinch config`, and `--config` for all that talk to an engine.

use clinch_testkit::server::RedisServer;
use serde_json::Value;

use crate::common::{ended, held, home, plain, with_env};

/// Proves: O5
#[test]
fn a_file_is_checked_alone() {
    let home = home();
    let file = home.path().join("clinch.toml");
    let path = file.to_str().unwrap();
    // The environment is not the file's fault.
    let check = |args: &[&str]| {
        with_env(&[("CLINCH_STORE", Some("nonsense"))], &[&["config", "check", path], args].concat()).end()
    };
    std::fs::write(&file, "store = \"redis://:secret@localhost\"\nprefix = \"shop\"\n").unwrap();
    assert_eq!((check(&[]).code, check(&[]).stdout), (0, format!("{path}: nothing is wrong\n")));
    assert_eq!(check(&["--json"]).stdout, format!("{{\"file\":\"{path}\",\"ok\":true}}\n"));

    std::fs::write(&file, "prefix = \"shop\"\ncall_timeout = 5\n").unwrap();
    let bad = check(&[]);
    assert_eq!((bad.code, bad.stdout.as_str(), bad.stderr.lines().count()), (78, "", 1));
    assert!(bad.stderr.starts_with(&format!("clinch: {path}:2:")), "{}", bad.stderr);
    assert!(bad.stderr.contains("call_timeout") && bad.stderr.contains("accepted is"), "{}", bad.stderr);
    let bad: Value = serde_json::from_str(&check(&["--json"]).stdout).unwrap();
    assert_eq!((&bad["ok"], &bad["field"]), (&false.into(), &"call_timeout".into()));
    assert!(bad["place"].as_str().unwrap().starts_with(&format!("{path}:2:")), "{bad}");
}

#[test]
fn what_is_in_effect_is_shown_with_where_it_came_from() {
    let home = home();
    let file = home.path().join("clinch.toml");
    std::fs::write(
        &file,
        "prefix = \"shop\"\ncall_timeout = \"250ms\"\n[serve]\ntoken = \"correct-horse-battery\"\n",
    )
    .unwrap();
    let env = [
        ("CLINCH_STORE", Some("redis://app:secret@h/1")),
        ("CLINCH_CONFIG", file.to_str()),
        ("CLINCH_STOER", Some("x")),
    ];
    let shown = with_env(&env, &["config", "show", "--prefix", "other"]).end();
    assert_eq!(shown.code, 0, "{}", shown.stderr);
    for line in [
        "store = \"redis://app:***@h/1\" # CLINCH_STORE".to_owned(),
        "prefix = \"other\" # --prefix".to_owned(),
        format!("call_timeout = \"250ms\" # {}:2:16", file.display()),
        "connect_timeout = \"5s\" # default".to_owned(),
    ] {
        assert!(shown.stdout.lines().any(|shown| shown == line), "no {line} in {}", shown.stdout);
    }
    assert!(!shown.stdout.contains("secret") && !shown.stdout.contains("horse"), "{}", shown.stdout);
    assert!(shown.stderr.contains("did you mean `CLINCH_STORE`?"), "{}", shown.stderr);
    let shown = with_env(&env, &["config", "show", "--json"]).end();
    let json: Value = serde_json::from_str(&shown.stdout).unwrap();
    assert_eq!((&json["prefix"]["value"], &json["prefix"]["line"]), (&"shop".into(), &1.into()));
    assert_eq!(json["store"]["source"], "CLINCH_STORE");
}

#[test]
fn options_go_before_variables_and_variables_before_the_file() {
    let (server, home) = (RedisServer::start(), home());
    let file = home.path().join("clinch.toml");
    std::fs::write(&file, format!("store = {:?}\nprefix = \"file\"\n", server.url())).unwrap();
    let config = ["run", "--config", file.to_str().unwrap(), "--key", "k"];
    let variable = [("CLINCH_PREFIX", Some("variable"))];
    for (env, args, prefix) in [
        (&[][..], &[][..], "file"),
        (&variable, &[], "variable"),
        (&variable, &["--prefix", "option"], "option"),
        (&variable, &["--prefix", ""], ""),
    ] {
        let script = ["--", "sh", "-c", crate::common::UNTIL_TOLD];
        let mut job = with_env(env, &[&config, args, &script].concat());
        job.expect_line("ready");
        let key = if prefix.is_empty() { "lock:k".to_owned() } else { format!("{prefix}:lock:k") };
        assert_eq!(held(&server), [key]);
        assert_eq!(job.finish(), ended(0, ""));
    }
}

#[test]
fn a_configuration_that_cannot_be_used_is_78_and_runs_nothing() {
    let home = home();
    let file = home.path().join("clinch.toml");
    std::fs::write(&file, "store = \"redis://localhost\"\n[serve]\ntokn = \"x\"\n").unwrap();
    for (path, said) in [
        (file.to_str().unwrap(), "tokn"),
        (home.path().to_str().unwrap(), "it is a folder"),
        ("/no/such/file.toml", "cannot be read"),
    ] {
        for args in [
            &["run", "--key", "k", "--config", path, "--", "echo", "must not run"][..],
            &["ls", "--config", path],
        ] {
            let done = plain(args).end();
            assert_eq!((done.code, done.stdout.as_str()), (78, ""), "{}", done.stderr);
            assert!(done.stderr.contains(path) && done.stderr.contains(said), "{}", done.stderr);
            assert_eq!(done.stderr.lines().count(), 1, "{}", done.stderr);
        }
    }
    // A bad variable is bad usage, and is named.
    let done = with_env(&[("CLINCH_PREFIX", Some("a b"))], &["ls", "--store", "redis://localhost"]).end();
    assert_eq!(done.code, 64);
    assert!(done.stderr.contains("CLINCH_PREFIX: prefix"), "{}", done.stderr);
}

/// Turned off, there is no lock, and that is said; looking at the engine still works.
#[test]
fn a_clinch_that_is_turned_off_says_so() {
    let server = RedisServer::start();
    server.set("clinch:lock:k", "x");
    let env = [("CLINCH_ENABLED", Some("false")), ("CLINCH_STORE", Some(&server.url()))];
    let done = with_env(&env, &["run", "--key", "k", "--", "echo", "ran"]).end();
    assert_eq!((done.code, done.stdout.as_str()), (0, "ran\n"));
    assert!(done.stderr.contains("warning: clinch is turned off"), "{}", done.stderr);
    assert_eq!(with_env(&env, &["inspect", "k"]).end().code, 0);
}
