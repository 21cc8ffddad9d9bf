//! The keys of one step: loaded from the file, worked on by the rules, and written back where they changed.

use std::collections::VecDeque;
use std::num::NonZeroU32;
use std::time::Duration;

use rusqlite::{Row, params};

use super::clock::{At, micros, wall};
use super::error::Fault;
use super::session::Tx;
use super::site::Name;
use crate::lease::{ClaimKey, Fence, Mode, Record, Token};
use crate::store::{ErrorKind, StoreError};
use crate::stores::rules::entry::{self, Call, Footing, Note};
use crate::stores::rules::queue::Queued;
use crate::stores::rules::steps;

pub(super) type Entry = entry::Entry<At, Record>;
pub(super) type Place = entry::Place<At, Record>;

/// The keys of an attempt's claims, in their order.
#[derive(Debug)]
pub(super) struct Table {
    keys: Vec<Loaded>,
    /// The last fence that was given, and the least that the next one is.
    fence: i64,
    calls: Vec<(usize, Call)>,
}

/// What the file has of one key, and what the step makes of it.
#[derive(Debug)]
struct Loaded {
    name: Name,
    places: VecDeque<Stored>,
    waiting: VecDeque<Waiting>,
    entry: Entry,
}

/// A row of `places`, but for the key and the content of a record.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Stored {
    token: Token,
    mode: i64,
    expires: i64,
    fence: Option<i64>,
    footing: i64,
    done: Option<i64>,
}

/// A row of `waiting`, but for the key.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Waiting {
    turn: i64,
    token: Token,
    until: i64,
    confirm: i64,
}

/// The turn of the writer that new readers let go first.
const WRITER: i64 = 0;

impl Table {
    pub(super) fn load<'k>(
        tx: &mut Tx<'_, '_>,
        keys: impl IntoIterator<Item = &'k ClaimKey>,
    ) -> Result<Self, Fault> {
        let keys = keys.into_iter().map(|on| Loaded::load(tx, on)).collect::<Result<_, _>>()?;
        Ok(Self { keys, fence: tx.fence, calls: Vec::new() })
    }

    /// The only key of it, where there is one.
    pub(super) fn only(&mut self) -> Result<&mut Entry, Fault> {
        match &mut self.keys[..] {
            [key] => Ok(&mut key.entry),
            _ => Err(nonsense("a step on one key has loaded several").into()),
        }
    }

    /// Whom to wake once the step has come to its end, on the only key of it.
    pub(super) fn wake(&mut self, call: Call) {
        self.calls.push((0, call));
    }

    /// Writes back what changed, and leaves a message for those who listen elsewhere.
    pub(super) fn store(self, tx: &mut Tx<'_, '_>) -> Result<(), Fault> {
        if self.fence != tx.fence {
            tx.sql.set_fence.execute([self.fence])?;
            tx.fence = self.fence;
        }
        let names: Vec<Name> = if self.calls.is_empty() {
            Vec::new()
        } else {
            self.keys.iter().map(|key| key.name.clone()).collect()
        };
        for key in self.keys {
            key.store(tx)?;
        }
        for (key, call) in self.calls {
            tx.tell(&names[key], call)?;
        }
        Ok(())
    }
}

impl steps::Table for Table {
    type At = At;
    type Left = Record;

    fn tidy(&mut self, claim: usize, now: At) {
        self.keys[claim].entry.tidy(now);
    }

    fn get(&self, claim: usize) -> Option<&Entry> {
        Some(&self.keys[claim].entry).filter(|entry| !entry.is_empty())
    }

    fn entry(&mut self, claim: usize) -> &mut Entry {
        &mut self.keys[claim].entry
    }

    fn with<T>(&mut self, claim: usize, work: impl FnOnce(&mut Entry) -> T) -> Option<T> {
        let entry = &mut self.keys[claim].entry;
        if entry.is_empty() { None } else { Some(work(entry)) }
    }

    /// The disk is the bound, and says so when something is written.
    fn reserve(&mut self, _new: usize) -> Result<(), StoreError> {
        Ok(())
    }

    fn give_back(&mut self, _gone: usize) {}

    fn fence(&mut self, floor: Fence) -> Fence {
        let floor = i64::try_from(floor.get() / Fence::STEP).unwrap_or(i64::MAX);
        let most = i64::try_from(u64::MAX / Fence::STEP).unwrap_or(i64::MAX);
        self.fence = self.fence.max(floor).saturating_add(1).max(wall()).min(most);
        from_stored(self.fence)
    }

    fn wake(&mut self, claim: usize, call: Call) {
        self.calls.push((claim, call));
    }
}

impl Loaded {
    fn load(tx: &mut Tx<'_, '_>, on: &ClaimKey) -> Result<Self, Fault> {
        let name = tx.site.name(on);
        let key = params![name.hash, tx.site.prefix, name.key];
        let mut places = VecDeque::new();
        let mut rows = tx.sql.places.query(key)?;
        while let Some(row) = rows.next()? {
            places.push_back(Stored::read(row)?);
        }
        drop(rows);
        let mut waiting = VecDeque::new();
        let mut rows = tx.sql.waiting.query(key)?;
        while let Some(row) = rows.next()? {
            waiting.push_back(Waiting::read(row)?);
        }
        drop(rows);
        let mut taken = Vec::with_capacity(places.len());
        for stored in &places {
            taken.push(stored.place(tx)?);
        }
        let note = waiting.iter().find(|row| row.turn == WRITER).map(Waiting::note);
        let queue = waiting.iter().filter(|row| row.turn != WRITER).map(Waiting::queued);
        let mut entry = Entry::stored(taken, note, queue);
        entry.tidy(tx.now);
        Ok(Self { name, places, waiting, entry })
    }

    fn store(self, tx: &mut Tx<'_, '_>) -> Result<(), Fault> {
        let Self { name, entry, mut places, mut waiting } = self;
        let (hash, prefix, key) = (name.hash, tx.site.prefix.as_str(), name.key.as_str());
        for place in entry.places() {
            let mut before = take(&mut places, |row| row.token == place.token);
            let done = match (&place.done, before.as_ref().and_then(|row| row.done)) {
                (Some(record), None) => Some(keep(tx, record, place.expires)?),
                (None, Some(_)) => {
                    // What this token left has expired, and it asked anew: the record goes with the old row.
                    tx.sql.drop_place.execute(params![hash, prefix, key, place.token.as_str()])?;
                    before = None;
                    None
                }
                (_, done) => done,
            };
            let row = Stored::of(place, done);
            if before.as_ref() != Some(&row) {
                tx.sql.put_place.execute(params![
                    hash,
                    prefix,
                    key,
                    row.token.as_str(),
                    row.mode,
                    row.expires,
                    row.fence,
                    row.footing,
                    row.done
                ])?;
            }
        }
        for row in &places {
            tx.sql.drop_place.execute(params![hash, prefix, key, row.token.as_str()])?;
        }

        let mut last = waiting.back().map_or(WRITER, |row| row.turn);
        let mut after = Vec::new();
        if let Some(note) = entry.noted() {
            let before = take(&mut waiting, |row| row.turn == WRITER);
            let row = Waiting { turn: WRITER, token: note.token.clone(), until: note.until.0, confirm: 0 };
            after.push((before, row));
        }
        for queued in entry.queue() {
            let before = take(&mut waiting, |row| row.turn != WRITER && row.token == queued.token);
            let turn = before.as_ref().map_or_else(
                || {
                    last += 1;
                    last
                },
                |row| row.turn,
            );
            let (until, confirm) = (queued.until.0, micros(queued.confirm));
            after.push((before, Waiting { turn, token: queued.token.clone(), until, confirm }));
        }
        for (_, row) in after.iter().filter(|(before, row)| before.as_ref() != Some(row)) {
            tx.sql.put_waiting.execute(params![
                hash,
                prefix,
                key,
                row.turn,
                row.token.as_str(),
                row.until,
                row.confirm
            ])?;
        }
        for row in &waiting {
            tx.sql.drop_waiting.execute(params![hash, prefix, key, row.turn])?;
        }
        Ok(())
    }
}

/// Takes the row that is meant out; mostly it is the first.
fn take<T>(rows: &mut VecDeque<T>, is_meant: impl FnMut(&T) -> bool) -> Option<T> {
    rows.iter().position(is_meant).and_then(|index| rows.remove(index))
}

/// Stores a record, which ends then, and says under which number.
fn keep(tx: &mut Tx<'_, '_>, record: &Record, expires: At) -> Result<i64, Fault> {
    let kept_for = expires.0.saturating_sub(tx.now.0);
    tx.sql.put_record.execute(params![record.as_bytes(), wall().saturating_add(kept_for), kept_for])?;
    Ok(tx.last_id())
}

impl Stored {
    fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            token: Token::from_text(row.get_ref(0)?.as_str()?),
            mode: row.get(1)?,
            expires: row.get(2)?,
            fence: row.get(3)?,
            footing: row.get(4)?,
            done: row.get(5)?,
        })
    }

    fn of(place: &Place, done: Option<i64>) -> Self {
        Self {
            token: place.token.clone(),
            mode: match place.mode {
                Mode::Exclusive => 0,
                Mode::Shared => -1,
                Mode::Permit { of } => of.get().into(),
            },
            expires: place.expires.0,
            fence: place.fence.map(|fence| (fence.get() / Fence::STEP).cast_signed()),
            footing: match place.footing {
                Footing::Plain => 0,
                Footing::Fair => 1,
                Footing::Kept => 2,
            },
            done,
        }
    }

    fn place(&self, tx: &mut Tx<'_, '_>) -> Result<Place, Fault> {
        let done = match self.done {
            None => None,
            Some(id) => {
                let content: Vec<u8> = tx.sql.record.query_row([id], |row| row.get(0))?;
                Some(Box::new(Record::new(content)))
            }
        };
        Ok(Place {
            token: self.token.clone(),
            mode: mode(self.mode)?,
            expires: At(self.expires),
            fence: self.fence.map(from_stored),
            footing: match self.footing {
                0 => Footing::Plain,
                1 => Footing::Fair,
                2 => Footing::Kept,
                _ => return Err(nonsense("a place is taken in a way that this version does not know").into()),
            },
            done,
        })
    }
}

impl Waiting {
    fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        let token = Token::from_text(row.get_ref(1)?.as_str()?);
        Ok(Self { turn: row.get(0)?, token, until: row.get(2)?, confirm: row.get(3)? })
    }

    fn note(&self) -> Note<At> {
        Note { token: self.token.clone(), until: At(self.until) }
    }

    fn queued(&self) -> Queued<At> {
        let confirm = Duration::from_micros(self.confirm.try_into().unwrap_or(0));
        Queued { token: self.token.clone(), until: At(self.until), confirm }
    }
}

/// How a place is held, by its number in the file.
pub(super) fn mode(stored: i64) -> Result<Mode, Fault> {
    match (stored, u32::try_from(stored).ok().and_then(NonZeroU32::new)) {
        (0, _) => Ok(Mode::Exclusive),
        (-1, _) => Ok(Mode::Shared),
        (_, Some(of)) => Ok(Mode::Permit { of }),
        _ => Err(nonsense("a place is held in a mode that this version does not know").into()),
    }
}

pub(super) fn from_stored(fence: i64) -> Fence {
    Fence::new(fence.cast_unsigned().saturating_mul(Fence::STEP))
}

fn nonsense(what: &str) -> StoreError {
    StoreError::not_applied(ErrorKind::Protocol, format!("SQLite: {what}; nothing was changed"))
}
