//! How steps change the memory.

use std::fmt;
use std::time::Duration;

use clinch::lease::{Attempt, Claim, ClaimKey, Fence, Mode, Patience, Record, Token};
use tokio::time::Instant;

use super::{EngineTime, Place, Table};
use crate::history::Role;

/// An attempt as it is written in a request.
#[derive(Debug, Clone)]
pub struct Asked {
    /// In whose name.
    pub token: Token,
    /// What for.
    pub claims: Vec<Claim>,
    /// What it does if it is denied.
    pub asking: Asking,
}

/// A [`Patience`] at the instant of sending: engines know no instants of their clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asking {
    /// It asks once.
    Once,
    /// It comes again.
    Again {
        /// This long.
        left: Duration,
        /// At least this often.
        within: Duration,
        /// How long the key is kept for it if its holder hands it over; zero: that is not to be.
        confirm: Duration,
        /// When it was sent, as its process counts.
        asked_at: Instant,
    },
    /// It queues.
    Queue {
        /// This long.
        left: Duration,
        /// How long its turn lasts.
        confirm: Duration,
    },
}

impl Asked {
    /// What is sent of this attempt now.
    pub fn of(attempt: &Attempt) -> Self {
        let patience = attempt.patience();
        let asking = match patience {
            Patience::Wait { again_within, confirm, .. } => Asking::Again {
                left: patience.left(),
                within: again_within,
                confirm: confirm.min(attempt.ttl()),
                asked_at: Instant::now(),
            },
            Patience::Queue { confirm, .. } => Asking::Queue { left: patience.left(), confirm },
            _ => Asking::Once,
        };
        Self { token: attempt.token().clone(), claims: attempt.claims().to_vec(), asking }
    }

    const fn queues(&self) -> bool {
        matches!(self.asking, Asking::Queue { .. })
    }

    /// Whether it waits if it is denied.
    const fn waits(&self) -> bool {
        matches!(self.asking, Asking::Again { left, .. } | Asking::Queue { left, .. } if !left.is_zero())
    }

    /// Whether a key can be handed over to it outside of a queue.
    pub(crate) const fn inherits(&self) -> bool {
        matches!(self.asking, Asking::Again { confirm, .. } if !confirm.is_zero())
    }
}

/// Why an attempt was denied.
#[derive(Debug, Clone)]
pub struct Refusal {
    /// Which claim.
    pub claim: usize,
    /// Who has it, or what is left of it; nothing if it is only waited for.
    pub holder: Option<Box<Place>>,
    /// When that ends.
    pub until: EngineTime,
}

/// The role in which a claim is held.
pub(crate) const fn role(mode: Mode) -> Role {
    match mode {
        Mode::Shared => Role::Shared,
        Mode::Permit { .. } => Role::Permit,
        _ => Role::Exclusive,
    }
}

/// Grants all claims or none, going by these rules: what [`Rules::acquire`] does, for those that do something before.
///
/// # Errors
/// The first claim that cannot be granted.
pub fn acquire_by<R: Rules + ?Sized>(
    rules: &R,
    table: &mut Table,
    asked: &Asked,
    now: EngineTime,
) -> Result<Vec<Option<Fence>>, Refusal> {
    rules.sweep(table, asked, now);
    for (index, claim) in asked.claims.iter().enumerate() {
        if rules.mine(table, claim, &asked.token, now).is_some() {
            continue;
        }
        if let Some((holder, until)) = rules.in_the_way(table, claim, &asked.token, now) {
            rules.turned_away(table, claim, asked, now);
            return Err(Refusal { claim: index, holder: holder.map(Box::new), until });
        }
        if let Some(heir) = rules.passed_over(table, claim, asked, now) {
            rules.turned_away(table, claim, asked, now);
            return Err(Refusal { claim: index, until: heir.expires, holder: Some(Box::new(heir)) });
        }
    }
    let mut fences = Vec::new();
    for (index, claim) in asked.claims.iter().enumerate() {
        fences.push(match rules.mine(table, claim, &asked.token, now) {
            Some(place) => {
                if asked.inherits() {
                    rules.take_up(table, claim, &asked.token, now);
                }
                rules.repeat(table, claim, place, now).map_err(|place| Refusal {
                    claim: index,
                    until: place.expires,
                    holder: Some(Box::new(place)),
                })?
            }
            None => rules.grant(table, claim, &asked.token, now),
        });
    }
    Ok(fences)
}

/// How an engine carries steps out. The given ones are right; a planted bug overrides one.
pub trait Rules: fmt::Debug + Send + Sync {
    /// Whether the place still counts.
    fn is_live(&self, place: &Place, now: EngineTime) -> bool {
        place.expires > now
    }

    /// When a place ends that is granted or extended now.
    fn expiry(&self, ttl: Duration, now: EngineTime) -> EngineTime {
        now.after(ttl)
    }

    /// What this token holds of the claim.
    fn mine(&self, table: &Table, claim: &Claim, token: &Token, now: EngineTime) -> Option<Place> {
        let mine = |place: &&Place| place.token == *token && place.role.is_held() && self.is_live(place, now);
        table.on(claim.on()).iter().find(mine).cloned()
    }

    /// Who stands in the way of a claim: the one who ends first, and when that is.
    fn in_the_way(
        &self,
        table: &Table,
        claim: &Claim,
        token: &Token,
        now: EngineTime,
    ) -> Option<(Option<Place>, EngineTime)> {
        // What is done is done for the one who did it too.
        let other = |place: &&Place| place.token != *token || place.role == Role::Done;
        let others = || table.on(claim.on()).iter().filter(other).filter(|p| self.is_live(p, now));
        let kept = |place: &&Place| place.role.is_held() || matches!(place.role, Role::Heir | Role::Done);
        let first = || others().filter(kept).min_by_key(|place| place.expires).cloned();
        let blocker = match claim.mode() {
            Mode::Shared => {
                let writer = others().find(|place| matches!(place.role, Role::Exclusive | Role::Heir));
                let waits = others().filter(|place| place.role == Role::Writer);
                match (writer, waits.map(|place| place.expires).max()) {
                    (Some(writer), _) => Some(writer.clone()),
                    (None, Some(until)) => return Some((first(), until)),
                    (None, None) => None,
                }
            }
            Mode::Permit { of } => {
                let held = others().filter(kept).count();
                if u32::try_from(held).is_ok_and(|held| held < of.get()) { None } else { first() }
            }
            _ => first(),
        };
        blocker.map(|place| (Some(place.clone()), place.expires))
    }

    /// Grants all claims, or says why not.
    ///
    /// # Errors
    /// The first claim that cannot be granted.
    fn acquire(
        &self,
        table: &mut Table,
        asked: &Asked,
        now: EngineTime,
    ) -> Result<Vec<Option<Fence>>, Refusal> {
        acquire_by(self, table, asked, now)
    }

    /// Forgets what has expired.
    fn sweep(&self, table: &mut Table, asked: &Asked, now: EngineTime) {
        for claim in &asked.claims {
            table.remove(claim.on(), |place| !self.is_live(place, now));
        }
    }

    /// One that queues finds a free key while another is first: it hands the key over to that one.
    fn passed_over(&self, table: &mut Table, claim: &Claim, asked: &Asked, now: EngineTime) -> Option<Place> {
        let mine = |place: &Place| place.token == asked.token;
        let places = table.on(claim.on());
        if !asked.queues() || places.iter().any(|place| place.role == Role::Heir && mine(place)) {
            return None;
        }
        if places.iter().find(|place| place.role == Role::Queued).is_none_or(mine) {
            return None;
        }
        self.hand_over(table, claim.on(), now)
    }

    /// A claim was denied: a writer that waits for readers is remembered, and who queues is put at the queue's end.
    fn turned_away(&self, table: &mut Table, claim: &Claim, asked: &Asked, now: EngineTime) {
        if asked.waits() && !asked.inherits() {
            // There is one that waits and cannot inherit: next time, the first to ask has it.
            table.remove(claim.on(), |place| place.role == Role::Next);
        }
        let there = |role: Role| {
            table.on(claim.on()).iter().any(|place| place.token == asked.token && place.role == role)
        };
        let readers = table.on(claim.on()).iter().any(|place| place.role == Role::Shared);
        let writes = claim.mode() == Mode::Exclusive && readers;
        let next = |place: &&Place| place.role == Role::Next && self.is_live(place, now);
        let comes_next =
            table.on(claim.on()).iter().find(next).is_none_or(|place| place.token == asked.token);
        let (mut remembered, mut asks) = (Vec::new(), None);
        match asked.asking {
            Asking::Again { left, within, .. } if writes => {
                remembered.push((Role::Writer, left.min(within), Duration::ZERO));
            }
            Asking::Again { left, confirm, asked_at, .. } if asked.inherits() && comes_next => {
                asks = Some(asked_at);
                remembered.push((Role::Next, left.min(confirm / 2), confirm));
            }
            Asking::Queue { left, confirm } => {
                if writes {
                    remembered.push((Role::Writer, left.min(confirm), Duration::ZERO));
                }
                if !there(Role::Queued) {
                    remembered.push((Role::Queued, left, confirm));
                }
            }
            _ => {}
        }
        for (role, time, confirm) in remembered.into_iter().filter(|(_, time, _)| time.as_millis() > 0) {
            let (token, mode, expires) = (asked.token.clone(), claim.mode(), now.after(time));
            let asked_at = asks;
            let place = Place { token, role, mode, expires, fence: None, confirm, asked_at, done: None };
            table.put(claim.on(), place);
        }
    }

    /// Gives a claim that is free.
    fn grant(&self, table: &mut Table, claim: &Claim, token: &Token, now: EngineTime) -> Option<Fence> {
        let fence = claim.fence_floor().map(|floor| self.fence(table, claim.on(), floor, now));
        self.settle_waiting(table, claim, token);
        let (mode, expires) = (claim.mode(), self.expiry(claim.ttl(), now));
        let (token, role, confirm) = (token.clone(), role(mode), Duration::ZERO);
        let place = Place { token, role, mode, expires, fence, confirm, asked_at: None, done: None };
        table.put(claim.on(), place);
        fence
    }

    /// Whoever is granted a claim waits no longer; and a writer's turn ends the wait of all writers.
    fn settle_waiting(&self, table: &mut Table, claim: &Claim, token: &Token) {
        let exclusive = claim.mode() == Mode::Exclusive;
        table.remove(claim.on(), |place| {
            (!place.role.is_held() && place.token == *token) || (exclusive && place.role == Role::Writer)
        });
    }

    /// A number above all that were given before, whether they are known or not: the clock has run on since.
    fn fence(&self, table: &mut Table, on: &ClaimKey, floor: Fence, now: EngineTime) -> Fence {
        let number = (table.last_fence(on) + 1).max(now.micros()).max(floor.get() / Fence::STEP + 1);
        table.count_fence(on, number);
        Fence::new(number * Fence::STEP)
    }

    /// Answers one who asks again for what it has.
    ///
    /// # Errors
    /// Only a broken engine has a reason.
    #[expect(clippy::result_large_err, reason = "the place itself, which comes back")]
    fn repeat(
        &self,
        table: &mut Table,
        claim: &Claim,
        place: Place,
        now: EngineTime,
    ) -> Result<Option<Fence>, Place> {
        let _ = (table, claim, now);
        Ok(place.fence)
    }

    /// One asks again to which the key may have been handed over, and so only kept: now it has its whole time.
    fn take_up(&self, table: &mut Table, claim: &Claim, token: &Token, now: EngineTime) {
        self.extend(table, claim, token, now);
    }

    /// Extends the lease; says whether all of it was there.
    fn renew(&self, table: &mut Table, asked: &Asked, now: EngineTime) -> bool {
        if asked.claims.iter().any(|claim| self.mine(table, claim, &asked.token, now).is_none()) {
            return false;
        }
        asked.claims.iter().for_each(|claim| self.extend(table, claim, &asked.token, now));
        true
    }

    /// Extends what this token holds of a claim.
    fn extend(&self, table: &mut Table, claim: &Claim, token: &Token, now: EngineTime) {
        let expires = self.expiry(claim.ttl(), now);
        table.change(claim.on(), |place| {
            if place.token == *token && place.role.is_held() {
                place.expires = place.expires.max(expires);
            }
        });
    }

    /// Gives the lease back and withdraws what waits; says whether all of it was there.
    fn release(&self, table: &mut Table, asked: &Asked, now: EngineTime) -> bool {
        let held = asked.claims.iter().all(|claim| self.mine(table, claim, &asked.token, now).is_some());
        self.sweep(table, asked, now);
        for claim in &asked.claims {
            self.give_back(table, claim, &asked.token);
            let free = !table.on(claim.on()).iter().any(|p| p.role.is_held() || p.role == Role::Heir);
            if asked.queues() && free {
                self.hand_over(table, claim.on(), now);
            }
            if asked.inherits() && free && held {
                self.bequeath(table, claim.on(), now);
            }
        }
        held
    }

    /// Hands a key that was given back over to the one that comes next, and keeps it for that one.
    fn bequeath(&self, table: &mut Table, on: &ClaimKey, now: EngineTime) {
        let next = |place: &&Place| place.role == Role::Next && self.is_live(place, now);
        let Some(next) = table.on(on).iter().find(next).cloned() else { return };
        table.remove(on, |place| place.token == next.token);
        table.put(on, Place { role: Role::Exclusive, expires: self.expiry(next.confirm, now), ..next });
    }

    /// Takes away whatever this token has on the key of a claim, but for what it left behind.
    fn give_back(&self, table: &mut Table, claim: &Claim, token: &Token) {
        table.remove(claim.on(), |place| place.token == *token && place.role != Role::Done);
    }

    /// Leaves a record in the place of a lease, for so long or for what is left of the lease; says whether the lease was
    /// there, or has left its record before.
    fn complete(
        &self,
        table: &mut Table,
        asked: &Asked,
        record: &Record,
        ttl: Option<Duration>,
        now: EngineTime,
    ) -> bool {
        self.sweep(table, asked, now);
        let mut held = true;
        for claim in &asked.claims {
            let before = |place: &Place| place.token == asked.token && place.role == Role::Done;
            if table.on(claim.on()).iter().any(before) {
                continue;
            }
            let Some(place) = self.mine(table, claim, &asked.token, now) else {
                held = false;
                continue;
            };
            self.give_back(table, claim, &asked.token);
            let expires = ttl.map_or(place.expires, |ttl| now.after(ttl.max(Duration::from_millis(1))));
            let done = Some(record.clone());
            table.put(claim.on(), Place { role: Role::Done, expires, fence: None, done, ..place });
        }
        held
    }

    /// Keeps a free key for the first one in its queue.
    fn hand_over(&self, table: &mut Table, on: &ClaimKey, now: EngineTime) -> Option<Place> {
        let first = table.on(on).iter().find(|p| p.role == Role::Queued && self.is_live(p, now))?.clone();
        table.remove(on, |place| place.token == first.token && place.role == Role::Queued);
        let heir = Place { role: Role::Heir, expires: now.after(first.confirm), ..first };
        table.put(on, heir.clone());
        Some(heir)
    }

    /// Ends the lease by force; says whether it was there.
    fn revoke(&self, table: &mut Table, on: &ClaimKey, token: &Token, now: EngineTime) -> bool {
        let shown = |place: &Place| {
            (place.role.is_held() || place.role == Role::Heir)
                && place.token == *token
                && self.is_live(place, now)
        };
        table.remove(on, shown) > 0
    }
}

/// The rules as they should be.
#[derive(Debug, Clone, Copy, Default)]
pub struct Honest;

impl Rules for Honest {}
