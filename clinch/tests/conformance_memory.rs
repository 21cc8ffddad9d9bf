//! The memory engine passes the conformance suite, and the suite is worth passing: every promise in it is broken on
//! purpose by at least one store below, and the suite says so by name.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "the broken stores are test code outside of test functions"
)]

use std::collections::{BTreeSet, HashMap, HashSet};
use std::future::pending;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use clinch::conformance::{self, Harness, Need, PROMISES, Staged};
use clinch::key::Key;
use clinch::lease::{Attempt, Claim, ClaimKey, Holder, Mode, Patience, Space, Token};
use clinch::store::{
    Capabilities, Cursor, Denial, ErrorKind, Page, Release, Renewal, Revocations, Store, StoreError,
    StoreFuture, Verdict, Wakeups,
};
use clinch::stores::memory::MemoryStore;
use futures_util::FutureExt;
use tokio::sync::Notify;

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

async fn put(store: &MemoryStore, on: &ClaimKey, value: &str, ttl: Duration) -> Result<(), StoreError> {
    let foreign = Attempt::one(Token::from_text(value), claim(on, ttl));
    assert!(matches!(store.acquire(&foreign).await?, Verdict::Granted(_)));
    Ok(())
}

fn claim(on: &ClaimKey, ttl: Duration) -> Claim {
    match on.space {
        Space::Duplicate => Claim::duplicate(on.key.clone(), ttl),
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
            "refusal::several_claims_are_refused_cleanly",
            "refusal::a_key_that_is_no_lease_is_reported_and_kept",
            "foreign::a_value_without_expiry_denies_without_end",
        ]
    );
}

#[test]
fn names_are_unique_and_every_need_is_used() {
    let names: BTreeSet<_> = PROMISES.iter().map(|promise| (promise.group(), promise.name())).collect();
    assert_eq!(names.len(), PROMISES.len());
    for need in [Need::Several, Need::Wakeups, Need::List, Need::NoShared, Need::WrongType] {
        assert!(PROMISES.iter().any(|promise| promise.needs().contains(&need)));
    }
}

#[tokio::test]
async fn a_promise_that_does_not_exist_is_not_kept() {
    assert!(conformance::run_one(&Memory::default(), "acquire::no_such_promise").await.is_err());
}

/// What a store does wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// Nothing.
    None,
    ConnectionsApart,
    PingFails,
    PingPanics,
    FickleCapabilities,
    CloseForgets,
    /// Every call hangs.
    Stuck,
    AcquireRefusesRepeats,
    AcquireRepeatsExtend,
    AcquireOverwrites,
    AcquireChecksThenActs,
    AcquireForgetsToNoteTheSending,
    AcquireActsWhenCalled,
    AcquireArrivesLate,
    AcquireFolds,
    AcquireMixesSpaces,
    AcquireGrantsPartly,
    AcquireRollsBackTooMuch,
    AcquireUsesTheFirstTtl,
    AcquireTakesFewClaims,
    AcquireIgnoresModes,
    AcquireIgnoresSeveral,
    AcquireIgnoresWrongTypes,
    AcquireReportsWrongTypesAfterWriting,
    AcquireDeniesForever,
    DenialExtends,
    DenialIsAnonymous,
    DenialNamesTheLast,
    DenialSaysNow,
    ExpiresNever,
    ExpiresEarly,
    ReleaseUnchecked,
    ReleaseAlwaysSaysHeld,
    ReleaseChecksThenActs,
    ReleaseOnlyBySender,
    ReleaseFirstClaimOnly,
    ReleaseStopsAtTheFirstLoss,
    ReleaseKeepsWaiters,
    RenewUnchecked,
    RenewShortens,
    RenewDoesNothing,
    RenewResurrects,
    RenewPartly,
    WakeupsWithoutTheFirst,
    WakeupsOnlyTheFirst,
    WakeupsAllTheTime,
    RevokeUnchecked,
    RevokeUntold,
    RevokeEverywhere,
    RevokeOwnOnly,
    ReleaseToldAsRevocation,
    InspectRemembers,
    InspectExtends,
    InspectHidesOwners,
    InspectGuessesOwners,
    ListFirstPageOnly,
    ListRemembers,
}

/// Every fault and the promises that must be found broken for it; others may be too.
const FAULTS: &[(Fault, &[&str])] = &[
    (Fault::ConnectionsApart, &["connection::all_connections_see_the_same_leases"]),
    (Fault::PingFails, &["connection::it_answers_a_ping"]),
    (Fault::PingPanics, &["connection::it_answers_a_ping"]),
    (Fault::FickleCapabilities, &["connection::its_capabilities_stay_as_they_are"]),
    (Fault::CloseForgets, &["connection::a_lease_outlives_its_connection"]),
    (Fault::Stuck, &["acquire::a_free_key_is_granted"]),
    (Fault::AcquireRefusesRepeats, &["acquire::a_repeated_attempt_gets_the_same_answer"]),
    (
        Fault::AcquireRepeatsExtend,
        &["acquire::a_repeated_attempt_moves_no_expiry", "several::a_repeated_attempt_moves_no_expiry"],
    ),
    (
        Fault::AcquireOverwrites,
        &[
            "acquire::a_held_key_is_denied_and_its_holder_named",
            "expiry::a_lost_lease_is_not_granted_over_its_successor",
            "foreign::another_clients_value_denies_and_is_shown_as_unknown",
        ],
    ),
    (
        Fault::AcquireChecksThenActs,
        &["acquire::one_of_many_wins", "several::opposite_orders_never_share_nor_deadlock"],
    ),
    (Fault::AcquireForgetsToNoteTheSending, &["acquire::the_instant_of_sending_is_noted"]),
    (Fault::AcquireActsWhenCalled, &["acquire::a_future_that_was_never_polled_did_nothing"]),
    (Fault::AcquireArrivesLate, &["acquire::a_dropped_attempt_can_be_settled"]),
    (Fault::AcquireFolds, &["acquire::every_valid_key_is_its_own"]),
    (
        Fault::AcquireMixesSpaces,
        &["acquire::the_same_text_in_two_spaces_is_two_keys", "wakeups::other_keys_do_not_fire"],
    ),
    (Fault::AcquireGrantsPartly, &["several::none_is_granted_if_one_is_held"]),
    (Fault::AcquireRollsBackTooMuch, &["several::a_denial_takes_nothing_back"]),
    (
        Fault::AcquireUsesTheFirstTtl,
        &["several::all_claims_are_granted_together", "several::each_claim_expires_on_its_own"],
    ),
    (Fault::AcquireTakesFewClaims, &["several::as_many_claims_as_an_attempt_may_have"]),
    (
        Fault::AcquireIgnoresModes,
        &[
            "refusal::shared_claims_are_refused_cleanly",
            "refusal::permits_are_refused_cleanly",
            "refusal::fences_are_refused_cleanly",
            "refusal::a_refused_claim_leaves_the_others_free",
        ],
    ),
    (Fault::AcquireIgnoresSeveral, &["refusal::several_claims_are_refused_cleanly"]),
    (Fault::AcquireIgnoresWrongTypes, &["refusal::a_key_that_is_no_lease_is_reported_and_kept"]),
    (
        Fault::AcquireReportsWrongTypesAfterWriting,
        &["several::a_key_that_is_no_lease_leaves_the_others_free"],
    ),
    (
        Fault::AcquireDeniesForever,
        &["acquire::a_free_key_is_granted", "release::a_late_release_never_hits_a_successor"],
    ),
    (
        Fault::DenialExtends,
        &["acquire::a_denied_attempt_changes_nothing", "foreign::another_clients_value_expires_like_a_lease"],
    ),
    (
        Fault::DenialIsAnonymous,
        &[
            "acquire::a_held_key_is_denied_and_its_holder_named",
            "inspect::a_holder_is_shown_with_all_it_said",
        ],
    ),
    (Fault::DenialNamesTheLast, &["several::the_first_held_claim_is_named"]),
    (Fault::DenialSaysNow, &["expiry::the_time_to_retry_is_never_below_a_millisecond"]),
    (
        Fault::ExpiresNever,
        &[
            "expiry::a_lease_ends_by_itself_and_not_before",
            "inspect::an_expired_holder_is_not_shown",
            "list::expired_holders_vanish",
            "release::an_expired_lease_is_not_released",
        ],
    ),
    (
        Fault::ExpiresEarly,
        &["expiry::a_lease_ends_by_itself_and_not_before", "expiry::a_lease_lives_as_long_as_was_asked"],
    ),
    (
        Fault::ReleaseUnchecked,
        &["release::a_stranger_releases_nothing", "release::a_successor_is_never_released"],
    ),
    (
        Fault::ReleaseAlwaysSaysHeld,
        &[
            "release::the_holder_releases_once",
            "release::an_expired_lease_is_not_released",
            "release::an_attempt_that_was_not_granted_releases_nothing",
        ],
    ),
    (
        Fault::ReleaseChecksThenActs,
        &["release::a_late_release_never_hits_a_successor", "release::one_of_many_releases_counts"],
    ),
    (Fault::ReleaseOnlyBySender, &["release::another_connection_may_release"]),
    (
        Fault::ReleaseFirstClaimOnly,
        &["several::a_release_gives_all_back", "wakeups::a_release_of_several_claims_fires_for_each"],
    ),
    (Fault::ReleaseStopsAtTheFirstLoss, &["several::a_release_gives_back_what_is_left"]),
    (Fault::ReleaseKeepsWaiters, &["release::a_waiting_attempt_is_withdrawn"]),
    (Fault::RenewUnchecked, &["renew::a_stranger_renews_nothing", "renew::a_successor_is_not_extended"]),
    (Fault::RenewShortens, &["renew::a_renewal_never_shortens"]),
    (
        Fault::RenewDoesNothing,
        &[
            "renew::a_renewed_lease_has_its_full_ttl_again",
            "several::a_renewal_extends_each_claim_to_its_own_ttl",
        ],
    ),
    (
        Fault::RenewResurrects,
        &["renew::an_expired_lease_is_lost_for_good", "renew::a_released_lease_is_lost_for_good"],
    ),
    (Fault::RenewPartly, &["several::a_renewal_is_all_or_lost"]),
    (Fault::WakeupsWithoutTheFirst, &["wakeups::a_stream_fires_once_it_is_subscribed"]),
    (
        Fault::WakeupsOnlyTheFirst,
        &[
            "wakeups::a_release_fires",
            "wakeups::a_revocation_fires",
            "wakeups::a_firing_waits_for_its_listener",
            "wakeups::every_stream_of_a_key_fires",
        ],
    ),
    (Fault::WakeupsAllTheTime, &["wakeups::other_keys_do_not_fire"]),
    (
        Fault::RevokeUnchecked,
        &["revoke::a_stale_token_revokes_nothing", "foreign::another_clients_value_is_never_touched"],
    ),
    (Fault::RevokeUntold, &["revoke::every_connection_is_told", "revoke::a_later_stream_is_listening_too"]),
    (Fault::RevokeEverywhere, &["revoke::the_other_claims_of_a_lease_stay"]),
    (
        Fault::RevokeOwnOnly,
        &[
            "foreign::another_clients_value_can_be_revoked",
            "foreign::a_value_without_expiry_denies_without_end",
        ],
    ),
    (Fault::ReleaseToldAsRevocation, &["revoke::only_revocations_are_told"]),
    (
        Fault::InspectRemembers,
        &[
            "inspect::a_free_key_has_no_holder",
            "inspect::an_expired_holder_is_not_shown",
            "revoke::the_named_holder_loses_its_lease",
        ],
    ),
    (Fault::InspectExtends, &["inspect::looking_changes_nothing"]),
    (Fault::InspectHidesOwners, &["inspect::a_holder_is_shown_with_all_it_said"]),
    (
        Fault::InspectGuessesOwners,
        &[
            "foreign::another_clients_value_denies_and_is_shown_as_unknown",
            "list::another_clients_value_is_listed_as_unknown",
        ],
    ),
    (Fault::ListFirstPageOnly, &["list::every_holder_is_listed"]),
    (Fault::ListRemembers, &["list::released_holders_vanish", "list::expired_holders_vanish"]),
];

/// A whole engine around the memory one, with what that cannot hold, and with a fault.
#[derive(Debug, Clone)]
struct Broken {
    inner: MemoryStore,
    fault: Fault,
    beside: Arc<Mutex<Beside>>,
    asked: Arc<AtomicU32>,
}

#[derive(Debug, Default)]
struct Beside {
    /// Keys that hold something that is no lease.
    wrong: HashSet<ClaimKey>,
    /// Values without expiry.
    forever: HashMap<ClaimKey, Token>,
    /// Everybody who was ever granted a key.
    past: HashMap<ClaimKey, Token>,
    /// Who waits, and was never withdrawn.
    waiting: Vec<(Token, Claim)>,
}

impl Broken {
    fn new(fault: Fault) -> Self {
        Self { inner: MemoryStore::new(), fault, beside: Arc::default(), asked: Arc::default() }
    }

    fn beside(&self) -> MutexGuard<'_, Beside> {
        self.beside.lock().unwrap()
    }

    fn is(&self, fault: Fault) -> bool {
        self.fault == fault
    }

    async fn holder(&self, on: &ClaimKey) -> Option<Holder> {
        self.inner.inspect(on).await.unwrap().into_iter().next()
    }

    /// The claim as this store would really take it.
    fn bent(&self, of: &Attempt, i: usize) -> Claim {
        let asked = &of.claims()[i];
        let mut on = asked.on().clone();
        if self.is(Fault::AcquireFolds) {
            on.key = Key::new(on.key.as_str().to_lowercase()).unwrap();
        }
        if self.is(Fault::AcquireMixesSpaces) {
            on.space = Space::Lock;
        }
        let ttl = match self.fault {
            Fault::ExpiresNever => asked.ttl() * 1_000,
            Fault::ExpiresEarly => asked.ttl() / 2,
            Fault::AcquireUsesTheFirstTtl => of.claims()[0].ttl(),
            _ => asked.ttl(),
        };
        let plain = asked.mode() == Mode::Exclusive && asked.fence_floor().is_none();
        if plain || self.is(Fault::AcquireIgnoresModes) { claim(&on, ttl) } else { asked.clone() }
    }

    /// The attempt as this store would really send it; `None` if that is the attempt itself.
    fn bent_attempt(&self, attempt: &Attempt) -> Option<Attempt> {
        let claims: Vec<_> = (0..attempt.claims().len()).map(|i| self.bent(attempt, i)).collect();
        let untouched = claims == attempt.claims() && !self.is(Fault::AcquireForgetsToNoteTheSending);
        (!untouched).then(|| {
            if !self.is(Fault::AcquireForgetsToNoteTheSending) {
                attempt.sending();
            }
            // Two claims that fall together are left as they are.
            let same = || Attempt::new(attempt.token().clone(), attempt.claims().to_vec());
            Attempt::new(attempt.token().clone(), claims).or_else(|_| same()).unwrap()
        })
    }

    async fn acquire(&self, attempt: &Attempt) -> Result<Verdict, StoreError> {
        let several = attempt.claims().len() > 1;
        let unsupported = StoreError::not_applied(ErrorKind::Unsupported, "broken on purpose");
        match self.fault {
            Fault::Stuck => pending().await,
            Fault::AcquireDeniesForever => return Ok(Verdict::Denied(Denial::default())),
            Fault::AcquireTakesFewClaims if attempt.claims().len() > 10 => return Err(unsupported),
            _ => {}
        }
        if !self.capabilities().several && several && !self.is(Fault::AcquireIgnoresSeveral) {
            return Err(unsupported);
        }
        let bent = self.bent_attempt(attempt);
        let attempt = bent.as_ref().unwrap_or(attempt);
        let claims = attempt.claims();

        let is_wrong = |claim: &Claim| self.beside().wrong.contains(claim.on());
        if claims.iter().any(is_wrong) && !self.is(Fault::AcquireIgnoresWrongTypes) {
            if self.is(Fault::AcquireReportsWrongTypesAfterWriting) {
                for claim in claims.iter().take_while(|claim| !is_wrong(claim)) {
                    self.inner.acquire(&Attempt::one(attempt.token().clone(), claim.clone())).await?;
                }
            }
            return Err(StoreError::not_applied(ErrorKind::WrongType, "no lease"));
        }
        for (i, claim) in claims.iter().enumerate() {
            if let Some(token) = self.beside().forever.get(claim.on()) {
                let holder = Some(Holder::new(claim.on().clone(), Mode::Exclusive, token.clone(), None));
                return Ok(Verdict::Denied(Denial { claim: i, holder, retry_after: None }));
            }
        }

        let verdict = self.decide(attempt).await?;
        match &verdict {
            Verdict::Granted(_) => {
                for claim in claims {
                    self.beside().past.insert(claim.on().clone(), attempt.token().clone());
                }
            }
            Verdict::Denied(_) if matches!(attempt.patience(), Patience::Wait { .. }) => {
                self.beside().waiting.push((attempt.token().clone(), claims[0].clone()));
            }
            _ => {}
        }
        Ok(self.tell(attempt, verdict).await)
    }

    /// Grants or denies, in this store's own way.
    async fn decide(&self, attempt: &Attempt) -> Result<Verdict, StoreError> {
        let claims = attempt.claims();
        match self.fault {
            Fault::AcquireRefusesRepeats => {
                if let Some(holder) =
                    self.holder(claims[0].on()).await.filter(|h| h.token() == attempt.token())
                {
                    return Ok(Verdict::Denied(Denial {
                        claim: 0,
                        retry_after: holder.remaining(),
                        holder: Some(holder),
                    }));
                }
            }
            Fault::AcquireRepeatsExtend => {
                self.inner.renew(attempt).await?;
            }
            Fault::AcquireOverwrites => self.clear(claims).await?,
            Fault::AcquireChecksThenActs => {
                for claim in claims {
                    if self.holder(claim.on()).await.is_some() {
                        return self.inner.acquire(attempt).await;
                    }
                }
                tokio::task::yield_now().await;
                self.clear(claims).await?;
            }
            Fault::AcquireGrantsPartly => {
                attempt.sending();
                for (i, claim) in claims.iter().enumerate() {
                    let one = Attempt::one(attempt.token().clone(), claim.clone());
                    if let Verdict::Denied(denial) = self.inner.acquire(&one).await? {
                        return Ok(Verdict::Denied(Denial { claim: i, ..denial }));
                    }
                }
            }
            Fault::AcquireArrivesLate => {
                let (store, late) =
                    (self.inner.clone(), Attempt::new(attempt.token().clone(), claims.to_vec()).unwrap());
                attempt.sending();
                let arriving = tokio::spawn(async move {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                    store.acquire(&late).await
                });
                return arriving.await.unwrap();
            }
            _ => {}
        }
        let verdict = self.inner.acquire(attempt).await?;
        if self.is(Fault::AcquireRollsBackTooMuch) && matches!(verdict, Verdict::Denied(_)) {
            self.inner.release(attempt).await?;
        }
        Ok(verdict)
    }

    /// Ends whatever is on these keys.
    async fn clear(&self, claims: &[Claim]) -> Result<(), StoreError> {
        for claim in claims {
            if let Some(holder) = self.holder(claim.on()).await {
                self.inner.revoke(claim.on(), holder.token()).await?;
            }
        }
        Ok(())
    }

    /// Says it, in this store's own way.
    async fn tell(&self, attempt: &Attempt, verdict: Verdict) -> Verdict {
        let Verdict::Denied(mut denial) = verdict else { return verdict };
        match self.fault {
            Fault::DenialIsAnonymous => denial = Denial { claim: denial.claim, ..Denial::default() },
            Fault::DenialSaysNow => {
                let soon = denial.retry_after.is_none_or(|after| after < Duration::from_millis(2));
                denial.retry_after = if soon { Some(Duration::ZERO) } else { denial.retry_after };
            }
            Fault::DenialExtends => {
                let on = attempt.claims()[denial.claim].on();
                let holder = denial.holder.as_ref().unwrap();
                let longer = claim(on, Duration::from_secs(30));
                self.inner.renew(&Attempt::one(holder.token().clone(), longer)).await.unwrap();
            }
            Fault::DenialNamesTheLast => {
                for (i, claim) in attempt.claims().iter().enumerate() {
                    if let Some(holder) = self.holder(claim.on()).await {
                        denial = Denial { claim: i, retry_after: holder.remaining(), holder: Some(holder) };
                    }
                }
            }
            Fault::InspectGuessesOwners | Fault::InspectHidesOwners => {
                denial.holder = denial.holder.map(|holder| self.shown(&holder));
            }
            _ => {}
        }
        Verdict::Denied(denial)
    }

    async fn renew(&self, lease: &Attempt) -> Result<Renewal, StoreError> {
        if lease.claims().iter().any(|claim| self.beside().forever.contains_key(claim.on())) {
            return Ok(Renewal::Lost);
        }
        let bent = self.bent_attempt(lease);
        let lease = bent.as_ref().unwrap_or(lease);
        let extended = Renewal::Extended { sent_at: tokio::time::Instant::now() };
        match self.fault {
            Fault::RenewUnchecked => {
                for claim in lease.claims() {
                    if let Some(holder) = self.holder(claim.on()).await {
                        self.inner.renew(&Attempt::one(holder.token().clone(), claim.clone())).await?;
                    }
                }
                Ok(extended)
            }
            Fault::RenewShortens => {
                if self.inner.renew(lease).await? == Renewal::Lost {
                    return Ok(Renewal::Lost);
                }
                self.inner.release(lease).await?;
                self.inner.acquire(lease).await?;
                Ok(extended)
            }
            Fault::RenewDoesNothing => {
                for claim in lease.claims() {
                    if self.holder(claim.on()).await.is_none_or(|holder| holder.token() != lease.token()) {
                        return Ok(Renewal::Lost);
                    }
                }
                Ok(extended)
            }
            Fault::RenewResurrects => match self.inner.acquire(lease).await? {
                Verdict::Granted(_) => self.inner.renew(lease).await,
                _ => Ok(Renewal::Lost),
            },
            Fault::RenewPartly => {
                let mut all = true;
                for claim in lease.claims() {
                    let one = Attempt::one(lease.token().clone(), claim.clone());
                    all &= self.inner.renew(&one).await? != Renewal::Lost;
                }
                Ok(if all { extended } else { Renewal::Lost })
            }
            _ => self.inner.renew(lease).await,
        }
    }

    async fn release(&self, lease: &Attempt) -> Result<Release, StoreError> {
        let said = |held| Ok(Release { held, conclusive: true, woken: None });
        let sent = lease.sent_at().is_some();
        let bent = self.bent_attempt(lease);
        let lease = bent.as_ref().unwrap_or(lease);
        let claims = lease.claims();
        if self.is(Fault::AcquireIgnoresWrongTypes) {
            self.beside().wrong.retain(|on| claims.iter().all(|claim| claim.on() != on));
        }
        match self.fault {
            Fault::ReleaseUnchecked => {
                self.clear(claims).await?;
                said(true)
            }
            Fault::ReleaseAlwaysSaysHeld => {
                self.inner.release(lease).await?;
                said(true)
            }
            Fault::ReleaseChecksThenActs => {
                for claim in claims {
                    if self.holder(claim.on()).await.is_none_or(|holder| holder.token() != lease.token()) {
                        return said(false);
                    }
                }
                // Not all at the same moment, so that somebody comes in between.
                let turn = self.asked.fetch_add(1, Ordering::Relaxed) % 4;
                tokio::time::sleep(Duration::from_millis(3) * turn).await;
                self.clear(claims).await?;
                said(true)
            }
            Fault::ReleaseOnlyBySender if !sent => said(false),
            Fault::ReleaseFirstClaimOnly => {
                self.inner.release(&Attempt::one(lease.token().clone(), claims[0].clone())).await
            }
            Fault::ReleaseStopsAtTheFirstLoss => {
                for claim in claims {
                    if !self.inner.release(&Attempt::one(lease.token().clone(), claim.clone())).await?.held {
                        return said(false);
                    }
                }
                said(true)
            }
            Fault::ReleaseKeepsWaiters => {
                let release = self.inner.release(lease).await?;
                let waiting = self.beside().waiting.pop();
                if let Some((token, claim)) = waiting {
                    let next = Attempt::one(token, claim);
                    if let Verdict::Denied(_) = self.inner.acquire(&next).await? {
                        self.beside().waiting.push((next.token().clone(), next.claims()[0].clone()));
                    }
                }
                Ok(release)
            }
            Fault::ReleaseToldAsRevocation => {
                let mut all = true;
                for claim in claims {
                    all &= self.inner.revoke(claim.on(), lease.token()).await?;
                }
                said(all)
            }
            _ => self.inner.release(lease).await,
        }
    }

    /// A holder as this store shows it.
    fn shown(&self, holder: &Holder) -> Holder {
        let token = match self.fault {
            Fault::InspectHidesOwners if holder.owner().is_some_and(|owner| owner.host == "web:1") => {
                let text = holder.token().as_str();
                Token::from_text(&text[..text.len() - 5])
            }
            Fault::InspectGuessesOwners if holder.owner().is_none() => {
                Token::from_text(format!("{:032x}@someone:1:", 7))
            }
            _ => holder.token().clone(),
        };
        Holder::new(holder.on().clone(), holder.mode(), token, holder.remaining())
    }

    async fn inspect(&self, on: &ClaimKey) -> Result<Vec<Holder>, StoreError> {
        if let Some(token) = self.beside().forever.get(on) {
            return Ok(vec![Holder::new(on.clone(), Mode::Exclusive, token.clone(), None)]);
        }
        let mut holders = self.inner.inspect(on).await?;
        match self.fault {
            Fault::InspectRemembers if holders.is_empty() => {
                let past = self.beside().past.get(on).cloned();
                holders.extend(past.map(|token| Holder::new(on.clone(), Mode::Exclusive, token, None)));
            }
            Fault::InspectExtends => {
                for holder in &holders {
                    let longer = claim(on, Duration::from_secs(30));
                    self.inner.renew(&Attempt::one(holder.token().clone(), longer)).await?;
                }
            }
            _ => {}
        }
        Ok(holders.iter().map(|holder| self.shown(holder)).collect())
    }

    async fn list(&self, cursor: Cursor) -> Result<Page, StoreError> {
        let mut page = self.inner.list(cursor).await?;
        page.holders = page.holders.iter().map(|holder| self.shown(holder)).collect();
        if self.is(Fault::ListFirstPageOnly) {
            page.next = None;
        }
        if self.is(Fault::ListRemembers) {
            let past = self.beside().past.clone();
            page.holders
                .extend(past.into_iter().map(|(on, token)| Holder::new(on, Mode::Exclusive, token, None)));
        }
        Ok(page)
    }

    async fn revoke(&self, on: &ClaimKey, token: &Token) -> Result<bool, StoreError> {
        let forever = self.beside().forever.get(on) == Some(token);
        if self.is(Fault::RevokeOwnOnly) && token.owner().is_none() {
            return Ok(false);
        }
        if forever {
            self.beside().forever.remove(on);
            return Ok(true);
        }
        match self.fault {
            Fault::RevokeUnchecked => match self.holder(on).await {
                Some(holder) => self.inner.revoke(on, holder.token()).await,
                None => Ok(false),
            },
            Fault::RevokeUntold => {
                let lease = Attempt::one(token.clone(), claim(on, Duration::from_secs(1)));
                Ok(self.inner.release(&lease).await?.held)
            }
            Fault::RevokeEverywhere => {
                let held = self.inner.revoke(on, token).await?;
                for holder in self.inner.list(Cursor::START).await?.holders {
                    if holder.token() == token {
                        self.inner.revoke(holder.on(), token).await?;
                    }
                }
                Ok(held)
            }
            _ => self.inner.revoke(on, token).await,
        }
    }
}

/// A task that ends with the stream it feeds.
struct Feeder(tokio::task::JoinHandle<()>);

impl Drop for Feeder {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Store for Broken {
    fn capabilities(&self) -> Capabilities {
        let mut capabilities = self.inner.capabilities();
        if self.is(Fault::AcquireIgnoresSeveral) {
            capabilities.several = false;
        }
        if self.is(Fault::FickleCapabilities) {
            capabilities.same_clock = self.asked.fetch_xor(1, Ordering::Relaxed) == 0;
        }
        capabilities
    }

    fn acquire<'a>(&'a self, attempt: &'a Attempt) -> StoreFuture<'a, Verdict> {
        if self.is(Fault::AcquireActsWhenCalled) {
            let answer = self.inner.acquire(attempt).now_or_never().unwrap();
            return Box::pin(async { answer });
        }
        Box::pin(self.acquire(attempt))
    }

    fn renew<'a>(&'a self, lease: &'a Attempt) -> StoreFuture<'a, Renewal> {
        Box::pin(self.renew(lease))
    }

    fn release<'a>(&'a self, lease: &'a Attempt) -> StoreFuture<'a, Release> {
        Box::pin(self.release(lease))
    }

    fn wakeups(&self, on: &ClaimKey, queued: Option<&Token>) -> Wakeups {
        let (mut inner, signal) = (self.inner.wakeups(on, queued), Arc::new(Notify::new()));
        let fed = signal.clone();
        let feeder = match self.fault {
            Fault::WakeupsWithoutTheFirst => tokio::spawn(async move {
                inner.next().await;
                loop {
                    inner.next().await;
                    fed.notify_one();
                }
            }),
            Fault::WakeupsOnlyTheFirst => tokio::spawn(async move { fed.notify_one() }),
            Fault::WakeupsAllTheTime => tokio::spawn(async move {
                loop {
                    fed.notify_one();
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            }),
            _ => return inner,
        };
        Wakeups::new(signal, Feeder(feeder))
    }

    fn revocations(&self) -> Revocations {
        self.inner.revocations()
    }

    fn inspect<'a>(&'a self, on: &'a ClaimKey) -> StoreFuture<'a, Vec<Holder>> {
        Box::pin(self.inspect(on))
    }

    fn list(&self, cursor: Cursor) -> StoreFuture<'_, Page> {
        Box::pin(self.list(cursor))
    }

    fn revoke<'a>(&'a self, on: &'a ClaimKey, token: &'a Token) -> StoreFuture<'a, bool> {
        Box::pin(self.revoke(on, token))
    }

    fn ping(&self) -> StoreFuture<'_, Duration> {
        match self.fault {
            Fault::PingFails => {
                Box::pin(async { Err(StoreError::not_applied(ErrorKind::Unavailable, "broken on purpose")) })
            }
            Fault::PingPanics => Box::pin(async { panic!("broken on purpose") }),
            _ => self.inner.ping(),
        }
    }

    fn close(&self) {
        if self.is(Fault::CloseForgets) {
            self.inner.forget_everything();
        }
    }
}

impl Harness for Broken {
    fn connect(&self) -> StoreFuture<'_, Arc<dyn Store>> {
        Box::pin(async {
            let store = match self.fault {
                Fault::ConnectionsApart => Self::new(self.fault),
                _ => self.clone(),
            };
            Ok(Arc::new(store) as Arc<dyn Store>)
        })
    }

    fn put_foreign<'a>(&'a self, on: &'a ClaimKey, value: &'a str, ttl: Option<Duration>) -> Staged<'a> {
        Some(Box::pin(async move {
            match ttl {
                Some(ttl) => put(&self.inner, on, value, ttl).await?,
                None => drop(self.beside().forever.insert(on.clone(), Token::from_text(value))),
            }
            Ok(())
        }))
    }

    fn put_wrong_type<'a>(&'a self, on: &'a ClaimKey) -> Staged<'a> {
        Some(Box::pin(async move {
            self.beside().wrong.insert(on.clone());
            Ok(())
        }))
    }
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
    let skipped: Vec<_> = report.skipped().map(|(promise, _)| promise.to_string()).collect();
    assert_eq!(skipped, ["refusal::several_claims_are_refused_cleanly"]);
}

#[test]
fn every_fault_is_found_by_name() {
    for (fault, expected) in FAULTS {
        let report = run(*fault);
        let failed: BTreeSet<_> = report.failed().map(|(promise, _)| promise.to_string()).collect();
        for promise in *expected {
            assert!(failed.contains(*promise), "{fault:?} was not found by {promise}\n{report}");
        }
    }
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
    assert!(text.starts_with(&format!("{} passed, 1 skipped, 1 failed\n", PROMISES.len() - 2)), "{text}");
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
