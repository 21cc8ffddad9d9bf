//! `clinch run` with places other than the only one: permits and shared locks.

use clinch_testkit::server::RedisServer;

use crate::common::{ended, holding, run};

#[test]
fn at_most_so_many_at_a_time() {
    let server = RedisServer::start();
    let url = server.url();
    let args = ["--key", "export", "--limit", "2"];
    let [first, second] = [holding(&url, &args), holding(&url, &args)];

    let third = run(&server, &["--key", "export", "--limit", "2", "--", "true"]);
    assert_eq!(third.code, 75);
    let said = "clinch: no permit: all of `export` are taken; the first to end is ";
    assert!(third.stderr.starts_with(said) && third.stderr.contains(" (sh) since "), "{}", third.stderr);
    // The lock of the same key is something else.
    assert_eq!(run(&server, &["--key", "export", "--", "true"]), ended(0, ""));

    assert_eq!(first.finish(), ended(0, ""));
    let third = holding(&url, &args);
    for job in [second, third] {
        assert_eq!(job.finish(), ended(0, ""));
    }
    assert_eq!(crate::common::held(&server), [""; 0]);
}

#[test]
fn readers_together_and_a_writer_alone() {
    let server = RedisServer::start();
    let url = server.url();
    let readers = ["--key", "catalogue", "--shared"].map(str::to_owned);
    let readers: Vec<&str> = readers.iter().map(String::as_str).collect();
    let [first, second] = [holding(&url, &readers), holding(&url, &readers)];
    let writer = run(&server, &["--key", "catalogue", "--", "true"]);
    assert_eq!(writer.code, 75, "{}", writer.stderr);
    for job in [first, second] {
        assert_eq!(job.finish(), ended(0, ""));
    }
    let writer = holding(&url, &["--key", "catalogue"]);
    let reader = run(&server, &["--key", "catalogue", "--shared", "--", "true"]);
    assert_eq!(reader.code, 75, "{}", reader.stderr);
    assert_eq!(writer.finish(), ended(0, ""));
    assert_eq!(crate::common::held(&server), [""; 0]);
}

/// A fence is for one who is alone; a command does not get that of another clinch around it.
#[test]
fn only_who_is_alone_has_a_fence() {
    let server = RedisServer::start();
    for args in [&["--shared"][..], &["--limit", "1"]] {
        let print = ["--", "sh", "-c", "echo \"[$CLINCH_FENCE]\""];
        let mut job = crate::common::with_env(
            &[("CLINCH_FENCE", Some("7"))],
            &[&["run", "--store", &server.url(), "--key", "k"], args, &print].concat(),
        );
        job.expect_line("[]");
        assert_eq!(job.end(), ended(0, ""));
    }
}

#[test]
fn places_that_make_no_sense_are_64() {
    let server = RedisServer::start();
    for (args, said) in [
        (&["--limit", "0"][..], "accepted is a whole number from 1"),
        (&["--limit", "-1"], "-1"),
        (&["--limit", "two"], "--limit"),
        (&["--limit", "2", "--shared"], "cannot be used with"),
    ] {
        let done = run(&server, &[&["--key", "k"], args, &["--", "true"]].concat());
        assert_eq!((done.code, done.stdout.as_str()), (64, ""), "{args:?}: {}", done.stderr);
        assert!(done.stderr.contains(said) && done.stderr.lines().count() == 1, "{}", done.stderr);
    }
}
