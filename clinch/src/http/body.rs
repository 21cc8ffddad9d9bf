//! Bodies of requests: buffered to be looked at, and given to the handler unchanged.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use http_body::{Body, Frame, SizeHint};

/// The body of a request that went through a guard. The handler sees what the client sent.
#[derive(Debug)]
pub struct RequestBody<B>(Kind<B>);

#[derive(Debug)]
enum Kind<B> {
    /// Nobody looked at it.
    Untouched(B),
    /// What was read of it, and the rest.
    Read { frames: VecDeque<Frame<Bytes>>, rest: Option<B> },
    /// What is read of it is remembered.
    Watched(Arc<Watched<B>>),
}

impl<B> RequestBody<B> {
    pub(super) const fn untouched(body: B) -> Self {
        Self(Kind::Untouched(body))
    }

    pub(super) const fn watched(body: Arc<Watched<B>>) -> Self {
        Self(Kind::Watched(body))
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
            Kind::Read { frames, rest } => match (frames.pop_front(), rest) {
                (Some(frame), _) => Poll::Ready(Some(Ok(frame))),
                (None, Some(rest)) => Pin::new(rest).poll_frame(context),
                (None, None) => Poll::Ready(None),
            },
            Kind::Watched(watched) => watched.state().poll_frame(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Kind::Untouched(body) => body.is_end_stream(),
            Kind::Read { frames, rest } => frames.is_empty() && rest.as_ref().is_none_or(Body::is_end_stream),
            Kind::Watched(watched) => watched.state().is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Kind::Untouched(body) => body.size_hint(),
            Kind::Read { frames, rest } => {
                plus(frames, rest.as_ref().map_or_else(|| SizeHint::with_exact(0), Body::size_hint))
            }
            Kind::Watched(watched) => {
                let state = watched.state();
                plus(&state.unread, state.body.size_hint())
            }
        }
    }
}

/// The size of these frames and of what follows.
fn plus(frames: &VecDeque<Frame<Bytes>>, rest: SizeHint) -> SizeHint {
    let read = frames.iter().filter_map(Frame::data_ref).map(|data| data.len() as u64).sum();
    let mut hint = SizeHint::new();
    hint.set_lower(rest.lower().saturating_add(read));
    if let Some(upper) = rest.upper() {
        hint.set_upper(upper.saturating_add(read));
    }
    hint
}

/// Why a body could not be looked at as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unread {
    /// It is larger than that.
    TooLarge,
    /// It broke off.
    Failed,
}

/// Reads the body up to the limit. The handler can have it in any case, unless it broke off.
pub(super) async fn read<B: Body<Data = Bytes> + Unpin>(
    mut body: B,
    limit: usize,
) -> (Result<Bytes, Unread>, RequestBody<B>) {
    let mut frames = VecDeque::new();
    let mut parts = Parts::default();
    if body.size_hint().lower() > limit as u64 {
        return (Err(Unread::TooLarge), RequestBody::untouched(body));
    }
    loop {
        match next_frame(&mut body).await {
            None => {
                let rest = None;
                let whole = parts.whole();
                if frames.len() > 1 && frames.iter().all(Frame::is_data) {
                    // In one piece, as it is held anyway.
                    frames = VecDeque::from([Frame::data(whole.clone())]);
                }
                return (Ok(whole), RequestBody(Kind::Read { frames, rest }));
            }
            Some(Err(_)) => {
                return (Err(Unread::Failed), RequestBody(Kind::Read { frames, rest: Some(body) }));
            }
            Some(Ok(frame)) => {
                let fits = parts.add(&frame, limit);
                frames.push_back(frame);
                if !fits {
                    let rest = Some(body);
                    return (Err(Unread::TooLarge), RequestBody(Kind::Read { frames, rest }));
                }
            }
        }
    }
}

async fn next_frame<B: Body<Data = Bytes> + Unpin>(body: &mut B) -> Option<Result<Frame<Bytes>, B::Error>> {
    std::future::poll_fn(|context| Pin::new(&mut *body).poll_frame(context)).await
}

/// What was read, piece by piece.
#[derive(Debug, Default)]
struct Parts {
    pieces: Vec<Bytes>,
    bytes: usize,
}

impl Parts {
    /// Adds a frame; `false` if that is more than the limit.
    fn add(&mut self, frame: &Frame<Bytes>, limit: usize) -> bool {
        let Some(data) = frame.data_ref() else { return true };
        self.bytes += data.len();
        if self.bytes > limit {
            // Nobody will ask for it any more.
            self.pieces.clear();
            return false;
        }
        self.pieces.push(data.clone());
        true
    }

    fn whole(&self) -> Bytes {
        match self.pieces.as_slice() {
            [] => Bytes::new(),
            [only] => only.clone(),
            pieces => {
                let mut whole = BytesMut::with_capacity(self.bytes);
                pieces.iter().for_each(|piece| whole.extend_from_slice(piece));
                whole.freeze()
            }
        }
    }
}

/// A body that remembers what was read of it, so that somebody who comes after the handler's extractors can still look at
/// all of it.
#[derive(Debug)]
pub(super) struct Watched<B>(Mutex<State<B>>);

#[derive(Debug)]
struct State<B> {
    body: B,
    limit: usize,
    seen: Parts,
    /// What was looked at before the handler read it.
    unread: VecDeque<Frame<Bytes>>,
    ended: bool,
    failed: bool,
}

impl<B: Body<Data = Bytes> + Unpin> Watched<B> {
    pub(super) fn new(body: B, limit: usize) -> Self {
        let (seen, unread) = (Parts::default(), VecDeque::new());
        Self(Mutex::new(State { body, limit, seen, unread, ended: false, failed: false }))
    }

    fn state(&self) -> MutexGuard<'_, State<B>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The whole body: what was read already, and the rest, which the handler can still read.
    pub(super) async fn whole(&self) -> Result<Bytes, Unread> {
        std::future::poll_fn(|context| {
            let mut state = self.state();
            loop {
                if state.failed {
                    return Poll::Ready(Err(Unread::Failed));
                }
                let announced = state.body.size_hint().lower().saturating_add(state.seen.bytes as u64);
                if announced > state.limit as u64 {
                    return Poll::Ready(Err(Unread::TooLarge));
                }
                if state.ended {
                    return Poll::Ready(Ok(state.seen.whole()));
                }
                if let Some(Ok(frame)) = ready!(state.read(context)) {
                    state.unread.push_back(frame);
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
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        match &frame {
            Some(Ok(frame)) => {
                self.seen.add(frame, self.limit);
                self.ended = self.body.is_end_stream();
            }
            Some(Err(_)) => self.failed = true,
            None => self.ended = true,
        }
        Poll::Ready(frame)
    }

    fn poll_frame(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        match self.unread.pop_front() {
            Some(frame) => Poll::Ready(Some(Ok(frame))),
            None => self.read(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.unread.is_empty() && (self.ended || self.body.is_end_stream())
    }
}
