//! A disk that is full.

use std::path::Path;
use std::process::Command;

use clinch::Record;
use clinch::lease::{Attempt, Claim};
use clinch::store::{Effect, ErrorKind, Renewal, Severity, Store, StoreError, Verdict};
use clinch::stores::StoreOptions;
use clinch::stores::sqlite::SqliteStore;

use crate::common::{Folder, LONG, granted, holder, key, lock, token};
use crate::kid::{Kid, say};

/// A program inside a file system of its own, of this size, where the folder is.
const IN_A_SMALL_FILE_SYSTEM: &str =
    r#"mount -t tmpfs -o size=1m small "$(dirname "$CLINCH_KID_FILE")" && exec "$0" "$@""#;

/// The disk fills up: what is new is refused as not applied, and a retry can help. Whoever holds something keeps it, can renew it
/// and give it back; and when there is room again, everything goes on, with nothing lost.
#[test]
fn a_full_disk_refuses_what_is_new_and_loses_nothing() {
    let folder = Folder::new();
    let apart = if rustix::process::geteuid().is_root() {
        ["unshare", "--mount", "sh", "-c", IN_A_SMALL_FILE_SYSTEM].to_vec()
    } else {
        ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", IN_A_SMALL_FILE_SYSTEM].to_vec()
    };
    let tried =
        Command::new(apart[0]).args(&apart[1..]).arg("true").env("CLINCH_KID_FILE", folder.file()).output();
    if !tried.is_ok_and(|output| output.status.success()) {
        println!("skipped: no right to mount a file system");
        return;
    }
    let mut kid = Kid::under(&apart, "fills the disk", &folder.file());
    let heard = kid.hear();
    println!("{heard}");
    assert!(heard.starts_with("all is well"), "{heard}");
    kid.end();
}

/// What the other process does on the small disk.
pub(crate) async fn fill(file: &Path) {
    let store = SqliteStore::open(file, &StoreOptions::default()).await.unwrap();
    let (held, kept) = (lock("held", LONG), lock("kept", LONG));
    granted(&store, &held).await;
    granted(&store, &kept).await;
    // Another program takes all there is.
    let ballast = file.with_file_name("ballast");
    assert!(std::fs::write(&ballast, vec![0; 2 << 20]).is_err(), "the disk is larger than it should be");
    refused(&store.acquire(&lock("new", LONG)).await.unwrap_err());
    let diagnosis = store.diagnose().await.unwrap();
    let finding = diagnosis.findings.iter().find(|finding| finding.name == "disk").unwrap();
    assert_eq!(finding.severity, Severity::Error);
    assert!(finding.problem.contains("nothing new is granted"), "{finding:?}");
    assert_eq!(diagnosis.value("file_system"), Some("tmpfs"));
    renewed(&store, &kept).await;
    assert!(store.release(&held).await.unwrap().held);
    std::fs::remove_file(&ballast).unwrap();
    let diagnosis = store.diagnose().await.unwrap();
    let finding = diagnosis.findings.iter().find(|finding| finding.name == "disk").unwrap();
    assert_eq!(finding.severity, Severity::Warning, "there is little room still: {finding:?}");

    // And now we do.
    let mut leases = Vec::new();
    let error = loop {
        assert!(leases.len() < 100_000, "the disk does not fill up");
        let attempt = lock(&format!("{}:{}", leases.len(), "long".repeat(100)), LONG);
        match store.acquire(&attempt).await {
            Ok(Verdict::Granted(_)) => leases.push(attempt),
            Ok(other) => panic!("{other:?}"),
            Err(error) => break error,
        }
    };
    refused(&error);
    let record = Record::new(vec![7; 1_000_000]);
    let request = Attempt::one(token(), Claim::idempotent(key("request"), LONG));
    refused(&store.complete(&request, &record, Some(LONG)).await.unwrap_err());
    renewed(&store, &kept).await;
    for lease in &leases {
        assert!(store.release(lease).await.unwrap().held, "a lease was lost");
    }

    // What was given back makes room; but a record that is larger than all of it is refused, and its lease stays.
    granted(&store, &request).await;
    refused(&store.complete(&request, &record, Some(LONG)).await.unwrap_err());
    assert_eq!(store.inspect(request.claims()[0].on()).await.unwrap().len(), 1);
    assert!(store.release(&request).await.unwrap().held);
    assert_eq!(holder(&store, "kept").await.as_ref(), Some(kept.token()));
    say(&format!("all is well: {} were granted before `{error}`", leases.len()));
}

fn refused(error: &StoreError) {
    let seen = (error.kind(), error.effect(), error.is_retryable());
    assert_eq!(seen, (ErrorKind::Full, Effect::NotApplied, true), "{error}");
    assert!(error.to_string().contains("free some space"), "{error}");
}

async fn renewed(store: &SqliteStore, lease: &Attempt) {
    let answer = store.renew(lease).await;
    assert!(matches!(answer, Ok(Renewal::Extended { .. })), "{answer:?}");
}
