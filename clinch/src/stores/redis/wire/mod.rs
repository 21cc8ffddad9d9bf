//! One connection to a server, shared by all callers: commands go out in the order in which they came, answers come back in
//! the same order, and what comes while others are being answered goes out together.
//!
//! It promises that every call ends within its limit, answered or not; that no more calls are in flight than there are
//! places, and that those who wait for one are bounded too, renewals and releases first; that a call whose caller is gone
//! before there was a place for it never goes out; and that an answer is never taken for another call's: whoever gave up
//! waiting keeps his turn in the order. Who finds the connection at rest sends himself, without waking anybody for it.
//!
//! The client library's own connection does the same with a channel, a task, two timers and a general parser; here a call
//! is its bytes in a box that the task empties, and then a place in a line that only the task knows, with one timer for all
//! of them (`docs/benchmarks.md` has what it gains).
//! The library still makes the commands and gives errors their meaning.

mod dial;
mod driver;
mod packed;
mod push;
mod reply;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::io;
use std::mem;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Waker};
use std::time::Duration;

use redis::{RedisError, RedisResult, Value};
use tokio::sync::{Notify, oneshot};
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout_at};

pub(super) use self::dial::{Line, ask, dial};
use self::driver::{Driver, Driving};
use self::packed::Answers;
pub(super) use self::packed::Packed;
pub(super) use self::push::{Push, read as read_push};
use crate::stores::in_flight::{InFlight, Purpose};

/// How many calls wait for a place, at most. Who comes then waits for room.
const ROOM: usize = 1024;

/// Buffers that have grown beyond this are given up when they are empty.
const KEPT: usize = 64 * 1024;

/// What became of a call.
#[derive(Debug)]
pub(super) enum Went {
    /// It was answered, or the connection broke. Its time would have been up then.
    Out(RedisResult<Value>, Instant),
    /// No answer came in time. `silent`: nor to anybody else.
    Late { silent: bool },
    /// There was no place for it in time.
    Nowhere,
}

/// A call that goes out as soon as there is a place for it.
struct Call {
    /// How many bytes it takes.
    length: usize,
    answers: Answers,
    purpose: Purpose,
    caller: oneshot::Sender<Went>,
    /// From when on its limit counts, where there was no place for it at once. The task that sends says so: one look at the clock
    /// is enough for all that come together.
    since: Option<Instant>,
}

/// Calls in the order in which they came, with their bytes one behind the other. What a caller packed stays his: memory that
/// one thread takes and another gives back costs both.
#[derive(Default)]
struct Calls {
    list: VecDeque<Call>,
    bytes: Vec<u8>,
    /// Where those of the first call begin.
    at: usize,
}

impl Calls {
    fn push(&mut self, call: Call, bytes: &[u8]) {
        self.list.push_back(call);
        self.bytes.extend_from_slice(bytes);
    }

    /// The first call, with its bytes.
    fn pop(&mut self) -> Option<(Call, &[u8])> {
        if self.list.is_empty() {
            self.bytes.clear();
            self.at = 0;
        }
        let first = self.list.pop_front()?;
        let begin = self.at;
        self.at += first.length;
        Some((first, &self.bytes[begin..self.at]))
    }

    /// Moves all of the others behind these.
    fn append(&mut self, others: &mut Self) {
        if self.list.is_empty() {
            mem::swap(self, others);
        } else {
            // What is done is not carried along.
            self.bytes.drain(..mem::take(&mut self.at));
            self.bytes.extend_from_slice(&others.bytes[others.at..]);
            self.list.append(&mut others.list);
        }
        others.clear();
    }

    fn clear(&mut self) {
        self.list.clear();
        self.at = 0;
        self.bytes.clear();
        self.bytes.shrink_to(KEPT);
    }
}

/// Those of one kind that have come in.
#[derive(Default)]
struct Come {
    calls: Calls,
    /// How many have no place yet, those that the task has taken from here included.
    placeless: usize,
}

/// Where calls come in. All that callers and the task share is this, so that they hardly ever meet: it is locked for as long
/// as it takes to put a call down, or to take all of them.
#[derive(Default)]
struct Inbox {
    upkeep: Come,
    others: Come,
    /// How many wait for room.
    outside: usize,
    /// The task that sends, and what it does.
    task: Option<Waker>,
    doing: Doing,
    /// Nothing is sent any more.
    closed: bool,
}

/// What the task of a connection does.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Doing {
    /// It will look at what has come before it waits.
    #[default]
    Something,
    /// It waits for answers or places, and is to be called.
    Waiting,
    /// There is nothing that it waits for, but to be called.
    Nothing,
}

impl Inbox {
    /// Nothing has come.
    fn is_empty(&self) -> bool {
        self.upkeep.calls.list.is_empty() && self.others.calls.list.is_empty()
    }
}

struct Shared {
    inbox: Mutex<Inbox>,
    room: Notify,
    /// How many answers have come.
    answers: AtomicU64,
    in_flight: Arc<InFlight>,
    /// The time limit of a call.
    limit: Duration,
}

impl Shared {
    fn inbox(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The connection, until it is dropped.
pub(super) struct Wire {
    shared: Arc<Shared>,
    driver: Arc<Mutex<Driver>>,
    task: AbortHandle,
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Wire {
    /// Over this stream, by the runtime that this is called on. `limit`: the time limit of a call.
    pub(super) fn over(stream: Line, in_flight: Arc<InFlight>, limit: Duration) -> Self {
        let shared = Arc::new(Shared {
            inbox: Mutex::default(),
            room: Notify::new(),
            answers: AtomicU64::new(0),
            in_flight,
            limit,
        });
        let driver = Arc::new(Mutex::new(Driver::new(stream, shared.clone())));
        let task = tokio::spawn(Driving(driver.clone())).abort_handle();
        Self { shared, driver, task }
    }

    /// How many answers have come.
    pub(super) fn answers(&self) -> u64 {
        self.shared.answers.load(Ordering::Acquire)
    }

    /// Sends commands, as soon as there is a place for them.
    ///
    /// # Cancel safety
    /// What had no place before the future is dropped never goes out; the rest does, and its answer is nobody's.
    pub(super) async fn call(&self, purpose: Purpose, commands: Packed) -> Went {
        let answer = match self.enter(purpose, commands) {
            Ok(answer) => answer,
            Err(commands) => match Box::pin(self.when_there_is_room(purpose, commands)).await {
                Some(answer) => answer,
                None => return Went::Nowhere,
            },
        };
        // Whoever sends is gone, and with it the connection.
        answer.await.unwrap_or_else(|_| Went::Out(Err(gone()), Instant::now()))
    }

    /// Puts the call down, if there is room.
    fn enter(&self, purpose: Purpose, commands: Packed) -> Result<oneshot::Receiver<Went>, Packed> {
        let (caller, answer) = oneshot::channel();
        let mut inbox = self.shared.inbox();
        if inbox.closed {
            // The answer says so.
            return Ok(answer);
        }
        let come = if purpose == Purpose::Upkeep { &mut inbox.upkeep } else { &mut inbox.others };
        if come.placeless >= ROOM {
            return Err(commands);
        }
        come.placeless += 1;
        let Packed { bytes, answers } = &commands;
        come.calls.push(Call { length: bytes.len(), answers: *answers, purpose, caller, since: None }, bytes);
        let doing = mem::take(&mut inbox.doing);
        let task = if doing == Doing::Something { None } else { inbox.task.clone() };
        drop(inbox);
        if let Some(task) = task
            && !(doing == Doing::Nothing && self.send(&task))
        {
            task.wake();
        }
        Ok(answer)
    }

    /// Sends what was put down, in the place of the task, and says whether that need not be called any more. It does nothing,
    /// so nothing is gained by its being woken first, mostly on another thread.
    fn send(&self, task: &Waker) -> bool {
        self.driver.try_lock().is_ok_and(|mut driver| driver.send(&mut Context::from_waker(task)))
    }

    /// Waits for room, at most for the limit.
    async fn when_there_is_room(
        &self,
        purpose: Purpose,
        mut commands: Packed,
    ) -> Option<oneshot::Receiver<Went>> {
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
}

/// What a call is told whose connection is no more.
fn gone() -> RedisError {
    io::Error::from(io::ErrorKind::BrokenPipe).into()
}

/// One who waits for room.
struct Outside<'a>(&'a Shared);

impl<'a> Outside<'a> {
    fn new(shared: &'a Shared) -> Self {
        shared.inbox().outside += 1;
        Self(shared)
    }
}

impl Drop for Outside<'_> {
    fn drop(&mut self) {
        self.0.inbox().outside -= 1;
    }
}
