//! Bodies of requests: buffered to be looked at, and given to the handler unchanged.

use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker, ready};

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};

/// Pieces smaller than this are put together, so that a client that sends byte by byte takes no more memory than its bytes.
const SMALL: usize = 1024;

/// The body of a request that went through a guard. The handler sees what the client sent.
pub struct RequestBody<B: Body>(Kind<B>);

enum Kind<B: Body> {
    /// Nobody looked at it.
    Untouched(B),
    /// All of it, as it came in one piece.
    Whole(Bytes),
    /// What was read of it, and the rest.
    Read { read: Box<Pieces>, then: Then<B> },
    /// What is read of it is remembered.
    Watched(Arc<Watched<B>>),
}

/// What comes after what was read.
enum Then<B: Body> {
    Nothing,
    Rest(B),
    /// It broke off.
    Error(B::Error),
}

impl<B: Body> RequestBody<B> {
    pub(super) const fn untouched(body: B) -> Self {
        Self(Kind::Untouched(body))
    }

    pub(super) const fn watched(body: Arc<Watched<B>>) -> Self {
        Self(Kind::Watched(body))
    }
}

// Nothing in it is pinned: a body is polled only if it can be moved.
impl<B: Body + Unpin> Unpin for RequestBody<B> {}

/// Without what the client sent.
impl<B: Body> fmt::Debug for RequestBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestBody").finish_non_exhaustive()
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for RequestBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        match &mut self.get_mut().0 {
            Kind::Untouched(body) => Pin::new(body).poll_frame(context),
            Kind::Whole(data) => {
                let data = std::mem::take(data);
                Poll::Ready((!data.is_empty()).then(|| Ok(Frame::data(data))))
            }
            Kind::Read { read, then } => match (read.pop(), then) {
                (Some(frame), _) => Poll::Ready(Some(Ok(frame))),
                (None, Then::Nothing) => Poll::Ready(None),
                (None, Then::Rest(rest)) => Pin::new(rest).poll_frame(context),
                (None, then @ Then::Error(_)) => match std::mem::replace(then, Then::Nothing) {
                    Then::Error(error) => Poll::Ready(Some(Err(error))),
                    _ => Poll::Ready(None),
                },
            },
            Kind::Watched(watched) => watched.state().poll_frame(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Kind::Untouched(body) => body.is_end_stream(),
            Kind::Whole(data) => data.is_empty(),
            Kind::Read { read, then } => {
                read.is_empty()
                    && match then {
                        Then::Nothing => true,
                        Then::Rest(rest) => rest.is_end_stream(),
                        Then::Error(_) => false,
                    }
            }
            Kind::Watched(watched) => watched.state().is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Kind::Untouched(body) => body.size_hint(),
            Kind::Whole(data) => SizeHint::with_exact(data.len() as u64),
            Kind::Read { read, then } => read.and(match then {
                Then::Nothing => SizeHint::with_exact(0),
                Then::Rest(rest) => rest.size_hint(),
                Then::Error(_) => SizeHint::new(),
            }),
            Kind::Watched(watched) => {
                let state = watched.state();
                state.unread.and(state.body.size_hint())
            }
        }
    }
}

/// Why a body could not be looked at as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unread {
    /// It is larger than that.
    TooLarge,
    /// It broke off.
    Failed,
}

/// Reads the body up to the limit. The handler can have it in any case.
pub(super) async fn read<B: Body<Data = Bytes> + Unpin>(
    mut body: B,
    limit: usize,
) -> (Result<Bytes, Unread>, RequestBody<B>) {
    if body.size_hint().lower() > limit as u64 {
        return (Err(Unread::TooLarge), RequestBody::untouched(body));
    }
    let mut next = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await;
    // As it nearly always is.
    if let Some(Ok(frame)) = &next
        && let Some(data) = frame.data_ref()
        && data.len() <= limit
        && body.is_end_stream()
    {
        return (Ok(data.clone()), RequestBody(Kind::Whole(data.clone())));
    }
    let mut read = Pieces::default();
    let (looked, then) = loop {
        match next {
            None => {
                let whole = read.whole();
                // In one piece, as it is held anyway.
                read.only(whole.clone());
                break (Ok(whole), Then::Nothing);
            }
            Some(Err(error)) => break (Err(Unread::Failed), Then::Error(error)),
            Some(Ok(frame)) => read.push(frame),
        }
        if read.bytes > limit {
            break (Err(Unread::TooLarge), Then::Rest(body));
        }
        next = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await;
    };
    (looked, RequestBody(Kind::Read { read: Box::new(read), then }))
}

/// What was read of a body: its data, and its trailers.
#[derive(Default)]
struct Pieces {
    data: VecDeque<Bytes>,
    /// The end of the data, while it comes in small pieces.
    tail: BytesMut,
    trailers: Option<HeaderMap>,
    bytes: usize,
}

impl Pieces {
    fn push(&mut self, frame: Frame<Bytes>) {
        match frame.into_data() {
            Ok(data) => self.push_data(data),
            // There is no third kind.
            Err(frame) => self.trailers = frame.into_trailers().ok().or(self.trailers.take()),
        }
    }

    fn push_data(&mut self, data: Bytes) {
        self.bytes += data.len();
        if data.len() < SMALL {
            self.tail.extend_from_slice(&data);
            if self.tail.len() < SMALL {
                return;
            }
        }
        if !self.tail.is_empty() {
            self.data.push_back(self.tail.split().freeze());
        }
        if data.len() >= SMALL {
            self.data.push_back(data);
        }
    }

    fn pop(&mut self) -> Option<Frame<Bytes>> {
        let tail = |tail: &mut BytesMut| (!tail.is_empty()).then(|| tail.split().freeze());
        match self.data.pop_front().or_else(|| tail(&mut self.tail)) {
            Some(data) => {
                self.bytes -= data.len();
                Some(Frame::data(data))
            }
            None => self.trailers.take().map(Frame::trailers),
        }
    }

    fn is_empty(&self) -> bool {
        self.bytes == 0 && self.trailers.is_none()
    }

    /// All of its data, in one piece.
    fn whole(&mut self) -> Bytes {
        if self.data.is_empty() {
            return self.tail.split().freeze();
        }
        if self.data.len() == 1 && self.tail.is_empty() {
            return self.data[0].clone();
        }
        let mut whole = BytesMut::with_capacity(self.bytes);
        self.data.iter().for_each(|piece| whole.extend_from_slice(piece));
        whole.extend_from_slice(&self.tail.split());
        whole.freeze()
    }

    /// Has this as its data, in one piece.
    fn only(&mut self, whole: Bytes) {
        self.bytes = whole.len();
        self.tail = BytesMut::new();
        self.data = VecDeque::from_iter((!whole.is_empty()).then_some(whole));
    }

    /// Its size and that of what follows.
    fn and(&self, rest: SizeHint) -> SizeHint {
        let read = self.bytes as u64;
        let mut hint = SizeHint::new();
        hint.set_lower(rest.lower().saturating_add(read));
        if let Some(upper) = rest.upper() {
            hint.set_upper(upper.saturating_add(read));
        }
        hint
    }
}

/// A body that remembers what was read of it, so that somebody who comes after the handler's extractors can still look at
/// all of it.
pub(super) struct Watched<B: Body>(Mutex<State<B>>);

struct State<B: Body> {
    body: B,
    limit: usize,
    /// All that was read, unless that is more than the limit.
    seen: Pieces,
    seen_bytes: usize,
    /// What was looked at before the handler read it.
    unread: Pieces,
    ended: bool,
    /// Why it broke off, until the handler was told.
    error: Option<B::Error>,
    failed: bool,
    readers: Arc<Readers>,
}

/// Who waits for the body: the handler, and those who look at it, which may be other tasks. A body itself remembers only the one
/// who asked last.
#[derive(Default)]
struct Readers(Mutex<Vec<Waker>>);

impl Readers {
    fn get(&self) -> MutexGuard<'_, Vec<Waker>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, reader: &Waker) {
        let mut readers = self.get();
        if !readers.iter().any(|known| known.will_wake(reader)) {
            readers.push(reader.clone());
        }
    }

    /// Wakes all but this one, who is awake.
    fn wake_but(&self, awake: Option<&Waker>) {
        let readers = std::mem::take(&mut *self.get());
        let others = readers.into_iter().filter(|known| !awake.is_some_and(|awake| awake.will_wake(known)));
        others.for_each(Waker::wake);
    }
}

impl Wake for Readers {
    fn wake(self: Arc<Self>) {
        self.wake_but(None);
    }
}

impl<B: Body<Data = Bytes> + Unpin> Watched<B> {
    pub(super) fn new(body: B, limit: usize) -> Self {
        Self(Mutex::new(State {
            body,
            limit,
            seen: Pieces::default(),
            seen_bytes: 0,
            unread: Pieces::default(),
            ended: false,
            error: None,
            failed: false,
            readers: Arc::default(),
        }))
    }

    fn state(&self) -> MutexGuard<'_, State<B>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The whole body: what was read already, and the rest, which the handler can still read.
    pub(super) async fn whole(&self) -> Result<Bytes, Unread> {
        poll_fn(|context| {
            let mut state = self.state();
            loop {
                if state.failed {
                    return Poll::Ready(Err(Unread::Failed));
                }
                let announced = state.body.size_hint().lower().saturating_add(state.seen_bytes as u64);
                if announced > state.limit as u64 {
                    return Poll::Ready(Err(Unread::TooLarge));
                }
                if state.ended {
                    let whole = state.seen.whole();
                    // Somebody else may ask, and has it in one piece.
                    state.seen.only(whole.clone());
                    return Poll::Ready(Ok(whole));
                }
                match ready!(state.read(context)) {
                    Some(Ok(frame)) => state.unread.push(frame),
                    Some(Err(error)) => state.error = Some(error),
                    None => {}
                }
            }
        })
        .await
    }
}

impl<B: Body<Data = Bytes> + Unpin> State<B> {
    /// Reads on, and remembers.
    fn read(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        self.readers.add(context.waker());
        let all = Waker::from(self.readers.clone());
        let frame = ready!(Pin::new(&mut self.body).poll_frame(&mut Context::from_waker(&all)));
        self.readers.wake_but(Some(context.waker()));
        match &frame {
            Some(Ok(frame)) => {
                if let Some(data) = frame.data_ref() {
                    self.remember(data);
                }
                self.ended = self.body.is_end_stream();
            }
            Some(Err(_)) => (self.failed, self.ended) = (true, true),
            None => self.ended = true,
        }
        Poll::Ready(frame)
    }

    fn remember(&mut self, data: &Bytes) {
        self.seen_bytes += data.len();
        if self.seen_bytes > self.limit {
            // Nobody will ask for it any more.
            self.seen = Pieces::default();
        } else {
            self.seen.push_data(data.clone());
        }
    }

    fn poll_frame(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        match (self.unread.pop(), self.error.take()) {
            (Some(frame), error) => {
                self.error = error;
                Poll::Ready(Some(Ok(frame)))
            }
            (None, Some(error)) => Poll::Ready(Some(Err(error))),
            (None, None) => self.read(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.unread.is_empty() && self.error.is_none() && (self.ended || self.body.is_end_stream())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(pieces: usize, data: &'static [u8]) -> Pieces {
        let mut read = Pieces::default();
        (0..pieces).for_each(|_| read.push(Frame::data(Bytes::from_static(data))));
        read
    }

    /// A client that sends byte by byte, or nothing at all, takes no more room than its bytes.
    #[test]
    fn tiny_pieces_are_put_together() {
        assert_eq!(filled(1_000_000, b"").data.capacity(), 0);
        let mut read = filled(1_000_000, b"x");
        assert!(read.data.len() <= 1_000_000 / SMALL, "{}", read.data.len());
        assert_eq!((read.bytes, read.whole().len()), (1_000_000, 1_000_000));
    }

    /// What comes out is what went in, small and large pieces mixed, trailers last.
    #[test]
    fn pieces_keep_their_order() {
        let mut read = Pieces::default();
        let mut sent = Vec::new();
        for (n, length) in [3, 2_000, 1, 1_023, 0, 1_024, 5].into_iter().enumerate() {
            let data = vec![u8::try_from(n).unwrap(); length];
            sent.extend_from_slice(&data);
            read.push(Frame::data(data.into()));
        }
        read.push(Frame::trailers(HeaderMap::new()));
        let (mut got, mut trailers) = (Vec::new(), 0);
        while let Some(frame) = read.pop() {
            match frame.into_data() {
                Ok(data) => got.extend_from_slice(&data),
                Err(_) => trailers += 1,
            }
            assert!(trailers == 0 || got.len() == sent.len(), "trailers come last");
        }
        assert_eq!((got == sent, trailers, read.is_empty()), (true, 1, true));
    }
}
