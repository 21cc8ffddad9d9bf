//! The one layer that handlers with attributes need.

use std::borrow::Cow;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use tower_layer::Layer;
use tower_service::Service;

use super::body::{RequestBody, Watched};
use super::finishing::{Begun, ResponseFuture, boxed};
use super::look::{Head, unread, user_agent};
use super::web::Web;
use crate::error::Error;
use crate::submit::request::{self, Answer, Submitting};
use crate::submit::{Disconnect, DuplicatePolicy, Submission};

/// Gives handlers with attributes what they need. Made by [`Web::layer`].
#[derive(Debug, Clone)]
pub struct WebLayer {
    web: Web,
}

impl WebLayer {
    pub(super) const fn new(web: Web) -> Self {
        Self { web }
    }
}

impl<S> Layer<S> for WebLayer {
    type Service = WebService<S>;

    fn layer(&self, inner: S) -> WebService<S> {
        WebService { inner, web: self.web.clone() }
    }
}

/// A service whose handlers may have attributes.
#[derive(Debug, Clone)]
pub struct WebService<S> {
    inner: S,
    web: Web,
}

impl<S, B, R> Service<Request<B>> for WebService<S>
where
    S: Service<Request<RequestBody<B>>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Send,
    B: Body<Data = Bytes, Error: Send> + Send + Unpin + 'static,
    R: Send + 'static,
{
    type Response = Response<R>;
    type Error = S::Error;
    type Future = ResponseFuture<Result<Response<R>, S::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let clone = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, clone);
        let (mut parts, body) = request.into_parts();
        let begun = Begun::in_request(&mut parts.extensions);
        let web = self.web.clone();
        let body = Arc::new(Watched::new(body, web.guards().settings().limits.body_bytes));
        let served = Arc::new(Served {
            web: web.clone(),
            head: Head::of(&parts),
            body: body.clone(),
            begun: begun.clone(),
            answer: Mutex::default(),
        });
        let request = Request::from_parts(parts, RequestBody::watched(body));
        let guards = web.guards().clone();
        // The call itself is made inside: the service may look around before it returns its future.
        let serving = boxed(|| async move { inner.call(request).await });
        let serving = boxed(|| async move { guards.enter(web.serve(request::serve(served, serving))).await });
        ResponseFuture::in_scope(begun, self.web.guards().locks(), serving)
    }
}

/// A request that is being served.
struct Served<B: Body> {
    web: Web,
    head: Head,
    body: Arc<Watched<B>>,
    begun: Begun,
    answer: Mutex<Answer>,
}

impl<B: Body<Data = Bytes, Error: Send> + Send + Unpin> Served<B> {
    async fn look(&self, policy: &DuplicatePolicy) -> Result<Submission, Error> {
        let limit = self.web.guards().settings().limits.body_bytes;
        let look = self.head.look();
        let body = if look.needs_body(&self.web, policy) {
            Some(self.body.whole().await.map_err(|why| unread(why, limit))?)
        } else {
            None
        };
        look.submission(&self.web, policy, body.as_ref())
    }
}

impl<B: Body<Data = Bytes, Error: Send> + Send + Unpin> request::Request for Served<B> {
    fn submission<'a>(&'a self, policy: &'a DuplicatePolicy) -> Submitting<'a> {
        Box::pin(self.look(policy))
    }

    fn on_disconnect(&self, disconnect: Disconnect) {
        self.begun.on(disconnect);
    }

    fn answer_with(&self, answer: Answer) {
        *self.answer.lock().unwrap_or_else(PoisonError::into_inner) = answer;
    }

    fn answer(&self) -> Answer {
        self.answer.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn user_agent(&self) -> Option<String> {
        user_agent(&self.head.headers).map(Cow::into_owned)
    }
}
