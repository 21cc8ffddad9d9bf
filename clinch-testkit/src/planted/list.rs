//! All of them.

use std::sync::Arc;

use super::engine::{EngineBug, Flawed};
use super::port::{Planted, PortBug};
use super::{Plant, honest};
use crate::history::Rule;
use crate::sim::workload::Habit;

macro_rules! engine {
    ($name:literal, $bug:ident, $breaks:ident, $what:literal) => {
        Plant {
            name: $name,
            what: $what,
            breaks: Rule::$breaks,
            rules: || Box::new(Flawed::new(EngineBug::$bug)),
            wrap: None,
            habit: Habit::Honest,
        }
    };
}

macro_rules! port {
    ($name:literal, $bug:ident, $breaks:ident, $what:literal) => {
        port!($name, $bug, $breaks, $what, honest)
    };
    ($name:literal, $bug:ident, $breaks:ident, $what:literal, $rules:expr) => {
        Plant {
            name: $name,
            what: $what,
            breaks: Rule::$breaks,
            rules: $rules,
            wrap: Some(|store| Arc::new(Planted::new(store, PortBug::$bug))),
            habit: Habit::Honest,
        }
    };
}

macro_rules! client {
    ($name:literal, $habit:ident, $breaks:ident, $what:literal) => {
        Plant {
            name: $name,
            what: $what,
            breaks: Rule::$breaks,
            rules: honest,
            wrap: None,
            habit: Habit::$habit,
        }
    };
}

/// Every planted bug.
pub fn all() -> Vec<Plant> {
    vec![
        engine!("release-any", ReleaseAny, Trespass, "a release deletes whoever holds the key"),
        engine!(
            "release-by-owner",
            ReleaseByOwner,
            Trespass,
            "a release compares only the owner part of the token"
        ),
        engine!("renew-any", RenewAny, Trespass, "a renewal extends whoever holds the key"),
        engine!(
            "renew-shortens",
            RenewShortens,
            FalseBelief,
            "a renewal sets the expiry to half the TTL from now"
        ),
        engine!("revoke-any", RevokeAny, Trespass, "a force-release ends whoever holds the key by then"),
        engine!("ignores-holder", IgnoresHolder, Overlap, "one acquire in twenty does not see the holder"),
        engine!(
            "not-idempotent",
            NotIdempotent,
            OwnDenial,
            "asked again with the same token, the engine denies"
        ),
        engine!(
            "repeat-extends",
            RepeatExtends,
            Leftover,
            "asked again with the same token, the engine extends"
        ),
        engine!(
            "forgets-to-write",
            ForgetsToWrite,
            FalseBelief,
            "one grant in ten is answered but not written"
        ),
        engine!("ttl-halved", TtlHalved, FalseBelief, "leases expire after half their TTL"),
        engine!("ttl-doubled", TtlDoubled, Leftover, "leases expire after twice their TTL"),
        engine!("never-expires", NeverExpires, Leftover, "what has expired still counts"),
        port!(
            "check-then-act",
            CheckThenAct,
            Overlap,
            "looks whether the key is free, and then writes",
            || { Box::new(Flawed::new(EngineBug::Overwrites)) }
        ),
        port!("new-token-on-retry", NewTokenOnRetry, Token, "a repeated acquire goes out under a new token"),
        port!("sent-at-late", SentLate, FalseBelief, "the send is noted only when the answer is there"),
        port!(
            "renewed-from-reply",
            RenewedFromReply,
            FalseBelief,
            "a renewal counts from its reply, not from its send"
        ),
        port!(
            "extended-though-lost",
            ExtendedThoughLost,
            FalseBelief,
            "a renewal says extended although the lease is lost"
        ),
        port!(
            "granted-though-denied",
            GrantedThoughDenied,
            Overlap,
            "one denial in fifteen is read as a grant"
        ),
        port!(
            "denial-invented",
            DenialInvented,
            FalseDenial,
            "one acquire in fifteen is denied without asking"
        ),
        port!(
            "denial-remembered",
            DenialRemembered,
            FalseDenial,
            "a denial is answered again for 500 ms without asking"
        ),
        port!(
            "release-always-held",
            ReleaseAlwaysHeld,
            FalseRelease,
            "a release always says that the lease was held"
        ),
        port!(
            "release-never-held",
            ReleaseNeverHeld,
            FalseRelease,
            "a release never says that the lease was held"
        ),
        port!(
            "release-swallowed",
            ReleaseSwallowed,
            FalseRelease,
            "one release in five is not sent, and answered as done"
        ),
        port!("conclusive-lie", ConclusiveLie, Port, "every release is called conclusive"),
        port!(
            "not-applied-lie",
            NotAppliedLie,
            Port,
            "an acquire with unknown outcome is called not applied"
        ),
        port!("no-time-limit", NoTimeLimit, Overdue, "a call without an answer takes ten seconds"),
        port!("deaf-to-revocations", Deaf, FalseBelief, "nobody is told of a force-release"),
        engine!(
            "permit-refunded-twice",
            RefundsTwice,
            Trespass,
            "a permit that was given back is given back once more, from another's"
        ),
        engine!(
            "set-ends-with-newest",
            SetEndsWithNewest,
            Trespass,
            "every permit of a key ends when the newest does"
        ),
        engine!(
            "set-ends-with-oldest",
            SetEndsWithOldest,
            FalseBelief,
            "a permit ends when the oldest on its key does"
        ),
        engine!(
            "expired-permit-counts",
            ExpiredCounts,
            FalseDenial,
            "a permit that has expired never comes back"
        ),
        engine!("one-permit-too-many", OneTooMany, Limit, "N + 1 permits are granted"),
        engine!("renewal-resurrects", Resurrects, Leftover, "a renewal brings back what is gone"),
        engine!(
            "renewal-extends-all",
            ExtendsAll,
            Trespass,
            "a renewal of one permit extends all on its key"
        ),
        engine!(
            "fence-without-clock",
            NoClock,
            Fence,
            "fences are counted, and begin anew when the count is lost"
        ),
        engine!("fence-below-floor", NoFloor, Fence, "the floor of a fence is ignored"),
        engine!(
            "fence-on-repeat",
            NewFenceOnRepeat,
            Fence,
            "asked again with the same token, the engine gives a new fence"
        ),
        engine!(
            "partial-grant",
            PartialGrant,
            Partial,
            "several claims are granted one by one, and not taken back"
        ),
        engine!("partial-release", PartialRelease, Partial, "only the first of several claims is released"),
        engine!("partial-renewal", PartialRenewal, Partial, "only the first of several claims is renewed"),
        engine!(
            "reader-beside-writer",
            ReaderBesideWriter,
            Overlap,
            "a shared claim does not see an exclusive holder"
        ),
        engine!(
            "writer-beside-readers",
            WriterBesideReaders,
            Overlap,
            "an exclusive claim does not see shared holders"
        ),
        engine!("reader-overtakes", ReaderOvertakes, Turn, "a shared claim does not see a writer that waits"),
        engine!("writer-note-stays", NoteStays, Leftover, "a writer that waits is never forgotten"),
        engine!("wrong-heir", WrongHeir, Turn, "a key is handed over to the last one in its queue"),
        engine!("two-heirs", TwoHeirs, Turn, "a key is handed over to the first two in its queue"),
        engine!("heir-stays", HeirStays, Turn, "an heir that was granted is still kept its place"),
        engine!(
            "overtakes-queue",
            OvertakesQueue,
            Turn,
            "who queues takes a free key although others are in front"
        ),
        client!(
            "stale-guard-releases",
            StaleRelease,
            FalseBelief,
            "a guard that was passed on gives back what is its successor's"
        ),
        client!("pass-keeps-fence", PassKeepsFence, Fence, "a lease is passed on with the same fence"),
        client!(
            "never-checks",
            NeverChecks,
            FalseBelief,
            "a holder does not look at the clock, after being stopped or ever"
        ),
        client!("enters-across", EntersAcross, Token, "one request enters again what another one holds"),
        client!("no-fence-check", NoFenceCheck, Stale, "the resource does not look at fences"),
    ]
}
