//! Broken engines.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use clinch::lease::{Claim, ClaimKey, Fence, Mode, Token};

use crate::history::Role;
use crate::sim::{Asked, Asking, EngineTime, Honest, Place, Refusal, Rules, Table, acquire_by};

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
    RefundsTwice,
    SetEndsWithNewest,
    SetEndsWithOldest,
    ExpiredCounts,
    OneTooMany,
    Resurrects,
    ExtendsAll,
    NoClock,
    NoFloor,
    NewFenceOnRepeat,
    PartialGrant,
    PartialRelease,
    PartialRenewal,
    ReaderBesideWriter,
    WriterBesideReaders,
    ReaderOvertakes,
    NoteStays,
    WrongHeir,
    TwoHeirs,
    HeirStays,
    OvertakesQueue,
    /// One to which the key was handed over has no more time when it asks for it.
    HeirNotTakenUp,
    HeirKeptShort,
    HeirNotWithdrawn,
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

    fn is(&self, bug: EngineBug) -> bool {
        self.bug == bug
    }

    /// Every `nth` acquire.
    fn is_nth(&self, nth: u64) -> bool {
        (self.acquires.fetch_add(1, Ordering::Relaxed) + 1).is_multiple_of(nth)
    }
}

fn owner(token: &Token) -> Option<&str> {
    token.as_str().split_once('@').map(|(_, owner)| owner)
}

const fn is_permit(claim: &Claim) -> bool {
    matches!(claim.mode(), Mode::Permit { .. })
}

impl Rules for Flawed {
    fn is_live(&self, place: &Place, now: EngineTime) -> bool {
        self.is(EngineBug::NeverExpires)
            || (self.is(EngineBug::NoteStays) && place.role == Role::Writer)
            || Honest.is_live(place, now)
    }

    fn expiry(&self, ttl: Duration, now: EngineTime) -> EngineTime {
        match self.bug {
            EngineBug::TtlHalved => now.after(ttl / 2),
            EngineBug::TtlDoubled => now.after(ttl * 2),
            _ => now.after(ttl),
        }
    }

    fn in_the_way(
        &self,
        table: &Table,
        claim: &Claim,
        token: &Token,
        now: EngineTime,
    ) -> Option<(Option<Place>, EngineTime)> {
        let (holder, until) = match (self.bug, claim.mode()) {
            // What has run out is counted, and only swept when the set is empty otherwise.
            (EngineBug::ExpiredCounts, Mode::Permit { of }) => {
                let there = || table.on(claim.on()).iter().filter(|place| place.token != *token);
                let (held, first) = (there().count(), there().max_by_key(|place| place.expires)?);
                if u32::try_from(held).is_ok_and(|held| held < of.get()) {
                    return None;
                }
                (Some(first.clone()), first.expires)
            }
            (EngineBug::OneTooMany, Mode::Permit { of }) => {
                let more = Claim::permit(claim.on().key.clone(), of.saturating_add(1), claim.ttl());
                Honest.in_the_way(table, &more, token, now)?
            }
            _ => Honest.in_the_way(table, claim, token, now)?,
        };
        let role = holder.as_ref().map(|holder| holder.role);
        let unseen = match self.bug {
            EngineBug::Overwrites => true,
            EngineBug::IgnoresHolder => self.is_nth(20),
            EngineBug::ReaderBesideWriter => claim.mode() == Mode::Shared && role == Some(Role::Exclusive),
            EngineBug::WriterBesideReaders => role == Some(Role::Shared) && claim.mode() == Mode::Exclusive,
            EngineBug::ReaderOvertakes => claim.mode() == Mode::Shared && role != Some(Role::Exclusive),
            _ => false,
        };
        (!unseen).then_some((holder, until))
    }

    fn sweep(&self, table: &mut Table, asked: &Asked, now: EngineTime) {
        if self.is(EngineBug::ExpiredCounts) && asked.claims.iter().any(is_permit) {
            return;
        }
        for claim in &asked.claims {
            table.remove(claim.on(), |place| !self.is_live(place, now));
        }
    }

    fn acquire(
        &self,
        table: &mut Table,
        asked: &Asked,
        now: EngineTime,
    ) -> Result<Vec<Option<Fence>>, Refusal> {
        if self.is(EngineBug::PartialGrant) {
            // One after the other, and nothing is rolled back.
            let mut fences = Vec::new();
            for (claim, one) in asked.claims.iter().enumerate() {
                let one = Asked { claims: vec![one.clone()], ..asked.clone() };
                fences.extend(
                    Honest.acquire(table, &one, now).map_err(|refusal| Refusal { claim, ..refusal })?,
                );
            }
            return Ok(fences);
        }
        if self.is(EngineBug::Overwrites) && asked.claims.len() == 1 && !is_permit(&asked.claims[0]) {
            table.remove(asked.claims[0].on(), |place| place.token != asked.token && place.role.is_held());
        }
        if self.is(EngineBug::OvertakesQueue) {
            let once = Asked { asking: Asking::Once, ..asked.clone() };
            if let Ok(fences) = Honest.acquire(table, &once, now) {
                return Ok(fences);
            }
        }
        acquire_by(self, table, asked, now)
    }

    fn grant(&self, table: &mut Table, claim: &Claim, token: &Token, now: EngineTime) -> Option<Fence> {
        if self.is(EngineBug::ForgetsToWrite) && self.is_nth(10) {
            return None;
        }
        let fence = claim.fence_floor().map(|floor| self.fence(table, claim.on(), floor, now));
        self.settle_waiting(table, claim, token);
        let mut expires = self.expiry(claim.ttl(), now);
        if is_permit(claim) && self.is(EngineBug::SetEndsWithNewest) {
            table.change(claim.on(), |place| place.expires = expires);
        }
        if is_permit(claim) && self.is(EngineBug::SetEndsWithOldest) {
            let oldest = table.on(claim.on()).first().map_or(expires, |place| place.expires);
            expires = expires.min(oldest);
        }
        let (mode, confirm) = (claim.mode(), Duration::ZERO);
        let role = match mode {
            Mode::Shared => Role::Shared,
            Mode::Permit { .. } => Role::Permit,
            _ => Role::Exclusive,
        };
        table.put(
            claim.on(),
            Place { token: token.clone(), role, mode, expires, fence, confirm, asked_at: None, done: None },
        );
        fence
    }

    fn settle_waiting(&self, table: &mut Table, claim: &Claim, token: &Token) {
        let stays = |role: Role| {
            (self.is(EngineBug::HeirStays) && matches!(role, Role::Heir | Role::Queued))
                || (self.is(EngineBug::NoteStays) && role == Role::Writer)
        };
        let exclusive = claim.mode() == Mode::Exclusive;
        table.remove(claim.on(), |place| {
            let over =
                (!place.role.is_held() && place.token == *token) || (exclusive && place.role == Role::Writer);
            over && !stays(place.role)
        });
    }

    fn fence(&self, table: &mut Table, on: &ClaimKey, floor: Fence, now: EngineTime) -> Fence {
        let next = table.last_fence(on) + 1;
        let number = match self.bug {
            EngineBug::NoClock => next.max(floor.get() / Fence::STEP + 1),
            EngineBug::NoFloor => next.max(now.micros()),
            _ => return Honest.fence(table, on, floor, now),
        };
        table.count_fence(on, number);
        Fence::new(number * Fence::STEP)
    }

    fn repeat(
        &self,
        table: &mut Table,
        claim: &Claim,
        place: Place,
        now: EngineTime,
    ) -> Result<Option<Fence>, Place> {
        match (self.bug, claim.fence_floor()) {
            (EngineBug::NotIdempotent, _) => return Err(place),
            (EngineBug::RepeatExtends, _) => {
                let expires = now.after(claim.ttl());
                table.put(claim.on(), Place { expires, ..place.clone() });
            }
            (EngineBug::NewFenceOnRepeat, Some(floor)) => {
                return Ok(Some(self.fence(table, claim.on(), floor, now)));
            }
            _ => {}
        }
        Ok(place.fence)
    }

    fn renew(&self, table: &mut Table, asked: &Asked, now: EngineTime) -> bool {
        let mine = |claim: &&Claim| self.mine(table, claim, &asked.token, now).is_some();
        let there: Vec<_> = asked.claims.iter().filter(mine).cloned().collect();
        match self.bug {
            EngineBug::RenewAny => {
                let all = asked.claims.iter().all(|claim| !table.on(claim.on()).is_empty());
                asked.claims.iter().for_each(|claim| self.extend(table, claim, &asked.token, now));
                all
            }
            EngineBug::Resurrects if there.len() < asked.claims.len() => {
                Honest.acquire(table, asked, now).is_ok()
            }
            EngineBug::PartialRenewal if asked.claims.len() > 1 => {
                self.extend(table, &asked.claims[0], &asked.token, now);
                !there.is_empty()
            }
            _ if there.len() < asked.claims.len() => false,
            _ => {
                asked.claims.iter().for_each(|claim| self.extend(table, claim, &asked.token, now));
                true
            }
        }
    }

    fn extend(&self, table: &mut Table, claim: &Claim, token: &Token, now: EngineTime) {
        let expires = self.expiry(claim.ttl(), now);
        table.change(claim.on(), |place| {
            let mine = place.token == *token && place.role.is_held();
            match self.bug {
                EngineBug::RenewShortens if mine => place.expires = now.after(claim.ttl() / 2),
                EngineBug::RenewAny => place.expires = place.expires.max(expires),
                EngineBug::ExtendsAll if is_permit(claim) => place.expires = place.expires.max(expires),
                _ if mine => place.expires = place.expires.max(expires),
                _ => {}
            }
        });
    }

    fn give_back(&self, table: &mut Table, claim: &Claim, token: &Token) {
        let gone = table.remove(claim.on(), |place| match self.bug {
            EngineBug::ReleaseAny => !is_permit(claim) || place.token == *token,
            EngineBug::ReleaseByOwner => owner(&place.token) == owner(token),
            EngineBug::NoteStays => place.token == *token && place.role != Role::Writer,
            EngineBug::HeirNotWithdrawn => place.token == *token && place.role != Role::Next,
            _ => place.token == *token,
        });
        // As a counter does that is counted down without looking who was counted.
        if gone == 0 && is_permit(claim) && self.is(EngineBug::RefundsTwice) {
            let mut first = true;
            table.remove(claim.on(), |_| std::mem::take(&mut first));
        }
    }

    fn release(&self, table: &mut Table, asked: &Asked, now: EngineTime) -> bool {
        if self.is(EngineBug::PartialRelease) {
            let one = Asked { claims: asked.claims[..1].to_vec(), ..asked.clone() };
            return Honest.release(table, &one, now);
        }
        let held = asked.claims.iter().all(|claim| match self.bug {
            EngineBug::ReleaseAny => table.on(claim.on()).iter().any(|place| self.is_live(place, now)),
            _ => self.mine(table, claim, &asked.token, now).is_some(),
        });
        self.sweep(table, asked, now);
        for claim in &asked.claims {
            self.give_back(table, claim, &asked.token);
            let free = !table.on(claim.on()).iter().any(|p| p.role.is_held() || p.role == Role::Heir);
            if free && matches!(asked.asking, Asking::Queue { .. }) {
                self.hand_over(table, claim.on(), now);
            }
            if asked.inherits() && free && held {
                self.bequeath(table, claim.on(), now);
            }
        }
        held
    }

    fn bequeath(&self, table: &mut Table, on: &ClaimKey, now: EngineTime) {
        if self.is(EngineBug::HeirKeptShort) {
            table.change(on, |place| {
                if place.role == Role::Next {
                    place.confirm /= 2;
                }
            });
        }
        Honest.bequeath(table, on, now);
    }

    fn take_up(&self, table: &mut Table, claim: &Claim, token: &Token, now: EngineTime) {
        if !self.is(EngineBug::HeirNotTakenUp) {
            self.extend(table, claim, token, now);
        }
    }

    fn hand_over(&self, table: &mut Table, on: &ClaimKey, now: EngineTime) -> Option<Place> {
        let queued: Vec<_> =
            table.on(on).iter().filter(|place| place.role == Role::Queued).cloned().collect();
        let heirs: Vec<_> = match self.bug {
            EngineBug::WrongHeir => queued.last().into_iter().collect(),
            EngineBug::TwoHeirs => queued.iter().take(2).collect(),
            _ => return Honest.hand_over(table, on, now),
        };
        for heir in &heirs {
            table.remove(on, |place| place.token == heir.token && place.role == Role::Queued);
            let expires = now.after(heir.confirm);
            table.put(on, Place { role: Role::Heir, expires, ..(*heir).clone() });
        }
        table.on(on).iter().find(|place| place.role == Role::Heir).cloned()
    }

    fn revoke(&self, table: &mut Table, on: &ClaimKey, token: &Token, now: EngineTime) -> bool {
        if self.is(EngineBug::RevokeAny) {
            return table.remove(on, |place| place.role.is_held() && self.is_live(place, now)) > 0;
        }
        Honest.revoke(table, on, token, now)
    }
}
