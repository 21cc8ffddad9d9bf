//! Bodies of responses: the handler's own, with the lease if it is held until their end, or a refusal.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use crate::submit::Admission;

pin_project! {
    /// The body of a response that went through a guard.
    #[derive(Debug)]
    pub struct ResponseBody<B> {
        #[pin]
        kind: Kind<B>,
        // Given back when the body has ended, or is dropped.
        holding: Option<Box<Holding>>,
    }
}

pin_project! {
    #[project = KindProject]
    #[derive(Debug)]
    enum Kind<B> {
        Inner { #[pin] body: B },
        // What the guard itself answers, or what was read of the handler's body.
        Whole { data: Option<Bytes> },
        // What was read of the handler's body, and the rest.
        Begun { read: Option<Bytes>, #[pin] rest: B },
    }
}

/// A lease that is held while a body is sent.
#[derive(Debug)]
struct Holding {
    admission: Admission,
    success: bool,
    /// How many bytes are still to come, if that is known.
    left: Option<u64>,
}

impl Holding {
    /// Whether the body ends with this frame. A server that has sent as much as was announced, or the trailers, does not ask
    /// for more, and drops the body as if the client had gone away.
    fn ends_with(&mut self, frame: &Frame<Bytes>) -> bool {
        if let (Some(left), Some(data)) = (&mut self.left, frame.data_ref()) {
            *left = left.saturating_sub(data.len() as u64);
        }
        self.left == Some(0) || frame.is_trailers()
    }
}

impl<B> ResponseBody<B> {
    pub(super) const fn inner(body: B) -> Self {
        Self::of(Kind::Inner { body })
    }

    pub(super) const fn whole(data: Bytes) -> Self {
        Self::of(Kind::Whole { data: Some(data) })
    }

    pub(super) const fn begun(read: Bytes, rest: B) -> Self {
        Self::of(Kind::Begun { read: Some(read), rest })
    }

    const fn of(kind: Kind<B>) -> Self {
        Self { kind, holding: None }
    }

    /// Holds the lease until the body, of this length if it is known, has ended or is dropped.
    pub(super) fn holding(mut self, admission: Admission, success: bool, left: Option<u64>) -> Self {
        self.holding = Some(Box::new(Holding { admission, success, left }));
        self
    }
}

impl<B: Body> Kind<B> {
    fn is_end_stream(&self) -> bool {
        match self {
            Self::Inner { body } => body.is_end_stream(),
            Self::Whole { data } => data.as_ref().is_none_or(Bytes::is_empty),
            Self::Begun { read, rest } => read.as_ref().is_none_or(Bytes::is_empty) && rest.is_end_stream(),
        }
    }
}

impl<B: Body<Data = Bytes>> Body for ResponseBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let mut this = self.project();
        let whole =
            |data: &mut Option<Bytes>| data.take().filter(|data| !data.is_empty()).map(Frame::data).map(Ok);
        let frame = match this.kind.as_mut().project() {
            KindProject::Inner { body } => ready!(body.poll_frame(context)),
            KindProject::Whole { data } => whole(data),
            KindProject::Begun { read, rest } => match whole(read) {
                Some(frame) => Some(frame),
                None => ready!(rest.poll_frame(context)),
            },
        };
        let ended = match (&frame, &mut *this.holding) {
            (Some(Err(_)), holding) => {
                // That is a failure of the handler, not of its client.
                if let Some(holding) = holding.take() {
                    holding.admission.fail();
                }
                false
            }
            (Some(Ok(frame)), Some(holding)) => {
                holding.ends_with(frame) || this.kind.as_ref().get_ref().is_end_stream()
            }
            (Some(Ok(_)), None) => false,
            (None, _) => true,
        };
        if let Some(holding) = this.holding.take_if(|_| ended) {
            // The next one who asks for the key finds it on its way out.
            let Holding { admission, success, .. } = *holding;
            admission.finish_later(success);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        // While it holds a lease, it wants to be asked to its very end.
        self.holding.is_none() && self.kind.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            Kind::Inner { body } => body.size_hint(),
            Kind::Whole { data } => SizeHint::with_exact(data.as_ref().map_or(0, Bytes::len) as u64),
            Kind::Begun { read, rest } => {
                let (read, rest) = (read.as_ref().map_or(0, Bytes::len) as u64, rest.size_hint());
                let mut hint = SizeHint::new();
                hint.set_lower(rest.lower().saturating_add(read));
                if let Some(upper) = rest.upper() {
                    hint.set_upper(upper.saturating_add(read));
                }
                hint
            }
        }
    }
}
