//! All of them.

use std::sync::Arc;

use super::engine::{EngineBug, Flawed};
use super::node::{NodeBug, PlantedNode};
use super::port::{Planted, PortBug};
use super::{Plant, honest};
use crate::history::Rule;
use crate::sim::workload::{Habit, Kind};

/// Nothing is broken yet.
const SOUND: Plant = Plant {
    name: "",
    what: "",
    breaks: Rule::Panic,
    kind: Kind::Single,
    rules: honest,
    wrap: None,
    around: None,
    at_once: false,
    habit: Habit::Honest,
};

macro_rules! engine {
    ($name:literal, $bug:ident, $breaks:ident, $what:literal) => {
        engine!($name, $bug, $breaks, $what, Single)
    };
    ($name:literal, $bug:ident, $breaks:ident, $what:literal, $kind:ident) => {
        Plant {
            name: $name,
            what: $what,
            breaks: Rule::$breaks,
            kind: Kind::$kind,
            rules: || Box::new(Flawed::new(EngineBug::$bug)),
            ..SOUND
        }
    };
}

macro_rules! port {
    ($name:literal, $bug:ident, $breaks:ident, $what:literal) => {
        port!($name, $bug, $breaks, $what, Single, honest)
    };
    ($name:literal, $bug:ident, $breaks:ident, $what:literal, $kind:ident, $rules:expr) => {
        Plant {
            name: $name,
            what: $what,
            breaks: Rule::$breaks,
            kind: Kind::$kind,
            rules: $rules,
            wrap: Some(|store| Arc::new(Planted::new(store, PortBug::$bug))),
            ..SOUND
        }
    };
}

macro_rules! node {
    ($name:literal, $bug:ident, $breaks:ident, $what:literal) => {
        Plant {
            name: $name,
            what: $what,
            breaks: Rule::$breaks,
            kind: Kind::Quorum,
            around: Some(|number, store| Arc::new(PlantedNode::new(store, number, NodeBug::$bug))),
            ..SOUND
        }
    };
}

macro_rules! client {
    ($name:literal, $habit:ident, $breaks:ident, $what:literal) => {
        Plant { name: $name, what: $what, breaks: Rule::$breaks, habit: Habit::$habit, ..SOUND }
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
            Single,
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
        engine!(
            "heir-not-taken-up",
            HeirNotTakenUp,
            FalseBelief,
            "who was handed a key and asks for it is granted what is left of the time for which it is kept"
        ),
        engine!(
            "heir-kept-short",
            HeirKeptShort,
            FalseBelief,
            "a key that is handed over is kept for half the time that was asked for"
        ),
        engine!(
            "heir-not-withdrawn",
            HeirNotWithdrawn,
            Leftover,
            "a release leaves what is noted of one that comes next"
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
        engine!(
            "failover-fence-restarts",
            NoClock,
            Fence,
            "a replica that takes over counts fences on from what it knows",
            Failover
        ),
        engine!(
            "failover-renewal-resurrects",
            Resurrects,
            Leftover,
            "a renewal brings back what a failover lost",
            Failover
        ),
        port!(
            "failover-lost-is-extended",
            ExtendedThoughLost,
            FalseBelief,
            "after a failover a renewal says extended although the lease is lost",
            Failover,
            honest
        ),
        port!(
            "failover-release-says-held",
            ReleaseAlwaysHeld,
            FalseRelease,
            "a release says held although a failover lost the lease",
            Failover,
            honest
        ),
        Plant {
            name: "quorum-votes-at-once",
            what: "a node that was restarted and forgot votes at once",
            breaks: Rule::Overlap,
            kind: Kind::Quorum,
            at_once: true,
            ..SOUND
        },
        port!(
            "quorum-validity-from-answer",
            SentLate,
            FalseBelief,
            "validity counts from the answer of the majority, not from before the first send",
            Quorum,
            honest
        ),
        port!(
            "quorum-renewed-from-answer",
            RenewedFromReply,
            FalseBelief,
            "a renewal counts from the answer of the majority, not from the earliest send",
            Quorum,
            honest
        ),
        node!(
            "quorum-silence-is-consent",
            SilenceGrants,
            FalseBelief,
            "a node that does not answer counts as one that granted"
        ),
        node!(
            "quorum-minority-grants",
            MinorityGrants,
            Overlap,
            "a denial by any node but the first counts as a grant: one vote is enough"
        ),
        node!(
            "quorum-minority-renews",
            MinorityRenews,
            FalseBelief,
            "a node that has lost a lease counts as one that extended it"
        ),
        node!("quorum-token-per-node", TokenPerNode, Token, "every node is asked under a token of its own"),
        node!(
            "quorum-release-skips-nodes",
            ReleaseSkips,
            Leftover,
            "a release goes to the first nodes only, and calls the others settled"
        ),
        port!(
            "quorum-release-keeps-late-votes",
            ConclusiveLie,
            Port,
            "a release calls settled what a slow node has yet to grant",
            Quorum,
            honest
        ),
        engine!(
            "quorum-rolls-back-others",
            ReleaseAny,
            Trespass,
            "a vote that is given back takes another holder's vote with it",
            Quorum
        ),
    ]
}
