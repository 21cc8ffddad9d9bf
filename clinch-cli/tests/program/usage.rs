//! How `clinch run` is called, and what it answers where nothing can be run.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use clinch_testkit::server::RedisServer;

use crate::common::{UNTIL_TOLD, ended, held, plain, run, with_env};

/// Proves: B12
#[test]
fn bad_usage_is_64_and_says_what_is_wrong() {
    let long_key = "k".repeat(513);
    let long_label = "l".repeat(65);
    let store = ["--store", "redis://127.0.0.1:1"];
    for (args, said) in [
        (
            &["--ttl", "0", "--key", "k", "--", "true"][..],
            "'0' for '--ttl <DURATION>': accepted is 10ms to 24h",
        ),
        (
            &["--ttl", "25h", "--key", "k", "--", "true"],
            "'25h' for '--ttl <DURATION>': accepted is 10ms to 24h",
        ),
        (
            &["--wait", "2years", "--key", "k", "--", "true"],
            "'2years' for '--wait <DURATION>': accepted is 0s to 366days",
        ),
        (
            &["--grace", "25h", "--key", "k", "--", "true"],
            "'25h' for '--grace <DURATION>': accepted is 0s to 24h",
        ),
        (&["--key", "", "--", "true"], "the key is empty"),
        (&["--key", "a{b", "--", "true"], "stray brace at byte 1"),
        (&["--key", "a\nb", "--", "true"], "control character U+000A"),
        (&["--key", &long_key, "--", "true"], "513 bytes"),
        (&["--key", "k", "--prefix", "a b", "--", "true"], "--prefix: prefix: \"a b\" is not accepted"),
        (&["--key", "k", "--label", &long_label, "--", "true"], "at most 64 bytes"),
        (&["--key", "k", "--store", "memory:", "--", "true"], "`memory:` protects nothing between processes"),
        (&["--key", "k", "--store", "ftp://:secret@h", "--", "true"], "unknown scheme"),
        (&["--key", "k", "--store", "redis://:secret@h:99999", "--", "true"], "did not parse"),
        (&["--key", "k", "--store", "secret", "--", "true"], "unknown scheme"),
        (&["--", "true"], "--key <KEY>"),
        (&["--key", "k"], "<COMMAND>"),
        (&["--key", "k", "--"], "<COMMAND>"),
        (
            &["--key", "k", "true"],
            "unexpected argument 'true' found; usage: clinch run --key <KEY> [OPTIONS] -- <COMMAND>...",
        ),
        (&["--key", "k", "--nope", "--", "true"], "'--nope'"),
    ] {
        let args = if args.contains(&"--store") { args.to_vec() } else { [&store, args].concat() };
        let done = plain(&[&["run"], &args[..]].concat()).end();
        assert_eq!((done.code, done.stdout.as_str()), (64, ""), "{args:?}: {}", done.stderr);
        assert!(
            done.stderr.starts_with("clinch: ") && done.stderr.contains(said),
            "{args:?}: {}",
            done.stderr
        );
        assert_eq!(done.stderr.lines().count(), 1, "{}", done.stderr);
        assert!(!done.stderr.contains("secret"), "{}", done.stderr);
    }
    for args in [&[][..], &["nope"], &["--nope"]] {
        let done = plain(args).end();
        assert_eq!((done.code, done.stderr.lines().count()), (64, 1), "{args:?}: {}", done.stderr);
    }
}

/// Whatever is given for a time or a number: which option it was, what was given, and what would do.
#[test]
fn a_time_that_is_none_is_told_with_what_is_accepted() {
    let refused = |args: &[&str], said: &str| {
        let done = plain(args).end();
        assert_eq!((done.code, done.stdout.as_str()), (64, ""), "{args:?}: {}", done.stderr);
        assert_eq!(done.stderr, format!("clinch: invalid value {said}\n"), "{args:?}");
    };
    let time = "accepted is a time with its unit, such as 500ms, 10s or 2m, from";
    for given in ["banana", "10", "-1s", "ten seconds", "s", "5 parsecs", "99999999999999999999s"] {
        for (option, range) in
            [("--ttl", "10ms to 24h"), ("--wait", "0s to 366days"), ("--grace", "0s to 24h")]
        {
            let args = ["run", "--key", "k", option, given, "--", "true"];
            refused(&args, &format!("'{given}' for '{option} <DURATION>': {time} {range}"));
        }
        refused(
            &["doctor", "--timeout", given],
            &format!("'{given}' for '--timeout <DURATION>': {time} 1ms to 1m"),
        );
        let watch = format!("--watch={given}");
        refused(&["ls", &watch], &format!("'{given}' for '--watch[=<DURATION>]': {time} 100ms to 1h"));
    }
    for given in ["0", "-1", "4294967296", "1s", "banana"] {
        let said = |option: &str, most: u32| {
            format!("'{given}' for '{option}': accepted is a whole number from 1 to {most}")
        };
        refused(&["bench", "--seconds", given], &said("--seconds <SECONDS>", 60));
        refused(&["bench", "--concurrency", given], &said("--concurrency <TASKS>", 1000));
        refused(&["run", "--key", "k", "--limit", given, "--", "true"], &said("--limit <N>", u32::MAX));
    }
}

#[test]
fn engine_and_prefix_come_from_the_environment_too() {
    let server = RedisServer::builder().password("secret").start();
    let url = server.url();
    let env = [("CLINCH_STORE", Some(url.as_str())), ("CLINCH_PREFIX", Some("shop"))];
    let mut job = with_env(&env, &["run", "--key", "k", "--", "sh", "-c", UNTIL_TOLD]);
    job.expect_line("ready");
    assert_eq!(held(&server), ["shop:lock:k"]);
    job.tell("0");
    assert_eq!(job.end(), ended(0, ""));
    // The environment's value is not shown, for it may hold a password.
    let help = with_env(&env, &["run", "--help"]).end();
    assert!(help.code == 0 && !help.stdout.contains("secret"), "{}", help.stdout);
}

#[test]
fn an_engine_that_is_not_there_is_69_and_soon() {
    // A port that was free a moment ago.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let url = format!("redis://user:secret@127.0.0.1:{port}");
    let began = Instant::now();
    let done = plain(&["run", "--key", "k", "--wait", "60s", "--store", &url, "--", "true"]).end();
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    assert_eq!(done.code, 69, "{}", done.stderr);
    // Between the two stands what the system calls it.
    let what = format!("clinch: cannot connect to Redis at redis://user:***@127.0.0.1:{port}: ");
    let remedy = "; see whether it runs there, and whether the address from --store is right\n";
    let undone = format!("; nothing was run{remedy}");
    assert!(done.stderr.starts_with(&what) && done.stderr.ends_with(&undone), "{}", done.stderr);
    let looked = with_env(&[("CLINCH_STORE", Some(&url))], &["ls"]).end();
    assert_eq!(looked.code, 69);
    let said = done.stderr.replace("nothing was run; ", "").replace("--store", "CLINCH_STORE");
    assert_eq!(looked.stderr, said);
}

#[test]
fn an_engine_that_refuses_or_is_none_is_69() {
    let locked = RedisServer::builder().password("right").start();
    let primary = RedisServer::start();
    let replica = RedisServer::builder().replica_of(&primary).start();
    let web = TcpListener::bind("127.0.0.1:0").unwrap();
    let web_url = format!("redis://{}", web.local_addr().unwrap());
    std::thread::spawn(move || {
        for mut stream in web.incoming().flatten() {
            let _ = stream.read(&mut [0; 1024]);
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n");
        }
    });
    let rights =
        "see whether the address from --store has the right user and password, and what that user may do";
    for (url, said) in [
        (locked.url_with(0, None, Some("wrong-secret")), "credentials"),
        (locked.url_with(0, None, Some("wrong-secret")), rights),
        (locked.url_with(0, None, None), "NOAUTH"),
        (locked.url_with(0, None, None), rights),
        (replica.url(), "read-only replica"),
        (web_url, "does not speak Redis"),
    ] {
        let done = plain(&["run", "--key", "k", "--store", &url, "--", "true"]).end();
        assert_eq!((done.code, done.stdout.as_str()), (69, ""), "{}", done.stderr);
        assert!(done.stderr.contains(said), "{url}: {}", done.stderr);
        assert!(!done.stderr.contains("wrong-secret"), "{}", done.stderr);
        assert!(done.stderr.contains("; nothing was run"), "{}", done.stderr);
        assert_eq!(done.stderr.lines().count(), 1, "{}", done.stderr);
    }
}

#[test]
fn a_command_that_cannot_be_started_leaves_no_lock() {
    let server = RedisServer::start();
    let folder = tempfile::tempdir().unwrap();
    let plain_file = folder.path().join("plain");
    std::fs::write(&plain_file, "#!/bin/sh\n").unwrap();
    std::fs::set_permissions(&plain_file, std::fs::Permissions::from_mode(0o644)).unwrap();
    for (program, code) in [
        ("no-such-command-anywhere", 127),
        ("/no/such/command", 127),
        ("", 127),
        (plain_file.to_str().unwrap(), 126),
        (folder.path().to_str().unwrap(), 126),
    ] {
        let done = run(&server, &["--key", "k", "--", program]);
        assert_eq!(done.code, code, "{program}: {}", done.stderr);
        assert!(done.stderr.starts_with(&format!("clinch: cannot run `{program}`: ")), "{}", done.stderr);
        assert_eq!(held(&server), [""; 0]);
    }
}

#[test]
fn help_and_version_are_0() {
    for (args, said) in [
        (&["--version"][..], env!("CARGO_PKG_VERSION")),
        (&["--help"], "Exit status"),
        (&["run", "-h"], "--grace"),
        (&["run", "--help"], "CLINCH_KEY"),
        (&["help", "run"], "Exit status"),
    ] {
        let done = plain(args).end();
        assert_eq!((done.code, done.stderr.as_str()), (0, ""), "{args:?}");
        assert!(done.stdout.contains(said), "{args:?}: {}", done.stdout);
    }
}

/// Each command says how it is used, by example, and what it ends with.
#[test]
fn every_command_has_examples_and_exit_codes() {
    for command in [
        &["run"][..],
        &["ls"],
        &["inspect"],
        &["release"],
        &["doctor"],
        &["bench"],
        &["config", "check"],
        &["config", "show"],
    ] {
        let help = plain(&[command, &["--help"]].concat()).end();
        assert_eq!((help.code, help.stderr.as_str()), (0, ""), "{command:?}");
        let example = format!("Examples:\n  clinch {}", command.join(" "));
        for said in [example.as_str(), "Exit status:", "64  bad usage"] {
            assert!(help.stdout.contains(said), "{command:?}: no {said} in {}", help.stdout);
        }
        assert!(help.stdout.lines().all(|line| line.chars().count() <= 100), "{}", help.stdout);
    }
}

#[test]
fn completions_know_the_commands() {
    for (shell, sign) in
        [("bash", "complete -F _clinch"), ("zsh", "#compdef clinch"), ("fish", "complete -c clinch")]
    {
        let script = plain(&["completions", shell]).end();
        assert_eq!((script.code, script.stderr.as_str()), (0, ""), "{shell}");
        for known in [sign, "inspect", "release", "audit-log"] {
            assert!(script.stdout.contains(known), "{shell} has no {known}");
        }
    }
    let done = plain(&["completions", "tcsh"]).end();
    assert_eq!(
        (done.code, done.stdout.as_str(), done.stderr.lines().count()),
        (64, "", 1),
        "{}",
        done.stderr
    );
}

/// Who mistypes a command, or names none where there are some, is told which there are.
#[test]
fn a_mistyped_command_is_told_what_was_meant() {
    for (args, said) in [
        (&["lst"][..], "unrecognized subcommand 'lst'; did you mean `ls`?"),
        (&["frobnicate"], "'frobnicate'; usage: clinch <COMMAND>; `--help` lists them"),
        (&["config"], "where COMMAND is check, show"),
        (&["ls", "--wtch"], "did you mean `--watch`?"),
    ] {
        let ended = plain(args).end();
        assert_eq!(ended.code, 64, "{args:?}: {ended:?}");
        assert!(ended.stderr.contains(said), "{args:?}: {ended:?}");
    }
}
