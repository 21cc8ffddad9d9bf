//! A service whose requests are carried out once.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body::Body;
use tower_service::Service;

use super::super::body::{self, RequestBody};
use super::super::finishing::{Begun, ResponseFuture, boxed};
use super::super::idempotency_key::idempotency_key;
use super::super::look::{Look, unread};
use super::super::response_body::ResponseBody;
use super::super::web::{Refused, Web};
use super::super::{Refusal, RefusalKind};
use super::rest::{self, Read, Rest};
use super::stored::{Stored, kept};
use crate::error::{Denied, DeniedBy, Error};
use crate::key::Key;
use crate::lease::Holder;
use crate::manager::{LockOptions, Outcome, Remains, Stay};
use crate::submit::{Admission, Disconnect, Ending, Event, IdempotencyPolicy, InFlight, compose};
use crate::telemetry::{Stopwatch, Visit};

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
    B: Body<Data = Bytes, Error: Send> + Send + Unpin + 'static,
    R: Body<Data = Bytes> + Send + Unpin + 'static,
    R::Error: Send,
{
    type Response = Response<ResponseBody<Rest<R>>>;
    type Error = S::Error;
    type Future = ResponseFuture<Result<Self::Response, S::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        let clone = self.inner.clone();
        let inner = std::mem::replace(&mut self.inner, clone);
        let begun = Begun::in_request(request.extensions_mut());
        let once =
            Once { web: self.web.clone(), policy: self.policy.clone(), begun: begun.clone(), visit: None };
        let locks = self.web.guards().locks();
        ResponseFuture::in_scope(begun, locks, boxed(|| once.serve(inner, request)))
    }
}

/// One request.
struct Once {
    web: Web,
    policy: Arc<IdempotencyPolicy>,
    begun: Begun,
    /// From when it comes to the guard until it is let in.
    visit: Option<Visit>,
}

/// The keys that layers of this kind further out have for a request. They go inwards with it: no other request has them.
#[derive(Debug, Clone, Default)]
struct Carried(Vec<Key>);

/// What came of asking for the key.
enum Asked {
    /// It is the first one.
    First(Admission),
    /// It is not, and this is the answer.
    Replay(Response<Bytes>),
    Refused(Refusal),
}

impl Once {
    /// The key that came with the request, if one did.
    fn header(&self, headers: &HeaderMap) -> Result<Option<String>, Refusal> {
        match idempotency_key(headers, self.policy.lenient) {
            Ok(None) if self.policy.required => Err(Refusal::new(RefusalKind::IdempotencyKeyMissing)),
            Ok(key) => Ok(key),
            Err(reason) => {
                Err(Refusal::new(RefusalKind::IdempotencyKeyMalformed).detail(reason).message(reason))
            }
        }
    }

    async fn serve<S, B, R>(
        mut self,
        mut inner: S,
        request: Request<B>,
    ) -> Result<Response<ResponseBody<Rest<R>>>, S::Error>
    where
        S: Service<Request<RequestBody<B>>, Response = Response<R>>,
        B: Body<Data = Bytes> + Unpin,
        R: Body<Data = Bytes> + Unpin,
    {
        let untouched = |request: Request<B>| request.map(RequestBody::untouched);
        let IdempotencyPolicy { enabled, safe_methods, .. } = *self.policy;
        if !self.web.guards_method(enabled, safe_methods, request.method()) {
            return Ok(inner.call(untouched(request)).await?.map(unread_body));
        }
        let header = self.header(request.headers());
        // Whoever has no key and needs none did not come to the guard.
        if matches!(header, Ok(None)) {
            return Ok(inner.call(untouched(request)).await?.map(unread_body));
        }
        let (mut parts, body) = request.into_parts();
        let guard = Look::of(&parts).guard(self.policy.name.as_deref(), "idempotency").into_owned();
        self.visit = Some(self.web.guards().come(&guard, Stopwatch::start()));
        let header = match header {
            Ok(header) => header.unwrap_or_default(),
            Err(refusal) if self.looks_on(&refusal.detail) => {
                let request = Request::from_parts(parts, RequestBody::untouched(body));
                return Ok(inner.call(request).await?.map(unread_body));
            }
            Err(refusal) => return Ok(self.refuse(refusal)),
        };
        let limits = self.web.guards().settings().limits;
        let (read, body) = body::read(body, limits.body_bytes).await;
        if let Some(visit) = &mut self.visit {
            // How long a client takes to send its body is not the guard's time.
            visit.begins(Stopwatch::start());
        }
        let wish = read
            .map_err(|why| unread(why, limits.body_bytes))
            .and_then(|read| self.wish(Look::of(&parts), &read, &header));
        let carried = parts.extensions.get::<Carried>().cloned().unwrap_or_default();
        if let Ok((key, _)) = &wish
            && carried.0.contains(key)
        {
            // A layer further out carries it out, and stores what comes of it: it is not in its own way.
            if let Some(visit) = &mut self.visit {
                visit.admitted();
            }
            return Ok(inner.call(Request::from_parts(parts, body)).await?.map(unread_body));
        }
        let asked = match &wish {
            Ok((key, fingerprint)) => self.ask(&guard, key, fingerprint).await,
            Err(error) => Err(error.clone()),
        };
        let refusal = match asked {
            Ok(Asked::First(admission)) => {
                if let Some(lease) = admission.lease() {
                    parts.extensions.insert(lease);
                }
                self.begun.on(self.policy.disconnect);
                let (key, fingerprint) = wish.ok().unzip();
                parts.extensions.insert(Carried(carried.0.into_iter().chain(key).collect()));
                let request = Request::from_parts(parts, body);
                let fingerprint = fingerprint.unwrap_or_default();
                // If it panics, the admission is dropped meanwhile, which is a failure.
                let response = inner.call(request).await;
                return match response {
                    Ok(response) => Ok(self.store(response, admission, fingerprint).await),
                    Err(error) => {
                        admission.finish(false).await;
                        Err(error)
                    }
                };
            }
            Ok(Asked::Replay(response)) => {
                if !self.looks_on("it would have been answered with the stored result") {
                    self.count(Event::Replayed);
                    return Ok(response.map(ResponseBody::whole));
                }
                None
            }
            Ok(Asked::Refused(refusal)) => Some(refusal),
            Err(error) => {
                let refusal = Refusal::of(&error);
                refusal.log_if_internal(&error);
                Some(refusal)
            }
        };
        if let Some(refusal) = refusal
            && !self.looks_on(&refusal.detail)
        {
            return Ok(self.refuse(refusal));
        }
        Ok(inner.call(Request::from_parts(parts, body)).await?.map(unread_body))
    }

    /// Whether somebody is let through all the same, and counts it.
    fn looks_on(&mut self, reason: &str) -> bool {
        let Some(visit) = &mut self.visit else { return false };
        let looks_on = self.web.guards().looks_on(self.policy.shadow, visit.meter(), &reason);
        if looks_on {
            visit.admitted();
        }
        looks_on
    }

    fn count(&self, event: Event) {
        if let Some(visit) = &self.visit {
            self.web.guards().count(event, visit.meter());
        }
    }

    fn refuse<R>(&self, refusal: Refusal) -> Response<ResponseBody<R>> {
        let event = match refusal.kind {
            RefusalKind::Engine => Some(Event::EngineFailure),
            RefusalKind::IdempotencyKeyReused
            | RefusalKind::IdempotencyInFlight
            | RefusalKind::ResponseNotStored => Some(Event::Duplicate),
            // The request itself is at fault, or the guard.
            _ => None,
        };
        if let Some(event) = event {
            self.count(event);
        }
        let (status, message) = (self.policy.status, self.policy.message.as_deref());
        self.web.refusal(refusal, status, message).map(ResponseBody::whole)
    }

    /// The key in the engine, and what is asked for.
    fn wish(&self, look: Look<'_>, body: &Bytes, header: &str) -> Result<(Key, String), Error> {
        let guards = self.web.guards();
        let user = guards.hasher().identity(&look.principal(&self.web));
        let key = guards.hasher().hash("idempotency-key", header.as_bytes());
        let key = compose(&self.policy.key_prefix, &user, &[&key])?;
        let fingerprint =
            look.fingerprint_of_request(body, &self.policy.exclude_params, guards.settings().limits)?;
        Ok((key, str::to_owned(&guards.hasher().params(&fingerprint))))
    }

    async fn ask(&mut self, guard: &str, key: &Key, fingerprint: &str) -> Result<Asked, Error> {
        let guards = self.web.guards();
        // Who holds the key says by its label what for: it never has the lease of another one, whose label is another.
        let options = LockOptions::new(self.policy.lease).renew().label(fingerprint).no_local_pass();
        let options = guards.with_strategy(options, self.policy.strategy);
        let mut outcome = guards.locks().attempt_idempotent(guard, key.clone(), options.clone()).await?;
        // One that only looks on keeps nobody waiting.
        let looks_on = guards.is_shadow(self.policy.shadow);
        if let (InFlight::Wait(wait), Outcome::DeniedByLock(denied)) = (self.policy.in_flight, &outcome)
            && !looks_on
            && denied.done.is_none()
            && !is_other(denied, fingerprint)
        {
            outcome = guards.locks().attempt_idempotent(guard, key.clone(), options.wait(wait)).await?;
        }
        let ending = Ending { kept_on_drop: self.policy.disconnect == Disconnect::Hold, ..Ending::RELEASE };
        let event = match &outcome {
            Outcome::Unprotected(_) => Event::Unprotected,
            _ => Event::Admitted,
        };
        match outcome {
            Outcome::Acquired(lock) | Outcome::Reentered(lock) | Outcome::Unprotected(lock) => {
                self.count(event);
                Ok(match self.visit.take() {
                    Some(visit) => Asked::First(Admission::new(lock, ending, self.web.guards(), visit)),
                    // Not reached: everybody who asks came to the guard.
                    None => Asked::First(Admission::unguarded()),
                })
            }
            // Nobody else has it: the engine was too slow, or somebody took it away by force.
            Outcome::DeniedByLock(denied)
                if matches!(denied.cause, DeniedBy::TooLate | DeniedBy::Revoked) =>
            {
                Err(Error::denied(denied))
            }
            Outcome::DeniedByLock(denied) | Outcome::DeniedByLimit(denied) => {
                Ok(denied_by(denied, fingerprint))
            }
            Outcome::EngineFailed(error) => Err(error),
        }
    }

    /// Stores the response, if it is one that is stored, and then gives it to the client.
    async fn store<R: Body<Data = Bytes> + Unpin>(
        &self,
        response: Response<R>,
        admission: Admission,
        fingerprint: String,
    ) -> Response<ResponseBody<Rest<R>>> {
        let status = response.status();
        // A guard inside of this one that refused it has not carried it out.
        let refused = response.extensions().get::<Refused>().is_some();
        if refused || !self.policy.stored.includes(status.as_u16()) {
            admission.finish(false).await;
            return response.map(unread_body);
        }
        // The handler is done: whatever becomes of one whose client goes away, this result is stored.
        self.begun.on(Disconnect::Finish);
        let (parts, body) = response.into_parts();
        let (read, whole, rest) = match rest::read(body, self.policy.max_response_bytes).await {
            Read::Whole(read) => (read, true, None),
            // Trailers are not stored; the first client has them.
            Read::WithTrailers(read, trailers) => (read, true, Some(trailers)),
            Read::Begun(read, rest) => (read, false, Some(rest)),
        };
        let kept = || kept(&parts.headers, self.policy.replay_headers.as_deref());
        let stored = Stored { fingerprint, status, response: whole.then(|| (kept(), read.clone())) };
        let remains = Remains { record: stored.to_record(), stay: Stay::For(self.policy.retention) };
        // What cannot be stored keeps the key: it is not carried out again as long as the engine knows of it.
        admission.leave(Some(remains)).await;
        let body = match rest {
            None => ResponseBody::whole(read),
            Some(rest) => ResponseBody::begun(read, rest),
        };
        Response::from_parts(parts, body)
    }
}

/// What somebody is told who does not get the key.
fn denied_by(mut denied: Denied, fingerprint: &str) -> Asked {
    let reused = || {
        let detail = "this `Idempotency-Key` was used for another request; use a new key for a new request";
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
    if record.as_bytes().is_empty() {
        // That is what is left of a handler that was dropped and whose key is held.
        let detail = "the first request with this `Idempotency-Key` was broken off, and nobody knows how far it came; it is not carried out again before its key is free";
        let refusal = Refusal::new(RefusalKind::ResponseNotStored).detail(detail).message(detail);
        return Asked::Refused(Refusal { retry_after: denied.retry_after, ..refusal });
    }
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

/// Whether the key is held for another request.
fn is_other(denied: &Denied, fingerprint: &str) -> bool {
    let label = denied.holder.as_ref().and_then(Holder::owner).and_then(|owner| owner.label);
    label.is_some_and(|label| label != fingerprint)
}

/// The body of a response that is not stored.
const fn unread_body<R: Body>(body: R) -> ResponseBody<Rest<R>> {
    ResponseBody::inner(Rest::unread(body))
}
