//! The memory engine passes the conformance suite, and the suite is worth passing: every promise in it is broken on
//! purpose by at least one store below, and the suite says so by name.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "the broken stores are test code outside of test functions"
)]

mod broken;
mod faults;
mod found;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use clinch::conformance::{self, Harness, Need, PROMISES, Promise, Staged};
use clinch::lease::{Attempt, Claim, ClaimKey, Space, Token};
use clinch::store::{Store, StoreError, StoreFuture};
use clinch::stores::memory::MemoryStore;

use self::broken::Broken;
use self::faults::Fault;
use self::found::FAULTS;

/// The memory engine: connections are clones. Every value in it is a token with an expiry, so it cannot be given one
/// without, nor anything that is no lease.
#[derive(Default)]
struct Memory(MemoryStore);

impl Harness for Memory {
    fn connect(&self) -> StoreFuture<'_, Arc<dyn Store>> {
        Box::pin(async { Ok(Arc::new(self.0.clone()) as Arc<dyn Store>) })
    }

    fn put_foreign<'a>(&'a self, on: &'a ClaimKey, value: &'a str, ttl: Option<Duration>) -> Staged<'a> {
        let ttl = ttl?;
        Some(Box::pin(async move { put(&self.0, on, value, ttl).await }))
    }
}

/// As a plain client does: it takes the key if that is free.
async fn put(store: &MemoryStore, on: &ClaimKey, value: &str, ttl: Duration) -> Result<(), StoreError> {
    store.acquire(&Attempt::one(Token::from_text(value), claim(on, ttl))).await?;
    Ok(())
}

fn claim(on: &ClaimKey, ttl: Duration) -> Claim {
    match on.space {
        Space::Duplicate => Claim::duplicate(on.key.clone(), ttl),
        Space::Idempotency => Claim::idempotent(on.key.clone(), ttl),
        _ => Claim::exclusive(on.key.clone(), ttl),
    }
}

mod paused_clock {
    clinch::conformance_tests!(
        #[tokio::test(start_paused = true)]
        super::Memory::default()
    );
}

mod real_clock {
    clinch::conformance_tests!(
        #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
        super::Memory::default()
    );
}

#[tokio::test(start_paused = true)]
async fn the_memory_engine_passes_all_that_can_be_tried_on_it() {
    let report = conformance::run(&Memory::default()).await;
    println!("{report}");
    report.assert_passed();
    let skipped: Vec<_> = report.skipped().map(|(promise, _)| promise.to_string()).collect();
    assert_eq!(
        skipped,
        [
            "several::a_key_that_is_no_lease_leaves_the_others_free",
            "permits::a_key_that_is_no_limit_is_reported_and_kept",
            "shared::a_key_that_is_no_lease_is_reported_to_readers",
            "heirs::a_release_hands_over",
            "heirs::an_heir_is_told",
            "heirs::an_heir_that_does_nothing_loses_it",
            "heirs::a_renewal_confirms",
            "heirs::asking_again_confirms",
            "heirs::a_withdrawn_heir_inherits_nothing",
            "heirs::an_heir_gives_it_back",
            "heirs::others_inherit_nothing",
            "heirs::a_stranger_hands_nothing_over",
            "records::a_key_that_is_no_lease_is_kept",
            "refusal::shared_claims_are_refused_cleanly",
            "refusal::permits_are_refused_cleanly",
            "refusal::fences_are_refused_cleanly",
            "refusal::several_claims_are_refused_cleanly",
            "refusal::records_are_refused_cleanly",
            "refusal::a_refused_claim_leaves_the_others_free",
            "refusal::a_key_that_is_no_lease_is_reported_and_kept",
            "foreign::a_value_without_expiry_denies_without_end",
        ]
    );
}

#[test]
fn names_are_unique_and_every_need_is_used() {
    let names: BTreeSet<_> = PROMISES.iter().map(|promise| (promise.group(), promise.name())).collect();
    assert_eq!(names.len(), PROMISES.len());
    for need in [
        Need::Several,
        Need::Shared,
        Need::Permits,
        Need::Fences,
        Need::Fair,
        Need::Heirs,
        Need::Records,
        Need::Wakeups,
        Need::List,
        Need::NoShared,
        Need::NoPermits,
        Need::NoFences,
        Need::NoSeveral,
        Need::NoRecords,
        Need::Foreign,
        Need::ForeignWithoutExpiry,
        Need::WrongType,
    ] {
        assert!(PROMISES.iter().any(|promise| promise.needs().contains(&need)));
    }
}

#[tokio::test]
async fn a_promise_that_does_not_exist_is_not_kept() {
    assert!(conformance::run_one(&Memory::default(), "acquire::no_such_promise").await.is_err());
}

/// Runs the suite on its own paused clock.
fn run(fault: Fault) -> conformance::Report {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async { conformance::run(&Broken::new(fault)).await })
}

#[test]
fn a_store_without_fault_passes_everything() {
    let report = run(Fault::None);
    report.assert_passed();
    let skipped: Vec<_> = report.skipped().map(|(promise, _)| promise).collect();
    assert!(skipped.iter().all(|promise| promise.group() == "refusal"), "{report}");
}

/// With the test above: no promise is skipped on both.
#[test]
fn a_store_that_claims_little_passes_what_is_left() {
    let report = run(Fault::Modest);
    report.assert_passed();
    let refusals = report.passed().filter(|promise| promise.group() == "refusal").count();
    assert_eq!(refusals, PROMISES.iter().filter(|promise| promise.group() == "refusal").count() - 1);
    let several =
        report.skipped().find(|(promise, _)| promise.group() == "refusal").map(|(promise, _)| promise);
    assert_eq!(several.map(Promise::name), Some("several_claims_are_refused_cleanly"));
}

#[test]
fn every_fault_is_found_by_name() {
    let mut missed = Vec::new();
    for (fault, expected) in FAULTS {
        let report = run(*fault);
        let failed: BTreeSet<_> = report.failed().map(|(promise, _)| promise.to_string()).collect();
        missed.extend(
            expected.iter().filter(|promise| !failed.contains(**promise)).map(|promise| (fault, promise)),
        );
    }
    assert!(missed.is_empty(), "not found: {missed:#?}");
}

/// With the test above: no promise passes whatever a store does.
#[test]
fn every_promise_has_a_fault_that_it_finds() {
    let found: BTreeSet<_> = FAULTS.iter().flat_map(|(_, expected)| expected.iter().copied()).collect();
    let names: Vec<_> = PROMISES.iter().map(ToString::to_string).collect();
    let unfound: Vec<_> = names.iter().filter(|name| !found.contains(name.as_str())).collect();
    assert!(unfound.is_empty(), "no fault is found by {unfound:?}");
}

#[test]
fn a_report_says_what_failed_and_why() {
    let report = run(Fault::RenewShortens);
    let text = report.to_string();
    let (passed, skipped, failed) =
        (report.passed().count(), report.skipped().count(), report.failed().count());
    assert_eq!(passed + skipped + failed, PROMISES.len());
    assert!((1..10).contains(&failed), "{text}");
    assert!(text.starts_with(&format!("{passed} passed, {skipped} skipped, {failed} failed\n")), "{text}");
    let line = text.lines().find(|line| line.starts_with("FAILED")).unwrap();
    assert!(line.contains("renew::a_renewal_never_shortens"), "{line}");
    assert!(line.contains("a renewal shortened a lease") && line.contains("renew.rs:"), "{line}");
    let stuck = run(Fault::Stuck).to_string();
    assert!(stuck.contains("not done after 60s"), "{stuck}");
    let panicked = run(Fault::PingPanics).to_string();
    assert!(panicked.contains("a step panicked: broken on purpose"), "{panicked}");
}

#[test]
#[should_panic(expected = "renew::a_renewal_never_shortens")]
fn a_report_with_a_failure_fails_the_test() {
    run(Fault::RenewShortens).assert_passed();
}
