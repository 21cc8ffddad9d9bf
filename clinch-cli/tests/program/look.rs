//! `clinch ls` and `clinch inspect`.

use std::collections::BTreeSet;
use std::fs::File;

use clinch_testkit::server::RedisServer;
use serde_json::Value;

use crate::common::{at, ended, holding, plain, writing_to};

/// Every line as JSON.
fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn all_kinds_of_holders_are_listed() {
    let server = RedisServer::start();
    let url = server.url();
    let jobs = [
        holding(&url, &["--key", "nightly", "--label", "backup"]),
        holding(&url, &["--key", "catalogue", "--shared"]),
        holding(&url, &["--key", "export", "--limit", "2"]),
    ];
    server.set("clinch:lock:foreign", "another client's secret");
    server.set("clinch:dup:form", "00112233445566778899aabbccddeeff@web:7:%1B%5B2Jclear");

    let table = at(&url, &["ls"]);

    assert_eq!((table.code, table.stderr.as_str()), (0, ""));
    let rows: Vec<&str> = table.stdout.lines().collect();
    // In the order of kinds and keys, each column where its heading is.
    for (row, (key, kind)) in rows[1..].iter().zip([
        ("catalogue", "shared"),
        ("foreign", "lock"),
        ("nightly", "lock"),
        ("form", "duplicate"),
        ("export", "permit"),
    ]) {
        assert!(row.starts_with(&format!("{key} ")), "{}", table.stdout);
        let column = rows[0].find("KIND").unwrap();
        assert!(row[column..].starts_with(&format!("{kind} ")), "{}", table.stdout);
    }
    assert_eq!(rows.len(), 6, "{}", table.stdout);
    assert!(rows[3].contains(&format!(":{} ", jobs[0].id())) && rows[3].contains("backup"), "{}", rows[3]);
    assert!(rows[2].contains("an unknown client") && rows[2].contains("for ever"), "{}", rows[2]);
    assert!(rows[4].contains("web:7") && rows[4].contains("?[2Jclear"), "{}", rows[4]);
    // Neither tokens nor what would act on a terminal.
    assert!(!table.stdout.contains("secret") && !table.stdout.contains("00112233"), "{}", table.stdout);
    assert!(!table.stdout.contains('\x1b'), "{}", table.stdout);
    for job in jobs {
        assert_eq!(job.finish(), ended(0, ""));
    }
}

#[test]
fn json_is_a_line_for_each_holder() {
    let server = RedisServer::start();
    let url = server.url();
    let job = holding(&url, &["--key", "nightly", "--label", "backup", "--ttl", "60s"]);
    server.set("clinch:lock:foreign", "another client's secret");

    let listed = at(&url, &["ls", "--json"]);

    let mut holders = lines(&listed.stdout);
    holders.sort_by_key(|holder| holder["key"].as_str().map(str::to_owned));
    assert_eq!(holders.len(), 2, "{}", listed.stdout);
    let (foreign, nightly) = (&holders[0], &holders[1]);
    assert_eq!((&nightly["key"], &nightly["kind"]), (&"nightly".into(), &"lock".into()));
    assert_eq!((&nightly["pid"], &nightly["label"]), (&job.id().into(), &"backup".into()));
    assert!((1..=60_000).contains(&nightly["remaining_ms"].as_u64().unwrap()), "{nightly}");
    assert!(nightly["since"].as_str().unwrap().ends_with('Z'), "{nightly}");
    for unknown in ["host", "pid", "label", "since", "remaining_ms", "fence"] {
        assert_eq!(foreign[unknown], Value::Null, "{foreign}");
    }
    assert!(!listed.stdout.contains("secret"), "{}", listed.stdout);

    let one = at(&url, &["inspect", "nightly", "--json"]);
    let one: Value = serde_json::from_str(&one.stdout).unwrap();
    assert_eq!((&one["held"], &one["holders"][0]["id"]), (&true.into(), &nightly["id"]));
    let fence: u64 = one["holders"][0]["fence"].as_str().unwrap().parse().unwrap();
    assert!(fence > 1 << 53, "{fence} needs no text");
    assert_eq!(job.finish(), ended(0, ""));
}

#[test]
fn a_pattern_chooses_keys() {
    let server = RedisServer::start();
    let url = server.url();
    for key in ["order:1", "order:22", "my-order"] {
        server.set(&format!("clinch:lock:{key}"), "x");
    }
    for (pattern, keys) in [
        ("order", &["my-order", "order:1", "order:22"][..]),
        ("order:*", &["order:1", "order:22"]),
        ("order:?", &["order:1"]),
        ("nothing", &[]),
    ] {
        let listed = at(&url, &["ls", pattern, "--json"]);
        let mut found: Vec<String> =
            lines(&listed.stdout).iter().map(|holder| holder["key"].as_str().unwrap().to_owned()).collect();
        found.sort();
        assert_eq!(found, keys, "{pattern}");
    }
    assert_eq!(at(&url, &["ls", "nothing"]).stdout, "nothing that matches is held\n");
    server.flushall();
    assert_eq!(at(&url, &["ls"]).stdout, "nothing is held\n");
    assert_eq!(at(&url, &["ls", "--json"]).stdout, "");
}

#[test]
fn a_long_list_is_shown_to_its_end() {
    let server = RedisServer::start();
    let script = "for i = 1, 5000 do redis.call('SET', 'clinch:lock:k' .. i, 'x', 'PX', 600000) end";
    server.command(&["EVAL", script, "0"]);
    let keys: BTreeSet<String> = lines(&at(&server.url(), &["ls", "--json"]).stdout)
        .iter()
        .map(|holder| holder["key"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(keys.len(), 5000);
    // The table has each once, and its heading.
    assert_eq!(at(&server.url(), &["ls"]).stdout.lines().count(), 5001);
    // `clinch ls | head`: nobody reads on, and nobody complains.
    for args in [&["ls", "--json"][..], &["ls"]] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let (code, said) = writing_to(writer, &[args, &["--store", &server.url()]].concat());
        assert_eq!((code, said.as_str()), (Some(0), ""), "{args:?}");
    }
}

#[test]
fn a_result_that_cannot_be_written_is_74() {
    let server = RedisServer::start();
    server.set("clinch:lock:k", "x");
    for args in [&["ls"][..], &["ls", "--json"], &["inspect", "k"]] {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let (code, said) = writing_to(full, &[args, &["--store", &server.url()]].concat());
        assert_eq!(code, Some(74), "{args:?}: {said}");
        assert!(said.starts_with("clinch: cannot write to stdout: ") && said.lines().count() == 1, "{said}");
    }
    // Whoever reads only the code gets it.
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let (code, said) = writing_to(writer, &["inspect", "free", "--store", &server.url()]);
    assert_eq!((code, said.as_str()), (Some(1), ""));
}

#[test]
fn inspect_ends_with_0_if_it_is_held_and_1_if_it_is_free() {
    let server = RedisServer::start();
    let url = server.url();
    let free = at(&url, &["inspect", "k"]);
    assert_eq!((free.code, free.stdout.as_str(), free.stderr.as_str()), (1, "`k` is free\n", ""));
    let free: Value = serde_json::from_str(&at(&url, &["inspect", "k", "--json"]).stdout).unwrap();
    assert_eq!(free, serde_json::json!({"key": "k", "held": false, "holders": []}));

    let jobs = [
        holding(&url, &["--key", "k", "--shared"]),
        holding(&url, &["--key", "k", "--shared"]),
        holding(&url, &["--key", "k", "--limit", "2"]),
    ];
    let held = at(&url, &["inspect", "k"]);
    assert_eq!(held.code, 0);
    assert_eq!((held.stdout.matches(" shared ").count(), held.stdout.matches(" permit ").count()), (2, 1));
    for job in &jobs {
        assert!(held.stdout.contains(&format!(":{} ", job.id())), "{}", held.stdout);
    }
    for job in jobs {
        job.finish();
    }
    assert_eq!(at(&url, &["inspect", "k"]).code, 1);
}

#[test]
fn watching_looks_again() {
    let server = RedisServer::start();
    let mut watch = plain(&["ls", "--watch=100ms", "--store", &server.url()]);
    watch.expect_line("nothing is held");
    watch.expect_line("");
    watch.expect_line("nothing is held");
    server.set("clinch:lock:k", "x");
    while watch.line() != "KEY  KIND  HOLDER             LABEL  SINCE  LEFT      ID" {}
    assert!(watch.line().starts_with("k    lock  an unknown client"));
    // Until somebody ends it, or the engine.
    server.kill();
    let watch = watch.end();
    assert_eq!(watch.code, 69, "{}", watch.stderr);
}
