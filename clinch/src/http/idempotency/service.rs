//! A service whose requests are carried out once.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Method, Request, Response};
use http_body::Body;
use tower_service::Service;

use super::super::body::{self, RequestBody};
use super::super::finishing::{Begun, ResponseFuture};
use super::super::idempotency_key::idempotency_key;
use super::super::look::{Look, unread};
use super::super::response_body::ResponseBody;
use super::super::service::run;
use super::super::web::Web;
use super::super::{Refusal, RefusalKind};
use super::stored::{Stored, kept};
use crate::error::{Denied, Error};
use crate::key::Key;
use crate::lease::Holder;
use crate::manager::{LockOptions, Outcome, Remains, Stay};
use crate::submit::{Admission, Disconnect, Ending, Event, IdempotencyPolicy, InFlight, compose};

/// A service whose requests are carried out once.
#[derive(Debug, Clone)]
pub struct IdempotencyService<S> {
    inner: S,
    web: Web,
    policy: Arc<IdempotencyPolicy>,
}

impl<S> IdempotencyService<S> {
    pub(super) const fn new(inner: S, web: Web, policy: Arc<IdempotencyPolicy>) -> Self {
        Self { inner, web, policy }
    }
}

impl<S, B, R> Service<Request<B>> for IdempotencyService<S>
where
    S: Service<Request<RequestBody<B>>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Send,
    B: Body<Data = Bytes> + Send + Unpin + 'static,
    R: Body<Data = Bytes> + Send + Unpin + 'static,
{
    type Response = Response<ResponseBody<R>>;
    type Error = S::Error;
    type Future = ResponseFuture<Result<Self::Response, S::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        let clone = self.inner.clone();
        let inner = std::mem::replace(&mut self.inner, clone);
        let begun = Begun::in_request(request.extensions_mut());
        let once = Once { web: self.web.clone(), policy: self.policy.clone(), begun: begun.clone() };
        let serving = once.serve(inner, request);
        let locks = self.web.guards().locks().clone();
        match locks.current_scope() {
            Some(_) => ResponseFuture::new(begun, serving),
            None => ResponseFuture::new(begun, async move { locks.scope(serving).await }),
        }
    }
}

/// One request.
struct Once {
    web: Web,
    policy: Arc<IdempotencyPolicy>,
    begun: Begun,
}

/// What came of asking for the key.
enum Asked {
    /// It is the first one.
    First(Admission),
    /// It is not, and this is the answer.
    Replay(Response<Bytes>),
    Refused(Refusal),
}

impl Once {
    fn applies(&self, method: &Method) -> bool {
        let safe = matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS);
        self.web.guards().is_on(self.policy.enabled) && (self.policy.safe_methods || !safe)
    }

    /// The key that came with the request, if one did.
    fn header(&self, headers: &HeaderMap) -> Result<Option<String>, Refusal> {
        match idempotency_key(headers, self.policy.lenient) {
            Ok(None) if self.policy.required => Err(Refusal::new(RefusalKind::IdempotencyKeyMissing)),
            Ok(key) => Ok(key),
            Err(reason) => Err(Refusal::new(RefusalKind::IdempotencyKeyMalformed).detail(reason)),
        }
    }

    async fn serve<S, B, R>(
        self,
        mut inner: S,
        request: Request<B>,
    ) -> Result<Response<ResponseBody<R>>, S::Error>
    where
        S: Service<Request<RequestBody<B>>, Response = Response<R>>,
        B: Body<Data = Bytes> + Unpin,
        R: Body<Data = Bytes> + Unpin,
    {
        let untouched = |request: Request<B>| request.map(RequestBody::untouched);
        if !self.applies(request.method()) {
            return Ok(inner.call(untouched(request)).await?.map(ResponseBody::inner));
        }
        let header = match self.header(request.headers()) {
            Ok(Some(header)) => header,
            Ok(None) => return Ok(inner.call(untouched(request)).await?.map(ResponseBody::inner)),
            Err(refusal) if self.looks_on(&refusal) => {
                return Ok(inner.call(untouched(request)).await?.map(ResponseBody::inner));
            }
            Err(refusal) => return Ok(self.refuse(refusal)),
        };
        self.web.guards().works(true);
        let (mut parts, body) = request.into_parts();
        let limits = self.web.guards().settings().limits;
        let (read, body) = body::read(body, limits.body_bytes).await;
        let wish = read
            .map_err(|why| unread(why, limits.body_bytes))
            .and_then(|read| self.wish(Look::of(&parts), &read, &header));
        let asked = match &wish {
            Ok((key, fingerprint)) => self.ask(key, fingerprint).await,
            Err(error) => Err(error.clone()),
        };
        let refusal = match asked {
            Ok(Asked::First(admission)) => {
                if let Some(lease) = admission.lease() {
                    parts.extensions.insert(lease);
                }
                self.begun.on(self.policy.disconnect);
                let request = Request::from_parts(parts, body);
                let fingerprint = wish.map(|(_, fingerprint)| fingerprint).unwrap_or_default();
                let (response, admission) = run(inner, request, admission).await;
                return match response {
                    Ok(response) => Ok(self.store(response, admission, fingerprint).await),
                    Err(error) => {
                        admission.finish(false).await;
                        Err(error)
                    }
                };
            }
            Ok(Asked::Replay(response)) => {
                self.web.guards().counts().count(Event::Replayed);
                return Ok(response.map(ResponseBody::whole));
            }
            Ok(Asked::Refused(refusal)) => refusal,
            Err(error) => Refusal::of(&error),
        };
        if self.looks_on(&refusal) {
            return Ok(inner.call(Request::from_parts(parts, body)).await?.map(ResponseBody::inner));
        }
        Ok(self.refuse(refusal))
    }

    fn looks_on(&self, refusal: &Refusal) -> bool {
        self.web.guards().looks_on(self.policy.shadow, &refusal.detail)
    }

    fn refuse<R>(&self, refusal: Refusal) -> Response<ResponseBody<R>> {
        let event = match refusal.kind {
            RefusalKind::Engine => Event::EngineFailure,
            _ => Event::Duplicate,
        };
        self.web.guards().counts().count(event);
        let (status, message) = (self.policy.status, self.policy.message.as_deref());
        self.web.refusal(refusal, status, message).map(ResponseBody::whole)
    }

    /// The key in the engine, and what is asked for.
    fn wish(&self, look: Look<'_>, body: &Bytes, header: &str) -> Result<(Key, String), Error> {
        let guards = self.web.guards();
        let user = guards.hasher().identity(&look.identity(&self.web, Some(body)));
        let key = guards.hasher().hash("idempotency-key", header.as_bytes());
        let key = compose(&self.policy.key_prefix, &user, &[&key])?;
        let fingerprint =
            look.fingerprint_of_request(body, &self.policy.exclude_params, guards.settings().limits)?;
        Ok((key, fingerprint.short()))
    }

    async fn ask(&self, key: &Key, fingerprint: &str) -> Result<Asked, Error> {
        let guards = self.web.guards();
        // Who holds the key says by its label what for.
        let options = LockOptions::new(self.policy.lease).renew().label(fingerprint);
        let options = guards.with_strategy(options, self.policy.strategy);
        let mut outcome = guards.locks().attempt_idempotent(key.clone(), options.clone()).await?;
        if let (InFlight::Wait(wait), Outcome::DeniedByLock(denied)) = (self.policy.in_flight, &outcome)
            && denied.done.is_none()
            && !is_other(denied, fingerprint)
        {
            outcome = guards.locks().attempt_idempotent(key.clone(), options.wait(wait)).await?;
        }
        let ending = Ending { kept_on_drop: self.policy.disconnect == Disconnect::Hold, ..Ending::RELEASE };
        let first = |guard| Asked::First(Admission::new(guard, ending, guards.clone()));
        match outcome {
            Outcome::Acquired(guard) | Outcome::Reentered(guard) => {
                guards.counts().count(Event::Admitted);
                Ok(first(guard))
            }
            Outcome::Unprotected(guard) => {
                guards.counts().count(Event::Unprotected);
                Ok(first(guard))
            }
            Outcome::DeniedByLock(denied) | Outcome::DeniedByLimit(denied) => {
                Ok(self.denied(denied, fingerprint))
            }
            Outcome::EngineFailed(error) => Err(error),
        }
    }

    fn denied(&self, mut denied: Denied, fingerprint: &str) -> Asked {
        let reused = || {
            let detail =
                "this `Idempotency-Key` was used for another request; use a new key for a new request";
            Asked::Refused(Refusal::new(RefusalKind::IdempotencyKeyReused).detail(detail))
        };
        let Some(record) = denied.done.take() else {
            if is_other(&denied, fingerprint) {
                return reused();
            }
            let detail = "the first request with this `Idempotency-Key` is still being carried out";
            // It will be done long before its lease runs out.
            let after = denied.retry_after.unwrap_or_default().min(Duration::from_secs(1));
            return Asked::Refused(
                Refusal::new(RefusalKind::IdempotencyInFlight).detail(detail).retry_after(after),
            );
        };
        match Stored::of(record) {
            Some(stored) if stored.fingerprint != fingerprint => reused(),
            stored => stored.and_then(Stored::replay).map_or_else(
                || {
                    let detail = "this request was carried out, but its response was not stored; it is not carried out again";
                    Asked::Refused(Refusal::new(RefusalKind::ResponseNotStored).detail(detail))
                },
                Asked::Replay,
            ),
        }
    }

    /// Stores the response, if it is one that is stored, and then gives it to the client.
    async fn store<R: Body<Data = Bytes> + Unpin>(
        &self,
        response: Response<R>,
        admission: Admission,
        fingerprint: String,
    ) -> Response<ResponseBody<R>> {
        let status = response.status();
        if !self.policy.stored.includes(status.as_u16()) {
            admission.finish(false).await;
            return response.map(ResponseBody::inner);
        }
        let (parts, mut body) = response.into_parts();
        let (read, whole) = read_response(&mut body, self.policy.max_response_bytes).await;
        let kept = || kept(&parts.headers, self.policy.replay_headers.as_deref());
        let stored = Stored { fingerprint, status, response: whole.then(|| (kept(), read.clone())) };
        if let Some(guard) = admission.into_guard() {
            let remains = Remains { record: stored.to_record(), stay: Stay::For(self.policy.retention) };
            // What cannot be stored keeps the key: it is not carried out again as long as the engine knows of it.
            self.web.guards().end(guard, Some(remains)).await;
        }
        let body = if whole { ResponseBody::whole(read) } else { ResponseBody::begun(read, body) };
        Response::from_parts(parts, body)
    }
}

/// Whether the key is held for another request.
fn is_other(denied: &Denied, fingerprint: &str) -> bool {
    let label = denied.holder.as_ref().and_then(Holder::owner).and_then(|owner| owner.label);
    label.is_some_and(|label| label != fingerprint)
}

/// Reads a response up to the limit, and says whether that was all of it.
async fn read_response<R: Body<Data = Bytes> + Unpin>(body: &mut R, limit: usize) -> (Bytes, bool) {
    let mut read = BytesMut::new();
    while read.len() <= limit {
        if body.size_hint().lower() > (limit - read.len()) as u64 {
            return (read.freeze(), false);
        }
        let frame = std::future::poll_fn(|context| Pin::new(&mut *body).poll_frame(context)).await;
        match frame.map(|frame| frame.map(http_body::Frame::into_data)) {
            None => return (read.freeze(), true),
            Some(Ok(Ok(data))) => read.extend_from_slice(&data),
            // Trailers are not stored; an error is the client's to see.
            Some(Ok(Err(_))) => {}
            Some(Err(_)) => return (read.freeze(), false),
        }
    }
    (read.freeze(), false)
}
