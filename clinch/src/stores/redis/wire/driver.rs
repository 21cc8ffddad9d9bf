//! The task of a connection: it writes what is to go out, reads what comes, and tells the callers, also those whose time is
//! up. Who comes while nothing is under way sends in its place.

use std::collections::VecDeque;
use std::io;
use std::mem;
use std::pin::{Pin, pin};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use redis::{RedisError, RedisResult, Value};
use tokio::io::{AsyncRead as _, AsyncWrite as _, ReadBuf};
use tokio::sync::oneshot;
use tokio::task::unconstrained;
use tokio::time::{Instant, Sleep, sleep_until};

use super::packed::Answers;
use super::{Call, Calls, Doing, Inbox, KEPT, Line, Shared, Went, gone, reply};
use crate::stores::in_flight::{InFlight, Purpose};

/// How much is read at a time; answers that are longer make more room for themselves.
const CHUNK: usize = 16 * 1024;

/// A place that is waited for.
type Place = Pin<Box<dyn Future<Output = ()> + Send>>;

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

/// Calls that wait for a place.
#[derive(Default)]
struct Waiting {
    calls: Calls,
    /// How many have left that the inbox still counts.
    left: usize,
}

impl Waiting {
    fn first(&self) -> Option<&Call> {
        self.calls.list.front()
    }

    fn pop(&mut self) -> Option<(Call, &[u8])> {
        let first = self.calls.pop()?;
        self.left += 1;
        Some(first)
    }

    /// Drops those at the front whose callers are gone: they never go out.
    fn forget_gone(&mut self) {
        while self.first().is_some_and(|first| first.caller.is_closed()) {
            self.pop();
        }
    }
}

/// What the task has of a connection. It is locked while something is done with it, which waits for nothing.
pub(super) struct Driver {
    stream: Line,
    shared: Arc<Shared>,
    /// What is changed for what has come, so that nobody waits while that is looked at.
    empty: [Calls; 2],
    upkeep: Waiting,
    others: Waiting,
    /// Whose answers are due, in order. What is in `out` is among them.
    sent: VecDeque<Sent>,
    /// How many answers have come.
    answers: u64,
    /// What goes out, and how much of it has.
    out: Vec<u8>,
    written: usize,
    /// What was written may still lie in a buffer of the stream's.
    unflushed: bool,
    /// What has come: the part from `read` to `filled` is not understood yet.
    buffer: Vec<u8>,
    read: usize,
    filled: usize,
    /// When the first of those who wait is to be told that it is late, or earlier: it is set again only when it fires.
    timer: Option<Pin<Box<Sleep>>>,
    /// Waited for where all places are taken by calls over other connections.
    place: Option<Place>,
    /// Who is to be told what.
    tells: Vec<(oneshot::Sender<Went>, Went)>,
}

impl Driver {
    pub(super) fn new(stream: Line, shared: Arc<Shared>) -> Self {
        Self {
            stream,
            shared,
            empty: Default::default(),
            upkeep: Waiting::default(),
            others: Waiting::default(),
            sent: VecDeque::new(),
            answers: 0,
            out: Vec::new(),
            written: 0,
            unflushed: false,
            buffer: vec![0; CHUNK],
            read: 0,
            filled: 0,
            timer: None,
            place: None,
            tells: Vec::new(),
        }
    }

    /// Writes what there is, as far as the stream takes it.
    fn write(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.written < self.out.len() {
            let count = ready!(Pin::new(&mut self.stream).poll_write(cx, &self.out[self.written..]))?;
            if count == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.written += count;
            self.unflushed = true;
        }
        self.out.clear();
        if self.out.capacity() > KEPT {
            self.out = Vec::new();
        }
        self.written = 0;
        if self.unflushed {
            ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
            self.unflushed = false;
        }
        Poll::Ready(Ok(()))
    }

    /// Reads once, and understands what is whole. Whoever has his answer now has no place any more.
    fn read(&mut self, cx: &mut Context<'_>) -> Poll<RedisResult<()>> {
        if self.filled == self.buffer.len() {
            if self.read > 0 {
                self.buffer.copy_within(self.read..self.filled, 0);
                self.filled -= self.read;
                self.read = 0;
            } else {
                self.buffer.resize(2 * self.buffer.len(), 0);
            }
        }
        let mut space = ReadBuf::new(&mut self.buffer[self.filled..]);
        ready!(Pin::new(&mut self.stream).poll_read(cx, &mut space))?;
        let count = space.filled().len();
        if count == 0 {
            return Poll::Ready(Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()));
        }
        self.filled += count;
        let mut free = Free::default();
        let understood = loop {
            match reply::read(&self.buffer[self.read..self.filled]) {
                Ok(Some((answer, length))) => {
                    self.read += length;
                    self.answered(answer, &mut free);
                }
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        self.shared.answers.store(self.answers, Ordering::Release);
        free.give_back(&self.shared.in_flight);
        if self.read == self.filled {
            (self.read, self.filled) = (0, 0);
            if self.buffer.len() > KEPT {
                self.buffer = vec![0; CHUNK];
            }
        }
        Poll::Ready(understood)
    }

    /// An answer has come: the one who waits for it is to be told.
    fn answered(&mut self, answer: Value, free: &mut Free) {
        self.answers += 1;
        // An answer that nobody asked for is nobody's.
        let Some(first) = self.sent.front_mut() else { return };
        first.due = first.due.saturating_sub(1);
        let whole = match &mut first.come {
            Some(come) => {
                come.push(answer);
                None
            }
            None => Some(answer),
        };
        if first.due > 0 {
            return;
        }
        if let Some(Sent { come, caller: Some(caller), purpose, since, .. }) = self.sent.pop_front() {
            let answer = whole.unwrap_or_else(|| Value::Array(come.unwrap_or_default()));
            free.count(purpose);
            self.tells.push((caller, Went::Out(Ok(answer), since + self.shared.limit)));
        }
    }

    /// Those whose time is up are to be told.
    fn late(&mut self) {
        let (now, limit) = (Instant::now(), self.shared.limit);
        let over = |since: Instant| since + limit <= now;
        let mut free = Free::default();
        for sent in self.sent.iter_mut().take_while(|sent| over(sent.since)) {
            if let Some(caller) = sent.caller.take() {
                free.count(sent.purpose);
                self.tells.push((caller, Went::Late { silent: sent.before == self.answers }));
            }
        }
        free.give_back(&self.shared.in_flight);
        for waiting in [&mut self.upkeep, &mut self.others] {
            while waiting.first().is_some_and(|first| first.since.is_some_and(over)) {
                self.tells.extend(waiting.pop().map(|(first, _)| (first.caller, Went::Nowhere)));
            }
        }
    }

    /// Sets the timer for the first whose time will be up.
    fn set_timer(&mut self, cx: &mut Context<'_>) {
        let waiting = [self.upkeep.first(), self.others.first()].into_iter().flatten();
        let sent = self.sent.iter().find(|sent| sent.caller.is_some());
        let first = waiting.filter_map(|waiting| waiting.since).chain(sent.map(|sent| sent.since)).min();
        let due = first.map(|first| first + self.shared.limit);
        match (&mut self.timer, due) {
            (Some(timer), Some(due)) => timer.as_mut().reset(due),
            (timer, due) => *timer = due.map(|due| Box::pin(sleep_until(due))),
        }
        if let Some(timer) = &mut self.timer {
            // From now on it calls this task. That it may have fired already is seen in the next round.
            // Without a budget: this task may have used it up by reading, and then it would never be called.
            _ = pin!(unconstrained(timer.as_mut())).poll(cx);
        }
    }

    fn is_anybody_late(&self) -> bool {
        self.timer.as_ref().is_some_and(|timer| timer.is_elapsed())
    }

    /// Takes what has come, and puts out what has a place.
    fn take(&mut self) {
        let shared = self.shared.clone();
        let mut inbox = shared.inbox();
        inbox.doing = Doing::Something;
        let came = !inbox.is_empty();
        if came {
            let [upkeep, others] = &mut self.empty;
            mem::swap(upkeep, &mut inbox.upkeep.calls);
            mem::swap(others, &mut inbox.others.calls);
        }
        self.report(inbox);
        if came {
            let [upkeep, others] = &mut self.empty;
            self.upkeep.calls.append(upkeep);
            self.others.calls.append(others);
        }
        if self.upkeep.first().is_some() || self.others.first().is_some() {
            let now = Instant::now();
            self.admit(Purpose::Upkeep, now);
            self.admit(Purpose::Other, now);
        }
    }

    /// Sends what has come, in the place of the task, which does nothing now and is called by `cx`. Says whether it can go on
    /// doing so: what comes, and a stream that takes no more, call it.
    pub(super) fn send(&mut self, cx: &mut Context<'_>) -> bool {
        self.take();
        let broken = matches!(self.write(cx), Poll::Ready(Err(_)));
        // A timer is the task's to make: it needs the runtime.
        !broken && self.timer.is_some() && self.sleeps(cx)
    }

    /// Tells the inbox how many have left since it was told last, and lets in as many of those who wait for room.
    fn report(&mut self, mut inbox: MutexGuard<'_, Inbox>) {
        let left = [mem::take(&mut self.upkeep.left), mem::take(&mut self.others.left)];
        if left == [0, 0] {
            return;
        }
        inbox.upkeep.placeless = inbox.upkeep.placeless.saturating_sub(left[0]);
        inbox.others.placeless = inbox.others.placeless.saturating_sub(left[1]);
        if inbox.outside > 0 {
            drop(inbox);
            self.shared.room.notify_waiters();
        }
    }

    /// Sends what waits, as far as there are places. What is for upkeep goes first, so this is asked for it first.
    /// The limit of what stays counts from the first time that it did.
    fn admit(&mut self, purpose: Purpose, now: Instant) {
        let waiting = if purpose == Purpose::Upkeep { &mut self.upkeep } else { &mut self.others };
        waiting.forget_gone();
        let count = waiting.calls.list.len();
        if count == 0 {
            return;
        }
        let mut free = self.shared.in_flight.take_now(purpose, count);
        while free > 0
            && let Some((call, bytes)) = waiting.pop()
        {
            if call.caller.is_closed() {
                continue;
            }
            free -= 1;
            self.out.extend_from_slice(bytes);
            let (due, come) = match call.answers {
                Answers::One => (1, None),
                Answers::Several(due) => (due, Some(Vec::with_capacity(due))),
            };
            let (purpose, before) = (call.purpose, self.answers);
            self.sent.push_back(Sent { due, come, caller: Some(call.caller), purpose, since: now, before });
        }
        for stays in waiting.calls.list.iter_mut().rev().take_while(|stays| stays.since.is_none()) {
            stays.since = Some(now);
        }
        self.shared.in_flight.give_back(purpose, free);
    }

    /// Whether there is nothing to do but to wait. Whoever comes then calls this task.
    fn sleeps(&mut self, cx: &mut Context<'_>) -> bool {
        if self.is_anybody_late() {
            return false;
        }
        let waits = [&self.upkeep, &self.others].map(|waiting| waiting.first().is_some());
        // Nothing of ours is under way, so no answer of ours will free a place.
        if waits != [false, false] && !self.sent.iter().any(|sent| sent.caller.is_some()) {
            let in_flight = &self.shared.in_flight;
            let purpose = if waits[0] { Purpose::Upkeep } else { Purpose::Other };
            let place = self.place.get_or_insert_with(|| Box::pin(free(in_flight.clone(), purpose)));
            if place.as_mut().poll(cx).is_ready() {
                self.place = None;
                return false;
            }
        } else {
            self.place = None;
        }
        let shared = self.shared.clone();
        let mut inbox = shared.inbox();
        if !inbox.is_empty() {
            return false;
        }
        let nothing = self.sent.is_empty() && waits == [false, false];
        inbox.doing = if nothing { Doing::Nothing } else { Doing::Waiting };
        match &mut inbox.task {
            Some(task) => task.clone_from(cx.waker()),
            task => *task = Some(cx.waker().clone()),
        }
        self.report(inbox);
        true
    }

    /// Writes and reads as long as there is something to be written or read.
    fn round(&mut self, cx: &mut Context<'_>) -> Poll<RedisError> {
        let mut told = 0;
        loop {
            if self.is_anybody_late() {
                self.late();
                self.timer = None;
            }
            // What waits for places goes out before those are told who have given theirs back: the server has something to do while
            // they run.
            self.take();
            if self.timer.is_none() {
                self.set_timer(cx);
            }
            if let Poll::Ready(Err(error)) = self.write(cx) {
                return Poll::Ready(error.into());
            }
            told += self.tell();
            match self.read(cx) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(error)) => return Poll::Ready(error),
                // Those who have their answers now are likely to come again, and what they want goes out together.
                Poll::Pending if told > 1 => {
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                Poll::Pending if self.sleeps(cx) => return Poll::Pending,
                Poll::Pending => {}
            }
        }
    }
}

impl Driver {
    /// Tells what is to be told.
    fn tell(&mut self) -> usize {
        let count = self.tells.len();
        for (caller, went) in self.tells.drain(..) {
            // An error only says that the caller is gone.
            _ = caller.send(went);
        }
        count
    }

    /// Nothing goes out or comes in any more.
    fn close(&mut self, error: &RedisError) {
        let mut inbox = self.shared.inbox();
        inbox.closed = true;
        inbox.task = None;
        let (upkeep, others) = (mem::take(&mut inbox.upkeep.calls), mem::take(&mut inbox.others.calls));
        drop(inbox);
        let mut free = Free::default();
        for sent in self.sent.drain(..) {
            if let Some(caller) = sent.caller {
                free.count(sent.purpose);
                self.tells.push((caller, Went::Out(Err(error.clone()), Instant::now())));
            }
        }
        free.give_back(&self.shared.in_flight);
        let waiting = [mem::take(&mut self.upkeep.calls), mem::take(&mut self.others.calls), upkeep, others];
        for call in waiting.into_iter().flat_map(|calls| calls.list) {
            self.tells.push((call.caller, Went::Out(Err(error.clone()), Instant::now())));
        }
        self.tell();
        self.shared.room.notify_waiters();
        self.stream = Box::new(tokio::io::empty());
    }
}

/// Places that are free again.
#[derive(Default)]
struct Free {
    upkeep: usize,
    others: usize,
}

impl Free {
    const fn count(&mut self, purpose: Purpose) {
        match purpose {
            Purpose::Upkeep => self.upkeep += 1,
            Purpose::Grant | Purpose::Other => self.others += 1,
        }
    }

    fn give_back(&self, in_flight: &InFlight) {
        in_flight.give_back(Purpose::Upkeep, self.upkeep);
        in_flight.give_back(Purpose::Other, self.others);
    }
}

/// The task, as long as its runtime lets it live.
pub(super) struct Driving(pub(super) Arc<Mutex<Driver>>);

impl Driving {
    fn driver(&self) -> MutexGuard<'_, Driver> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Future for Driving {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut driver = self.driver();
        let error = ready!(driver.round(cx));
        driver.close(&error);
        Poll::Ready(())
    }
}

impl Drop for Driving {
    /// Its runtime may end before the connection does.
    fn drop(&mut self) {
        self.driver().close(&gone());
    }
}

/// Waits until there is a place.
async fn free(in_flight: Arc<InFlight>, purpose: Purpose) {
    drop(in_flight.place(purpose).await);
}
