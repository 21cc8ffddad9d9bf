//! The SQLite store keeps every promise of the port; each test has a file of its own. Every connection of the suite is a store
//! of its own, with its own thread and its own connection to the file: what two processes have between them.

#![cfg(all(feature = "sqlite", feature = "conformance"))]
#![allow(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;
use std::time::Duration;

use clinch::conformance::{self, Harness, Pace, Staged};
use clinch::lease::{Attempt, Claim, ClaimKey, Space, Token};
use clinch::store::{Store, StoreFuture};
use clinch::stores::StoreOptions;
use clinch::stores::sqlite::SqliteStore;
use tempfile::TempDir;

struct OnSqlite(TempDir);

impl OnSqlite {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    async fn store(&self) -> Result<SqliteStore, clinch::store::StoreError> {
        // Time limits are not what is tested.
        let mut options = StoreOptions::default();
        options.call_timeout = Duration::from_secs(10);
        SqliteStore::open(self.0.path().join("locks.db"), &options).await
    }
}

impl Harness for OnSqlite {
    fn pace(&self) -> Pace {
        let mut pace = Pace::default();
        pace.at_once = 16;
        pace.patience = Duration::from_secs(30);
        pace
    }

    fn connect(&self) -> StoreFuture<'_, Arc<dyn Store>> {
        Box::pin(async { Ok(Arc::new(self.store().await?) as Arc<dyn Store>) })
    }

    /// Every value in it is a token with an expiry, so it cannot be given one without, nor anything that is no lease.
    fn put_foreign<'a>(&'a self, on: &'a ClaimKey, value: &'a str, ttl: Option<Duration>) -> Staged<'a> {
        let ttl = ttl?;
        let claim = match on.space {
            Space::Duplicate => Claim::duplicate(on.key.clone(), ttl),
            Space::Idempotency => Claim::idempotent(on.key.clone(), ttl),
            _ => Claim::exclusive(on.key.clone(), ttl),
        };
        let foreign = Attempt::one(Token::from_text(value), claim);
        Some(Box::pin(async move { self.store().await?.acquire(&foreign).await.map(drop) }))
    }
}

clinch::conformance_tests!(
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    OnSqlite::new()
);

/// On one file for all of it, and nothing is skipped but what no value in the file can cause, what the store does better than
/// refusing, and heirs, which it does not claim.
#[tokio::test]
async fn the_whole_suite_runs_on_one_file() {
    let report = conformance::run(&OnSqlite::new()).await;
    println!("{report}");
    report.assert_passed();
    let skipped = report.skipped().map(|(promise, _)| promise.to_string());
    let expected = |promise: &String| ["refusal::", "heirs::"].iter().any(|group| promise.starts_with(group));
    let wrongly: Vec<_> = skipped.filter(|promise| !expected(promise)).collect();
    assert_eq!(
        wrongly,
        [
            "several::a_key_that_is_no_lease_leaves_the_others_free",
            "permits::a_key_that_is_no_limit_is_reported_and_kept",
            "shared::a_key_that_is_no_lease_is_reported_to_readers",
            "records::a_key_that_is_no_lease_is_kept",
            "foreign::a_value_without_expiry_denies_without_end",
        ]
    );
}
