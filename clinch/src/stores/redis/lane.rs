//! Calls that come while others are on their way over a connection go out together: one exchange for many of them.
//!
//! A task of the connection's own sends them, so it matters to nobody whether another's future is polled or dropped. What
//! was given to it goes out in the order in which it came, renewals and releases first; a call whose caller is gone before
//! it went out never does. No more commands are under way than there are places, and what waits for one is bounded.

use std::collections::VecDeque;
use std::io;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use redis::aio::MultiplexedConnection;
use redis::{Cmd, Pipeline, RedisError, RedisResult, Value};
use tokio::select;
use tokio::sync::{Notify, oneshot};
use tokio::task::{AbortHandle, yield_now};
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::stores::in_flight::{InFlight, Place, Purpose};

/// How many calls go out by themselves at a time: as long as there are few, that is the shortest way.
const BY_THEMSELVES: usize = 8;
/// How many exchanges are under way at a time: the server works on one while the answers of another
/// are read.
const EXCHANGES: usize = 4;
/// How many calls wait to go out, at most. Who comes then waits for room.
const ROOM: usize = 1024;

/// What became of a call.
#[derive(Debug)]
pub(super) enum Went {
    /// It was answered, or the connection broke. Its time would have been up then.
    Out(RedisResult<Value>, Instant),
    /// No answer came in time. `silent`: nor to anybody else.
    Late { silent: bool },
    /// It did not go out in time.
    Nowhere,
}

type Answer = oneshot::Receiver<Went>;

/// What is sent for one caller.
#[derive(Debug)]
pub(super) enum Commands {
    One(Cmd),
    /// One behind the other; the answer is an array.
    Several(Vec<Cmd>),
}

#[derive(Debug)]
struct Waiting {
    commands: Commands,
    caller: oneshot::Sender<Went>,
    since: Instant,
}

#[derive(Debug, Default)]
struct Gathered {
    upkeep: VecDeque<Waiting>,
    others: VecDeque<Waiting>,
    /// Calls that went out by themselves and are not answered yet.
    by_themselves: usize,
    /// Something waits, or is under way together.
    busy: bool,
    /// Nothing is sent together any more.
    closed: bool,
    /// How many wait for room.
    outside: usize,
}

impl Gathered {
    fn queue(&mut self, purpose: Purpose) -> &mut VecDeque<Waiting> {
        if purpose == Purpose::Upkeep { &mut self.upkeep } else { &mut self.others }
    }

    fn len(&self) -> usize {
        self.upkeep.len() + self.others.len()
    }
}

struct Shared {
    gathered: Mutex<Gathered>,
    more: Notify,
    room: Notify,
    in_flight: Arc<InFlight>,
    /// The time limit of a call.
    limit: Duration,
    /// How many answers have come.
    answers: AtomicU64,
}

impl Shared {
    fn gathered(&self) -> MutexGuard<'_, Gathered> {
        self.gathered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many calls go out together at most, so that all places are taken when all exchanges are under way.
    fn most(&self) -> usize {
        self.in_flight.most().div_ceil(EXCHANGES)
    }

    /// As many of those that wait as there are places for, and for one more that has been waited for.
    fn take(&self, mut waited: Option<(Purpose, Place)>) -> Option<Batch> {
        let mut gathered = self.gathered();
        let mut batch = Batch::default();
        for purpose in [Purpose::Upkeep, Purpose::Other] {
            let queue = gathered.queue(purpose);
            let wanted = queue.len().min(self.most().saturating_sub(batch.callers.len()));
            let (more, mut free) = self.in_flight.places_now(purpose, wanted).unzip();
            batch.places.extend(more);
            if let Some((_, place)) = waited.take_if(|(of, _)| *of == purpose) {
                batch.places.push(place);
                free = Some(free.unwrap_or(0) + 1);
            }
            for waiting in queue.drain(..free.unwrap_or(0).min(queue.len())) {
                batch.add(waiting);
            }
        }
        let freed = batch.callers.len().min(gathered.outside);
        drop(gathered);
        (0..freed).for_each(|_| self.room.notify_one());
        Some(batch).filter(|batch| !batch.callers.is_empty())
    }

    /// Tells those who have waited too long, and returns what the first of the others waits for, and until when; `None`, if
    /// nobody waits. `idle`: nothing is under way.
    fn left(&self, idle: bool) -> Option<(Purpose, Instant)> {
        let mut gathered = self.gathered();
        if gathered.len() == 0 {
            gathered.busy &= !idle;
            return None;
        }
        let now = Instant::now();
        let mut first = None;
        for purpose in [Purpose::Other, Purpose::Upkeep] {
            let queue = gathered.queue(purpose);
            let over = |waiting: &Waiting| waiting.since + self.limit <= now || waiting.caller.is_closed();
            while queue.front().is_some_and(over) {
                _ = queue.pop_front().map(|waiting| waiting.caller.send(Went::Nowhere));
            }
            let until = queue.front().map(|waiting| waiting.since + self.limit);
            first = match (until, first) {
                (Some(until), Some((_, other))) => Some((purpose, until.min(other))),
                (Some(until), None) => Some((purpose, until)),
                (None, first) => first,
            };
        }
        gathered.busy &= !(idle && first.is_none());
        first
    }
}

/// What goes out together.
#[derive(Default)]
struct Batch {
    pipeline: Pipeline,
    /// How many answers make an array for each, where it sent several.
    callers: Vec<(Option<usize>, oneshot::Sender<Went>)>,
    places: Vec<Place>,
}

impl Batch {
    fn add(&mut self, waiting: Waiting) {
        if waiting.caller.is_closed() {
            return;
        }
        let several = match waiting.commands {
            Commands::One(command) => {
                self.pipeline.add_command(command);
                None
            }
            Commands::Several(commands) => {
                let before = self.pipeline.len();
                for command in commands {
                    self.pipeline.add_command(command);
                }
                Some(self.pipeline.len() - before)
            }
        };
        self.callers.push((several, waiting.caller));
    }

    async fn deliver(self, shared: &Shared, mut redis: MultiplexedConnection) {
        let Self { pipeline, callers, places } = self;
        let (by, before) = (Instant::now() + shared.limit, shared.answers.load(Ordering::Acquire));
        let exchange = timeout_at(by, redis.send_packed_commands(&pipeline, 0, pipeline.len())).await;
        drop(places);
        match exchange {
            Ok(Ok(answers)) => {
                let mut answers = answers.into_iter();
                for (several, caller) in callers {
                    let answer = match several {
                        Some(count) => Value::Array(answers.by_ref().take(count).collect()),
                        None => answers.next().unwrap_or(Value::Nil),
                    };
                    _ = caller.send(Went::Out(Ok(answer), by));
                }
            }
            Ok(Err(error)) => callers.into_iter().for_each(|(_, caller)| {
                _ = caller.send(Went::Out(Err(error.clone()), by));
            }),
            Err(_) => {
                let silent = shared.answers.load(Ordering::Acquire) == before;
                callers.into_iter().for_each(|(_, caller)| {
                    _ = caller.send(Went::Late { silent });
                });
            }
        }
    }
}

/// Sends what was gathered, as long as the connection lives.
async fn courier(shared: Arc<Shared>, redis: MultiplexedConnection) {
    let closes = Closes(shared.clone());
    let shared = &*closes.0;
    let mut under_way = FuturesUnordered::new();
    let mut waited = None;
    loop {
        while under_way.len() < EXCHANGES
            && let Some(batch) = shared.take(waited.take())
        {
            under_way.push(batch.deliver(shared, redis.clone()));
        }
        let left = shared.left(under_way.is_empty());
        let idle = under_way.is_empty();
        select! {
            biased;
            _ = under_way.next(), if !idle => {}
            () = shared.more.notified(), if under_way.len() < EXCHANGES => {}
            place = place(shared, left), if idle && left.is_some() => waited = place,
            () = until(left), if left.is_some() => {}
        }
        if shared.gathered().len() < shared.most() {
            // Those who have their answers now are likely to come again.
            yield_now().await;
        }
    }
}

async fn place(shared: &Shared, left: Option<(Purpose, Instant)>) -> Option<(Purpose, Place)> {
    let (purpose, _) = left?;
    Some((purpose, shared.in_flight.place(purpose).await))
}

async fn until(left: Option<(Purpose, Instant)>) {
    if let Some((_, until)) = left {
        sleep_until(until).await;
    }
}

/// Its runtime may end before the connection does.
struct Closes(Arc<Shared>);

impl Drop for Closes {
    fn drop(&mut self) {
        let mut gathered = self.0.gathered();
        gathered.closed = true;
        gathered.upkeep.clear();
        gathered.others.clear();
        drop(gathered);
        self.0.room.notify_waiters();
    }
}

/// A call that goes out by itself, until it is over.
pub(super) struct ByItself<'a> {
    shared: &'a Shared,
    _place: Place,
}

impl Drop for ByItself<'_> {
    fn drop(&mut self) {
        self.shared.gathered().by_themselves -= 1;
    }
}

/// The way over one connection.
pub(super) struct Lane {
    shared: Arc<Shared>,
    courier: AbortHandle,
}

impl Drop for Lane {
    fn drop(&mut self) {
        self.courier.abort();
    }
}

impl Lane {
    /// To be made on the runtime that drives the connection. `limit`: the time limit of a call.
    pub(super) fn new(redis: MultiplexedConnection, in_flight: Arc<InFlight>, limit: Duration) -> Self {
        let shared = Arc::new(Shared {
            gathered: Mutex::default(),
            more: Notify::new(),
            room: Notify::new(),
            in_flight,
            limit,
            answers: AtomicU64::new(0),
        });
        let courier = tokio::spawn(courier(shared.clone(), redis)).abort_handle();
        Self { shared, courier }
    }

    pub(super) fn answered(&self) {
        self.shared.answers.fetch_add(1, Ordering::AcqRel);
    }

    /// How many answers have come.
    pub(super) fn answers(&self) -> u64 {
        self.shared.answers.load(Ordering::Acquire)
    }

    /// Whether a call goes out by itself: few others do, none waits that it might overtake, and there is a place for it.
    pub(super) fn by_itself(&self, purpose: Purpose) -> Option<ByItself<'_>> {
        let mut gathered = self.shared.gathered();
        if gathered.closed || gathered.busy || gathered.by_themselves >= BY_THEMSELVES {
            return None;
        }
        let place = self.shared.in_flight.place_now(purpose)?;
        gathered.by_themselves += 1;
        Some(ByItself { shared: &self.shared, _place: place })
    }

    /// Sends commands together with those of others.
    ///
    /// # Cancel safety
    /// What did not go out before the future is dropped never does.
    pub(super) async fn together(&self, purpose: Purpose, commands: Commands) -> Went {
        let answer = match self.enter(purpose, commands) {
            Ok(answer) => answer,
            Err(commands) => match Box::pin(self.when_there_is_room(purpose, commands)).await {
                Some(answer) => answer,
                None => return Went::Nowhere,
            },
        };
        let broke = || Err(RedisError::from(io::Error::from(io::ErrorKind::BrokenPipe)));
        // Whoever sends is gone, and with it the connection.
        answer.await.unwrap_or_else(|_| Went::Out(broke(), Instant::now()))
    }

    /// Waits for room, at most for the limit.
    async fn when_there_is_room(&self, purpose: Purpose, mut commands: Commands) -> Option<Answer> {
        let by = Instant::now() + self.shared.limit;
        let _outside = Outside::new(&self.shared);
        loop {
            let mut room = pin!(self.shared.room.notified());
            room.as_mut().enable();
            commands = match self.enter(purpose, commands) {
                Ok(answer) => return Some(answer),
                Err(commands) => commands,
            };
            timeout_at(by, room).await.ok()?;
        }
    }

    /// Joins those who wait to go out, if there is room.
    fn enter(&self, purpose: Purpose, commands: Commands) -> Result<Answer, Commands> {
        let (caller, answer) = oneshot::channel();
        let mut gathered = self.shared.gathered();
        if gathered.closed {
            // The answer says so.
            return Ok(answer);
        }
        let queue = gathered.queue(purpose);
        let before = queue.len();
        if before >= ROOM {
            return Err(commands);
        }
        queue.push_back(Waiting { commands, caller, since: Instant::now() });
        gathered.busy = true;
        drop(gathered);
        if before == 0 {
            self.shared.more.notify_one();
        }
        Ok(answer)
    }
}

/// One who waits for room.
struct Outside<'a>(&'a Shared);

impl<'a> Outside<'a> {
    fn new(shared: &'a Shared) -> Self {
        shared.gathered().outside += 1;
        Self(shared)
    }
}

impl Drop for Outside<'_> {
    fn drop(&mut self) {
        self.0.gathered().outside -= 1;
    }
}
