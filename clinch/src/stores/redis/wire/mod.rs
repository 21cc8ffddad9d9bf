//! One connection to a server, shared by all callers: commands go out in the order in which they came, answers come back in
//! the same order, and what comes while others are being answered goes out together.
//!
//! It promises that every call ends within its limit, answered or not; that no more calls are in flight than there are
//! places, and that those who wait for one are bounded too, renewals and releases first; that a call whose caller is gone
//! before there was a place for it never goes out; and that an answer is never taken for another call's: whoever gave up
//! waiting keeps his turn in the order.
//!
//! The client library's own connection does the same with a channel, a task, two timers and a general parser; here a call
//! is its bytes in a buffer and a place in a line, with one timer for all of them (`docs/benchmarks.md` has what it gains).
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
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Duration;

use redis::{RedisError, RedisResult, Value};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Notify, oneshot};
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout_at};

pub(super) use self::dial::{Line, ask, dial};
use self::driver::Driver;
use self::packed::Answers;
pub(super) use self::packed::Packed;
pub(super) use self::push::{Push, read as read_push};
use crate::stores::in_flight::{InFlight, Purpose};

/// How many calls wait for a place, at most. Who comes then waits for room.
const ROOM: usize = 1024;

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
struct Waiting {
    commands: Packed,
    caller: oneshot::Sender<Went>,
    since: Instant,
}

/// A call whose answer is due.
struct Sent {
    /// How many are missing.
    due: usize,
    /// Those that have come, where there are several.
    come: Option<Vec<Value>>,
    /// Nobody, if he was told that it is late.
    caller: Option<oneshot::Sender<Went>>,
    purpose: Purpose,
    since: Instant,
    /// How many answers had come when it went out.
    before: u64,
}

#[derive(Default)]
struct Queue {
    /// What goes out next.
    out: Vec<u8>,
    /// Whose answers are due, in order. What is in `out` is among them.
    sent: VecDeque<Sent>,
    upkeep: VecDeque<Waiting>,
    others: VecDeque<Waiting>,
    /// How many wait for room in those two.
    outside: usize,
    /// How many answers have come.
    answers: u64,
    /// The task that sends, while it has nothing to do.
    idle: Option<Waker>,
    /// Nothing is sent any more.
    closed: bool,
}

impl Queue {
    fn waiting(&mut self, purpose: Purpose) -> &mut VecDeque<Waiting> {
        if purpose == Purpose::Upkeep { &mut self.upkeep } else { &mut self.others }
    }

    /// Nobody waits for a place.
    fn is_passable(&self) -> bool {
        self.upkeep.is_empty() && self.others.is_empty()
    }

    fn send(&mut self, purpose: Purpose, commands: &Packed, since: Instant, caller: oneshot::Sender<Went>) {
        self.out.extend_from_slice(&commands.bytes);
        let (due, come) = match commands.answers {
            Answers::One => (1, None),
            Answers::Several(due) => (due, Some(Vec::with_capacity(due))),
        };
        let before = self.answers;
        self.sent.push_back(Sent { due, come, caller: Some(caller), purpose, since, before });
    }
}

struct Shared {
    queue: Mutex<Queue>,
    room: Notify,
    in_flight: Arc<InFlight>,
    /// The time limit of a call.
    limit: Duration,
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends what waits, as far as there are places.
    fn admit(&self, queue: &mut Queue, now: Instant) {
        for purpose in [Purpose::Upkeep, Purpose::Other] {
            while let Some(first) = queue.waiting(purpose).front() {
                // Its caller is gone: it never goes out.
                let gone = first.caller.is_closed();
                if !gone && !self.in_flight.take_now(purpose) {
                    break;
                }
                let Some(waiting) = queue.waiting(purpose).pop_front() else { break };
                if queue.outside > 0 {
                    self.room.notify_one();
                }
                if !gone {
                    queue.send(purpose, &waiting.commands, now, waiting.caller);
                }
            }
        }
    }
}

/// The connection, until it is dropped.
pub(super) struct Wire {
    shared: Arc<Shared>,
    driver: AbortHandle,
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl Wire {
    /// Over this stream, by the runtime that this is called on. `limit`: the time limit of a call.
    pub(super) fn over<S>(stream: S, in_flight: Arc<InFlight>, limit: Duration) -> Self
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let shared = Arc::new(Shared { queue: Mutex::default(), room: Notify::new(), in_flight, limit });
        let driver = tokio::spawn(Driver::new(stream, shared.clone())).abort_handle();
        Self { shared, driver }
    }

    /// How many answers have come.
    pub(super) fn answers(&self) -> u64 {
        self.shared.queue().answers
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

    /// Joins those whose answers are due, or those who wait for a place, if there is room.
    fn enter(&self, purpose: Purpose, commands: Packed) -> Result<oneshot::Receiver<Went>, Packed> {
        let (caller, answer) = oneshot::channel();
        let now = Instant::now();
        let mut queue = self.shared.queue();
        if queue.closed {
            // The answer says so.
            return Ok(answer);
        }
        let waiting = queue.waiting(purpose);
        // Nobody who waits is overtaken by his like.
        if waiting.is_empty() && self.shared.in_flight.take_now(purpose) {
            queue.send(purpose, &commands, now, caller);
        } else if waiting.len() < ROOM {
            waiting.push_back(Waiting { commands, caller, since: now });
        } else {
            return Err(commands);
        }
        let idle = queue.idle.take();
        drop(queue);
        if let Some(driver) = idle {
            driver.wake();
        }
        Ok(answer)
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
        shared.queue().outside += 1;
        Self(shared)
    }
}

impl Drop for Outside<'_> {
    fn drop(&mut self) {
        self.0.queue().outside -= 1;
    }
}
