//! What is known of one key: who holds it, what was left of its work, and who waits for it. Plain data; nothing here looks
//! at a clock.
//!
//! Everything but [`Entry::tidy`] and [`Entry::live`] takes it that what has expired was tidied away.

use std::time::Duration;

use super::Moment;
use super::queue::{Queue, Queued};
use crate::lease::{Claim, ClaimKey, Fence, Holder, Mode, Token};
use crate::store::StoreError;

/// A place that is taken.
#[derive(Debug)]
pub(in crate::stores) struct Place<M, R> {
    pub(in crate::stores) token: Token,
    pub(in crate::stores) mode: Mode,
    pub(in crate::stores) expires: M,
    pub(in crate::stores) fence: Option<Fence>,
    pub(in crate::stores) footing: Footing,
    /// What was left here by the one whose token it is: then nobody holds the place. Boxed, because most have none.
    pub(in crate::stores) done: Option<Box<R>>,
}

/// How a place came to its holder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::stores) enum Footing {
    /// To one that knows of no queue.
    Plain,
    /// To one that respects the queue: its end is the turn of the first in it.
    Fair,
    /// Kept for the first in the queue, which has not asked for it yet.
    Kept,
}

/// A writer that waits: new readers stay out until then.
#[derive(Debug)]
pub(in crate::stores) struct Note<M> {
    pub(in crate::stores) token: Token,
    pub(in crate::stores) until: M,
}

/// Those who hold nothing yet.
#[derive(Debug)]
struct Waiting<M> {
    note: Option<Note<M>>,
    queue: Queue<M>,
}

#[derive(Debug)]
pub(in crate::stores) struct Entry<M, R> {
    /// The exclusive holder. It has a place of its own, so that a lock needs no second allocation.
    alone: Option<Place<M, R>>,
    /// Readers of a lock, or holders of permits.
    many: Vec<Place<M, R>>,
    /// Boxed, because most keys have nobody waiting.
    waiting: Option<Box<Waiting<M>>>,
}

impl<M> Default for Waiting<M> {
    fn default() -> Self {
        Self { note: None, queue: Queue::default() }
    }
}

impl<M, R> Default for Entry<M, R> {
    fn default() -> Self {
        Self { alone: None, many: Vec::new(), waiting: None }
    }
}

/// How a claim stands on its key.
#[derive(Debug)]
pub(in crate::stores) enum Standing<'a, M, R> {
    /// Its token has the place.
    Held(&'a Place<M, R>),
    Free,
    /// Somebody is in the way, until then: a holder, or a waiting writer if there is none.
    Taken {
        by: Option<&'a Place<M, R>>,
        until: M,
    },
}

/// Who is to be woken.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::stores) enum Call {
    Nobody,
    Everybody,
    /// The one whose turn has come.
    Heir(Token),
}

/// What the end of a lease, or of a wait for one, comes to.
#[derive(Debug)]
pub(in crate::stores) struct Leaving {
    /// Whether a lease that was granted ended.
    pub(in crate::stores) held: bool,
    /// How much memory was given back.
    pub(in crate::stores) gone: usize,
    pub(in crate::stores) call: Call,
}

impl<M: Moment, R> Place<M, R> {
    /// Whether it is this token's, and its work is not done.
    fn is_held_by(&self, token: &Token) -> bool {
        self.token == *token && self.done.is_none()
    }

    pub(in crate::stores) fn holder(&self, on: &ClaimKey, now: M) -> Holder {
        let remaining = left(self.expires, now);
        Holder::new(on.clone(), self.mode, self.token.clone(), Some(remaining)).with_fence(self.fence)
    }
}

/// What a completion comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::stores) enum Finish {
    /// This token has no place.
    Lost,
    /// It has left its record before.
    Before,
    Now,
}

/// The time left, never less than 1 ms.
pub(in crate::stores) fn left<M: Moment>(until: M, now: M) -> Duration {
    until.since(now).max(Duration::from_millis(1))
}

impl<M: Moment, R> Entry<M, R> {
    /// Removes what has expired and says how much that was.
    pub(in crate::stores) fn tidy(&mut self, now: M) -> usize {
        let before = self.size();
        self.alone.take_if(|place| place.expires <= now);
        self.many.retain(|place| place.expires > now);
        if let Some(waiting) = &mut self.waiting {
            waiting.note.take_if(|note| note.until <= now);
            waiting.queue.tidy(now);
        }
        self.trim();
        before - self.size()
    }

    /// How much the store's bound counts for this key: places, and those who wait.
    pub(in crate::stores) fn size(&self) -> usize {
        let waiting = |w: &Waiting<M>| usize::from(w.note.is_some()) + w.queue.len();
        usize::from(self.alone.is_some()) + self.many.len() + self.waiting.as_deref().map_or(0, waiting)
    }

    pub(in crate::stores) fn is_empty(&self) -> bool {
        self.size() == 0
    }

    /// Of a key that one holds alone.
    pub(in crate::stores) fn alone(place: Place<M, R>) -> Self {
        Self { alone: Some(place), ..Self::default() }
    }

    /// Whether this token holds the key alone, knows of no queue, and nobody waits.
    pub(in crate::stores) fn is_only(&self, token: &Token, now: M) -> bool {
        let plain = |place: &Place<M, R>| {
            place.is_held_by(token) && place.footing == Footing::Plain && place.expires > now
        };
        self.alone.as_ref().is_some_and(plain) && self.many.is_empty() && self.waiting.is_none()
    }

    fn is_free(&self) -> bool {
        self.alone.is_none() && self.many.is_empty()
    }

    fn trim(&mut self) {
        self.waiting.take_if(|waiting| waiting.note.is_none() && waiting.queue.len() == 0);
        // What a crowd needed is given back once it is gone.
        if self.many.capacity() > 16 && self.many.len() * 4 < self.many.capacity() {
            self.many.shrink_to(self.many.len() * 2);
        }
    }

    /// Its holders that have not expired, tidied or not.
    pub(in crate::stores) fn live(&self, now: M) -> impl Iterator<Item = &Place<M, R>> {
        let held = move |place: &&Place<M, R>| place.expires > now && place.done.is_none();
        self.alone.iter().chain(&self.many).filter(held)
    }

    pub(in crate::stores) fn standing(&self, claim: &Claim, token: &Token) -> Standing<'_, M, R> {
        if let Some(place) = self.place_of(claim.mode(), token) {
            return Standing::Held(place);
        }
        let by = match claim.mode() {
            Mode::Exclusive => self.alone.as_ref().or_else(|| self.first_to_end()),
            Mode::Shared => self.alone.as_ref(),
            Mode::Permit { of } => {
                // On a machine with narrower counts than the limit, the limit is out of reach anyway.
                let of = usize::try_from(of.get()).unwrap_or(usize::MAX);
                self.first_to_end().filter(|_| self.many.len() >= of)
            }
        };
        if let Some(place) = by {
            return Standing::Taken { by, until: place.expires };
        }
        match self.waiting.as_deref().and_then(|waiting| waiting.note.as_ref()) {
            Some(note) if claim.mode() == Mode::Shared => {
                let by = self.first_to_end();
                Standing::Taken { by, until: by.map_or(note.until, |place| place.expires.min(note.until)) }
            }
            _ => Standing::Free,
        }
    }

    fn first_to_end(&self) -> Option<&Place<M, R>> {
        self.many.iter().min_by_key(|place| place.expires)
    }

    fn place_of(&self, mode: Mode, token: &Token) -> Option<&Place<M, R>> {
        match mode {
            Mode::Exclusive => self.alone.as_ref().filter(|place| place.is_held_by(token)),
            _ => self.many.iter().find(|place| place.token == *token),
        }
    }

    fn place_of_mut(&mut self, mode: Mode, token: &Token) -> Option<&mut Place<M, R>> {
        match mode {
            Mode::Exclusive => self.alone.as_mut().filter(|place| place.is_held_by(token)),
            _ => self.many.iter_mut().find(|place| place.token == *token),
        }
    }

    /// Whether this token was granted such a claim, not only promised it.
    pub(in crate::stores) fn holds(&self, mode: Mode, token: &Token) -> bool {
        self.place_of(mode, token).is_some_and(|place| place.footing != Footing::Kept)
    }

    /// How much of memory a grant to this token gives back: an exclusive one to somebody who waits ends every such wait,
    /// and its own place in the queue.
    pub(in crate::stores) fn freed_by_grant(&self, mode: Mode, token: &Token, waits: bool) -> usize {
        let Some(waiting) = self.waiting.as_deref().filter(|_| mode == Mode::Exclusive) else { return 0 };
        usize::from(waits && waiting.note.is_some()) + usize::from(self.is_queued(token))
    }

    /// Puts the place there, or gives the one that was kept for its token its full time. One that was granted before
    /// stays as it is, but for a fence that it had not.
    pub(in crate::stores) fn grant(&mut self, place: Place<M, R>, waits: bool) -> Option<Fence> {
        let (mode, fence) = (place.mode, place.fence);
        if mode == Mode::Exclusive {
            if let Some(waiting) = &mut self.waiting {
                // One that does not wait says nothing of those who do.
                waiting.note.take_if(|_| waits);
                waiting.queue.remove(&place.token);
            }
            self.trim();
        }
        match self.place_of_mut(mode, &place.token) {
            Some(kept) if kept.footing == Footing::Kept => *kept = place,
            Some(held) => {
                held.fence = held.fence.or(fence);
                return held.fence;
            }
            None if mode == Mode::Exclusive => self.alone = Some(place),
            None => self.many.push(place),
        }
        fence
    }

    /// Moves the expiry forward, never back.
    pub(in crate::stores) fn extend(&mut self, mode: Mode, token: &Token, expires: M) {
        if let Some(place) = self.place_of_mut(mode, token) {
            place.expires = place.expires.max(expires);
        }
    }

    /// Leaves a record in this token's exclusive place, until then, or until the place would have ended. `keep` finds
    /// room for it first.
    pub(in crate::stores) fn finish(
        &mut self,
        token: &Token,
        until: Option<M>,
        keep: impl FnOnce() -> Result<R, StoreError>,
    ) -> Result<Finish, StoreError> {
        let Some(place) = self.alone.as_mut().filter(|place| place.token == *token) else {
            return Ok(Finish::Lost);
        };
        if place.done.is_some() {
            return Ok(Finish::Before);
        }
        place.done = Some(Box::new(keep()?));
        place.expires = until.unwrap_or(place.expires);
        Ok(Finish::Now)
    }

    /// Whether a waiting writer is remembered.
    pub(in crate::stores) fn is_noted(&self) -> bool {
        self.waiting.as_deref().is_some_and(|waiting| waiting.note.is_some())
    }

    /// Remembers a waiting writer, instead of the one before.
    pub(in crate::stores) fn note(&mut self, token: Token, until: M) {
        self.waiting.get_or_insert_default().note = Some(Note { token, until });
    }

    /// Who is first in the queue.
    pub(in crate::stores) fn first(&self) -> Option<&Token> {
        self.waiting.as_deref()?.queue.first()
    }

    pub(in crate::stores) fn is_queued(&self, token: &Token) -> bool {
        self.waiting.as_deref().is_some_and(|waiting| waiting.queue.position(token).is_some())
    }

    /// How many in the queue are before this token; all of them if it is not in it.
    pub(in crate::stores) fn before(&self, token: &Token) -> usize {
        let before = |queue: &Queue<M>| queue.position(token).unwrap_or(queue.len());
        self.waiting.as_deref().map_or(0, |waiting| before(&waiting.queue))
    }

    /// Puts it at the end of the queue, unless it stands there.
    pub(in crate::stores) fn enqueue(&mut self, queued: Queued<M>) {
        self.waiting.get_or_insert_default().queue.enter(queued);
    }

    /// Keeps a free key for the first in the queue, if there is one.
    pub(in crate::stores) fn hand_over(&mut self, now: M) -> Option<Token> {
        if !self.is_free() {
            return None;
        }
        let heir = self.waiting.as_mut()?.queue.pop()?;
        self.trim();
        let token = heir.token.clone();
        self.alone = Some(Place {
            expires: now.after(heir.confirm.max(Duration::from_millis(1))),
            token: heir.token,
            mode: Mode::Exclusive,
            fence: None,
            footing: Footing::Kept,
            done: None,
        });
        Some(token)
    }

    /// Ends this token's lease, as a revocation does. `None` if it has no place.
    pub(in crate::stores) fn end(&mut self, token: &Token, now: M) -> Option<Leaving> {
        let place = match self.alone.take_if(|place| place.is_held_by(token)) {
            Some(place) => place,
            None => {
                let index = self.many.iter().position(|place| place.token == *token)?;
                self.many.swap_remove(index)
            }
        };
        let heir = if place.footing == Footing::Plain { None } else { self.hand_over(now) };
        let call = match heir {
            Some(heir) => Call::Heir(heir),
            // A reader that leaves others behind makes no room for anybody.
            None if place.mode == Mode::Shared && !self.many.is_empty() => Call::Nobody,
            None => Call::Everybody,
        };
        self.trim();
        Some(Leaving { held: place.footing != Footing::Kept, gone: 1, call })
    }

    /// Ends this token's lease and whatever it waits for.
    pub(in crate::stores) fn leave(&mut self, token: &Token, now: M) -> Leaving {
        let mut leaving =
            self.end(token, now).unwrap_or(Leaving { held: false, gone: 0, call: Call::Nobody });
        let Some(waiting) = &mut self.waiting else { return leaving };
        if waiting.note.take_if(|note| note.token == *token).is_some() {
            leaving.gone += 1;
            // Readers that it kept out may come in.
            leaving.call = Call::Everybody;
        }
        if waiting.queue.remove(token) {
            leaving.gone += 1;
            // The next one need not find out by itself that the key is free.
            if let Some(heir) = self.hand_over(now) {
                leaving.call = Call::Heir(heir);
            }
        }
        self.trim();
        leaving
    }
}

/// For engines that keep it elsewhere and load it for a step.
#[cfg(feature = "sqlite")]
impl<M: Moment, R> Entry<M, R> {
    /// What was stored of a key; the queue in its order.
    pub(in crate::stores) fn stored(
        places: impl IntoIterator<Item = Place<M, R>>,
        note: Option<Note<M>>,
        queue: impl IntoIterator<Item = Queued<M>>,
    ) -> Self {
        let mut entry = Self::default();
        for place in places {
            match place.mode {
                Mode::Exclusive => entry.alone = Some(place),
                _ => entry.many.push(place),
            }
        }
        let queue: Queue<M> = queue.into_iter().collect();
        if note.is_some() || queue.len() > 0 {
            entry.waiting = Some(Box::new(Waiting { note, queue }));
        }
        entry
    }

    /// Every place that is taken, by holders and by what was left.
    pub(in crate::stores) fn places(&self) -> impl Iterator<Item = &Place<M, R>> {
        self.alone.iter().chain(&self.many)
    }

    /// The writer that waits.
    pub(in crate::stores) fn noted(&self) -> Option<&Note<M>> {
        self.waiting.as_deref()?.note.as_ref()
    }

    /// Those in the queue, in its order.
    pub(in crate::stores) fn queue(&self) -> impl Iterator<Item = &Queued<M>> {
        self.waiting.iter().flat_map(|waiting| waiting.queue.iter())
    }
}
