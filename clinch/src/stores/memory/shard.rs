//! One shard of the memory store: its keys and who wants to be woken. Plain data under the shard's lock.

use std::sync::Arc;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::entered::{Full, Plain};
use super::records::Kept;
use crate::key::hash::{ByKey, Table};
use crate::lease::{Attempt, ClaimKey, Holder, Token};
use crate::stamp::Stamp;
use crate::store::{Asking, Asks};
use crate::stores::rules::entry::{self, Call};

pub(super) type Entry = entry::Entry<Instant, Kept>;
pub(super) type Place = entry::Place<Instant, Kept>;

#[derive(Debug, Default)]
pub(super) struct Shard {
    /// Plain holders, whose attempts are parts of their leases. They and those of the next kind are one pointer each, in tables of
    /// their own: a table has many free places.
    leases: Table<Arc<Asking>>,
    /// Other plain holders.
    attempts: Table<Arc<Attempt>>,
    /// All other keys. No entry in here is empty.
    entries: Table<Full>,
    streams: ByKey<Vec<Stream>>,
    /// No plain holder expires before this: looking at each of them means looking at its lease, which is anywhere in memory.
    none_before: Option<Stamp>,
    /// Room that was made here and is not used; see [`Room`](super::room::Room).
    pub(super) spare: usize,
}

/// A stream of wake-ups.
#[derive(Debug)]
struct Stream {
    signal: Arc<Notify>,
    /// Whose turn in the queue it also fires for.
    queued: Option<Token>,
}

impl Shard {
    /// The key's entry, if there is one; of one that was [unfolded](Self::unfold).
    pub(super) fn get(&self, on: &ClaimKey) -> Option<&Entry> {
        self.entries.get(on).map(Full::entry)
    }

    /// What is known of the key is to be looked at: it is an entry from now on.
    pub(super) fn unfold(&mut self, on: &ClaimKey) {
        let unfolded = match (self.leases.find(on), self.attempts.find(on)) {
            (Some(lease), _) => {
                lease.get().keep(false);
                lease.remove().0.unfolded()
            }
            (None, Some(attempt)) => attempt.remove().0.unfolded(),
            (None, None) => return,
        };
        self.entries.insert(unfolded);
    }

    /// The holders of this key.
    pub(super) fn holders_on(&self, on: &ClaimKey, now: Instant) -> Vec<Holder> {
        let lease = self.leases.get(on).and_then(|lease| lease.holder(now));
        let attempt = self.attempts.get(on).and_then(|attempt| attempt.holder(now));
        let entry = self.entries.get(on).into_iter().flat_map(|entry| entry.holders(now));
        lease.into_iter().chain(attempt).chain(entry).collect()
    }

    /// Works on the key's entry, if there is one, and forgets it if it is empty then.
    pub(super) fn with<T>(&mut self, on: &ClaimKey, work: impl FnOnce(&mut Entry) -> T) -> Option<T> {
        self.unfold(on);
        let mut found = self.entries.find(on)?;
        let entry = found.get_mut().entry_mut();
        let answer = work(entry);
        if entry.is_empty() {
            found.remove();
        }
        Some(answer)
    }

    /// The key's entry, into which something is put now.
    pub(super) fn entry(&mut self, on: &ClaimKey) -> &mut Entry {
        self.unfold(on);
        self.entries.find_or_insert(on, || Full::new(on, Entry::default())).entry_mut()
    }

    /// Puts a plain holder on a key of which nothing is known; `room` says whether there is room.
    ///
    /// # Errors
    /// It comes back.
    pub(super) fn enter_alone(
        &mut self,
        asks: Asks,
        room: impl FnOnce(&mut usize) -> bool,
    ) -> Result<(), Asks> {
        let on = asks.claims()[0].on();
        let known = self.leases.get(on).is_some()
            || self.attempts.get(on).is_some()
            || self.entries.get(on).is_some();
        if known || !room(&mut self.spare) {
            return Err(asks);
        }
        let until = asks.counts_until();
        self.none_before = Some(self.none_before.map_or(until, |before| before.min(until)));
        match asks {
            Asks::Lease(lease) => {
                lease.keep(true);
                self.leases.insert(lease);
            }
            Asks::Attempt(attempt) => self.attempts.insert(attempt),
        }
        Ok(())
    }

    /// Makes this lease count from now on, if it is all that is known of its key.
    pub(super) fn extend_alone(&mut self, on: &ClaimKey, lease: &Attempt, now: Instant) -> bool {
        let part = self.leases.get(on).map(|lease| lease.attempt());
        let Some(attempt) = part.or_else(|| self.attempts.get(on).map(|attempt| &**attempt)) else {
            return false;
        };
        let only = attempt.is(lease, now);
        if only {
            attempt.counts_from(Stamp::of(now));
        }
        only
    }

    /// Ends this lease, if it is all that is known of its key and nobody is to be woken.
    pub(super) fn leave_alone(&mut self, on: &ClaimKey, lease: &Attempt, now: Instant) -> bool {
        if !self.streams.is_empty() {
            return false;
        }
        if let Some(found) = self.leases.find(on) {
            let only = found.get().is(lease, now);
            if only {
                found.remove();
            }
            return only;
        }
        if let Some(attempt) = self.attempts.find(on) {
            let only = attempt.get().is(lease, now);
            if only {
                attempt.remove();
            }
            return only;
        }
        let Some(full) = self.entries.find(on) else { return false };
        let only = full.get().entry().is_only(lease.token(), now);
        if only {
            full.remove();
        }
        only
    }

    /// Removes what has expired and says how much that was.
    pub(super) fn sweep(&mut self, now: Instant) -> usize {
        let mut swept = 0;
        if self.none_before.is_some_and(|before| before <= Stamp::of(now)) {
            swept = self.sweep_plain(now);
        }
        self.entries.retain(|full| {
            swept += full.entry_mut().tidy(now);
            !full.entry().is_empty()
        });
        self.leases.shrink();
        self.attempts.shrink();
        self.entries.shrink();
        swept
    }

    fn sweep_plain(&mut self, now: Instant) -> usize {
        let (mut swept, mut none_before) = (0, None::<Stamp>);
        let mut keep = |attempt: &Attempt| {
            let (over, until) = (attempt.is_over(now), attempt.counts_until());
            if over {
                swept += 1;
            } else {
                none_before = Some(none_before.map_or(until, |before| before.min(until)));
            }
            !over
        };
        self.leases.retain(|lease| {
            let keeps = keep(lease.attempt());
            if !keeps {
                lease.keep(false);
            }
            keeps
        });
        self.attempts.retain(|attempt| keep(attempt));
        self.none_before = none_before;
        swept
    }

    /// How much of the store's bound is in here.
    pub(super) fn size(&self) -> usize {
        let entries: usize = self.entries.iter().map(|full| full.entry().size()).sum();
        self.leases.iter().count() + self.attempts.iter().count() + entries
    }

    /// Whether nothing is in here, nobody is to be woken, and no room is kept.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        let tables = self.leases.is_empty() && self.attempts.is_empty() && self.entries.is_empty();
        tables && self.streams.is_empty() && self.spare == 0
    }

    /// Removes everything and says how much that was.
    pub(super) fn clear(&mut self) -> usize {
        let forgotten = self.size();
        self.leases.iter().for_each(|lease| lease.keep(false));
        self.leases.clear();
        self.attempts.clear();
        self.entries.clear();
        self.none_before = None;
        forgotten
    }

    pub(super) fn holders(&self, now: Instant) -> impl Iterator<Item = Holder> {
        let leases = self.leases.iter().filter_map(move |lease| lease.holder(now));
        let attempts = self.attempts.iter().filter_map(move |attempt| attempt.holder(now));
        leases.chain(attempts).chain(self.entries.iter().flat_map(move |full| full.holders(now)))
    }

    pub(super) fn subscribe(&mut self, on: &ClaimKey, signal: &Arc<Notify>, queued: Option<&Token>) {
        let stream = Stream { signal: signal.clone(), queued: queued.cloned() };
        self.streams.entry(on.clone()).or_default().push(stream);
    }

    pub(super) fn unsubscribe(&mut self, on: &ClaimKey, signal: &Arc<Notify>) {
        if let Some(streams) = self.streams.get_mut(on) {
            streams.retain(|stream| !Arc::ptr_eq(&stream.signal, signal));
            if streams.is_empty() {
                self.streams.remove(on);
            }
        }
    }

    /// Fires the streams that are meant and says how many those are.
    pub(super) fn wake(&self, on: &ClaimKey, call: &Call) -> usize {
        let meant = |stream: &&Stream| match call {
            Call::Nobody => false,
            Call::Everybody => true,
            Call::Heir(token) => stream.queued.as_ref() == Some(token),
        };
        let streams = self.streams.get(on).into_iter().flatten().filter(meant);
        streams.map(|stream| stream.signal.notify_one()).count()
    }
}
