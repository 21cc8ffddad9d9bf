//! Broken engines.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use clinch::lease::{ClaimKey, Token};

use crate::sim::{EngineTime, Honest, Place, Rules, Table};

/// What is broken; [`all`](super::all) says it in words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EngineBug {
    ReleaseAny,
    ReleaseByOwner,
    RenewAny,
    RenewShortens,
    RevokeAny,
    IgnoresHolder,
    NotIdempotent,
    RepeatExtends,
    ForgetsToWrite,
    TtlHalved,
    TtlDoubled,
    NeverExpires,
    /// Writes whoever holds the key: half of a check-then-act.
    Overwrites,
}

/// An engine with one bug.
#[derive(Debug)]
pub(super) struct Flawed {
    bug: EngineBug,
    acquires: AtomicU64,
}

impl Flawed {
    pub(super) const fn new(bug: EngineBug) -> Self {
        Self { bug, acquires: AtomicU64::new(0) }
    }

    /// Every `nth` acquire.
    fn is_nth(&self, nth: u64) -> bool {
        (self.acquires.fetch_add(1, Ordering::Relaxed) + 1).is_multiple_of(nth)
    }

    fn ttl(&self, ttl: Duration) -> Duration {
        match self.bug {
            EngineBug::TtlHalved => ttl / 2,
            EngineBug::TtlDoubled => ttl * 2,
            _ => ttl,
        }
    }
}

fn owner(token: &Token) -> Option<&str> {
    token.as_str().split_once('@').map(|(_, owner)| owner)
}

impl Rules for Flawed {
    fn is_live(&self, place: &Place, now: EngineTime) -> bool {
        self.bug == EngineBug::NeverExpires || Honest.is_live(place, now)
    }

    fn acquire(
        &self,
        table: &mut Table,
        on: &ClaimKey,
        token: &Token,
        ttl: Duration,
        now: EngineTime,
    ) -> Result<(), Place> {
        let ttl = self.ttl(ttl);
        match self.holder(table, on, now) {
            Some(place) if place.token == *token => match self.bug {
                EngineBug::NotIdempotent => return Err(place),
                EngineBug::RepeatExtends => table.put(on, token, now.after(ttl)),
                _ => {}
            },
            Some(place) => match self.bug {
                EngineBug::Overwrites => table.put(on, token, now.after(ttl)),
                EngineBug::IgnoresHolder if self.is_nth(20) => table.put(on, token, now.after(ttl)),
                _ => return Err(place),
            },
            None if self.bug == EngineBug::ForgetsToWrite && self.is_nth(10) => {}
            None => table.put(on, token, now.after(ttl)),
        }
        Ok(())
    }

    fn renew(&self, table: &mut Table, on: &ClaimKey, token: &Token, ttl: Duration, now: EngineTime) -> bool {
        let Some(place) = self.holder(table, on, now) else { return false };
        match self.bug {
            EngineBug::RenewAny => table.put(on, &place.token, place.expires.max(now.after(ttl))),
            _ if place.token != *token => return false,
            EngineBug::RenewShortens => table.put(on, token, now.after(ttl / 2)),
            _ => table.put(on, token, place.expires.max(now.after(self.ttl(ttl)))),
        }
        true
    }

    fn release(&self, table: &mut Table, on: &ClaimKey, token: &Token, now: EngineTime) -> bool {
        let Some(place) = self.holder(table, on, now) else { return false };
        let matches = match self.bug {
            EngineBug::ReleaseAny => true,
            EngineBug::ReleaseByOwner => owner(&place.token) == owner(token),
            _ => place.token == *token,
        };
        matches && table.remove(on)
    }

    fn revoke(&self, table: &mut Table, on: &ClaimKey, token: &Token, now: EngineTime) -> bool {
        let Some(place) = self.holder(table, on, now) else { return false };
        (self.bug == EngineBug::RevokeAny || place.token == *token) && table.remove(on)
    }
}
