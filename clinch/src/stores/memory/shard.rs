//! One shard of the memory store: its keys and who wants to be woken. Plain data under the shard's lock.

use std::sync::Arc;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::records::Kept;
use crate::key::hash::ByKey;
use crate::lease::{ClaimKey, Token};
use crate::stores::rules::entry::{self, Call};

pub(super) type Entry = entry::Entry<Instant, Kept>;
type Place = entry::Place<Instant, Kept>;

#[derive(Debug, Default)]
pub(super) struct Shard {
    /// No entry in here is empty.
    entries: ByKey<Entry>,
    streams: ByKey<Vec<Stream>>,
}

/// A stream of wake-ups.
#[derive(Debug)]
struct Stream {
    signal: Arc<Notify>,
    /// Whose turn in the queue it also fires for.
    queued: Option<Token>,
}

impl Shard {
    pub(super) fn get(&self, on: &ClaimKey) -> Option<&Entry> {
        self.entries.get(on)
    }

    /// Works on the key's entry, if there is one, and forgets it if it is empty then.
    pub(super) fn with<T>(&mut self, on: &ClaimKey, work: impl FnOnce(&mut Entry) -> T) -> Option<T> {
        let entry = self.entries.get_mut(on)?;
        let answer = work(entry);
        if entry.is_empty() {
            self.entries.remove(on);
        }
        Some(answer)
    }

    /// The key's entry, into which something is put now.
    pub(super) fn entry(&mut self, on: &ClaimKey) -> &mut Entry {
        self.entries.entry(on.clone()).or_default()
    }

    /// Removes what has expired and says how much that was.
    pub(super) fn sweep(&mut self, now: Instant) -> usize {
        let mut swept = 0;
        self.entries.retain(|_, entry| {
            swept += entry.tidy(now);
            !entry.is_empty()
        });
        // What a burst needed is given back once the shard is nearly empty.
        if self.entries.capacity() > 64 && self.entries.len() * 8 < self.entries.capacity() {
            self.entries.shrink_to(self.entries.len() * 2);
        }
        swept
    }

    /// How much of the store's bound is in here.
    pub(super) fn size(&self) -> usize {
        self.entries.values().map(Entry::size).sum()
    }

    /// Removes everything and says how much that was.
    pub(super) fn clear(&mut self) -> usize {
        let forgotten = self.size();
        self.entries.clear();
        forgotten
    }

    pub(super) fn live(&self, now: Instant) -> impl Iterator<Item = (&ClaimKey, &Place)> {
        self.entries.iter().flat_map(move |(on, entry)| entry.live(now).map(move |place| (on, place)))
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
