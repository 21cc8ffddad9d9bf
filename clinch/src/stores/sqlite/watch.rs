//! Wake-ups and revocations: in this store directly, to and from others on the same file by messages in it.
//!
//! A store says in the file which keys it listens to, so a release that nobody waits for writes nothing more, and one that
//! somebody waits for knows how many that are. Whoever listens looks at `PRAGMA data_version` every few milliseconds, which
//! costs microseconds and tells whether anybody has committed anything; only then it reads the messages. Every
//! (re)subscription fires once, because a message may have been missed meanwhile.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rusqlite::params;
use tokio::sync::{Notify, broadcast};

use super::busy;
use super::error::Fault;
use super::session::{Effects, FREE, Kind, REVOKED, Session, TURN, Tx, Undone};
use super::site::{Site, parse};
use super::ticket::Ticket;
use crate::lease::{ClaimKey, Token};
use crate::store::{Notice, Revocation, Revocations, Wakeups};
use crate::stores::rules::entry::Call;

/// How often messages are looked for while somebody waits for a key; and while only revocations are listened to.
const OFTEN: Duration = Duration::from_millis(2);
const SELDOM: Duration = Duration::from_millis(50);
/// How long a key is listened to after the last one who waited for it has gone: often another one follows.
const LINGER: Duration = Duration::from_millis(250);
/// How long others believe in a listener that says nothing, and how often it says so.
const BELIEVED: Duration = Duration::from_secs(30);
const HEARTBEAT: Duration = Duration::from_secs(10);
/// How long a change of what is listened to waits for the write lock, and how long until it is tried again.
const PATIENCE: Duration = Duration::from_millis(100);
const PAUSE: Duration = Duration::from_millis(50);
/// How many revocations a slow listener may fall behind before it misses some.
const REVOCATIONS: usize = 256;

/// What is wanted, shared with the thread that sees to it.
#[derive(Debug)]
pub(super) struct Watch {
    state: Mutex<State>,
    revoked: broadcast::Sender<Notice>,
}

#[derive(Debug, Default)]
struct State {
    keys: HashMap<ClaimKey, Watched>,
    /// Whether the file says that revocations are listened to.
    hears_revocations: bool,
}

/// A key that somebody waits for, or did a moment ago.
#[derive(Debug, Default)]
struct Watched {
    streams: Vec<Stream>,
    /// The file says that it is listened to.
    registered: bool,
    idle_since: Option<Instant>,
}

/// A stream of wake-ups.
#[derive(Debug)]
struct Stream {
    signal: Arc<Notify>,
    /// Whose turn in the queue it also fires for.
    queued: Option<Token>,
}

/// What is to be changed in the file.
#[derive(Debug, Default)]
struct Changes {
    add: Vec<ClaimKey>,
    remove: Vec<ClaimKey>,
    /// Revocations are to be listened to, or no longer.
    revocations: Option<bool>,
}

impl Watch {
    pub(super) fn new() -> Self {
        let (revoked, _) = broadcast::channel(REVOCATIONS);
        Self { state: Mutex::default(), revoked }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn wakeups(self: &Arc<Self>, on: &ClaimKey, queued: Option<&Token>) -> Wakeups {
        let signal = Arc::new(Notify::new());
        let mut state = self.state();
        let watched = state.keys.entry(on.clone()).or_default();
        watched.idle_since = None;
        watched.streams.push(Stream { signal: signal.clone(), queued: queued.cloned() });
        // Where it is listened to already; else it fires once it is.
        if watched.registered {
            signal.notify_one();
        }
        drop(state);
        Wakeups::new(signal.clone(), Subscription { watch: self.clone(), on: on.clone(), signal })
    }

    pub(super) fn revocations(&self) -> Revocations {
        let state = self.state();
        // Under the lock, so that the beginning is either seen here or sent to this stream.
        Revocations::new(self.revoked.subscribe(), state.hears_revocations)
    }

    /// Fires what a step that was committed is to fire in this process, and says how many streams those are.
    pub(super) fn fire(&self, effects: &Effects) -> usize {
        effects.revoked.iter().for_each(|revocation| self.tell(revocation.clone()));
        effects.calls.iter().map(|(on, call)| self.wake(on, call)).sum()
    }

    fn tell(&self, revocation: Revocation) {
        // An error only says that nobody listens.
        let _ = self.revoked.send(Notice::Revoked(revocation));
    }

    fn wake(&self, on: &ClaimKey, call: &Call) -> usize {
        let meant = |stream: &&Stream| match call {
            Call::Nobody => false,
            Call::Everybody => true,
            Call::Heir(token) => stream.queued.as_ref() == Some(token),
        };
        let state = self.state();
        let streams = state.keys.get(on).map_or(&[][..], |watched| &watched.streams);
        streams.iter().filter(meant).map(|stream| stream.signal.notify_one()).count()
    }

    /// Something may have been missed: everybody looks once more.
    fn fire_all(&self) {
        for watched in self.state().keys.values() {
            watched.streams.iter().for_each(|stream| stream.signal.notify_one());
        }
        let _ = self.revoked.send(Notice::Listening);
    }

    /// How long until something is to be looked at; `None` as long as nobody wants anything.
    fn interval(&self) -> Option<Duration> {
        let state = self.state();
        if state.keys.values().any(|watched| !watched.streams.is_empty()) {
            return Some(OFTEN);
        }
        let wanted = self.revoked.receiver_count() > 0 || state.hears_revocations || !state.keys.is_empty();
        wanted.then_some(SELDOM)
    }

    fn changes(&self, now: Instant) -> Changes {
        let mut state = self.state();
        state.keys.retain(|_, watched| watched.registered || !watched.streams.is_empty());
        let mut changes = Changes::default();
        for (on, watched) in &mut state.keys {
            if !watched.streams.is_empty() {
                if !watched.registered {
                    changes.add.push(on.clone());
                }
            } else if now.duration_since(*watched.idle_since.get_or_insert(now)) >= LINGER {
                changes.remove.push(on.clone());
            }
        }
        let wanted = self.revoked.receiver_count() > 0;
        changes.revocations = Some(wanted).filter(|wanted| *wanted != state.hears_revocations);
        changes
    }

    /// The file says so now: whoever waits looks once more.
    fn confirm(&self, changes: &Changes) {
        let mut state = self.state();
        for on in &changes.remove {
            // Somebody may have come meanwhile; then it is listened to anew.
            if let Some(watched) = state.keys.get_mut(on) {
                watched.registered = false;
            }
        }
        for on in &changes.add {
            let watched = state.keys.entry(on.clone()).or_default();
            watched.registered = true;
            watched.streams.iter().for_each(|stream| stream.signal.notify_one());
        }
        if let Some(hears) = changes.revocations {
            state.hears_revocations = hears;
            if hears {
                let _ = self.revoked.send(Notice::Listening);
            }
        }
    }

    /// Nothing in the file says any more that we listen.
    fn forget(&self) {
        let mut state = self.state();
        state.keys.values_mut().for_each(|watched| watched.registered = false);
        state.hears_revocations = false;
    }
}

/// Ends a subscription when it is dropped.
struct Subscription {
    watch: Arc<Watch>,
    on: ClaimKey,
    signal: Arc<Notify>,
}

impl Drop for Subscription {
    fn drop(&mut self) {
        if let Some(watched) = self.watch.state().keys.get_mut(&self.on) {
            watched.streams.retain(|stream| !Arc::ptr_eq(&stream.signal, &self.signal));
        }
    }
}

/// The part that lives in the store's thread.
#[derive(Debug)]
pub(super) struct Watcher {
    watch: Arc<Watch>,
    /// The last message that was seen; `None` while nothing is listened to.
    seen: Option<i64>,
    version: Option<i64>,
    beat: Instant,
    next: Instant,
    /// How many rows of the file say that we listen.
    rows: usize,
}

impl Watcher {
    pub(super) fn new(watch: Arc<Watch>) -> Self {
        let now = Instant::now();
        Self { watch, seen: None, version: None, beat: now, next: now, rows: 0 }
    }

    /// Something new is wanted.
    pub(super) fn hurry(&mut self) {
        self.next = Instant::now();
    }

    /// How long the thread may sleep; `None` as long as nobody wants anything.
    pub(super) fn wait(&self) -> Option<Duration> {
        self.watch.interval().map(|_| self.next.saturating_duration_since(Instant::now()))
    }

    /// What the file said is not there any more, or nobody knows whether it is.
    pub(super) fn disconnected(&mut self) {
        (self.seen, self.version, self.rows) = (None, None, 0);
        self.next = Instant::now() + PAUSE;
        self.watch.forget();
    }

    /// Looks, if it is time; `false` if the connection is no good any more.
    pub(super) fn tend(&mut self, site: &Site, session: &mut Session<'_>) -> bool {
        let now = Instant::now();
        if now < self.next {
            return true;
        }
        let Some(interval) = self.watch.interval() else { return true };
        self.next = now + interval;
        let changes = self.watch.changes(now);
        if let Err(undone) = self.register(site, session, &changes, now) {
            self.next = now + PAUSE;
            return kept(undone);
        }
        match self.listen(site, session) {
            Ok(()) => true,
            Err(fault) => !fault.is_of_connection(),
        }
    }

    /// Brings what the file says in line with what is wanted.
    fn register(
        &mut self,
        site: &Site,
        session: &mut Session<'_>,
        changes: &Changes,
        now: Instant,
    ) -> Result<(), Undone> {
        let beats = self.rows > 0 && now.duration_since(self.beat) >= HEARTBEAT;
        if changes.is_empty() && !beats {
            return Ok(());
        }
        busy::wait_until(now + PATIENCE, None);
        let begins = self.seen.is_none();
        let done = session.carry_out(Kind::Write, &Ticket::default(), |tx| {
            if begins {
                // What it says of us is from before.
                tx.sql.drop_listeners.execute([site.store])?;
            }
            let kept = if beats {
                tx.sql.keep_listeners.execute(params![site.store, tx.later(BELIEVED)])?
            } else {
                0
            };
            changes.write(tx, site)?;
            Ok((kept, tx.sql.last_event.query_row([], |row| row.get(0))?))
        })?;
        let (kept, last): (usize, i64) = done.answer;
        if beats {
            self.beat = now;
        }
        // So long was nothing heard of us that others had given us up.
        let lost = beats && kept != self.rows;
        self.rows = (self.rows + changes.added()).saturating_sub(changes.removed());
        self.watch.confirm(changes);
        if lost {
            self.disconnected();
            self.next = now;
            return Ok(());
        }
        if self.rows == 0 {
            self.seen = None;
        } else if self.seen.is_none() {
            (self.seen, self.beat) = (Some(last), now);
        }
        Ok(())
    }

    /// Reads the messages that are new.
    fn listen(&mut self, site: &Site, session: &mut Session<'_>) -> Result<(), Fault> {
        let Some(seen) = self.seen else { return Ok(()) };
        let version: i64 = session.sql.data_version.query_row([], |row| row.get(0))?;
        if self.version == Some(version) {
            return Ok(());
        }
        let mut last = seen;
        let mut missed = false;
        let mut rows = session.sql.events.query([seen])?;
        while let Some(row) = rows.next()? {
            let id: i64 = row.get(0)?;
            missed |= id != last + 1;
            last = id;
            let (store, kind): (i64, i64) = (row.get(1)?, row.get(2)?);
            let text = |column| -> rusqlite::Result<&str> { Ok(row.get_ref(column)?.as_str()?) };
            if store == site.store || text(3)? != site.prefix {
                continue;
            }
            let (Some(on), token) = (parse(text(4)?), text(5)?) else { continue };
            match kind {
                FREE => drop(self.watch.wake(&on, &Call::Everybody)),
                TURN => drop(self.watch.wake(&on, &Call::Heir(Token::from_text(token)))),
                REVOKED => self.watch.tell(Revocation { on, token: Token::from_text(token) }),
                _ => {}
            }
        }
        drop(rows);
        (self.seen, self.version) = (Some(last), Some(version));
        if missed {
            self.watch.fire_all();
        }
        Ok(())
    }

    /// Takes back what the file says of us.
    pub(super) fn leave(&mut self, site: &Site, session: &mut Session<'_>) {
        if self.rows == 0 {
            return;
        }
        busy::wait_until(Instant::now() + PATIENCE, None);
        // If it does not work out, others believe in us for a while longer.
        let _ = session.carry_out(Kind::Write, &Ticket::default(), |tx| {
            Ok(tx.sql.drop_listeners.execute([site.store])?)
        });
    }
}

/// Whether the connection is good.
fn kept(undone: Undone) -> bool {
    let Undone::Failed { error, reconnect, .. } = undone else { return true };
    tracing::debug!(%error, "could not say in the file what is listened to; waiters poll meanwhile");
    !reconnect
}

impl Changes {
    fn is_empty(&self) -> bool {
        self.add.is_empty() && self.remove.is_empty() && self.revocations.is_none()
    }

    fn added(&self) -> usize {
        self.add.len() + usize::from(self.revocations == Some(true))
    }

    fn removed(&self) -> usize {
        self.remove.len() + usize::from(self.revocations == Some(false))
    }

    fn write(&self, tx: &mut Tx<'_, '_>, site: &Site) -> Result<(), Fault> {
        let until = tx.later(BELIEVED);
        let (hears, deaf) = match self.revocations {
            Some(true) => (Some(site.revocations()), None),
            Some(false) => (None, Some(site.revocations())),
            None => (None, None),
        };
        for name in self.add.iter().map(|on| site.name(on)).chain(hears) {
            tx.sql.put_listener.execute(params![name.hash, site.prefix, name.key, site.store, until])?;
        }
        for name in self.remove.iter().map(|on| site.name(on)).chain(deaf) {
            tx.sql.drop_listener.execute(params![name.hash, site.prefix, name.key, site.store])?;
        }
        Ok(())
    }
}
