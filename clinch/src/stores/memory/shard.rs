//! One shard of the memory store: its keys and who wants to be woken. Plain data under the shard's lock.

use std::sync::Arc;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::entered::Entered;
use super::records::Kept;
use crate::key::hash::{ByKey, OfKey, Table};
use crate::lease::{ClaimKey, Holder, Token};
use crate::stamp::Stamp;
use crate::stores::rules::entry::{self, Call};

pub(super) type Entry = entry::Entry<Instant, Kept>;
pub(super) type Place = entry::Place<Instant, Kept>;

#[derive(Debug, Default)]
pub(super) struct Shard {
    /// No entry in here is empty.
    entries: Table<Entered>,
    streams: ByKey<Vec<Stream>>,
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
        self.entries.get(on)?.entry()
    }

    /// What is known of the key is to be looked at.
    pub(super) fn unfold(&mut self, on: &ClaimKey) {
        if let Some(mut entered) = self.entries.find(on) {
            entered.get_mut().unfold();
        }
    }

    /// The holders of this key.
    pub(super) fn holders_on(&self, on: &ClaimKey, now: Instant) -> Vec<Holder> {
        self.entries.get(on).into_iter().flat_map(|entered| entered.holders(now)).collect()
    }

    /// Works on the key's entry, if there is one, and forgets it if it is empty then.
    pub(super) fn with<T>(&mut self, on: &ClaimKey, work: impl FnOnce(&mut Entry) -> T) -> Option<T> {
        let mut entered = self.entries.find(on)?;
        let entry = entered.get_mut().unfold();
        let answer = work(entry);
        if entry.is_empty() {
            entered.remove();
        }
        Some(answer)
    }

    /// The key's entry, into which something is put now.
    pub(super) fn entry(&mut self, on: &ClaimKey) -> &mut Entry {
        self.entries.find_or_insert(on, || Entered::new(on, Entry::default())).unfold()
    }

    /// Puts this on a key of which nothing is known; `room` says whether there is room.
    ///
    /// # Errors
    /// It comes back.
    pub(super) fn enter_alone(
        &mut self,
        entered: Entered,
        room: impl FnOnce(&mut usize) -> bool,
    ) -> Result<(), Entered> {
        if self.entries.get(entered.on()).is_some() || !room(&mut self.spare) {
            return Err(entered);
        }
        self.entries.insert(entered);
        Ok(())
    }

    /// Makes the lease of this token last until then, if it is all that is known of its key.
    pub(super) fn extend_alone(&mut self, on: &ClaimKey, token: &Token, now: Instant, until: Stamp) -> bool {
        let Some(mut entered) = self.entries.find(on) else { return false };
        let only = entered.get().is_only(token, now);
        match entered.get_mut() {
            Entered::Plain(_, expires) if only => {
                *expires = until.max(*expires);
                true
            }
            _ => false,
        }
    }

    /// Ends the lease of this token, if it is all that is known of its key and nobody is to be woken.
    pub(super) fn leave_alone(&mut self, on: &ClaimKey, token: &Token, now: Instant) -> bool {
        if !self.streams.is_empty() {
            return false;
        }
        let Some(entered) = self.entries.find(on) else { return false };
        let only = entered.get().is_only(token, now);
        if only {
            entered.remove();
        }
        only
    }

    /// Removes what has expired and says how much that was.
    pub(super) fn sweep(&mut self, now: Instant) -> usize {
        let mut swept = 0;
        self.entries.retain(|entered| {
            let (gone, empty) = entered.tidy(now);
            swept += gone;
            !empty
        });
        self.entries.shrink();
        swept
    }

    /// How much of the store's bound is in here.
    pub(super) fn size(&self) -> usize {
        self.entries.iter().map(Entered::size).sum()
    }

    /// Removes everything and says how much that was.
    pub(super) fn clear(&mut self) -> usize {
        let forgotten = self.size();
        self.entries.clear();
        forgotten
    }

    pub(super) fn holders(&self, now: Instant) -> impl Iterator<Item = Holder> {
        self.entries.iter().flat_map(move |entered| entered.holders(now))
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
