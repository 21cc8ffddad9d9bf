//! A service with a guard before it.

use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::CONTENT_LENGTH;
use http::request::Parts;
use http::{Method, Request, Response, StatusCode};
use http_body::Body;
use tower_service::Service;

use super::body::{self, RequestBody, Unread};
use super::finishing::{Begun, ResponseFuture, boxed};
use super::gate::{Gate, HiddenLook, HiddenSince};
use super::layer::Guard;
use super::look::{Look, unread};
use super::response_body::ResponseBody;
use crate::submit::{Admission, Entered, Streaming};
use crate::telemetry::Stopwatch;

/// A service with a guard before it. The inner service's error is untouched: a refusal is a response.
#[derive(Debug, Clone)]
pub struct GuardService<S, G> {
    inner: S,
    guard: Arc<Guard<G>>,
}

impl<S, G> GuardService<S, G> {
    pub(super) const fn new(inner: S, guard: Arc<Guard<G>>) -> Self {
        Self { inner, guard }
    }
}

impl<S, G, B, R> Service<Request<B>> for GuardService<S, G>
where
    G: Gate,
    S: Service<Request<RequestBody<B>>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Send,
    B: Body<Data = Bytes, Error: Send> + Send + Unpin + 'static,
    R: Body<Data = Bytes> + Send + 'static,
{
    type Response = Response<ResponseBody<R>>;
    type Error = S::Error;
    type Future = ResponseFuture<Result<Self::Response, S::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        // The one that is ready is used up; its clone takes its place.
        let clone = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, clone);
        let (mut parts, body) = request.into_parts();
        let begun = Begun::in_request(&mut parts.extensions);
        let Guard { web, gate } = &*self.guard;
        let (handling, locks) = (gate.handling(), web.guards().locks());
        if !web.guards_method(handling.enabled, handling.safe_methods, &parts.method) {
            let request = Request::from_parts(parts, RequestBody::untouched(body));
            let passing = boxed(|| async move { Ok(inner.call(request).await?.map(ResponseBody::inner)) });
            return ResponseFuture::in_scope(begun, locks, passing);
        }
        let guarded = boxed(|| guarded(self.guard.clone(), inner, parts, body, begun.clone()));
        ResponseFuture::in_scope(begun, locks, guarded)
    }
}

/// Not an `async fn`, which has room for its arguments twice and moves them at its first poll.
#[expect(clippy::manual_async_fn, reason = "as said above")]
fn guarded<S, G, B, R>(
    guard: Arc<Guard<G>>,
    mut inner: S,
    mut parts: Parts,
    body: B,
    begun: Begun,
) -> impl Future<Output = Result<Response<ResponseBody<R>>, S::Error>>
where
    G: Gate,
    S: Service<Request<RequestBody<B>>, Response = Response<R>>,
    B: Body<Data = Bytes> + Unpin,
    R: Body<Data = Bytes>,
{
    async move {
        let Guard { web, gate } = &*guard;
        let handling = gate.handling();
        let (read, body) = if gate.needs_body(web, HiddenLook(Look::of(&parts))) {
            let (read, body) = body::read(body, web.guards().settings().limits.body_bytes).await;
            (Some(read), body)
        } else {
            (None, RequestBody::untouched(body))
        };
        // How long a client takes to send its body is not the guard's time.
        let since = HiddenSince(Stopwatch::start());
        let admission = {
            // In a block of its own, so that the future has no room for it any more while the handler runs.
            let admitted = match admitting(&guard, &parts, read, since) {
                Entered::Over(admitted) => admitted,
                entered => entered.admitted().await,
            };
            match admitted {
                Ok(admission) => admission,
                Err(error) => {
                    return Ok(web.refuse(error, &parts.headers, handling.status, handling.message));
                }
            }
        };
        if let Some(lease) = admission.lease() {
            parts.extensions.insert(lease);
        }
        begun.on(handling.disconnect);
        let until_end = (handling.streaming == Streaming::UntilEnd).then(|| parts.method.clone());
        // If it panics, the admission is dropped meanwhile, which is a failure.
        let response = inner.call(Request::from_parts(parts, body)).await;
        let success = response.as_ref().is_ok_and(|response| response.status().as_u16() < 400);
        // If nobody is there any more to whom the body could be sent, its head is the end.
        if let (Ok(sent), Some(method)) = (&response, until_end)
            && let length = length(&method, sent)
            && length != Some(0)
            && !begun.is_left()
        {
            let hold = |body| ResponseBody::inner(body).holding(admission, success, length);
            return response.map(|response| response.map(hold));
        }
        // Before the answer goes out, so that a client that has it can submit again.
        if let Some(answer) = admission.begin_finish(success) {
            answer.await;
        }
        response.map(|response| response.map(ResponseBody::inner))
    }
}

/// Lets a request in with what was read of its body, if that had to be.
fn admitting<'a, G: Gate>(
    guard: &'a Guard<G>,
    parts: &Parts,
    read: Option<Result<Bytes, Unread>>,
    since: HiddenSince,
) -> Entered<'a> {
    let Guard { web, gate } = guard;
    let (guards, look) = (web.guards(), || HiddenLook(Look::of(parts)));
    let read = read.transpose().map_err(|why| unread(why, guards.settings().limits.body_bytes));
    match read.and_then(|body| gate.wish(web, look(), body.as_ref())) {
        Ok(wish) => gate.admit(guards, wish, since).0,
        Err(error) => {
            // What cannot be looked at is not refused by one that only looks on.
            let meter = guards.locks().meter(&gate.guard(look()));
            let looks_on = guards.looks_on(gate.handling().shadow, &meter, &error);
            Entered::Over(if looks_on { Ok(Admission::unguarded()) } else { Err(error) })
        }
    }
}

/// How many bytes of the body a server sends, if that is known before.
fn length<R: Body>(method: &Method, response: &Response<R>) -> Option<u64> {
    let bodiless = [StatusCode::NO_CONTENT, StatusCode::NOT_MODIFIED].contains(&response.status());
    if bodiless || method == Method::HEAD || response.body().is_end_stream() {
        return Some(0);
    }
    let told = response.headers().get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    told.or_else(|| response.body().size_hint().exact())
}
