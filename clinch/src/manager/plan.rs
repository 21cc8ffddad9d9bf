//! What is wanted, checked: the claims of an attempt and how it goes about them.

use std::time::Duration;

use tokio::time::Instant;

use super::limit::Limit;
use super::line::Shape;
use super::options::LockOptions;
use super::seen::Seen;
use crate::error::Error;
use crate::key::Key;
use crate::lease::{Attempt, AttemptError, Claim, Claims, Fence, MAX_CLAIMS, Mode, Patience, Space};
use crate::store::Capabilities;
use crate::telemetry::Telemetry;

/// The least time for which a waiting writer is remembered after it asked.
const REMEMBERED: Duration = Duration::from_secs(1);

/// For how long a lock that was handed over is kept for its heir, unless that one confirms it: so much a dead heir costs.
const INHERITED: Duration = Duration::from_secs(1);

/// What holds for a wish besides its options.
#[derive(Debug, Clone, Copy)]
pub(super) struct Conditions<'a> {
    pub(super) max_ttl: Duration,
    pub(super) can: Capabilities,
    pub(super) telemetry: &'a Telemetry,
    /// The name of the guard that wants it, where its options do not have one.
    pub(super) guard: Option<&'a str>,
}

/// A wish, checked.
#[derive(Debug)]
pub(super) struct Plan {
    /// Never empty. Fenced ones have no floor yet.
    pub(super) claims: Claims,
    pub(super) options: LockOptions,
    pub(super) shape: Shape,
    /// Until when it waits.
    pub(super) deadline: Instant,
    /// The scope it is in; 0: none.
    pub(super) scope: u64,
    pub(super) seen: Seen,
    /// Nobody asks why it was denied, if it was.
    pub(super) tersely: bool,
}

impl Plan {
    /// A lock on this key, with the limits of its options.
    #[inline]
    pub(super) fn lock(
        key: Key,
        mut options: LockOptions,
        conditions: Conditions<'_>,
    ) -> Result<Self, Error> {
        if !options.limits().is_empty() {
            return Self::lock_all(vec![key], options, conditions);
        }
        options.check(conditions.max_ttl)?;
        let claims = Claims::One(options.lock_on(key));
        Self::new(claims, options, conditions)
    }

    /// A lock on all of these keys, with the limits of its options.
    pub(super) fn lock_all(
        keys: Vec<Key>,
        mut options: LockOptions,
        conditions: Conditions<'_>,
    ) -> Result<Self, Error> {
        options.check(conditions.max_ttl)?;
        if keys.is_empty() {
            return Err(Error::option("keys", &0, "accepted is at least one"));
        }
        if options.kept_for().is_some() && keys.len() > 1 {
            return Err(Error::option("fair", &true, "accepted is a lock on a single key"));
        }
        let mut claims: Vec<_> = keys.into_iter().map(|key| options.lock_on(key)).collect();
        claims.extend(
            options
                .limits()
                .iter()
                .map(|limited| Claim::permit(limited.key.clone(), limited.of, limited.ttl)),
        );
        Self::new(claims.into(), options, conditions)
    }

    /// A permit.
    pub(super) fn permit(
        limit: &Limit,
        mut options: LockOptions,
        conditions: Conditions<'_>,
    ) -> Result<Self, Error> {
        options.check(conditions.max_ttl)?;
        for (field, asked) in [
            ("shared", options.shared),
            ("fenced", options.fenced),
            ("fair", options.kept_for().is_some()),
            ("limited_by", !options.limits().is_empty()),
        ] {
            if asked {
                return Err(Error::option(field, &true, "accepted is a lock, not a permit"));
            }
        }
        let claims = Claims::One(Claim::permit(limit.key().clone(), limit.of(), options.ttl()));
        Self::new(claims, options, conditions)
    }

    /// The only place in a space whose leases can be finished with a record.
    #[cfg(feature = "submit")]
    pub(super) fn recorded(
        claim: fn(Key, Duration) -> Claim,
        key: Key,
        mut options: LockOptions,
        conditions: Conditions<'_>,
    ) -> Result<Self, Error> {
        options.check(conditions.max_ttl)?;
        if !conditions.can.records {
            return Err(Error::option(
                "store",
                &"this engine",
                "it keeps no records; accepted is one that does",
            ));
        }
        let claims = Claims::One(claim(key, options.ttl()));
        Self::new(claims, options, conditions)
    }

    /// Claims that such options make, which were checked.
    #[inline]
    pub(super) fn new(
        claims: Claims,
        options: LockOptions,
        conditions: Conditions<'_>,
    ) -> Result<Self, Error> {
        let Conditions { can, telemetry, guard, .. } = conditions;
        Attempt::check(&claims).map_err(|error| match error {
            AttemptError::NoClaim => Error::option("keys", &0, "accepted is at least one"),
            AttemptError::TooMany { claims } => {
                let accepted = format!("accepted are at most {MAX_CLAIMS} in one attempt, limits included");
                Error::option("keys", &claims, accepted)
            }
            AttemptError::Twice { on } => Error::option(
                "keys",
                &on.key,
                "the same key twice in one attempt; accepted are different ones",
            ),
        })?;
        Self::check_engine(&claims, &options, can)?;
        let shape = Shape { ttl: claims[0].ttl(), ..options.shape() };
        let began = Instant::now();
        let seen = Seen::new(telemetry, options.called().or(guard), &claims, began);
        let deadline = began + options.waits_for();
        Ok(Self { claims, options, shape, deadline, scope: 0, seen, tersely: false })
    }

    /// Whether the engine can do what is wanted.
    fn check_engine(claims: &[Claim], options: &LockOptions, can: Capabilities) -> Result<(), Error> {
        if matches!(claims, [claim] if claim.mode() == Mode::Exclusive)
            && !options.fenced
            && options.kept_for().is_none()
        {
            // What every engine can do.
            return Ok(());
        }
        let wants = |mode: fn(Mode) -> bool| claims.iter().any(|claim| mode(claim.mode()));
        for (field, asked, can, accepted) in [
            (
                "shared",
                options.shared,
                can.shared,
                "this engine has no shared locks; accepted are exclusive ones",
            ),
            (
                "fenced",
                options.fenced,
                can.fences,
                "this engine gives no fences; accepted are locks without one",
            ),
            (
                "fair",
                options.kept_for().is_some(),
                can.fair,
                "this engine keeps no queue; accepted are locks without one",
            ),
            (
                "limit",
                wants(|mode| matches!(mode, Mode::Permit { .. })),
                can.permits,
                "this engine grants no permits; accepted are locks",
            ),
            ("keys", claims.len() > 1, can.several, "this engine takes one key at a time; accepted is one"),
        ] {
            if asked && !can {
                return Err(Error::option(field, &true, accepted));
            }
        }
        Ok(())
    }

    pub(super) fn is_try(&self) -> bool {
        self.options.is_try()
    }

    /// Whether it stands in the local line of its key.
    pub(super) fn stands_in_line(&self) -> bool {
        self.claims.len() == 1 && self.options.kept_for().is_none()
    }

    /// The key that it is known by: its only one, or its first one.
    pub(super) fn key(&self) -> &Key {
        &self.claims[0].on().key
    }

    /// Whether the lease may go to the next in line.
    pub(super) fn passes(&self) -> bool {
        self.options.local_pass && self.stands_in_line()
    }

    /// How it waits for an engine that can do so much.
    pub(super) fn patience(&self, can: Capabilities) -> Patience {
        match self.options.kept_for() {
            Some(confirm) => Patience::Queue { until: self.deadline, confirm },
            None if self.is_try() => Patience::Try,
            None => Patience::Wait {
                until: self.deadline,
                again_within: REMEMBERED.max(self.options.polls_every().saturating_mul(3)),
                confirm: if can.heirs && self.inherits() { INHERITED } else { Duration::ZERO },
            },
        }
    }

    /// Whether a holder could hand its lock over to it. A fence is given to one who asks.
    fn inherits(&self) -> bool {
        let [claim] = &*self.claims else { return false };
        claim.mode() == Mode::Exclusive && claim.on().space == Space::Lock && !self.options.fenced
    }

    /// The pause between two polls, before jitter. Whoever stands in the engine's queue need not ask whether it is its turn
    /// more often than is needed not to miss it when the news was lost.
    pub(super) fn poll_every(&self) -> Duration {
        match self.options.kept_for() {
            Some(confirm) => self.options.polls_every().max(confirm / 2),
            None => self.options.polls_every(),
        }
    }

    /// The claims with a floor under their fences.
    pub(super) fn claims_above(&self, floor: Fence) -> Claims {
        self.claims.map(|claim| {
            let claim = claim.clone();
            if claim.fence_floor().is_some() { claim.fenced(floor) } else { claim }
        })
    }
}
