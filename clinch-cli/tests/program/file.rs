//! Without a server: the default engine, a file in the user's state folder.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use crate::common::{Clinch, Ended, PATIENT, UNTIL_TOLD, ended, home, under, with_env};

/// `clinch` of a user with this home, who has set up nothing but time limits for a busy machine.
fn clinch(home: &Path, args: &[&str]) -> Clinch {
    with_env(&[&[("XDG_STATE_HOME", None), ("HOME", home.to_str())], &PATIENT[..]].concat(), args)
}

fn holding(home: &Path, args: &[&str]) -> Clinch {
    let mut job = clinch(home, &[&["run"], args, &["--", "sh", "-c", UNTIL_TOLD]].concat());
    job.expect_line("ready");
    job
}

/// Two shells, no server, no configuration.
///
/// Proves: B11, B12
#[test]
fn two_shells_exclude_each_other_with_nothing_set_up() {
    let home = home();
    let first = holding(home.path(), &["--key", "k", "--ttl", "2s"]);

    let second =
        clinch(home.path(), &["run", "--key", "k", "--wait", "0s", "--", "echo", "must not run"]).end();

    assert_eq!(
        (second.code, second.stdout.as_str(), second.stderr.lines().count()),
        (75, "", 1),
        "{}",
        second.stderr
    );
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let holder = format!("`k` is held by {host}:{} (sh) since ", first.id());
    assert!(second.stderr.contains(&holder), "{} has no {holder}", second.stderr);
    let folder = home.path().join(".local/state/clinch");
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&folder), mode(&folder.join("clinch.db"))), (0o700, 0o600));

    // Killed, it cannot give the lock back; it is free after its TTL.
    first.signal(Signal::KILL);
    let died = Instant::now();
    let next = clinch(home.path(), &["run", "--key", "k", "--wait", "60s", "--", "echo", "my turn"]).end();
    assert_eq!(next, Ended { stdout: "my turn\n".to_owned(), ..ended(0, "") });
    assert!(died.elapsed() < Duration::from_secs(20), "{:?}", died.elapsed());
    assert_eq!(clinch(home.path(), &["inspect", "k"]).end().code, 1);
}

/// Fifty at once add one each to a number, without any care of their own.
///
/// Proves: B11, B12
#[test]
fn fifty_processes_at_once_make_an_exact_sum() {
    let home = home();
    let place = home.path().join("work");
    std::fs::create_dir(&place).unwrap();
    std::fs::write(place.join("sum"), "0\n").unwrap();
    // `mkdir` fails if somebody else is inside.
    let script = format!(
        "cd {} && mkdir inside || exit 9; read sum <sum; echo $((sum + 1)) >sum; rmdir inside",
        place.display()
    );
    let start = || clinch(home.path(), &["run", "--key", "sum", "--wait", "5m", "--", "sh", "-c", &script]);
    let all: Vec<Clinch> = (0..50).map(|_| start()).collect();
    for one in all {
        assert_eq!(one.end(), ended(0, ""));
    }
    assert_eq!(std::fs::read_to_string(place.join("sum")).unwrap(), "50\n");
    assert_eq!(clinch(home.path(), &["ls"]).end().stdout, "nothing is held\n");
}

/// Proves: B12
#[test]
fn a_lease_on_a_file_can_be_seen_and_ended_by_force() {
    let home = home();
    let job = holding(home.path(), &["--key", "deploy", "--label", "stuck"]);
    let permits = [(); 2].map(|()| holding(home.path(), &["--key", "export", "--limit", "2"]));
    let reader = holding(home.path(), &["--key", "catalogue", "--shared"]);

    let listed = clinch(home.path(), &["ls", "--json"]).end();
    let mut kinds: Vec<(String, String)> = listed
        .stdout
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .map(|holder| {
            (holder["key"].as_str().unwrap().to_owned(), holder["kind"].as_str().unwrap().to_owned())
        })
        .collect();
    kinds.sort();
    let expected = [("catalogue", "shared"), ("deploy", "lock"), ("export", "permit"), ("export", "permit")];
    assert_eq!(kinds, expected.map(|(key, kind)| (key.to_owned(), kind.to_owned())));
    let third = clinch(home.path(), &["run", "--key", "export", "--limit", "2", "--", "true"]).end();
    assert_eq!(third.code, 75, "{}", third.stderr);
    let writer = clinch(home.path(), &["run", "--key", "catalogue", "--", "true"]).end();
    assert_eq!(writer.code, 75, "{}", writer.stderr);

    let released = clinch(home.path(), &["release", "deploy", "--force", "--yes"]).end();
    assert_eq!((released.code, released.stderr.as_str()), (0, ""));
    assert!(released.stdout.contains(&format!(":{} (stuck) since ", job.id())), "{}", released.stdout);
    let job = job.end();
    assert_eq!(job.code, 70);
    assert!(job.stderr.starts_with("clinch: lease lost on `deploy`: "), "{}", job.stderr);
    let log = std::fs::read_to_string(home.path().join(".local/state/clinch/audit.log")).unwrap();
    assert_eq!(log.lines().count(), 2);
    for job in permits.into_iter().chain([reader]) {
        assert_eq!(job.finish(), ended(0, ""));
    }
}

#[test]
fn the_command_is_told_a_fence_that_rises() {
    let home = home();
    let fence = || {
        let done =
            clinch(home.path(), &["run", "--key", "k", "--", "sh", "-c", "echo \"$CLINCH_FENCE\""]).end();
        done.stdout.trim().parse::<u64>().unwrap()
    };
    let (first, second) = (fence(), fence());
    assert!(first < second, "{first} {second}");
}

/// Whoever only looks makes no file: one that was mistyped would look like an engine on which nothing is held.
#[test]
fn a_file_that_is_not_there_is_told_by_all_who_only_look() {
    let home = home();
    for file in ["mistyped.db", "no/such/folder/mistyped.db"] {
        let path = home.path().join(file);
        let store = format!("sqlite://{}", path.display());
        for args in
            [&["ls"][..], &["ls", "--json"], &["inspect", "k"], &["release", "k", "--force"], &["doctor"]]
        {
            for flag in [&[][..], &["--store", &store]] {
                let variable = [("CLINCH_STORE", Some(store.as_str()))];
                let done =
                    with_env(if flag.is_empty() { &variable } else { &[] }, &[args, flag].concat()).end();
                assert_eq!(done.code, 69, "{args:?}: {}{}", done.stdout, done.stderr);
                let said = if args == ["doctor"] { &done.stdout } else { &done.stderr };
                let named = if flag.is_empty() { "CLINCH_STORE" } else { "--store" };
                let told = format!("SQLite at {}: there is no such file, and none was made", path.display());
                for part in
                    [told.as_str(), &format!("see whether the path from {named} is right"), "`clinch run`"]
                {
                    assert!(said.contains(part), "{args:?}: no {part} in {said}");
                }
                assert!(done.stderr.lines().count() <= 1, "{}", done.stderr);
            }
        }
    }
    assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 0, "nothing was made");
    // What takes a lock makes the file, and from then on it can be looked at.
    let store = format!("sqlite://{}/locks.db", home.path().display());
    let env = [&[("CLINCH_STORE", Some(store.as_str()))], &PATIENT[..]].concat();
    assert_eq!(with_env(&env, &["run", "--key", "k", "--", "true"]).end(), ended(0, ""));
    assert_eq!(
        with_env(&env, &["ls"]).end(),
        Ended { stdout: "nothing is held\n".to_owned(), ..ended(0, "") }
    );
}

/// Where the address says that nothing is to be made, nobody is told that something would be.
#[test]
fn with_mode_rw_in_its_address_a_file_is_never_made() {
    let home = home();
    let path = home.path().join("locks.db");
    let store = format!("sqlite://{}?mode=rw", path.display());
    let refused = |said: &str| {
        let taking = ["run", "--key", "k", "--", "echo", "must not run"];
        for args in [&["ls"][..], &["doctor"], &["bench"], &taking] {
            let done = with_env(&[("CLINCH_STORE", Some(&store))], args).end();
            assert_eq!(done.code, 69, "{args:?}: {}{}", done.stdout, done.stderr);
            let told = if args == ["doctor"] { &done.stdout } else { &done.stderr };
            for part in
                [said, "see whether the path from CLINCH_STORE is right; with `mode=rw` in it none is made"]
            {
                assert!(told.contains(part), "{args:?}: no {part} in {told}");
            }
            assert!(!told.contains("`clinch run`") && !done.stdout.contains("must not run"), "{told}");
        }
    };
    refused("there is no such file, and none was made");
    assert!(!path.exists());
    std::fs::write(&path, "").unwrap();
    refused("the file is empty, and no database was made of it");
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 0);
}

/// The file that needs no setting up needs none for looking either: before anybody took a lock, nothing is held.
#[test]
fn before_the_first_lock_nothing_is_held_and_nothing_is_made() {
    let home = home();
    for (args, code, stdout) in [
        (&["ls"][..], 0, "nothing is held\n"),
        (&["ls", "--json"], 0, ""),
        (&["inspect", "k"], 1, "`k` is free\n"),
        (&["release", "k", "--force", "--yes"], 1, "`k` is free; nothing was released\n"),
    ] {
        let done = clinch(home.path(), args).end();
        assert_eq!((done.code, done.stdout.as_str()), (code, stdout), "{args:?}: {}", done.stderr);
        let file = home.path().join(".local/state/clinch/clinch.db");
        let note = format!("clinch: note: no engine is named, and {} is not there yet", file.display());
        assert!(done.stderr.starts_with(&note) && done.stderr.contains("CLINCH_STORE"), "{}", done.stderr);
        assert_eq!(done.stderr.lines().count(), 1, "{}", done.stderr);
    }
    let doctor = clinch(home.path(), &["doctor"]).end();
    assert_eq!((doctor.code, doctor.stderr.as_str()), (0, ""), "{}", doctor.stdout);
    for part in ["\nnote: no_file_yet: no engine is named", "to change: the first `clinch run` makes it"] {
        assert!(doctor.stdout.contains(part), "{}", doctor.stdout);
    }
    let doctor = clinch(home.path(), &["doctor", "--json"]).end();
    let report: Value = serde_json::from_str(&doctor.stdout).unwrap();
    assert_eq!((doctor.code, &report["reachable"]), (0, &false.into()));
    assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 0, "nothing was made");

    // One in which nothing is may be in the making.
    let folder = home.path().join(".local/state/clinch");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("clinch.db"), "").unwrap();
    let listed = clinch(home.path(), &["ls"]).end();
    assert_eq!((listed.code, listed.stdout.as_str()), (0, "nothing is held\n"), "{}", listed.stderr);
    assert!(listed.stderr.starts_with("clinch: note: no engine is named"), "{}", listed.stderr);
    assert_eq!(std::fs::metadata(folder.join("clinch.db")).unwrap().len(), 0, "nothing was made of it");

    // Who watches meanwhile sees the first one come.
    let mut watch = clinch(home.path(), &["ls", "--watch=100ms"]);
    watch.expect_line("nothing is held");
    let job = holding(home.path(), &["--key", "first"]);
    while !watch.line().starts_with("first ") {}
    assert_eq!(job.finish(), ended(0, ""));
}

/// A file that is none of ours is left as it is.
#[test]
fn a_file_that_cannot_be_used_is_69_and_stays_as_it_is() {
    let home = home();
    let folder = home.path().join(".local/state/clinch");
    std::fs::create_dir_all(&folder).unwrap();
    let garbage =
        "this is no database, and it is longer than the hundred bytes of the header of one. ".repeat(9);
    std::fs::write(folder.join("clinch.db"), &garbage).unwrap();
    for args in
        [&["run", "--key", "k", "--", "echo", "must not run"][..], &["ls"], &["inspect", "k"], &["doctor"]]
    {
        let done = clinch(home.path(), args).end();
        assert_eq!(done.code, 69, "{args:?}: {}{}", done.stdout, done.stderr);
        let said = if args == ["doctor"] { &done.stdout } else { &done.stderr };
        assert!(said.contains("clinch.db"), "{args:?}: {said}");
        assert!(!done.stdout.contains("must not run") && done.stderr.lines().count() <= 1, "{}", done.stderr);
    }
    assert_eq!(std::fs::read_to_string(folder.join("clinch.db")).unwrap(), garbage);
}

/// Where no file can be, none is made, and nothing is run.
#[test]
fn a_home_that_is_none_is_told() {
    for (home, code) in [("/dev/null", 64), ("/proc/nowhere", 69)] {
        let done = clinch(Path::new(home), &["run", "--key", "k", "--", "echo", "must not run"]).end();
        assert_eq!(
            (done.code, done.stdout.as_str(), done.stderr.lines().count()),
            (code, "", 1),
            "{}",
            done.stderr
        );
        assert!(done.stderr.contains(home), "{}", done.stderr);
    }
}

/// A disk without room: no lock, no command, and no file that would be in anybody's way when there is room again.
#[test]
fn a_full_disk_is_69_and_costs_nothing() {
    let home = home();
    let disk = home.path().join("disk");
    std::fs::create_dir(&disk).unwrap();
    // A disk of this size, for this process alone.
    let on_disk = |script: &str| {
        let script = format!("mount -t tmpfs -o size=1m none {0} && cd {0} && {script}", disk.display());
        let command = ["unshare", "--map-root-user", "--mount", "sh", "-c", &script, "sh"];
        under(&command, &["run", "--store", &format!("sqlite://{}/clinch.db", disk.display()), "--key", "k"])
    };
    if on_disk("true").end().code != 0 {
        eprintln!("not tested: this machine does not let us mount");
        return;
    }
    // First without any room, then with a file that is there and has no room left, then with room again.
    let fill = "dd if=/dev/zero of=fill bs=1k 2>/dev/null";
    let script = format!(
        "{fill}; \"$@\" -- echo must not run; echo $?; rm fill; \"$@\" -- echo first; echo $?; \
         {fill}; \"$@\" -- echo full; echo $?; rm fill; \"$@\" -- echo last; echo $?; \
         {fill}; \"$1\" doctor --store sqlite:clinch.db; echo $?"
    );
    let done = on_disk(&script).end();
    assert_eq!(done.code, 0, "{}", done.stderr);
    let (runs, doctor) = done.stdout.split_once("FACT").unwrap();
    let lines: Vec<&str> = runs.lines().collect();
    assert_eq!(lines[..3], ["69", "first", "0"], "{}{}", done.stdout, done.stderr);
    // A file that has its pages already may need no more of them.
    assert!(
        [&["69"][..], &["full", "0"]].contains(&&lines[3..lines.len() - 2]),
        "{}{}",
        done.stdout,
        done.stderr
    );
    assert_eq!(lines[lines.len() - 2..], ["last", "0"], "{}{}", done.stdout, done.stderr);
    // It is there, and has a reason; if its log was removed at the last end, there is no room for a new one.
    let few = doctor.contains("\nerror: disk: only ") && doctor.ends_with("\n1\n");
    let none = doctor.contains("look at the disk and its file system") && doctor.ends_with("\n69\n");
    assert!(few || none, "{doctor}");
}

#[test]
fn a_file_can_be_looked_at_closely_and_measured() {
    let home = home();
    let bench = clinch(home.path(), &["bench", "--json", "--concurrency", "4"]).end();
    assert_eq!((bench.code, bench.stderr.as_str()), (0, ""));
    let bench: Value = serde_json::from_str(&bench.stdout).unwrap();
    assert_eq!((&bench["left"], bench["figures"].as_array().unwrap().len()), (&0.into(), 5));
    let doctor = clinch(home.path(), &["doctor", "--timeout", "20s"]).end();
    assert_eq!((doctor.code, doctor.stderr.as_str()), (0, ""), "{}", doctor.stdout);
    assert!(doctor.stdout.lines().any(|line| line.ends_with(" sqlite")), "{}", doctor.stdout);
}
