//! The task of a connection: it writes what is to go out, reads what comes, and tells the callers, also those whose time is
//! up.

use std::io;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use redis::{RedisError, RedisResult, Value};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::oneshot;
use tokio::time::{Instant, Sleep, sleep_until};

use super::{Queue, Sent, Shared, Went, gone, reply};
use crate::stores::in_flight::{InFlight, Purpose};

/// How much is read at a time; answers that are longer make more room for themselves.
const CHUNK: usize = 16 * 1024;
/// Buffers that have grown beyond this are given up when they are empty.
const KEPT: usize = 4 * CHUNK;

/// A place that is waited for.
type Place = Pin<Box<dyn Future<Output = ()> + Send>>;

pub(super) struct Driver<S> {
    stream: S,
    shared: Arc<Shared>,
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
    answers: Vec<Value>,
    told: Vec<(oneshot::Sender<Went>, Went)>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Driver<S> {
    pub(super) fn new(stream: S, shared: Arc<Shared>) -> Self {
        Self {
            stream,
            shared,
            out: Vec::new(),
            written: 0,
            unflushed: false,
            buffer: vec![0; CHUNK],
            read: 0,
            filled: 0,
            timer: None,
            place: None,
            answers: Vec::new(),
            told: Vec::new(),
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

    /// Reads once, and understands what is whole.
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
        while let Some((answer, length)) = reply::read(&self.buffer[self.read..self.filled])? {
            self.read += length;
            self.answers.push(answer);
        }
        if self.read == self.filled {
            (self.read, self.filled) = (0, 0);
            if self.buffer.len() > KEPT {
                self.buffer = vec![0; CHUNK];
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Gives the answers to those who wait for them; says how many have all of theirs.
    fn deliver(&mut self) -> usize {
        let mut queue = self.shared.queue();
        for answer in self.answers.drain(..) {
            queue.answers += 1;
            // An answer that nobody asked for is nobody's.
            let Some(first) = queue.sent.front_mut() else { continue };
            first.due = first.due.saturating_sub(1);
            let whole = match &mut first.come {
                Some(come) => {
                    come.push(answer);
                    None
                }
                None => Some(answer),
            };
            if first.due == 0
                && let Some(Sent { come, caller: Some(caller), purpose, since, .. }) = queue.sent.pop_front()
            {
                self.shared.in_flight.give_back(purpose);
                let answer = whole.unwrap_or_else(|| Value::Array(come.unwrap_or_default()));
                self.told.push((caller, Went::Out(Ok(answer), since + self.shared.limit)));
            }
        }
        drop(queue);
        self.tell()
    }

    /// Tells what is to be told.
    fn tell(&mut self) -> usize {
        let count = self.told.len();
        for (caller, went) in self.told.drain(..) {
            // An error only says that the caller is gone.
            _ = caller.send(went);
        }
        count
    }

    /// Tells those whose time is up.
    fn late(&mut self) {
        let (now, limit) = (Instant::now(), self.shared.limit);
        let mut queue = self.shared.queue();
        let Queue { sent, upkeep, others, answers, .. } = &mut *queue;
        let over = |since: Instant| since + limit <= now;
        for sent in sent.iter_mut().take_while(|sent| over(sent.since)) {
            if let Some(caller) = sent.caller.take() {
                self.shared.in_flight.give_back(sent.purpose);
                self.told.push((caller, Went::Late { silent: sent.before == *answers }));
            }
        }
        for waiting in [upkeep, others] {
            while waiting.front().is_some_and(|first| over(first.since)) {
                self.told.extend(waiting.pop_front().map(|first| (first.caller, Went::Nowhere)));
            }
        }
        drop(queue);
        self.tell();
    }

    /// Sets the timer for the first whose time will be up.
    fn set_timer(&mut self, queue: &Queue, cx: &mut Context<'_>) {
        let waiting = [queue.upkeep.front(), queue.others.front()].into_iter().flatten();
        let sent = queue.sent.iter().find(|sent| sent.caller.is_some());
        let first = waiting.map(|waiting| waiting.since).chain(sent.map(|sent| sent.since)).min();
        let due = first.map(|first| first + self.shared.limit);
        match (&mut self.timer, due) {
            (Some(timer), Some(due)) => timer.as_mut().reset(due),
            (timer, due) => *timer = due.map(|due| Box::pin(sleep_until(due))),
        }
        if let Some(timer) = &mut self.timer {
            // From now on it calls this task. That it may have fired already is seen in the next round.
            _ = timer.as_mut().poll(cx);
        }
    }

    /// Takes what is to go out next.
    fn take(&mut self, cx: &mut Context<'_>) {
        if self.timer.as_ref().is_some_and(|timer| timer.is_elapsed()) {
            self.late();
            self.timer = None;
        }
        let shared = self.shared.clone();
        let mut queue = shared.queue();
        queue.idle = None;
        if !queue.is_passable() {
            shared.admit(&mut queue, Instant::now());
        }
        if self.out.is_empty() {
            mem::swap(&mut self.out, &mut queue.out);
        }
        if self.timer.is_none() {
            self.set_timer(&queue, cx);
        }
    }

    /// Whether there is nothing to do but to wait. Whoever comes then calls this task.
    fn sleeps(&mut self, cx: &mut Context<'_>) -> bool {
        let mut queue = self.shared.queue();
        if !queue.out.is_empty() && self.out.is_empty() {
            return false;
        }
        let purpose = if queue.upkeep.is_empty() { Purpose::Other } else { Purpose::Upkeep };
        // Nothing of ours is under way, so no answer of ours will free a place.
        let wants_place = queue.sent.is_empty() && !queue.is_passable();
        if wants_place {
            let in_flight = &self.shared.in_flight;
            let place = self.place.get_or_insert_with(|| Box::pin(free(in_flight.clone(), purpose)));
            if place.as_mut().poll(cx).is_ready() {
                self.place = None;
                return false;
            }
        } else {
            self.place = None;
        }
        queue.idle = Some(cx.waker().clone());
        true
    }

    /// Writes and reads as long as there is something to be written or read.
    fn round(&mut self, cx: &mut Context<'_>) -> Poll<RedisError> {
        let mut told = 0;
        loop {
            self.take(cx);
            if let Poll::Ready(Err(error)) = self.write(cx) {
                return Poll::Ready(error.into());
            }
            match self.read(cx) {
                Poll::Ready(Ok(())) => told += self.deliver(),
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

impl<S> Driver<S> {
    /// Nothing goes out or comes in any more.
    fn close(&mut self, error: &RedisError) {
        let mut queue = self.shared.queue();
        queue.closed = true;
        queue.idle = None;
        let waiting = mem::take(&mut queue.upkeep).into_iter().chain(mem::take(&mut queue.others));
        let sent = mem::take(&mut queue.sent);
        drop(queue);
        let sent = sent.into_iter().filter_map(|sent| {
            let caller = sent.caller?;
            self.shared.in_flight.give_back(sent.purpose);
            Some(caller)
        });
        for caller in sent.chain(waiting.map(|waiting| waiting.caller)) {
            _ = caller.send(Went::Out(Err(error.clone()), Instant::now()));
        }
        self.shared.room.notify_waiters();
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Future for Driver<S> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let error = ready!(self.round(cx));
        self.close(&error);
        Poll::Ready(())
    }
}

impl<S> Drop for Driver<S> {
    /// Its runtime may end before the connection does.
    fn drop(&mut self) {
        self.close(&gone());
    }
}

/// Waits until there is a place.
async fn free(in_flight: Arc<InFlight>, purpose: Purpose) {
    drop(in_flight.place(purpose).await);
}
