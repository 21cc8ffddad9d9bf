//! Planted bugs: engines and stores that are broken on purpose, to prove the checker.
//!
//! A checker that was never seen to catch anything proves nothing. Every [`Plant`] breaks one thing, as somebody might
//! by mistake, in the engine (`engine`) or between manager and engine (`port`). The tests let each work through the same
//! workload, on the same seeds, that the unbroken code passes without a violation, and ask that
//! [`check`](crate::history::check) finds it.
//!
//! To add one: a variant in `engine` or `port`, and a line in [`all`].

mod engine;
mod port;

use std::fmt;
use std::sync::Arc;

use clinch::store::Store;

use self::engine::{EngineBug, Flawed};
use self::port::{Planted, PortBug};
use crate::history::Rule;
use crate::sim::workload::{Setup, Wrap};
use crate::sim::{Honest, Rules};

/// Puts a broken store around an honest one.
type Around = fn(Arc<dyn Store>) -> Arc<dyn Store>;

/// One planted bug.
#[derive(Clone, Copy)]
pub struct Plant {
    /// A short name.
    pub name: &'static str,
    /// What is broken.
    pub what: &'static str,
    /// The rule that must catch it; others may as well.
    pub breaks: Rule,
    rules: fn() -> Box<dyn Rules>,
    wrap: Option<Around>,
}

impl Plant {
    /// The workload of this seed, with the bug in it.
    pub fn setup(&self, seed: u64) -> Setup {
        let wrap = self.wrap.map(|wrap| Arc::new(wrap) as Wrap);
        Setup { rules: self.rules, wrap, ..Setup::of_seed(seed) }
    }
}

impl fmt::Debug for Plant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name, self.what)
    }
}

fn honest() -> Box<dyn Rules> {
    Box::new(Honest)
}

macro_rules! engine {
    ($name:literal, $bug:ident, $breaks:ident, $what:literal) => {
        Plant {
            name: $name,
            what: $what,
            breaks: Rule::$breaks,
            rules: || Box::new(Flawed::new(EngineBug::$bug)),
            wrap: None,
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
    ]
}
