//! Wake-ups and revocations by push: one connection of its own, one subscription per key while it has waiters.
//!
//! A task brings what is subscribed in line with what is wanted, so there is no queue of requests to bound. Every
//! (re)subscription fires its wake-ups once, because a release may have been missed meanwhile. Where the data connection
//! has moved to another server, this one follows at once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::{Client, RedisError, RedisResult};
use tokio::runtime::Handle;
use tokio::sync::{Notify, broadcast, watch};
use tokio::task::yield_now;
use tokio::time::{Instant, sleep, timeout};

use super::cluster::{self, Cluster};
use super::connection::Target;
use super::contended::Contended;
use super::ear::Ear;
use super::keys::{Digits, Names};
use super::link::{Link, pause_after};
use super::wire::Packed;
use crate::lease::{ClaimKey, Token};
use crate::store::{Kept, Notice, Revocation, Revocations, StoreError, Wakeups};

/// A silent connection is pinged this often, so that a half-open one is noticed.
pub(super) const HEARTBEAT: Duration = Duration::from_secs(15);
/// A connection that lived this long was a good one: the next failure is a new one.
pub(super) const SETTLED: Duration = Duration::from_secs(1);
/// How many revocations a slow listener may fall behind before it misses some.
const REVOCATIONS: usize = 256;

/// What is wanted, shared with the task that sees to it.
#[derive(Debug)]
pub(super) struct Wake {
    source: Source,
    names: Names,
    /// Learns which keys were given back.
    contended: Arc<Contended>,
    channels: Mutex<Channels>,
    revoked: broadcast::Sender<Notice>,
    changed: watch::Sender<()>,
    running: AtomicBool,
    closed: AtomicBool,
    attention: Attention,
}

type Channels = BTreeMap<Arc<str>, Channel>;

/// The channel of this name, and its name for whoever keeps it: usually others wait there already.
fn known<'a>(channels: &'a mut Channels, name: &str) -> (Arc<str>, &'a mut Channel) {
    let name = channels.get_key_value(name).map_or_else(|| Arc::from(name), |(name, _)| name.clone());
    let channel = channels.entry(name.clone()).or_default();
    (name, channel)
}

/// Where is listened.
#[derive(Debug)]
pub(super) enum Source {
    One(Arc<Link>),
    Cluster(Arc<Cluster>),
}

/// A channel that somebody wants to hear.
#[derive(Debug, Default)]
struct Channel {
    /// The key that it tells of.
    on: Option<ClaimKey>,
    signals: Vec<(Arc<Notify>, Arc<Kept>)>,
    /// Those who wait for their turn in the key's queue, by what is known of their tokens; only on this store's own channel.
    turns: BTreeMap<Digits, (Arc<Notify>, Arc<Kept>)>,
    /// Kept although nobody waits on it: the channel of revocations.
    pinned: bool,
    /// The server that has confirmed the subscription.
    confirmed: Option<Arc<str>>,
}

impl Channel {
    fn is_wanted(&self) -> bool {
        self.pinned || self.waiting() > 0 || !self.turns.is_empty()
    }

    /// How many wait. One that is gone has left nothing here but its signal, which nobody else has then.
    fn waiting(&self) -> usize {
        self.signals.iter().filter(|(signal, _)| Arc::strong_count(signal) > 1).count()
    }

    fn forget_gone(&mut self) {
        self.signals.retain(|(signal, _)| Arc::strong_count(signal) > 1);
    }

    fn all_signals(&self) -> impl Iterator<Item = &Arc<Notify>> {
        self.signals.iter().chain(self.turns.values()).map(|(signal, _)| signal)
    }
}

impl Wake {
    pub(super) fn new(source: Source, names: Names, contended: Arc<Contended>) -> Self {
        let (revoked, _) = broadcast::channel(REVOCATIONS);
        Self {
            source,
            names,
            contended,
            channels: Mutex::default(),
            revoked,
            changed: watch::Sender::new(()),
            running: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            attention: Attention::default(),
        }
    }

    fn channels(&self) -> MutexGuard<'_, Channels> {
        self.channels.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A stream for this key, and for the turn of the attempt in its queue that has this token.
    pub(super) fn wakeups(self: &Arc<Self>, on: &ClaimKey, queued: Option<&Token>) -> Wakeups {
        let (signal, kept) = (Arc::new(Notify::new()), Arc::<Kept>::default());
        let (own, shared) = match queued {
            Some(_) => self.names.turns(on),
            None => (self.names.channel(on), usize::MAX),
        };
        let mut turn = None;
        let (confirmed, new) = {
            let mut channels = self.channels();
            let (name, channel) = known(&mut channels, own.get(..shared).unwrap_or(&own));
            let mut new = !channel.is_wanted();
            channel.on.get_or_insert_with(|| on.clone());
            channel.forget_gone();
            channel.signals.push((signal.clone(), kept.clone()));
            let mut confirmed = channel.confirmed.is_some();
            if let Some(token) = queued {
                let digits = Names::digits(token.as_str().as_bytes());
                let (own, channel) = known(&mut channels, &own);
                new |= !channel.is_wanted();
                channel.turns.insert(digits, (signal.clone(), kept.clone()));
                confirmed &= channel.confirmed.is_some();
                turn = Some(Turn { name, own, digits });
            }
            (confirmed, new)
        };
        // Once all that it rests on is there; until then the confirmation fires it.
        if confirmed {
            signal.notify_one();
        }
        if new || !confirmed {
            self.attend();
        }
        let subscription = Subscription { wake: self.clone(), turn, signal: Some(signal.clone()) };
        Wakeups::new(signal, subscription).with_kept(kept)
    }

    /// Whether the server has confirmed all that one in the key's queue rests on.
    pub(super) fn is_listening(&self, on: &ClaimKey) -> bool {
        let (own, shared) = self.names.turns(on);
        let channels = self.channels();
        let is_heard = |name: &str| {
            channels.get(name).is_some_and(|channel| channel.confirmed.is_some() && channel.is_wanted())
        };
        is_heard(&own) && own.get(..shared).is_some_and(is_heard)
    }

    /// How many streams a message on this channel fired, of which the server told to how many subscribers it went: one
    /// of them may be this connection, which stands for all its streams.
    pub(super) fn fired(&self, name: &str, receivers: usize) -> usize {
        match self.channels().get(name) {
            // Each tells one.
            Some(channel) if !channel.turns.is_empty() => receivers,
            Some(channel) if channel.confirmed.is_some() && receivers > 0 => {
                receivers - 1 + channel.waiting()
            }
            _ => receivers,
        }
    }

    pub(super) fn revocations(self: &Arc<Self>) -> Revocations {
        let events = {
            let mut channels = self.channels();
            let (_, channel) = known(&mut channels, &self.names.revocations());
            channel.pinned = true;
            // Under the lock, so that a confirmation is either seen here or sent to this stream.
            Revocations::new(self.revoked.subscribe(), channel.confirmed.is_some())
        };
        self.attend();
        events
    }

    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.changed.send_replace(());
    }

    /// Tells the task, and starts it if it does not run.
    fn attend(self: &Arc<Self>) {
        self.changed.send_replace(());
        let options = match &self.source {
            Source::One(link) => link.options(),
            Source::Cluster(cluster) => cluster.options(),
        };
        let runtime = options.runtime.clone().or_else(|| Handle::try_current().ok());
        // Without a runtime nothing is pushed; waiters poll.
        let Some(runtime) = runtime else { return };
        if !self.running.swap(true, Ordering::AcqRel) {
            runtime.spawn(attend(Running(self.clone())));
        }
    }

    /// Tells that something else is wanted, or nothing any more.
    pub(super) fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// What to subscribe to and what to unsubscribe from.
    fn differences(&self, subscribed: &BTreeSet<String>) -> (Vec<String>, Vec<String>) {
        let wanted = self.wanted();
        (wanted.difference(subscribed).cloned().collect(), subscribed.difference(&wanted).cloned().collect())
    }

    /// The channels that somebody wants to hear.
    pub(super) fn wanted(&self) -> BTreeSet<String> {
        let mut channels = self.channels();
        channels.retain(|_, channel| {
            channel.forget_gone();
            channel.is_wanted()
        });
        channels.keys().map(|name| String::from(&**name)).collect()
    }

    /// Whether what is told on a channel must reach every server.
    pub(super) fn is_for_all(&self, name: &str) -> bool {
        self.names.is_of_revocations(name)
    }

    /// The server has confirmed these: everybody who waits on them looks once more.
    pub(super) fn confirm(&self, names: &[String], by: &Arc<str>) {
        let mut channels = self.channels();
        let mut signals: Vec<Arc<Notify>> = Vec::new();
        for name in names {
            if let Some(channel) = channels.get_mut(name.as_str()) {
                channel.confirmed = Some(by.clone());
                if channel.pinned {
                    // An error only says that nobody listens.
                    let _ = self.revoked.send(Notice::Listening);
                }
                signals.extend(channel.all_signals().cloned());
            }
        }
        drop(channels);
        // Once each, also where it rests on two channels.
        signals.sort_unstable_by_key(Arc::as_ptr);
        signals.dedup_by_key(|signal| Arc::as_ptr(signal));
        signals.iter().for_each(|signal| signal.notify_one());
    }

    /// Nothing is subscribed any more.
    fn disconnected(&self) {
        self.attention.looked();
        self.channels().values_mut().for_each(|channel| channel.confirmed = None);
    }

    /// These are not subscribed at that server any more.
    pub(super) fn disconnected_from<'n>(&self, names: impl IntoIterator<Item = &'n String>, at: &Arc<str>) {
        let mut channels = self.channels();
        for name in names {
            if let Some(channel) = channels.get_mut(name.as_str()) {
                channel.confirmed.take_if(|by| by == at);
            }
        }
    }

    /// Tells those whom it concerns. Says whether somebody may have been told what he waited for, and wait no longer now.
    pub(super) fn dispatch(&self, name: &str, payload: &[u8]) -> bool {
        if self.is_for_all(name) {
            let payload = String::from_utf8_lossy(payload);
            // Keys hold no control characters, so the first line is the key.
            if let Some((key, token)) = payload.split_once('\n')
                && let Some(on) = self.names.parse(key)
            {
                // An error only says that nobody listens.
                let revocation = Revocation { on, token: Token::from_text(token) };
                let _ = self.revoked.send(Notice::Revoked(revocation));
            }
        } else if let Some(channel) = self.channels().get(name) {
            // Not where several listen: each knows nothing of the others' channels. Nor where others wait, and so go on waiting.
            let looks_soon = matches!(self.source, Source::One(_)) && channel.turns.len() < 2;
            if looks_soon {
                self.attention.looks_soon();
            }
            if !channel.turns.is_empty() {
                self.tell_turn(channel, payload);
                return looks_soon;
            }
            if payload.is_empty() {
                if let Some(on) = &channel.on {
                    self.contended.freed(on);
                }
            } else if let (heir, Some(at)) = self.kept_for(payload) {
                // Whoever it is: only that one knows its name, and counts the moment as this one does.
                channel.signals.iter().for_each(|(_, kept)| kept.since_for(heir, at));
            }
            channel.signals.iter().for_each(|(signal, _)| signal.notify_one());
            return looks_soon;
        }
        false
    }

    /// Tells the one whose turn has come, and since when the key may be kept for it: since it asked last.
    fn tell_turn(&self, channel: &Channel, payload: &[u8]) {
        let (digits, asked) = self.kept_for(payload);
        let Some((signal, kept)) = channel.turns.get(&digits) else { return };
        if let Some(at) = asked {
            kept.since(at);
        }
        signal.notify_one();
    }

    /// For whom the key is kept, and when that one asked last.
    fn kept_for(&self, payload: &[u8]) -> (Digits, Option<Instant>) {
        let blank = payload.iter().position(|byte| *byte == b' ').unwrap_or(payload.len());
        let (digits, asked) = payload.split_at(blank);
        let asked = asked.get(1..).and_then(|asked| std::str::from_utf8(asked).ok()?.parse().ok());
        (Names::digits(digits), asked.and_then(|micros| self.names.asked_at(micros)))
    }
}

/// Whether the task that listens will soon look by itself who waits no longer: it does when it has told somebody what he waited
/// for. Then that one, who has better things to do, need not wake it.
#[derive(Debug, Default)]
struct Attention(AtomicU8);

impl Attention {
    const SOON: u8 = 1;
    /// Somebody has gone, and relies on it.
    const GONE: u8 = 2;

    /// To be said before anybody is told.
    fn looks_soon(&self) {
        self.0.fetch_or(Self::SOON, Ordering::Relaxed);
    }

    /// Somebody has gone: whether the task will see that. One step, so that it looks after this, or did before and says so.
    fn is_due(&self) -> bool {
        let gone = |state| if state == 0 { None } else { Some(Self::SOON | Self::GONE) };
        self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, gone).is_ok()
    }

    /// It looks: whether anybody has gone who did not say so otherwise.
    fn looked(&self) -> bool {
        self.0.swap(0, Ordering::AcqRel) & Self::GONE != 0
    }
}

/// That of an attempt in a queue. There are many of them, and a task that looked after each would have much to do.
struct Turn {
    /// The key's channel.
    name: Arc<str>,
    /// This store's own for the queue, and what it knows the attempt by.
    own: Arc<str>,
    digits: Digits,
}

impl Turn {
    /// Ends it, and says whether nobody waits on one of the channels any more.
    fn end(&self, wake: &Wake) -> bool {
        let mut channels = wake.channels();
        if let Some(channel) = channels.get_mut(&self.own) {
            channel.turns.remove(&self.digits);
        }
        [&self.name, &self.own]
            .iter()
            .any(|name| channels.get(*name).is_some_and(|channel| !channel.is_wanted()))
    }
}

/// Ends a subscription when it is dropped.
struct Subscription {
    wake: Arc<Wake>,
    turn: Option<Turn>,
    /// Until it is dropped.
    signal: Option<Arc<Notify>>,
}

impl Drop for Subscription {
    fn drop(&mut self) {
        // Its channel knows by this that it is gone. What follows from that is the task's to see, and not that of one who has just
        // been given what he waited for.
        self.signal = None;
        if self.turn.as_ref().is_none_or(|turn| turn.end(&self.wake)) && !self.wake.attention.is_due() {
            self.wake.changed.send_replace(());
        }
    }
}

/// Resets `running` when the task ends in any way, the end of its runtime included.
struct Running(Arc<Wake>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.disconnected();
        self.0.running.store(false, Ordering::Release);
    }
}

/// Keeps a connection as long as something is wanted.
async fn attend(running: Running) {
    let wake = &running.0;
    match &wake.source {
        Source::One(link) => attend_one(wake, link).await,
        Source::Cluster(of) => cluster::attend(wake, of).await,
    }
}

async fn attend_one(wake: &Arc<Wake>, link: &Link) {
    let mut changes = wake.changes();
    let mut failures = 0;
    while !wake.is_closed() {
        if wake.wanted().is_empty() {
            // The sender lives as long as the store's task.
            let _ = changes.changed().await;
            continue;
        }
        let limit = link.options().connect_timeout;
        let mut followed = Followed { moved: link.moved(), at: Arc::from("") };
        let connecting = async {
            let client = followed.server(link).await.map_err(|error| error.to_string())?;
            let roots = link.options().tls_root_certificates.as_deref();
            Ear::open(&client, roots).await.map_err(|error| error.to_string())
        };
        match timeout(limit, connecting).await {
            Ok(Ok(mut ear)) => {
                let since = Instant::now();
                if let Err(error) = listen(wake, link, &mut ear, followed).await {
                    tracing::debug!(%error, "the connection for wake-ups failed; waiters poll until it is back");
                }
                wake.disconnected();
                if since.elapsed() > SETTLED {
                    failures = 0;
                }
            }
            Ok(Err(error)) => tracing::debug!(%error, "no connection for wake-ups; waiters poll"),
            Err(_) => tracing::debug!("no connection for wake-ups in time; waiters poll"),
        }
        failures += 1;
        tokio::select! {
            biased;
            () = closed(wake, &mut changes) => {}
            () = sleep(pause_after(failures)) => {}
        }
    }
}

async fn closed(wake: &Wake, changes: &mut watch::Receiver<()>) {
    while !wake.is_closed() {
        let _ = changes.changed().await;
    }
}

/// The server on which is listened: the one that the data goes to.
struct Followed {
    moved: watch::Receiver<Arc<str>>,
    at: Arc<str>,
}

fn is_elsewhere(data: &str, at: &str) -> bool {
    data != at && !data.is_empty()
}

impl Followed {
    async fn server(&mut self, link: &Link) -> Result<Client, StoreError> {
        match link.target() {
            Target::Fixed(client, _) => Ok(Client::clone(client)),
            Target::Watched(_) => {
                // A real round trip: nobody else may have noticed that the connection is gone.
                let _: redis::Value = link.command(&redis::cmd("PING")).await?;
                let connection = link.connection().await?;
                self.at = connection.at().clone();
                Ok(connection.client().clone())
            }
        }
    }

    /// Waits until the data goes elsewhere.
    async fn left_behind(&mut self) {
        // The sender lives as long as the link.
        let _ = self.moved.wait_for(|at| is_elsewhere(at, &self.at)).await;
    }

    /// Whether it does.
    fn is_left_behind(&self) -> bool {
        is_elsewhere(&self.moved.borrow(), &self.at)
    }
}

/// Listens on one connection until it fails, or until the data goes elsewhere.
async fn listen(wake: &Wake, link: &Link, ear: &mut Ear, mut followed: Followed) -> RedisResult<()> {
    let limit = link.options().call_timeout;
    let mut changes = wake.changes();
    let mut subscribed = BTreeSet::new();
    let mut looks = true;
    while !wake.is_closed() {
        let (add, remove) = if looks {
            changes.mark_unchanged();
            wake.differences(&subscribed)
        } else {
            (Vec::new(), Vec::new())
        };
        if !add.is_empty() {
            let commands = vec![command("SUBSCRIBE", &add)];
            let refused = in_time(limit, ear.subscribe(wake, &add, commands)).await?;
            // Without the right to subscribe nothing is pushed, and trying again and again would not help.
            match refused.first() {
                Some((_, error)) => warn_of_refusal(error),
                None => wake.confirm(&add, &followed.at),
            }
            subscribed.extend(add);
        }
        if !remove.is_empty() {
            let commands = vec![command("UNSUBSCRIBE", &remove)];
            in_time(limit, ear.unsubscribe(wake, &remove, commands)).await?;
            remove.iter().for_each(|name| {
                subscribed.remove(name);
            });
        }
        // Something may have been told while something else was asked.
        if wake.attention.looked() {
            looks = true;
            continue;
        }
        looks = tokio::select! {
            biased;
            said = ear.hear_some(wake) => {
                // Nothing was asked. Those who were told come first: most have what they waited for, and wait no longer.
                said?;
                yield_now().await;
                if followed.is_left_behind() {
                    return Ok(());
                }
                // However much is published, who is new is not kept waiting.
                wake.attention.looked() | changes.has_changed().unwrap_or(true)
            }
            _ = changes.changed() => true,
            () = followed.left_behind() => return Ok(()),
            () = sleep(HEARTBEAT) => {
                in_time(limit, ear.ping(wake)).await?;
                true
            }
        };
    }
    Ok(())
}

/// A command about these channels.
pub(super) fn command(word: &str, names: &[String]) -> Packed {
    let bytes = names.iter().map(|name| name.len() + 8).sum();
    names.iter().fold(Packed::command(1 + names.len(), bytes).word(word), |command, name| command.word(name))
}

/// The same with a limit, at which the connection counts as broken.
pub(super) async fn in_time<T>(
    limit: Duration,
    asked: impl Future<Output = RedisResult<T>>,
) -> RedisResult<T> {
    let late = |_| Err(std::io::Error::from(std::io::ErrorKind::TimedOut).into());
    timeout(limit, asked).await.unwrap_or_else(late)
}

/// The server refuses to push; the connection is good.
pub(super) fn warn_of_refusal(error: &RedisError) {
    tracing::warn!(%error, "Redis refuses to push wake-ups; waiters poll (see the rights of the user to channels)");
}
