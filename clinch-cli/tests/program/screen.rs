//! What is different on a terminal: colours, and being asked.
#![cfg(target_os = "linux")]

use clinch_testkit::server::RedisServer;

use crate::common::{Ended, home, terminal};

const CLINCH: &str = env!("CARGO_BIN_EXE_clinch");

/// Colours are for whoever sits before the screen, unless they do not want them.
#[test]
fn colours_are_for_terminals() {
    let server = RedisServer::start();
    server.set("clinch:lock:k", "x");
    let shown = |env: &str, args: &str| {
        let command = format!("env TERM=xterm {env} {CLINCH} ls --store {} {args}", server.url());
        terminal(&command).end()
    };
    let bold = "\x1b[1mKEY\x1b[0m";
    for (env, args, colours) in [
        ("", "", true),
        ("NO_COLOR=", "", true),
        ("NO_COLOR=1", "", false),
        ("TERM=dumb", "", false),
        ("", "--color never", false),
        ("NO_COLOR=1", "--color always", true),
        ("", "| cat", false),
        ("", "--color always | cat", true),
    ] {
        let Ended { code, stdout, .. } = shown(env, args);
        assert_eq!((code, stdout.contains(bold)), (0, colours), "{env} {args}: {stdout:?}");
    }
}

#[test]
fn whoever_releases_is_shown_the_holder_and_asked() {
    let (server, home) = (RedisServer::start(), home());
    server.set("clinch:lock:k", "x");
    let state = home.path().display();
    let release = format!("env XDG_STATE_HOME={state} {CLINCH} release k --force --store {}", server.url());
    for (answer, code, is_left) in
        [("n\n", 1, true), ("\n", 1, true), ("yesterday\n", 1, true), ("\x04", 1, true), ("y\n", 0, false)]
    {
        let mut asked = terminal(&release);
        while !asked.line().contains("an unknown client") {}
        asked.type_in(answer);
        let asked = asked.end();
        assert_eq!(
            (asked.code, server.exists("clinch:lock:k")),
            (code, is_left),
            "{answer:?}: {}",
            asked.stdout
        );
        let said = if is_left { "nothing was released" } else { "released `k`" };
        assert!(
            asked.stdout.contains("[y/N]") && asked.stdout.contains(said),
            "{answer:?}: {}",
            asked.stdout
        );
    }
    let log = std::fs::read_to_string(home.path().join("clinch/audit.log")).unwrap();
    assert_eq!(log.lines().count(), 2, "only what was meant is written down");
}

#[test]
fn watching_draws_over_what_was_there() {
    let server = RedisServer::start();
    // The shell around it tells how it ended.
    let watch = format!("trap : INT; {CLINCH} ls --watch=100ms --store {}; echo ended with $?", server.url());
    let mut watch = terminal(&watch);
    for _ in 0..2 {
        assert_eq!(watch.line(), "\x1b[H\x1b[2Jnothing is held");
    }
    watch.type_in("\x03");
    while !watch.line().ends_with("ended with 130") {}
}

#[test]
fn a_bench_shows_how_far_it_is() {
    let bench = terminal(&format!("{CLINCH} bench --store memory: --concurrency 2")).end();
    assert_eq!(bench.code, 0, "{}", bench.stdout);
    for part in ["round trip", "hand-over between two", "permit"] {
        assert!(bench.stdout.contains(&format!("] {part}\x1b[K")), "{:?}", bench.stdout);
    }
    assert!(bench.stdout.contains("PER SECOND"), "{}", bench.stdout);
}
