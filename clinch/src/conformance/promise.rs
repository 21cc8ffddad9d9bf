//! The list of promises, and what decides whether one is tested.

use std::any::Any;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::time::Duration;

use futures_util::FutureExt;

use super::{Failure, Harness, Outcome};
use crate::key::Key;
use crate::lease::ClaimKey;
use crate::store::Capabilities;

type Test = for<'h> fn(&'h dyn Harness) -> Pin<Box<dyn Future<Output = Result<(), Failure>> + Send + 'h>>;

/// One promise of the port: its name, what it rests on, and its test. Displays as `group::name`.
#[derive(Debug, Clone, Copy)]
pub struct Promise {
    group: &'static str,
    name: &'static str,
    needs: &'static [Need],
    test: Test,
}

/// What a promise rests on, besides the steps that every store has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Need {
    /// [`Capabilities::several`].
    Several,
    /// [`Capabilities::shared`].
    Shared,
    /// [`Capabilities::permits`].
    Permits,
    /// [`Capabilities::fences`].
    Fences,
    /// [`Capabilities::fair`].
    Fair,
    /// [`Capabilities::heirs`].
    Heirs,
    /// [`Capabilities::records`].
    Records,
    /// [`Capabilities::wakeups`].
    Wakeups,
    /// [`Capabilities::list`].
    List,
    /// No [`Capabilities::shared`]: the promise is that such claims are refused.
    NoShared,
    /// No [`Capabilities::permits`].
    NoPermits,
    /// No [`Capabilities::fences`].
    NoFences,
    /// No [`Capabilities::several`].
    NoSeveral,
    /// No [`Capabilities::records`].
    NoRecords,
    /// [`Harness::put_foreign`], with an expiry.
    Foreign,
    /// [`Harness::put_foreign`], without expiry.
    ForeignWithoutExpiry,
    /// [`Harness::put_wrong_type`].
    WrongType,
}

impl Need {
    /// Why it is not met, if it is not.
    fn missing(
        self,
        capabilities: Capabilities,
        harness: &dyn Harness,
    ) -> Result<Option<&'static str>, Failure> {
        let on = ClaimKey::lock(Key::new("conformance")?);
        let (met, why) = match self {
            Self::Several => (capabilities.several, "the store does not grant several claims in one attempt"),
            Self::Shared => (capabilities.shared, "the store does not grant shared claims"),
            Self::Permits => (capabilities.permits, "the store does not grant permits"),
            Self::Fences => (capabilities.fences, "the store does not give fences"),
            Self::Fair => (capabilities.fair, "the store does not keep queues"),
            Self::Heirs => (capabilities.heirs, "the store does not hand keys over to one that waits"),
            Self::Records => (capabilities.records, "the store keeps no records"),
            Self::Wakeups => (capabilities.wakeups, "the store does not wake waiters"),
            Self::List => (capabilities.list, "the store does not list holders"),
            Self::NoShared => {
                (!capabilities.shared, "the store grants shared claims, so it need not refuse them")
            }
            Self::NoPermits => {
                (!capabilities.permits, "the store grants permits, so it need not refuse them")
            }
            Self::NoFences => (!capabilities.fences, "the store gives fences, so it need not refuse them"),
            Self::NoSeveral => {
                (!capabilities.several, "the store grants several claims, so it need not refuse them")
            }
            Self::NoRecords => (!capabilities.records, "the store keeps records, so it need not refuse them"),
            Self::Foreign => (
                harness.put_foreign(&on, "", Some(Duration::from_secs(1))).is_some(),
                "the harness cannot put another client's value",
            ),
            Self::ForeignWithoutExpiry => (
                harness.put_foreign(&on, "", None).is_some(),
                "the harness cannot put another client's value without expiry",
            ),
            Self::WrongType => {
                (harness.put_wrong_type(&on).is_some(), "the harness cannot put a value that is no lease")
            }
        };
        Ok((!met).then_some(why))
    }
}

impl Promise {
    /// The step or capability it belongs to: the module of its test.
    pub const fn group(&self) -> &'static str {
        self.group
    }

    /// Its name in the group: the function of its test.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// What it rests on.
    pub const fn needs(&self) -> &'static [Need] {
        self.needs
    }

    /// Tests it, if what it needs is there.
    ///
    /// # Cancel safety
    /// Safe: what is left in the engine expires within half a minute.
    pub async fn check(&self, harness: &dyn Harness) -> Outcome {
        // A store that hangs or panics fails its promise, and neither hangs nor ends the suite. Nothing is used after a
        // panic but the harness, which then serves tests that share nothing with this one.
        let limit = harness.pace().limit;
        let checking = AssertUnwindSafe(self.check_unguarded(harness)).catch_unwind();
        match tokio::time::timeout(limit, checking).await {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(panic)) => Outcome::Failed(Failure::new(format!("a step panicked: {}", text_of(&*panic)))),
            Err(_) => {
                Outcome::Failed(Failure::new(format!("not done after {limit:?}; a step seems to hang")))
            }
        }
    }

    async fn check_unguarded(&self, harness: &dyn Harness) -> Outcome {
        let capabilities = match harness.connect().await {
            Ok(store) => store.capabilities(),
            Err(error) => return Outcome::Failed(error.into()),
        };
        for need in self.needs {
            match need.missing(capabilities, harness) {
                Ok(None) => {}
                Ok(Some(why)) => return Outcome::Skipped(why.to_owned()),
                Err(failure) => return Outcome::Failed(failure),
            }
        }
        match (self.test)(harness).await {
            Ok(()) => Outcome::Passed,
            Err(failure) => Outcome::Failed(failure),
        }
    }
}

fn text_of(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("without a text")
}

impl fmt::Display for Promise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}::{}", self.group, self.name)
    }
}

/// The list: every promise with what it needs. Both [`PROMISES`] and `conformance_tests!` are made from it, so a
/// promise cannot be in one and not in the other.
#[doc(hidden)]
#[macro_export]
macro_rules! __clinch_promises {
    ([$($then:tt)+] $with:tt) => {
        $($then)+! { $with
            connection {
                it_answers_a_ping: [],
                its_capabilities_stay_as_they_are: [],
                all_connections_see_the_same_leases: [],
                a_lease_outlives_its_connection: [],
            }
            acquire {
                a_free_key_is_granted: [],
                a_held_key_is_denied_and_its_holder_named: [],
                a_denied_attempt_changes_nothing: [],
                a_repeated_attempt_gets_the_same_answer: [],
                a_repeated_attempt_moves_no_expiry: [],
                one_of_many_wins: [],
                the_instant_of_sending_is_noted: [],
                a_future_that_was_never_polled_did_nothing: [],
                a_dropped_attempt_can_be_settled: [],
                every_valid_key_is_its_own: [],
                the_same_text_in_two_spaces_is_two_keys: [],
            }
            expiry {
                a_lease_ends_by_itself_and_not_before: [],
                a_lease_lives_as_long_as_was_asked: [],
                the_time_to_retry_is_never_below_a_millisecond: [],
                a_lost_lease_is_not_granted_over_its_successor: [],
            }
            release {
                the_holder_releases_once: [],
                another_connection_may_release: [],
                a_stranger_releases_nothing: [],
                an_expired_lease_is_not_released: [],
                a_successor_is_never_released: [],
                a_late_release_never_hits_a_successor: [],
                one_of_many_releases_counts: [],
                an_attempt_that_was_not_granted_releases_nothing: [],
                a_waiting_attempt_is_withdrawn: [],
            }
            renew {
                a_renewed_lease_has_its_full_ttl_again: [],
                a_renewal_never_shortens: [],
                a_stranger_renews_nothing: [],
                an_expired_lease_is_lost_for_good: [],
                a_released_lease_is_lost_for_good: [],
                a_successor_is_not_extended: [],
            }
            several {
                all_claims_are_granted_together: [Several],
                none_is_granted_if_one_is_held: [Several],
                the_first_held_claim_is_named: [Several],
                a_repeated_attempt_moves_no_expiry: [Several],
                a_denial_takes_nothing_back: [Several],
                opposite_orders_never_share_nor_deadlock: [Several],
                each_claim_expires_on_its_own: [Several],
                a_renewal_extends_each_claim_to_its_own_ttl: [Several],
                a_renewal_is_all_or_lost: [Several],
                a_release_gives_all_back: [Several],
                a_release_gives_back_what_is_left: [Several],
                as_many_claims_as_an_attempt_may_have: [Several],
                a_key_that_is_no_lease_leaves_the_others_free: [Several, WrongType],
            }
            batches {
                attempts_are_answered_in_their_order: [],
                attempts_in_one_call_exclude_each_other: [],
                a_refused_attempt_leaves_the_others_alone: [],
                a_call_for_nothing_has_no_answers: [],
                a_future_that_was_never_polled_did_nothing: [],
                renewals_are_answered_in_their_order: [],
                a_lost_lease_leaves_the_others_alone: [],
            }
            permits {
                never_more_than_the_limit: [Permits],
                a_limit_of_one_excludes_like_a_lock: [Permits],
                a_lock_of_the_same_name_is_another_thing: [Permits],
                a_repeat_counts_once: [Permits],
                a_repeat_moves_no_expiry: [Permits],
                a_permit_ends_though_a_newer_one_lives: [Permits],
                a_permit_lives_though_others_end: [Permits],
                a_second_release_refunds_nothing: [Permits],
                an_expired_permit_refunds_nothing: [Permits],
                a_stranger_refunds_nothing: [Permits],
                a_raised_limit_counts_at_once: [Permits],
                a_lowered_limit_counts_at_once: [Permits],
                a_renewal_extends_its_own_permit_only: [Permits],
                a_renewal_never_shortens: [Permits],
                a_lost_permit_is_not_renewed: [Permits],
                a_denial_names_the_holder_that_ends_first: [Permits],
                a_release_fires: [Permits, Wakeups],
                every_holder_is_shown: [Permits],
                every_holder_is_listed: [Permits, List],
                a_revocation_ends_exactly_one: [Permits],
                a_lock_and_a_permit_come_together: [Permits, Several],
                a_lock_and_a_permit_are_both_granted_or_neither: [Permits, Several],
                a_key_that_is_no_limit_is_reported_and_kept: [Permits, WrongType],
            }
            shared {
                readers_share: [Shared],
                readers_exclude_writers: [Shared],
                a_writer_excludes_readers: [Shared],
                readers_and_writers_never_meet: [Shared],
                a_repeat_changes_nothing: [Shared],
                the_last_reader_frees_the_key: [Shared],
                a_stranger_releases_no_reader: [Shared],
                each_reader_ends_on_its_own: [Shared],
                a_renewal_extends_its_own_reader_only: [Shared],
                a_lost_reader_is_not_renewed: [Shared],
                a_revocation_ends_exactly_one: [Shared],
                the_last_readers_release_fires: [Shared, Wakeups],
                a_waiting_writer_keeps_new_readers_out: [Shared],
                a_waiting_writer_leaves_readers_in: [Shared],
                a_waiting_writer_comes_before_new_readers: [Shared],
                a_writers_grant_ends_the_wait: [Shared],
                a_withdrawn_writer_lets_readers_in: [Shared],
                a_writers_withdrawal_fires: [Shared, Wakeups],
                a_writer_that_never_came_again_lets_readers_in: [Shared],
                a_writer_whose_time_is_over_lets_readers_in: [Shared],
                a_queued_writer_keeps_new_readers_out: [Shared, Fair],
                a_writer_that_tries_keeps_nobody_out: [Shared],
                a_shared_and_an_exclusive_claim_come_together: [Shared, Several],
                another_clients_value_excludes_readers: [Shared, Foreign],
                readers_exclude_other_clients: [Shared, Foreign],
                a_key_that_is_no_lease_is_reported_to_readers: [Shared, WrongType],
            }
            fences {
                a_fence_is_a_multiple_of_the_step: [Fences],
                fences_rise_over_releases: [Fences],
                fences_rise_over_an_expiry: [Fences],
                fences_rise_over_a_revocation: [Fences],
                fences_rise_with_the_order_of_holders: [Fences],
                a_repeat_gets_the_same_fence: [Fences],
                a_fence_is_above_its_floor: [Fences],
                each_fenced_claim_has_its_own: [Fences, Several],
                a_denied_attempt_moves_no_fence: [Fences],
                a_holder_is_shown_with_its_fence: [Fences],
                a_fence_does_not_outlive_its_lease: [Fences],
                fenced_readers_are_refused: [Fences, Shared],
                fenced_permits_are_refused: [Fences, Permits],
            }
            fair {
                a_free_key_is_granted_at_once: [Fair],
                the_order_is_that_of_arrival: [Fair],
                a_repeat_keeps_its_place: [Fair],
                a_queued_attempt_holds_nothing: [Fair],
                a_release_hands_over_at_once: [Fair],
                an_heir_that_asks_has_its_full_ttl: [Fair],
                an_heir_has_a_fence_of_its_own: [Fair, Fences],
                an_heir_that_does_not_ask_is_skipped: [Fair],
                a_withdrawn_attempt_is_skipped: [Fair],
                an_attempt_whose_time_is_over_is_skipped: [Fair],
                a_withdrawn_heir_hands_on: [Fair],
                a_try_overtakes_nobody: [Fair],
                a_try_does_not_enter_the_queue: [Fair],
                whoever_finds_a_free_key_hands_it_over: [Fair],
                the_first_takes_a_free_key: [Fair],
                a_revocation_keeps_the_order: [Fair],
                plain_attempts_do_not_know_of_the_queue: [Fair],
                the_time_to_retry_counts_those_before: [Fair],
                only_the_heir_is_woken: [Fair, Wakeups],
                the_heir_of_a_free_key_is_woken: [Fair, Wakeups],
                plain_releases_wake_the_queue: [Fair, Wakeups],
                other_claims_are_refused: [Fair],
                several_claims_are_refused: [Fair, Several],
                shared_claims_are_refused: [Fair, Shared],
            }
            heirs {
                a_release_hands_over: [Heirs],
                an_heir_is_told: [Heirs],
                an_heir_that_does_nothing_loses_it: [Heirs],
                a_renewal_confirms: [Heirs],
                asking_again_confirms: [Heirs],
                a_withdrawn_heir_inherits_nothing: [Heirs],
                an_heir_gives_it_back: [Heirs],
                others_inherit_nothing: [Heirs],
                a_stranger_hands_nothing_over: [Heirs],
            }
            records {
                a_finished_key_denies_with_its_record: [Records],
                its_own_token_is_denied_too: [Records],
                attempts_in_one_call_are_denied_with_it: [Records],
                a_denial_moves_no_expiry: [Records],
                a_finished_lease_is_lost: [Records],
                a_release_finds_nothing: [Records],
                a_stranger_finishes_nothing: [Records],
                an_expired_lease_is_not_finished: [Records],
                a_released_lease_is_not_finished: [Records],
                a_successor_is_never_finished: [Records],
                finished_again_nothing_changes: [Records],
                a_time_shorter_than_the_lease_counts: [Records],
                a_time_longer_than_the_lease_counts: [Records],
                without_a_time_the_rest_of_the_lease_counts: [Records],
                a_key_is_used_anew_after_its_record: [Records],
                a_completion_fires: [Records, Wakeups],
                nobody_is_shown: [Records],
                nobody_is_listed: [Records, List],
                a_record_is_not_revoked: [Records],
                any_bytes_come_back: [Records],
                a_large_record_comes_back: [Records],
                an_empty_record_is_one: [Records],
                locks_are_refused: [Records],
                permits_are_refused: [Records, Permits],
                several_claims_are_refused: [Records, Several],
                several_claims_are_denied_by_one_record: [Records, Several],
                each_space_is_its_own: [Records],
                a_key_that_is_no_lease_is_kept: [Records, WrongType],
            }
            wakeups {
                a_stream_fires_once_it_is_subscribed: [Wakeups],
                a_release_fires: [Wakeups],
                a_revocation_fires: [Wakeups],
                a_release_of_several_claims_fires_for_each: [Wakeups, Several],
                a_firing_waits_for_its_listener: [Wakeups],
                every_stream_of_a_key_fires: [Wakeups],
                other_keys_do_not_fire: [Wakeups],
            }
            revoke {
                the_named_holder_loses_its_lease: [],
                a_stale_token_revokes_nothing: [],
                every_connection_is_told: [],
                a_later_stream_is_listening_too: [],
                only_revocations_are_told: [],
                the_other_claims_of_a_lease_stay: [Several],
            }
            inspect {
                a_free_key_has_no_holder: [],
                a_holder_is_shown_with_all_it_said: [],
                an_expired_holder_is_not_shown: [],
                looking_changes_nothing: [],
            }
            list {
                every_holder_is_listed: [List],
                released_holders_vanish: [List],
                expired_holders_vanish: [List],
                another_clients_value_is_listed_as_unknown: [List, Foreign],
            }
            refusal {
                shared_claims_are_refused_cleanly: [NoShared],
                permits_are_refused_cleanly: [NoPermits],
                fences_are_refused_cleanly: [NoFences],
                several_claims_are_refused_cleanly: [NoSeveral],
                records_are_refused_cleanly: [NoRecords],
                a_refused_claim_leaves_the_others_free: [NoShared, Several],
                a_key_that_is_no_lease_is_reported_and_kept: [WrongType],
            }
            foreign {
                another_clients_value_denies_and_is_shown_as_unknown: [Foreign],
                another_clients_value_is_never_touched: [Foreign],
                another_clients_value_expires_like_a_lease: [Foreign],
                another_clients_value_can_be_revoked: [Foreign],
                a_value_without_expiry_denies_without_end: [ForeignWithoutExpiry],
            }
        }
    };
}

macro_rules! promises {
    (() $($group:ident { $($name:ident: [$($need:ident),*],)* })*) => {
        /// Every promise of the port, by step and capability.
        pub const PROMISES: &[Promise] = &[$($(
            Promise {
                group: stringify!($group),
                name: stringify!($name),
                needs: &[$(Need::$need),*],
                test: |harness| Box::pin(super::$group::$name(harness)),
            },
        )*)*];
    };
}

__clinch_promises!([promises]());
