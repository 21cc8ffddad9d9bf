//! Which promises must be found broken for each fault.

use crate::faults::Fault;

/// Every fault and the promises that must be found broken for it; others may be too.
pub(crate) const FAULTS: &[(Fault, &[&str])] = &[
    (Fault::ConnectionsApart, &["connection::all_connections_see_the_same_leases"]),
    (Fault::PingFails, &["connection::it_answers_a_ping"]),
    (Fault::PingPanics, &["connection::it_answers_a_ping"]),
    (Fault::FickleCapabilities, &["connection::its_capabilities_stay_as_they_are"]),
    (Fault::CloseForgets, &["connection::a_lease_outlives_its_connection"]),
    (Fault::Stuck, &["acquire::a_free_key_is_granted"]),
    (
        Fault::AcquireRefusesRepeats,
        &[
            "acquire::a_repeated_attempt_gets_the_same_answer",
            "batches::attempts_in_one_call_exclude_each_other",
        ],
    ),
    (
        Fault::AcquireRepeatsExtend,
        &[
            "acquire::a_repeated_attempt_moves_no_expiry",
            "several::a_repeated_attempt_moves_no_expiry",
            "permits::a_repeat_moves_no_expiry",
            "shared::a_repeat_changes_nothing",
        ],
    ),
    (
        Fault::AcquireOverwrites,
        &[
            "acquire::a_held_key_is_denied_and_its_holder_named",
            "expiry::a_lost_lease_is_not_granted_over_its_successor",
            "foreign::another_clients_value_denies_and_is_shown_as_unknown",
            "batches::attempts_in_one_call_exclude_each_other",
            "shared::another_clients_value_excludes_readers",
        ],
    ),
    (
        Fault::AcquireChecksThenActs,
        &[
            "acquire::one_of_many_wins",
            "several::opposite_orders_never_share_nor_deadlock",
            "permits::never_more_than_the_limit",
            "shared::readers_and_writers_never_meet",
        ],
    ),
    (
        Fault::AcquireForgetsToNoteTheSending,
        &["acquire::the_instant_of_sending_is_noted", "batches::attempts_are_answered_in_their_order"],
    ),
    (
        Fault::AcquireActsWhenCalled,
        &[
            "acquire::a_future_that_was_never_polled_did_nothing",
            "batches::a_future_that_was_never_polled_did_nothing",
        ],
    ),
    (Fault::AcquireArrivesLate, &["acquire::a_dropped_attempt_can_be_settled"]),
    (Fault::AcquireFolds, &["acquire::every_valid_key_is_its_own"]),
    (
        Fault::AcquireMixesSpaces,
        &[
            "acquire::the_same_text_in_two_spaces_is_two_keys",
            "wakeups::other_keys_do_not_fire",
            "permits::a_lock_of_the_same_name_is_another_thing",
        ],
    ),
    (
        Fault::AcquireGrantsPartly,
        &[
            "several::none_is_granted_if_one_is_held",
            "permits::a_lock_and_a_permit_are_both_granted_or_neither",
            "shared::a_shared_and_an_exclusive_claim_come_together",
        ],
    ),
    (Fault::AcquireRollsBackTooMuch, &["several::a_denial_takes_nothing_back"]),
    (
        Fault::AcquireUsesTheFirstTtl,
        &[
            "several::all_claims_are_granted_together",
            "several::each_claim_expires_on_its_own",
            "permits::a_lock_and_a_permit_come_together",
        ],
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
    (
        Fault::AcquireIgnoresWrongTypes,
        &[
            "refusal::a_key_that_is_no_lease_is_reported_and_kept",
            "permits::a_key_that_is_no_limit_is_reported_and_kept",
            "shared::a_key_that_is_no_lease_is_reported_to_readers",
        ],
    ),
    (
        Fault::AcquireReportsWrongTypesAfterWriting,
        &["several::a_key_that_is_no_lease_leaves_the_others_free"],
    ),
    (
        Fault::AcquireDeniesForever,
        &[
            "acquire::a_free_key_is_granted",
            "release::a_late_release_never_hits_a_successor",
            "fair::a_free_key_is_granted_at_once",
        ],
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
            "fences::a_fence_does_not_outlive_its_lease",
            "permits::a_permit_ends_though_a_newer_one_lives",
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
    (
        Fault::RenewShortens,
        &[
            "renew::a_renewal_never_shortens",
            "permits::a_renewal_never_shortens",
            "shared::a_renewal_extends_its_own_reader_only",
        ],
    ),
    (
        Fault::RenewDoesNothing,
        &[
            "renew::a_renewed_lease_has_its_full_ttl_again",
            "several::a_renewal_extends_each_claim_to_its_own_ttl",
            "batches::renewals_are_answered_in_their_order",
        ],
    ),
    (
        Fault::RenewResurrects,
        &[
            "renew::an_expired_lease_is_lost_for_good",
            "renew::a_released_lease_is_lost_for_good",
            "permits::a_lost_permit_is_not_renewed",
            "shared::a_lost_reader_is_not_renewed",
        ],
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
            "permits::a_release_fires",
            "shared::the_last_readers_release_fires",
            "shared::a_writers_withdrawal_fires",
            "fair::the_heir_of_a_free_key_is_woken",
            "fair::plain_releases_wake_the_queue",
            "records::a_completion_fires",
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
    (Fault::ListShowsOneAKey, &["permits::every_holder_is_listed"]),
    (
        Fault::EachAnswersBackwards,
        &[
            "batches::attempts_are_answered_in_their_order",
            "batches::renewals_are_answered_in_their_order",
            "records::attempts_in_one_call_are_denied_with_it",
        ],
    ),
    (
        Fault::EachFailsTogether,
        &[
            "batches::a_refused_attempt_leaves_the_others_alone",
            "batches::a_lost_lease_leaves_the_others_alone",
        ],
    ),
    (Fault::EachPanicsOnNothing, &["batches::a_call_for_nothing_has_no_answers"]),
    (
        Fault::PermitsWithoutEnd,
        &["permits::never_more_than_the_limit", "permits::a_limit_of_one_excludes_like_a_lock"],
    ),
    (
        Fault::PermitsByTheFirstLimit,
        &["permits::a_raised_limit_counts_at_once", "permits::a_lowered_limit_counts_at_once"],
    ),
    (Fault::PermitsCountRepeats, &["permits::a_repeat_counts_once"]),
    (
        Fault::CrowdsEndWithTheNewest,
        &["permits::a_permit_ends_though_a_newer_one_lives", "shared::each_reader_ends_on_its_own"],
    ),
    (
        Fault::CrowdsEndWithTheOldest,
        &["permits::a_permit_lives_though_others_end", "shared::each_reader_ends_on_its_own"],
    ),
    (
        Fault::ReleaseRefundsAlways,
        &[
            "permits::a_second_release_refunds_nothing",
            "permits::an_expired_permit_refunds_nothing",
            "permits::a_stranger_refunds_nothing",
            "shared::a_stranger_releases_no_reader",
        ],
    ),
    (Fault::ReleaseEmptiesTheKey, &["shared::the_last_reader_frees_the_key"]),
    (
        Fault::ReleaseIgnoresWaiters,
        &[
            "shared::a_withdrawn_writer_lets_readers_in",
            "fair::a_withdrawn_attempt_is_skipped",
            "fair::a_withdrawn_heir_hands_on",
        ],
    ),
    (
        Fault::RenewExtendsAll,
        &["permits::a_renewal_extends_its_own_permit_only", "shared::a_renewal_extends_its_own_reader_only"],
    ),
    (Fault::DenialNamesTheLongest, &["permits::a_denial_names_the_holder_that_ends_first"]),
    (Fault::InspectShowsOne, &["permits::every_holder_is_shown", "shared::readers_share"]),
    (
        Fault::RevokeEmptiesTheKey,
        &["permits::a_revocation_ends_exactly_one", "shared::a_revocation_ends_exactly_one"],
    ),
    (Fault::ReadersExclude, &["shared::readers_share"]),
    (
        Fault::ReadersApart,
        &[
            "shared::readers_exclude_writers",
            "shared::a_writer_excludes_readers",
            "shared::readers_exclude_other_clients",
        ],
    ),
    (
        Fault::WritersWaitUnnoticed,
        &[
            "shared::a_waiting_writer_keeps_new_readers_out",
            "shared::a_queued_writer_keeps_new_readers_out",
            "shared::a_waiting_writer_comes_before_new_readers",
        ],
    ),
    (
        Fault::WritersWaitForEver,
        &[
            "shared::a_writer_that_never_came_again_lets_readers_in",
            "shared::a_writer_whose_time_is_over_lets_readers_in",
        ],
    ),
    (Fault::WritersWaitWhenTheyTry, &["shared::a_writer_that_tries_keeps_nobody_out"]),
    (Fault::WritersWaitBeyondTheirGrant, &["shared::a_writers_grant_ends_the_wait"]),
    (Fault::WritersSendReadersAway, &["shared::a_waiting_writer_leaves_readers_in"]),
    (
        Fault::FencesStandStill,
        &[
            "fences::fences_rise_over_releases",
            "fences::fences_rise_over_an_expiry",
            "fences::fences_rise_over_a_revocation",
            "fences::fences_rise_with_the_order_of_holders",
            "fair::an_heir_has_a_fence_of_its_own",
        ],
    ),
    (Fault::FencesByAttempt, &["fences::a_repeat_gets_the_same_fence"]),
    (Fault::FencesIgnoreFloors, &["fences::a_fence_is_above_its_floor"]),
    (Fault::FencesOutOfStep, &["fences::a_fence_is_a_multiple_of_the_step"]),
    (Fault::FencesForAll, &["fences::each_fenced_claim_has_its_own"]),
    (Fault::FencesHidden, &["fences::a_holder_is_shown_with_its_fence"]),
    (Fault::FencesMovedByDenials, &["fences::a_denied_attempt_moves_no_fence"]),
    (Fault::FencesStripped, &["fences::fenced_readers_are_refused", "fences::fenced_permits_are_refused"]),
    (
        Fault::QueuesIgnored,
        &[
            "fair::the_order_is_that_of_arrival",
            "fair::the_first_takes_a_free_key",
            "fair::other_claims_are_refused",
            "fair::several_claims_are_refused",
            "fair::shared_claims_are_refused",
        ],
    ),
    (Fault::QueuesLastFirst, &["fair::the_order_is_that_of_arrival", "fair::a_revocation_keeps_the_order"]),
    (Fault::QueuesForgetPlaces, &["fair::a_repeat_keeps_its_place"]),
    (Fault::QueuesWithoutEnd, &["fair::an_attempt_whose_time_is_over_is_skipped"]),
    (Fault::QueuesShown, &["fair::a_queued_attempt_holds_nothing"]),
    (Fault::QueuesSaySoon, &["fair::the_time_to_retry_counts_those_before"]),
    (Fault::QueuesForAll, &["fair::plain_attempts_do_not_know_of_the_queue"]),
    (Fault::TriesOvertake, &["fair::a_try_overtakes_nobody"]),
    (Fault::TriesEnterTheQueue, &["fair::a_try_does_not_enter_the_queue"]),
    (
        Fault::FindersKeep,
        &[
            "fair::whoever_finds_a_free_key_hands_it_over",
            "fair::a_release_hands_over_at_once",
            "fair::the_heir_of_a_free_key_is_woken",
        ],
    ),
    (
        Fault::HeirsHaveAllTheTime,
        &["fair::a_release_hands_over_at_once", "fair::an_heir_that_does_not_ask_is_skipped"],
    ),
    (Fault::HeirsSkippedEarly, &["fair::an_heir_that_does_not_ask_is_skipped"]),
    (Fault::HeirsKeptShort, &["fair::an_heir_that_asks_has_its_full_ttl"]),
    (Fault::EverybodyWoken, &["fair::only_the_heir_is_woken"]),
    (Fault::WaitersInheritNothing, &["heirs::a_release_hands_over", "heirs::an_heir_is_told"]),
    (
        Fault::WaitersInheritForGood,
        &["heirs::a_release_hands_over", "heirs::an_heir_that_does_nothing_loses_it"],
    ),
    (
        Fault::WaitersInheritBriefly,
        &["heirs::a_release_hands_over", "heirs::an_heir_that_does_nothing_loses_it"],
    ),
    (Fault::WaitersInheritUntold, &["heirs::an_heir_is_told"]),
    (Fault::WaitersInheritLately, &["heirs::an_heir_is_told"]),
    (Fault::WaitersInheritLongAgo, &["heirs::an_heir_is_told"]),
    (Fault::WaitersInheritTogether, &["heirs::an_heir_is_told"]),
    (Fault::WaitersInheritUnasked, &["heirs::others_inherit_nothing"]),
    (Fault::WaitersInheritWithdrawn, &["heirs::a_withdrawn_heir_inherits_nothing"]),
    (Fault::WaitersInheritFromAnybody, &["heirs::a_stranger_hands_nothing_over"]),
    (Fault::WaitersInheritFromNobody, &["heirs::a_stranger_hands_nothing_over"]),
    (Fault::WaitersRenewInVain, &["heirs::a_renewal_confirms"]),
    (Fault::WaitersAskInVain, &["heirs::asking_again_confirms"]),
    (Fault::WaitersHoldNothing, &["heirs::an_heir_gives_it_back"]),
    (Fault::CompleteUnclaimed, &["refusal::records_are_refused_cleanly"]),
    (
        Fault::CompleteTakesAnything,
        &[
            "records::locks_are_refused",
            "records::permits_are_refused",
            "records::several_claims_are_refused",
        ],
    ),
    (
        Fault::CompleteUnchecked,
        &["records::a_stranger_finishes_nothing", "records::a_successor_is_never_finished"],
    ),
    (
        Fault::CompleteResurrects,
        &["records::an_expired_lease_is_not_finished", "records::a_released_lease_is_not_finished"],
    ),
    (Fault::CompleteIgnoresWrongTypes, &["records::a_key_that_is_no_lease_is_kept"]),
    (Fault::CompleteRepeatsReplace, &["records::finished_again_nothing_changes"]),
    (Fault::CompleteRepeatsFail, &["records::finished_again_nothing_changes"]),
    (Fault::RecordsWithoutContent, &["records::a_finished_key_denies_with_its_record"]),
    (Fault::RecordsNameTheirMaker, &["records::a_finished_key_denies_with_its_record"]),
    (Fault::RecordsSaySoon, &["records::a_finished_key_denies_with_its_record"]),
    (Fault::RecordsGrantedToTheirMaker, &["records::its_own_token_is_denied_too"]),
    (Fault::RecordsExtendedByDenials, &["records::a_denial_moves_no_expiry"]),
    (Fault::RecordsRenewed, &["records::a_finished_lease_is_lost"]),
    (Fault::RecordsReleased, &["records::a_release_finds_nothing"]),
    (Fault::RecordsRevoked, &["records::a_record_is_not_revoked"]),
    (Fault::RecordsShown, &["records::nobody_is_shown", "records::nobody_is_listed"]),
    (
        Fault::RecordsEndWithTheLease,
        &["records::a_time_shorter_than_the_lease_counts", "records::a_time_longer_than_the_lease_counts"],
    ),
    (Fault::RecordsHaveTheFullTtl, &["records::without_a_time_the_rest_of_the_lease_counts"]),
    (Fault::RecordsRemembered, &["records::a_key_is_used_anew_after_its_record"]),
    (Fault::RecordsAsText, &["records::any_bytes_come_back"]),
    (Fault::RecordsCutShort, &["records::a_large_record_comes_back"]),
    (Fault::RecordsNeverEmpty, &["records::an_empty_record_is_one"]),
    (Fault::RecordsOfAllSpaces, &["records::each_space_is_its_own"]),
    (Fault::RecordsOfTheFirstClaimOnly, &["records::several_claims_are_denied_by_one_record"]),
];
