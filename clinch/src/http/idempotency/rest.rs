//! What is left of a response's body after it was read to be stored.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use http_body::{Body, Frame, SizeHint};

/// What is left of a response's body after an [`IdempotencyService`](super::IdempotencyService) has read from it: what was
/// read and is not stored (trailers, the error with which it broke off), and what was not read.
pub struct Rest<B: Body> {
    next: Option<Result<Frame<B::Data>, B::Error>>,
    /// Nothing after its end.
    unread: Option<B>,
}

impl<B: Body> Rest<B> {
    /// All of it: nothing was read.
    pub(super) const fn unread(body: B) -> Self {
        Self { next: None, unread: Some(body) }
    }

    const fn ending(next: Result<Frame<B::Data>, B::Error>) -> Self {
        Self { next: Some(next), unread: None }
    }
}

impl<B: Body> fmt::Debug for Rest<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rest").finish_non_exhaustive()
    }
}

// Nothing in it is pinned: a body is polled only if it can be moved.
impl<B: Body> Unpin for Rest<B> {}

impl<B: Body + Unpin> Body for Rest<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        match (self.next.take(), &mut self.unread) {
            (Some(next), _) => Poll::Ready(Some(next)),
            (None, Some(unread)) => Pin::new(unread).poll_frame(context),
            (None, None) => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.next.is_none() && self.unread.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        match (&self.next, &self.unread) {
            (None, Some(unread)) => unread.size_hint(),
            (None, None) => SizeHint::with_exact(0),
            // A body of a known size would end with its last byte, and what comes after would not be asked for.
            (Some(_), _) => SizeHint::default(),
        }
    }
}

/// How far a response's body was read.
pub(super) enum Read<B: Body> {
    /// To its end.
    Whole(Bytes),
    /// The same, and trailers came after it.
    WithTrailers(Bytes, Rest<B>),
    /// It is larger than the limit, or broke off.
    Begun(Bytes, Rest<B>),
}

/// Reads a response up to the limit.
pub(super) async fn read<B: Body<Data = Bytes> + Unpin>(mut body: B, limit: usize) -> Read<B> {
    let mut read = BytesMut::new();
    let mut trailers = None;
    while read.len() <= limit {
        if body.size_hint().lower() > (limit - read.len()) as u64 {
            break;
        }
        match std::future::poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
            None => {
                let read = read.freeze();
                return match trailers {
                    Some(trailers) => Read::WithTrailers(read, Rest::ending(Ok(trailers))),
                    None => Read::Whole(read),
                };
            }
            Some(Ok(frame)) => match frame.into_data() {
                Ok(data) => read.extend_from_slice(&data),
                Err(frame) => trailers = Some(frame),
            },
            Some(Err(error)) => return Read::Begun(read.freeze(), Rest::ending(Err(error))),
        }
    }
    Read::Begun(read.freeze(), Rest::unread(body))
}
